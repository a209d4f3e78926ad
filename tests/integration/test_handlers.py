"""Handlers and dictionaries on Spark: what is read at which version, what is rewritten, and what is left alone."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.catalog import schema as s
from ebla.views.epoch import maintain
from ebla.views.epoch.attempt import Epoch, Target
from ebla.views.epoch.refresh_epoch import RefreshStep
from support.catalogs import dump
from support.recomputation import recomputed
from support.warehouse import eventually, later, named, refused, stored

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE orders (id BIGINT, customer BIGINT, country INT, total INT, PRIMARY KEY (id));
CREATE TABLE customers (id BIGINT, name STRING, note STRING, PRIMARY KEY (id));
CREATE TABLE countries (id INT, name STRING, area INT, PRIMARY KEY (id))
"""

CARD = (
    "SELECT o.id, o.total, c.name AS customer, k.name AS country FROM {orders} o "
    "LEFT JOIN {customers} c ON o.customer = c.id LEFT JOIN {countries} k ON o.country = k.id"
)
SUMS = "SELECT o.customer, sum(o.total) AS total FROM {orders} o GROUP BY o.customer"
QUERIES = {"card": CARD, "sums": SUMS}
NAMES = ("orders", "customers", "countries")


def plain(query: str) -> str:
    return query.format(**{n: n for n in NAMES})


def open_(where: Path, spark: SparkSession, **settings: Any) -> ebla.Database:
    manual: dict[str, Any] = {"auto_refresh": False, "auto_compact": False, "fsync": False, "tablets": 2}
    return ebla.connect(str(where), spark=spark, **{**manual, **settings})


def prepare(db: ebla.Database) -> None:
    db.sql(TABLES)
    db.table("orders").upsert([{"id": i, "customer": i % 4, "country": i % 3, "total": i} for i in range(24)])
    db.table("customers").upsert([{"id": i, "name": f"c{i}", "note": ""} for i in range(4)])
    db.table("countries").upsert([{"id": i, "name": f"k{i}", "area": 1} for i in range(3)])
    for name, query in QUERIES.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {plain(query)}")


