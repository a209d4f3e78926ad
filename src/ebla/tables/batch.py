"""A batch of mutations on its way into a relation, small enough for the driver or not.

Every row has a kind: `upsert` (whatever was there), `insert` (nothing may be there), `delete`. Names in here are
physical. A batch has each key at most once, except that a statement which moves a row to another key may delete a key
and insert it again: then the insert stands.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import NodeId, RunId, TabletId, Token, TransactionId
from ebla.errors import DuplicateKeyError, EblaError, StorageError
from ebla.model.relation import DELETED, ROW_SEQ, ROW_TXN, SPANS_TABLETS, TOKEN, Relation, Run, RunSource
from ebla.model.snapshot import Snapshot
from ebla.model.staging import Arrival
from ebla.model.tablets import spread_of
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Root, run_path
from ebla.values import token as tokens
from ebla.values import types
from ebla.values.columns import python_tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ebla.tables")

KIND = "_kind"
UPSERT, INSERT, DELETE = "upsert", "insert", "delete"
JOINT_BYTES = 2**20
"""A batch up to this size is written to fewer and wider sets of replicas while tablets move: files cost more than
their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowBatch:
    """Rows on the driver. `table` has the relation's physical columns; `kinds` is one kind or one per row.

    In an `ordered` batch the last row of a key wins; in any other, a key that stands twice is an error.
    """

    table: pa.Table
    kinds: str | pa.ChunkedArray
    ordered: bool
    arrival: Arrival | None = None
    """Why the rows come, if they come as files: they may have to be staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Rows in Spark: the relation's physical columns, and `_kind` unless one kind holds for all."""

    frame: DataFrame
    kind: str | None
    plain: bool = False
    """True when nearly every row that the frame reads is written, as in a scan of files: its size is known."""
    rows: int | None = None
    """The number of rows, where it is known."""
    bytes: int | None = None
    """How large the rows are, where that is known better than Spark knows it."""
    reads: Sequence[Snapshot] = ()
    """What the frame reads of the warehouse itself."""
    arrival: Arrival | None = None
    """Why the rows come, if they come as files: they may have to be staged."""
    errors: type[EblaError] | None = None
    """The class of errors in the rows, if it is not the errors' own."""


def settle(batch: ArrowBatch, relation: Relation, transaction: TransactionId) -> tuple[pa.Table, pa.Array]:
    """Each key once: the table with row ids given, and the kind of each row."""
    table = with_row_ids(batch.table, transaction) if relation.keyless else batch.table
    key = [c.physical for c in relation.identity]
    table = types.normalize_keys(table, key)
    kinds = (
        pa.array([batch.kinds] * table.num_rows, pa.string())
        if isinstance(batch.kinds, str)
        else batch.kinds.combine_chunks()
    )
    if isinstance(batch.kinds, str) and batch.ordered and batch.kinds != INSERT:
        last = rf.last_of_each_key(table, key)
        return last, kinds.slice(0, last.num_rows)
    duplicate = rf.first_duplicate(table, key)
    if duplicate is None:
        return table, kinds
    return _moved_keys(table, kinds, key, relation)


def _moved_keys(table: pa.Table, kinds: pa.Array, key: list[str], relation: Relation) -> tuple[pa.Table, pa.Array]:
    """A deleted key that the same statement inserts again: the insert stands, and replaces what was there."""
    keys = [tuple(map(_comparable, row)) for row in python_tuples(table, key)]
    kind = kinds.to_pylist()
    standing: dict[tuple[object, ...], int] = {}
    deleted: dict[tuple[object, ...], int] = {}
    for row, (values, what) in enumerate(zip(keys, kind, strict=True)):
        if what == DELETE:
            deleted[values] = row
        elif values in standing:
            raise rf.duplicate_in_batch(relation, values)
        else:
            standing[values] = row
    for values in standing.keys() & deleted.keys():
        kind[standing[values]] = UPSERT
    rows = sorted([*standing.values(), *(r for v, r in deleted.items() if v not in standing)])
    return table.take(rows), pa.array([kind[r] for r in rows], pa.string())


