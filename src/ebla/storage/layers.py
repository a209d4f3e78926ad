"""Level 0 over a sorted path, in memory: the last mutation of every row, in a few layers instead of one for each run.

Theory. A reader asks every layer for every row it shows, so there should be few of them; a writer adds a run with every
commit, so adding one must not cost what all others did. Neighbouring runs are therefore merged as a log-structured tree
would: a layer is merged with the ones before it as long as those are not much larger (`segments`). What lies behind
the last large layer is small, a row is merged again only after its layer has grown by a good part, and there are about
log n layers. Which runs form a layer depends on nothing but their sizes, so every snapshot that begins with the same
runs finds the same layers in the cache, also an older one.

A run that is folded for some tablets already counts only for the others. Its folded rows are left out before it is
merged; `folded` is what a layer depends on besides its runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import TabletId, Version
from ebla.model.relation import DELETED, TOKEN, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath, PathColumn
from ebla.storage import runs as rf
from ebla.values import token as tokens

LAYER_ROWS_MAX = 8_192
"""A run of more rows is in no layer."""
GROWTH = 2
"""A layer is merged with the one before it, if that is at most this many times as large."""
ROW_BYTES = 100
KEY_VALUE_BYTES = 60
"""About what a row takes besides its columns: its place by key, and each value of its key."""

Key = tuple[Any, ...]
"""Comparable values in the order of a path's key, with one and the same NaN."""
Folded = tuple[tuple[TabletId, Version], ...]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The last mutation of each row in one or more level 0 runs, in today's columns, sorted as their path is."""

    rows: pa.RecordBatch
    keys: Sequence[Key]
    """The sort key of each row, in order."""
    names: Sequence[Key]
    """What identifies each row: of a table or view the keys, of an index the keys of its base."""
    places: Mapping[Key, int]
    """The number of the row that has a name."""
    dead: bytes | None
    """Whether each row is a tombstone; `None` if none is."""
    tablets: npt.NDArray[np.int64] | None
    """The tablet of each row; only of one run, and where there are several tablets."""

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        width = self.rows.nbytes + self.rows.num_columns * rf.COLUMN_BYTES + len(self.keys) * ROW_BYTES
        return int(width) + (len(self.keys) * len(self.keys[0]) * KEY_VALUE_BYTES if self.keys else 0)


# ---- which runs make a layer ----------------------------------------------------------------------------


def segments(sizes: Sequence[int]) -> list[range]:
    """The places of the runs that are merged, for runs of these sizes, oldest first.

    Those of some runs and one more are the same up to the last ones, which are merged with the new one or are not.
    """
    found: list[tuple[int, int]] = []
    for start, size in enumerate(sizes):
        merged = max(size, 1)
        while found and found[-1][1] <= GROWTH * merged:
            start, before = found.pop()
            merged += before
        found.append((start, merged))
    starts = [*(start for start, _ in found), len(sizes)]
    return [range(start, end) for start, end in itertools.pairwise(starts)]


def folded(runs: Sequence[Run], snapshot: Snapshot) -> Folded:
    """The tablets for which some of these runs are folded, and up to which version."""
    if snapshot.uniform_cutoff:
        return ()
    first, last = runs[0].begin_version, runs[-1].begin_version
    return tuple(sorted((t, min(cutoff, last)) for t, cutoff in snapshot.cutoffs.items() if cutoff >= first))


# ---- layers ---------------------------------------------------------------------------------------------


def key_of(row: Key) -> Key:
    """A key that equals itself, also with NaN in it: tuples hold equal what is the same object."""
    return tuple(math.nan if value != value else value for value in row)


def layer_of(path: AccessPath, raw: pa.Table) -> Layer:
    """One run as its file has it."""
    table = rf.align(raw, path.relation.columns, [(DELETED, pa.bool_()), (TOKEN, pa.int64())])
    whole = _whole(table)
    keys = _values(whole, path.key)
    names = keys if path.identity == path.key else _values(whole, path.identity)
    dead = pc.fill_null(whole.column(DELETED), False).to_numpy(zero_copy_only=False)
    rows = whole.select([column.physical for column in path.relation.columns])
    return _sorted(path, rows, keys, names, dead, _tablets(path.relation, whole, raw))


