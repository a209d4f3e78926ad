"""An expression that fails stops its view and no other, names the row of an input, and goes on when that is mended."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import update

import ebla
from ebla.api.adoption import adopt
from ebla.base.ids import Version
from ebla.build.trouble import PATIENCE
from ebla.catalog import memory
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.relations import views as definition
from ebla.tables import transaction
from ebla.views.epoch import apply, culprit
from ebla.views.epoch import whole_epoch as run_module
from ebla.views.epoch.apply import apply_epoch
from ebla.views.epoch.attempt import Target
from ebla.views.epoch.cost import Estimate, Way
from support.recomputation import recomputed
from support.warehouse import eventually, shown

pytestmark = pytest.mark.spark

BIGINT_MAX = 2**63 - 1

VIEWS = {
    "ratio": "SELECT id, 100 / customer AS r FROM orders",
    "next": "SELECT o.id, o.total + 1 AS n, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "ratios": "SELECT country, count(*) AS n, sum(100 DIV customer) AS s FROM orders GROUP BY country",
    "best": "SELECT country, max(total * 2) AS m FROM orders GROUP BY country",
    "sums": "SELECT country, sum(total) AS s FROM orders GROUP BY country",
    "plain": "SELECT id, total FROM orders",
}


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(
        str(tmp_path / "warehouse"), spark=spark, tablets=2, auto_compact=False, auto_refresh=False, fsync=False
    ) as database:
        database.sql(
            """CREATE TABLE orders (id BIGINT, customer BIGINT, country INT, total BIGINT, PRIMARY KEY (id));
            CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id))"""
        )
        database.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(1, 5)])
        database.table("orders").upsert([order(i) for i in range(40)])
        yield database


def order(number: int, **other: Any) -> dict[str, Any]:
    return {"id": number, "customer": 1 + number % 4, "country": number % 3, "total": number, **other}


def create(db: ebla.Database, *names: str) -> None:
    for name in names:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")


def check(db: ebla.Database, *names: str) -> None:
    for name in names:
        assert shown(db, name) == recomputed(db, VIEWS[name]), name


def status(db: ebla.Database, name: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = db.sql(f"SELECT status, message FROM system.views WHERE name = '{name}'").one()
    return found


@pytest.mark.parametrize(
    ("view", "bad", "says"),
    [
        ("ratio", {"customer": 0}, "DIVIDE_BY_ZERO"),
        ("next", {"total": BIGINT_MAX}, "ARITHMETIC_OVERFLOW"),
        ("ratios", {"customer": 0}, "DIVIDE_BY_ZERO"),  # by merging groups
        ("best", {"total": BIGINT_MAX}, "ARITHMETIC_OVERFLOW"),
    ],
)
def test_the_message_names_the_row_and_mending_it_goes_on(
    db: ebla.Database, view: str, bad: dict[str, int], says: str
) -> None:
    create(db, view, "plain")
    before = db.sql(f"SELECT * FROM {view}").rows()
    db.table("orders").upsert([order(5, total=6), order(7, **bad), order(90)])
    plans = {row[0]: row[2] for row in db.sql("FLUSH").rows()}
    assert plans == {view: "failed", "plain": "incremental"}
    state, message = status(db, view)
    assert state == "failed"
    assert says in message
    assert message.endswith("; found at orders (id = 7)")
    assert Counter(db.sql(f"SELECT * FROM {view}").rows()) == Counter(before)
    check(db, "plain")

    # It is tried again when an input was written to, and says the same as long as the row is there.
    assert {row[0] for row in db.sql("FLUSH").rows()} == {"plain"}
    db.table("orders").upsert([order(8, total=1)])
    assert {row[0]: row[2] for row in db.sql("FLUSH").rows()} == {view: "failed", "plain": "incremental"}
    with pytest.raises(ebla.ViewStoppedError, match=r"found at orders \(id = 7\)"):
        db.sql(f"FLUSH {view}")
    db.table("orders").upsert([order(7)])
    db.sql(f"FLUSH {view}")
    check(db, view)
    assert status(db, view) == ("ready", None)
    db.table("orders").delete([{"id": 9}])
    assert {row[0]: row[2] for row in db.sql("FLUSH").rows()}[view] == "incremental"
    check(db, view, "plain")


def test_a_sum_that_no_single_row_makes_too_large_names_none(db: ebla.Database) -> None:
    create(db, "sums", "plain")
    db.table("orders").upsert([order(30, total=BIGINT_MAX // 2 + 1), order(33, total=BIGINT_MAX // 2 + 1)])
    assert {row[0]: row[2] for row in db.sql("FLUSH").rows()} == {"sums": "failed", "plain": "incremental"}
    state, message = status(db, "sums")
    assert state == "failed"
    assert "OVERFLOW" in message
    assert "found at" not in message
    db.table("orders").delete([{"id": 33}])
    db.sql("FLUSH sums")
    check(db, "sums")


@pytest.mark.parametrize(("view", "here_max"), [("ratio", 4), ("ratios", 10_000), ("next", 10_000)])
def test_a_first_build_names_the_row(
    db: ebla.Database, view: str, here_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(culprit, "HERE_MAX", here_max)  # 4: halved on Spark first
    db.table("orders").upsert([order(7, customer=3 if view == "next" else 0, total=BIGINT_MAX)])
    with pytest.raises(ebla.ViewStoppedError, match=r"found at orders \(id = 7\)"):
        create(db, view)
    failures = db.sql("SELECT reason FROM system.history WHERE reason LIKE '% failed'").rows()
    assert failures == [(f"build of {view} failed",)]
    db.table("orders").upsert([order(7)])
    create(db, view)  # nothing was left behind
    check(db, view)


@pytest.mark.parametrize("way", [Way.SPARK, Way.RECOMPUTE])
def test_large_changes_name_the_row_too(db: ebla.Database, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    create(db, "ratio", "plain")
    monkeypatch.setattr(run_module, "estimate", lambda *_, **__: Estimate(way=way, share=0.3, reason="large"))
    db.table("orders").upsert([order(7, customer=0), order(8, total=1)])
    with pytest.raises(ebla.ViewStoppedError, match=r"DIVIDE_BY_ZERO.*found at orders \(id = 7\)"):
        db.sql("FLUSH ratio")
    db.table("orders").upsert([order(7)])
    db.sql("FLUSH ratio, plain")
    check(db, "ratio", "plain")


def test_a_failed_view_does_not_stop_the_background(spark: SparkSession, db: ebla.Database) -> None:
    create(db, "ratio", "plain")
    with ebla.connect(
        db.context.catalog.where, spark=spark, auto_compact=False, fsync=False, epoch_period_s=0.0
    ) as running:
        running.table("orders").upsert([order(7, customer=0)])
        eventually(lambda: status(db, "ratio")[0] == "failed")
        running.table("orders").upsert([order(91)])
        eventually(lambda: db.sql("SELECT count(*) FROM plain").one() == (41,))
        running.table("orders").upsert([order(7)])
        running.table("orders").upsert([order(92)])
        eventually(lambda: db.sql("SELECT count(*) FROM ratio").one() == (42,))
    check(db, "ratio", "plain")


def test_an_epoch_to_versions_that_another_process_has_passed_is_refused(db: ebla.Database):
    """Rows would be ahead of the position, and the next epoch would add the same changes to the sums again."""
    db.sql("CREATE TABLE sold (id INT PRIMARY KEY, kind INT, amount INT)")
    db.sql("CREATE TABLE kinds (id INT PRIMARY KEY, factor INT)")
    db.table("sold").upsert([{"id": 1, "kind": 1, "amount": 5}])
    db.table("kinds").upsert([{"id": 1, "factor": 2}])
    db.sql(
        "CREATE MATERIALIZED VIEW taken AS SELECT s.kind, sum(s.amount * k.factor) AS total, count(*) AS n "
        "FROM sold s JOIN kinds k ON s.kind = k.id GROUP BY s.kind"
    )
    then = Version(db.version)
    db.table("kinds").upsert([{"id": 1, "factor": 3}])
    stale = Version(db.version)
    db.table("sold").upsert([{"id": 2, "kind": 1, "amount": 7}])
    apply_epoch(db.context, "taken", Target(stream=Version(db.version), batch={"kinds": then}))
    with pytest.raises(ebla.ConflictError, match="another process came first"):
        apply_epoch(db.context, "taken", Target(stream=stale))
    db.sql("FLUSH taken")
    assert db.sql("SELECT kind, total, n FROM taken").rows() == [(1, 36, 2)]


def test_a_check_that_fails_on_a_row_is_made_again_after_pauses(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chunk and no epoch met the row, so nothing has stopped the build: it must not run in a circle."""
    attempts: list[float] = []

    def fails(context: object, name: str) -> None:
        attempts.append(time.monotonic())
        raise ebla.SqlError(f"view {name}: a row of the sample cannot be computed")

    with monkeypatch.context() as patched:
        patched.setattr("ebla.views.fill.sample.compare_sample", fails)
        with pytest.raises(ebla.SqlError, match="a row of the sample") as told:
            db.sql("CREATE MATERIALIZED VIEW plain AS SELECT id, total FROM orders")
        assert getattr(told.value, "goes_on", False)
        assert len(attempts) == PATIENCE
        assert all(after - before > 0.4 for before, after in pairwise(attempts))
        assert "a row of the sample" in db.sql("SHOW PROGRESS plain").to_arrow().to_pylist()[0]["detail"]
    db.sql("WAIT FOR plain")
    check(db, "plain")


