"""Random views under random changes on Spark: after every epoch each equals its query, by Spark and by DuckDB."""

from __future__ import annotations

import decimal
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import ebla
from support.duck import DuckEngine, State
from support.view_queries import KEYS, TABLES, Sql, queries
from support.view_states import states

pytestmark = pytest.mark.spark

ROUNDS = 4
VIEWS = 6


def plain(value: Any) -> Any:
    """Spark and DuckDB give some numbers different types."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, float) and not math.isnan(value):
        return round(value, 9)
    return value


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(v) for v in row) for row in rows)


def put(db: ebla.Database, old: State, new: State) -> None:
    for table in TABLES:
        upserts = [row for key, row in new[table].items() if old[table].get(key) != row]
        gone = [dict(zip(KEYS[table], key, strict=True)) for key in old[table] if key not in new[table]]
        if upserts:
            db.table(table).upsert(upserts)
        if gone:
            db.table(table).delete(gone)


@pytest.mark.parametrize("on_spark", [False, True], ids=["driver", "spark"])
def test_random_views_stay_exact_on_spark(spark: SparkSession, tmp_path: Path, on_spark: bool) -> None:
    with ebla.connect(
        str(tmp_path / "warehouse"),
        spark=spark,
        tablets=2,
        auto_compact=False,
        auto_refresh=False,
        epochs_on_spark=on_spark,
    ) as db:
        for table, columns in TABLES.items():
            listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            db.sql(f"CREATE TABLE {table} ({listed}, PRIMARY KEY ({', '.join(KEYS[table])}))")
        nothing: State = {table: {} for table in TABLES}
        now = [nothing]

        @settings(
            max_examples=ROUNDS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @seed(int(on_spark))
        @given(sqls=st.lists(queries(), min_size=VIEWS, max_size=VIEWS), both=states())
        def one_round(sqls: list[Sql], both: tuple[State, State]) -> None:
            old, new = both
            put(db, now[0], old)
            now[0] = old
            names = [f"v{i}" for i in range(len(sqls))]
            for name, sql in zip(names, sqls, strict=True):
                note(sql.text)
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {sql.text}")
            put(db, old, new)
            now[0] = new
            db.sql("FLUSH")
            engine = DuckEngine(TABLES, old, new)
            for name, sql in zip(names, sqls, strict=True):
                found = bag(db.sql(f"SELECT * FROM {name}").rows())
                assert found == bag(db.sql(sql.text).rows()), sql.text
                assert found == bag(engine.evaluate(sql.text, new).elements()), sql.text
            for name in names:
                db.sql(f"DROP MATERIALIZED VIEW {name}")

        one_round()
