"""Processes that die in epochs, at every place and whichever way the epoch takes: rows and position move together.

A reader finds after a crash each view equal to its query at the versions that the view names; another process goes
on from there; nothing is left over in the end.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.base.failpoint import EXIT_CODE
from ebla.values import token
from support.processes import Processes, Sharing
from support.recomputation import recomputed
from support.warehouse import later, named, shown, stored

pytestmark = [pytest.mark.spark, pytest.mark.process]

QUERIES = {
    "card": "SELECT o.id, o.total, c.name FROM {orders} o LEFT JOIN {customers} c ON o.customer = c.id",
    "sums": "SELECT o.customer, count(*) AS n, sum(o.total) AS total FROM {orders} o GROUP BY o.customer",
    "shares": "SELECT o.id, count(*) OVER () AS n FROM {orders} o",  # cannot be followed: always recomputed
}
INPUTS = ("orders", "customers")
SMALL: dict[str, Any] = {}
LARGE = {"batch_rows_max": 2}
"""With this limit, five rows are a large change, and rows are written by Spark."""
WITH_ITS_SPARK = "epoch.slice_written=exit"
"""Where a process dies together with a Spark of its own; at the other places it shares the one of the tests."""


@pytest.fixture(scope="module")
def db(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    where = tmp_path_factory.mktemp("warehouse")
    with ebla.connect(
        str(where), spark=spark, tablets=2, auto_compact=False, auto_refresh=False, fsync=False
    ) as database:
        database.sql(
            "CREATE TABLE orders (id BIGINT, customer BIGINT, total BIGINT, PRIMARY KEY (id));"
            "CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id))"
        )
        database.table("orders").upsert([{"id": i, "customer": i % 6, "total": i} for i in range(100)])
        database.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(6)])
        for name, query in QUERIES.items():
            database.sql(f"CREATE MATERIALIZED VIEW {name} AS {plain(query)}")
        database.sql(
            "CREATE HANDLER shop PROCESS card, sums, shares, INPUT orders AS STREAM, INPUT customers AS BATCH "
            "WITH (dictionary_rows_per_scan = 10)"
        )
        yield database
        later(database)
        database.vacuum(retain_s=0)
        assert stored(database) == named(database)


def plain(query: str) -> str:
    return query.format(**{n: n for n in INPUTS})


def positions(db: ebla.Database) -> dict[str, dict[str, int]]:
    shown = db.sql("SHOW VIEWS").to_arrow().to_pylist()
    return {row["name"]: json.loads(row["read_versions"] or "{}") for row in shown}


def refresh_of(db: ebla.Database, view: str) -> Any:
    text = db.sql(f"SELECT refresh FROM system.views WHERE name = '{view}'").one()[0]
    return None if text is None else json.loads(text)


def bag(db: ebla.Database, text: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(text).rows())


def assert_exact(db: ebla.Database) -> None:
    """Each view equals its query over its inputs at the versions that the view names, each part at its own."""
    for view, read in positions(db).items():
        if view in QUERIES:
            assert bag(db, f"SELECT * FROM {view}") == should_be(db, view, read), (view, read)


def should_be(db: ebla.Database, view: str, read: dict[str, int]) -> Counter[tuple[Any, ...]]:
    def answer(versions: dict[str, int]) -> pa.Table:
        at = {n: f"{n} VERSION AS OF {versions.get(n, 0)}" for n in INPUTS}
        return db.sql(QUERIES[view].format(**at)).to_arrow()

    refresh = refresh_of(db, view)
    old = answer(read)
    if refresh is None:
        return rows_of(old)
    new, by, up_to = answer({**read, **refresh["to"]}), refresh["by"], refresh["up_to"]

    def part(rows: pa.Table, refreshed: bool) -> pa.Table:
        kept = [(up_to is not None and one <= up_to) == refreshed for one in token.tokens(rows.select(by), by)]
        return rows.filter(pa.array(kept, pa.bool_()))

    return rows_of(part(new, True)) + rows_of(part(old, False))


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def assert_current(db: ebla.Database) -> None:
    for view, query in QUERIES.items():
        assert shown(db, view) == recomputed(db, plain(query)), view


def change(db: ebla.Database) -> None:
    number = db.version  # other rows, and other values, each time
    db.table("orders").upsert([{"id": (number + i) % 120, "customer": i, "total": number} for i in range(5)])
    db.table("orders").delete([{"id": (number + 7) % 120}])


@pytest.mark.parametrize(
    ("settings", "point"),
    [
        (SMALL, "epoch.before_commit=exit@2"),
        (SMALL, "epoch.committed=exit@2"),
        (SMALL, "catalog.commit.applied=exit@2"),
        (LARGE, "epoch.slice_written=exit"),
        (LARGE, "epoch.before_commit=exit@2"),
        (LARGE, "epoch.committed=exit@2"),
    ],
    ids=lambda given: ("large" if given else "small") if isinstance(given, dict) else given,
)
def test_a_process_that_dies_in_the_epochs_of_a_flush(
    db: ebla.Database, processes: Processes, spark_processes: Sharing, settings: dict[str, Any], point: str
) -> None:
    run = processes.run if point == WITH_ITS_SPARK else spark_processes.run
    before = positions(db)
    change(db)
    assert run("support.view_tasks:flush", db.context.catalog.where, settings, failpoints=point) == EXIT_CODE
    moved = {view for view, read in positions(db).items() if read != before[view]}
    assert moved != set(QUERIES)
    assert len(moved) == (2 if "committed" in point else len(moved))
    assert_exact(db)
    db.sql("FLUSH")
    assert_current(db)


@pytest.mark.parametrize(
    ("point", "chunks"), [("refresh.begun", 0), ("refresh.before_commit", 0), ("refresh.committed", 1)]
)
def test_a_process_that_dies_in_a_refresh_is_followed_by_one_that_goes_on_at_its_position(
    db: ebla.Database, spark_processes: Sharing, point: str, chunks: int
) -> None:
    where, task = db.context.catalog.where, "support.view_tasks:of_dictionaries"
    db.sql("FLUSH")
    db.table("customers").upsert([{"id": 1, "name": f"new {db.version}"}])
    touched = db.sql("SELECT count(*) FROM orders WHERE customer = 1").one()[0]
    assert spark_processes.run(task, where, "shop", failpoints=f"{point}=exit") == EXIT_CODE
    at = refresh_of(db, "card")
    assert (at["rows"], at["up_to"] is not None, at["expected"]) == (10 * chunks, chunks > 0, touched)
    assert db.sql(f"SELECT count(*) FROM card WHERE name LIKE 'new {db.version}%'").one()[0] <= 10 * chunks
    assert db.sql("CHECK VIEW card").one()[2:5] == (0, 0, 0)
    assert_exact(db)
    change(db)
    db.epochs.of_handler("shop")
    assert db.sql("CHECK VIEW card").one()[2:5] == (0, 0, 0)
    done = spark_processes.start(task, where, "shop").finish()
    assert set(done) == {"card refresh"}
    assert refresh_of(db, "card") is None
    assert len(done) <= touched // 10 + 2 - chunks
    assert_current(db)


@pytest.mark.parametrize(
    ("view", "point"),
    [("sums", "write.tablets_written"), ("sums", "build.chunk_committed"), ("shares", "epoch.committed")],
)
def test_a_process_that_dies_in_a_first_build(
    db: ebla.Database, spark_processes: Sharing, view: str, point: str
) -> None:
    """Of a view that is built in chunks, and of one that is built in one piece."""
    where = db.context.catalog.where
    query = plain(QUERIES[view])
    db.sql("FLUSH")
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW late AS {query}")
    assert spark_processes.run("support.view_tasks:flush", where, LARGE, failpoints=f"{point}=exit") == EXIT_CODE
    with pytest.raises(ebla.SnapshotError, match="WAIT FOR late"):
        db.sql("SELECT * FROM late")
    assert (db.progress("late").progress.tablets == "2/2") == point.endswith("committed")
    db.sql("WAIT FOR late")
    assert bag(db, "SELECT * FROM late") == bag(db, query)
    db.sql("DROP MATERIALIZED VIEW late")


def test_processes_killed_at_any_moment_of_background_epochs(
    db: ebla.Database, processes: Processes, spark_processes: Sharing
) -> None:
    """The first dies together with a Spark of its own."""
    chance = random.Random()
    epochs = 0
    for seed in range(3):
        before = positions(db)
        start = spark_processes.start if seed else processes.start
        child = start("support.view_tasks:write_and_refresh_forever", db.context.catalog.where, seed)
        while positions(db) == before:
            assert child.line(), child.errors()
        time.sleep(chance.uniform(0, 1.5))
        child.kill()
        child.close()
        assert_exact(db)
        epochs += positions(db) != before
    assert epochs == 3
    db.sql("FLUSH")
    assert_exact(db)
    assert_current(db)
