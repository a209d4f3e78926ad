"""What a query gives, recomputed: by Spark, from all rows of the relations that it reads.

The rows are read without Spark and stand in the plan, and the session plans once and compiles nothing: a few rows cost
milliseconds, and not the price of files, shuffles and generated code. Nothing of how Ebla reads, narrows or rewrites a
query has a part in it. A query over the same rows is recomputed once in a run.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ebla
from ebla.spark.result import Result
from ebla.spark.session import VIEW_SETTINGS, local_frame
from ebla.sql.parse import parse
from ebla.sql.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Bag = Counter[tuple[Any, ...]]

ROWS_MAX = 10_000
SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}

_found: dict[object, Bag] = {}


def recomputed(db: ebla.Database, query: str) -> Bag:
    """The rows of a query as a bag. It names relations by their plain names."""
    parsed = parse(query)
    assert isinstance(parsed, Query)
    inputs = {name: _rows(db, name) for name in sorted({ref.name for ref in parsed.refs})}
    settings = tuple(str(db.spark.conf.get(name)) for name in VIEW_SETTINGS)
    asked = query, settings, tuple((name, _fingerprint(table)) for name, table in inputs.items())
    if asked not in _found:
        session = _session(db.spark, settings)
        for name, table in inputs.items():
            local_frame(session, table).createOrReplaceTempView(name)
        _found[asked] = Counter(Result(table=session.sql(query).toArrow()).rows())
    return _found[asked].copy()


def _rows(db: ebla.Database, relation: str) -> pa.Table:
    found = db.query(relation, limit=ROWS_MAX).to_arrow()
    assert found.num_rows < ROWS_MAX
    return found


def _fingerprint(table: pa.Table) -> object:
    return str(table.schema), frozenset(Counter(Result(table=table).rows()).items())


@lru_cache(maxsize=8)
def _session(spark: SparkSession, settings: tuple[str, ...]) -> SparkSession:
    made = spark.newSession()
    for name, value in (*SETTINGS.items(), *zip(VIEW_SETTINGS, settings, strict=True)):
        made.conf.set(name, value)
    return made
