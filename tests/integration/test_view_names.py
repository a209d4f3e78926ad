"""Views over names of every kind: capitals, quotes, words of SQL, spaces, letters beyond ASCII, names in two cases."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from support.view_states import bag

pytestmark = pytest.mark.spark

VIEWS = {
    "crossed": "SELECT w.W_ID, d.D_ID FROM any_w w CROSS JOIN any_d d WHERE d.D_W_ID = w.W_ID",
    "fused": "WITH p (A, N) AS (SELECT W_ID, `Größe` FROM any_w), Q (A, B) AS (SELECT D_W_ID, D_ID FROM any_d) "
    "SELECT p.A AS PA, q.a AS QA, B, n FROM P FULL JOIN Q ON p.A = q.A",
    "used": "WITH p (A, N) AS (SELECT W_ID, `Größe` FROM any_w), Q (A, B) AS (SELECT D_W_ID, D_ID FROM any_d) "
    "SELECT a, B, N FROM p FULL JOIN q USING (A)",
    "natural_": "SELECT * FROM (SELECT W_ID AS K, `GRÖßE` FROM any_w) NATURAL JOIN (SELECT D_W_ID AS k FROM any_d)",
    "grouped": "SELECT `group by` AS `Group`, count(*) AS `Sign`, sum(D_ID) AS `a``b` FROM any_d GROUP BY `GROUP BY`",
    "least": "SELECT `Group by` AS `order`, max(`x.Y`) AS `_at`, count(*) AS n FROM any_d GROUP BY `order`",
    "keyed": "SELECT D_ID AS `Schlüssel`, `X.y` AS `x y`, `SELECT` AS `select` FROM any_d WHERE `select` > 0",
    "apart": "SELECT DISTINCT `größe` AS `GRÖßE`, d.`Select` AS weight FROM any_w JOIN any_d d ON D_W_ID = W_ID",
    "İ": "SELECT W_ID, `Größe` FROM any_w WHERE EXISTS (SELECT 1 FROM any_d X WHERE x.D_W_ID = any_w.W_ID)",
}


CHANGES = [
    "INSERT INTO any_w VALUES (8, 'g1')",
    "INSERT INTO any_d VALUES (20, 8, 'b1', 3, 0.5)",
    "UPDATE any_w SET `GRÖßE` = 'new' WHERE W_ID = 2",
    "UPDATE any_d SET `SELECT` = 4, `X.Y` = 9 WHERE d_ID = 3",
    "DELETE FROM any_d WHERE `Group By` = 'b2' AND D_ID < 5",
]


@pytest.mark.parametrize(("names", "rows_max"), [(VIEWS, 100_000), (("crossed", "keyed"), 1)], ids=["driver", "spark"])
def test_epochs_find_columns_however_names_are_spelled(
    spark: SparkSession, tmp_path: Path, names: Collection[str], rows_max: int
) -> None:
    """`spark`: the changes are too large for the driver."""
    with ebla.connect(
        str(tmp_path / "warehouse"), spark=spark, tablets=2, auto_refresh=False, batch_rows_max=rows_max
    ) as db:
        db.sql("CREATE TABLE any_w (W_ID INT, `Größe` STRING, PRIMARY KEY (w_id))")
        db.sql(
            "CREATE TABLE any_d (D_ID INT, D_W_ID INT, `group by` STRING, `Select` INT, `x.Y` DOUBLE, "
            "PRIMARY KEY (d_id))"
        )
        db.table("any_w").upsert([{"W_ID": n, "Größe": f"g{n % 3}"} for n in range(8)])
        db.table("any_d").upsert(
            [{"D_ID": n, "D_W_ID": n % 9, "group by": f"b{n % 4}", "Select": n % 5, "x.Y": n / 2} for n in range(20)]
        )
        for name in names:
            db.sql(f"CREATE MATERIALIZED VIEW `{name}` AS {VIEWS[name]}")
        for statement in CHANGES:
            db.sql(statement)
        db.sql("FLUSH")
        for name in names:
            found = db.sql(f"SELECT * FROM `{name}`")
            assert bag(found.rows()) == bag(db.sql(VIEWS[name]).rows()), VIEWS[name]
        plans = dict(db.sql("SELECT name, last_plan FROM system.views").rows())
        assert {name for name, plan in plans.items() if plan == "full refresh"} <= {"natural_"}


def test_a_session_that_tells_names_apart_by_case(spark: SparkSession, tmp_path: Path) -> None:
    """Two names of one query that differ by case alone are two, in every epoch: the view keeps the setting."""
    strict = spark.newSession()
    strict.conf.set("spark.sql.caseSensitive", "true")
    with ebla.connect(str(tmp_path / "warehouse"), spark=strict, tablets=2, auto_refresh=False) as db:
        db.sql("CREATE TABLE t (Id INT, N STRING, G INT, PRIMARY KEY (Id))")
        db.table("t").upsert([{"Id": n, "N": f"n{n}", "G": n % 3} for n in range(9)])
        views = {
            "inner_": "SELECT s.a AS k, s.A AS n FROM (SELECT Id AS a, N AS A FROM t) s",
            "summed": "SELECT q.x AS g, sum(q.X) AS s FROM (SELECT G AS x, Id AS X FROM t) q GROUP BY q.x",
        }
        for name, text in views.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        db.sql("UPDATE t SET N = 'new', G = 2 WHERE Id = 1")
        db.sql("DELETE FROM t WHERE Id = 5")
        db.sql("FLUSH")
        for name, text in views.items():
            assert bag(db.sql(f"SELECT * FROM {name}").rows()) == bag(db.sql(text).rows()), text
