"""Net changes of a relation between two versions, in the column names that Delta's change feed made common.

For every key that a commit in `(since, until]` touched: the row before (from the snapshot at `since`) and the last
mutation. Plan: the mutations are local or one scan; the snapshot is read once, filtered by a broadcast semi join with
the touched keys; one broadcast join pairs old and new.

| before | after | rows |
|---|---|---|
| no row | row | `insert` |
| row | row | `update_postimage`, and `update_preimage` with `old=True` |
| row | no row | `delete`, with the old values |
| no row | no row | nothing |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.base.ids import NodeId, Version
from ebla.model.relation import DELETED, TOKEN, Run
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import TokenRange
from ebla.spark import scan
from ebla.spark.scan import quoted
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
_OLD = "_ebla_old_"
_NEW = "_ebla_new_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Everything that the changes are made of."""

    before: Snapshot
    until: Version
    runs: tuple[Run, ...]
    truncated: tuple[Version, ...]
    committed_at: Mapping[int, int]
    tokens: TokenRange | None = None
    """The tokens whose rows are read; `None`: all."""


def frame(
    spark: SparkSession,
    feed: Feed,
    roots: Mapping[NodeId, Root],
    cache: rf.LevelZeroCache,
    *,
    old: bool,
    rows_max: int,
) -> DataFrame:
    relation = feed.before.relation
    emptied = feed.truncated[-1] if feed.truncated else None
    runs = [r for r in feed.runs if emptied is None or r.begin_version >= emptied]
    if not runs and emptied is None:
        return scan.empty(spark, _schema(feed))
    after, small = _mutations(spark, feed, runs, roots, cache, rows_max)
    if feed.tokens is not None:
        after = after.filter(F.col(_NEW + TOKEN).between(*feed.tokens))
    touched = after if emptied is None else None
    before = _before(spark, feed, touched, roots, cache, rows_max, small=small)
    on = F.expr(scan.same_key_sql(relation.key, _NEW, _OLD))
    if emptied is None:
        paired = after.join(F.broadcast(before) if small else before, on, "left_outer")
    else:
        paired = after.join(before, on, "full_outer")
    return _rows(paired, feed, old=old)


def _schema(feed: Feed) -> T.StructType:
    schema = T.StructType([
        T.StructField(c.name, types.to_spark(c.type)) for c in feed.before.relation.visible
    ])  # fmt: skip
    return (
        schema.add(CHANGE_TYPE, T.StringType())
        .add(COMMIT_VERSION, T.LongType())
        .add(COMMIT_TIMESTAMP, T.TimestampType())
    )


def _mutations(
    spark: SparkSession,
    feed: Feed,
    runs: list[Run],
    roots: Mapping[NodeId, Root],
    cache: rf.LevelZeroCache,
    rows_max: int,
) -> tuple[DataFrame, bool]:
    relation = feed.before.relation
    small = sum(r.rows for r in runs) <= rows_max
    if small:
        table = rf.mutations(relation, runs, roots, cache)
        schema = (
            scan.struct(relation.columns)
            .add(DELETED, T.BooleanType())
            .add(TOKEN, T.LongType())
            .add(scan.VERSION, T.LongType())
        )
        found = scan.local(spark, table, schema)
    else:
        copies = {r.id: rf.readable_node(roots, r) or r.nodes[0] for r in runs}
        found = scan.latest_mutations(spark, relation, runs, copies, roots)
    names = [*(c.physical for c in relation.columns), DELETED, TOKEN, scan.VERSION]
    return found.selectExpr(*scan.renamed([(n, _NEW + n) for n in names])), small


def _before(
    spark: SparkSession,
    feed: Feed,
    touched: DataFrame | None,
    roots: Mapping[NodeId, Root],
    cache: rf.LevelZeroCache,
    rows_max: int,
    *,
    small: bool,
) -> DataFrame:
    """Rows at `since` whose key was touched; all rows if the relation was truncated."""
    relation = feed.before.relation
    rows = scan.merged(spark, feed.before, roots, cache, rows_max=rows_max)
    renamed = scan.renamed([(c.physical, _OLD + c.physical) for c in relation.columns])
    rows = rows.selectExpr(*renamed, f"{scan.token_sql(relation.key)} AS {quoted(_OLD + TOKEN)}")
    if feed.tokens is not None:
        rows = rows.filter(F.col(_OLD + TOKEN).between(*feed.tokens))
    if touched is None:
        return rows
    keys = touched.selectExpr(*[quoted(_NEW + n) for n in (*(c.physical for c in relation.key), TOKEN)])
    on = F.expr(scan.same_key_sql(relation.key, _OLD, _NEW))
    return rows.join(F.broadcast(keys) if small else keys, on, "left_semi")


def _rows(paired: DataFrame, feed: Feed, *, old: bool) -> DataFrame:
    relation = feed.before.relation
    was = F.col(_OLD + TOKEN).isNotNull()
    now = F.col(_NEW + TOKEN).isNotNull() & ~F.coalesce(F.col(_NEW + DELETED), F.lit(False))
    version = F.coalesce(F.col(_NEW + scan.VERSION), F.lit(int(feed.truncated[-1]) if feed.truncated else None))

    def image(side: str, kind: str) -> SparkColumn:
        return F.struct(
            *[F.col(quoted(side + c.physical)).alias(c.name) for c in relation.visible],
            F.lit(kind).alias(CHANGE_TYPE),
        )

    absent = F.lit(None)
    pre = image(_OLD, "update_preimage") if old else None
    images = F.when(was & now, F.array(*([pre] if pre is not None else []), image(_NEW, "update_postimage")))
    images = images.when(now, F.array(image(_NEW, "insert"))).when(was, F.array(image(_OLD, "delete")))
    exploded = paired.select(F.explode(images.otherwise(absent)).alias("_image"), version.alias(COMMIT_VERSION))
    times = F.create_map(*[x for v, at in feed.committed_at.items() for x in (F.lit(int(v)), F.lit(int(at)))])
    stamp = F.timestamp_micros(F.element_at(times, F.col(COMMIT_VERSION)))
    return exploded.select(
        *[F.col(f"_image.{quoted(c.name)}").alias(c.name) for c in relation.visible],
        F.col(f"_image.{CHANGE_TYPE}").alias(CHANGE_TYPE),
        F.col(COMMIT_VERSION).cast("bigint").alias(COMMIT_VERSION),
        stamp.alias(COMMIT_TIMESTAMP),
    )
