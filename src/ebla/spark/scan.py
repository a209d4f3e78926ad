"""Snapshots as lazy DataFrames.

Plan of a merged read: one file scan of level 1, a broadcast left anti join with the keys of level 0, a union with
level 0's upserts. No shuffle. The join compares tokens first: Spark probes a hash table of longs, and only a row whose
token is there compares its key, NULL-safe. Where it is known at which places level 1 has those keys, the join is by
place, and no key is decoded. Without level 0 it is the plain file scan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.base.ids import NodeId, RunId, TabletId
from ebla.model.relation import DELETED, TOKEN, Column, Relation, Run
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.spark.session import empty_frame, local_frame
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = "_version"
_DELTA = "_ebla_d_"
_FILE = "_ebla_file"
_RANK = "_ebla_rank"


def struct(columns: Sequence[Column]) -> T.StructType:
    return T.StructType([T.StructField(c.physical, types.to_spark(c.type)) for c in columns])


def token_sql(key: Sequence[Column], prefix: str = "") -> str:
    """A row's token. Expressions are text: one call to the JVM each, where a built one takes dozens."""
    return f"xxhash64({', '.join(quoted(prefix + c.physical) for c in key)})"


def tablet_sql(token: str, tablets: int) -> str:
    """The tablet of a token: its upper bits, counted from the most negative token."""
    if tablets == 1:
        return "0"
    bits = tablets.bit_length() - 1
    return f"int(shiftrightunsigned({token} ^ (-9223372036854775807L - 1L), {64 - bits}))"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def renamed(names: Sequence[tuple[str, str]]) -> list[str]:
    """Expressions for `selectExpr`: old name to new name."""
    return [quoted(old) if old == new else f"{quoted(old)} AS {quoted(new)}" for old, new in names]


def empty(spark: SparkSession, schema: T.StructType) -> DataFrame:
    return empty_frame(spark, schema)


def local(spark: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """An Arrow table as a DataFrame that lives in the query plan."""
    if table.num_rows == 0:
        return empty(spark, schema)
    return local_frame(spark, table, schema)


# Whatever the session says: a missing or damaged file is an error and no fewer rows, and old dates are as they were
# written.
_READING = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}


def files(spark: SparkSession, paths: Sequence[str], schema: T.StructType) -> DataFrame:
    if not paths:
        return empty(spark, schema)
    return spark.read.schema(schema).options(**_READING).parquet(*map(literally, paths))


def literally(path: str) -> str:
    """A path that Spark does not take for a pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def logical(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Rename the columns from their names in files to the users' names."""
    if [c.name for c in columns] == frame.columns:
        return frame
    return frame.selectExpr(*renamed([(c.physical, c.name) for c in columns]))


def merged(
    spark: SparkSession,
    snapshot: Snapshot,
    roots: Mapping[NodeId, Root],
    cache: rf.LevelZeroCache,
    *,
    rows_max: int,
    places: pa.Array | None = None,
) -> DataFrame:
    """All columns of the snapshot's rows, hidden ones too, under their physical names.

    `places`: where the rows of level 1 lie that level 0 has written (`place_sql`), if that is known.
    """
    relation = snapshot.relation
    copies = rf.require_copies(snapshot, roots)
    schema = struct(relation.columns)
    if not snapshot.level0:
        return files(spark, rf.paths(roots, snapshot.level1, chosen=copies), schema)
    if _stands_alone(snapshot):
        return files(spark, rf.paths(roots, snapshot.level0, chosen=copies), schema)
    if carries_rows(snapshot, rows_max):
        table = rf.mutations(relation, snapshot.level0, roots, cache, snapshot)
        alive = table.filter(pc.invert(pc.fill_null(table[DELETED], False)))
        upserts = local(spark, alive.select([c.physical for c in relation.columns]), schema)
        keys = local_keys(spark, table, relation) if snapshot.level1 else None
    else:
        changed = latest_mutations(spark, relation, snapshot.level0, copies, roots, snapshot)
        upserts = changed.filter(f"NOT coalesce({DELETED}, false)").selectExpr(
            *[quoted(c.physical) for c in relation.columns]
        )
        keys = _changed_keys(spark, snapshot, copies, roots) if snapshot.level1 else None
    if keys is None:
        return upserts
    base = files(spark, rf.paths(roots, snapshot.level1, chosen=copies), schema)
    left = without(base, keys, relation) if places is None else _without_places(spark, base, places)
    return left.unionAll(upserts)


