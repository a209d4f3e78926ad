"""The history of commits: written by each, and asked what was written last, and before a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, case, func, insert, select

from ebla.base import lazy
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import AtMost, State

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")


def record(
    state: State,
    decision: c.Decision,
    version: Version,
    now: int,
    *,
    created: RelationId | None,
    node: NodeId,
    commit_id: str,
) -> c.Committed:
    """Write the row of a commit. Its time is this one, or the first that is later than the commit before."""
    row = {
        "version": version,
        "kind": "exclusive" if decision.exclusive else "data",
        "reason": decision.reason,
        "node_id": node,
        "transaction_id": decision.transaction,
        "relation_id": created or decision.relation,
        "commit_id": commit_id,
    }
    if isinstance(state, Connection):
        before = select(s.history.c.committed_at).where(s.history.c.version == version - 1).scalar_subquery()
        later = case((before >= now, before + 1), else_=now)
        new = insert(s.history).values(committed_at=later, **row).returning(s.history.c.committed_at)
        at = int(state.execute(new).scalar_one())
    else:
        last = commit(state, version - 1)
        at = now if last is None else max(now, last.committed_at + 1)
        rows.write(state, rows.insert(s.history, [{**row, "committed_at": at}]))
    return c.Committed(version=version, committed_at=at, relation=created)


def committed_as(state: State, commit_id: str) -> c.Committed | None:
    """The commit of this id, if it happened. A relation that was created by it says so itself."""
    row = rows.one(state, s.history, commit_id=commit_id)
    if row is None:
        return None
    made = rows.one(state, s.relations, relation_id=row.relation_id, created_version=row.version)
    relation = None if made is None else RelationId(made.relation_id)
    return c.Committed(version=Version(row.version), committed_at=row.committed_at, relation=relation)


def commit(state: State, version: int) -> Any | None:
    return rows.one(state, s.history, version=version)


def newest_until(connection: Connection, time_us: int) -> Version:
    """The newest version that was committed up to a time; 0 if there is none. Looked for from the newest backwards."""
    older = select(s.history.c.version).where(s.history.c.committed_at <= time_us)
    return Version(connection.execute(older.order_by(s.history.c.version.desc()).limit(1)).scalar() or 0)


def newest_of(state: State, relation: RelationId, until: int) -> int:
    """The newest commit of a relation up to a version, even if vacuum has removed its runs; 0 if there is none."""
    return rows.greatest(state, s.history.c.version, relation_id=relation, version=AtMost(until)) or 0


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