HANDLER = """CREATE HANDLER shop PROCESS card, sums,
    INPUT orders AS STREAM, INPUT customers AS BATCH, INPUT countries AS BATCH"""


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of which each test gets a copy: to build its views takes longer than most tests."""
    where: Path = tmp_path_factory.mktemp("prepared") / "warehouse"
    with open_(where, spark) as database:
        prepare(database)
        database.sql(HANDLER)
    return where


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path, prepared: Path) -> Iterator[ebla.Database]:
    with open_(shutil.copytree(prepared, tmp_path / "warehouse"), spark) as database:
        yield database


def shown(db: ebla.Database, view: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in db.sql("SHOW VIEWS").to_arrow().to_pylist() if r["name"] == view)
    return found


def read_versions(db: ebla.Database, view: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(shown(db, view)["read_versions"])
    return found


def assert_exact(db: ebla.Database, view: str) -> None:
    """The view equals its query over its inputs at the versions that it names."""
    versions = read_versions(db, view)
    text = QUERIES[view].format(**{n: f"{n} VERSION AS OF {versions.get(n, 0)}" for n in NAMES})
    assert Counter(db.sql(f"SELECT * FROM {view}").rows()) == Counter(db.sql(text).rows())


def assert_current(db: ebla.Database, view: str) -> None:
    assert Counter(db.query(view, limit=10_000).rows()) == recomputed(db, plain(QUERIES[view]))


def jobs(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    return int(scheduler.numTotalJobs())


def log(db: ebla.Database) -> list[tuple[Any, ...]]:
    with db.context.catalog.reading() as connection:
        table = s.mv_dictionary_changes
        query = select(table.c.row_key, table.c.changed_columns).order_by(table.c.version, table.c.row_key)
        return [tuple(row) for row in connection.execute(query)]


# ---- dictionaries ---------------------------------------------------------------------------------------


def test_a_dictionary_is_read_at_its_own_older_version(db):
    before = read_versions(db, "card")
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    db.table("orders").upsert([{"id": 1, "customer": 1, "country": 2, "total": 100}, {"id": 90, "customer": 1}])
    db.table("orders").delete([{"id": 5}])
    db.epochs.of_handler("shop")
    after = read_versions(db, "card")
    assert after["orders"] > before["orders"]
    assert (after["customers"], after["countries"]) == (before["customers"], before["countries"])
    assert db.sql("SELECT customer FROM card WHERE id = 90").one() == ("c1",)
    assert_exact(db, "card")
    assert_current(db, "sums")
    assert shown(db, "card")["age_s"] > 0
    assert shown(db, "sums")["age_s"] == 0

    db.sql("FLUSH card")
    assert db.sql("SELECT customer FROM card WHERE id = 90").one() == ("new",)
    assert_exact(db, "card")
    assert_current(db, "card")
    assert (shown(db, "card")["age_s"], shown(db, "card")["behind"]) == (0, 0)


def test_v8_several_dictionaries_change_at_once_and_rows_are_rewritten_once(db):
    before = shown(db, "card")
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    db.table("customers").delete([{"id": 2}])
    db.table("countries").upsert([{"id": 0, "name": "new", "area": 1}])
    done = db.epochs.of_dictionaries({"shop"})
    assert [d.view for d in done] == ["card"]
    after = shown(db, "card")
    assert after["epochs"] == before["epochs"] + 1
    affected = [i for i in range(24) if i % 4 in (1, 2) or i % 3 == 0]
    assert (after["gained"], after["lost"]) == (len(affected), 0)
    assert after["applied_version"] == before["applied_version"]
    assert_exact(db, "card")
    assert_current(db, "card")
    assert log(db) != []
    db.epochs.gather()
    assert log(db) == []  # every view has read it
    version = db.version
    db.epochs.of_dictionaries({"shop"})
    assert db.version == version


def test_a_change_of_an_unused_column_moves_the_position_and_starts_no_job(db, spark):
    epochs, before = shown(db, "card")["epochs"], read_versions(db, "card")
    db.table("customers").upsert([{"id": i, "name": f"c{i}", "note": "seen"} for i in range(4)])
    db.table("countries").upsert([{"id": 1, "name": "k1", "area": 5}])
    started = jobs(spark)
    assert db.epochs.of_dictionaries({"shop"}) == []
    assert jobs(spark) == started
    assert log(db) == [*((f"[{i}]", '["note"]') for i in range(4)), ("[1]", '["area"]')]
    after = read_versions(db, "card")
    assert after["customers"] > before["customers"]
    assert after["countries"] > before["countries"]
    assert after["orders"] == before["orders"]
    assert shown(db, "card")["epochs"] == epochs
    assert_exact(db, "card")


def test_a_row_written_again_as_it_was_is_no_change(db, spark):
    db.table("customers").upsert([{"id": 1, "name": "c1", "note": ""}])
    started = jobs(spark)
    assert db.epochs.gather() == 0
    assert jobs(spark) == started


def test_a_value_that_went_and_came_back_is_a_change_for_a_view_that_stands_between(db):
    db.table("customers").upsert([{"id": 1, "name": "between", "note": ""}])
    db.sql("FLUSH card")  # the view stands here
    db.table("customers").upsert([{"id": 1, "name": "c1", "note": ""}])
    db.epochs.of_dictionaries({"shop"})
    assert_current(db, "card")


def test_a_truncated_dictionary_and_a_large_change_concern_every_view(db, monkeypatch):
    monkeypatch.setattr("ebla.views.handlers.dictionary.LOG_ROWS_MAX", 2)
    db.table("customers").upsert([{"id": i, "name": "z", "note": ""} for i in range(4)])
    db.epochs.of_dictionaries({"shop"})
    assert ("null", '["*"]') in log(db)
    assert_current(db, "card")
    db.sql("TRUNCATE TABLE countries")
    db.epochs.of_dictionaries({"shop"})
    assert_current(db, "card")


def test_a_view_that_comes_late_to_a_dictionary_misses_nothing(db):
    """The log of what others have read is gone, so what it said must not be taken for nothing."""
    db.sql(f"CREATE MATERIALIZED VIEW late AS {plain(CARD)}")
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    db.epochs.of_dictionaries({"shop"})
    db.epochs.gather()
    assert log(db) == []
    db.sql("CREATE ASYNC HANDLER other PROCESS late INPUT customers AS BATCH")
    db.table("customers").upsert([{"id": 2, "name": "c2", "note": "unused"}])
    db.epochs.of_dictionaries({"other"})
    assert db.sql("SELECT DISTINCT customer FROM late WHERE id % 4 = 1").one() == ("new",)


def test_vacuum_keeps_the_version_of_a_dictionary_that_a_view_reads(db):
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    db.compact("customers")
    db.table("orders").upsert([{"id": 1, "customer": 1, "country": 2, "total": 100}])
    db.compact("orders")
    db.vacuum(retain_s=0)
    db.epochs.of_handler("shop")
    assert db.sql("SELECT customer, total FROM card WHERE id = 1").one() == ("c1", 100)
    db.epochs.of_dictionaries({"shop"})
    assert_current(db, "card")
    db.table("customers").upsert([{"id": 1, "name": "newer", "note": ""}])
    db.sql("FLUSH")
    db.compact("customers")
    db.vacuum(retain_s=0)
    with refused(db, ebla.SnapshotError, "older rows were vacuumed"):
        db.sql(f"SELECT * FROM customers VERSION AS OF {read_versions(db, 'card')['customers'] - 3}")


# ---- one view's long refresh ----------------------------------------------------------------------------


class Held:
    """Stops the refresh of one view in a chunk until it is let go."""

    def __init__(self, view: str) -> None:
        self.view = view
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def around(self, refresh: Callable[..., list[Epoch]]) -> Callable[..., list[Epoch]]:
        def wrapped(
            context: Any, targets: Mapping[str, Target], *, chunk: RefreshStep | None = None, **more: Any
        ) -> list[Epoch]:
            if chunk is not None and self.view in targets:
                self.reached.set()
                assert self.go_on.wait(250)
            return refresh(context, targets, chunk=chunk, **more)

        return wrapped


def test_v7_other_views_stay_fresh_while_one_dictionary_row_fans_out(spark, tmp_path, monkeypatch):
    with open_(tmp_path / "warehouse", spark) as db:
        prepare(db)
        db.table("orders").upsert(spark.range(3000).selectExpr("id", "id % 4 customer", "1 country", "1 total"))
        db.sql(HANDLER)
        db.sql("ALTER HANDLER shop SET (dictionary_rows_per_scan = 2000)")
        assert_current(db, "card")
    held = Held("card")
    monkeypatch.setattr(maintain, "refresh", held.around(maintain.refresh))
    settings = {"auto_refresh": True, "epoch_period_s": 0.0, "dictionary_period_s": 0.0}
    with open_(tmp_path / "warehouse", spark, **settings) as db:
        db.table("countries").upsert([{"id": 1, "name": "everywhere", "area": 1}])
        assert held.reached.wait(150)
        stands = read_versions(db, "card")
        for i in range(2):
            db.table("orders").upsert([{"id": i, "customer": 3, "country": 1, "total": 1000}])
            eventually(lambda: shown(db, "sums")["age_s"] == 0)
            assert_current(db, "sums")
        assert read_versions(db, "card") == stands
        held.go_on.set()
        eventually(lambda: shown(db, "card")["age_s"] == 0)
        assert_exact(db, "card")
        assert_current(db, "card")
        assert db.sql("SELECT count(*) FROM card WHERE country = 'everywhere'").one() == (3000,)


# ---- handlers -------------------------------------------------------------------------------------------


def test_handlers_are_shown_and_change_with_their_views(db):
    assert db.sql("SHOW HANDLERS").to_arrow().to_pylist()[1:] == [
        {
            "name": "shop",
            "views": "card, sums",
            "inputs": "orders AS STREAM, customers AS BATCH, countries AS BATCH",
            "consumer": None,
            "should_run": True,
            "settings": "{}",
        },
        {"name": "sys$dictionary", "views": "", "inputs": "", "consumer": None, "should_run": True, "settings": "{}"},
    ]
    db.sql("ALTER HANDLER Shop SET (should_run = false, epoch_period_s = 5); DROP MATERIALIZED VIEW card")
    name = db.sql("SELECT name, views, should_run, settings FROM system.handlers WHERE name = 'shop'").one()
    assert name == ("shop", "sums", False, '{"epoch_period_s": 5}')
    db.table("orders").upsert([{"id": 1, "total": 77}])
    assert db.sql("FLUSH").rows() == []  # it should not run
    assert [r[0] for r in db.sql("FLUSH sums").rows()] == ["sums"]
    db.sql("DROP HANDLER shop")
    assert db.sql("SELECT views FROM system.handlers WHERE name = 'default'").one() == ("sums",)


def test_a_new_handler_brings_its_views_up_to_date_unless_it_is_asynchronous(db):
    db.sql("DROP HANDLER shop")
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 500}])
    db.sql("CREATE ASYNC HANDLER a PROCESS sums INPUT orders AS STREAM")
    assert shown(db, "sums")["age_s"] > 0
    db.sql("CREATE HANDLER b CONSUMER c PROCESS card, INPUT orders CHANGEFEED f AS STREAM WITH (batch_rows_max = 5)")
    assert_current(db, "card")
    assert shown(db, "sums")["age_s"] > 0
    row = db.sql("SELECT inputs, consumer, settings FROM system.handlers WHERE name = 'b'").one()
    assert row == ("orders CHANGEFEED f AS STREAM", "c", '{"batch_rows_max": 5}')
    db.table("orders").upsert([{"id": i, "customer": 1, "total": 501} for i in range(9)])
    db.sql("FLUSH")
    plans = {v: shown(db, v)["last_plan"] for v in QUERIES}
    assert plans == {"card": "incremental", "sums": "incremental"}  # card's on Spark, from 5 rows on
    assert_current(db, "card")


def test_a_view_waits_for_the_build_of_a_view_of_another_handler(db):
    db.sql("CREATE ASYNC MATERIALIZED VIEW lower AS SELECT id, total FROM orders")
    db.sql("CREATE ASYNC MATERIALIZED VIEW upper AS SELECT sum(total) AS total FROM lower")
    db.sql("CREATE ASYNC HANDLER other PROCESS upper INPUT lower AS STREAM WITH (should_run = false)")
    assert [one.plan for one in db.epochs.of_handler("other")] in ([], ["nothing to do"])
    assert shown(db, "upper")["status"] == "building"
    assert "the build of lower" in db.sql("SELECT detail FROM system.build_progress WHERE name = 'upper'").one()[0]
    db.sql("WAIT FOR upper")
    assert db.sql("SELECT * FROM upper").one() == (sum(range(24)),)
    assert {v: shown(db, v)["status"] for v in ("lower", "upper")} == {"lower": "ready", "upper": "ready"}


def test_wrong_handlers_are_refused_and_change_nothing(db):
    for text, kind, says in [
        ("CREATE HANDLER shop PROCESS card INPUT orders AS STREAM", ebla.DuplicateNameError, "found a handler"),
        ("CREATE HANDLER h PROCESS card INPUT orders AS STREAM", ebla.UsageError, "found it in handler shop"),
        ("CREATE HANDLER h PROCESS x INPUT orders AS STREAM", ebla.UnknownNameError, "card, sums"),
        ("CREATE HANDLER `sys$h` PROCESS card INPUT orders AS STREAM", ebla.UsageError, "sys$"),
        ("CREATE HANDLER h INPUT orders AS STREAM", ebla.UsageError, "at least one view"),
        ("DROP HANDLER h", ebla.UnknownNameError, "handlers are shop"),
        ("DROP HANDLER `sys$dictionary`", ebla.UsageError, "the system's own"),
        ("ALTER HANDLER h SET (should_run = true)", ebla.UnknownNameError, "handlers are shop"),
        ("ALTER HANDLER shop SET (speed = 1)", ebla.UnknownNameError, "found speed"),
    ]:
        with refused(db, kind, says):
            db.sql(text)
    db.sql("CREATE HANDLER IF NOT EXISTS shop PROCESS x INPUT y AS BATCH; DROP HANDLER IF EXISTS h")


def test_cascade_drops_what_needs_it_in_one_commit(db):
    db.sql("CREATE MATERIALIZED VIEW names AS SELECT DISTINCT customer FROM card")
    with refused(db, ebla.UsageError, "found names; drop them first", "add CASCADE to drop them, too"):
        db.sql("DROP MATERIALIZED VIEW card")
    with refused(db, ebla.UsageError, "found card", "add CASCADE to drop them, too"):
        db.sql("ALTER TABLE countries DROP COLUMN name")
    db.sql("ALTER TABLE countries DROP COLUMN area")
    version = db.version
    db.sql("ALTER TABLE countries DROP COLUMN name CASCADE")
    assert db.version == version + 1
    assert db.sql("SELECT name, handler FROM system.views").rows() == [("sums", "shop")]
    assert db.sql("SELECT views FROM system.handlers WHERE name = 'shop'").one() == ("sums",)
    db.sql("DROP TABLE orders CASCADE")
    assert db.version == version + 2
    assert db.sql("SHOW VIEWS").rows() == []
    row = db.sql("SELECT views, inputs FROM system.handlers WHERE name = 'shop'").one()
    assert row == ("", "customers AS BATCH, countries AS BATCH")


def test_wait_for_builds_what_is_not_built_and_tells_of_failures(db):
    db.sql("CREATE ASYNC MATERIALIZED VIEW later AS SELECT id FROM orders")
    assert shown(db, "later")["status"] == "building"
    with refused(db, ebla.SnapshotError, "WAIT FOR later"):
        db.sql("SELECT * FROM later")
    assert [r[0] for r in db.sql("WAIT FOR later, sums").rows()] == ["later", "sums"]
    assert db.sql("SELECT count(*) FROM later").one() == (24,)
    applied = shown(db, "later")["applied_version"]
    db.table("orders").upsert([{"id": 99}])
    assert db.sql("WAIT FOR later").one() == ("later", applied)  # built, though not fresh
    db.sql("CREATE ASYNC MATERIALIZED VIEW broken AS SELECT id, 1 / (id - 99) AS q FROM orders")
    with pytest.raises(ebla.ViewStoppedError, match=r"view broken: stopped: .*DIVIDE_BY_ZERO"):
        db.sql("WAIT FOR broken")
    assert shown(db, "broken")["status"] == "failed"
    with refused(db, ebla.SnapshotError, "found that its build failed"):
        db.sql("SELECT * FROM broken")


def test_counters_move_with_the_rows(db):
    before = shown(db, "sums")
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 500}])
    db.sql("FLUSH sums")
    after = shown(db, "sums")
    assert (after["gained"], after["lost"]) == (1, 0)
    assert after["rows_changed"] == before["rows_changed"] + 1
    assert after["epochs"] == before["epochs"] + 1
    assert after["full_refreshes"] == before["full_refreshes"] == 0  # building it is none
    assert (after["last_plan"], after["handler"], after["status"]) == ("incremental", "shop", "ready")


# ---- anything at any time -------------------------------------------------------------------------------


def change(db: ebla.Database, chance: random.Random) -> None:
    """One write: to a stream or a dictionary, of used and unused columns, new rows and deletions."""
    key = chance.randrange(30)
    match chance.randrange(6):
        case 0 | 1:
            row = {
                "id": key,
                "customer": chance.choice([None, *range(6)]),
                "country": chance.randrange(5),
                "total": key,
            }
            db.table("orders").upsert([row])
        case 2:
            db.table("orders").delete([{"id": key}])
        case 3:
            note = chance.choice("xy")
            db.table("customers").upsert([{"id": key % 6, "name": chance.choice("ab"), "note": note}])
        case 4:
            db.table("countries").upsert([{"id": key % 5, "name": chance.choice("ab"), "area": key}])
        case _:
            chance.choice([db.table("customers"), db.table("countries")]).delete([{"id": key % 5}])


@pytest.mark.parametrize("seed", [1, 2])
def test_views_equal_their_queries_at_the_versions_they_name(db, seed):
    chance = random.Random(seed)
    for _ in range(8):
        for _ in range(chance.randrange(1, 5)):
            change(db, chance)
        match chance.randrange(4):
            case 0:
                db.sql("FLUSH card")
                assert_current(db, "card")
            case 1 | 2:
                db.epochs.of_handler("shop")
                assert_current(db, "sums")
            case _:
                db.epochs.of_dictionaries({"shop"})
        assert_exact(db, "card")
        assert_exact(db, "sums")
    db.epochs.of_handler("shop")
    db.epochs.of_dictionaries({"shop"})
    assert_current(db, "card")


# ---- processes that die ---------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    ("task", "point"), [("of_dictionaries", "dictionary.before_commit"), ("of_handler", "handler.before_epoch")]
)
def test_a_process_that_dies_before_it_has_begun_leaves_everything_as_it_was(db, spark_processes, task, point):
    where = db.context.catalog.where
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 500}])
    before = dump(db.context.catalog, without=["processes"])
    assert spark_processes.run(f"support.view_tasks:{task}", where, "shop", failpoints=f"{point}=exit") == EXIT_CODE
    assert dump(db.context.catalog, without=["processes"]) == before
    db.epochs.of_handler("shop")
    assert_exact(db, "card")
    db.epochs.of_dictionaries({"shop"})
    assert_current(db, "card")


@pytest.mark.process
def test_a_process_that_dies_in_a_refresh_is_followed_by_one_that_goes_on(db, spark_processes):
    """Killed when the rows are written and not committed; then again, to the end."""
    where = db.context.catalog.where
    db.table("customers").upsert([{"id": 1, "name": "new", "note": ""}])
    before, rows = read_versions(db, "card"), db.sql("SELECT * FROM card").rows()
    task, point = "support.view_tasks:of_dictionaries", "epoch.before_commit=exit"
    assert spark_processes.run(task, where, "shop", failpoints=point) == EXIT_CODE
    assert log(db) == [("[1]", '["name"]')]  # gathered, not applied
    assert read_versions(db, "card") == before
    assert Counter(db.sql("SELECT * FROM card").rows()) == Counter(rows)
    assert spark_processes.start(task, where, "shop").finish() == ["card incremental"]
    assert_exact(db, "card")
    assert_current(db, "card")
    later(db)
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


# ---- in the background ----------------------------------------------------------------------------------


def test_two_that_run_the_same_handlers_and_a_writer_end_with_the_same_views(db, spark):
    quick = {"auto_refresh": True, "epoch_period_s": 0.0, "dictionary_period_s": 0.0}
    where, chance = Path(db.context.catalog.where), random.Random(7)
    with open_(where, spark, **quick) as one, open_(where, spark, **quick) as other:
        for number in range(24):
            change(chance.choice([one, other, db]), chance)
            if number % 8 == 7:
                one.sql("FLUSH")
        eventually(lambda: all(shown(db, view)["age_s"] == 0 for view in QUERIES))
    for view in QUERIES:
        assert_exact(db, view)
        assert_current(db, view)


def test_handlers_run_in_the_background_as_the_catalog_says(db, spark):
    quick = {"auto_refresh": True, "epoch_period_s": 0.0, "dictionary_period_s": 0.0}
    db.sql("ALTER HANDLER shop SET (should_run = false)")
    db.table("orders").upsert([{"id": 1, "customer": 1, "total": 500}])
    with open_(Path(db.context.catalog.where), spark, **quick) as running:
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW other AS {plain(SUMS)}")  # a commit of another connection
        eventually(lambda: shown(db, "other")["status"] == "ready")
        assert shown(db, "sums")["age_s"] > 0
        running.sql("ALTER HANDLER shop SET (should_run = true)")
        eventually(lambda: shown(db, "sums")["age_s"] == 0)
        assert_current(db, "sums")
        db.table("countries").upsert([{"id": 1, "name": "elsewhere", "area": 1}])
        eventually(lambda: shown(db, "card")["age_s"] == 0)
        assert_current(db, "card")
