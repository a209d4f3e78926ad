"""Several processes with one warehouse: they build together, and one of them runs a handler's epochs.

The processes that other tests kill share the Spark of the tests, and leave nothing behind in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Set
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import transactions as tx
from ebla.model.tasks import LEASE
from ebla.node.jobs import service_of
from support.processes import Child, Sharing
from support.warehouse import connect, eventually, names_of, rows

pytestmark = [pytest.mark.spark, pytest.mark.process]


def test_a_process_attaches_and_does_not_stop_what_is_not_its_own(
    spark: SparkSession, spark_processes: Sharing, tmp_path: Path
):
    said = spark_processes.start("support.spark_tasks:say_which", str(tmp_path / "warehouse")).finish()
    assert said == [spark.sparkContext.applicationId]
    assert spark.range(3).count() == 3


def test_what_a_killed_process_had_begun_is_over_when_the_test_goes_on(spark: SparkSession, spark_processes: Sharing):
    jobs = spark.sparkContext._jsc.sc().dagScheduler()
    before = jobs.numTotalJobs()
    child = spark_processes.start("support.spark_tasks:sleep", 3000)
    eventually(lambda: jobs.numTotalJobs() > before)
    child.kill()
    child.close()
    assert jobs.activeJobs().size() == 0


# ---- several processes that maintain --------------------------------------------------------------------

SUMS = "SELECT customer, count(*) AS orders, sum(total) AS total FROM orders GROUP BY customer"
CARD = "SELECT id, customer, total FROM orders WHERE total > 3"


@contextlib.contextmanager
def maintaining(spark_processes: Sharing, where: str, *settings: dict[str, Any]) -> Iterator[dict[str, Child]]:
    """A process for each of the settings, by the names under which they hold leases."""
    children = [spark_processes.start("support.view_tasks:maintain", where, one) for one in settings]
    try:
        yield {child.line(): child for child in children}
    finally:
        for child in children:
            child.kill()
            child.close()


def holder_of(db: ebla.Database, lease: str) -> str | None:
    with db.context.catalog.reading() as connection:
        return tx.leader(connection, lease, db.context.catalog.clock())


def prepare(db: ebla.Database) -> None:
    db.sql("CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id))")
    db.table("orders").upsert([{"id": n, "customer": n % 7, "total": n % 5} for n in range(200)])


def assert_exact(db: ebla.Database, view: str, query: str) -> None:
    assert rows(db, view) == rows(db, query)


def is_fresh(db: ebla.Database, view: str) -> bool:
    """Asked without a Spark job."""
    return any(one["name"] == view and one["behind"] == 0 for one in db.sql("SHOW VIEWS").to_arrow().to_pylist())


def test_two_processes_finish_what_lies_on_both(
    spark: SparkSession, spark_processes: Sharing, catalog_url: str, tmp_path: Path
):
    """Each is a node of its own: neither waits for the other to do the tasks of its tablets."""
    two = {"node": "two", "storage_root": str(tmp_path / "two"), "leader_lease_s": 1.0}
    with maintaining(spark_processes, catalog_url, two) as children:
        one = {"node": "one", "storage_root": str(tmp_path / "one"), "leader_lease_s": 1.0}
        with connect(catalog_url, spark, **one) as db:
            prepare(db)
            hosts = db.sql("SELECT DISTINCT host_id FROM system.tablets").rows()
            assert names_of(db, {host for (host,) in hosts}) == {"one", "two"}
            db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}; CREATE INDEX by_customer ON orders (customer)")
            db.sql(f"CREATE ASYNC MATERIALIZED VIEW sums AS {SUMS}; WAIT FOR sums")
            assert_exact(db, "card", CARD)
            assert_exact(db, "sums", SUMS)
            # The process that leads dies: the other one goes on where it was.
            db.sql(f"CREATE ASYNC MATERIALIZED VIEW slow WITH (rows_per_minute = 600, chunk_rows = 10) AS {CARD}")
            eventually(lambda: holder_of(db, LEASE) is not None)
            for child in children.values():
                child.kill()
            db.sql("ALTER MATERIALIZED VIEW slow SET (rows_per_minute = NULL); WAIT FOR slow")
            assert_exact(db, "slow", CARD)


def test_a_handlers_epochs_run_in_one_process_and_move_when_it_dies(
    spark: SparkSession, spark_processes: Sharing, catalog_url: str, tmp_path: Path
):
    settings = {"storage_root": str(tmp_path / "data"), "driver_rows_max": 0, "tablets": 2}
    jobs = spark.sparkContext._jsc.sc().dagScheduler()
    counts: dict[int, int] = {}
    with connect(catalog_url, spark, auto_refresh=False, **settings) as db:
        prepare(db)
        db.sql(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
        for many in (1, 2, 3):
            with maintaining(spark_processes, catalog_url, *[settings] * many) as children:
                write_and_wait(db, 100 * many)
                before = jobs.numTotalJobs()
                for number in range(1, 5):
                    write_and_wait(db, 100 * many + number)
                counts[many] = jobs.numTotalJobs() - before
                held = holder_of(db, service_of("default"))
                assert held in children
                if many > 1:
                    children[held].kill()
                    write_and_wait(db, 100 * many + 5)
                    eventually(partial(is_held_by, db, children.keys() - {held}))
        assert len(set(counts.values())) == 1, f"Spark jobs of four writes, by the number of processes: {counts}"
        assert_exact(db, "sums", SUMS)


def is_held_by(db: ebla.Database, holders: Set[str]) -> bool:
    return holder_of(db, service_of("default")) in holders


def write_and_wait(db: ebla.Database, number: int) -> None:
    db.table("orders").upsert([{"id": number, "customer": number % 7, "total": number}])
    eventually(lambda: is_fresh(db, "sums"))
