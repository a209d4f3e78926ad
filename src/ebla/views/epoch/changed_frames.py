"""The rows of an input that changed, as DataFrames: what was written, and what the view sees for the first time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.model.chunks import spans
from ebla.model.relation import DELETED
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.tables.chunk_scan import within
from ebla.views.epoch.evaluate import semi
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.mutations import column_of
from ebla.views.epoch.narrow import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ChangedFrames:
    """Changes of the inputs of one epoch."""

    _inputs: Inputs

    def rows(self, table: str, columns: Sequence[str]) -> DataFrame:
        """Columns of the changed rows, old and new, and of those that the view sees for the first time."""
        came = self._inputs.added(table)
        outputs = [sscan.quoted(n) for n in columns]
        if came is None:
            return self._written_rows(table, columns)
        if not self._inputs.writes(table):
            return came.selectExpr(*outputs)
        return self._written_rows(table, columns).unionAll(came.selectExpr(*outputs))

    def _written_rows(self, table: str, columns: Sequence[str]) -> DataFrame:
        """Columns of the changed rows, old and new; of the new alone if they are the key, which both share."""
        relation = self._inputs.relations[table]
        latest = self._latest(table)
        key = {k.name for k in relation.key}
        physical = [column_of(relation, n).physical for n in columns]
        if set(columns) <= key:
            return latest.selectExpr(*[sscan.quoted(p) for p in physical])
        assert self._inputs.before[table] is not None
        old = self._inputs.frame(table, State.OLD, hidden=True)
        keys = latest.selectExpr(*[sscan.quoted(k.physical) for k in relation.key])
        was = semi(old, [k.name for k in relation.key], keys).selectExpr(*[sscan.quoted(n) for n in columns])
        alive = latest.filter(f"NOT coalesce({DELETED}, false)").selectExpr(*[sscan.quoted(p) for p in physical])
        return was.unionAll(alive)

    def new(self, table: str, session: SparkSession | None = None) -> DataFrame:
        """Changed rows as they are, read as a session reads files; by default the user's."""
        relation = self._inputs.relations[table]
        came = self._inputs.added(table)
        if came is not None:
            came = came.select(*[sscan.quoted(col.name) for col in relation.visible])
            if not self._inputs.writes(table):
                return came
        alive = self._latest(table, session).filter(f"NOT coalesce({DELETED}, false)")
        found = sscan.logical(alive.select(*[sscan.quoted(c.physical) for c in relation.visible]), relation.visible)
        return found if came is None else found.unionAll(came)

    def _latest(self, table: str, session: SparkSession | None = None) -> DataFrame:
        """The last mutation of each changed key that the view knows."""
        context, relation = self._inputs.context, self._inputs.relations[table]
        runs, roots = self._inputs.writes(table), self._inputs.context.roots()
        copies = {r.id: rf.readable_node(roots, r) or r.nodes[0] for r in runs}
        latest = sscan.latest_mutations(session or context.spark, relation, runs, copies, roots)
        region = self._inputs.region_of(table)
        if region is None:
            return latest
        return latest.filter(within([k.physical for k in relation.key], spans(region.covered)))
