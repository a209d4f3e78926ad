"""Rows and values of an input as Arrow tables: in the types of its columns, few of them, as they are or were."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.model.relation import Relation, under_names
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge, matching
from ebla.tables.value_lookup import fitting
from ebla.views.epoch.mutations import arrow_schema, column_of

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame


def values_as_stored(relation: Relation, names: Sequence[str], values: pa.Table | None) -> pa.Table:
    """Values in the types of a relation's columns: tokens depend on them. No row has a value that does not fit.

    Such a value comes from the other side of an equality of whole numbers, as in INT = BIGINT.
    """
    schema = pa.schema([pa.field(f"c{i}", kind.type) for i, kind in enumerate(arrow_schema(relation, names))])
    if values is None or values.num_rows == 0:
        return schema.empty_table()
    return fitting(values, [column_of(relation, name) for name in names]).cast(schema)


def digest(table: pa.Table) -> bytes:
    """What tells a table of values from others."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.blake2b(sink.getvalue(), digest_size=16).digest()


def few_rows(relation: Relation, rows: DataFrame, names: Sequence[str], *, most: int) -> pa.Table:
    """Columns of rows of an input that Spark reads, here."""
    found = rows.select(*[sscan.quoted(n) for n in names]).limit(most + 1).toArrow()
    if found.num_rows > most:
        raise TooLarge(f"more than {most} rows of {relation.name}")
    return rf.align(found, under_names([column_of(relation, n) for n in names])).cast(arrow_schema(relation, names))


def as_it_was(
    duck: duckdb.DuckDBPyConnection,
    relation: Relation,
    sides: tuple[pa.Table, pa.Table],
    by: Sequence[str],
    values: pa.Table,
    found: pa.Table,
) -> pa.Table:
    """Today's rows that have these values without those that changed, and the old ones of those in their place."""
    gained, lost = sides
    key = [k.name for k in relation.key]
    changed = pa.concat_tables([gained.select(key), lost.select(key)])
    kept = matching(duck, found, key, changed, negated=True)
    return pa.concat_tables([kept, matching(duck, lost, by, values)])
