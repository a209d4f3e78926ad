"""Scenarios of views that need more than one statement at a time: V1, V4, V7, V9, V11. The others: test_views.py."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

import ebla
from ebla.tables import value_lookup as lookup
from ebla.tables.sink import Sink
from support.recomputation import recomputed
from support.warehouse import shown

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE customers (id BIGINT, code STRING, name STRING, PRIMARY KEY (id));
CREATE TABLE orders (id BIGINT, customer BIGINT, code STRING, total INT, PRIMARY KEY (id));
CREATE TABLE lines (oid BIGINT, n INT, q INT, PRIMARY KEY (oid, n));
CREATE TABLE parcels (oid BIGINT, n INT, weight INT, PRIMARY KEY (oid, n));
CREATE TABLE notes (oid BIGINT, body STRING)
"""


def open_(where: Path, spark: SparkSession, **settings: Any) -> ebla.Database:
    manual: dict[str, Any] = {"auto_refresh": False, "auto_compact": False, "fsync": False, "tablets": 2}
    return ebla.connect(str(where), spark=spark, **{**manual, **settings})


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with open_(tmp_path / "warehouse", spark) as database:
        database.sql(TABLES)
        yield database


def create(db: ebla.Database, views: Mapping[str, str]) -> None:
    for name, query in views.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def bag(db: ebla.Database, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(db.sql(query).rows())


def check(db: ebla.Database, views: Mapping[str, str]) -> None:
    for name, query in views.items():
        assert shown(db, name) == recomputed(db, query), name


def plans(db: ebla.Database) -> dict[str, str]:
    return {row[0]: row[2] for row in db.sql("FLUSH").rows()}


# ---- V1 -------------------------------------------------------------------------------------------------


class Writers:
    """Threads that insert, update and delete until the block ends."""

    def __init__(self, db: ebla.Database, *writes: Callable[[random.Random], object]) -> None:
        self._db = db
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._go, args=(w, i)) for i, w in enumerate(writes)]
        self.count = 0

    def _go(self, write: Callable[[random.Random], object], seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not self._stopping.wait(0.02):
                write(chance)
                self.count += 1
        except BaseException as error:
            self._failures.append(error)

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        assert self._failures == []


def applied(db: ebla.Database, view: str) -> int:
    shown = db.sql("SHOW VIEWS")
    at = shown.columns.index("applied_version")
    return int(next(row[at] for row in shown.rows() if row[0] == view))


def rows_and_version(db: ebla.Database, view: str) -> tuple[Counter[tuple[Any, ...]], int]:
    """A view's rows with the base version that they show, although epochs go on."""
    for _ in range(100):
        before = applied(db, view)
        rows = bag(db, f"SELECT * FROM {view}")
        if applied(db, view) == before:
            return rows, before
    raise AssertionError("the view never stood still")


def test_v1_a_view_built_and_kept_while_writers_write_equals_its_query_at_its_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    views = {
        "card": "SELECT o.id, o.total, c.name FROM {orders} o LEFT JOIN {customers} c ON o.customer = c.id",
        "sums": "SELECT o.customer, count(*) AS n, sum(o.total) AS s FROM {orders} o GROUP BY o.customer",
        "noted": "SELECT o.total, x.body FROM {notes} x JOIN {orders} o ON x.oid = o.id",
    }
    tables = ("orders", "customers", "notes")

    def expected(db: ebla.Database, view: str, version: int) -> Counter[tuple[Any, ...]]:
        return bag(db, views[view].format(**{t: f"{t} VERSION AS OF {version}" for t in tables}))

    with open_(tmp_path / "warehouse", spark, auto_refresh=True, epoch_period_s=0.0) as db:
        db.sql(TABLES)

        def orders(chance: random.Random) -> None:
            rows = [{"id": chance.randrange(60), "customer": chance.randrange(8), "total": 1} for _ in range(3)]
            db.table("orders").upsert(rows)
            db.table("orders").delete([{"id": chance.randrange(60)}])

        def others(chance: random.Random) -> None:
            db.table("customers").upsert([{"id": chance.randrange(8), "name": chance.choice("abc")}])
            db.table("customers").delete([{"id": chance.randrange(8)}])
            db.table("notes").upsert([{"oid": chance.randrange(60), "body": "x"}] * 2)

        seen: dict[str, set[int]] = {view: set() for view in views}
        with Writers(db, orders, others) as writers:
            for view, query in views.items():
                written = writers.count
                db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query.format(**{t: t for t in tables})}")
                assert writers.count > written  # they did write meanwhile
                rows, version = rows_and_version(db, view)
                assert rows == expected(db, view, version), view
                seen[view].add(version)
            for view in views:
                rows, version = rows_and_version(db, view)
                assert rows == expected(db, view, version), view
                seen[view].add(version)
        db.sql("FLUSH")
        for view in views:
            rows, version = rows_and_version(db, view)
            assert rows == expected(db, view, version) == expected(db, view, db.version), view
            seen[view].add(version)
        assert all(len(versions) >= 2 for versions in seen.values())