def _values(rows: pa.RecordBatch, columns: Sequence[PathColumn]) -> list[Key]:
    keys = list(zip(*(v.plain(rows.column(column.path)).to_pylist() for column in columns), strict=True))
    if any(pa.types.is_floating(rows.schema.field(column.path).type) for column in columns):
        return [key_of(key) for key in keys]
    return keys


def without_folded(layer: Layer, run: Run, cutoffs: Folded) -> Layer:
    """One run without the rows of tablets that have folded it."""
    gone = [tablet for tablet, cutoff in cutoffs if run.begin_version <= cutoff]
    if not gone or layer.tablets is None:
        return layer
    kept = np.flatnonzero(~np.isin(layer.tablets, gone))
    keys, names = _chosen(layer.keys, layer.names, kept)
    return Layer(
        rows=layer.rows.take(pa.array(kept)),
        keys=keys,
        names=names,
        places=dict(zip(names, range(len(names)), strict=True)),
        dead=None if layer.dead is None else _some(np.frombuffer(layer.dead, np.bool_)[kept]),
        tablets=layer.tablets[kept],
    )


def merged(path: AccessPath, layers: Sequence[Layer]) -> Layer:
    """Layers, oldest first, as one."""
    rows = _whole(pa.Table.from_batches([layer.rows for layer in layers]))
    keys = [key for layer in layers for key in layer.keys]
    same = path.identity == path.key
    names = keys if same else [name for layer in layers for name in layer.names]
    dead = [np.frombuffer(layer.dead or bytes(len(layer.keys)), np.bool_) for layer in layers]
    return _sorted(path, rows, keys, names, np.concatenate(dead), None)


def _sorted(
    path: AccessPath,
    rows: pa.RecordBatch,
    keys: Sequence[Key],
    names: Sequence[Key],
    dead: npt.NDArray[np.bool_],
    tablets: npt.NDArray[np.int64] | None,
) -> Layer:
    """Rows in the path's order, the last of each name."""
    order = rf.in_order(rows, [(column.path, column.descending) for column in path.key]).to_numpy().astype(np.int64)
    places = dict(zip([names[at] for at in order.tolist()], range(len(order)), strict=True))
    if len(places) < len(order):
        last = dict(zip(names, range(len(names)), strict=True))
        is_last = np.zeros(len(names), np.bool_)
        is_last[np.fromiter(last.values(), np.int64, len(last))] = True
        order = order[is_last[order]]
        places = dict(zip([names[at] for at in order.tolist()], range(len(order)), strict=True))
    keys, names = _chosen(keys, names, order)
    return Layer(
        rows=rows.take(_int64(order)),
        keys=keys,
        names=names,
        places=places,
        dead=_some(dead[order]),
        tablets=None if tablets is None else tablets[order],
    )


def _chosen(
    keys: Sequence[Key], names: Sequence[Key], places: npt.NDArray[np.int64]
) -> tuple[Sequence[Key], Sequence[Key]]:
    found = [keys[at] for at in places.tolist()]
    return found, found if names is keys else [names[at] for at in places.tolist()]


def _int64(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """The numbers as Arrow's, without a copy; `pa.array` would import all that numpy has for masked arrays."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _some(dead: npt.NDArray[np.bool_]) -> bytes | None:
    return dead.tobytes() if dead.any() else None


def _tablets(relation: Relation, whole: pa.RecordBatch, raw: pa.Table) -> npt.NDArray[np.int64] | None:
    if relation.tablets == 1:
        return None
    if TOKEN in raw.schema.names:
        found = whole.column(TOKEN).to_numpy()
    else:
        found = tokens.tokens(pa.Table.from_batches([whole]), [c.physical for c in relation.identity])
    return np.asarray(tokens.tablets_of(found, relation.tablets))


def _whole(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
