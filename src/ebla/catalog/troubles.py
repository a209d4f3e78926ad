"""What keeps relations from going on: recorded when work fails, removed when it succeeds.

A trouble is *final* if it belongs to the relation (an expression that fails on a row, a duplicate of a unique value):
the work is done again only when an input changed or a user asks. All others (a lost Spark job, a full disk, an
unexpected exception) are tried again at `retry_at`. The rows are no decisions: they are written in database
transactions of their own and take no version.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from ebla.base.backoff import Backoff
from ebla.base.ids import RelationId
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog, insisted
from ebla.catalog.unread_writes import Obstacle
from ebla.errors import Culprit
from ebla.model.relation import Kind

BACKOFF_US = Backoff(500_000, 30_000_000)

LOST_JOB = "LOST_JOB"
"""The code of a failure that was nothing but a job that Spark lost."""

ABOUT_VALUES = frozenset(
    {"ARITHMETIC_OVERFLOW", "BINARY_ARITHMETIC_OVERFLOW", "CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE"}
    | {"CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"}
)
"""Conditions of which users get a `TypeMismatchError`; of all others of a text or a row, an `SqlError`."""

TEXT_MAX = 200
"""Characters of a message in a line that says what work waits for."""


class Activity(StrEnum):
    """The kinds of work that can be in trouble."""

    EPOCH = "epoch"
    BUILD = "build"
    DICTIONARY = "dictionary"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    relation: RelationId
    work: Activity
    name: str
    """The relation's name at that time: the relation may be gone."""
    kind: Kind
    final: bool
    code: str
    """What kind of failure it is: Spark's error condition, or the class of the error."""
    message: str
    culprit: Culprit | None
    """The row or value that is to blame, where it was found."""
    traceback: str | None
    attempts: int
    """Failures in a row, this one included."""
    holder: str
    """The process that it happened in."""
    first_at: int
    last_at: int
    retry_at: int | None
    """When the work is tried again; `None` if that needs a change of an input, or a user."""


@insisted
def record(
    catalog: Catalog,
    *,
    relation: RelationId,
    work: Activity,
    name: str,
    kind: Kind,
    final: bool,
    code: str,
    message: str,
    holder: str,
    culprit: Culprit | None = None,
    traceback: str | None = None,
) -> Trouble:
    """Note a failure. Failures in a row count up, and each doubles the pause before the next attempt."""
    with catalog.writing() as connection:
        before = find(connection, relation, work)
        now = catalog.clock()
        attempts = 1 if before is None or before.final != final else before.attempts + 1
        found = Trouble(
            relation=relation,
            work=work,
            name=name,
            kind=kind,
            final=final,
            code=code,
            message=message,
            culprit=culprit,
            traceback=traceback,
            attempts=attempts,
            holder=holder,
            first_at=now if before is None or attempts == 1 else before.first_at,
            last_at=now,
            retry_at=None if final else now + int(BACKOFF_US.after(attempts)),
        )
        connection.execute(delete(s.troubles).where(*_of(relation, work)))
        connection.execute(
            insert(s.troubles),
            {
                "relation_id": relation,
                "work": work.value,
                "name": name,
                "kind": kind.value,
                "final": final,
                "code": code,
                "message": message,
                "culprit": None if culprit is None else culprit.key,
                "culprit_relation": None if culprit is None else culprit.relation,
                "traceback": traceback,
                "attempts": attempts,
                "holder": holder,
                "first_at": found.first_at,
                "last_at": now,
                "retry_at": found.retry_at,
            },
        )
    return found


@insisted
def clear(catalog: Catalog, relation: RelationId, *works: Activity) -> bool:
    """Forget the troubles of a relation, all or of some kinds of work; whether there were any.

    Looks before it takes the write lock: work that succeeds calls this every time.
    """
    which = [s.troubles.c.relation_id == relation]
    if works:
        which.append(s.troubles.c.work.in_([work.value for work in works]))
    with catalog.reading() as connection:
        if connection.execute(select(s.troubles.c.work).where(*which)).first() is None:
            return False
    with catalog.writing() as connection:
        return bool(connection.execute(delete(s.troubles).where(*which)).rowcount)


def find(connection: Connection, relation: RelationId, work: Activity) -> Trouble | None:
    row = connection.execute(select(s.troubles).where(*_of(relation, work))).one_or_none()
    return None if row is None else _trouble(row)


def by_name(connection: Connection, name: str) -> list[Trouble]:
    """Troubles of the relation that has, or last had, this name; the newest first."""
    rows = connection.execute(select(s.troubles).order_by(s.troubles.c.last_at.desc()))
    return [_trouble(row) for row in rows if s.folded(row.name) == s.folded(name)]


def everything(connection: Connection, relations: Collection[RelationId] | None = None) -> list[Trouble]:
    """All troubles, or those of some relations, the newest first."""
    query = select(s.troubles).order_by(s.troubles.c.last_at.desc())
    if relations is not None:
        query = query.where(s.troubles.c.relation_id.in_(list(relations)))
    return [_trouble(row) for row in connection.execute(query)]


def retries(connection: Connection, work: Activity) -> list[int]:
    """When work of a kind is tried again, of all relations."""
    query = select(s.troubles.c.retry_at).where(s.troubles.c.work == work.value, s.troubles.c.retry_at.is_not(None))
    return list(connection.execute(query).scalars())


def _of(relation: RelationId, work: Activity) -> tuple[Any, ...]:
    return s.troubles.c.relation_id == relation, s.troubles.c.work == work.value


def _trouble(row: Row[Any]) -> Trouble:
    return Trouble(
        relation=RelationId(row.relation_id),
        work=Activity(row.work),
        name=row.name,
        kind=Kind(row.kind),
        final=bool(row.final),
        code=row.code,
        message=row.message,
        culprit=None if row.culprit is None else Culprit(row.culprit_relation, row.culprit),
        traceback=row.traceback,
        attempts=row.attempts,
        holder=row.holder,
        first_at=row.first_at,
        last_at=row.last_at,
        retry_at=row.retry_at,
    )


def hurry(catalog: Catalog, relations: Collection[RelationId], work: Activity) -> None:
    """A user asks for them: what waits is tried now. How often it failed stays known."""
    if not relations:
        return
    now = catalog.clock()
    late = [s.troubles.c.relation_id.in_(list(relations)), s.troubles.c.work == work.value, s.troubles.c.retry_at > now]
    with catalog.reading() as connection:
        if connection.execute(select(s.troubles.c.work).where(*late)).first() is None:
            return
    with catalog.writing() as connection:
        connection.execute(update(s.troubles).where(*late).values(retry_at=now))


def waiting(trouble: Trouble | Obstacle, now: int) -> str:
    """What users see of work that will be tried again: `waiting: Spark lost a job, again in 4 s`."""
    return f"waiting: {obstacle(trouble, now)}"


def obstacle(trouble: Trouble | Obstacle, now: int) -> str:
    """What stands in the way, and when the work goes on."""
    what = "Spark lost a job" if trouble.code == LOST_JOB else trouble.message
    if len(what) > TEXT_MAX:
        what = what[: TEXT_MAX - 1] + "…"
    if trouble.retry_at is None:
        return what
    left_s = max(0, -(-(trouble.retry_at - now) // 1_000_000))
    return f"{what}, again {f'in {left_s} s' if left_s else 'now'}"
