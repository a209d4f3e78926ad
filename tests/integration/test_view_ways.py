"""Every way that an epoch can take gives the same view: over the driver, on Spark alone, in slices, recomputed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.snapshot import Snapshot
from ebla.storage import reserve
from ebla.tables import scans
from ebla.tables import value_lookup as lookup
from ebla.views.epoch import inputs, key_changes, maintain
from ebla.views.epoch.attempt import Target
from ebla.views.epoch.cost import Way
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.whole_epoch import WholeEpoch
from support.recomputation import recomputed
from support.warehouse import shown

pytestmark = pytest.mark.spark

VIEWS = {
    "card": "SELECT l.oid, l.n, l.q, o.total, c.name FROM lines l JOIN orders o ON l.oid = o.id "
    "LEFT JOIN customers c ON o.customer = c.id",
    "open_lines": "SELECT l.oid, l.n, o.customer FROM lines l JOIN orders o ON l.oid = o.id WHERE l.q > 1",
    "by_country": "SELECT c.country, count(*) AS n, sum(o.total) AS s, avg(o.total) AS a, max(o.id) AS top, "
    "min(o.total) AS low FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.country",
    "totals": "SELECT count(*) AS n, sum(total) AS s, avg(total) AS a, min(id) AS low, "
    "count(*) FILTER (WHERE total > 3) AS big FROM orders",
    "everyone": "SELECT o.id AS oid, c.id AS cid, c.name FROM orders o FULL JOIN customers c ON o.customer = c.id",
    "pairs": "SELECT o.total, c.name FROM orders o CROSS JOIN customers c WHERE o.total > c.country",
    "hidden": "SELECT o.total FROM orders o JOIN customers c ON o.customer = c.id",
    "both": "SELECT name AS what FROM customers UNION ALL SELECT CAST(total AS STRING) FROM orders",
    "months": "SELECT total % 3 AS rest, count(*) AS n, sum(total) AS s FROM orders GROUP BY total % 3",
    "distinct_names": "SELECT DISTINCT upper(name) AS name FROM customers",
    "best": "SELECT id, total FROM orders o WHERE total = (SELECT max(total) FROM orders p "
    "WHERE p.customer = o.customer)",
    "lateral": "SELECT c.id, t.n, u.total FROM customers c, LATERAL (SELECT count(*) AS n FROM orders o "
    "WHERE o.customer = c.id) t LEFT JOIN LATERAL (SELECT total FROM orders o WHERE o.customer = c.id) u ON total > 3",
    "named": "SELECT c.id, v.name FROM customers c JOIN VALUES (1, 'one'), (2, 'two') AS v(country, name) "
    "ON v.country = c.country",
    "rolled": "SELECT c.country, c.name, count(*) AS n, sum(o.total) AS s FROM orders o JOIN customers c "
    "ON o.customer = c.id GROUP BY ROLLUP (c.country, c.name)",
    "cubed": "SELECT customer, total % 2 AS odd, grouping(customer) AS g, count(*) AS n FROM orders "
    "GROUP BY CUBE (customer, total % 2)",
    "again": "SELECT c.id, c.name, c.id AS again FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o "
    "WHERE o.customer = c.id)",
    "alike": "SELECT a.id, b.id AS other FROM customers a JOIN customers b ON upper(a.name) = upper(b.name)",
    "initials": "SELECT left(name, 1) AS initial, count(DISTINCT country) AS n FROM customers GROUP BY left(name, 1)",
    "sizes": "SELECT CASE WHEN o.total > 5 THEN 'large' ELSE 'small' END AS size, count(DISTINCT c.name) AS n "
    "FROM orders o LEFT JOIN customers c ON o.customer = c.id GROUP BY 1 HAVING count(*) > 1",
    "above": "SELECT id, total FROM orders WHERE total >= (SELECT max(country) FROM customers)",
    "words": "SELECT id, word FROM customers LATERAL VIEW explode(split(name, '')) w AS word",
}


def open_(where: Path, spark: SparkSession, *, on_spark: bool) -> ebla.Database:
    """Either way is set, whatever the environment says: both are compared here."""
    quiet: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False}
    return ebla.connect(str(where), spark=spark, tablets=2, driver_rows_max=0 if on_spark else 10_000, **quiet)


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of which each test gets a copy. Views are built by Spark, wherever their epochs are computed."""
    where: Path = tmp_path_factory.mktemp("prepared") / "warehouse"
    with open_(where, spark, on_spark=False) as database:
        database.sql(
            """CREATE TABLE customers (id BIGINT, name STRING, country INT, PRIMARY KEY (id));
            CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id));
            CREATE TABLE lines (oid BIGINT, n INT, q INT, PRIMARY KEY (oid, n))"""
        )
        chance = random.Random(0)
        database.table("customers").upsert(
            [{"id": i, "name": f"c{i % 7}", "country": chance.choice([None, 1, 2])} for i in range(12)]
        )
        database.table("orders").upsert(
            [{"id": i, "customer": chance.choice([None, *range(14)]), "total": i % 11} for i in range(60)]
        )
        database.table("lines").upsert([{"oid": i % 50, "n": i, "q": i % 4} for i in range(120)])
        for name, query in VIEWS.items():
            database.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return where


