"""The next chunk of a batch: how large it is, read once, and filled into all relations that take part.

Theory of operation. The relations of a batch share the scan of their base as long as they are at the same place. The
chunk is as large as the most careful of them wants it, and each build that took part owes its rows to its rate. A
relation that is not filled chunk by chunk is filled in one piece when it is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, TaskId
from ebla.build.batch import BatchState
from ebla.build.cuts import Cuts
from ebla.build.ports import Filler
from ebla.build.throttles import BuildThrottles
from ebla.catalog import troubles
from ebla.catalog.troubles import Activity
from ebla.errors import SnapshotError, StorageError
from ebla.model import chunks
from ebla.model import segments as sg
from ebla.model.relation import Kind
from ebla.model.tablets import TokenRange
from ebla.model.tasks import Task
from ebla.tables.chunk_scan import Scan
from ebla.tables.write_access import WriteAccess

PAUSE_US = 200_000
"""A build that is paused is looked at again after this long, if its task was not stopped before."""

Failed = Mapping[RelationId, tuple[frozenset[TaskId], Exception]]
"""Relations that could not be filled, each with its tasks of the chunk and the reason."""


class Chunks:
    """Fills relations chunk by chunk, each at the pace of its build."""

    def __init__(
        self, context: WriteAccess, fillers: Mapping[Kind, Filler], paces: BuildThrottles, clock_us: Callable[[], int]
    ) -> None:
        self._context = context
        self._fillers = fillers
        self._paces = paces
        self._clock_us = clock_us

    def filler_of(self, view: RelationId, seen: BatchState) -> Filler | None:
        kind = seen.kinds.get(view)
        return None if kind is None else self._fillers.get(kind)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of relations that can be filled."""
        return list(self._fillers)

    def wait_us(self, view: RelationId, seen: BatchState) -> int:
        """How long the build of a view must not go on, by its rate; 0: it may."""
        build = seen.builds.get(view)
        if build is None:
            return 0
        wait_us = self._paces.wait_us(view, build.rate, self._clock_us())
        return PAUSE_US if wait_us is None else wait_us

    def fill(self, due: Mapping[TaskId, Task], seen: BatchState) -> Failed:
        """One chunk of these tasks, or a relation that is filled in one piece."""
        ranges: dict[RelationId, list[TokenRange]] = {}
        for task in due.values():
            if task.view is not None:
                piece = chunks.next_piece(seen.covered[task.view], task.tokens)
                ranges.setdefault(task.view, []).append(piece or task.tokens)
        hit("build.before_chunk")
        whole: dict[RelationId, bool] = {}
        for view in ranges:
            try:
                whole[view] = self._fillers[seen.kinds[view]].in_one_piece(view)
            except StorageError as error:  # it cannot be read; the others go on without it
                return {view: (_tasks_of(due, view), error)}
        first = next(iter(ranges))
        if whole[first]:
            return self._fill_whole(first, due, seen)
        return self._fill_next({v: r for v, r in ranges.items() if not whole[v]}, due, seen)

    def _fill_whole(self, view: RelationId, due: Mapping[TaskId, Task], seen: BatchState) -> Failed:
        try:
            with self._context.at_work(f"build of {seen.names[view]}"):
                self._fillers[seen.kinds[view]].fill_whole(view)
            troubles.clear(self._context.catalog, view, Activity.BUILD)
        except Exception as error:
            return {view: (_tasks_of(due, view), error)}
        return {}

    def _fill_next(
        self, ranges: Mapping[RelationId, list[TokenRange]], due: Mapping[TaskId, Task], seen: BatchState
    ) -> Failed:
        chunk = self._next(ranges, seen)
        if chunk is None:
            return {}
        read = {i: t for i, t in due.items() if any(t.tokens.holds(stretch.tokens) for stretch in chunk.stretches)}
        ids_of = {view: _tasks_of(read, view) for view in chunk.views}
        with self._context.at_work(f"build of {seen.called(chunk.views)}"):
            errors = self._scan(seen, chunk, ids_of)
        now_us = self._clock_us()
        for view in chunk.views:
            if view not in errors:
                self._paces.spent(view, chunk.rows, now_us)
                troubles.clear(self._context.catalog, view, Activity.BUILD)
        return {view: (ids_of[view], error) for view, error in errors.items()}

    def _next(self, ranges: Mapping[RelationId, list[TokenRange]], seen: BatchState) -> chunks.Chunk | None:
        """Which stretch of the base is read next. Where the smallest chunk holds the ranges, they are cut evenly."""
        assert seen.base is not None, "only a view in one piece has no base"
        cuts = Cuts(self._context.catalog, self._context.storage, seen.base)
        fillers = {view: self._fillers[seen.kinds[view]] for view in ranges}
        rows_max = {view: self._rows_max(view, seen, fillers[view]) for view in ranges}
        fits = cuts.fits(next(iter(ranges.values())), min(rows_max.values()))
        bounds = [most for filler in fillers.values() if (most := filler.tablets_max) is not None]
        cut = cuts.evenly if fits else cuts.exactly
        return chunks.next_chunk(seen.covered, ranges, rows_max, cut, min(bounds, default=None))

    def _rows_max(self, view: RelationId, seen: BatchState, filler: Filler) -> int:
        rows = seen.builds[view].chunk_rows
        if rows is None:
            rows = filler.chunk_rows(view, sum(map(sg.rows, seen.covered[view].values())))
        return self._paces.rows_now(view, rows)

    def _scan(
        self, seen: BatchState, chunk: chunks.Chunk, ids_of: Mapping[RelationId, frozenset[TaskId]]
    ) -> dict[RelationId, Exception]:
        """One scan for all kinds of relations that take part; what went wrong, by relation."""
        assert seen.base is not None
        groups: dict[Kind, dict[RelationId, frozenset[TaskId]]] = {}
        for view in chunk.views:
            groups.setdefault(seen.kinds[view], {})[view] = ids_of[view]
        readings = {kind: self._fillers[kind].reading(seen.base, group) for kind, group in groups.items()}
        errors: dict[RelationId, Exception] = {}
        with Scan(self._context, seen.base, chunk.stretches, readings.values()) as scan:
            try:
                if scan.at is not None:
                    scan.snapshot(scan.at)
            except SnapshotError as error:
                # Those for whose sake it is read at that version cannot be filled; the others go without them.
                return {v: error for kind, group in groups.items() if readings[kind].at is not None for v in group}
            for kind, group in groups.items():
                errors |= self._fillers[kind].fill(scan, group)
        return errors


def _tasks_of(due: Mapping[TaskId, Task], view: RelationId) -> frozenset[TaskId]:
    return frozenset(i for i, task in due.items() if task.view == view)
