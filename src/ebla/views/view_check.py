"""A view compared with its query at the versions that it names, part by part.

A view that is driven by its base is cut by the base's key: a part runs the query over some tablets of the base. Any
other is cut by its own key, or without one by all its columns: a part runs the query over all its inputs and keeps some
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebla.catalog import reads
from ebla.model.relation import HIDDEN_KEY, Column
from ebla.relations.shapes import shape_of, used_columns
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.tables import compare, scans
from ebla.tables import parts as pt
from ebla.tables.chunk_scan import within
from ebla.tables.compare import ComparisonResult
from ebla.tables.parts import CheckSpeed, Part
from ebla.tables.write_access import WriteAccess
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import unchanged
from ebla.views.part_read import PartRead, load, part_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_view(
    context: WriteAccess, pins: scans.Pins, name: str, percent: float | None, pace: CheckSpeed
) -> ComparisonResult:
    """Missing, spurious and different rows; of a view without a key, missing and spurious ones."""
    with context.catalog.reading() as connection:
        view, _ = load(connection, name)
        rows = reads.snapshot(connection, view.relation).rows_at_most
    wrong: Counter[str] = Counter()
    for part in pt.parts(context.progress, f"checking view {view.relation.name}", rows, pace):
        with part_read(context.catalog, pins, name, part) as seen, pt.stoppable(context.spark):
            wrong.update(_compared(context, seen, part, percent))
    return ComparisonResult.of("view", seen.view.relation.name, seen.position.applied_version, wrong, percent)


def _compared(context: WriteAccess, seen: PartRead, part: Part, percent: float | None) -> Mapping[str, int]:
    relation = seen.view.relation
    columns = [c for c in relation.columns if c.name not in HIDDEN_KEY]
    of = columns if relation.keyless else relation.key
    hashed = ", ".join(f"CAST({sscan.quoted(c.physical)} AS STRING)" for c in of)
    inside = part.within(_token(seen, columns))
    with swrite.translated(relation.name):
        should = swrite.fitted(_named(context, seen, part), relation, hidden=True)
        found = scans.frame_of(context, seen.mine, hidden=True).selectExpr(
            *sscan.renamed([(c.name, c.physical) for c in relation.columns])
        )
        should, found = (
            compare.sampled(ssession.rebind(side, context.writer).filter(inside), hashed, percent).select(
                *[sscan.quoted(c.physical) for c in columns]
            )
            for side in (should, found)
        )
        if relation.keyless:
            return compare.counted_bags(should, found, columns)
        key = [k.physical for k in relation.key]
        return compare.counted(compare.differences(should, found, columns, key, near=True))


def _token(seen: PartRead, columns: list[Column]) -> str:
    """The long by which the view is cut, from its physical columns."""
    relation = seen.view.relation
    if seen.how is not None:
        named = {c.name: c for c in relation.columns}
        return sscan.token_sql([named[n] for n in seen.how.scope])
    if relation.keyless:
        return f"xxhash64({', '.join(f'CAST({sscan.quoted(c.physical)} AS STRING)' for c in columns)})"
    return sscan.token_sql(relation.placed_by)


def _named(context: WriteAccess, seen: PartRead, part: Part) -> DataFrame:
    """The view's query at the versions that the view names: of a view with a refresh, those of each part of it."""
    refresh = seen.position.refresh
    if refresh is None or seen.refreshed is None:
        return _query(context, seen, part)
    behind, ahead = refresh.spans()
    new = _query(context, seen.refreshed, part).filter(within(refresh.by, behind))
    return new.unionAll(_query(context, seen, part).filter(within(refresh.by, ahead)))


def _query(context: WriteAccess, seen: PartRead, part: Part) -> DataFrame:
    """The view's query, over a part of its base where that is enough."""
    shape, _ = shape_of(seen.view, seen.relations)
    evaluation = Evaluation(
        seen.view, unchanged(context, seen.relations, seen.now, used_columns(shape, seen.relations), seen.view.settings)
    )
    if seen.how is None or seen.base is None:
        return evaluation.frame({})
    key = ", ".join(sscan.quoted(k.name) for k in seen.base.relation.key)
    rows = scans.frame_of(context, seen.base).filter(part.within(f"xxhash64({key})"))
    return evaluation.frame({seen.how.leaf: rows})
