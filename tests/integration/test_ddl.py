"""Tables come to be, change their shape and go, while writers go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import ConflictError, TransactionClosedError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model.relation import Column
from ebla.tables import batch as b
from ebla.tables import column_ddl, compaction
from ebla.tables import writes as w
from ebla.tables.sink import Sink
from ebla.tables.transaction import join
from support.warehouse import begin, connect, eventually, live_runs, open_transactions, refused, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

pytestmark = pytest.mark.spark


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, tablets=2, barrier_grace_s=0.2) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, name STRING, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 1, "n": 10, "name": "a"}, {"id": 2, "n": 20, "name": "b"}])
        yield db


def described(db: ebla.Database, table: str = "t") -> list[tuple[str, str, bool, int | None]]:
    return [r[:4] for r in db.sql(f"DESCRIBE {table}").rows()]


# ---- tables ---------------------------------------------------------------------------------------------


def test_create_show_and_describe(db):
    db.sql(
        "CREATE TABLE Orders (id INT COMMENT 'number', total DECIMAL(12, 2) NOT NULL, tags MAP<STRING, ARRAY<INT>>, "
        "region STRING, PRIMARY KEY (region, id)) COMMENT 'what was ordered' WITH (tablets = 8)"
    )
    assert db.tables() == ["Orders", "t"]
    assert db.sql("SHOW TABLES").rows() == [
        ("Orders", "table", "region, id", 8, 1, "what was ordered"),
        ("t", "table", "id", 2, 1, None),
    ]
    assert db.sql("DESCRIBE orders").rows() == [
        ("id", "int", False, 2, "number", None),
        ("total", "decimal(12,2)", False, None, None, None),
        ("tags", "map<string,array<int>>", True, None, None, None),
        ("region", "string", False, 1, None, None),
    ]
    assert db.table("ORDERS").name == "Orders"


def test_if_exists_and_if_not_exists_change_nothing(db):
    before = db.version
    db.sql("CREATE TABLE IF NOT EXISTS T (other STRING)")
    db.sql("DROP TABLE IF EXISTS nope")
    assert db.version == before
    assert described(db)[0] == ("id", "bigint", False, 1)


def test_columns_are_added_unless_they_are_there(db):
    before = db.version
    db.sql("ALTER TABLE t ADD COLUMN IF NOT EXISTS Name STRING")
    db.sql("ALTER TABLE t ADD COLUMNS IF NOT EXISTS (n STRING, ID STRING)")
    assert db.version == before
    db.sql("ALTER TABLE t ADD COLUMN IF NOT EXISTS n INT, note STRING")
    assert [column[:2] for column in described(db)][1:] == [("n", "int"), ("name", "string"), ("note", "string")]


def test_a_dropped_table_is_gone_and_its_name_free_but_vacuum_takes_its_files(db):
    db.compact("t")
    db.sql("DROP TABLE t")
    with refused(db, UnknownNameError, "table t"):
        db.sql("SELECT * FROM t")
    assert stored(db)
    assert db.sql("VACUUM RETAIN 0 SECONDS").rows()[0][1] > 0
    assert not stored(db)
    db.sql("CREATE TABLE t (id STRING PRIMARY KEY)")
    assert rows(db, "t") == []
    db.sql("INSERT INTO t VALUES ('x')")
    assert rows(db, "t") == [("x",)]


def test_a_renamed_table_keeps_its_rows_and_its_past(db):
    before = db.version
    db.sql("ALTER TABLE t RENAME TO u")
    assert rows(db, "SELECT id, n FROM u") == [(1, 10), (2, 20)]
    assert rows(db, f"SELECT id, n FROM u VERSION AS OF {before}") == [(1, 10), (2, 20)]
    with refused(db, UnknownNameError, "table t", "tables are u"):
        db.table("t")
    db.sql("ALTER TABLE u RENAME TO U")
    assert db.tables() == ["U"]


def test_comments(db):
    db.sql("COMMENT ON TABLE t IS 'it''s a table'; COMMENT ON COLUMN t.N IS 'a number'")
    assert db.sql("SHOW TABLES").rows()[0][5] == "it's a table"
    assert db.sql("DESCRIBE t").rows()[1] == ("n", "int", True, None, "a number", None)
    db.sql("COMMENT ON TABLE t IS NULL; ALTER TABLE t ALTER COLUMN n COMMENT 'x'")
    assert db.sql("SHOW TABLES").rows()[0][5] is None
    assert db.sql("DESCRIBE t").rows()[1][4] == "x"
    assert rows(db, "SELECT id, n FROM t") == [(1, 10), (2, 20)]


def test_truncate_is_one_commit_and_the_past_stays(db):
    before = db.version
    db.compact("t")
    db.table("t").upsert([{"id": 3}])
    db.sql("TRUNCATE TABLE t")
    assert rows(db, "t") == []
    assert rows(db, f"SELECT id FROM t VERSION AS OF {before}") == [(1,), (2,)]
    db.sql("INSERT INTO t (id) VALUES (1)")
    assert rows(db, "SELECT id, n FROM t") == [(1, None)]


def test_a_table_without_a_key_holds_equal_rows_several_times(db):
    db.sql("CREATE TABLE bag (n INT, name STRING)")
    bag = db.table("bag")
    bag.upsert([{"n": 1, "name": "x"}, {"n": 1, "name": "x"}])
    db.sql("INSERT INTO bag VALUES (1, 'x'), (2, 'y')")
    assert described(db, "bag") == [("n", "int", True, None), ("name", "string", True, None)]
    assert rows(db, "bag") == [(1, "x")] * 3 + [(2, "y")]
    db.compact("bag")
    db.sql("UPDATE bag SET name = 'z' WHERE n = 2; UPDATE bag SET n = n + 1")
    assert rows(db, "bag") == [(2, "x")] * 3 + [(3, "z")]
    db.sql("MERGE INTO bag USING (SELECT 2 AS n) s ON bag.n = s.n WHEN MATCHED THEN DELETE")
    assert rows(db, "bag") == [(3, "z")]


# ---- columns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compacted", [False, True])
def test_columns_are_added_renamed_dropped_and_added_again(db, compacted):
    table = db.table("t")
    versions = {"start": db.version}

    def step(statement: str) -> None:
        db.sql(statement)
        if compacted:
            db.compact("t")

    step("ALTER TABLE t ADD COLUMNS (price DECIMAL(6,2), tags ARRAY<STRING>)")
    table.upsert([{"id": 3, "price": 1, "tags": ["x"]}])
    versions["added"] = db.version
    step("ALTER TABLE t RENAME COLUMN name TO title")
    db.sql("UPDATE t SET title = 'B' WHERE id = 2")
    versions["renamed"] = db.version
    step("ALTER TABLE t DROP COLUMN price")
    table.upsert([{"id": 4, "title": "d"}])
    versions["dropped"] = db.version
    step("ALTER TABLE t ADD COLUMN price STRING")
    db.sql("UPDATE t SET price = 'new' WHERE id = 4")

    assert db.sql("SELECT * FROM t").columns == ["id", "n", "title", "tags", "price"]
    assert rows(db, "t") == [
        (1, 10, "a", None, None),
        (2, 20, "B", None, None),
        (3, None, None, ["x"], None),  # its old price does not come back
        (4, None, "d", None, "new"),
    ]
    # Every version has the columns of its time.
    start = db.sql(f"SELECT * FROM t VERSION AS OF {versions['start']}")
    assert start.columns == ["id", "n", "name"]
    assert sorted(start.rows()) == [(1, 10, "a"), (2, 20, "b")]
    added = db.sql(f"SELECT * FROM t VERSION AS OF {versions['added']} WHERE id = 3")
    assert added.columns == ["id", "n", "name", "price", "tags"]
    assert added.rows() == [(3, None, None, Decimal("1.00"), ["x"])]
    renamed = db.sql(f"SELECT * FROM t VERSION AS OF {versions['renamed']} WHERE id = 2")
    assert renamed.columns == ["id", "n", "title", "price", "tags"]
    assert renamed.rows() == [(2, 20, "B", None, None)]
    dropped = table.scan(version=versions["dropped"])
    assert dropped.columns == ["id", "n", "title", "tags"]
    assert dropped.count() == 4


def test_a_widened_column_reads_old_files_and_takes_larger_values(db):
    db.sql("CREATE TABLE wide (id INT PRIMARY KEY, a INT, b FLOAT, c DECIMAL(9,2), d DATE)")
    table = db.table("wide")
    table.upsert([{"id": 1, "a": 7, "b": 0.5, "c": Decimal("1.25")}])
    db.compact("wide")
    table.upsert([{"id": 2, "a": -7, "b": 1.5, "c": Decimal("2.50")}])
    before = db.version
    for column, kind in {"a": "BIGINT", "b": "DOUBLE", "c": "DECIMAL(14,4)", "d": "TIMESTAMP_NTZ"}.items():
        db.sql(f"ALTER TABLE wide ALTER COLUMN {column} TYPE {kind}")
    table.upsert([{"id": 3, "a": 2**40, "b": 0.1, "c": Decimal("1234567890.0001")}])
    expected = [
        (1, 7, 0.5, Decimal("1.2500"), None),
        (2, -7, 1.5, Decimal("2.5000"), None),
        (3, 2**40, 0.1, Decimal("1234567890.0001"), None),
    ]
    assert rows(db, "wide") == expected
    db.sql("UPDATE wide SET a = a + 1 WHERE id = 1; UPDATE wide SET a = a - 1 WHERE id = 1")
    db.compact("wide")
    assert rows(db, "wide") == expected
    assert rows(db, f"SELECT a, b, c FROM wide VERSION AS OF {before}") == [
        (-7, 1.5, Decimal("2.50")),
        (7, 0.5, Decimal("1.25")),
    ]


def test_changes_of_shape_that_are_refused(db):
    with refused(db, UsageError, "t: expected a column outside the primary key, found id"):
        db.sql("ALTER TABLE t DROP COLUMN id")
    with refused(db, UsageError, "t.id: expected a column outside the primary key", "where rows lie"):
        db.sql("ALTER TABLE t ALTER COLUMN id TYPE DECIMAL(20,0)")
    with refused(db, TypeMismatchError, "t.n: expected a type as which files of int can be read, found smallint"):
        db.sql("ALTER TABLE t ALTER COLUMN n TYPE SMALLINT")
    with refused(db, TypeMismatchError, "t.n: expected a type as which files of int can be read, found string"):
        db.sql("ALTER TABLE t ALTER COLUMN n TYPE STRING")
    with refused(db, TypeMismatchError, "t.x: expected a nullable column, found NOT NULL"):
        db.sql("ALTER TABLE t ADD COLUMN x INT NOT NULL")
    with refused(db, TypeMismatchError, "type 'UUID'", "use STRING"):
        db.sql("ALTER TABLE t ADD COLUMN x UUID")
    db.sql("CREATE TABLE bag (a INT)")
    with refused(db, UsageError, "bag: expected one column to remain"):
        db.sql("ALTER TABLE bag DROP COLUMN a")


# ---- while others write ---------------------------------------------------------------------------------


def test_a_writer_one_state_behind_still_commits(db):
    """It began before the column was added; its rows have none."""
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "t")
    transaction = begin(db, "t")
    db.sql("ALTER TABLE t ADD COLUMN x INT")
    sink = Sink(join(db.context, transaction, relation))
    table = db.table("t")._fit(relation, [{"id": 3, "n": 30, "name": "c"}], only_key=False)
    sink.put(b.ArrowBatch(table=table, kinds=b.UPSERT, ordered=True))
    assert w.commit(sink, "late", reads_target=False).version == db.version
    assert rows(db, "t") == [(1, 10, "a", None), (2, 20, "b", None), (3, 30, "c", None)]


def test_a_change_waits_for_an_old_transaction_and_goes_on_when_it_ends(db):
    old = begin(db, "t")
    db.sql("ALTER TABLE t ADD COLUMN x INT")  # `old` is one state behind, which is permitted
    waited: list[str] = []
    db.context.progress = lambda what, part: waited.append(what)
    with connect(db.context.catalog.where, db.spark, barrier_grace_s=60) as patient:
        patient.context.progress = db.context.progress
        change = threading.Thread(target=lambda: patient.sql("ALTER TABLE t ADD COLUMN y INT"))
        change.start()
        eventually(lambda: bool(waited))
        assert [c[0] for c in described(db)] == ["id", "n", "name", "x"]
        tx.abort(db.context.catalog, old.id)
        change.join()
    assert [c[0] for c in described(db)] == ["id", "n", "name", "x", "y"]
    assert waited[0] == f"waiting for transaction {old.id} (test)"


def test_a_change_aborts_an_old_transaction_after_the_grace_period(db):
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "t")
    sink = Sink(join(db.context, begin(db, "t"), relation))
    table = db.table("t")._fit(relation, [{"id": 3}], only_key=False)
    sink.put(b.ArrowBatch(table=table, kinds=b.UPSERT, ordered=True))
    db.sql("ALTER TABLE t ADD COLUMN x INT; ALTER TABLE t ADD COLUMN y INT")
    assert not open_transactions(db)
    with pytest.raises(TransactionClosedError, match=f"transaction {sink.transaction.id}: expected open") as caught:
        w.commit(sink, "too late", reads_target=False)
    sink.transaction.give_up(caught.value)
    assert rows(db, "SELECT id FROM t") == [(1,), (2,)]
    db.vacuum(retain_s=0)
    assert len(stored(db)) == len(live_runs(db, "t"))


def test_other_tables_and_a_wrong_request_wait_for_nobody(db):
    old = begin(db, "t")
    db.sql("ALTER TABLE t ADD COLUMN x INT; CREATE TABLE other (a INT)")
    with connect(db.context.catalog.where, db.spark, barrier_grace_s=600) as patient:
        patient.sql("ALTER TABLE other ADD COLUMN b INT; ALTER TABLE other ADD COLUMN c INT")
        with pytest.raises(UnknownNameError, match="found nope"):
            patient.sql("ALTER TABLE t DROP COLUMN nope")
    assert open_transactions(db) == {old.id}


@pytest.mark.parametrize("what", ["update", "compact"])
def test_a_table_altered_while_a_write_begins_loses_nothing(db, monkeypatch, what):
    """Before the write begins, a column is added and filled: rows written again must keep it."""
    real = tx.begin_on
    raced: list[bool] = []

    def begin_late(catalog, name, look, **given):
        if not raced:
            raced.append(True)
            column_ddl.add_columns(db.context, "t", [Column(name="x", physical="x", type="int")])
            db.table("t").upsert([{"id": 1, "n": 10, "name": "a", "x": 5}])
        return real(catalog, name, look, **given)

    monkeypatch.setattr(tx, "begin_on", begin_late)
    if what == "update":
        db.sql("UPDATE t SET n = n + 1 WHERE id = 1")
    else:
        compaction.compact(db.context, "t")
    assert raced
    assert rows(db, "SELECT id, name, x FROM t WHERE id = 1") == [(1, "a", 5)]
    assert not open_transactions(db)


def test_a_write_to_a_table_that_is_dropped_meanwhile_leaves_nothing(db, monkeypatch):
    real = Sink.put

    def drop_first(self, batch):
        real(self, batch)
        db.sql("DROP TABLE IF EXISTS t")

    monkeypatch.setattr(Sink, "put", drop_first)
    with pytest.raises(UnknownNameError, match="found dropped; nothing was written"):
        db.table("t").upsert([{"id": 3}])
    monkeypatch.undo()
    assert not open_transactions(db)
    db.vacuum(retain_s=0)
    assert not stored(db)


def test_two_alters_at_once_both_happen(db):
    """Exclusive commits that lose the race decide again on what they find."""
    errors: list[BaseException] = []

    def alter(name: str) -> None:
        try:
            db.sql(f"ALTER TABLE t ADD COLUMN {name} INT")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=alter, args=(f"x{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [e for e in errors if not isinstance(e, ConflictError)]
    assert {c[0] for c in described(db)} == {"id", "n", "name", *(f"x{i}" for i in range(6))}
