"""Keys that stand twice in one write of Spark's data source. Rows of a DataFrame have no order: neither is the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ebla.base.ids import NodeId
from ebla.model.relation import SPANS_TABLETS, Relation, Run
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.values import token as tokens

CHECK_ROWS = 5_000_000
"""More keys than this are compared tablet by tablet."""


def refuse(relation: Relation, runs: Sequence[Run], locations: Mapping[NodeId, str]) -> None:
    """Refuse runs of tasks with a key that stands in them twice. `locations`: the storage roots of the nodes."""
    if relation.keyless:
        return
    roots = {node: Root(location) for node, location in locations.items()}
    whole = sum(r.rows for r in runs) <= CHECK_ROWS
    for tablet in (None,) if whole else range(relation.tablets):
        keys = _keys(relation, runs, roots, tablet)
        found = rf.first_duplicate(keys, keys.schema.names)
        if found is not None:
            raise rf.duplicate_in_batch(relation, found)


def _keys(relation: Relation, runs: Sequence[Run], roots: Mapping[NodeId, Root], tablet: int | None) -> pa.Table:
    """The key columns of all rows, or of one tablet's."""
    names = [col.physical for col in relation.key]
    parts = [rf.align(pa.table({}), relation.key)]
    for run in runs:
        if tablet is not None and run.tablet not in (tablet, SPANS_TABLETS):
            continue
        keys = rf.align(roots[run.nodes[0]].open_parquet(run.path).read(columns=names), relation.key)
        if tablet is not None and run.tablet == SPANS_TABLETS:
            keys = keys.filter(pa.array(tokens.tablets_of(tokens.tokens(keys, names), relation.tablets) == tablet))
        parts.append(keys)
    return pa.concat_tables(parts)
