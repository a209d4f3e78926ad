"""Materialized views on Spark: after every epoch each view equals its query, whatever changed.

Named after the scenarios of views: rows that leave, join columns that move, deletes at every place, views on views,
unused columns, bags, groups that empty, NULLs.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla

pytestmark = pytest.mark.spark

VIEWS = {
    "card": "SELECT l.oid, l.n, l.q, o.total, c.name FROM lines l JOIN orders o ON l.oid = o.id "
    "LEFT JOIN customers c ON o.customer = c.id",
    "by_country": "SELECT c.country, count(*) AS n, sum(o.total) AS s, max(o.id) AS top FROM orders o "
    "JOIN customers c ON o.customer = c.id GROUP BY c.country",
    "by_name": "SELECT name, sum(q) AS q FROM card GROUP BY name",
    "noted": "SELECT o.total, x.body FROM notes x JOIN orders o ON x.oid = o.id",
    "idle": "SELECT id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "abroad": "SELECT id, total FROM orders WHERE customer NOT IN (SELECT id FROM customers WHERE country = 1)",
    "totals": "SELECT count(*) AS n, sum(total) AS s FROM orders",
    "ranked": "SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY total DESC, id) AS r FROM orders",
    "placed": "SELECT id, total, row_number() OVER w AS place, sum(total) OVER w AS so_far FROM orders "
    "WINDOW w AS (ORDER BY total DESC, id)",
    "everyone": "SELECT o.id AS oid, c.id AS cid, c.name FROM orders o FULL JOIN customers c ON o.customer = c.id",
    "ids": "SELECT id FROM orders UNION ALL SELECT id FROM customers",
    "names": "SELECT DISTINCT name, country FROM customers",
    "left_over": "SELECT customer FROM orders EXCEPT SELECT id FROM customers WHERE country = 2",
}


@pytest.fixture
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    """A test may be given settings of its own."""
    given = getattr(request, "param", {})
    with ebla.connect(
        str(tmp_path / "warehouse"), spark=spark, tablets=2, auto_compact=False, auto_refresh=False, **given
    ) as database:
        database.sql(
            """CREATE TABLE customers (id BIGINT, name STRING, country INT, note STRING, PRIMARY KEY (id));
            CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id));
            CREATE TABLE lines (oid BIGINT, n INT, q INT, PRIMARY KEY (oid, n));
            CREATE TABLE notes (oid BIGINT, body STRING)"""
        )
        yield database


def fill(db: ebla.Database, chance: random.Random) -> None:
    db.table("customers").upsert([{"id": i, "name": f"c{i % 7}", "country": i % 3} for i in range(12)])
    db.table("orders").upsert([{"id": i, "customer": chance.choice([None, *range(14)]), "total": i} for i in range(40)])
    db.table("lines").upsert([{"oid": chance.randrange(44), "n": n, "q": chance.randrange(5)} for n in range(80)])
    db.sql("INSERT INTO notes VALUES (1, 'a'), (1, 'a'), (2, 'b'), (NULL, 'c')")


def change(db: ebla.Database, chance: random.Random) -> None:
    """Inserts, updates of join columns, deletes, duplicates and NULLs, in all inputs at once."""
    db.table("orders").upsert(
        [
            {"id": chance.randrange(45), "customer": chance.choice([None, *range(14)]), "total": chance.randrange(9)}
            for _ in range(4)
        ]
    )
    db.table("orders").delete([{"id": chance.randrange(45)}])
    db.table("lines").upsert(
        [{"oid": chance.randrange(44), "n": chance.randrange(80), "q": chance.choice([None, 1, 2])} for _ in range(4)]
    )
    db.table("lines").delete([{"oid": chance.randrange(44), "n": chance.randrange(80)} for _ in range(4)])
    db.table("customers").upsert([{"id": chance.randrange(14), "name": "z", "country": chance.choice([None, 1])}])
    db.table("customers").delete([{"id": chance.randrange(14)}])
    db.sql("INSERT INTO notes VALUES (:o, 'a'), (:o, 'a')", o=chance.randrange(40))
    db.sql("DELETE FROM notes WHERE body = 'a' AND oid > :o", o=chance.randrange(40))


def rows(db: ebla.Database, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(query).rows())


def check(db: ebla.Database, *names: str) -> None:
    for name in names or VIEWS:
        assert rows(db, f"SELECT * FROM {name}") == rows(db, VIEWS[name]), name


def create(db: ebla.Database, *names: str) -> None:
    for name in names or VIEWS:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"


def last_plan(db: ebla.Database, name: str) -> str:
    shown = db.sql("SHOW VIEWS")
    at = shown.columns.index("last_plan")
    return str(next(row[at] for row in shown.rows() if row[0] == name))


@pytest.mark.parametrize(
    ("db", "seed"), [({}, 1), ({"driver_rows_max": 0}, 2)], indirect=["db"], ids=["driver", "spark"]
)
def test_all_views_stay_exact_under_random_changes(db: ebla.Database, seed: int) -> None:
    chance = random.Random(seed)
    fill(db, chance)
    create(db)
    check(db)
    for turn in range(3):
        change(db, chance)
        db.sql("FLUSH")
        check(db)
        if turn == 1:
            db.compact("orders")
            db.compact("card")
    assert {last_plan(db, name) for name in ("card", "placed")} == {"incremental"}


def test_v2_a_row_that_leaves_the_filter_or_loses_its_partner_leaves_the_view(db: ebla.Database) -> None:
    db.table("customers").upsert([{"id": 1, "name": "Ada", "country": 1}])
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 10}, {"id": 2, "customer": 1, "total": 20}])
    inner = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE o.total > 5"
    outer = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    db.sql(f"CREATE MATERIALIZED VIEW i AS {inner}; CREATE MATERIALIZED VIEW o2 AS {outer}")
    db.sql("UPDATE orders SET total = 1 WHERE id = 1; FLUSH")
    assert rows(db, "SELECT * FROM i") == Counter([(2, "Ada")])
    db.sql("DELETE FROM customers; FLUSH")
    assert rows(db, "SELECT * FROM i") == Counter()
    assert rows(db, "SELECT * FROM o2") == Counter([(1, None), (2, None)])


def test_v3_a_moved_join_column_refreshes_old_and_new_matches(db: ebla.Database) -> None:
    db.sql("CREATE TABLE tags (id BIGINT, customer BIGINT, PRIMARY KEY (id))")
    db.table("customers").upsert([{"id": i, "name": f"c{i}", "country": 0} for i in range(3)])
    db.table("tags").upsert([{"id": 7, "customer": 0}])
    query = "SELECT c.id, t.id AS tag FROM customers c LEFT JOIN tags t ON t.customer = c.id"
    db.sql(f"CREATE MATERIALIZED VIEW tagged AS {query}")
    db.sql("UPDATE tags SET customer = 2 WHERE id = 7; FLUSH")
    assert rows(db, "SELECT * FROM tagged") == Counter([(0, None), (1, None), (2, 7)])
    assert last_plan(db, "tagged") == "incremental"


def test_v5_four_levels_and_a_diamond_match_one_base_version(db: ebla.Database) -> None:
    chance = random.Random(5)
    fill(db, chance)
    levels = {
        "l1": "SELECT id, customer, total FROM orders WHERE total > 1",
        "l2": "SELECT customer, count(*) AS n FROM l1 GROUP BY customer",
        "l3": "SELECT c.id, c.name, v.n FROM customers c JOIN l2 v ON v.customer = c.id",
        "l4": "SELECT a.id, a.n, b.total FROM l3 a JOIN l1 b ON b.customer = a.id",
    }
    for name, query in levels.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for _ in range(3):
        change(db, chance)
        db.sql("FLUSH")
        flat = f"WITH l1 AS ({levels['l1']}), l2 AS ({levels['l2']}), l3 AS ({levels['l3']}) {levels['l4']}"
        assert rows(db, "SELECT * FROM l4") == rows(db, flat)
        shown = db.sql("SHOW VIEWS")
        at = shown.columns.index("applied_version")
        assert len({row[at] for row in shown.rows()}) == 1


def test_v6_a_change_that_no_view_uses_starts_no_job(db: ebla.Database, spark: SparkSession) -> None:
    fill(db, random.Random(6))
    create(db, "by_country")
    before = db.sql("SELECT * FROM by_country VERSION AS OF :v", v=db.version).to_arrow()
    table = db.table("customers").scan().toArrow()
    spark.sparkContext.setJobGroup("v6", "an epoch without work")
    try:
        db.sql("FLUSH")
        db.table("customers").upsert(
            table.set_column(3, "note", [["x"] * table.num_rows]).select(["id", "name", "country", "note"])
        )
        db.sql("FLUSH")
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("v6")) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    assert last_plan(db, "by_country") == "unchanged"
    assert before.num_rows == len(db.sql("SELECT * FROM by_country"))


def test_v9_duplicates_keep_their_multiplicity(db: ebla.Database) -> None:
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 5}])
    db.sql("INSERT INTO notes VALUES (1, 'a'), (1, 'a'), (1, 'b')")
    create(db, "noted")
    assert rows(db, "SELECT body FROM noted") == Counter({("a",): 2, ("b",): 1})
    db.sql("INSERT INTO notes VALUES (1, 'a'); FLUSH")
    assert rows(db, "SELECT body FROM noted") == Counter({("a",): 3, ("b",): 1})
    db.sql("DELETE FROM notes WHERE body = 'a'; INSERT INTO notes VALUES (1, 'a'); FLUSH")
    assert rows(db, "SELECT body FROM noted") == Counter({("a",): 1, ("b",): 1})


def test_v10_groups_empty_extremes_survive_and_nothing_is_a_row(db: ebla.Database) -> None:
    db.table("customers").upsert([{"id": 1, "country": 1}, {"id": 2, "country": 2}])
    db.table("orders").upsert([{"id": i, "customer": 1 + i % 2, "total": i} for i in range(6)])
    create(db, "by_country", "totals")
    db.table("orders").delete([{"id": 5}])
    db.sql("FLUSH")
    check(db, "by_country", "totals")
    db.sql("DELETE FROM orders; FLUSH")
    assert rows(db, "SELECT * FROM by_country") == Counter()
    assert rows(db, "SELECT * FROM totals") == Counter([(0, None)])


def test_changes_that_were_compacted_and_vacuumed_are_not_missed(db: ebla.Database) -> None:
    fill(db, random.Random(11))
    create(db, "by_country", "card")
    change(db, random.Random(12))
    for table in ("orders", "lines", "customers"):
        db.compact(table)
    db.vacuum(retain_s=0)
    db.sql("FLUSH")
    check(db, "by_country", "card")


# ---- what is refused ------------------------------------------------------------------------------------


def refused(db: ebla.Database, text: str, *parts: str) -> None:
    version = db.version
    with pytest.raises(ebla.UsageError) as caught:
        db.sql(text)
    for part in parts:
        assert part in str(caught.value)
    assert db.version == version


def test_a_view_is_changed_by_nobody_but_the_system(db: ebla.Database) -> None:
    create(db, "totals")
    for text in (
        "INSERT INTO totals VALUES (1, 2)",
        "DELETE FROM totals",
        "TRUNCATE TABLE totals",
        "DROP TABLE totals",
    ):
        refused(db, text, "totals", "expected a table, found a view")


def test_what_a_view_needs_cannot_be_dropped_or_renamed(db: ebla.Database) -> None:
    create(db, "card", "by_name")
    refused(db, "DROP TABLE lines", "lines", "card")
    refused(db, "ALTER TABLE customers DROP COLUMN name", "card")
    refused(db, "ALTER TABLE lines RENAME TO rows", "card")
    refused(db, "DROP MATERIALIZED VIEW card", "by_name")
    db.sql("ALTER TABLE customers DROP COLUMN note")
    db.sql("DROP MATERIALIZED VIEW by_name; DROP MATERIALIZED VIEW card; DROP TABLE lines")


def test_bad_definitions_are_refused(db: ebla.Database) -> None:
    create(db, "totals")
    refused(db, "CREATE MATERIALIZED VIEW totals AS SELECT id FROM orders", "totals", "found a view")
    refused(db, "CREATE MATERIALIZED VIEW v AS SELECT id, id FROM orders", "id twice")
    refused(db, "CREATE MATERIALIZED VIEW v AS SELECT rand() AS r FROM orders", "deterministic")
    refused(db, "CREATE MATERIALIZED VIEW v AS SELECT current_timestamp() AS t FROM orders", "clock")
    refused(db, "CREATE MATERIALIZED VIEW v AS SELECT nope FROM orders", "nope")
    refused(db, "CREATE MATERIALIZED VIEW v AS SELECT id FROM nowhere", "nowhere")
    refused(db, "CREATE MATERIALIZED VIEW v PRIMARY KEY (total) AS SELECT id, total FROM orders", "implies (id)")
    refused(
        db,
        "CREATE MATERIALIZED VIEW v WITH (refresh = 'incremental') AS SELECT id, count(*) OVER () AS n FROM orders",
        "full refresh",
    )


def test_a_full_refresh_says_why_in_the_history(db: ebla.Database) -> None:
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 5}])
    db.sql("CREATE MATERIALIZED VIEW parts AS SELECT id, ntile(2) OVER (ORDER BY id) AS part FROM orders")
    db.table("orders").upsert([{"id": 2, "customer": 1, "total": 6}])
    db.sql("FLUSH parts")
    plan, reason = db.sql("SELECT last_plan, last_reason FROM system.views WHERE name = 'parts'").one()
    assert (plan, bool(reason)) == ("full refresh", True)
    told = "SELECT reason FROM system.history WHERE reason LIKE 'epoch of parts %' ORDER BY version DESC LIMIT 1"
    assert f": full refresh ({reason}), +" in str(db.sql(told).one()[0])


def test_a_failing_expression_stops_its_view_and_no_other(db: ebla.Database) -> None:
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 5}])
    db.sql("CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 / customer AS r FROM orders")
    create(db, "totals")
    db.table("orders").upsert([{"id": 2, "customer": 0, "total": 6}])
    plans = {row[0]: row[2] for row in db.sql("FLUSH").rows()}
    assert plans == {"ratio": "failed", "totals": "incremental"}
    check(db, "totals")
    status = {row[0]: row[1:] for row in db.sql("SELECT name, status, message FROM system.views").rows()}
    assert status["ratio"][0] == "failed"
    assert "DIVIDE_BY_ZERO" in status["ratio"][1]
    assert "found at orders (id = 2)" in status["ratio"][1]
    assert rows(db, "SELECT * FROM ratio") == Counter([(1, 100.0)])
    db.sql("UPDATE orders SET customer = 4 WHERE id = 2; FLUSH ratio")
    assert rows(db, "SELECT * FROM ratio") == Counter([(1, 100.0), (2, 25.0)])


def test_epochs_run_in_the_background(spark: SparkSession, tmp_path: Path) -> None:
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, tablets=2, epoch_period_s=0) as db:
        db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id))")
        create(db, "ranked")
        db.table("orders").upsert([{"id": 1, "customer": 1, "total": 1}])
        wait_until(lambda: rows(db, "SELECT * FROM ranked") == Counter([(1, 1, 1)]))


@pytest.mark.parametrize(
    ("db", "words", "by"),
    [
        ({"driver_rows_max": 10_000}, "on the driver, without Spark", "driver"),
        ({"driver_rows_max": 0}, "by one Spark job", "spark"),
    ],
    indirect=["db"],
    ids=["driver", "spark"],
)
def test_explain_shows_the_steps(db: ebla.Database, words: str, by: str) -> None:
    create(db, "card")
    shown = db.sql("EXPLAIN MATERIALIZED VIEW card")
    text, json_text, mermaid = shown.one()
    assert "transform: (id) of the changed rows of customers" in text
    assert "grab: (id) of orders by (customer)" in text
    assert f"few rows: computed {words}" in text
    assert '"plan": "incremental"' in json_text
    assert f'"few_rows": "{by}"' in json_text
    assert mermaid.startswith("flowchart")
    assert (
        "state: ready; epochs follow every write\n    to failed, by an epoch: a row or the query fails; stores" in text
    )
    assert [step["to"] for step in json.loads(json_text)["state"]["steps"]] == ["failed", None]
    planned = db.sql("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id, count(*) OVER () AS n FROM orders").one()[0]
    assert "full refresh: every row depends on every row of orders" in planned
