"""Changes of dictionaries taken in chunk by chunk: exact at every version, at a pace, and never lost.

Rows are compared with DuckDB's answer to the view's query, over the tables as they were at the versions that the view
names: behind the position of its refresh those with the new dictionaries, beyond it those with the old ones.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.catalog import reads
from ebla.errors import ConflictError
from ebla.model.handlers import Handler
from ebla.relations.views import View
from ebla.values import token, types
from ebla.views.epoch.mutations import column_of
from ebla.views.handlers.epochs import Locks
from ebla.views.handlers.refreshes import Refreshes
from support.warehouse import eventually, refused

pytestmark = pytest.mark.spark

COLUMNS = {
    "orders": {"id": "bigint", "customer": "bigint", "country": "int", "total": "int"},
    "customers": {"id": "bigint", "name": "string"},
    "countries": {"id": "int", "name": "string", "area": "int"},
}
QUERIES = {
    "card": """SELECT o.id, o.total, c.name AS customer, k.name AS country FROM {orders} o
        LEFT JOIN {customers} c ON o.customer = c.id LEFT JOIN {countries} k ON o.country = k.id""",
    "large": """SELECT o.id AS `Order Id`, k.name, o.total FROM {orders} o JOIN {countries} k ON o.country = k.id
        WHERE k.area > 1""",
    "weighed": """SELECT o.customer, count(*) AS n, sum(o.total * k.area) AS weight FROM {orders} o
        JOIN {countries} k ON o.country = k.id GROUP BY o.customer""",
    "at": "SELECT k.id AS k, o.id, k.name FROM {countries} k LEFT JOIN {orders} o ON o.country = k.id",
    "by_name": """SELECT k.name, count(*) AS n FROM {orders} o JOIN {countries} k ON o.country = k.id
        GROUP BY k.name""",
}
CUTS = {"card": ["id"], "large": ["Order Id"], "weighed": ["customer"], "at": ["k"]}
HANDLER = f"""CREATE HANDLER shop PROCESS {", ".join(QUERIES)},
    INPUT orders AS STREAM, INPUT customers AS BATCH, INPUT countries AS BATCH WITH (dictionary_rows_per_scan = 2)"""

Rows = dict[int, dict[str, Any]]


class Shop:
    """A warehouse, and what its tables were after each write."""

    def __init__(self, db: ebla.Database) -> None:
        self.db = db
        self._now: dict[str, Rows] = {name: {} for name in COLUMNS}
        self._past: dict[str, list[tuple[int, Rows]]] = {name: [] for name in COLUMNS}

    def put(self, table: str, *rows: Mapping[str, Any]) -> None:
        self.db.table(table).upsert([dict(row) for row in rows])
        self._now[table] |= {row["id"]: {**dict.fromkeys(COLUMNS[table]), **row} for row in rows}
        self._past[table].append((self.db.version, dict(self._now[table])))

    def delete(self, table: str, key: int) -> None:
        self.db.table(table).delete([{"id": key}])
        self._now[table].pop(key, None)
        self._past[table].append((self.db.version, dict(self._now[table])))

    def fill(self, orders: int) -> None:
        self.put("orders", *({"id": i, "customer": i % 4, "country": i % 3, "total": i} for i in range(orders)))
        self.put("customers", *({"id": i, "name": f"c{i}"} for i in range(4)))
        self.put("countries", *({"id": i, "name": f"k{i}", "area": i} for i in range(3)))

    # ---- what a view should have ------------------------------------------------------------------------

    def at(self, table: str, version: int) -> Rows:
        return next((rows for since, rows in reversed(self._past[table]) if since <= version), {})

    def answer(self, view: str, versions: Mapping[str, int]) -> pa.Table:
        cursor = duckdb.connect(":memory:")
        for name, columns in COLUMNS.items():
            rows = self.at(name, versions.get(name, 0)).values()
            schema = pa.schema([(n, types.to_arrow(kind)) for n, kind in columns.items()])
            cursor.register(name, pa.Table.from_pylist(list(rows), schema=schema))
        return cursor.sql(QUERIES[view].format(**{n: n for n in COLUMNS}).replace("`", '"')).to_arrow_table()

    def should_be(self, view: str) -> Counter[tuple[Any, ...]]:
        """The query at the versions that the view names, each part at its own."""
        at = shown(self.db, view)
        read, refresh = json.loads(at["read_versions"]), json.loads(at["refresh"] or "null")
        old = self.answer(view, read)
        if refresh is None:
            return bag(old)
        assert refresh["by"] == CUTS[view]
        new = self.answer(view, {**read, **refresh["to"]})
        return bag(self._part(view, new, refresh, True)) + bag(self._part(view, old, refresh, False))

    def _part(self, view: str, rows: pa.Table, refresh: Mapping[str, Any], behind: bool) -> pa.Table:
        with self.db.context.catalog.reading() as connection:
            relation = reads.relation(connection, view)
        schema = pa.schema([(n, types.to_arrow(column_of(relation, n).type)) for n in refresh["by"]])
        tokens = token.tokens(rows.select(refresh["by"]).cast(schema), refresh["by"])
        up_to = refresh["up_to"]
        kept = [(up_to is not None and one <= up_to) == behind for one in tokens]
        return rows.filter(pa.array(kept, pa.bool_()))

    def assert_exact(self, *views: str) -> None:
        for view in views or QUERIES:
            found = self.db.query(view, limit=10_000).to_arrow()
            assert bag(found) == self.should_be(view), view

    def assert_current(self, *views: str) -> None:
        for view in views or QUERIES:
            assert bag(self.db.query(view, limit=10_000).to_arrow()) == bag(
                self.answer(view, dict.fromkeys(COLUMNS, self.db.version))
            ), view


def bag(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def shown(db: ebla.Database, view: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in db.sql("SHOW VIEWS").to_arrow().to_pylist() if r["name"] == view)
    return found


def progress(db: ebla.Database, view: str) -> dict[str, Any]:
    found: dict[str, Any] = db.sql(f"SHOW PROGRESS {view}").to_arrow().to_pylist()[0]
    return found


def refreshing(db: ebla.Database) -> set[str]:
    return {r["name"] for r in db.sql("SHOW VIEWS").to_arrow().to_pylist() if r["refresh"] is not None}


def open_(where: Path, spark: SparkSession, **settings: Any) -> ebla.Database:
    manual: dict[str, Any] = {"auto_refresh": False, "auto_compact": False, "fsync": False, "tablets": 2}
    return ebla.connect(str(where), spark=spark, **{**manual, **settings})


class Prepared:
    """A warehouse of which each test gets a copy, and what is in it."""

    def __init__(self, where: Path, spark: SparkSession) -> None:
        self._where, self.spark = where, spark
        with open_(where, spark) as db:
            for name, columns in COLUMNS.items():
                listed = ", ".join(f"{n} {kind}" for n, kind in columns.items())
                db.sql(f"CREATE TABLE {name} ({listed}, PRIMARY KEY (id))")
            self._shop = Shop(db)
            self._shop.fill(24)
            for name, query in QUERIES.items():
                db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query.format(**{n: n for n in COLUMNS})}")
            db.sql(HANDLER)

    def copy(self, where: Path, **settings: Any) -> Shop:
        shop = Shop(open_(shutil.copytree(self._where, where), self.spark, **settings))
        for table, past in self._shop._past.items():
            shop._past[table], shop._now[table] = list(past), dict(self._shop._now[table])
        return shop


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("prepared") / "warehouse", spark)


@pytest.fixture
def shop(prepared: Prepared, tmp_path: Path) -> Iterator[Shop]:
    made = prepared.copy(tmp_path / "warehouse")
    with made.db:
        yield made


# ---- anything at any time -------------------------------------------------------------------------------


def write(shop: Shop, chance: random.Random) -> None:
    key = chance.randrange(30)
    match chance.randrange(7):
        case 0 | 1:
            customer, country = chance.choice([None, *range(6)]), chance.choice([None, *range(5)])
            shop.put("orders", {"id": key, "customer": customer, "country": country, "total": chance.randrange(9)})
        case 2:
            shop.delete("orders", key)
        case 3:
            shop.put("customers", {"id": key % 6, "name": chance.choice("abc")})
        case 4 | 5:
            row = {"id": key % 5, "name": chance.choice("abc"), "area": chance.choice([None, 0, 1, 2, 3])}
            shop.put("countries", row)
        case _:
            shop.delete(chance.choice(["customers", "countries"]), key % 5)


def act(shop: Shop, chance: random.Random) -> None:
    """Something that moves views, or a statement about their refreshes."""
    db = shop.db
    match chance.randrange(12):
        case 0 | 1 | 2 | 3:
            db.epochs.gather()
            db.epochs.refresh({"shop"}, {"shop"})
        case 4 | 5:
            db.epochs.refresh({"shop"}, {"shop"})
        case 6 | 7:
            db.epochs.of_handler("shop")
        case 8:
            db.sql(f"ALTER HANDLER shop SET (dictionary_rows_per_scan = {chance.randrange(1, 4)})")
        case 9:
            for view in refreshing(db):
                how = chance.choice(["PAUSE", "RESUME", "RESUME", "SET (chunk_rows = 1)"])
                db.sql(f"ALTER MATERIALIZED VIEW {view} {how}")
        case 10:
            for view in sorted(refreshing(db))[:1]:
                db.sql(f"CANCEL BUILD {view}")
        case _:
            view = chance.choice(list(QUERIES))
            db.sql(f"FLUSH {view}")
            assert shown(db, view)["refresh"] is None


@pytest.mark.parametrize("seed", [1, 4])
def test_views_equal_their_queries_at_the_versions_they_name_while_they_are_refreshed(shop: Shop, seed: int) -> None:
    chance = random.Random(seed)
    seen: set[str] = set()
    for _ in range(22):
        for _ in range(chance.randrange(3)):
            write(shop, chance)
        act(shop, chance)
        seen |= refreshing(shop.db)
        shop.assert_exact()
    assert seen
    for view in refreshing(shop.db):
        shop.db.sql(f"ALTER MATERIALIZED VIEW {view} RESUME")
    shop.db.epochs.of_handler("shop")
    shop.db.epochs.of_dictionaries({"shop"})
    shop.db.epochs.of_handler("shop")
    assert not refreshing(shop.db)
    shop.assert_current()


@pytest.mark.parametrize("ends", ["FLUSH", "chunks"])
def test_the_same_on_spark_where_no_change_is_small(prepared: Prepared, tmp_path: Path, ends: str) -> None:
    """Every chunk and every epoch has more rows than fit the driver."""
    shop = prepared.copy(tmp_path / "warehouse", batch_rows_max=1, driver_rows_max=0)
    left = ("card", "at") if ends == "FLUSH" else ("large", "weighed")
    with shop.db as db:
        for view in QUERIES.keys() - set(left):
            db.sql(f"DROP MATERIALIZED VIEW {view}")
        db.sql("ALTER HANDLER shop SET (dictionary_rows_per_scan = 1)")
        shop.put("countries", {"id": 0, "name": "new", "area": 5}, {"id": 1, "name": "too", "area": 0})
        shop.put("customers", {"id": 1, "name": "new"}, {"id": 9, "name": "none"})
        db.epochs.gather()
        db.epochs.refresh({"shop"}, {"shop"})
        db.epochs.refresh({"shop"}, {"shop"})
        assert refreshing(db) == set(left)
        shop.assert_exact(*left)
        shop.put("orders", *({"id": i, "customer": i % 2, "country": i % 4, "total": i} for i in range(20, 28)))
        shop.delete("orders", 3)
        db.epochs.of_handler("shop")
        assert refreshing(db) == set(left)
        shop.assert_exact(*left)
        assert db.sql(f"CHECK VIEW {left[-1]}").one()[2:5] == (0, 0, 0)
        db.sql("ALTER HANDLER shop SET (dictionary_rows_per_scan = 12)")
        if ends == "FLUSH":
            db.sql("FLUSH")
        else:
            db.epochs.of_dictionaries({"shop"})
        assert not refreshing(db)
        shop.assert_current(*left)


# ---- pace -----------------------------------------------------------------------------------------------


def test_so_many_rows_at_so_many_a_second_take_so_many_seconds(shop: Shop) -> None:
    """Of a view that is cut, and of one that is not."""
    db = shop.db
    shop.put("orders", *({"id": i, "customer": i % 4, "country": 1, "total": i} for i in range(1200)))
    db.sql("FLUSH; ALTER HANDLER shop SET (dictionary_rows_per_s = 800, dictionary_rows_per_scan = 100000)")
    for view in ("large", "weighed", "at", "by_name"):
        db.sql(f"DROP MATERIALIZED VIEW {view}")
    shop.put("countries", {"id": 1, "name": "everywhere", "area": 1})
    began = time.monotonic()
    done = db.epochs.of_dictionaries({"shop"})
    assert time.monotonic() - began >= 1200 / 800
    assert [(one.plan, one.gained) for one in done] == [("refresh", 1200)]
    shop.assert_current("card")


def test_a_slow_refresh_keeps_nobody_waiting_and_does_what_it_is_told(prepared: Prepared, tmp_path: Path) -> None:
    where = tmp_path / "warehouse"
    quick = {"auto_refresh": True, "epoch_period_s": 0.0, "dictionary_period_s": 0.0}
    shop = prepared.copy(where, **quick)
    db = shop.db
    for view in ("large", "weighed", "at"):
        db.sql(f"DROP MATERIALIZED VIEW {view}")
    db.sql("ALTER HANDLER shop SET (dictionary_rows_per_s = 5, dictionary_rows_per_scan = 3)")
    shop.put("countries", {"id": 1, "name": "slowly", "area": 1}, {"id": 2, "name": "too", "area": 1})
    eventually(lambda: progress(db, "card")["rows"] > 0)
    eventually(lambda: progress(db, "card")["phase"] == "refreshing")
    at = progress(db, "card")
    assert (at["phase"], at["base"], at["rows_expected"], at["eta_s"] > 0) == ("refreshing", "countries", 16, True)
    assert 0 < at["percent"] < 100
    assert db.sql("SELECT phase FROM system.build_progress WHERE name = 'card'").one() == ("refreshing",)

    # A new order is there long before the refresh has come to its end, and other views are fresh.
    shop.put("orders", {"id": 500, "customer": 1, "country": 0, "total": 5})
    eventually(lambda: db.query("card", where={"id": 500}).rows() != [])
    eventually(lambda: shown(db, "by_name")["age_s"] == 0)

    # Paused it stands still, whatever happens to streams.
    db.sql("ALTER MATERIALIZED VIEW card PAUSE")
    paused = progress(db, "card")
    assert (paused["phase"], paused["detail"]) == ("waiting", "RESUME: it is paused")
    shop.put("orders", {"id": 501, "customer": 1, "country": 1, "total": 5})
    eventually(lambda: db.query("card", where={"id": 501}).rows() != [])
    assert progress(db, "card")["rows"] == paused["rows"]
    shop.assert_exact("card")
    db.sql("CANCEL BUILD card")
    assert "cancelled" in progress(db, "card")["detail"]
    with refused(db, ebla.UsageError, "expected rows_per_minute or chunk_rows, found concurrency"):
        db.sql("ALTER MATERIALIZED VIEW card SET (concurrency = 2)")
    assert progress(db, "card")["rows"] == paused["rows"]

    # It ends with its process, which does not wait for the minute of a row, and another process goes on at its
    # position, at another rate.
    db.sql("ALTER MATERIALIZED VIEW card SET (rows_per_minute = 1); ALTER MATERIALIZED VIEW card RESUME")
    assert progress(db, "card")["rows_per_minute"] == 1
    began = time.monotonic()
    db.close()
    assert time.monotonic() - began < 60
    with open_(where, prepared.spark, **quick) as db:
        shop.db = db
        eventually(lambda: progress(db, "card")["phase"] == "refreshing")
        assert progress(db, "card")["rows"] == paused["rows"]
        db.sql("ALTER MATERIALIZED VIEW card SET (rows_per_minute = NULL)")
        db.sql("ALTER HANDLER shop SET (dictionary_rows_per_s = NULL, dictionary_rows_per_scan = 1000)")
        eventually(lambda: progress(db, "card")["phase"] == "readable")
        assert progress(db, "card")["percent"] == 100
        eventually(lambda: shown(db, "card")["age_s"] == 0)
        shop.assert_current("card", "by_name")


def test_a_cancelled_refresh_goes_on_with_the_next_change(shop: Shop) -> None:
    db = shop.db
    shop.put("countries", {"id": 1, "name": "new", "area": 1})
    db.epochs.gather()
    for _ in range(2):
        db.epochs.refresh({"shop"}, {"shop"})
    db.sql("CANCEL BUILD card")
    stands = progress(db, "card")["rows"]
    db.epochs.of_dictionaries({"shop"})
    assert refreshing(db) == {"card"}
    assert progress(db, "card")["rows"] == stands
    shop.assert_exact()
    shop.put("countries", {"id": 2, "name": "newer", "area": 1})
    db.epochs.of_dictionaries({"shop"})
    shop.assert_current()


def test_views_are_cut_by_what_no_dictionary_decides_and_say_so(shop: Shop) -> None:
    def said(view: str) -> str:
        text: str = shop.db.sql(f"EXPLAIN MATERIALIZED VIEW {view}").one()[0]
        return next(line.strip() for line in text.splitlines() if "dictionaries" in line)

    assert said("card") == "dictionaries: countries, customers; a change is taken in by chunks of (id)"
    assert said("weighed") == "dictionaries: countries; a change is taken in by chunks of (customer)"
    assert said("by_name") == (
        "dictionaries: countries; a change is taken in by one chunk: dictionaries decide on all columns of its key"
    )
    shop.db.sql("DROP HANDLER shop")
    assert "dictionaries" not in shop.db.sql("EXPLAIN MATERIALIZED VIEW card").one()[0]


def test_a_view_that_leaves_its_handler_in_a_refresh_is_brought_up_to_date_by_the_next_epoch(shop: Shop) -> None:
    shop.put("countries", {"id": 1, "name": "new", "area": 1})
    shop.db.epochs.gather()
    for _ in range(2):
        shop.db.epochs.refresh({"shop"}, {"shop"})
    assert refreshing(shop.db)
    shop.db.sql("DROP HANDLER shop")
    shop.db.epochs.of_handler("default")
    assert not refreshing(shop.db)
    shop.assert_current()


def test_a_refresh_that_fails_on_a_row_goes_on_when_the_dictionary_is_mended(shop: Shop) -> None:
    db = shop.db
    db.sql(
        """CREATE MATERIALIZED VIEW ratio AS
            SELECT o.id, o.total / k.area AS r FROM orders o JOIN countries k ON o.country = k.id WHERE k.id > 0;
        CREATE HANDLER own PROCESS ratio, INPUT countries AS BATCH WITH (dictionary_rows_per_scan = 3)"""
    )
    before = sorted(db.query("ratio", limit=10_000).rows())
    shop.put("countries", {"id": 1, "name": "k1", "area": 0})
    db.epochs.of_dictionaries({"own"})
    at = shown(db, "ratio")
    assert at["status"] == "failed"
    assert "DIVIDE_BY_ZERO" in at["message"]
    assert at["refresh"] is not None
    assert sorted(db.query("ratio", limit=10_000).rows()) == before
    assert db.epochs.of_dictionaries({"own"}) == []  # what is wrong is as wrong as before

    shop.put("orders", {"id": 400, "customer": 1, "country": 2, "total": 8})
    db.epochs.of_handler("own")  # streams are followed with the dictionary as it was
    assert db.query("ratio", where={"id": 400}).rows() == [(400, 4.0)]
    shop.put("countries", {"id": 1, "name": "k1", "area": 4})
    for _ in range(2):  # the first one may still try to get to the version that it began with
        db.epochs.of_dictionaries({"own"})
    at = shown(db, "ratio")
    assert (at["status"], at["refresh"]) == ("ready", None)
    assert db.query("ratio", where={"id": 1}).rows() == [(1, 0.25)]
    assert db.sql("CHECK VIEW ratio").one()[2:5] == (0, 0, 0)


def test_a_row_of_a_stream_that_fails_keeps_no_chunk_from_going_on_at_its_pace(shop: Shop) -> None:
    db = shop.db
    db.sql(
        """CREATE MATERIALIZED VIEW ratio AS
            SELECT o.id, k.area / o.total AS r FROM orders o JOIN countries k ON o.country = k.id WHERE o.id > 0;
        CREATE HANDLER own PROCESS ratio, INPUT countries AS BATCH WITH (dictionary_rows_per_scan = 3)"""
    )
    shop.put("countries", {"id": 1, "name": "k1", "area": 100})
    db.epochs.gather()
    for _ in range(2):  # begin, and one chunk
        db.epochs.refresh({"own"}, {"own"})
    first = progress(db, "ratio")["rows"]
    shop.put("orders", {"id": 400, "customer": 1, "country": 2, "total": 0})
    db.epochs.of_handler("own")
    assert shown(db, "ratio")["status"] == "failed"
    db.epochs.refresh({"own"}, {"own"})
    at = shown(db, "ratio")
    assert (at["status"], "DIVIDE_BY_ZERO" in at["message"]) == ("failed", True)
    assert at["refresh"] is not None  # one chunk further, and not at the end
    assert first < progress(db, "ratio")["rows"] <= first + 4
    assert db.epochs.of_handler("own") == []  # what is wrong is as wrong as before
    db.epochs.of_dictionaries({"own"})
    assert shown(db, "ratio")["refresh"] is None
    assert db.query("ratio", where={"id": 1}).rows() == [(1, 100.0)]

    shop.put("orders", {"id": 400, "customer": 1, "country": 2, "total": 1})
    db.epochs.of_handler("own")
    assert shown(db, "ratio")["status"] == "ready"
    assert db.sql("CHECK VIEW ratio").one()[2:5] == (0, 0, 0)


@pytest.mark.parametrize("settings", [{}, {"batch_rows_max": 1, "driver_rows_max": 0}], ids=["few", "many"])
def test_a_dictionarys_key_that_the_views_column_cannot_hold_concerns_no_row(
    prepared: Prepared, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """`INT = BIGINT`: followed to the view's column, which is INT."""
    shop = prepared.copy(tmp_path / "warehouse", **settings)
    with shop.db as db:
        db.sql(
            """CREATE TABLE places (id BIGINT, name STRING, PRIMARY KEY (id));
            INSERT INTO places VALUES (0, 'a'), (1, 'b'), (2, 'c');
            CREATE MATERIALIZED VIEW per_place AS SELECT o.country, count(*) AS n, max(p.name) AS name
                FROM orders o JOIN places p ON o.country = p.id GROUP BY o.country;
            CREATE HANDLER own PROCESS per_place, INPUT places AS BATCH WITH (dictionary_rows_per_scan = 1);
            UPSERT INTO places VALUES (1, 'B'), (2, 'C'), (5000000000, 'far')"""
        )
        db.epochs.of_dictionaries({"own"})
        assert shown(db, "per_place")["refresh"] is None
        assert sorted(db.query("per_place").rows()) == [(0, 8, "a"), (1, 8, "B"), (2, 8, "C")]
        db.sql("DROP HANDLER own; UPSERT INTO places VALUES (2, 'cc'), (6000000000, 'farther')")
        db.sql("FLUSH per_place")
        assert sorted(db.query("per_place").rows()) == [(0, 8, "a"), (1, 8, "B"), (2, 8, "cc")]


