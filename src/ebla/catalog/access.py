"""Users and grants: what updates of them change, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from ebla.base.ids import RelationId
from ebla.catalog import memory, rows
from ebla.catalog import schema_access as s
from ebla.catalog.rows import Change, State
from ebla.catalog.schema import index_states, relations
from ebla.model.access import PutGrant, PutUser, RemoveUser, Right, User, UserRole
from ebla.model.relation import Kind

if TYPE_CHECKING:
    from ebla.model import changes as c


def changes(state: State, update: c.UserUpdate, now: int) -> tuple[Change, ...]:
    match update:
        case PutUser(name=name, role=role, token_digest=digest):
            before = rows.one(state, s.users, name=name)
            token_at = now if before is None or before.token_digest != digest else before.token_at
            created_at = now if before is None else before.created_at
            values = {"role": role.value, "token_digest": digest, "created_at": created_at, "token_at": token_at}
            return (rows.put(s.users, name=name, **values),)
        case RemoveUser(name=name):
            return (rows.delete(s.users, name=name), rows.delete(s.grants, user_name=name))
        case PutGrant(user=user, relation=relation, right=right):
            return (rows.put(s.grants, user_name=user, relation_id=relation, level=right.value),)
        case _:
            assert_never(update)


def users(state: State) -> Mapping[str, Any]:
    """The rows of all users, by name in lower case."""
    return memory.remembered(
        state, "users", lambda: {row.name.lower(): row for row in rows.find(state, s.users, "name")}
    )


def user(state: State, row: Any) -> User:
    """A user with the grants of its row's name."""
    granted = rows.find(state, s.grants, user_name=row.name)
    said = {RelationId(one.relation_id): Right(one.level) for one in granted}
    return User(name=row.name, role=UserRole(row.role), said=said)


def by_token(state: State, digest: str) -> User | None:
    """The user whose token has this digest."""
    found = rows.one(state, s.users, token_digest=digest)
    return None if found is None else user(state, found)


def hidden(state: State, user: User) -> frozenset[RelationId]:
    """The relations that a user may not read, with their indexes. Dropped indexes are among them: whose they were is
    not known any more."""
    if not user.hidden:
        return frozenset()
    bases = {row.index_id: row.base_id for row in rows.find(state, index_states)}
    indexes = rows.values(state, relations.c.relation_id, kind=Kind.INDEX.value)
    return user.hidden.union(one for one in indexes if bases.get(one) is None or bases[one] in user.hidden)


def hidden_names(state: State, user: User) -> list[str]:
    """What the relations that a user may not read are called, or were until they were dropped."""
    return sorted(rows.values(state, relations.c.name, relation_id=user.hidden)) if user.hidden else []
