"""An epoch whose change is too large for the driver: the same plan, with every set of values a DataFrame.

Nothing is collected. The affected values are found by joins, the query runs over the rows in scope, and one join with
what the view has tells upserts from tombstones. Where each changed row gives one row of the view or none, the query
runs over the changed rows alone, whatever their share of the input, and while each gives one, no join is needed. Rows
are not compared with the old ones: a row that stays the same is written again. Of a view that is refreshed in chunks,
only affected values in a range of tokens count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ebla.algebra.build_method import one_by_one
from ebla.algebra.follow import (
    ChangedValues,
    NarrowedLeaf,
    PickedValues,
    Scope,
    Values,
    computes,
)
from ebla.algebra.plan import IncrementalPlan, by_scope
from ebla.model.relation import DELETED
from ebla.model.tablets import tablet_around
from ebla.spark import scan as sscan
from ebla.tables.chunk_scan import within
from ebla.tables.sink import Sink
from ebla.views.epoch.changed_frames import ChangedFrames
from ebla.views.epoch.evaluate import semi
from ebla.views.epoch.mutations import column_of
from ebla.views.epoch.operands import Operands
from ebla.views.epoch.stored_rows import stored_frame
from ebla.views.epoch.tombstones import gone_rows, with_tombstones
from ebla.views.epoch.value_frames import ValueFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frames:
    """One plan over one epoch's operands."""

    def __init__(self, operands: Operands, plan: IncrementalPlan) -> None:
        self._operands = operands
        self._view = operands.view
        self._inputs = operands.inputs
        self._plan = plan
        self._changes = ChangedFrames(operands.inputs)
        self._values = ValueFrames(operands.inputs)

    @classmethod
    def of_change(cls, operands: Operands, changed: Sequence[str]) -> Frames | None:
        """The frames that follow a change of some inputs, if the view has a key and a scope that it shows."""
        if operands.shape is None or operands.view.relation.keyless:
            return None
        plan = by_scope(operands.shape, changed, operands.keys)
        return None if plan is None else cls(operands, plan)

    @property
    def evaluates(self) -> bool:
        """Whether expressions are evaluated on changed rows, which the query may never see."""
        return any(computes(one.values) for one in self._plan.affected)

    @property
    def one_by_one(self) -> ChangedValues | None:
        """What changed, if that is all that is read of its input, and each row of it gives one of the view or none."""
        direct = self._direct()
        if direct is None or self._operands.shape is None:
            return None
        found = one_by_one(self._operands.shape.root, direct.table)
        return direct if found is not None and not found[1] else None

    def put(self, sink: Sink) -> int:
        """Write the rows and the tombstones; how many. One job, and another if fewer rows came out than changed.

        Rows that lie in the tablet of the row that they come of are written without a shuffle.
        """
        changed = self.one_by_one
        if changed is None:
            return sink.put_more(self.rows())
        files = self._files_of_tablets(changed)
        if files is not None and sink.put_in_place(self._found(changed, sink.context.sessions.in_place()), files):
            rows = sink.rows
        else:
            rows = sink.put_more(self._found(changed))
        if rows < self._inputs.written(changed.table):
            rows += sink.put_more(gone_rows(self._operands, self._plan.scope, self.affected(), sink.runs))
        return rows

    def _found(self, changed: ChangedValues, session: SparkSession | None = None) -> DataFrame:
        """What the query gives for changed rows, under physical names with a mark that no tombstone is among them."""
        found = self._operands.evaluation.frame({changed.leaf: self._changes.new(changed.table, session)})
        names = sscan.renamed([(col.name, col.physical) for col in self._view.relation.columns])
        return found.selectExpr(*names, f"false AS {DELETED}")

    def rows(self, span: tuple[int, int] | None = None) -> DataFrame:
        """Rows to write, under physical names with a mark for tombstones.

        `span`: only those whose scope has its token there, first and last.
        """
        self._values.scope = affected = self.affected(span)
        direct = self._direct()
        leaves = self._narrowed() if direct is None else {direct.leaf: self._changes.new(direct.table)}
        found = self._operands.evaluation.frame(leaves)
        relation = self._view.relation
        key = [col.name for col in relation.key]
        if self._by_key:
            # One row for each affected value at most: what finds none is a tombstone.
            return with_tombstones(relation, affected, self._plan.scope, found, how="left_outer")
        found = semi(found, self._plan.scope, affected)
        old = semi(stored_frame(self._operands), self._plan.scope, affected).select(*[sscan.quoted(n) for n in key])
        return with_tombstones(relation, old, key, found)

    def affected(self, span: tuple[int, int] | None = None) -> DataFrame:
        """The values of the scope that changes affect, in the types of the view's columns: tokens depend on them.

        No row of the view has a value that does not fit: it comes from the other side of an equality as INT = BIGINT.
        """
        parts = [self._values.of(a.values) for a in self._plan.affected]
        found = parts[0] if len(parts) == 1 else reduce(lambda a, b: a.unionAll(b), parts).distinct()
        wanted = [column_of(self._view.relation, name).type for name in self._plan.scope]
        kinds = {c: kind for (c, have), kind in zip(found.dtypes, wanted, strict=True) if have != kind}
        fits = [f"({c} IS NULL OR try_cast({c} AS {kind}) IS NOT NULL)" for c, kind in kinds.items()]
        typed = found.filter(" AND ".join(fits)) if fits else found
        typed = typed.selectExpr(*[f"try_cast({c} AS {kinds[c]}) AS {c}" if c in kinds else c for c in found.columns])
        return typed if span is None else typed.filter(within(typed.columns, [span]))

    @property
    def _by_key(self) -> bool:
        return set(self._plan.scope) == {column.name for column in self._view.relation.key}

    # ---- rows -------------------------------------------------------------------------------------------

    def _direct(self) -> ChangedValues | None:
        """What changed, where that is all that the query needs of the input that changed."""
        if len(self._plan.affected) != 1:
            return None
        changed = self._plan.affected[0].values
        if not isinstance(changed, ChangedValues) or self._count_mentions(changed.table) != 1:
            return None
        key = {k.name for k in self._inputs.relations[changed.table].key}
        if set(changed.columns) != key or not self._by_key:
            return None
        if not any(n.leaf == changed.leaf and set(n.by) == key for n in self._plan.narrowed):
            return None
        return changed

    def _count_mentions(self, table: str) -> int:
        return sum(1 for ref in self._view.kept.refs if ref.name.lower() == table)

    def _narrowed(self) -> dict[int, DataFrame]:
        """Inputs cut down to rows in scope, where one join does it; Spark joins the others as they are."""
        found: dict[int, list[NarrowedLeaf]] = {}
        for one in self._plan.narrowed:
            found.setdefault(one.leaf, []).append(one)
        return {
            leaf: semi(
                self._inputs.frame(parts[0].table),
                [str(name) for name in parts[0].by],
                self._values.of(parts[0].source),
            )
            for leaf, parts in found.items()
            if len(parts) == 1 and _is_scope(parts[0].source)
        }

    def _files_of_tablets(self, changed: ChangedValues) -> list[str] | None:
        """The names of the files that a change was written to, if these are tablets of the view as well, and more rows
        than any other input has: what is joined with them is then the smaller side."""
        base, view, inputs = self._inputs.relations[changed.table], self._view.relation, self._inputs
        runs = inputs.writes(changed.table)
        tablets = {tablet_around(run.tokens, base.tablets) for run in runs}
        one_each = len(tablets) == len(runs) and None not in tablets and len({r.begin_version for r in runs}) == 1
        columns = dict(zip(changed.columns, self._plan.scope, strict=True))
        keys = [(columns[k.name], k.type) for k in base.placed_by] == [(k.name, k.type) for k in view.placed_by]
        larger = all(inputs.written(changed.table) > inputs.size(n) for n in inputs.relations if n != changed.table)
        if not (one_each and keys and larger and base.tablets == view.tablets and inputs.region is None):
            return None
        return [run.path.rsplit("/", 1)[-1] for run in runs]


def _is_scope(source: Values) -> bool:
    return isinstance(source, Scope) or (isinstance(source, PickedValues) and isinstance(source.source, Scope))
