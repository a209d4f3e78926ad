"""One chunk of a base to the runs of its indexes: written together, recorded tablet by tablet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, TabletId, TaskId
from ebla.errors import ConflictError, SqlError, TypeMismatchError
from ebla.indexes.backfill import fill
from ebla.indexes.culprit import culprits, placed
from ebla.indexes.tablet_commits import TabletCommits
from ebla.model.chunks import Covered
from ebla.model.snapshot import Snapshot
from ebla.model.work import WorkKind
from ebla.relations.indexes import Index
from ebla.spark import session as ssession
from ebla.tables.chunk_scan import Scan
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin_of
from ebla.tables.write_access import WriteAccess


def moved(index: RelationId) -> ConflictError:
    return ConflictError(f"index {index}: expected it as it was when the chunk began, found it moved; look again")


class ChunkFill:
    """What indexes of one session get of a chunk."""

    def __init__(
        self,
        context: WriteAccess,
        scan: Scan,
        indexes: Sequence[Index],
        covered: Mapping[RelationId, Covered],
        tasks: Mapping[RelationId, frozenset[TaskId]],
    ) -> None:
        assert scan.at is not None
        self._context = context
        self._scan = scan
        self._indexes = indexes
        self._snapshot: Snapshot = scan.snapshot(scan.at)
        names = ", ".join(index.name for index in indexes)
        self._transaction = begin_of(context, None, reason=f"fill index {names}", work=WorkKind.INDEX_FILL)
        self._sinks = {index.id: (index, Sink(self._transaction, index.relation)) for index in indexes}
        self._commits = TabletCommits(
            transaction=self._transaction,
            base=self._snapshot.relation.id,
            version=scan.at,
            sinks=self._sinks,
            covered=covered,
            tasks=tasks,
        )

    def run(self) -> dict[RelationId, Exception]:
        """Write and commit; what went wrong, by index."""
        try:
            with self._context.kept_alive(self._transaction.id):
                self._write()
                hit("index.files_written")
                self._commits.run(self._scan.stretches)
            return {}
        except (SqlError, TypeMismatchError) as error:
            self._transaction.give_up(error)
            sessions, scan, snapshot = self._context.sessions, self._scan, self._snapshot
            blamed = {index.id for index in culprits(sessions, self._indexes, snapshot, scan)}
            return {
                index.id: placed(sessions, index, snapshot, scan, error) if index.id in blamed else moved(index.id)
                for index in self._indexes
            }
        except Exception as error:
            self._transaction.give_up(error)
            return {index.id: error for index in self._indexes}
        except BaseException as error:
            self._transaction.give_up(error)
            raise

    # ---- files ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        snapshot = self._snapshot
        if not snapshot.level1 and not snapshot.level0:
            return
        settings = next((index.settings for index in self._indexes if index.settings), {})
        spark = self._context.view_session(settings, small=False) if settings else self._context.writer
        rows: dict[TabletId, int] = {}
        for run in snapshot.level1:
            rows[run.tablet] = rows.get(run.tablet, 0) + run.rows
        newer = sum(run.rows for run in snapshot.level0)
        frame = ssession.rebind(self._scan.rows(snapshot.version), spark)
        most = max(rows.values(), default=0) + newer // max(1, len(snapshot.tablets))
        context = self._context
        fill(context.sessions, context.settings, frame, snapshot.relation, self._sinks, self._scan, tablet_rows=most)
