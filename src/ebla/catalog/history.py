"""The history of commits, asked: what was written last, and before a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from ebla.base.ids import RelationId, Version
from ebla.catalog import schema as s

if TYPE_CHECKING:
    from sqlalchemy import Row


def commit(connection: Connection, version: int) -> Row[Any] | None:
    return connection.execute(select(s.history).where(s.history.c.version == version)).one_or_none()


def newest_until(connection: Connection, time_us: int) -> Version:
    """The newest version that was committed up to a time; 0 if there is none."""
    older = select(s.history.c.version).where(s.history.c.committed_at <= time_us)
    return Version(connection.execute(older.order_by(s.history.c.version.desc()).limit(1)).scalar() or 0)


def newest_of(connection: Connection, relation: RelationId, until: int) -> int:
    """The newest commit of a relation up to a version, even if vacuum has removed its runs; 0 if there is none."""
    newest = select(func.max(s.history.c.version)).where(
        s.history.c.relation_id == relation, s.history.c.version <= until
    )
    return int(connection.execute(newest).scalar() or 0)


def last_writes(connection: Connection) -> dict[int, int]:
    """The version of each relation's last write. From the history: vacuum may have forgotten the runs of a write."""
    found = connection.execute(
        select(s.history.c.relation_id, func.max(s.history.c.version))
        .where(
            s.history.c.kind == "data",
            s.history.c.relation_id.is_not(None),
            s.history.c.reason.not_like("compact %"),
        )
        .group_by(s.history.c.relation_id)
    )
    return {int(relation): int(version) for relation, version in found}
