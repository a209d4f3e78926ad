"""Unique indexes over entries that lie in files, as bulk writes make them: Spark finds a value that stands twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebla.indexes import entries
from ebla.indexes.uniqueness import first_twice, violation
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import DELETED, Run
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.tables.read_access import ReadAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refuse_in_files(
    context: ReadAccess, index: Index, runs: Sequence[Run], snapshot: Snapshot | None, base: Snapshot | None
) -> None:
    """Refuse entries in files whose value the index would have twice."""
    from pyspark.sql import functions as F

    roots = context.roots()
    schema = sscan.struct(index.relation.key).add(DELETED, "boolean")
    written = sscan.files(context.writer, rf.paths(roots, runs), schema)
    gained = written.filter(f"NOT coalesce({DELETED}, false)").drop(DELETED)
    after = gained
    if snapshot is not None and (snapshot.level1 or snapshot.level0):
        rows_max = context.settings.level0_rows_max
        stored = sscan.merged(context.writer, snapshot, roots, context.storage.level0, rows_max=rows_max)
        key = [column.physical for column in index.relation.key]
        identity = [column.physical for column in index.relation.identity]
        mine = written.selectExpr(*sscan.renamed([(k, f"_w_{k}") for k in identity]))
        on = " AND ".join(f"{sscan.quoted(k)} <=> {sscan.quoted(f'_w_{k}')}" for k in identity)
        rest = stored.join(mine, F.expr(on), "left_anti").selectExpr(*[sscan.quoted(k) for k in key])
        values = [column.physical for column in index.value_columns]
        touched = gained.selectExpr(*sscan.renamed([(n, f"_v_{n}") for n in values])).distinct()
        same = " AND ".join(f"{sscan.quoted(n)} = {sscan.quoted(f'_v_{n}')}" for n in values)
        after = gained.unionByName(rest.join(touched, F.expr(same), "left_semi"))
    if base is not None and index.state is Permission.BACKFILLING:
        after = _not_as_before(context, base, index, gained, after)
    found = first_twice(index, after)
    if found is not None:
        raise violation(index, found)


def _not_as_before(context: ReadAccess, base: Snapshot, index: Index, gained: DataFrame, after: DataFrame) -> DataFrame:
    """Entries with a value that some row gets which had another before."""
    from pyspark.sql import functions as F

    names = [column.physical for column in index.relation.key]
    before = entries.of_snapshot(context, index, base)
    old = before.selectExpr(*sscan.renamed([(n, f"_o_{n}") for n in names]))
    on = " AND ".join(f"{sscan.quoted(n)} <=> {sscan.quoted(f'_o_{n}')}" for n in names)
    values = [column.physical for column in index.value_columns]
    new = gained.join(old, F.expr(on), "left_anti").selectExpr(*sscan.renamed([(n, f"_n_{n}") for n in values]))
    same = " AND ".join(f"{sscan.quoted(n)} = {sscan.quoted(f'_n_{n}')}" for n in values)
    return after.join(new.distinct(), F.expr(same), "left_semi")