@pytest.fixture(params=[False, True], ids=["driver", "spark"])
def on_spark(request: pytest.FixtureRequest) -> bool:
    """Where epochs are computed."""
    return bool(request.param)


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path, prepared: Path, on_spark: bool) -> Iterator[ebla.Database]:
    with open_(shutil.copytree(prepared, tmp_path / "warehouse"), spark, on_spark=on_spark) as database:
        yield database


def change(db: ebla.Database, chance: random.Random) -> None:
    db.table("orders").upsert(
        [
            {"id": chance.randrange(70), "customer": chance.choice([None, *range(14)]), "total": chance.randrange(12)}
            for _ in range(5)
        ]
    )
    db.table("orders").delete([{"id": chance.randrange(70)} for _ in range(2)])
    db.table("lines").upsert([{"oid": chance.randrange(60), "n": chance.randrange(120), "q": 3} for _ in range(5)])
    db.table("lines").delete([{"oid": i % 50, "n": i} for i in (chance.randrange(120),)])
    db.table("customers").upsert([{"id": chance.randrange(14), "name": "zed", "country": chance.choice([None, 1])}])


def flush(db: ebla.Database, *names: str) -> None:
    """Epochs of these views alone: each costs as much as the comparison of a view."""
    db.sql("; ".join(f"FLUSH {name}" for name in names))


def check(db: ebla.Database, *names: str) -> None:
    for name in names or VIEWS:
        assert shown(db, name) == recomputed(db, VIEWS[name]), name


