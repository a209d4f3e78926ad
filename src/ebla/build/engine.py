"""The engine of a node: works through a batch of tasks in chunks, on Spark, and tells the worker what is done.

Theory of operation. A batch is tasks of one base on one shard, perhaps of several views and indexes. The engine has one
service for each shard. Before every chunk it looks at the catalog anew: which of the tasks are still open, how far each
tablet is covered, how fast each build may go. What it finds covered is finished. Then it takes the next chunk
(`ebla.build.chunks`), reads it once (`ebla.tables.chunk_scan`) and lets the filler of each kind of relation compute and
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
from typing import Protocol

from ebla.base.backoff import Backoff
from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, TaskId
from ebla.build import trouble
from ebla.build.batch import Batch, BatchState
from ebla.build.chunks import Chunks
from ebla.build.ports import Filler
from ebla.build.throttles import BuildThrottles
from ebla.catalog import troubles
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, UnknownNameError, UsageError
from ebla.model.relation import Kind
from ebla.model.tasks import Task, TaskKind
from ebla.tables import staging
from ebla.tables.context import Context

log = logging.getLogger("ebla.build")

CONFLICTS_MAX = 10
"""After this number of lost races in a row a task has failed; the coordinator will ask again."""
CONFLICT_S = Backoff(0.02, 1.0)


class Report(Protocol):
    """Where the engine tells what became of tasks."""

    def finished(self, shard: int, ids: Collection[TaskId]) -> None: ...

    def failed(self, shard: int, errors: Mapping[TaskId, str]) -> None: ...

    def gave_way(self, shard: int, waits_us: Mapping[TaskId, int]) -> None:
        """Tasks that may not go on for this long, by the rate of their builds."""
        ...

    def wrong(self, relation: RelationId, error: Exception) -> None:
        """The error itself, for statements of this process that wait for the view or for staged rows of the table."""
        ...


class SparkEngine:
    """The engine of one node. Safe to use from several threads."""

    def __init__(
        self,
        context: Context,
        host: NodeId,
        fillers: Mapping[Kind, Filler],
        paces: BuildThrottles,
        report: Report,
        clock: Callable[[], int],
    ) -> None:
        self._context = context
        self._host = host
        self._chunks = Chunks(context, fillers, paces, clock)
        self._report = report
        self._lock = threading.Lock()
        self._shards: dict[int, Shard] = {}

    def start(self, shard: int, tasks: Collection[Task]) -> None:
        services = self._context.services
        with self._lock:
            one = self._shards.get(shard)
            if one is None:
                one = self._shards[shard] = Shard(self._context, self._host, shard, self._chunks, self._report)
                services.add(one)
        one.batch = Batch({task.id: task for task in tasks})
        services.wake(one.name)

    def stop(self, shard: int, ids: Collection[TaskId]) -> None:
        one = self._shards.get(shard)
        if one is not None:
            one.batch.leave(ids)

    def close(self) -> None:
        """Finish the chunks that are running, begin no other."""
        with self._lock:
            names = [one.name for one in self._shards.values()]
        self._context.services.stop(*names)


class Shard:
    """The service that works through the batches of one shard, one after the other: a step is one chunk."""

    wanted = True

    def __init__(self, context: Context, host: NodeId, shard: int, chunks: Chunks, report: Report) -> None:
        self.name = f"build/{host}/{shard}"
        self.batch = Batch({})
        """The newest. One that was stopped may still have a chunk to finish, in a step that has begun."""
        self._context = context
        self._shard = shard
        self._chunks = chunks
        self._report = report

    def step(self, now_s: float) -> float | None:
        batch = self.batch
        if not batch.left():
            return None
        try:
            self._once(batch)
            batch.conflicts = 0
        except ConflictError as error:
            batch.conflicts += 1
            if batch.conflicts == CONFLICTS_MAX:
                self._fail(batch, batch.left(), error)
            return self._context.services.clock() + CONFLICT_S.after(batch.conflicts)
        except Exception as error:
            if not isinstance(error, UnknownNameError):
                log.warning("service=%s batch failed reason=%s", self.name, error)
                log.debug("service=%s", self.name, exc_info=error)
            self._fail(batch, batch.left(), error)
        return now_s

    def stop(self) -> None:
        """What is left of the batch is done by the next leader's process."""
        self.batch.leave(list(self.batch.tasks))

    # ---- a batch ----------------------------------------------------------------------------------------

    def _once(self, batch: Batch) -> None:
        """Report what is covered, then one chunk of what is not."""
        tasks = batch.left()
        seen = BatchState.of(self._context.catalog, tasks)
        gone = tasks.keys() - seen.open
        # A filler may have ended a task in the commit of its last chunk; who aborted or dropped the others knows.
        self._finish(batch, [i for i in gone if seen.is_covered(tasks[i])])
        batch.leave(gone)
        tasks = {i: task for i, task in tasks.items() if i in seen.open}
        if any(task.kind is TaskKind.PROCESS_STAGING for task in tasks.values()):
            self._process_staging(batch, tasks)  # a batch has tasks of one kind
            return
        if self._refuse_unknown(batch, tasks, seen):
            return
        done = [i for i, t in tasks.items() if seen.is_covered(t)]
        views = {task.view for task in tasks.values() if task.view is not None}
        owing = {view: wait for view in views if (wait := self._chunks.wait_us(view, seen))}
        self._finish(batch, [i for i in done if tasks[i].view not in owing])
        due = {i: t for i, t in tasks.items() if i not in done and t.view not in owing}
        if due:
            for view, (ids, error) in self._chunks.fill(due, seen).items():
                self._went_wrong(batch, view, ids, error, seen)
        elif owing:
            self._give_way(batch, {i: owing[t.view] for i, t in tasks.items() if t.view in owing})

    def _give_way(self, batch: Batch, waits_us: Mapping[TaskId, int]) -> None:
        """Let tasks with a rate leave a batch of which no task may go on now: another base may have its turn."""
        batch.leave(waits_us)
        self._report.gave_way(self._shard, waits_us)

    def _finish(self, batch: Batch, ids: Collection[TaskId]) -> None:
        if ids:
            hit("build.before_report")
            batch.leave(ids)
            self._report.finished(self._shard, ids)

    def _process_staging(self, batch: Batch, tasks: Mapping[TaskId, Task]) -> None:
        """Make one staged load visible, or find that nothing is left. The tasks of several loads are one."""
        base = next(iter(tasks.values())).base
        if not staging.process(self._context, base, {task.tokens for task in tasks.values()}, tasks.keys()):
            self._finish(batch, list(tasks))
        troubles.clear(self._context.catalog, base, Activity.BUILD)

    def _refuse_unknown(self, batch: Batch, tasks: Mapping[TaskId, Task], seen: BatchState) -> bool:
        """Tasks without a filler fail at once, with an error that says so."""
        for task in tasks.values():
            if task.view is None or self._chunks.filler_of(task.view, seen) is None:
                kind = None if task.view is None else seen.kinds.get(task.view)
                what = f"{task.kind.value} of {kind or 'a relation'}"
                kinds = ", ".join(self._chunks.kinds)
                self._fail(batch, [task.id], UsageError(f"task {task.id}: expected {kinds} to build, found {what}"))
                return True
        return False

    # ---- failures ---------------------------------------------------------------------------------------

    def _went_wrong(
        self, batch: Batch, view: RelationId, ids: Collection[TaskId], error: Exception, seen: BatchState
    ) -> None:
        if isinstance(error, ConflictError):
            if len(ids) == len(batch.left()):
                raise error  # nothing else is to be done meanwhile
            return
        filler = self._chunks.filler_of(view, seen)
        assert filler is not None, "what has no filler was refused"
        final = filler.failed(view, error, seen.version)
        if final or not isinstance(error, UnknownNameError):
            log.warning("relation=%d build %s reason=%s", view, "failed" if final else "waits", error)
            log.debug("relation=%d", view, exc_info=error)
        self._fail(batch, ids, error, final=final)

    def _fail(self, batch: Batch, ids: Iterable[TaskId], error: Exception, *, final: bool = False) -> None:
        """Give tasks back. What may pass is noted; statements that wait here fail when it does not pass soon."""
        found = list(ids)
        left = batch.left()
        of = [left[i] for i in found if i in left]
        for relation in {task.base if task.view is None else task.view for task in of}:
            if isinstance(error, ConflictError):
                continue
            if final or trouble.note(self._context.catalog, self._context.holder, relation, error):
                self._report.wrong(relation, error)
        batch.leave(found)
        self._report.failed(self._shard, dict.fromkeys(found, str(error)))
