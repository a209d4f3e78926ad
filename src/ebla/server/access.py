"""Who asks, and whether the user may: tokens, rights, paths to load from, and how often."""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from ebla.catalog import access, index_states, reads
from ebla.catalog.store import Catalog
from ebla.errors import RateLimitError, RightError, TokenError
from ebla.model.access import OF_ROLE, Right, User, UserRole
from ebla.model.relation import Kind, Relation
from ebla.server.options import Limits
from ebla.server.statement_rights import Need, NeedAll, NeedRole, Needs
from ebla.tables import loads

KEPT_S = 1.0
"""How long a node believes what it has read of a user. A dropped user, a replaced token and a revoked right are refused
by every node after this time, and by the node that carried out the change at once."""

KEPT_MAX = 10_000

ANONYMOUS = User(name="anonymous", role=UserRole.ADMIN)
"""Every client of a node that asks for no tokens."""


@dataclass(slots=True)
class _Bucket:
    """Requests that a token may still send: they come back with time."""

    left: float
    at: float


class Access:
    """The users of one catalog, as a node knows them."""

    def __init__(self, catalog: Catalog, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._limits = limits
        self._clock = clock
        self._kept: dict[str, tuple[float, User]] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._lock = threading.Lock()

    # ---- tokens -----------------------------------------------------------------------------------------

    def recent(self, digest: str) -> User | None:
        """The user of a token, if it was looked up a moment ago."""
        at, user = self._kept.get(digest, (0.0, None))
        return user if user is not None and self._clock() - at < KEPT_S else None

    def look_up(self, digest: str) -> User:
        began = self._clock()
        with self._catalog.patience.without():  # a catalog that does not answer is the client's to wait for
            user = self._catalog.read(lambda connection: access.by_token(connection, digest))
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            if user is None:
                self._kept.pop(digest, None)
                raise TokenError(
                    "token: expected one of a user, found one that no user has; ask an admin for a new one"
                )
            self._kept[digest] = began, user
        return user

    def again(self, user: User) -> User:
        """A user as the catalog has it now, for streams, which outlast a request. A dropped user has no rights."""
        if user is ANONYMOUS:
            return user

        def read(connection: Connection) -> User:
            row = access.users(connection).get(user.name.lower())
            if row is None:
                raise TokenError(f"user {user.name}: expected a user, found that it was dropped")
            return access.user(connection, row)

        return self._catalog.read(read)

    def forget(self) -> None:
        """Users have changed."""
        with self._lock:
            self._kept.clear()

    def require_pace(self, key: str) -> None:
        """Raise if a token sends more requests than it may."""
        rate = self._limits.requests_per_s
        if rate is None:
            return
        now = self._clock()
        with self._lock:
            if len(self._buckets) >= KEPT_MAX:
                self._buckets.clear()
            bucket = self._buckets.setdefault(key, _Bucket(self._limits.burst, now))
            bucket.left = min(self._limits.burst, bucket.left + (now - bucket.at) * rate)
            bucket.at = now
            if bucket.left >= 1:
                bucket.left -= 1
                return
            wait_s = (1 - bucket.left) / rate
        error = RateLimitError(f"expected {rate:g} requests a second at most, found more; wait for {wait_s:.2g} s")
        error.retry_after_s = wait_s
        raise error

    # ---- rights -----------------------------------------------------------------------------------------

    def require(self, user: User, needs: Iterable[Needs], *, ahead: bool = False) -> None:
        """Raise unless the user has all that is needed. What is asked `ahead` may name relations that come later."""
        wanted = list(needs)
        for need in wanted:
            if isinstance(need, NeedRole):
                _require_role(user, need)
        for each in {need for need in wanted if isinstance(need, NeedAll)} if user.hidden else ():
            self._catalog.read(partial(_require_all, user=user, need=each))
        named = [need for need in wanted if isinstance(need, Need)]
        if named:
            self._catalog.read(lambda connection: _require_rights(connection, user, named, ahead=ahead))

    def permit(self, user: User, right: Right) -> Callable[[Relation], None]:
        """What raises unless the user has the right on a relation."""

        def permit(relation: Relation) -> None:
            if relation.kind is Kind.INDEX:
                self.require(user, (Need(right, relation.name),))
            else:
                _require_right(user, right, relation)

        return permit


def _require_role(user: User, need: NeedRole) -> None:
    if OF_ROLE[user.role].level < OF_ROLE[need.role].level:
        raise RightError(
            f"user {user.name}: expected the role {need.role.value} for {need.why}, found {user.role.value}; "
            f"an admin can say ALTER USER {user.name} ROLE {need.role.value}"
        )


def _require_all(connection: Connection, user: User, need: NeedAll) -> None:
    names = access.hidden_names(connection, user)
    if names:
        raise RightError(
            f"user {user.name}: expected the right SELECT on every relation for {need.why}, found NONE on "
            f"{', '.join(names)}; {need.instead}"
        )


def _require_rights(connection: Connection, user: User, needs: Sequence[Need], *, ahead: bool) -> None:
    for need in needs:
        relation = _target(connection, need.relation)
        if relation is None:
            if need.right is Right.SELECT and not ahead:
                reads.relation(connection, need.relation)  # says which there are
            continue  # the statement says what is wrong, or does without it
        _require_right(user, need.right, relation)


def _require_right(user: User, right: Right, relation: Relation) -> None:
    if not user.may(right, relation.id):
        raise RightError(
            f"user {user.name}: expected the right {right.value} on {relation.name}, found "
            f"{user.right(relation.id).value}; an admin can say "
            f"GRANT {right.value} ON {relation.name} TO {user.name}"
        )


def _target(connection: Connection, name: str) -> Relation | None:
    """The relation whose rights count: of an index, the one that it is of."""
    found = reads.find_relation(connection, name)
    if found is None or found.kind is not Kind.INDEX:
        return found
    stands = index_states.of_index(connection, found.id)
    return None if stands is None else reads.relation_by_id(connection, stands.base)


# ---- files ----------------------------------------------------------------------------------------------


def require_below(path: str, allowed: Sequence[Path]) -> None:
    """Refuse to load what does not lie below one of the directories, wherever links lead."""
    local = loads.local_path(path)
    _require_below(path, local[: _magic(local)] if glob.has_magic(local) else local, allowed)
    for file in loads.find_files(path):
        _require_below(path, file, allowed)


def _require_below(path: str, file: str, allowed: Sequence[Path]) -> None:
    if not any(_is_below(os.path.realpath(file), os.path.realpath(one)) for one in allowed):
        said = ", ".join(str(one) for one in allowed) or "none, for the node was started without load_from"
        raise RightError(f"LOAD: expected a path below one of the node's directories, found {path}; they are: {said}")


def _magic(path: str) -> int:
    """Where the part of a pattern begins that has special characters."""
    before = next(i for i in range(len(path) + 1) if glob.has_magic(path[:i]))
    return path.rfind(os.sep, 0, before) + 1


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