METADATA = "_metadata"
SIZE_MAX = 2**31
"""Files of level 1 that are smaller can be told apart by their sizes, if these differ."""
_PLACE = "_ebla_place"


def place_sql() -> str:
    """A row's place: the size of its file, which tells the file, and its number there. No column is decoded."""
    return f"shiftleft({METADATA}.file_size, 32) + {METADATA}.row_index"


def _without_places(spark: SparkSession, base: DataFrame, places: pa.Array) -> DataFrame:
    """Rows of level 1 but those at some places: a broadcast left anti join on one long."""
    schema = T.StructType([T.StructField(_DELTA + _PLACE, T.LongType())])
    gone = F.broadcast(local(spark, pa.table([places], names=schema.names), schema))
    placed = base.selectExpr("*", f"{place_sql()} AS {_PLACE}")
    return placed.join(gone, F.expr(f"{_PLACE} = {_DELTA + _PLACE}"), "left_anti").drop(_PLACE)


LOCAL_ROWS_MAX = 10_000
"""Rows of level 0 that go into a plan as they are, though they could be read as a file."""


def carries_rows(snapshot: Snapshot, rows_max: int) -> bool:
    """Whether a plan of the snapshot has the rows of its level 0 in it, and does not read them from files."""
    return not _stands_alone(snapshot) and sum(r.rows for r in snapshot.level0) <= rows_max


def _stands_alone(snapshot: Snapshot) -> bool:
    """Whether the one run there is holds the rows and nothing else, as after a first load, and is worth a scan.

    A plan that carries many rows is slow to make: the optimizer copies them with every rule.
    """
    if snapshot.level1 or len(snapshot.level0) != 1:
        return False
    only = snapshot.level0[0]
    return only.tombstones == 0 and only.rows > LOCAL_ROWS_MAX and snapshot.uniform_cutoff


def local_keys(spark: SparkSession, table: pa.Table, relation: Relation) -> DataFrame:
    """The keys and tokens of mutations, renamed so that a join cannot confuse them, small enough to broadcast."""
    names = [c.physical for c in relation.identity]
    renamed = table.select([*names, TOKEN]).rename_columns([_DELTA + n for n in (*names, TOKEN)])
    schema = T.StructType(
        [T.StructField(_DELTA + c.physical, types.to_spark(c.type)) for c in relation.identity]
        + [T.StructField(_DELTA + TOKEN, T.LongType())]
    )
    return F.broadcast(local(spark, renamed, schema))


BROADCAST_ROWS_MAX = 1_000_000
BROADCAST_BYTES_MAX = 64 * 2**20
"""Up to these bounds the keys of level 0 are broadcast, so that Spark shuffles neither level 1 nor level 0."""


def _changed_keys(
    spark: SparkSession, snapshot: Snapshot, copies: Mapping[RunId, NodeId], roots: Mapping[NodeId, Root]
) -> DataFrame:
    """The same of level 0 in files. A key stands there as often as it was written: nothing has to be ranked."""
    identity = snapshot.relation.identity
    if snapshot.uniform_cutoff:
        paths = rf.paths(roots, snapshot.level0, chosen=copies)
        rows = files(spark, paths, struct(identity)).selectExpr("*", f"{token_sql(identity)} AS {TOKEN}")
    else:
        rows = _mutations(spark, snapshot.relation, snapshot.level0, copies, roots, snapshot)
    keys = rows.selectExpr(*renamed([(n, _DELTA + n) for n in (*(c.physical for c in identity), TOKEN)]))
    return F.broadcast(keys) if _may_broadcast(snapshot.level0) else keys


def _may_broadcast(runs: Sequence[Run]) -> bool:
    """Whether the keys in these runs are broadcast."""
    return sum(r.rows for r in runs) <= BROADCAST_ROWS_MAX and sum(r.bytes for r in runs) <= BROADCAST_BYTES_MAX


def same_key_sql(key: Sequence[Column], left: str, right: str) -> str:
    """Equal tokens and, in a form that the planner does not take for more join keys, equal keys.

    The sides' columns and tokens carry these prefixes. A hash table of single longs is the fastest that Spark has.
    """
    ours, theirs = quoted(left + TOKEN), quoted(right + TOKEN)
    equal = " AND ".join(f"{quoted(left + c.physical)} <=> {quoted(right + c.physical)}" for c in key)
    return f"{ours} = {theirs} AND (({equal}) OR {ours} + 1 = {theirs})"


