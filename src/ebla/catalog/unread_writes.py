"""How far views are behind, in one statement: consoles and waits ask again and again.

A position is a JSON object; its `read` has the version at which each input was last read. The database takes it apart,
so that the first write behind that version, and its time, come with the position itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Text
from sqlalchemy.sql.selectable import TableValuedAlias

from ebla.base.ids import RelationId, Version
from ebla.catalog import memory, reads, rows
from ebla.catalog import schema as s
from ebla.catalog.history import WROTE
from ebla.catalog.reads import WRITTEN
from ebla.catalog.rows import Above

READ = r'"read": (\{(?:"(?:[^"\\]|\\.)*": [0-9]+(?:, "(?:[^"\\]|\\.)*": [0-9]+)*)?\})'
"""Where a position says what was read. PostgreSQL has no test for JSON; what is damaged must not fail the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadWrites:
    """Writes of an input that a view has not read."""

    first: Version
    """Where vacuum has forgotten runs that were not read, the first that may have been."""
    newest: Version
    since_us: int
    """When the first was committed; of one that vacuum has trimmed from the history, not before this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why work is tried again, and when."""

    relation: RelationId
    code: str
    message: str
    retry_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    positions: Mapping[str, str]
    """The positions of views, by their names in `progress`."""
    unread: Mapping[tuple[str, str], UnreadWrites]
    """Unread writes by the position's name and the input's."""
    obstacles: Sequence[Obstacle]
    """The newest last."""


def look(connection: Connection, prefix: str) -> Look:
    """The positions whose names begin so, what they have not read, and what is to be tried again. One statement."""
    counters: dict[str, int] = {}
    positions: dict[str, str] = {}
    unread: dict[tuple[str, str], UnreadWrites] = {}
    obstacles: list[tuple[int, Obstacle]] = []
    for kind, name, of, text, a, b, at in connection.execute(_statement(connection.dialect.name, prefix)):
        match kind:
            case "counter":
                counters[name] = int(a)
            case "position":
                positions[name] = text
            case "unread":
                unread[name, of] = UnreadWrites(first=Version(a), newest=Version(b), since_us=int(at))
            case _:
                found = Obstacle(relation=RelationId(a), code=name, message=text, retry_at=b)
                obstacles.append((at, found))
    memory.note(connection, counters)
    return Look(positions=positions, unread=unread, obstacles=[one for _, one in sorted(obstacles, key=lambda o: o[0])])


def of_relation(connection: Connection, name: str) -> UnreadWrites | None:
    """All writes of an input of which a position says nothing."""
    relation = reads.find_relation(connection, name)
    first = None if relation is None else reads.first_write_after(connection, relation.id, 0)
    if relation is None or first is None:
        return None
    since_us = rows.least(connection, s.history.c.committed_at, version=Above(first - 1))
    newest = reads.newest_write(connection, relation.id)
    return UnreadWrites(first=first, newest=newest, since_us=since_us or 0)


@cache
def _statement(dialect: str, prefix: str) -> sa.CompoundSelect[Any]:
    troubles, progress = s.troubles.c, s.progress.c
    return sa.union_all(
        _row("counter", name=s.counters.c.name, a=s.counters.c.value),
        _row("position", name=progress.name, text=progress.value).where(progress.name.startswith(prefix)),
        _row(
            "obstacle", name=troubles.code, text=troubles.message, a=troubles.relation_id, b=troubles.retry_at,
            at=troubles.last_at,
        ).where(~troubles.final),
        _unread(dialect, prefix),
    )  # fmt: skip


def _row(kind: str, **given: ColumnElement[object] | sa.Column[object]) -> Select[Any]:
    kinds = {"name": Text, "of": Text, "text": Text, "a": BigInteger, "b": BigInteger, "at": BigInteger}
    columns: list[ColumnElement[Any]] = [
        given.get(name, sa.cast(sa.null(), kind_of)).label(name) for name, kind_of in kinds.items()
    ]
    return sa.select(*(sa.literal(kind, Text).label("kind"), *columns))


def _unread(dialect: str, prefix: str) -> Select[Any]:
    """The first and the newest write of each input that was written behind what the position has read."""
    read, runs, truncations = _read(dialect), s.runs.c, s.truncations.c
    relation, since = s.relations.c.relation_id, sa.cast(read.c.value, BigInteger)
    written = [runs.relation_id == relation, runs.begin_version > since, *(runs[n] == v for n, v in WRITTEN.items())]
    truncated = [truncations.relation_id == relation, truncations.version > since]
    commits = s.history.c
    # Vacuum has forgotten runs behind what was read, and keeps the last commit that wrote rows in the history.
    forgotten = [s.relations.c.horizon > since, commits.relation_id == relation, commits.version > since, *WROTE]

    living = sa.and_(s.relations.c.folded_name == read.c.key, s.relations.c.dropped_version.is_(None))

    def one(what: ColumnElement[int], where: Sequence[ColumnElement[bool]], name: str) -> ColumnElement[int]:
        return sa.select(what).where(*where).correlate(s.relations, read).scalar_subquery().label(name)

    found = (
        sa.select(
            s.progress.c.name,
            read.c.key,
            one(sa.func.min(runs.begin_version), written, "first_run"),
            one(sa.func.min(truncations.version), truncated, "first_cut"),
            one(sa.func.max(runs.begin_version), written, "last_run"),
            one(sa.func.max(truncations.version), truncated, "last_cut"),
            one(sa.func.max(commits.version), forgotten, "last_forgotten"),
            since.label("since"),
        )
        .select_from(s.progress.join(read, sa.true()).join(s.relations, living))
        .where(s.progress.c.name.startswith(prefix))
        .subquery("found")
    )
    at = found.c
    first_kept = sa.case((at.first_cut < at.first_run, at.first_cut), else_=at.first_run)
    first = sa.case((at.last_forgotten.is_not(None), at.since + 1), else_=sa.func.coalesce(first_kept, at.first_cut))
    last_kept = sa.case((at.last_cut > at.last_run, at.last_cut), else_=at.last_run)
    last = sa.func.coalesce(at.last_forgotten, last_kept, at.last_cut)
    # The commit itself, or where it was trimmed the first one behind it that is left.
    times = sa.select(s.history.c.committed_at).where(s.history.c.version >= first).order_by(s.history.c.version)
    when = times.limit(1).correlate(found).scalar_subquery()
    return _row("unread", name=at.name, of=at.key, a=first, b=last, at=when).where(first.is_not(None))


def _read(dialect: str) -> TableValuedAlias:
    """The inputs of a position, `key`, and at which versions they were read, `value`; none if it is damaged."""
    stored = s.progress.c.value
    if dialect == "postgresql":
        found = sa.func.json_each_text(sa.cast(sa.func.coalesce(sa.func.substring(stored, READ), "{}"), sa.JSON))
    else:
        found = sa.func.json_each(sa.case((sa.func.json_valid(stored) == 1, stored), else_="{}"), "$.read")
    return found.table_valued("key", "value")
