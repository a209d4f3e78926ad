"""The engine of a node: works through a batch of tasks in chunks, on Spark, and tells the worker what is done.

Theory of operation. A batch is tasks of one base on one shard, perhaps of several views and indexes. The engine has one
thread for it. Before every chunk it looks at the catalog anew: which of the tasks are still open, how far each tablet
is covered, how fast each build may go. What it finds covered is finished. Then it takes the next chunk
(`ebla.model.chunks`), reads it once (`ebla.tables.chunk_scan`) and lets the filler of each kind of relation compute and
commit it. So a batch that is started again, here or elsewhere, goes on at the positions in the catalog, and a rate that
is altered holds from the next chunk on. Where the rates of all its builds say to wait, the batch gives way: its tasks
go back to the coordinator with the time that they wait, and another base may have its turn meanwhile. A view that is
not built in chunks is built whole by the first of its tasks; the others find it covered.

A batch of `process_staging` tasks makes the loads that are staged in its tablets visible, one commit for each
(`ebla.tables.staging`), until none is left.

A race that is lost costs another look. An error of one relation fails its tasks and no others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ebla.base.backoff import Backoff
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Version
from ebla.build.cuts import Cuts
from ebla.build.pace import Paces
from ebla.build.ports import Filler
from ebla.catalog import building, reads, troubles
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, EblaError, SnapshotError, StorageError, UnknownNameError, UsageError
from ebla.model import chunks
from ebla.model import segments as sg
from ebla.model.relation import Kind, Relation
from ebla.model.segments import Segments
from ebla.model.tasks import Build, Task, TaskKind
from ebla.tables import staging as staged
from ebla.tables import troubles as troubled
from ebla.tables.chunk_scan import Scan
from ebla.tables.context import Context

log = logging.getLogger("ebla.build")

CONFLICTS_MAX = 10
BACKOFF_S = Backoff(0.02, 1.0)
"""So many races lost in a row are a failure; the coordinator will ask again."""
PAUSE_US = 200_000
"""A build that is paused is looked at again after so long, if its task was not stopped before."""
PATIENCE = 4
"""After this many failures in a row, those who wait for a build are told. The build goes on being tried."""


class Report(Protocol):
    """Where the engine tells what became of tasks."""

    def finished(self, shard: int, ids: Collection[TaskId]) -> None: ...

    def failed(self, shard: int, errors: Mapping[TaskId, str]) -> None: ...

    def gave_way(self, shard: int, waits_us: Mapping[TaskId, int]) -> None:
        """Tasks that may not go on for so long, by the rate of their builds."""
        ...

    def wrong(self, relation: RelationId, error: Exception) -> None:
        """The error itself, for those who wait in this process for the view, or for staged rows of the table."""
        ...


@dataclass(slots=True)
class _Batch:
    shard: int
    tasks: dict[TaskId, Task]
    changed: threading.Condition = field(default_factory=threading.Condition)

    def left(self) -> dict[TaskId, Task]:
        with self.changed:
            return dict(self.tasks)

    def leave(self, ids: Iterable[TaskId]) -> None:
        with self.changed:
            for task_id in ids:
                self.tasks.pop(task_id, None)
            self.changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait, or until something was stopped."""
        with self.changed:
            if self.tasks:
                self.changed.wait(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the catalog says about a batch at one moment."""

    base: Relation | None
    builds: Mapping[RelationId, Build]
    kinds: Mapping[RelationId, Kind]
    names: Mapping[RelationId, str]
    covered: Mapping[RelationId, Mapping[TabletId, Segments[str]]]
    open: frozenset[TaskId]
    version: Version


class SparkEngine:
    """The engine of one node. Safe to use from several threads."""

    def __init__(
        self,
        context: Context,
        host: NodeId,
        fillers: Mapping[Kind, Filler],
        paces: Paces,
        report: Report,
        clock: Callable[[], int],
    ) -> None:
        self._context = context
        self._host = host
        self._fillers = fillers
        self._paces = paces
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._batches: dict[int, _Batch] = {}
        self._threads: dict[int, threading.Thread] = {}

    # ---- the port ---------------------------------------------------------------------------------------

    def start(self, shard: int, tasks: Collection[Task]) -> None:
        before = self._threads.get(shard)
        batch = _Batch(shard, {task.id: task for task in tasks})
        thread = threading.Thread(
            target=self._work, args=(batch, before), name=f"ebla-build-{self._host}-{shard}", daemon=True
        )
        with self._lock:
            self._batches[shard], self._threads[shard] = batch, thread
        thread.start()

    def stop(self, shard: int, ids: Collection[TaskId]) -> None:
        batch = self._batches.get(shard)
        if batch is not None:
            batch.leave(ids)

    def close(self) -> None:
        """Finish the chunks that are running, begin no other."""
        with self._lock:
            threads = list(self._threads.values())
            for batch in self._batches.values():
                batch.leave(list(batch.tasks))
        for thread in threads:
            thread.join()

    # ---- a batch ----------------------------------------------------------------------------------------

    def _work(self, batch: _Batch, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # a batch that was stopped may still have a chunk to finish
        conflicts = 0
        while batch.left():
            try:
                self._once(batch)
                conflicts = 0
            except ConflictError as error:
                conflicts += 1
                if conflicts == CONFLICTS_MAX:
                    self._fail(batch, batch.left(), error)
                    return
                batch.rest(BACKOFF_S.after(conflicts))
            except Exception as error:
                if not isinstance(error, UnknownNameError):
                    log.warning("host=%s shard=%d batch failed reason=%s", self._host, batch.shard, error)
                    log.debug("host=%s shard=%d", self._host, batch.shard, exc_info=error)
                self._fail(batch, batch.left(), error)

    def _once(self, batch: _Batch) -> None:
        """Report what is covered, then one chunk of what is not."""
        tasks = batch.left()
        seen = self._look(tasks)
        gone = tasks.keys() - seen.open
        # A filler may have ended a task in the commit of its last chunk; whoever aborted or dropped the others knows.
        self._finish(batch, [i for i in gone if tasks[i].view is not None and sg.is_covered(_covered(seen, tasks[i]))])
        batch.leave(gone)
        tasks = {i: task for i, task in tasks.items() if i in seen.open}
        if any(task.kind is TaskKind.PROCESS_STAGING for task in tasks.values()):
            self._process_staging(batch, tasks)  # a batch has tasks of one kind
            return
        if self._refuse_unknown(batch, tasks, seen):
            return
        done = [i for i, t in tasks.items() if t.view is not None and sg.is_covered(_covered(seen, t))]
        owing = {
            v: wait for v in {t.view for t in tasks.values()} if v is not None and (wait := self._wait_us(v, seen))
        }
        self._finish(batch, [i for i in done if tasks[i].view not in owing])
        due = {i: t for i, t in tasks.items() if i not in done and t.view not in owing}
        if due:
            self._chunk(batch, due, seen)
        elif owing:
            self._give_way(batch, {i: owing[t.view] for i, t in tasks.items() if t.view in owing})

    def _give_way(self, batch: _Batch, waits_us: Mapping[TaskId, int]) -> None:
        """Nothing of the batch may go on now: what has a rate leaves it, and another base may have its turn."""
        batch.leave(waits_us)
        self._report.gave_way(batch.shard, waits_us)

    def _finish(self, batch: _Batch, ids: Collection[TaskId]) -> None:
        if ids:
            hit("build.before_report")
            batch.leave(ids)
            self._report.finished(batch.shard, ids)

    def _process_staging(self, batch: _Batch, tasks: Mapping[TaskId, Task]) -> None:
        """Make one staged load visible, or find that nothing is left. The tasks of several loads are one."""
        base = next(iter(tasks.values())).base
        if not staged.process(self._context, base, {task.tablet for task in tasks.values()}, tasks.keys()):
            self._finish(batch, list(tasks))
        troubles.clear(self._context.catalog, base, Activity.BUILD)

    def _look(self, tasks: Mapping[TaskId, Task]) -> _Seen:
        views = sorted({task.view for task in tasks.values() if task.view is not None})
        base = next(iter(tasks.values())).base
        with self._context.catalog.reading() as connection:
            found = {v: reads.relation_by_id(connection, v) for v in views}
            return _Seen(
                base=reads.relation_by_id(connection, base),
                builds=building.builds(connection),
                kinds={v: r.kind for v, r in found.items() if r is not None},
                names={v: r.name for v, r in found.items() if r is not None},
                covered={v: building.segments(connection, v) for v in views},
                version=reads.current_version(connection),
                open=frozenset(t.id for t in building.tasks(connection) if t.id in tasks and not t.aborted),
            )

    def _refuse_unknown(self, batch: _Batch, tasks: Mapping[TaskId, Task], seen: _Seen) -> bool:
        """Tasks that no filler is there for fail at once, and say so."""
        for task in tasks.values():
            kind = None if task.view is None else seen.kinds.get(task.view)
            if kind not in self._fillers:
                what = f"{task.kind.value} of {kind or 'a relation'}"
                wrong = UsageError(f"task {task.id}: expected {', '.join(self._fillers)} to build, found {what}")
                self._fail(batch, [task.id], wrong)
                return True
        return False

    # ---- pace -------------------------------------------------------------------------------------------

    def _wait_us(self, view: RelationId, seen: _Seen) -> int:
        """How long the build of a view must not go on, by its rate; 0: it may."""
        build = seen.builds.get(view)
        if build is None:
            return 0
        wait_us = self._paces.wait_us(view, build.rate, self._clock())
        return PAUSE_US if wait_us is None else wait_us

    def _rows_max(self, view: RelationId, seen: _Seen, filler: Filler) -> int:
        rows = seen.builds[view].chunk_rows
        if rows is None:
            rows = filler.chunk_rows(view, sum(map(sg.rows, seen.covered[view].values())))
        return self._paces.rows_now(view, rows)

    # ---- a chunk ----------------------------------------------------------------------------------------

    def _chunk(self, batch: _Batch, due: Mapping[TaskId, Task], seen: _Seen) -> None:
        tablets: dict[RelationId, list[TabletId]] = {}
        for task in due.values():
            if task.view is not None:
                tablets.setdefault(task.view, []).append(task.tablet)
        fillers = {view: self._fillers[seen.kinds[view]] for view in tablets}
        first = next(iter(tablets))
        hit("build.before_chunk")
        whole = self._in_one_piece(batch, due, seen, fillers)
        if whole is None:
            return
        if whole[first]:
            ids = [i for i, task in due.items() if task.view == first]
            try:
                with self._context.at_work(f"build of {seen.names[first]}"):
                    fillers[first].fill_whole(first)
                troubles.clear(self._context.catalog, first, Activity.BUILD)
            except Exception as error:
                self._went_wrong(batch, fillers[first], first, ids, error, seen.version)
            return
        tablets = {v: t for v, t in tablets.items() if not whole[v]}
        assert seen.base is not None, "only a view in one piece has no base"
        cuts = Cuts(self._context, seen.base)
        rows_max = {view: self._rows_max(view, seen, fillers[view]) for view in tablets}
        fits = cuts.fits(tablets[first], min(rows_max.values()))
        bounds = [most for view in tablets if (most := fillers[view].tablets_max) is not None]
        cut = cuts.evenly if fits else cuts.exactly
        chunk = chunks.next_chunk(seen.covered, tablets, rows_max, cut, min(bounds, default=None))
        if chunk is None:
            return
        read = {part.tablet for part in chunk.parts}
        ids_of = {
            view: frozenset(i for i, t in due.items() if t.view == view and t.tablet in read) for view in chunk.views
        }
        with self._context.at_work(f"build of {', '.join(seen.names[view] for view in chunk.views)}"):
            errors = self._fill(seen, chunk, ids_of)
        now = self._clock()
        for view in chunk.views:
            if view not in errors:
                self._paces.spent(view, chunk.rows, now)
                troubles.clear(self._context.catalog, view, Activity.BUILD)
        for view, found in errors.items():
            self._went_wrong(batch, fillers[view], view, ids_of[view], found, seen.version)

    def _in_one_piece(
        self, batch: _Batch, due: Mapping[TaskId, Task], seen: _Seen, fillers: Mapping[RelationId, Filler]
    ) -> dict[RelationId, bool] | None:
        """Which relations are built in one piece. `None`: one cannot be read, and the others go on without it."""
        whole: dict[RelationId, bool] = {}
        for view, filler in fillers.items():
            try:
                whole[view] = filler.in_one_piece(view)
            except StorageError as error:
                ids = [i for i, task in due.items() if task.view == view]
                self._went_wrong(batch, filler, view, ids, error, seen.version)
                return None
        return whole

    def _fill(
        self, seen: _Seen, chunk: chunks.Chunk, ids_of: Mapping[RelationId, frozenset[TaskId]]
    ) -> dict[RelationId, Exception]:
        """One scan for all kinds of relations that take part; what went wrong, by relation."""
        assert seen.base is not None
        groups: dict[Kind, dict[RelationId, frozenset[TaskId]]] = {}
        for view in chunk.views:
            groups.setdefault(seen.kinds[view], {})[view] = ids_of[view]
        readings = {kind: self._fillers[kind].reading(seen.base, group) for kind, group in groups.items()}
        errors: dict[RelationId, Exception] = {}
        with Scan(self._context, seen.base, chunk.parts, readings.values()) as scan:
            try:
                if scan.at is not None:
                    scan.snapshot(scan.at)
            except SnapshotError as error:
                # Those for whose sake it is read at that version cannot be filled; the others go without them.
                return {v: error for kind, group in groups.items() if readings[kind].at is not None for v in group}
            for kind, group in groups.items():
                errors |= self._fillers[kind].fill(scan, group)
        return errors

    def _went_wrong(
        self,
        batch: _Batch,
        filler: Filler,
        view: RelationId,
        ids: Collection[TaskId],
        error: Exception,
        version: Version,
    ) -> None:
        if isinstance(error, ConflictError):
            if len(ids) == len(batch.left()):
                raise error  # nothing else is to be done meanwhile
            batch.rest(0.01)
            return
        final = filler.failed(view, error, version)
        if final or not isinstance(error, UnknownNameError):
            log.warning("relation=%d build %s reason=%s", view, "failed" if final else "waits", error)
            log.debug("relation=%d", view, exc_info=error)
        self._fail(batch, ids, error, final=final)

    def _fail(self, batch: _Batch, ids: Iterable[TaskId], error: Exception, *, final: bool = False) -> None:
        """Give tasks back. What may pass is noted; those who wait here hear of it when it does not pass soon."""
        found = list(ids)
        left = batch.left()
        of = [left[i] for i in found if i in left]
        for relation in {task.base if task.view is None else task.view for task in of}:
            if isinstance(error, ConflictError):
                continue
            if final or is_told(self._context, relation, error):
                self._report.wrong(relation, error)
        batch.leave(found)
        self._report.failed(batch.shard, dict.fromkeys(found, str(error)))


def is_told(context: Context, relation: RelationId, error: Exception) -> bool:
    """Note what keeps a build from going on; whether those who wait for it hear of that, or wait on."""
    try:
        trouble = troubled.note_build(context, relation, error)
    except EblaError as other:
        log.warning("relation=%d expected to note a trouble, found reason=%s", relation, other)
        return True
    return trouble is None or trouble.final or trouble.attempts >= PATIENCE


def _covered(seen: _Seen, task: Task) -> Segments[str]:
    assert task.view is not None
    return seen.covered.get(task.view, {}).get(task.tablet, ())
