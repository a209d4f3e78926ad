"""A view compared with its query at the versions that it names."""

from __future__ import annotations

from ebla.catalog import reads
from ebla.ids import Version
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.storage.model import HIDDEN_KEY
from ebla.tables import compare, scans
from ebla.tables.compare import Compared
from ebla.tables.context import Context
from ebla.views import definition
from ebla.views.evaluate import Evaluation
from ebla.views.guard import require_built
from ebla.views.inputs import Inputs, Round
from ebla.views.run import shape_of, used_columns


def check(context: Context, name: str, percent: float | None = None) -> Compared:
    """Missing, spurious and different rows; of a view without a key, missing and spurious ones."""
    with context.catalog.reading() as connection:
        view = definition.load(connection, name)
        require_built(connection, view.relation)
        assert view.position is not None
        position = view.position
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        now = {n: reads.snapshot(connection, r, Version(position.read[n])) for n, r in relations.items()}
        mine = reads.snapshot(connection, view.relation)
    shape, _ = shape_of(view, relations)
    inputs = Inputs(
        round=Round(context),
        relations=relations,
        before=dict.fromkeys(relations),
        now=now,
        used=used_columns(shape, relations),
        rows_max=context.settings.batch_rows_max,
    )
    relation = view.relation
    columns = [c for c in relation.columns if c.name not in HIDDEN_KEY]
    hashed = ", ".join(
        f"CAST({sscan.quoted(c.physical)} AS STRING)" for c in (columns if relation.keyless else relation.key)
    )
    with swrite.translated(relation.name):
        should = swrite.fitted(Evaluation(view, inputs).frame({}), relation, hidden=True)
        found = scans.frame_of(context, mine, hidden=True).selectExpr(
            *sscan.renamed([(c.name, c.physical) for c in relation.columns])
        )
        should, found = (
            compare.sampled(ssession.rebind(side, context.writer), hashed, percent).select(
                *[sscan.quoted(c.physical) for c in columns]
            )
            for side in (should, found)
        )
        if relation.keyless:
            wrong = compare.counted_bags(should, found, columns)
        else:
            key = [k.physical for k in relation.key]
            wrong = compare.counted(compare.differences(should, found, columns, key, near=True))
    return Compared.of("view", relation.name, position.applied_version, wrong, percent)