def _comparable(value: object) -> object:
    """NaN is one key, as in Spark; to Python no NaN equals another."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def with_row_ids(table: pa.Table, transaction: TransactionId) -> pa.Table:
    count = table.num_rows
    missing = pc.is_null(table[ROW_TXN])
    txn = pc.if_else(missing, pa.scalar(transaction, pa.int64()), table[ROW_TXN])
    seq = pc.if_else(missing, pa.array(np.arange(count), pa.int64()), table[ROW_SEQ])
    table = table.set_column(table.schema.get_field_index(ROW_TXN), ROW_TXN, txn)
    return table.set_column(table.schema.get_field_index(ROW_SEQ), ROW_SEQ, seq)


def level0_runs(
    table: pa.Table,
    kinds: pa.Array,
    relation: Relation,
    transaction: TransactionId,
    roots: Mapping[NodeId, Root],
    *,
    by_tablet: bool = False,
    first: int = 0,
    cache: rf.LevelZeroCache | None = None,
) -> list[Run]:
    """Write a settled batch as level 0, one file per set of replicas or tablet, under the roots of the set. While
    tablets move, a batch of few rows goes to fewer and wider sets, if all of their nodes take it.

    `first` is the number of the first file: this transaction's files before it have others, and it may give numbers to
    two files for each set. The rows stay in the cache: who reads them next need not decode them.
    """
    key = [c.physical for c in relation.key]
    identity = [c.physical for c in relation.identity]
    deleted = pc.equal(kinds, DELETE)
    table = tombstones(table, deleted, identity)
    order = rf.in_order(table, [(k, k in relation.descending) for k in key])
    table, deleted = table.take(order), deleted.take(order)
    token = tokens.tokens(table, identity)
    full = table.append_column(DELETED, deleted).append_column(TOKEN, pa.array(token, pa.int64()))
    groups = sorted(relation.replica_sets().items())
    if by_tablet:
        groups = [(relation.writes_to(t), [t]) for t in map(TabletId, range(relation.tablets))]
    of_row = tokens.tablets_of(token, relation.tablets) if len(groups) > 1 else None

    def write(least: int, item: tuple[int, tuple[tuple[NodeId, ...], list[TabletId]]]) -> Run | None:
        number, (nodes, tablets) = item
        part = full if of_row is None else full.filter(pa.array(np.isin(of_row, tablets)))
        if part.num_rows == 0:
            return None
        path = run_path(relation.id, transaction, number)
        ordered = part.replace_schema_metadata({rf.ORDERED: b"1"})
        size, done = copies.write(ordered, path, roots, nodes, least)
        if cache is not None:
            cache.put(path, part)
        run = _level0(part, relation, transaction, path, done, size, number)
        if by_tablet:
            return replace(run, tablet=tablets[0])
        return run if of_row is None else replace(run, spread=spread(of_row, tablets, relation.tablets))

    if of_row is not None and relation.moves and not by_tablet and full.nbytes <= JOINT_BYTES:
        joint = sorted(relation.joint_sets(list(map(TabletId, np.unique(of_row).tolist()))).items())
        if len(joint) < len(groups) and _all_live(roots, [node for nodes, _ in joint for node in nodes]):
            try:
                return _there(rf.in_threads(partial(write, len(roots)), list(enumerate(joint, start=first))))
            except StorageError as error:  # a node less may do for each of the narrow sets
                log.info("relation=%s expected all nodes of a move to take a write, found %s", relation.name, error)
            _remove(relation, transaction, roots, range(first, first + len(joint)))
            first += len(joint)
    return _there(rf.in_threads(partial(write, relation.min_copies), list(enumerate(groups, start=first))))


def _there(written: Sequence[Run | None]) -> list[Run]:
    return [run for run in written if run is not None]


def _all_live(roots: Mapping[NodeId, Root], nodes: Iterable[NodeId]) -> bool:
    """A node that is down costs a write time, which is not spent twice."""
    return all(node in roots and roots[node].is_writable for node in set(nodes))


def _remove(
    relation: Relation, transaction: TransactionId, roots: Mapping[NodeId, Root], numbers: Iterable[int]
) -> None:
    for number in numbers:
        for root in roots.values():
            with contextlib.suppress(StorageError):  # a node that is away keeps its file until a sweep
                root.remove(run_path(relation.id, transaction, number))


def spread(of_row: npt.NDArray[np.int64], some: Sequence[TabletId], tablets: int) -> str:
    """Which of some tablets have rows, given the tablet of each row."""
    return spread_of(np.unique(of_row[np.isin(of_row, some)]).tolist(), tablets)


def tombstones(table: pa.Table, deleted: pa.Array, key: Sequence[str]) -> pa.Table:
    """Of a deleted row only the key is kept; a statement that found the row gives all of it."""
    if not pc.any(deleted).as_py():
        return table
    for index, field in enumerate(table.schema):
        if field.name not in key:
            nothing = pa.nulls(table.num_rows, field.type)
            table = table.set_column(index, field, pc.if_else(deleted, nothing, table.column(index)))
    return table


def _level0(
    part: pa.Table,
    relation: Relation,
    transaction: TransactionId,
    path: str,
    nodes: tuple[NodeId, ...],
    size: int,
    number: int,
) -> Run:
    extremes = pc.min_max(part[TOKEN]).as_py()
    facts = _level0_facts(part, relation, size)
    return Run(
        id=RunId(f"{relation.id}-{transaction}-{number}"),
        relation=relation.id,
        level=0,
        tablet=SPANS_TABLETS if relation.tablets > 1 else TabletId(0),
        token_min=Token(extremes["min"]),
        token_max=Token(extremes["max"]),
        key_min=facts.key_min,
        key_max=facts.key_max,
        rows=part.num_rows,
        tombstones=pc.sum(part[DELETED].cast(pa.int64())).as_py() or 0,
        bytes=size,
        path=path,
        nodes=nodes,
        transaction=transaction,
        schema_version=relation.schema_version,
    )


def _level0_facts(part: pa.Table, relation: Relation, size: int) -> rf.Facts:
    """Tombstones of an index have lost what they would be sorted by: then nothing is said of the keys."""
    if relation.identity != relation.key and pc.any(part[DELETED]).as_py():
        return rf.bounded(part.num_rows, size, relation, None, None)
    return rf.Facts.of(part, size, relation)


def tablet_run(
    relation: Relation,
    transaction: TransactionId,
    number: int,
    tablet: TabletId,
    facts: rf.Facts,
    *,
    level: int,
    tombstones: int = 0,
    source: RunSource = RunSource.WRITE,
) -> Run:
    low, high = tokens.token_range(tablet, relation.tablets)
    return Run(
        id=RunId(f"{relation.id}-{transaction}-{number}"),
        relation=relation.id,
        level=level,
        tablet=tablet,
        token_min=low,
        token_max=high,
        key_min=facts.key_min,
        key_max=facts.key_max,
        rows=facts.rows,
        tombstones=tombstones,
        bytes=facts.bytes,
        path=run_path(relation.id, transaction, number),
        nodes=relation.writes_to(tablet),
        transaction=transaction,
        schema_version=relation.schema_version,
        source=source,
    )


def tombstones_in(root: Root, path: str) -> int:
    column = root.open_parquet(path).read(columns=[DELETED])[DELETED]
    return int(pc.sum(column.cast(pa.int64())).as_py() or 0)


def existing(relation: Relation, values: Sequence[object]) -> DuplicateKeyError:
    return DuplicateKeyError(
        f"{relation.name}: expected a new key, found {rf.show_key(relation, values)} in the table; "
        "use UPSERT INTO or upsert() to replace it"
    )
