"""The rows that a view's query makes of a chunk of its base, put into runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.relations.shapes import shape_of, used_columns
from ebla.spark import write as swrite
from ebla.tables import batch as b
from ebla.tables.sink import Sink
from ebla.views.epoch.culprit import naming_culprits
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.round import Round
from ebla.views.fill.chunk_commit import FilledView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_chunk(filling: FilledView, version: Version, sink: Sink, round_: Round, rows: DataFrame) -> None:
    """Put what a view's query makes of these rows of the base, and of all of its other inputs, into runs."""
    context = round_.context
    with context.catalog.reading() as connection:
        now = {n: reads.snapshot(connection, r, version) for n, r in filling.relations.items()}
    shape, _ = shape_of(filling.view, filling.relations)
    inputs = Inputs(
        round=round_,
        relations=filling.relations,
        before=dict.fromkeys(filling.relations),
        now=now,
        used=used_columns(shape, filling.relations),
        rows_max=context.settings.batch_rows_max,
        settings=filling.view.settings,
    )
    evaluation = Evaluation(filling.view, inputs)
    with naming_culprits(evaluation):
        found = evaluation.frame({filling.driven.leaf: rows})
        fitted = swrite.fitted(found, filling.view.relation, hidden=True)
        sink.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
    hit("build.chunk_written")