@pytest.mark.parametrize("way", list(Way))
def test_views_are_exact_whichever_way_epochs_take(
    db: ebla.Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Counter[str] = Counter()
    for name in ("_on_driver", "_on_spark", "_recompute"):
        original = getattr(WholeEpoch, name)

        def counted(self: WholeEpoch, *given: Any, name: str = name, original: Any = original) -> Any:
            taken[name] += 1
            return original(self, *given)

        monkeypatch.setattr(WholeEpoch, name, counted)
    if way is not Way.DRIVER:
        force(monkeypatch, way)
    chance = random.Random(7)
    for _ in range(2):
        change(db, chance)
        db.epochs.flush()
        check(db)
    assert taken["_recompute" if way is Way.RECOMPUTE else f"_on_{way}"] >= 2 * len(VIEWS) - 4
    if way is Way.DRIVER:
        assert not taken["_recompute"]


def test_views_are_exact_where_keys_tell_the_change(
    db: ebla.Database, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the tables were so large that what changed rows were is not worth a lookup."""
    for name in ("ROWS_MIN", "ROWS_PER_KEY_MAX"):
        monkeypatch.setattr(key_changes, name, 0)
    taken: Counter[str] = Counter()
    take = Inputs.take_keys_alone

    def counted(self: Inputs, table: str) -> bool:
        found = take(self, table)
        taken[table] += found
        return found

    monkeypatch.setattr(Inputs, "take_keys_alone", counted)
    for table in ("customers", "orders", "lines"):
        db.compact(table)
    chance = random.Random(11)
    for _ in range(3):
        change(db, chance)
        flush(db, "card", "open_lines")
        check(db, "card", "open_lines")
    db.epochs.flush()
    check(db)
    assert all(taken[table] >= 3 for table in ("orders", "lines"))
    taken.clear()
    # What is as it was changes nothing, however it was written.
    spark.sparkContext.setJobGroup("quiet", "an epoch without work")
    try:
        db.table("lines").upsert(db.table("lines").scan().limit(60).toArrow())
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup("quiet"))
        db.epochs.flush()
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("quiet")) == jobs
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
    plans = dict(db.sql("SELECT name, last_plan FROM system.views").rows())
    assert {plans[name] for name in ("card", "open_lines")} == {"unchanged"}
    assert not taken.total()


FIRST = {
    "best_orders": "SELECT id, customer, total FROM orders ORDER BY total DESC, id LIMIT 7",
    "best_countries": "SELECT c.country, sum(o.total) AS s FROM orders o JOIN customers c ON o.customer = c.id "
    "GROUP BY c.country ORDER BY s DESC, country NULLS LAST LIMIT 1 OFFSET 1",
    "tied": "SELECT o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id ORDER BY 1 LIMIT 9",
}


@pytest.mark.parametrize("rows", [1_000, 0], ids=["reserve", "short"])
def test_first_rows_are_followed(db: ebla.Database, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "ROWS_MIN", rows)
    for name, query in FIRST.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    chance = random.Random(rows)
    for _ in range(4):
        change(db, chance)
        flush(db, *FIRST)
        for name in ("best_orders", "best_countries"):
            assert shown(db, name) == recomputed(db, FIRST[name]), name
        # Which of those with the same total are the first, the query does not say.
        totals = [
            sorted(row[0] for row in found.elements()) for found in (shown(db, "tied"), recomputed(db, FIRST["tied"]))
        ]
        assert totals[0] == totals[1]
    refreshes = dict(db.sql("SELECT name, full_refreshes FROM system.views").rows())
    assert rows == 0 or refreshes["best_orders"] == refreshes["best_countries"] == 0
    assert refreshes["best_orders"] < 4


def test_a_change_that_is_none_keeps_the_reserve(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW best_orders AS {FIRST['best_orders']}")
    (row,) = db.sql("SELECT id, customer, total FROM orders WHERE id = 3").rows()
    for total in (row[2], row[2], 100):  # twice what is there already, then a new first row
        db.table("orders").upsert([{"id": 3, "customer": row[1], "total": total}])
        db.table("customers").upsert([{"id": 1, "name": "other", "country": 1}])
        flush(db, "best_orders")
    assert shown(db, "best_orders") == recomputed(db, FIRST["best_orders"])
    assert db.sql("SELECT full_refreshes FROM system.views WHERE name = 'best_orders'").rows() == [(0,)]


def test_a_subquery_that_gives_the_same_spares_the_view(db: ebla.Database) -> None:
    customers, orders = db.table("customers"), db.table("orders")
    customers.upsert([{"id": 0, "name": "first", "country": 2}, {"id": 100, "name": "later", "country": 1}])
    flush(db, "above")
    refreshes = "SELECT full_refreshes FROM system.views WHERE name = 'above'"
    ((before,),) = db.sql(refreshes).rows()
    customers.upsert([{"id": 100, "name": "later", "country": 2}])
    flush(db, "above")
    check(db, "above")
    orders.upsert([{"id": 1, "customer": 1, "total": 50}])
    customers.upsert([{"id": 100, "name": "later", "country": None}])
    flush(db, "above")
    check(db, "above")
    assert db.sql(refreshes).rows() == [(before,)]
    customers.upsert([{"id": 100, "name": "later", "country": 7}])
    flush(db, "above")
    check(db, "above")
    assert db.sql(refreshes).rows() == [(before + 1,)]


def test_rows_that_the_order_does_not_tell_apart_are_read_once(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql("CREATE MATERIALIZED VIEW tied AS SELECT 1 AS one, total FROM orders ORDER BY one LIMIT 5 OFFSET 1")
    frames, frame = Counter[str](), Evaluation.frame

    def counted(self: Evaluation, *args: Any, **named: Any) -> Any:
        frames[self.view.relation.name] += 1
        return frame(self, *args, **named)

    monkeypatch.setattr(Evaluation, "frame", counted)
    change(db, random.Random(1))
    flush(db, "tied")
    assert frames["tied"] == 1
    assert shown(db, "tied").total() == 5


def test_rows_that_were_found_by_another_column_are_not_looked_up_by_key(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    look = lookup.rows_by

    def noted(context: Any, snapshot: Snapshot, by: Any, *given: Any, **named: Any) -> Any:
        if snapshot.relation.name == "lines":
            asked.append(tuple(by))
        return look(context, snapshot, by, *given, **named)

    monkeypatch.setattr(inputs, "rows_by", noted)
    db.sql("UPDATE orders SET total = total + 1, customer = 3 WHERE id % 5 = 0")
    # Of these lines some were written, others not.
    db.sql("UPDATE lines SET q = q + 1 WHERE n % 3 = 0; DELETE FROM lines WHERE n = 10")
    db.epochs.flush()
    check(db)
    assert set(asked) == {("oid",)}


def jobs_of(spark: SparkSession, work: Callable[[], object]) -> list[int]:
    """How many stages each Spark job of some work has."""
    scheduler, tracker = spark.sparkContext._jsc.sc().dagScheduler(), spark.sparkContext.statusTracker()
    before = scheduler.numTotalJobs()
    work()
    found = [tracker.getJobInfo(number) for number in range(before, scheduler.numTotalJobs())]
    return [len(job.stageIds) for job in found if job is not None]


def test_a_small_epoch_on_spark_is_one_job(db: ebla.Database, on_spark: bool, spark: SparkSession) -> None:
    """Of one task, however many joins it has. The driver's short cut, for the two that it can compute, needs none."""
    for turn in range(2):
        db.table("lines").upsert([{"oid": 0, "n": 0, "q": 5 + turn}])
        db.table("orders").upsert([{"id": 0, "customer": turn, "total": turn}])
        for name in ("card", "open_lines"):
            assert jobs_of(spark, partial(db.sql, f"FLUSH {name}")) == [1] * on_spark, (name, turn)
    check(db, "card", "open_lines")


def test_a_large_epoch_reads_the_changed_rows_alone(db: ebla.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each gives a row of the view or none, whatever their share. The view is read only if one gives none."""
    force(monkeypatch, Way.RECOMPUTE)
    read: list[str] = []
    frame_of = scans.frame_of

    def noted(context: Any, snapshot: Snapshot, **named: Any) -> Any:
        read.append(snapshot.relation.name)
        return frame_of(context, snapshot, **named)

    monkeypatch.setattr(scans, "frame_of", noted)
    lines = db.sql("SELECT l.oid, l.n FROM lines l JOIN orders o ON l.oid = o.id").rows()
    for turn in (4, 5):
        db.table("lines").upsert([{"oid": oid, "n": n, "q": turn + n % 2} for oid, n in lines])
        read.clear()
        db.sql("FLUSH card")
        assert set(read) == {"orders", "customers"}
        check(db, "card")
    # One line leaves the table, one leaves the view with the condition, and one order is none.
    db.table("lines").delete([dict(zip(("oid", "n"), lines[0], strict=True))])
    db.table("lines").upsert([{"oid": lines[1][0], "n": lines[1][1], "q": 0}, {"oid": 1000, "n": 1, "q": 9}])
    for name in ("card", "open_lines"):
        read.clear()
        db.sql(f"FLUSH {name}")
        assert name in read
        check(db, name)
    plans = dict(db.sql("SELECT name, last_plan FROM system.views").rows())
    assert {plans[name] for name in ("card", "open_lines")} == {"incremental"}
    with db.context.catalog.reading() as connection:
        stored = reads.snapshot(connection, reads.relation(connection, "card"))
    assert sum(run.tombstones for run in stored.level0) == 1


def test_a_change_of_most_rows_is_written_where_it_lies(spark: SparkSession, tmp_path: Path, prepared: Path) -> None:
    """Without a shuffle, if the view has its base's key and tablets; in the way of other large changes, if not."""
    ways = {
        "card": VIEWS["card"],
        "turned": "SELECT l.n, l.oid, l.q, o.total FROM lines l JOIN orders o ON l.oid = o.id",
        "split": VIEWS["open_lines"],
    }
    quiet: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False}
    where = shutil.copytree(prepared, tmp_path / "warehouse")
    with ebla.connect(str(where), spark=spark, tablets=2, batch_rows_max=10, **quiet) as db:
        db.sql(f"CREATE MATERIALIZED VIEW turned PRIMARY KEY (n, oid) AS {ways['turned']}")
        db.sql(f"CREATE MATERIALIZED VIEW split WITH (tablets = 4) AS {ways['split']}")
        lines = db.sql("SELECT oid, n FROM lines").rows()
        for turn in range(2):
            db.table("lines").upsert([{"oid": oid, "n": n, "q": n % 3 + turn} for oid, n in lines])
            stages = {name: jobs_of(spark, partial(db.sql, f"FLUSH {name}")) for name in ways}
            plain = {name for name, found in stages.items() if max(found) == 1}
            for name, query in ways.items():
                assert shown(db, name) == recomputed(db, query), name
            assert plain == {"card"}, stages
        # Lookups and folds go by tablets.
        oid, n = lines[0]
        assert db.sql(f"SELECT q FROM card WHERE oid = {oid} AND n = {n}").rows() == [(n % 3 + 1,)]
        db.sql("COMPACT card")
        assert shown(db, "card") == recomputed(db, ways["card"])


def force(monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    from ebla.views.epoch import whole_epoch
    from ebla.views.epoch.cost import Estimate

    monkeypatch.setattr(whole_epoch, "estimate", lambda *_, **__: Estimate(way=way, share=0.3, reason="the test"))


def test_a_row_whose_scope_changes_is_written_once(db: ebla.Database) -> None:
    """The scope is `place`, which changes, and not the view's key."""
    db.sql(
        """CREATE TABLE areas (id BIGINT, place BIGINT, PRIMARY KEY (id));
        CREATE TABLE places (id BIGINT, name STRING, PRIMARY KEY (id))"""
    )
    db.table("places").upsert([{"id": n, "name": f"place {n}"} for n in range(8)])
    db.table("areas").upsert([{"id": n, "place": n % 8} for n in range(30)])
    query = """SELECT o.id, p.id AS place, p.name FROM orders o JOIN areas a ON o.customer = a.id
        JOIN places p ON a.place = p.id"""
    db.sql(f"CREATE MATERIALIZED VIEW located AS {query}")
    for turn in (1, 2, 3):
        db.table("areas").upsert([{"id": n, "place": (n + turn) % 8} for n in range(30)])
        db.table("places").upsert([{"id": n, "name": f"place {n}, {turn}"} for n in range(8)])
        target = Target(stream=Version(db.version))
        [done] = maintain.refresh(db.context, {"located": target})
        assert done.plan == "incremental"
        assert shown(db, "located") == recomputed(db, query)


def test_the_smallest_value_of_a_group_may_leave(db: ebla.Database) -> None:
    db.sql("DELETE FROM orders WHERE total = 0; FLUSH")
    check(db)
    db.sql("UPDATE orders SET total = total + 100 WHERE id % 2 = 0; FLUSH")
    check(db)
    db.sql("DELETE FROM orders; FLUSH")
    check(db)
    assert db.sql("SELECT n, s, a, low FROM totals").rows() == [(0, None, None, None)]


def test_rows_of_which_no_column_is_read_are_counted_and_compacted(db: ebla.Database) -> None:
    """The rows of a table without a key go to Spark without a column; and what is kept of epochs survives a fold."""
    db.sql("CREATE TABLE log (line STRING); CREATE MATERIALIZED VIEW logged AS SELECT count(*) AS n FROM log")
    for expected in (3, 6):
        db.sql("INSERT INTO log VALUES ('a'), ('b'), (NULL)")
        flush(db, "logged")
        assert shown(db, "logged") == Counter([(expected,)])
    db.sql("COMPACT log")
    db.sql("INSERT INTO log VALUES ('c')")
    flush(db, "logged")
    assert shown(db, "logged") == Counter([(7,)])
