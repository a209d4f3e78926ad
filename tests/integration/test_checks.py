"""CHECK and REPAIR of views and of a table's files; those of indexes are with the indexes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.cli import main
from ebla.errors import CorruptRunError, SnapshotError, SqlError, UnknownNameError, UsageError
from ebla.model.relation import ROW_SEQ, ROW_TXN
from ebla.tables import batch as b
from ebla.tables import table_check
from support.indexes import damage

pytestmark = pytest.mark.spark

CARD = "SELECT o.id, o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
NAMES = "SELECT c.name FROM orders o JOIN customers c ON o.customer = c.id"


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(
        str(tmp_path / "warehouse"),
        spark=spark,
        tablets=2,
        replication=2,
        nodes={"node2": str(tmp_path / "second")},
        auto_compact=False,
        auto_refresh=False,
    ) as database:
        database.sql(
            """CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id));
            CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), PRIMARY KEY (id))"""
        )
        database.table("customers").upsert([{"id": i, "name": f"c{i}"} for i in range(5)])
        database.table("orders").upsert([{"id": i, "customer": i % 6, "total": i} for i in range(60)])
        yield database


def wrong(db: ebla.Database, statement: str) -> tuple[Any, ...]:
    return db.sql(statement).rows()[0][2:5]


def bag(db: ebla.Database, text: str) -> Counter[Any]:
    return Counter(db.sql(text).rows())


def test_a_view_with_a_key(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    db.table("orders").upsert([{"id": 7, "customer": 3, "total": 70}])
    assert wrong(db, "CHECK VIEW card") == (0, 0, 0)  # at the version that it names, not at the newest
    damage(
        db,
        "card",
        [
            ({"id": 1}, b.DELETE),
            ({"id": 2}, b.DELETE),
            ({"id": 3, "total": 333, "name": "c3"}, b.UPSERT),
            ({"id": 999, "total": 1, "name": "ghost"}, b.UPSERT),
        ],
    )
    applied = db.sql("SELECT applied_version FROM system.views").one()[0]
    assert db.sql("CHECK VIEW card").rows()[0] == ("card", applied, 2, 1, 1, 100.0, False)
    assert db.sql("REPAIR VIEW card").rows()[0][2:] == (2, 1, 1, 100.0, True)
    assert bag(db, "SELECT * FROM card") == bag(db, CARD)
    assert wrong(db, "CHECK MATERIALIZED VIEW card") == (0, 0, 0)


def test_a_view_without_a_key(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW names AS {NAMES}")
    damage(db, "names", [({"name": "c1", ROW_TXN: 10**6, ROW_SEQ: i}, b.UPSERT) for i in range(3)])
    assert wrong(db, "CHECK VIEW names") == (0, 3, 0)
    db.sql("REPAIR VIEW names")
    assert bag(db, "SELECT * FROM names") == bag(db, NAMES)


def test_a_sample_of_a_view_finds_a_part(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}")
    damage(db, "card", [({"id": 1000 + i, "total": 1, "name": "ghost"}, b.UPSERT) for i in range(400)])
    found = db.sql("CHECK VIEW card SAMPLE 25 PERCENT").rows()[0]
    assert 50 < found[3] < 150
    assert found[5] == 25.0


def test_sums_of_floating_numbers_may_differ_in_the_last_digit(db: ebla.Database) -> None:
    query = "SELECT customer, sum(CAST(total AS DOUBLE)) AS s FROM orders GROUP BY customer"
    db.sql(f"CREATE MATERIALIZED VIEW sums AS {query}")
    rows = dict(db.sql("SELECT customer, s FROM sums").rows())
    damage(db, "sums", [({"customer": 1, "s": rows[1] * (1 + 1e-14)}, b.UPSERT)])
    assert wrong(db, "CHECK VIEW sums") == (0, 0, 0)
    damage(db, "sums", [({"customer": 1, "s": rows[1] * 1.001}, b.UPSERT)])
    assert wrong(db, "CHECK VIEW sums") == (0, 0, 1)


PAIRS = "SELECT c.id AS other, o.id, o.total FROM orders o JOIN customers c ON o.customer < c.id"
GROUPED = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"


@pytest.mark.parametrize(
    ("query", "wrong_rows"),
    [
        (CARD, [({"id": 1}, b.DELETE), ({"id": 999, "total": 1, "name": "ghost"}, b.UPSERT)]),
        (PAIRS, [({"other": 2, "id": 1}, b.DELETE), ({"other": 9, "id": 999, "total": 1}, b.UPSERT)]),
        (GROUPED, [({"customer": 1}, b.DELETE), ({"customer": 99, "n": 1}, b.UPSERT)]),
        (NAMES, [({"name": "ghost", ROW_TXN: 10**6, ROW_SEQ: 1}, b.UPSERT)]),
    ],
    ids=["by the key of its base", "by a part of its key", "by its own key", "by all columns"],
)
def test_parts_find_what_the_whole_finds(db: ebla.Database, query: str, wrong_rows: list[Any]) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert wrong(db, "CHECK VIEW v WITH (chunk_rows = 50)") == (0, 0, 0)
    damage(db, "v", wrong_rows)
    whole = wrong(db, "CHECK VIEW v")
    said = []
    db.context.progress = lambda what, part: said.append(what)
    assert wrong(db, "CHECK VIEW v WITH (chunk_rows = 30)") == whole
    assert whole[:2] == (len(wrong_rows) - 1, 1)
    rows = db.sql("SELECT count(*) FROM v").one()[0]
    assert sum(f"checking view v: part {i} of " in line for line in said for i in (1, 2)) == (2 if rows > 30 else 1)


def test_a_check_that_is_stopped_leaves_nothing_behind(db: ebla.Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW card AS {CARD}; CREATE INDEX i ON card (name)")
    damage(db, "i", [({"name": f"ghost{n}", "id": n}, b.UPSERT) for n in range(1000, 1060)])
    before = wrong(db, "CHECK INDEX i WITH (chunk_rows = 16)")
    assert before == wrong(db, "CHECK INDEX i") == (0, 60, 0)

    def stop(what: str, part: float | None) -> None:
        if "part 3 of" in what:
            raise KeyboardInterrupt

    db.context.progress = stop
    for statement in ("CHECK VIEW card", "CHECK INDEX i", "REPAIR INDEX i"):
        with pytest.raises(KeyboardInterrupt):
            db.sql(f"{statement} WITH (chunk_rows = 16)")
    db.context.progress = lambda what, part: None
    db.pins.tidy()
    assert db.sql("SELECT count(*) FROM system.pins WHERE reason LIKE 'check%'").one()[0] == 0
    assert db.sql("SELECT count(*) FROM system.transactions WHERE state = 'open'").one()[0] == 0
    left = wrong(db, "CHECK INDEX i")[1]
    assert 0 < left < 60  # two parts are mended
    assert wrong(db, "REPAIR INDEX i WITH (chunk_rows = 16)") == (0, left, 0)
    assert wrong(db, "CHECK INDEX i") == (0, 0, 0)


def test_a_check_is_no_faster_than_its_rate(db: ebla.Database) -> None:
    began = time.monotonic()
    db.sql("CHECK TABLE orders WITH (rows_per_minute = 3600)")  # 60 rows, two copies of each
    assert time.monotonic() - began >= 2.0


def test_spark_reads_large_files(db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql("COMPACT orders")
    whole = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    monkeypatch.setattr(table_check, "HERE_BYTES_MAX", 0)
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole
    first, second = [
        f for f in sorted((tmp_path / "second").rglob("*.parquet")) if f"/{_folder(db, 'orders')}/" in str(f)
    ][-2:]
    os.remove(first)
    data = bytearray(second.read_bytes())
    data[20:60] = bytes(40)
    second.write_bytes(data)
    found = db.sql("CHECK TABLE orders WITH (chunk_rows = 1)").to_arrow().to_pylist()[0]
    assert (found["missing"], found["damaged"]) == (1, 1)
    db.sql("REPAIR TABLE orders")
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole


def test_files_of_a_table_are_mended_from_copies(db: ebla.Database, tmp_path: Path) -> None:
    whole = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (whole["missing"], whole["damaged"], whole["copies"]) == (0, 0, 2 * whole["runs"])
    expected = bag(db, "SELECT * FROM orders")
    files = sorted((tmp_path / "second").rglob("*.parquet"))
    table = [f for f in files if f"/{_folder(db, 'orders')}/" in str(f)]
    os.remove(table[0])
    found = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (found["missing"], found["damaged"]) == (1, 0)
    assert found["files"] == [f"{table[0]}: missing"]
    db.sql("REPAIR TABLE orders")
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole
    data = bytearray(table[0].read_bytes())
    data[20:60] = bytes(40)
    table[0].write_bytes(data)
    found = db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0]
    assert (found["missing"], found["damaged"]) == (0, 1)
    mended = db.sql("REPAIR TABLE orders").to_arrow().to_pylist()[0]
    assert (mended["damaged"], mended["repaired"]) == (1, True)
    assert db.sql("CHECK TABLE orders").to_arrow().to_pylist()[0] == whole
    assert bag(db, "SELECT * FROM orders") == expected


def test_a_damaged_only_copy_is_an_error_that_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ebla.connect(str(tmp_path / "one")) as db:
        db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id))")
        for n in range(2):
            db.table("t").upsert([{"id": n, "name": "x" * 100}])
        first, second = sorted((tmp_path / "one" / "data").rglob("*.parquet"))
        data = bytearray(first.read_bytes())
        data[20:60] = bytes(40)
        first.write_bytes(data)
        for statement in ("CHECK TABLE t", "REPAIR TABLE t"):
            with pytest.raises(CorruptRunError) as found:
                db.sql(statement)
            assert str(first) in str(found.value)
            assert str(second) not in str(found.value)
    assert main.run(["-w", str(tmp_path / "one"), "sql", "CHECK TABLE t"]) == CorruptRunError.exit_code
    assert str(first) in capsys.readouterr().err


def test_a_run_without_a_sound_copy_is_named(db: ebla.Database, tmp_path: Path) -> None:
    for file in [*tmp_path.rglob("*.parquet")]:
        if f"/{_folder(db, 'orders')}/" in str(file):
            os.remove(file)
    with pytest.raises(CorruptRunError, match="expected a sound copy of"):
        db.sql("REPAIR TABLE orders")


def _folder(db: ebla.Database, table: str) -> str:
    path = db.sql(
        f"SELECT path FROM system.runs r JOIN system.relations t USING (relation_id) WHERE t.name = '{table}'"
    )
    return str(path.rows()[0][0]).split("/")[0]


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("CHECK VIEW nope", UnknownNameError, "nope"),
        ("CHECK VIEW orders", UnknownNameError, "orders"),
        ("CHECK TABLE nope", UnknownNameError, "nope"),
        ("CHECK VIEW card SAMPLE 0", SqlError, "a percentage above 0 and up to 100"),
        ("CHECK VIEW card SAMPLE 101", SqlError, "a percentage above 0 and up to 100"),
        ("CHECK TABLE orders WITH (rows_per_second = 1)", UnknownNameError, "rows_per_minute or chunk_rows"),
        ("REPAIR TABLE orders WITH (rows_per_minute = -1)", UsageError, "expected a whole number from 1"),
        ("CHECK card", SqlError, "INDEX, VIEW or TABLE"),
    ],
)
def test_bad_input(db: ebla.Database, statement: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        db.sql(statement)


def test_a_view_that_is_not_built_says_how_far_it_is(db: ebla.Database) -> None:
    db.sql(f"CREATE ASYNC MATERIALIZED VIEW card WITH (rows_per_minute = 0) AS {CARD}")
    with pytest.raises(SnapshotError, match="found it building"):
        db.sql("CHECK VIEW card")
