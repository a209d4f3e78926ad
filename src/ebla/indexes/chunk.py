"""One chunk of a base to the runs of its indexes: written together, recorded tablet by tablet."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, TabletId, TaskId
from ebla.catalog import building, manifest
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError, EblaError, SqlError, TypeMismatchError
from ebla.indexes import entries, walk
from ebla.indexes.backfill import fill
from ebla.indexes.culprit import Search
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Part
from ebla.model.relation import Run
from ebla.model.segments import Segment, Segments
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.spark import session as ssession
from ebla.spark.faults import is_final
from ebla.tables.chunk_scan import Scan
from ebla.tables.context import Context
from ebla.tables.writes import Work

log = logging.getLogger("ebla.build")


Works = Mapping[RelationId, tuple[Index, Work]]


def moved(index: RelationId) -> ConflictError:
    return ConflictError(f"index {index}: expected it as it was when the chunk began, found it moved; look again")


class Chunk:
    """What indexes of one session get of a chunk."""

    def __init__(
        self,
        context: Context,
        scan: Scan,
        indexes: Sequence[Index],
        covered: Mapping[RelationId, Mapping[TabletId, Segments[str]]],
        tasks: Mapping[RelationId, frozenset[TaskId]],
    ) -> None:
        assert scan.at is not None
        self._context = context
        self._scan = scan
        self._indexes = indexes
        self._covered = covered
        self._tasks = tasks
        self._snapshot: Snapshot = scan.snapshot(scan.at)
        names = ", ".join(index.name for index in indexes)
        self._transaction = tx.begin(
            context.catalog,
            None,
            node=context.node,
            holder=context.holder,
            reason=f"fill index {names}",
            lease_us=context.lease_us,
        )
        self._works: Works = {index.id: (index, Work(context, index.relation, self._transaction)) for index in indexes}

    def run(self) -> dict[RelationId, Exception]:
        """Write and commit; what went wrong, by index."""
        try:
            with self._context.kept_alive(self._transaction.id):
                made = self._written()
                hit("index.files_written")
                self._commit(made)
            return {}
        except (SqlError, TypeMismatchError) as error:
            self._clean_up()
            culprits = {index.id for index in self._culprits()}
            return {
                index.id: self._placed(index, error) if index.id in culprits else moved(index.id)
                for index in self._indexes
            }
        except Exception as error:
            self._clean_up()
            return {index.id: error for index in self._indexes}
        except BaseException:
            self._clean_up()
            raise

    # ---- files ------------------------------------------------------------------------------------------

    def _written(self) -> dict[RelationId, list[Run]]:
        snapshot = self._snapshot
        if not snapshot.level1 and not snapshot.level0:
            return {}
        settings = next((index.settings for index in self._indexes if index.settings), {})
        spark = self._context.view_session(settings, small=False) if settings else self._context.writer
        rows: dict[TabletId, int] = {}
        for run in snapshot.level1:
            rows[run.tablet] = rows.get(run.tablet, 0) + run.rows
        newer = sum(run.rows for run in snapshot.level0)
        frame = ssession.rebind(self._scan.rows(snapshot.version), spark)
        most = max(rows.values(), default=0) + newer // max(1, len(snapshot.tablets))
        return fill(self._context, frame, snapshot.relation, self._works, self._scan.tablets, tablet_rows=most)

    def _culprits(self) -> Sequence[Index]:
        """Of several indexes that were filled together, those whose own expressions fail."""
        if len(self._indexes) == 1:
            return self._indexes
        found = []
        for index in self._indexes:
            if not index.needs_spark:
                continue
            spark = self._context.view_session(index.settings, small=False)
            rows = ssession.rebind(self._scan.rows(self._snapshot.version), spark)
            made = entries.entries_of(entries.computed(rows, self._snapshot.relation, [index]), index)
            try:
                made.write.format("noop").mode("overwrite").save()
            except Exception as error:
                if is_final(error):  # a job that was lost says nothing about rows
                    found.append(index)
        return found or self._indexes

    def _placed(self, index: Index, error: EblaError) -> EblaError:
        """The error with the row to blame, where one is found."""
        if not index.needs_spark:
            return error
        try:
            rows = self._scan.rows(self._snapshot.version)
            found = Search(self._context, index, self._snapshot, rows).found()
        except Exception as other:  # the error itself is what counts
            log.info("index=%s expected to find the row to blame, found reason=%s", index.name, other)
            return error
        return error if found is None else error.found_at(found)

    def _clean_up(self) -> None:
        """Close the transaction, so that nothing of it can be committed any more; then remove what the manifest does
        not name: tablets that were recorded before the error stay. What cannot be removed now, a sweep removes."""
        with contextlib.suppress(EblaError):
            tx.abort(self._context.catalog, self._transaction.id)
            with self._context.catalog.reading() as connection:
                for _, work in self._works.values():
                    recorded = manifest.recorded(connection, work.relation.id, self._transaction.id)
                    _forget(work, [run for run in work.runs if run.path not in recorded])
                    work.forget_scratch()

    # ---- commits ----------------------------------------------------------------------------------------

    def _commit(self, made: Mapping[RelationId, Sequence[Run]]) -> None:
        """Record every tablet on its own. An index that went or moved meanwhile holds up none of the others."""
        with self._context.catalog.reading() as connection:
            tasks = {t.id: t for t in building.tasks(connection) if t.view in self._works and not t.aborted}
        for part in self._scan.parts:
            due = {
                number: task
                for number in self._works
                for task in self._tasks[number]
                if task in tasks and tasks[task].tablet == part.tablet
            }
            try:
                self._cover(part, due, made)
            except ConflictError:
                for number, task in due.items():
                    try:
                        self._cover(part, {number: task}, made)
                    except ConflictError:
                        _forget(self._works[number][1], _of_tablet(made, number, part))
            for number in self._works.keys() - due.keys():
                _forget(self._works[number][1], _of_tablet(made, number, part))
            hit("index.tablet_filled")
        # What it brought is committed; it holds nothing any more.
        self._context.catalog.commit(
            c.Decision(
                reason=self._transaction.reason,
                transaction=self._transaction.id,
                requires=(c.TransactionOpen(transaction=self._transaction.id),),
                updates=(c.EndTransaction(transaction=self._transaction.id),),
            ),
            node=self._context.node,
        )
        for _, work in self._works.values():
            work.forget_scratch()

    def _cover(self, part: Part, tasks: Mapping[RelationId, TaskId], made: Mapping[RelationId, Sequence[Run]]) -> None:
        if not tasks:
            return
        requires: list[c.Requirement] = [
            c.TransactionOpen(transaction=self._transaction.id),
            c.TasksOpen(tasks=frozenset(tasks.values())),
        ]
        updates: list[c.Update] = []
        version = self._snapshot.version
        for number in tasks:
            index = self._works[number][0]
            seen = self._covered[number].get(part.tablet, ())
            segment: Segment[str] = Segment(up_to=part.up_to, since=version, rows=part.rows)
            sg.cover(seen, segment)  # refuses a chunk that does not advance
            requires += [
                walk.as_found(index),
                c.SegmentsBegin(view=number, tablet=part.tablet, segments=seen, exactly=True),
            ]
            updates += [
                c.AddRuns(runs=tuple(_of_tablet(made, number, part))),
                c.CoverSegment(view=number, tablet=part.tablet, segment=segment),
            ]
        if part.up_to is None:
            updates.append(c.FinishTasks(tasks=frozenset(tasks.values())))
        names = ", ".join(self._works[number][0].name for number in tasks)
        self._context.catalog.commit(
            c.Decision(
                reason=f"fill index {names}: tablet {part.tablet} at version {version}",
                relation=self._snapshot.relation.id,
                transaction=self._transaction.id,
                requires=tuple(requires),
                updates=tuple(updates),
            ),
            node=self._context.node,
        )


def _of_tablet(made: Mapping[RelationId, Sequence[Run]], index: RelationId, part: Part) -> list[Run]:
    return [run for run in made.get(index, ()) if run.tablet == part.tablet]


def _forget(work: Work, runs: Sequence[Run]) -> None:
    for run in runs:
        for root in work.roots.values():
            root.remove(run.path)