def without(base: DataFrame, keys: DataFrame, relation: Relation) -> DataFrame:
    """Rows of level 1 that have no newer mutation."""
    tokened = base.selectExpr("*", f"{token_sql(relation.identity)} AS {TOKEN}")
    on = F.expr(same_key_sql(relation.identity, "", _DELTA))
    return tokened.join(keys, on, "left_anti").drop(TOKEN)


def latest_mutations(
    spark: SparkSession,
    relation: Relation,
    runs: Sequence[Run],
    copies: Mapping[RunId, NodeId],
    roots: Mapping[NodeId, Root],
    snapshot: Snapshot | None = None,
) -> DataFrame:
    """The last mutation of every key in runs too large for the driver: physical columns, `_deleted`, `_token`,
    `_version`. One scan if all runs are of one version, which has each key once; with it a broadcast of the keys of all
    versions but the first; of too many keys one shuffle by token."""
    rows = _mutations(spark, relation, runs, copies, roots, snapshot)
    versions = {run.begin_version for run in runs}
    if len(versions) == 1:
        return rows
    newer = [run for run in runs if run.begin_version > min(versions)]
    if _may_broadcast(newer):
        keys = _mutations(spark, relation, newer, copies, roots, snapshot, relation.identity)
        names = [*(c.physical for c in relation.identity), TOKEN, VERSION]
        marked = F.broadcast(keys.selectExpr(*renamed([(n, _DELTA + n) for n in names])))
        on = f"{same_key_sql(relation.identity, '', _DELTA)} AND {_DELTA + VERSION} > {VERSION}"
        return rows.join(marked, F.expr(on), "left_anti")
    by = ", ".join([TOKEN, *(quoted(c.physical) for c in relation.identity)])
    ranked = rows.selectExpr("*", f"row_number() OVER (PARTITION BY {by} ORDER BY {VERSION} DESC) AS {_RANK}")
    return ranked.filter(f"{_RANK} = 1").drop(_RANK)


def _mutations(
    spark: SparkSession,
    relation: Relation,
    runs: Sequence[Run],
    copies: Mapping[RunId, NodeId],
    roots: Mapping[NodeId, Root],
    snapshot: Snapshot | None,
    columns: Sequence[Column] | None = None,
) -> DataFrame:
    """All mutations in runs, with `_token` and `_version`; of a snapshot, those that level 1 does not have.

    `columns`: those that are read, the identity among them; by default all.
    """
    schema = struct(relation.columns if columns is None else columns).add(T.StructField(DELETED, T.BooleanType()))
    paths = dict(zip(rf.paths(roots, runs, chosen=copies), runs, strict=True))
    versions = {int(run.begin_version) for run in runs}
    read = files(spark, list(paths), schema)
    token = f"{token_sql(relation.identity)} AS {TOKEN}"
    if len(versions) == 1:
        return _behind_cutoffs(read.selectExpr("*", token, f"{versions.pop()}L AS {VERSION}"), snapshot)
    kinds = T.StructType([T.StructField(_FILE, T.StringType()), T.StructField(VERSION, T.LongType())])
    names = pa.table(
        {
            _FILE: pa.array([path.rsplit("/", 1)[-1] for path in paths], pa.string()),
            VERSION: pa.array([int(run.begin_version) for run in paths.values()], pa.int64()),
        }
    )
    named = read.selectExpr("*", f"_metadata.file_name AS {_FILE}", token)
    return _behind_cutoffs(named.join(F.broadcast(local(spark, names, kinds)), _FILE).drop(_FILE), snapshot)


def _behind_cutoffs(rows: DataFrame, snapshot: Snapshot | None) -> DataFrame:
    """Mutations of the tablets that a snapshot reads, without those that level 1 has."""
    if snapshot is None or snapshot.uniform_cutoff:
        return rows
    read_tablets = set(snapshot.tablets)
    cutoffs = [
        int(snapshot.cutoffs.get(TabletId(t), BEGINNING)) if t in read_tablets else 2**62
        for t in range(snapshot.relation.tablets)
    ]
    array = ", ".join(f"{c}L" for c in cutoffs)
    tablet = tablet_sql(TOKEN, snapshot.relation.tablets)
    return rows.filter(f"element_at(array({array}), {tablet} + 1) < {VERSION}")
