"""Random views under random changes on Spark: after every epoch each equals its query, by Spark and by DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import ebla
from support.duck import DuckEngine, State
from support.view_queries import KEYS, TABLES, Sql, queries
from support.view_states import bag, put, states

pytestmark = pytest.mark.spark

ROUNDS = 4
VIEWS = 6


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