# ---- V4 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_v4_deletes_of_leftmost_middle_and_dictionary_rows(db: ebla.Database, join: str) -> None:
    views = {
        "simple": f"SELECT o.id, o.total, c.name FROM orders o {join} customers c ON o.customer = c.id",
        "composite": f"SELECT l.oid, l.n, p.weight FROM lines l {join} parcels p ON l.oid = p.oid AND l.n = p.n",
        "computed": f"SELECT o.id, c.name FROM orders o {join} customers c ON upper(o.code) = c.code",
        "chain": f"SELECT l.oid, l.n, l.q, o.total, c.name FROM lines l {join} orders o ON l.oid = o.id "
        f"{join} customers c ON o.customer = c.id",
        "grouped": f"SELECT c.name, count(*) AS n, sum(l.q) AS q FROM lines l {join} orders o ON l.oid = o.id "
        f"{join} customers c ON o.customer = c.id GROUP BY c.name",
    }
    db.table("customers").upsert([{"id": i, "code": f"C{i}", "name": f"n{i // 2}"} for i in range(6)])
    db.table("orders").upsert([{"id": i, "customer": i % 7, "code": f"c{i % 7}", "total": i} for i in range(20)])
    db.table("lines").upsert([{"oid": i % 22, "n": i, "q": i} for i in range(60)])
    db.table("parcels").upsert([{"oid": i % 22, "n": i, "weight": i} for i in range(0, 60, 2)])
    create(db, views)
    steps = {
        "leftmost": "DELETE FROM lines WHERE n IN (1, 4, 23); DELETE FROM orders WHERE id = 19",
        "middle": "DELETE FROM orders WHERE id IN (2, 3, 8); DELETE FROM parcels WHERE n IN (6, 8, 40)",
        "dictionary": "DELETE FROM customers WHERE id IN (0, 5)",
        "all": "DELETE FROM lines WHERE oid = 5; DELETE FROM orders WHERE id IN (5, 6); "
        "DELETE FROM customers WHERE id = 2; DELETE FROM parcels WHERE oid = 9",
    }
    for step, text in steps.items():
        before = {view: bag(db, f"SELECT * FROM {view}") for view in ("simple", "chain")}
        db.sql(text)
        taken = plans(db)
        check(db, views)
        assert "full refresh" not in {taken[v] for v in views if v != "computed"}, step
        if step == "dictionary":
            lost = {v: (before[v] - bag(db, f"SELECT * FROM {v}")).total() for v in before}
            assert min(lost.values()) > 0  # inner: they leave; left: their names do
            assert ((None in {row[2] for row in bag(db, "SELECT * FROM simple")}) is (join == "LEFT JOIN")) is True


# ---- V7 -------------------------------------------------------------------------------------------------