@pytest.mark.parametrize("damage", ["no JSON", '{"query": "SELECT 1", "roles": [{"a": 1}]}', "position"])
def test_a_view_whose_definition_cannot_be_read_is_its_own_trouble(db: ebla.Database, damage: str) -> None:
    create(db, "sums", "plain")
    with db.context.catalog.reading() as connection:
        sums = definition.load(connection, "sums")

    def store(options: str | None, position: str | None) -> None:
        with db.context.catalog.writing() as connection:
            if options is not None:
                memory.reshape(connection)
                mine = s.relations.c.relation_id == sums.relation.id
                connection.execute(update(s.relations).where(mine).values(options=options))
            if position is not None:
                mine = s.progress.c.name == sums.progress_name
                connection.execute(update(s.progress).where(mine).values(value=position))

    store(*((None, "{}") if damage == "position" else (damage, None)))
    db.table("orders").upsert([order(100)])
    done = {one.view: one.plan for one in db.epochs.of_handler("default")}
    assert (done["sums"], done["plain"]) == ("waiting", "incremental")
    check(db, "plain")
    [trouble] = db.sql("SELECT name, message, retry_at, traceback FROM system.troubles").to_arrow().to_pylist()
    assert (trouble["name"], trouble["retry_at"] is not None) == ("sums", True)
    assert "expected a stored definition that this release can read" in trouble["message"]
    assert "Traceback" in trouble["traceback"]
    [shown] = [v for v in db.sql("SHOW VIEWS").to_arrow().to_pylist() if v["name"] == "sums"]
    assert shown["message"].startswith("waiting: view sums: expected a stored definition")
    with pytest.raises(ebla.StorageError, match="expected a stored definition"):
        db.sql("FLUSH sums")
    db.epochs.of_dictionaries({"default"})
    adopt(db.context.catalog, db.context.node)
    db.sql("SHOW PROGRESS; SELECT * FROM system.build_progress")

    store(json.dumps(dict(sums.relation.options)), sums.stored)
    db.sql("FLUSH")
    check(db, "sums", "plain")
    assert db.sql("SELECT count(*) FROM system.troubles").one() == (0,)
    store(*((None, "{}") if damage == "position" else (damage, None)))
    db.sql("DROP MATERIALIZED VIEW sums")


