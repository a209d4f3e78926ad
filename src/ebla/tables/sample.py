"""Some rows from the middle of some runs: a build is compared with its definition for these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ebla.base.ids import NodeId
from ebla.model.relation import Column
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.values import types

KEYS = 200
RUNS = 4
"""A sample has this many rows, from this many runs."""


def sample(
    roots: Mapping[NodeId, Root], snapshot: Snapshot, columns: Sequence[Column], key: Sequence[Column]
) -> pa.Table:
    """Values of some columns in rows of some runs, as columns `c0`, `c1`, … with the types of a key."""
    names = [f"c{i}" for i in range(len(key))]
    schema = pa.schema([pa.field(n, types.to_arrow(k.type)) for n, k in zip(names, key, strict=True)])
    runs = [*snapshot.level1, *snapshot.level0]
    step = max(1, len(runs) // RUNS)
    copies = rf.require_copies(snapshot, roots)
    found = [schema.empty_table()]
    for run in runs[::step][:RUNS]:
        file = roots[copies[run.id]].open_parquet(run.path)
        group = file.read_row_group(file.num_row_groups // 2, columns=[column.physical for column in columns])
        some = group.slice(max(0, group.num_rows // 2 - KEYS // RUNS // 2), KEYS // RUNS)
        found.append(
            rf.align(some, columns).select([column.physical for column in columns]).rename_columns(names).cast(schema)
        )
    return pa.concat_tables(found)
