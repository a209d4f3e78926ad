"""Random views under random changes on Spark: after every epoch each equals its query, by Spark and by DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import ebla
from support.duck import DuckEngine, State
from support.spellings import naming, spelled
from support.view_queries import TABLES, Sql, queries
from support.view_states import bag, put, states
from support.warehouse import shown

pytestmark = pytest.mark.spark

ROUNDS = 3
VIEWS = 6
NAMINGS = (5, 11)
"""Of the tables, for either way: mixed cases, words of SQL, other alphabets."""


@pytest.mark.parametrize("on_spark", [False, True], ids=["driver", "spark"])
def test_random_views_stay_exact_on_spark(spark: SparkSession, tmp_path: Path, on_spark: bool) -> None:
    with ebla.connect(
        str(tmp_path / "warehouse"),
        spark=spark,
        tablets=2,
        auto_compact=False,
        auto_refresh=False,
        driver_rows_max=0 if on_spark else 10_000,
    ) as db:
        stored = naming(NAMINGS[on_spark])
        for table in TABLES:
            db.sql(stored.create(table))
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
        @given(
            sqls=st.lists(queries(), min_size=VIEWS, max_size=VIEWS),
            both=states(),
            seeds=st.lists(st.integers(0, 2**16), min_size=VIEWS, max_size=VIEWS),
        )
        def one_round(sqls: list[Sql], both: tuple[State, State], seeds: list[int]) -> None:
            old, new = both
            put(db, now[0], old, stored)
            now[0] = old
            names = [f"v{i}" for i in range(len(sqls))]
            texts = [spelled(sql, stored, seed).text for sql, seed in zip(sqls, seeds, strict=True)]
            for name, text in zip(names, texts, strict=True):
                note(text)
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
            for before, after in ((old, new), (new, old)):  # the second time by plans that were kept
                put(db, before, after, stored)
                now[0] = after
                db.sql("FLUSH")
                engine = DuckEngine(before, after)
                for name, sql, text in zip(names, sqls, texts, strict=True):
                    found = bag(shown(db, name).elements())
                    assert found == bag(engine.evaluate(sql.text, after).elements()), text
                    if after is new:
                        assert found == bag(db.sql(text).rows()), text
            for name in names:
                db.sql(f"DROP MATERIALIZED VIEW {name}")

        one_round()