def test_a_chunk_lets_an_epoch_of_another_process_end_first(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLUSH would start over with each chunk that comes before its commit."""
    shop = prepared.copy(tmp_path / "warehouse")
    with shop.db as db, open_(tmp_path / "warehouse", prepared.spark) as other:
        shop.put("countries", {"id": 1, "name": "new", "area": 5})
        db.epochs.gather()
        for _ in range(2):
            db.epochs.refresh({"shop"}, {"shop"})
        assert "card" in refreshing(db)
        chunks: list[Any] = []

        def chunk_first(name: str) -> None:
            if name == "epoch.before_commit":
                chunks.append(db.epochs.refresh({"shop"}, {"shop"}))

        monkeypatch.setattr("ebla.views.epoch.refresh_epoch.hit", chunk_first)
        other.sql("FLUSH card")
        monkeypatch.undo()
        assert len(chunks) == 1
        assert "card" not in {one.view for one in chunks[0].done}
        assert "card" not in refreshing(db)
        db.epochs.of_dictionaries({"shop"})
        shop.assert_current()


def test_what_goes_wrong_behind_a_chunk_is_not_the_chunks(shop: Shop) -> None:
    """An epoch that had to wait for the chunk fails: the chunk is done, and is not tried again."""
    db = shop.db

    def fail(view: View, handler: Handler) -> None:
        raise ConflictError(f"epoch of {view.relation.name}: another process came first")

    shop.put("countries", {"id": 1, "name": "new", "area": 1})
    db.epochs.gather()
    step = Refreshes(db.context, Locks().of, fail).advance({"shop"}, {"shop"})
    assert step.failed == {}
    assert "by_name" in {one.view for one in step.done}
    assert "card" in refreshing(db)
    shop.assert_exact()
