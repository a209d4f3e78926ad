"""The history of commits: written by each, asked what was written last and before a time, and trimmed by vacuum.

The counter `history` says from which version on all commits are in it. Of older ones the last of each relation are, and
those of runs that the manifest names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, not_, or_, select, union_all

from ebla.base import lazy
from ebla.base.ids import NodeId, RelationId, Version
from ebla.base.user_requests import UserRequest
from ebla.catalog import audit, memory, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import AtMost, State
from ebla.model.work import ROWS_AS_THEY_WERE, WorkKind

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

COUNTER = "history"


def _is_one(kinds: Iterable[WorkKind]) -> ColumnElement[bool]:
    """Whether a commit is of these kinds. Never NULL: an older release says none."""
    return and_(s.history.c.work.is_not(None), s.history.c.work.in_([kind.value for kind in kinds]))


AS_IT_WAS = _is_one(ROWS_AS_THEY_WERE)
"""Whether a commit left the rows of its relation as they were."""
WROTE = (s.history.c.kind == "data", not_(AS_IT_WAS))
"""Commits that wrote the rows of their relation."""


def record(
    state: State,
    decision: c.Decision,
    version: Version,
    now: int,
    *,
    created: RelationId | None,
    node: NodeId,
    commit_id: str,
    request: UserRequest | None = None,
) -> c.CommitRecord:
    """Write the row of a commit. Its time is this one, or the first that is later than the commit before.

    A commit of a user's request is in the audit log as well, and refused if the request was cancelled or done before.
    """
    row = {
        "version": version,
        "kind": "exclusive" if decision.exclusive else "data",
        "reason": decision.reason,
        "node_id": node,
        "transaction_id": decision.transaction,
        "relation_id": created or decision.relation,
        "commit_id": commit_id,
        "work": None if decision.work is None else decision.work.value,
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
    if request is not None:
        audit.record(state, request, version, at, created or decision.relation, decision.reason)
    return c.CommitRecord(version=version, committed_at=at, relation=created)


def committed_as(state: State, commit_id: str) -> c.CommitRecord | None:
    """The commit of this id, if it happened. A relation that was created by it says so itself."""
    row = rows.one(state, s.history, commit_id=commit_id)
    if row is None:
        return None
    made = rows.one(state, s.relations, relation_id=row.relation_id, created_version=row.version)
    relation = None if made is None else RelationId(made.relation_id)
    return c.CommitRecord(version=Version(row.version), committed_at=row.committed_at, relation=relation)


def commit(state: State, version: int) -> Any | None:
    return rows.one(state, s.history, version=version)


def newest_until(connection: Connection, time_us: int) -> Version:
    """The newest version that was committed up to a time; 0 if there is none. A later commit has a later time."""
    older = select(s.history.c.version).where(s.history.c.committed_at <= time_us)
    return Version(connection.execute(older.order_by(s.history.c.committed_at.desc()).limit(1)).scalar() or 0)


def complete_since(state: State) -> Version:
    """The version from which on all commits are here."""
    return Version(memory.counters(state)[COUNTER])


def newest_of(state: State, relation: RelationId, until: int) -> int:
    """The newest commit of a relation up to a version, even if vacuum has removed its runs; 0 if there is none.

    Of a time from which commits were trimmed, it is the latest that may have been.
    """
    found = rows.greatest(state, s.history.c.version, relation_id=relation, version=AtMost(until)) or 0
    return until if found < until < complete_since(state) else found


def last_writes(connection: Connection) -> dict[int, int]:
    """The version of each relation's last write. From the history: vacuum may have forgotten the runs of a write."""
    found = connection.execute(
        select(s.history.c.relation_id, func.max(s.history.c.version))
        .where(s.history.c.relation_id.is_not(None), *WROTE)
        .group_by(s.history.c.relation_id)
    )
    return {int(relation): int(version) for relation, version in found}


OF_BUILDS = (WorkKind.BUILD, WorkKind.BUILD_FAILURE)
"""How builds went. Those of single chunks are left out."""
OF_EPOCHS = (WorkKind.EPOCH, WorkKind.EPOCH_FAILURE, WorkKind.CHUNK, WorkKind.BUILD_FAILURE)
"""What brought a view to newer versions, or stopped it."""


def newest(
    connection: Connection,
    limit: int,
    *,
    before: int | None = None,
    words: str = "",
    of_builds: bool = False,
    hidden: Collection[RelationId] = (),
) -> Sequence[Any]:
    """The newest commits before a version whose reasons hold these words in this order, in any case, the newest first.

    `hidden`: relations whose commits are left out, and then those of relations that are forgotten, too. It reads along
    the primary key until it has found as many as asked for.
    """
    of = s.history.c
    wanted = select(of.version, of.kind, of.reason, of.committed_at, of.node_id)
    if before is not None:
        wanted = wanted.where(of.version < before)
    if words:
        plain = words.replace("/", "//").replace("%", "/%").replace("_", "/_")
        wanted = wanted.where(func.lower(of.reason).like(func.lower(f"%{plain}%"), escape="/"))
    if of_builds:
        wanted = wanted.where(_is_one(OF_BUILDS))
    if hidden:
        readable = select(s.relations.c.relation_id).where(s.relations.c.relation_id.not_in(hidden))
        wanted = wanted.where(or_(of.relation_id.is_(None), of.relation_id.in_(readable)))
    return connection.execute(wanted.order_by(of.version.desc()).limit(limit)).all()


def epochs(connection: Connection, view: RelationId, limit: int) -> Sequence[Any]:
    """The newest commits that brought a view up to date, with the transaction of each."""
    of, work = s.history.c, s.transactions.c
    columns = (of.version, of.reason, of.committed_at, work.started_at, work.ended_at, work.snapshot_version)
    wanted = select(*columns).outerjoin_from(s.history, s.transactions, work.transaction_id == of.transaction_id)
    wanted = wanted.where(of.relation_id == view, _is_one(OF_EPOCHS))
    return connection.execute(wanted.order_by(of.version.desc()).limit(limit)).all()


def writes_of_inputs(connection: Connection, view: RelationId, limit: int) -> Sequence[Any]:
    """The newest commits that wrote rows of a view's inputs."""
    of = s.history.c
    inputs = select(s.dependencies.c.input_id).where(s.dependencies.c.relation_id == view)
    wanted = select(of.version, of.committed_at).where(of.relation_id.in_(inputs), *WROTE)
    wanted = wanted.where(not_(_is_one((WorkKind.INDEX_FILL,))))
    return connection.execute(wanted.order_by(of.version.desc()).limit(limit)).all()


def last_of_each(connection: Connection, until: Version) -> list[int]:
    """Of commits before a version, the last of each relation, and the last that wrote its rows."""
    of = s.history.c
    living = select(s.relations.c.relation_id).where(s.relations.c.dropped_version.is_(None))
    newest = select(func.max(of.version)).where(of.relation_id.in_(living))
    grouped = newest.group_by(of.relation_id, of.kind, AS_IT_WAS)
    return [version for version in connection.execute(grouped).scalars() if version < until]


def trim(connection: Connection, until: Version, kept: Collection[int]) -> None:
    """Forget the commits before a version, but for some, and for those that changes and builds tell the time of."""
    version, begun = s.history.c.version, s.runs.c.begin_version
    others = (s.truncations.c.version, s.view_builds.c.created_version, s.index_states.c.since_version)
    named = union_all(select(begun).where(begun < until), *map(select, others))
    connection.execute(delete(s.history).where(version < until, version.not_in(kept), version.not_in(named)))
    memory.put(connection, COUNTER, max(complete_since(connection), until))