def test_a_definition_that_cannot_be_read_holds_up_no_other_build(db: ebla.Database) -> None:
    for name in ("ratio", "plain"):
        db.sql(f"CREATE ASYNC MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    with db.context.catalog.writing() as connection:
        memory.reshape(connection)
        connection.execute(update(s.relations).where(s.relations.c.name == "ratio").values(options="no JSON"))
    db.sql("WAIT FOR plain")
    check(db, "plain")
    assert db.sql("SELECT name, work FROM system.troubles").rows() == [("ratio", "build")]
    db.sql("CANCEL BUILD ratio")
    assert db.sql("SHOW VIEWS").to_arrow()["name"].to_pylist() == ["plain"]


def test_a_damaged_view_of_a_stopped_handler_holds_up_no_request(db: ebla.Database) -> None:
    create(db, "sums", "plain")
    db.sql("CREATE HANDLER idle PROCESS sums, INPUT orders AS STREAM; ALTER HANDLER idle SET (should_run = FALSE)")
    with db.context.catalog.writing() as connection:
        memory.reshape(connection)
        connection.execute(update(s.relations).where(s.relations.c.name == "sums").values(options="no JSON"))
    db.table("orders").upsert([order(100)])
    db.sql("FLUSH plain; FLUSH")
    check(db, "plain")


@pytest.mark.parametrize("on_spark", [False, True])
def test_an_epoch_whose_commit_was_never_answered_keeps_its_files(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch, on_spark: bool
) -> None:
    create(db, "plain", "sums")
    db.table("orders").upsert([order(5, total=99)])
    real, lost = Catalog.commit, list[str]()

    def silent(self: Catalog, decision: Any, **named: Any) -> Any:
        done = real(self, decision, **named)
        if decision.reason.startswith("epoch of") and not lost:
            lost.append(decision.reason)
            error = ebla.CatalogUnavailableError("the answer is lost")
            error.settled = False
            raise error
        return done

    context = db.context.tuned(batch_rows_max=0) if on_spark else db.context
    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "commit", silent)
        with pytest.raises(ebla.CatalogUnavailableError, match="the answer is lost"):
            apply_epoch(context, "plain")
    assert lost
    db.sql("FLUSH")
    check(db, "plain", "sums")


def test_a_vacuum_between_the_look_and_the_epoch_loses_nothing(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(db, "plain")
    real, raced = transaction.begin, list[bool]()

    def late(*args: Any, **named: Any) -> Any:
        if not raced:
            raced.append(True)
            db.sql("COMPACT orders")
            db.table("orders").upsert([order(7, total=70)])
            db.sql("COMPACT orders; VACUUM orders RETAIN 0 SECONDS")
        return real(*args, **named)

    db.table("orders").upsert([order(5, total=99)])
    with monkeypatch.context() as patched:
        patched.setattr(apply, "begin", late)
        db.epochs.of_handler("default")
    assert raced
    db.sql("FLUSH plain")
    check(db, "plain")