class Collected:
    """How many rows at most came to the driver at once while views are refreshed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        for where, name in ((DataFrame, "toArrow"), (lookup, "_rows_by")):
            monkeypatch.setattr(where, name, self._noted(getattr(where, name)))
        monkeypatch.setattr(DataFrame, "collect", self._noted(DataFrame.collect, len))
        monkeypatch.setattr(DataFrame, "toPandas", self._noted(DataFrame.toPandas, len))

    def _noted(self, original: Any, size: Callable[[Any], int] = lambda table: int(table.num_rows)) -> Any:
        def wrapped(*given: Any, **named: Any) -> Any:
            found = original(*given, **named)
            self.most = max(self.most, size(found))
            return found

        return wrapped


def test_v7_one_dictionary_row_fans_out_to_300_000_rows_and_none_comes_to_the_driver(
    spark: SparkSession, db: ebla.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, per_scan = 300_000, 20_000
    db.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(4)])
    db.table("orders").upsert(spark.range(rows).selectExpr("id", "id % 2 AS customer", "'' AS code", "1 AS total"))
    db.table("lines").upsert([{"oid": 1, "n": n, "q": 1} for n in range(10)])
    create(
        db,
        {
            "card": "SELECT o.id, o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
            "quick": "SELECT oid, sum(q) AS q FROM lines GROUP BY oid",
        },
    )
    db.sql(
        "CREATE HANDLER shop PROCESS card, quick, INPUT orders AS STREAM, INPUT lines AS STREAM, "
        f"INPUT customers AS BATCH WITH (dictionary_rows_per_scan = {per_scan}, batch_rows_max = 1000)"
    )
    written: list[int] = []
    more = Sink.put_more

    def noted(sink: Sink, frame: DataFrame) -> int:
        written.append(more(sink, frame))
        return written[-1]

    monkeypatch.setattr(Sink, "put_more", noted)
    collected = Collected(monkeypatch)
    db.table("customers").upsert([{"id": 1, "name": "everywhere"}])
    refreshing = threading.Thread(target=lambda: db.epochs.of_dictionaries({"shop"}))
    refreshing.start()
    fresh = 0
    while refreshing.is_alive():
        db.table("lines").upsert([{"oid": 1, "n": 100 + fresh, "q": 1}])
        db.epochs.of_handler("shop")
        assert db.sql("SELECT q FROM quick").one() == (11 + fresh,)
        fresh += refreshing.is_alive()
        time.sleep(0.05)
    refreshing.join()
    assert fresh > 0  # another view of the same handler stayed fresh meanwhile
    assert collected.most <= 4 * 1000 + 1  # the row that tells that they do not fit
    assert len(written) > 1
    assert max(written) < rows // 2  # in slices
    found = db.sql("SELECT name, count(*) FROM card GROUP BY name ORDER BY name").rows()
    assert found == [("c0", rows // 2), ("everywhere", rows // 2)]
    commits = db.sql("SELECT count(*) FROM system.history WHERE reason LIKE 'refresh of card%'").one()[0]
    assert commits == 1 + len(written)  # its beginning, and each chunk with its position

    # Asked for, it goes without a pace: it begins as for a small change, and finds out before the rows are here.
    db.table("customers").upsert([{"id": 0, "name": "everywhere"}])
    db.sql("FLUSH card")
    assert collected.most <= 4 * 1000 + 1
    assert db.sql("SELECT name, count(*) FROM card GROUP BY name").rows() == [("everywhere", rows)]


# ---- V9 -------------------------------------------------------------------------------------------------


def test_v9_duplicates_keep_their_multiplicity_through_unions_and_except(db: ebla.Database) -> None:
    views = {
        "joined": "SELECT o.total, x.body FROM notes x JOIN orders o ON x.oid = o.id",
        "united": "SELECT body FROM notes UNION ALL SELECT code FROM orders",
        "merged": "SELECT body FROM notes UNION SELECT code FROM orders",
        "rest": "SELECT body FROM notes EXCEPT ALL SELECT code FROM orders",
        "some": "SELECT body FROM notes INTERSECT ALL SELECT code FROM orders",
    }
    db.table("orders").upsert([{"id": i, "code": "ab"[i % 2], "total": i // 2} for i in range(6)])
    db.sql("INSERT INTO notes VALUES (1, 'a'), (1, 'a'), (1, 'a'), (1, 'a'), (2, 'b'), (2, 'c'), (2, 'c')")
    create(db, views)
    assert bag(db, "SELECT * FROM rest") == Counter({("a",): 1, ("c",): 2})
    assert bag(db, "SELECT * FROM some") == Counter({("a",): 3, ("b",): 1})
    for text in (
        "INSERT INTO notes VALUES (1, 'a'), (3, 'b'), (3, 'b')",
        "DELETE FROM orders WHERE id IN (0, 1)",
        "UPDATE orders SET code = 'c' WHERE id = 2; DELETE FROM notes WHERE body = 'b' AND oid = 3",
        "INSERT INTO notes VALUES (1, 'a'), (1, 'a'); DELETE FROM notes WHERE body = 'c'",
    ):
        db.sql(text)
        assert "full refresh" not in plans(db).values()
        check(db, views)
    db.sql("DELETE FROM notes; FLUSH")
    check(db, views)


# ---- V11 ------------------------------------------------------------------------------------------------


def test_v11_nulls_in_join_keys_group_keys_predicates_and_aggregates(db: ebla.Database) -> None:
    views = {
        "inner_": "SELECT o.id, c.id AS cid FROM orders o JOIN customers c ON o.code = c.code",
        "outer_": "SELECT o.id, c.id AS cid FROM orders o LEFT JOIN customers c ON o.code = c.code",
        "safe": "SELECT o.id, c.id AS cid FROM orders o JOIN customers c ON o.code <=> c.code",
        "groups": "SELECT code, count(*) AS n, count(total) AS t, sum(total) AS s, avg(total) AS a, min(total) AS low, "
        "max(total) AS top FROM orders GROUP BY code",
        "whole": "SELECT count(total) AS n, sum(total) AS s, min(total) AS low FROM orders",
        "big": "SELECT id FROM orders WHERE total > 5",
        "not_big": "SELECT id FROM orders WHERE NOT total > 5",
        "unlisted": "SELECT id FROM orders WHERE code NOT IN (SELECT code FROM customers)",
        "alone": "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.code = o.code)",
        "distinct_": "SELECT DISTINCT code, total FROM orders",
    }
    db.sql("INSERT INTO customers VALUES (1, 'a', 'x'), (2, 'b', 'x')")
    db.sql("INSERT INTO orders VALUES (1, 1, 'a', 9), (2, 1, NULL, 3), (3, 1, NULL, NULL), (4, 1, 'z', NULL)")
    create(db, views)
    assert bag(db, "SELECT * FROM outer_") == Counter([(1, 1), (2, None), (3, None), (4, None)])
    assert bag(db, "SELECT code, n, t, s FROM groups") == Counter([("a", 1, 1, 9), (None, 2, 1, 3), ("z", 1, 0, None)])
    assert bag(db, "SELECT * FROM unlisted") == Counter([(4,)])
    for text in (
        "INSERT INTO customers VALUES (3, NULL, 'x')",  # now NOT IN lets no row pass, and <=> finds a partner
        "UPDATE orders SET code = NULL WHERE id = 1; UPDATE orders SET total = 7 WHERE id = 3",
        "UPDATE orders SET code = 'b', total = NULL WHERE id = 2; DELETE FROM orders WHERE id = 4",
        "DELETE FROM customers WHERE code IS NULL; UPDATE customers SET code = NULL WHERE id = 2",
        "UPDATE orders SET total = NULL; UPDATE customers SET code = 'q'",
    ):
        db.sql(text)
        db.sql("FLUSH")
        check(db, views)
        if "VALUES (3, NULL" in text:
            assert bag(db, "SELECT * FROM unlisted") == Counter()
            assert bag(db, "SELECT * FROM safe") == Counter([(1, 1), (2, 3), (3, 3)])
    assert db.sql("SELECT * FROM whole").rows() == [(0, None, None)]
