"""The files that one transaction writes of one relation: runs under the roots of replicas, and scratch before them.

A run's name has the relation, the transaction and a number. So the names of all files that a transaction may have
written are known from the count of numbers that were given out, even where writing one failed half way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.base.ids import NodeId, TabletId, TransactionId
from ebla.base.pace import PACE
from ebla.base.settings import Settings
from ebla.errors import StorageError
from ebla.model.relation import Kind, Relation, Run, RunSource
from ebla.spark.in_place import tablet_of_file
from ebla.spark.write import TabletFile, in_order, write_partitions, write_tablets
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Root, run_path, scratch_path
from ebla.tables import batch as b

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RunFiles:
    """The files of one relation in one transaction, and how to be rid of them."""

    def __init__(
        self,
        relation: Relation,
        transaction: TransactionId,
        roots: Mapping[NodeId, Root],
        settings: Settings,
        node: NodeId,
    ) -> None:
        """`node` is the one that this process is."""
        self.relation = relation
        self._transaction = transaction
        self._roots = roots
        self._settings = settings
        self._node = node
        self._numbers = 0
        self._scratches = 0
        self._scratch: list[str] = []

    # ---- runs -------------------------------------------------------------------------------------------

    def level0(
        self, table: pa.Table, kinds: pa.Array, *, cache: rf.LevelZeroCache, by_tablet: bool = False
    ) -> list[Run]:
        """Write settled rows as level 0: one run for each set of replicas, or for each tablet."""
        relation = self.relation
        first = self._given(relation.tablets if by_tablet else 2 * len(relation.replica_sets()))
        return b.level0_runs(
            table, kinds, relation, self._transaction, self._roots, by_tablet=by_tablet, first=first, cache=cache
        )

    def cut(self, frame: DataFrame, tablets: Sequence[TabletId] | None = None) -> list[TabletFile]:
        """Let Spark write one sorted file for each tablet, or for each of some, to scratch. One shuffle, one job."""
        scratch, size = self.next_scratch(), self._row_group_bytes
        return write_tablets(frame, self.relation, self.home(), scratch, row_group_bytes=size, index=tablets)

    def cut_in_place(self, frame: DataFrame) -> list[TabletFile] | None:
        """The same of a frame whose partitions are tablets: no shuffle. `None` if one of them was not.

        The rows are read back to tell, before any of them can be seen.
        """
        relation, root, scratch, size = self.relation, self.home(), self.next_scratch(), self._row_group_bytes
        found = write_partitions(in_order(frame, relation), relation, root, scratch, row_group_bytes=size)
        places = rf.in_threads(lambda part: (tablet_of_file(root, part[1], relation), part[1]), found)
        files = [TabletFile(tablet=tablet, path=path) for tablet, path in places if tablet is not None]
        return files if len(files) == len({file.tablet for file in files}) == len(found) else None

    @property
    def _row_group_bytes(self) -> int:
        """Of an index small row groups: a page of a query reads one of each tablet."""
        is_index, settings = self.relation.kind is Kind.INDEX, self._settings
        return settings.index_row_group_bytes if is_index else settings.row_group_bytes

    def adopt(
        self,
        files: Sequence[TabletFile],
        *,
        level: int,
        deletes: bool = False,
        source: RunSource = RunSource.WRITE,
    ) -> list[Run]:
        """Give Spark's files their run names, check and measure them, and put a copy under the replicas' roots."""
        relation, root, roots = self.relation, self.home(), self._roots

        def one(item: tuple[int, TabletFile]) -> Run | None:
            number, file = item
            facts = file.facts or rf.inspect_sorted(root, file.path, relation, unique=not relation.keyless)
            if facts.rows == 0:
                root.remove(file.path)
                return None
            tombstones = b.tombstones_in(root, file.path) if deletes else 0
            run = b.tablet_run(
                relation, self._transaction, number, file.tablet, facts, level=level, tombstones=tombstones,
                source=source,
            )  # fmt: skip
            root.move(file.path, run.path)
            with PACE.turn():
                root.flush(run.path)
            run = replace(run, nodes=copies.copy(root, run.path, roots, run.nodes, relation.min_copies))
            if all(roots[node].location != root.location for node in run.nodes):
                root.remove(run.path)
            return run

        done = rf.in_threads(one, list(enumerate(files, start=self._given(len(files)))))
        return [run for run in done if run is not None]

    def _given(self, count: int) -> int:
        """Give out numbers; the first of them."""
        first = self._numbers
        self._numbers += count
        return first

    # ---- scratch ----------------------------------------------------------------------------------------

    def home(self) -> Root:
        """The root that Spark writes to first: this node's, or that of a node that holds the relation, on this machine
        or shared."""
        wanted = (self._node, *(node for nodes in self.relation.replica_sets() for node in nodes))
        found = [self._roots[node] for node in wanted if node in self._roots]
        here = [root for root in found if not root.is_remote] or found
        return next((root for root in here if root.is_writable), here[0])

    @property
    def has_scratch(self) -> bool:
        return self._scratches > 0

    def next_scratch(self) -> str:
        self._scratches += 1
        path = scratch_path(self.relation.id, self._transaction, self._scratches)
        self._scratch.append(path)
        self.home().make_parent(path)  # by us, not by Spark, which would let others in
        return path

    def forget_scratch(self) -> None:
        while self._scratch:
            self.home().remove_tree(self._scratch[-1])
            self._scratch.pop()

    # ---- the end ----------------------------------------------------------------------------------------

    def remove(self, runs: Sequence[Run]) -> None:
        """Remove the files of some runs."""
        for run in runs:
            self._remove(run.path)

    def remove_all(self, keep: Collection[str] = ()) -> None:
        """Remove every file that may have been written, but for these paths."""
        for number in range(self._numbers):
            path = run_path(self.relation.id, self._transaction, number)
            if path not in keep:
                self._remove(path)
        self.forget_scratch()

    def _remove(self, path: str) -> None:
        for root in self._roots.values():
            with contextlib.suppress(StorageError):  # a node that is away keeps its file until a sweep
                root.remove(path)
