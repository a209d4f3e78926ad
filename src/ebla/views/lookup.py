"""Rows of a relation by values of any columns, read from its runs with DuckDB: no Spark job, pruned row groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage import types
from ebla.storage.model import DELETED, Column, Relation
from ebla.storage.snapshot import Snapshot
from ebla.tables.context import Context


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def named(relation: Relation, names: Sequence[str]) -> list[Column]:
    by_name = {c.name.lower(): c for c in relation.columns}
    return [by_name[n.lower()] for n in names]


def rows_by(
    context: Context, snapshot: Snapshot, by: Sequence[str], values: pa.Table, columns: Sequence[str]
) -> pa.Table:
    """Rows whose `by` columns are among the values (columns `c0`, `c1`, … of the table), NULL equal to NULL.

    The result has the columns asked for, under their names, in today's types.
    """
    relation = snapshot.relation
    keyed, shown = named(relation, by), named(relation, columns)
    roots = context.roots()
    copies = rf.require_copies(snapshot, roots)
    if any(r.schema_version != relation.schema_version for r in snapshot.level1) or _too_many(context, snapshot):
        return _by_spark(context, snapshot, keyed, values, shown)
    match = " AND ".join(
        f"r.{quoted(c.physical)} IS NOT DISTINCT FROM v.{quoted(f'c{i}')}" for i, c in enumerate(keyed)
    )
    select = ", ".join(f"r.{quoted(c.physical)} AS {quoted(c.name)}" for c in shown)
    cursor = context.duck()
    try:
        cursor.register("wanted", values)
        parts: list[pa.Table] = []
        changed = rf.mutations(relation, snapshot.level0, roots, context.cache, snapshot)
        if changed.num_rows:
            cursor.register("changed", changed)
            parts.append(
                cursor.sql(
                    f"SELECT {select} FROM changed r SEMI JOIN wanted v ON {match} "
                    f"WHERE NOT coalesce(r.{DELETED}, false)"
                ).to_arrow_table()
            )
        files = [roots[copies[r.id]].inner(r.path) for r in snapshot.level1]
        if files:
            newer = ""
            if changed.num_rows:
                same = " AND ".join(
                    f"r.{quoted(c.physical)} IS NOT DISTINCT FROM n.{quoted(c.physical)}" for c in relation.key
                )
                newer = f" ANTI JOIN changed n ON {same}"
            needed = ", ".join(quoted(p) for p in dict.fromkeys(c.physical for c in (*keyed, *shown, *relation.key)))
            parts.append(
                cursor.sql(
                    f"SELECT {select} FROM (SELECT {needed} FROM read_parquet(?)) r "
                    f"SEMI JOIN wanted v ON {match}{newer}",
                    params=[files],
                ).to_arrow_table()
            )
    finally:
        cursor.close()
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in shown])
    return pa.concat_tables([p.cast(schema) for p in parts]) if parts else schema.empty_table()


def _too_many(context: Context, snapshot: Snapshot) -> bool:
    return sum(r.rows for r in snapshot.level0) > context.settings.level0_rows_max


def _by_spark(
    context: Context, snapshot: Snapshot, keyed: Sequence[Column], values: pa.Table, shown: Sequence[Column]
) -> pa.Table:
    """The same on Spark, for files of an older schema or a large level 0: a broadcast semi join."""
    from pyspark.sql import functions as F

    rows = sscan.merged(
        context.spark, snapshot, context.roots(), context.cache, rows_max=context.settings.level0_rows_max
    )
    marked = values.rename_columns([f"_ebla_v{i}" for i in range(values.num_columns)])
    on = " AND ".join(f"{sscan.quoted(c.physical)} <=> _ebla_v{i}" for i, c in enumerate(keyed))
    found = rows.join(F.broadcast(context.spark.createDataFrame(marked)), F.expr(on), "left_semi")
    shaped = found.selectExpr(*sscan.renamed([(c.physical, c.name) for c in shown])).toArrow()
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in shown])
    return shaped.cast(schema)
