"""Indexes walk from state to state, and anybody may carry them on.

Theory of operation. `step` reads the catalog, finds the next thing to do for the indexes of one base
(`ebla.indexes.steps`), and does it: a guarded commit, or Spark's work and then guarded commits. Nothing is remembered
between two calls, so after a crash any process calls it again. Two that call it at once do some work twice; of each
commit one succeeds.

Before a step that needs it, a *barrier*: no transaction of the base is open that began before the indexes got to where
they are. The wait is bounded by `barrier_grace_s`; who still stands in the way is aborted, which its commit will say.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import assert_never

from sqlalchemy import Connection, select

from ebla.build.segments import Segment
from ebla.build.states import Permission
from ebla.catalog import building, indexing, reads
from ebla.catalog import changes as c
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.errors import (
    ConflictError,
    DuplicateKeyError,
    EblaError,
    SnapshotError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
)
from ebla.failpoint import hit
from ebla.ids import RelationId, TabletId, Version
from ebla.indexes import definition, unique
from ebla.indexes.backfill import fill
from ebla.indexes.create import begin_removal
from ebla.indexes.definition import Index
from ebla.indexes.steps import Advance, Fill, Finish, Standing, next_step
from ebla.spark import scan as sscan
from ebla.storage.model import Relation, Run
from ebla.storage.snapshot import Snapshot
from ebla.tables.context import Context
from ebla.tables.writes import Work

POLL_S = 0.02

Failures = dict[RelationId, EblaError]
"""Why indexes could not be built, as far as this process was there."""


def step(context: Context, base: RelationId, failures: Failures | None = None) -> bool:
    """Do the next thing for the indexes of a base. `False` if there is nothing to do."""
    with context.catalog.reading() as connection:
        relation = reads.relation_by_id(connection, base)
        if relation is None:
            return False
        indexes = {index.id: index for index in definition.of_base(connection, relation)}
        standing = _standing(connection, indexes.values(), base)
    todo = next_step(standing, tablets_max=context.settings.index_tablets_per_job)
    try:
        match todo:
            case None:
                _let_go(context, base)
                return False
            case Advance():
                _advance(context, relation, [indexes[i] for i in todo.indexes], todo)
            case Fill():
                _fill(context, relation, [indexes[i] for i in todo.indexes], todo.tablets)
            case Finish():
                _finish(context, relation, indexes[todo.index])
            case _:
                assert_never(todo)
    except ConflictError as conflict:
        if not conflict.retryable:
            raise
        time.sleep(POLL_S)  # somebody else has moved; look again
    except _Failed as failed:
        for index in failed.indexes:
            if failures is not None:
                failures[index.id] = failed.error
            begin_removal(context, index.id, f"index {index.name} cannot be built: {failed.error}", str(failed.error))
            hit("index.failed")
    return True


def run(context: Context, base: RelationId) -> Failures:
    """Step until there is nothing left to do."""
    failures: Failures = {}
    while step(context, base, failures):
        pass
    return failures


def unfinished(connection: Connection) -> list[RelationId]:
    """Bases with indexes that are on their way somewhere."""
    at_rest = (Permission.ABSENT, Permission.READ_WRITE_AND_DELETE)
    return sorted({one.base for one in indexing.all_states(connection) if one.state not in at_rest})


class _Failed(Exception):
    """These indexes cannot be built, whatever is tried again."""

    def __init__(self, indexes: Sequence[Index], error: EblaError) -> None:
        super().__init__(str(error))
        self.indexes = indexes
        self.error = error


def _standing(connection: Connection, indexes: object, base: RelationId) -> list[Standing]:
    tasks = s.view_building_tasks
    rows = connection.execute(
        select(tasks.c.view_id, tasks.c.base_tablet_id).where(
            tasks.c.base_id == base, tasks.c.aborted.is_(False), tasks.c.view_id.is_not(None)
        )
    )
    left: dict[int, set[TabletId]] = {}
    for view, tablet in rows:
        left.setdefault(view, set()).add(TabletId(tablet))
    return [
        Standing(index=i.id, state=i.state, since=i.stands.since, left=frozenset(left.get(i.id, ())))
        for i in indexes  # type: ignore[attr-defined]
    ]


# ---- from state to state --------------------------------------------------------------------------------


def barrier(context: Context, base: Relation, since: Version, names: Sequence[str]) -> None:
    """Wait until no transaction of the base is open that began before a version; then abort those that are."""
    deadline = time.monotonic() + context.settings.barrier_grace_s
    while True:
        tx.reap(context.catalog)
        with context.catalog.reading() as connection:
            waiting = tx.begun_before(connection, base.id, since)
        if not waiting:
            return
        if time.monotonic() >= deadline:
            for one in waiting:
                tx.abort(context.catalog, one.transaction)
            return
        first = waiting[0]
        context.progress(
            f"index {', '.join(names)}: waiting for transaction {first.transaction} ({first.reason}, {first.holder})",
            None,
        )
        time.sleep(POLL_S)


def _advance(context: Context, base: Relation, indexes: Sequence[Index], todo: Advance) -> None:
    names = [index.name for index in indexes]
    barrier(context, base, todo.since, names)
    hit("index.barrier_passed")
    if todo.to is Permission.BACKFILLING:
        # Before the commit, so that there is no moment in which what it reads is not kept.
        _keep(context, base, context.catalog.version(), names)
    updates: list[c.Update] = [
        c.SetIndexState(index=index.id, state=todo.to, message=index.stands.message) for index in indexes
    ]
    context.catalog.commit(
        c.Decision(
            reason=f"index {', '.join(names)}: {indexes[0].state} -> {todo.to}",
            relation=base.id,
            requires=tuple(_as_found(index) for index in indexes),
            updates=tuple(updates),
            exclusive=True,
        ),
        node=context.node,
    )
    hit("index.advanced")
    context.progress(f"index {', '.join(names)}: {todo.to}", None)


def _as_found(index: Index) -> c.IndexIs:
    stands = index.stands
    return c.IndexIs(index=index.id, state=stands.state, since=stands.since, read_version=stands.read_version)


def _holder(base: RelationId) -> str:
    return f"indexes of relation {base}"


def _keep(context: Context, base: Relation, version: Version, names: Sequence[str]) -> None:
    tx.hold(
        context.catalog,
        version,
        holder=_holder(base.id),
        reason=f"fill index {', '.join(names)}",
        lease_us=int(context.settings.pin_lease_s * 1e6),
    )


def _let_go(context: Context, base: RelationId) -> None:
    """What was kept for filling is not needed once nothing is filled any more."""
    with context.catalog.reading() as connection:
        filling = any(one.state is Permission.BACKFILLING for one in indexing.of_base(connection, base))
        held = connection.execute(select(s.pins.c.pin_id).where(s.pins.c.holder == _holder(base))).first()
    if held is not None and not filling:
        tx.let_go(context.catalog, _holder(base))


# ---- filling --------------------------------------------------------------------------------------------


def _fill(context: Context, base: Relation, indexes: Sequence[Index], tablets: Sequence[TabletId]) -> None:
    """Read tablets once for all indexes, at the newest of the versions that they are to be read at.

    A newer version than its own is as good for an index: what changed between the two is in its level 0 as well.
    """
    versions = [index.stands.read_version for index in indexes]
    at = max(version for version in versions if version is not None)
    _keep(context, base, at, [index.name for index in indexes])
    with context.catalog.reading() as connection:
        try:
            snapshot = reads.snapshot(connection, reads.relation(connection, base.name, version=at), at, tablets)
        except SnapshotError as error:
            raise _Failed(indexes, SnapshotError(f"index {indexes[0].name}: {error}; create it again")) from error
        indexes = [definition.at_version(connection, index, at) for index in indexes]
    # Expressions are those of a session; indexes of other sessions take a turn of their own.
    first = indexes[0].settings
    together = [index for index in indexes if index.settings in (first, {})]
    if not first:
        named = next((index.settings for index in indexes if index.settings), {})
        together = [index for index in indexes if index.settings in (named, {})]
    _fill_together(context, base, together, snapshot)


def _fill_together(context: Context, base: Relation, indexes: Sequence[Index], snapshot: Snapshot) -> None:
    names = ", ".join(index.name for index in indexes)
    context.progress(f"index {names}: reading {len(snapshot.tablets)} tablets of {base.name}", None)
    transaction = tx.begin(
        context.catalog,
        None,
        node=context.node,
        holder=context.holder,
        reason=f"fill index {names}",
        lease_us=context.lease_us,
    )
    works = {index.id: (index, Work(context, index.relation, transaction)) for index in indexes}
    try:
        with context.kept_alive(transaction.id):
            made = _written(context, base, works, snapshot)
            hit("index.files_written")
            _cover(context, works, made, snapshot, transaction)
    except (SqlError, TypeMismatchError) as error:
        _clean_up(context, works, transaction)
        raise _Failed(_culprits(context, base, indexes, snapshot), error) from error
    except BaseException:
        _clean_up(context, works, transaction)
        raise


def _clean_up(context: Context, works: Mapping[RelationId, tuple[Index, Work]], transaction: tx.Transaction) -> None:
    """Close the transaction, so that nothing of it can be committed any more; then remove what the manifest does not
    name: tablets that were recorded before the error stay. What cannot be removed now, a sweep removes."""
    with contextlib.suppress(EblaError):
        tx.abort(context.catalog, transaction.id)
        with context.catalog.reading() as connection:
            for _, work in works.values():
                paths = select(s.runs.c.path).where(
                    s.runs.c.relation_id == work.relation.id, s.runs.c.transaction_id == transaction.id
                )
                recorded = set(connection.execute(paths).scalars())
                _forget(work, [run for run in work.runs if run.path not in recorded])
                work.forget_scratch()


def _written(
    context: Context, base: Relation, works: Mapping[RelationId, tuple[Index, Work]], snapshot: Snapshot
) -> dict[RelationId, list[Run]]:
    if not snapshot.level1 and not snapshot.level0:
        return {}
    settings = next((index.settings for index, _ in works.values() if index.settings), {})
    spark = context.view_session(settings, small=False) if settings else context.writer
    rows: dict[TabletId, int] = {}
    for run in snapshot.level1:
        rows[run.tablet] = rows.get(run.tablet, 0) + run.rows
    newer = sum(run.rows for run in snapshot.level0)
    frame = sscan.merged(spark, snapshot, context.roots(), context.cache, rows_max=context.settings.level0_rows_max)
    most = max(rows.values(), default=0) + newer // max(1, len(snapshot.tablets))
    return fill(context, frame, snapshot.relation, works, snapshot.tablets, tablet_rows=most)


def _culprits(context: Context, base: Relation, indexes: Sequence[Index], snapshot: Snapshot) -> list[Index]:
    """Of several indexes that were filled together, those whose own expressions fail."""
    if len(indexes) == 1:
        return list(indexes)
    from ebla.indexes import entries

    found = []
    for index in indexes:
        if not index.needs_spark:
            continue
        spark = context.view_session(index.settings, small=False)
        rows_max = context.settings.level0_rows_max
        rows = sscan.merged(spark, snapshot, context.roots(), context.cache, rows_max=rows_max)
        try:
            entries.entries_of(entries.computed(rows, snapshot.relation, [index]), index).write.format("noop").mode(
                "overwrite"
            ).save()
        except Exception:  # whatever Spark says: it has said it before
            found.append(index)
    return found or list(indexes)


def _cover(
    context: Context,
    works: Mapping[RelationId, tuple[Index, Work]],
    made: Mapping[RelationId, Sequence[Run]],
    snapshot: Snapshot,
    transaction: tx.Transaction,
) -> None:
    """Record every tablet on its own. An index that went meanwhile keeps none of the others."""
    with context.catalog.reading() as connection:
        tasks = [t for t in building.tasks(connection) if t.view in works and not t.aborted]
    for tablet in snapshot.tablets:
        due = {t.view: t for t in tasks if t.tablet == tablet}
        there = [number for number in works if number in due]
        try:
            _cover_tablet(context, works, made, snapshot, transaction, tablet, {n: due[n].id for n in there})
        except ConflictError:
            for number in there:
                try:
                    _cover_tablet(context, works, made, snapshot, transaction, tablet, {number: due[number].id})
                except ConflictError:
                    _forget(works[number][1], [run for run in made.get(number, ()) if run.tablet == tablet])
        for number in works.keys() - set(there):
            _forget(works[number][1], [run for run in made.get(number, ()) if run.tablet == tablet])
        hit("index.tablet_filled")
    # What it brought is committed; it holds nothing any more.
    context.catalog.commit(
        c.Decision(
            reason=transaction.reason,
            transaction=transaction.id,
            requires=(c.TransactionOpen(transaction=transaction.id),),
            updates=(c.EndTransaction(transaction=transaction.id),),
        ),
        node=context.node,
    )
    for _, work in works.values():
        work.forget_scratch()


def _forget(work: Work, runs: Sequence[Run]) -> None:
    for run in runs:
        for root in work.roots.values():
            root.remove(run.path)


def _cover_tablet(
    context: Context,
    works: Mapping[RelationId, tuple[Index, Work]],
    made: Mapping[RelationId, Sequence[Run]],
    snapshot: Snapshot,
    transaction: tx.Transaction,
    tablet: TabletId,
    tasks: Mapping[RelationId, object],
) -> None:
    if not tasks:
        return
    requires: list[c.Requirement] = [
        c.TransactionOpen(transaction=transaction.id),
        c.TasksOpen(tasks=frozenset(tasks.values())),  # type: ignore[arg-type]
    ]
    updates: list[c.Update] = []
    for number in tasks:
        index = works[number][0]
        runs = tuple(run for run in made.get(number, ()) if run.tablet == tablet)
        requires += [_as_found(index), c.SegmentsBegin(view=number, tablet=tablet, segments=(), exactly=True)]
        covered: Segment[str] = Segment(up_to=None, since=snapshot.version, rows=sum(run.rows for run in runs))
        updates += [c.AddRuns(runs=runs), c.CoverSegment(view=number, tablet=tablet, segment=covered)]
    names = ", ".join(works[number][0].name for number in tasks)
    context.catalog.commit(
        c.Decision(
            reason=f"fill index {names}: tablet {tablet} at version {snapshot.version}",
            relation=snapshot.relation.id,
            transaction=transaction.id,
            requires=tuple(requires),
            updates=(*updates, c.FinishTasks(tasks=frozenset(tasks.values()))),  # type: ignore[arg-type]
        ),
        node=context.node,
    )


# ---- the end --------------------------------------------------------------------------------------------


def _finish(context: Context, base: Relation, index: Index) -> None:
    """Check what is there now, and let it be read."""
    context.progress(f"index {index.name}: checking", None)
    if index.unique:
        # Who began before the last tablet was there may not have seen all entries; whoever comes later does.
        barrier(context, base, context.catalog.version(), [index.name])
        with context.catalog.reading() as connection:
            snapshot = reads.snapshot(connection, index.relation)
        twice = _first_twice(context, index, snapshot)
        if twice is not None:
            raise _Failed([index], unique.violation(index, twice))
    hit("index.checked")
    context.catalog.commit(
        c.Decision(
            reason=f"index {index.name}: {index.state} -> {Permission.READ_WRITE_AND_DELETE}",
            relation=base.id,
            requires=(_as_found(index), c.NothingLeftToBuild(view=index.id)),
            updates=(
                c.SetIndexState(index=index.id, state=Permission.READ_WRITE_AND_DELETE),
                c.MarkBuilt(view=index.id),
            ),
            exclusive=True,
        ),
        node=context.node,
    )
    hit("index.readable")
    _let_go(context, base.id)
    context.progress(f"index {index.name}: readable", None)


def _first_twice(context: Context, index: Index, snapshot: Snapshot) -> list[object] | None:
    if not snapshot.level1 and not snapshot.level0:
        return None
    rows_max = context.settings.level0_rows_max
    entries = sscan.merged(context.writer, snapshot, context.roots(), context.cache, rows_max=rows_max)
    return unique.first_twice(context, index, entries)


def why_gone(connection: Connection, index: RelationId, name: str) -> EblaError:
    """What history says of an index that somebody else found impossible to build."""
    reason = connection.execute(
        select(s.history.c.reason)
        .where(s.history.c.relation_id == index, s.history.c.reason.like("%cannot be built%"))
        .order_by(s.history.c.version.desc())
        .limit(1)
    ).scalar()
    if reason is None:
        return UnknownNameError(f"index {name}: expected it built, found it dropped meanwhile")
    kind = DuplicateKeyError if "more than once" in reason else SqlError
    return kind(str(reason))
