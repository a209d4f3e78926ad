"""`db.query` over tables as they come: schema changes, copies, damage, freshness. Level 1 is made without Spark."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import ebla
from ebla.predicates import conditions as c
from ebla.predicates.values import ExactValue
from ebla.query import picking
from ebla.query.answer import Answer
from ebla.storage import store
from support.first_rows import costs
from support.folding import fold
from support.warehouse import connect, damage, file_of, host, live_runs, refused


@pytest.fixture
def db(tmp_path):
    with connect(tmp_path / "w", auto_refresh=False) as database:
        database.sql(
            "CREATE TABLE orders (id BIGINT, status STRING, total DECIMAL(8,2), day DATE, tags ARRAY<STRING>, "
            "PRIMARY KEY (id))"
        )
        yield database


def fill(db: ebla.Database, count: int = 60) -> None:
    db.table("orders").upsert(
        [
            {
                "id": i,
                "status": ["open", "paid", None][i % 3],
                "total": Decimal(i * 7 % 20),
                "day": dt.date(2024, 1, 1) + dt.timedelta(days=i % 5),
                "tags": [str(i)] if i % 2 else None,
            }
            for i in range(count)
        ]
    )


def ids(result: ebla.Result) -> list[int]:
    return [row[0] for row in result.rows()]


def ask(db: ebla.Database, relation: str = "orders", **asked: Any) -> Answer:
    return db.reader.query(relation, lambda found: c.request(found, **asked))


def test_a_row_by_its_key_opens_one_run(db):
    fill(db)
    fold(db, "orders")
    found = ask(db, where={"id": 7})
    assert found.table.column("id").to_pylist() == [7]
    assert (found.plan.extent.runs, found.plan.extent.runs_read, found.plan.extent.groups_read) == (4, 1, 1)


def test_newer_rows_win_and_tombstones_hide(db):
    fill(db)
    fold(db, "orders")
    db.table("orders").upsert([{"id": 3, "status": "new"}, {"id": 100, "status": "new"}])
    db.table("orders").delete([{"id": 0}, {"id": 6}])
    db.table("orders").upsert([{"id": 6, "status": "back"}])
    assert ids(db.query("orders", where={"status": "new"})) == [3, 100]
    assert ids(db.query("orders", limit=4)) == [1, 2, 3, 4]
    assert db.query("orders", where={"id": 6}, columns=["status"]).rows() == [("back",)]
    assert ids(db.query("orders", order_by="-id", limit=1)) == [100]


def test_the_answer_has_the_types_of_the_columns(db):
    fill(db, 3)
    found = db.query("orders", limit=1).to_arrow()
    assert found.schema.names == ["id", "status", "total", "day", "tags"]
    assert found.schema.types == [
        pa.int64(),
        pa.string(),
        pa.decimal128(8, 2),
        pa.date32(),
        pa.list_(pa.string()),
    ]


def test_columns_that_came_went_and_grew_are_read_from_old_runs(db):
    db.sql("CREATE TABLE t (id INT, a INT, b STRING, c STRING, PRIMARY KEY (id))")
    db.table("t").upsert([{"id": i, "a": i % 4, "b": f"b{i}", "c": "gone"} for i in range(12)])
    fold(db, "t")
    db.sql("ALTER TABLE t ADD COLUMN d DOUBLE")
    db.sql("ALTER TABLE t DROP COLUMN c")
    db.sql("ALTER TABLE t RENAME COLUMN b TO name")
    db.sql("ALTER TABLE t ALTER COLUMN a TYPE BIGINT")
    db.sql("ALTER TABLE t ADD COLUMN c INT")
    db.table("t").upsert([{"id": 100, "a": 2**40, "name": "new", "d": 1.5, "c": 1}])
    assert db.query("t", where={"d": ebla.is_null(), "a": 1}, columns=["id", "a", "name", "c"]).rows() == [
        (1, 1, "b1", None),
        (5, 1, "b5", None),
        (9, 1, "b9", None),
    ]
    assert db.query("t", order_by="-a", limit=2, columns=["a", "name"]).rows() == [(2**40, "new"), (3, "b3")]
    assert db.query("t", where={"name": ebla.prefix("b1")}, columns=["id"]).rows() == [(1,), (10,), (11,)]
    assert db.query("t").to_arrow().schema.field("a").type == pa.int64()
    fold(db, "t", tablets=[0])
    assert len(db.query("t")) == 13
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ebla.query.plan.US_PER_SCAN", -1e9)
        assert ask(db, "t", order_by="-a").plan.scan
        assert db.query("t", order_by="-a", limit=2, columns=["a", "name", "c"]).rows() == [
            (2**40, "new", 1),
            (3, "b3", None),
        ]


def test_pages_by_cursor_and_by_the_last_row(db):
    fill(db)
    fold(db, "orders")
    first = db.query("orders", where={"status": "open"}, order_by="-total", limit=7)
    assert first.next is not None
    rest = db.query("orders", where={"status": "open"}, order_by="-total", limit=7, after=first.next)
    last = dict(zip(first.columns, first.rows()[-1], strict=True))
    same = db.query("orders", where={"status": "open"}, order_by="-total", limit=7, after=last)
    assert rest.rows() == same.rows()
    whole = db.query("orders", where={"status": "open"}, order_by="-total")
    assert whole.rows()[:14] == [*first.rows(), *rest.rows()]
    assert whole.next is None


def test_single_rows_of_a_table_that_has_no_room_in_memory_are_picked(tmp_path, monkeypatch):
    kinds = {
        "id": "BIGINT", "s": "STRING", "f": "DOUBLE", "d": "DECIMAL(20,3)", "day": "DATE", "at": "TIMESTAMP",
        "local": "TIMESTAMP_NTZ", "b": "BOOLEAN", "raw": "BINARY", "tiny": "TINYINT",
    }  # fmt: skip
    rows = [
        {
            "id": i,
            "s": None if i % 7 == 0 else f"é{i}",
            "f": [math.nan, -0.0, math.inf, i / 3][i % 4],
            "d": Decimal(i).scaleb(-3) * 10**15 if i % 5 else None,
            "day": dt.date(1, 1, 1) + dt.timedelta(days=700 * i),
            "at": dt.datetime(1900, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=97 * i, microseconds=i),
            "local": dt.datetime(9999, 12, 31) - dt.timedelta(days=97 * i, microseconds=i),
            "b": [True, False, None][i % 3],
            "raw": bytes([i % 256, 0, 255]),
            "tiny": i % 128,
        }
        for i in range(1000)
    ]
    where = {"id": ebla.one_of(3, 14, 15, 92, 653, 999, 5000)}
    with connect(tmp_path / "w", auto_refresh=False) as db:
        columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        db.sql(f"CREATE TABLE t ({columns}, PRIMARY KEY (id)) WITH (tablets = 2)")
        db.table("t").upsert(rows)
        fold(db, "t", row_group_rows=10)
        db.sql("ALTER TABLE t ADD COLUMN late INT")
        db.sql("ALTER TABLE t ALTER COLUMN tiny TYPE INT")
        wanted = db.query("t", where=where).to_arrow()
    assert wanted.num_rows == 6
    groups = list[int]()
    read_groups = store.read_groups

    def counted(*given: Any) -> Any:
        groups.append(len(given[3]))
        return read_groups(*given)

    monkeypatch.setattr(store, "read_groups", counted)
    with connect(tmp_path / "w", auto_refresh=False, read_cache_bytes=0) as db:
        monkeypatch.setattr(picking, "SPARSE_ROWS", 1_000)
        assert str(db.query("t", where=where).to_arrow().to_pylist()) == str(wanted.to_pylist())
        decoded, groups[:] = sum(groups), []
        monkeypatch.setattr(picking, "SPARSE_ROWS", 64)
        picked = db.query("t", where=where).to_arrow()
    assert str(picked.to_pylist()) == str(wanted.to_pylist())
    assert picked.schema == wanted.schema
    assert sum(groups) == 6 < decoded  # those of the keys alone


def test_a_table_without_a_key_is_paged_by_its_hidden_row_id(db):
    db.sql("CREATE TABLE bag (n INT)")
    db.table("bag").upsert([{"n": 1}] * 5)
    db.table("bag").upsert([{"n": 1}] * 4)
    first = db.query("bag", limit=6)
    assert first.rows() == [(1,)] * 6
    assert first.next is not None
    assert db.query("bag", limit=6, after=first.next).rows() == [(1,)] * 3


def test_no_read_starts_spark(db):
    fill(db)
    db.query("orders", where={"status": "open"}, order_by="-total")
    db.sql("SELECT * FROM orders WHERE status = 'open' ORDER BY total DESC LIMIT 5")
    db.sql("EXPLAIN SELECT id FROM orders WHERE id = 5")
    assert not db.context.has_spark


def test_a_select_of_first_rows_is_answered_by_the_reader(db):
    fill(db)
    fold(db, "orders")
    text = "SELECT id, total AS t FROM orders o WHERE o.status = :s AND total >= 3 ORDER BY total DESC, id LIMIT 4"
    expected = db.query(
        "orders", where={"status": "open", "total": ebla.between(3, None)}, order_by=["-total", "id"], limit=4
    )
    assert db.sql(text, s="open").rows() == [(row[0], row[2]) for row in expected.rows()]
    assert db.sql(text, s="open").columns == ["id", "t"]
    plan = db.sql(f"EXPLAIN {text}", s="open").one()[0]
    assert "path: orders (id), primary key" in plan
    assert "no Spark job" in plan


def test_old_statistics_do_not_outlive_their_run(db):
    """Answers change with every commit, however much is kept in memory."""
    for i in range(5):
        db.table("orders").upsert([{"id": 1, "status": f"s{i}"}])
        if i % 2:
            fold(db, "orders")
        assert db.query("orders", where={"id": 1}, columns=["status"]).rows() == [(f"s{i}",)]


def test_a_damaged_run_is_an_error_that_names_it(db):
    fill(db)
    fold(db, "orders", row_group_rows=100)
    run = next(r for r in live_runs(db, "orders") if r.level == 1)
    damage(file_of(db, run))
    with pytest.raises(ebla.CorruptRunError, match="run missing or damaged"):
        db.query("orders", limit=100)


def test_another_copy_is_read_where_one_is_damaged(tmp_path):
    nodes = {"node2": str(tmp_path / "n2")}
    with connect(tmp_path / "w", nodes=nodes, replication=2, auto_refresh=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, status STRING, total DECIMAL(8,2), day DATE, tags ARRAY<STRING>, "
               "PRIMARY KEY (id))")  # fmt: skip
        fill(db)
        fold(db, "orders", row_group_rows=100)
        for run in live_runs(db, "orders"):
            damage(file_of(db, run, host(db, "node1")))
        assert len(db.query("orders", limit=100)) == 60


@pytest.mark.parametrize(
    ("asked", "kind", "parts"),
    [
        ({"where": {"nope": 1}}, ebla.UnknownNameError, ["column of orders", "status", "'nope'"]),
        ({"where": {"id": "a"}}, ebla.TypeMismatchError, ["orders.id: expected bigint", "'a'"]),
        ({"where": {"total": ebla.between(1, "x")}}, ebla.TypeMismatchError, ["orders.total", "decimal(8,2)"]),
        ({"where": {"id": [1, 2]}}, ebla.TypeMismatchError, ["one_of"]),
        ({"where": {"id": None}}, ebla.TypeMismatchError, ["is_null()"]),
        ({"where": {"tags": ["a"]}}, ebla.TypeMismatchError, ["one_of"]),
        ({"where": {"tags": "a"}}, ebla.TypeMismatchError, ["array<string>", "is_null()"]),
        ({"where": {"id": ebla.prefix("1")}}, ebla.TypeMismatchError, ["string column", "bigint"]),
        ({"where": "id = 5"}, ebla.UsageError, ["expected a dict"]),
        ({"order_by": "-nope"}, ebla.UnknownNameError, ["order_by", "'nope'"]),
        ({"order_by": "tags"}, ebla.TypeMismatchError, ["has an order", "array<string>"]),
        ({"order_by": ["id", "-id"]}, ebla.DuplicateNameError, ["id twice"]),
        ({"limit": 0}, ebla.UsageError, ["1 to 10000", "found 0"]),
        ({"limit": 10_001}, ebla.UsageError, ["1 to 10000", "10001"]),
        ({"limit": "5"}, ebla.UsageError, ["whole number"]),
        ({"columns": ["id", "ID"]}, ebla.DuplicateNameError, ["each column once"]),
        ({"columns": "id"}, ebla.UsageError, ["list of names"]),
        ({"after": "nonsense"}, ebla.UsageError, ["`next` of a result"]),
        ({"after": {"total": 5}, "order_by": "total"}, ebla.UsageError, ["total, id", "found none of id"]),
        ({"at_least": 1_000_000}, ebla.SnapshotError, ["the newest version", "1000000"]),
    ],
)
def test_bad_requests_are_refused(db, asked, kind, parts):
    with refused(db, kind, *parts):
        db.query("orders", **asked)


def test_a_cursor_of_another_order_is_refused(db):
    fill(db)
    page = db.query("orders", order_by="total", limit=2)
    with refused(db, ebla.UsageError, "another query"):
        db.query("orders", order_by="-total", limit=2, after=page.next)


def test_an_unknown_relation_is_named(db):
    with refused(db, ebla.UnknownNameError, "nope", "orders"):
        db.query("nope")


@pytest.mark.parametrize("wrong", [lambda: ebla.between(None, None), ebla.one_of, lambda: ebla.prefix(5)])  # type: ignore[arg-type]
def test_conditions_without_a_meaning_are_refused(wrong):
    with pytest.raises(ebla.UsageError, match="expected"):
        wrong()


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_a_scan_knows_of_nan_that_statistics_leave_out(db, kind):
    db.sql(f"CREATE TABLE f (id INT, x {kind}, PRIMARY KEY (id)) WITH (tablets = 1)")
    values = [math.nan, 0.0, 7.0, 9.0, None]
    db.table("f").upsert([{"id": n, "x": x} for n, x in enumerate(values)])
    fold(db, "f", row_group_rows=2)
    asked: list[tuple[dict[str, Any], list[int]]] = [
        ({"order_by": ["-x", "id"]}, [0, 3, 2, 1, 4]),
        ({"order_by": ["x"], "limit": 1, "where": {"x": c.NotNull()}}, [1]),
        ({"order_by": ["-x"], "limit": 1}, [0]),
        ({"order_by": ["-x"], "after": {"x": 2.5, "id": 0}}, [1, 4]),
        ({"order_by": ["x"], "after": {"x": 7.0, "id": 2}}, [3, 0]),
        ({"where": {"x": ebla.between(8.0, None)}}, [0, 3]),
        ({"where": {"x": ebla.between(None, 2.5)}}, [1]),
        ({"where": {"x": 0.0}}, [1]),
        ({"where": {"x": math.nan}}, [0]),
        ({"where": {"x": ebla.one_of([0.0, math.nan])}}, [0, 1]),
    ]
    for scan_us in (0.0, 1e9):
        with costs(20_000, scan_us):
            for request, wanted in asked:
                found = ask(db, "f", **request)
                assert found.table.column("id").to_pylist() == wanted, (request, found.plan)
    with costs(20_000, 0.0):
        assert ask(db, "f", order_by="-x").plan.scan


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_scan_pages_through_both_ends_of_time(db, kind):
    whole, bits = (pa.int32(), 31) if kind == "DATE" else (pa.int64(), 63)
    values = [-(2**bits), 1 - 2**bits, 2 - 2**bits, 0, 2**bits - 2, 2**bits - 1]
    db.sql(f"CREATE TABLE e (id INT, x {kind}, PRIMARY KEY (id)) WITH (tablets = 1)")
    to = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us")}[kind]
    rows = pa.table({"id": pa.array(range(len(values)), pa.int32()), "x": pa.array(values, whole).cast(to)})
    db.table("e").upsert(rows.slice(0, 3))
    fold(db, "e")
    db.table("e").upsert(rows.slice(3))  # at both levels
    for scan_us in (0.0, 1e9):
        with costs(20_000, scan_us):
            for by, wanted in (("x", [0, 1, 2, 3, 4, 5]), ("-x", [5, 4, 3, 2, 1, 0])):
                found: list[int] = []
                after: str | None = None
                while len(found) < len(values):
                    page = ask(db, "e", order_by=[by], limit=1, after=after)
                    found += page.table.column("id").to_pylist()
                    after = page.next
                assert found == wanted, by
            for number, value in enumerate(values):
                exact = ask(db, "e", where={"x": ExactValue(value)}, order_by=["x"])
                assert exact.table.column("id").to_pylist() == [number]
