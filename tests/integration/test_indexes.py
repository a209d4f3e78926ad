"""Indexes come to be while writers go on: scenarios I1 to I9."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

import ebla
from ebla.catalog import build_tasks, reads
from ebla.catalog import schema as s
from ebla.errors import ConflictError, DuplicateKeyError, SnapshotError, TransactionClosedError
from ebla.indexes import index_build
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.relations import indexes as definition
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin as begin_write
from ebla.tables.writes import commit
from ebla.values import types
from support.folding import fold
from support.indexes import STATES, assert_exact, begin_index, damage, entries, state, step_until
from support.warehouse import begin, connect, eventually, named, open_transactions, pins, stored, tuned

READABLE = Permission.READ_WRITE_AND_DELETE


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "w", spark, auto_refresh=False, barrier_grace_s=0.2) as database:
        database.sql("CREATE TABLE t (id BIGINT, a STRING, n BIGINT, x DOUBLE, PRIMARY KEY (id))")
        yield database


def row(i: int, **changed: Any) -> dict[str, Any]:
    return {"id": i, "a": None if i % 5 == 4 else f"a{i % 5}", "n": i * 7 % 13, "x": i / 2, **changed}


def write(db: ebla.Database, *numbers: int, **changed: Any) -> None:
    db.table("t").upsert([row(i, **changed) for i in numbers])


def delete(db: ebla.Database, *numbers: int) -> None:
    db.table("t").delete([{"id": i} for i in numbers])


def nothing_left(db: ebla.Database) -> None:
    """No task, no pin, no open transaction, no file without a name."""
    with db.context.catalog.reading() as connection:
        assert build_tasks.tasks(connection) == []
        assert build_tasks.builds(connection) == {}
    assert not open_transactions(db)
    assert pins(db) == []
    assert stored(db) == named(db)


# ---- I1, I2: writers in every state ---------------------------------------------------------------------


@pytest.mark.parametrize("folded", [True, False], ids=["level 1", "level 0"])
def test_i1_updates_in_every_permission_state_are_indexed(db: ebla.Database, folded: bool):
    write(db, *range(40))
    if folded:
        fold(db, "t")
    begin_index(db, "CREATE INDEX i ON t (a, n DESC) INCLUDE (x)")
    for number, at in enumerate(STATES):
        step_until(db, "i", at)
        write(db, number, n=100 + number)  # changed
        write(db, 10 + number, a="to and fro")
        write(db, 10 + number)  # changed, and changed back
        write(db, 50 + number)  # new
        delete(db, 20 + number)
        delete(db, 30 + number)
        write(db, 30 + number)  # deleted and there again
    step_until(db, "i", READABLE)
    write(db, 5, n=500)
    delete(db, 6)
    assert_exact(db, "i")
    assert sum(entries(db, "i").values()) == 40 + 3 - 3 - 1
    nothing_left(db)


def test_i1_rows_and_concurrent_inserts(db: ebla.Database):
    write(db, *range(100))
    stop = threading.Event()
    failed: list[BaseException] = []

    def writer(first: int) -> None:
        try:
            number = first
            while not stop.is_set():
                write(db, number, number % 100, n=number)
                number += 2
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=writer, args=(1000 + n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        db.sql("CREATE INDEX i ON t (n, a)")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed
    count = db.sql("SELECT count(*) FROM t").rows()[0][0]
    assert count > 100
    assert sum(entries(db, "i").values()) == count
    assert_exact(db, "i")


def test_i2_rows_changed_after_the_read_version_and_before_their_tablet(db: ebla.Database):
    write(db, *range(40))
    fold(db, "t")
    begin_index(db, "CREATE INDEX i ON t (n)")
    step_until(db, "i", Permission.BACKFILLING)
    write(db, 1, n=1000)
    delete(db, 2)
    delete(db, 3)
    write(db, 3, n=3000)
    step_until(db, "i", READABLE)
    found = {key: n for n, key in entries(db, "i")}
    assert found[1] == 1000
    assert 2 not in found
    assert found[3] == 3000
    assert len(found) == 39
    assert_exact(db, "i")


# ---- I3: old transactions -------------------------------------------------------------------------------


def test_i3_an_old_transaction_is_waited_for_named_and_aborted(db: ebla.Database):
    write(db, *range(10))
    old = begin(db, "t", "slow writer")
    said: list[str] = []
    db.context.progress = lambda what, part: said.append(what)
    db.sql("CREATE INDEX i ON t (n)")
    waits = [what for what in said if "for transaction" in what]
    assert waits
    assert all("waiting" in what and f"for transaction {old.id} (slow writer, test)" in what for what in waits)
    assert old.id not in open_transactions(db)
    assert_exact(db, "i")


def test_i3_a_writer_from_before_the_index_leaves_no_phantom(db: ebla.Database):
    """It began without the index, and is asked to start over when the index has gone two steps."""
    write(db, *range(10))
    sink = Sink(begin_write(db.context, "t", reason="old writer"))
    begin_index(db, "CREATE INDEX i ON t (n)")
    sink.put(b.ArrowBatch(table=_arrow(db, [row(3, n=333)]), kinds=b.UPSERT, ordered=True))
    db.sql("WAIT FOR i")
    with pytest.raises(TransactionClosedError, match=r"expected open, found aborted"):
        commit(sink, "old writer", reads_target=False)
    sink.transaction.roll_back()
    assert state(db, "i") is READABLE
    assert_exact(db, "i")


def test_i3_a_writer_two_steps_behind_is_refused_by_its_commit(db: ebla.Database):
    """Even if no process aborted it: the commit itself checks the states that it was planned with."""
    write(db, *range(10))
    sink = Sink(begin_write(db.context, "t", reason="old writer"))
    begin_index(db, "CREATE INDEX i ON t (n)")
    with db.context.catalog.reading() as connection:
        index = definition.load(connection, "i")
    db.context.catalog.commit(
        c.Decision(
            reason="a step without its barrier",
            updates=(c.SetIndexState(index=index.id, state=Permission.WRITE_AND_DELETE),),
        )
    )
    sink.put(b.ArrowBatch(table=_arrow(db, [row(3, n=333)]), kinds=b.UPSERT, ordered=True))
    with pytest.raises(ConflictError, match=r"expected absent or the step behind it, found write_and_delete"):
        commit(sink, "old writer", reads_target=False)
    sink.transaction.roll_back()


def _arrow(db: ebla.Database, rows: list[dict[str, Any]]) -> Any:
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "t")
    return rf.align(types.from_rows(rows, relation.visible, relation="t"), relation.columns)


# ---- I4, I5: uniqueness ---------------------------------------------------------------------------------


def test_i4_duplicates_before_the_build(db: ebla.Database):
    write(db, *range(10))
    db.sql("CREATE INDEX neighbour ON t (a)")
    write(db, 3, n=777)
    write(db, 4, n=777)
    with pytest.raises(DuplicateKeyError, match=r"unique index u of t: .* found n = 777 more than once"):
        db.sql("CREATE UNIQUE INDEX u ON t (n)")
    assert state(db, "u") is None
    write(db, 5, n=555)
    assert_exact(db, "neighbour")
    db.vacuum(retain_s=0)
    nothing_left(db)
    write(db, 4, n=778)
    db.sql("CREATE UNIQUE INDEX u ON t (n)")
    assert_exact(db, "u", "neighbour")


def test_i5_a_conflicting_insert_after_the_read_version(db: ebla.Database):
    write(db, *range(8))
    begin_index(db, "CREATE UNIQUE INDEX u ON t (x)")
    step_until(db, "u", Permission.BACKFILLING)
    write(db, 100, x=1.0)  # as row 2 has, which no chunk has read yet
    with pytest.raises(DuplicateKeyError) as caught:
        db.sql("BUILD INDEXES ON t")
    assert str(caught.value) == (
        "unique index u of t: expected every value once, found x = 1.0 more than once; change or delete one of the rows"
    )
    assert state(db, "u") is None


def test_i5_delete_and_insert_again_is_no_violation(db: ebla.Database):
    write(db, *range(8))
    begin_index(db, "CREATE UNIQUE INDEX u ON t (x)")
    step_until(db, "u", Permission.BACKFILLING)
    delete(db, 2)
    write(db, 100, x=1.0)  # as row 2 had
    db.table("t").upsert([row(5, x=3.0), row(6, x=2.5)])  # two rows exchange their values
    db.sql("BUILD INDEXES ON t")
    assert_exact(db, "u")


def definition_of(db: ebla.Database, name: str) -> definition.Index:
    with db.context.catalog.reading() as connection:
        return definition.load(connection, name)


def test_writers_refuse_a_value_that_is_there(db: ebla.Database):
    write(db, *range(8))
    db.sql("CREATE UNIQUE INDEX u ON t (a, x)")
    with pytest.raises(DuplicateKeyError, match=r"found a = 'a2', x = 1.0 more than once"):
        write(db, 100, a="a2", x=1.0)
    with pytest.raises(DuplicateKeyError, match=r"found a = 'new', x = 9.0 more than once"):
        write(db, 100, 101, a="new", x=9.0)
    write(db, 100, 101, a=None, x=1.0)  # NULLs do not conflict
    write(db, 2)  # the row itself
    db.sql("UPDATE t SET x = x + 0.5")  # every value moves to where another was
    assert_exact(db, "u")


def test_large_writes_refuse_a_value_that_is_there(db: ebla.Database):
    write(db, *range(8))
    db.sql("CREATE UNIQUE INDEX u ON t (n, x)")
    database = tuned(db, batch_rows_max=2)
    with pytest.raises(DuplicateKeyError, match=r"found n = 1, x = 1.0 more than once"):
        write(database, 100, 101, 102, n=1, x=1.0)
    write(database, *range(200, 210))
    delete(database, 200, 201, 202, 203)
    write(database, *range(204, 214), a="changed")
    assert_exact(db, "u")


@pytest.mark.parametrize("large", [False, True], ids=["by Arrow", "by Spark"])
def test_a_row_whose_value_stood_twice_before_can_be_written_while_the_index_is_filled(db: ebla.Database, large: bool):
    """The build finds what was there; a writer answers for what it changes."""
    write(db, 1, 2, 3, a="twice")
    write(db, 6, a="once")
    begin_index(db, "CREATE UNIQUE INDEX u ON t (a) WHERE id < 100")
    step_until(db, "u", Permission.BACKFILLING)
    writer = tuned(db, batch_rows_max=1) if large else db
    write(writer, 1, 2, a="twice", n=70)
    write(writer, 2, 3, a="twice", n=71)
    with pytest.raises(DuplicateKeyError, match="found a = 'twice' more than once"):
        write(writer, 3, 6, a="twice", n=72)
    write(writer, 300, 301, a="twice")  # which the index does not want
    with pytest.raises(DuplicateKeyError, match="found a = 'twice' more than once"):
        db.sql("WAIT FOR u")
    assert state(db, "u") is None


def test_the_two_zeros_are_one_value(db: ebla.Database):
    db.sql("CREATE UNIQUE INDEX u ON t (x)")
    with pytest.raises(DuplicateKeyError, match=r"found x = 0\.0 more than once"):
        db.table("t").upsert([row(1, x=0.0), row(2, x=-0.0)])
    write(db, 1, x=-0.0)
    with pytest.raises(DuplicateKeyError, match=r"found x = 0\.0 more than once"):
        write(db, 2, x=0.0)
    assert_exact(db, "u")


def test_two_writers_of_one_value_at_once(db: ebla.Database):
    write(db, *range(8))
    db.sql("CREATE UNIQUE INDEX u ON t (x)")
    for value in range(5):
        barrier = threading.Barrier(2)
        failed: list[BaseException] = []

        def insert(key: int, value: int = value, barrier: threading.Barrier = barrier, failed: Any = failed) -> None:
            barrier.wait()
            try:
                write(db, key, x=1000.0 + value)
            except DuplicateKeyError as error:
                failed.append(error)

        threads = [threading.Thread(target=insert, args=(1000 + 10 * value + n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(failed) == 1
    assert_exact(db, "u")


# ---- I6: all kinds --------------------------------------------------------------------------------------

KINDS = {
    "plain": "(a)",
    "descending": "(a DESC, n)",
    "partial": "(n) WHERE a = 'a2' AND x >= 3",
    "expression": "(upper(a), n % 3 DESC)",
    "covering": "(n DESC) INCLUDE (a, x)",
    "all": "(coalesce(a, 'none') DESC, x) INCLUDE (n) WHERE length(coalesce(a, '')) + n > 4",
}


@pytest.mark.parametrize("large", [False, True], ids=["by Arrow", "by Spark"])
def test_i6_all_kinds_under_updates(db: ebla.Database, large: bool):
    if large:
        db = tuned(db, batch_rows_max=2)
    write(db, *range(60))
    for name, text in KINDS.items():
        db.sql(f"CREATE INDEX {name} ON t {text} WITH (build = 'deferred')")
    shown = {r["name"]: r for r in db.sql("SHOW INDEXES").to_arrow().to_pylist()}
    assert {r["state"] for r in shown.values()} == {"absent"}
    write(db, *range(60, 70))
    db.sql("BUILD INDEXES ON t")
    for changed in ({"a": "a2"}, {"n": 5}, {"x": 100.0}, {"a": None}):
        write(db, 1, 2, 3, 4, 80, **changed)
        write(db, 4)
        delete(db, 7, 8, 9)
        write(db, 8, 9, x=-0.0)
    db.sql("UPDATE t SET a = concat(a, 'b') WHERE n > 6")
    db.sql("MERGE INTO t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert_exact(db, *KINDS)
    shown = {r["name"]: r for r in db.sql("SHOW INDEXES").to_arrow().to_pylist()}
    assert {r["percent"] for r in shown.values()} == {100.0}
    for name in KINDS:
        db.compact(name)
    assert_exact(db, *KINDS)
    db.sql("TRUNCATE t")
    assert_exact(db, *KINDS)
    write(db, *range(9))
    assert_exact(db, *KINDS)


def test_a_table_without_a_key_is_indexed(db: ebla.Database):
    db.sql("CREATE TABLE bag (a STRING, n BIGINT)")
    db.sql("INSERT INTO bag VALUES ('x', 1), ('x', 1), ('y', 2)")
    db.sql("CREATE INDEX i ON bag (a)")
    db.sql("INSERT INTO bag VALUES ('x', 1), ('z', 3)")
    db.sql("DELETE FROM bag WHERE a = 'y'")
    assert sorted(key[0] for key in entries(db, "i").elements()) == ["x", "x", "x", "z"]
    assert_exact(db, "i")
    assert db.sql("SELECT n FROM bag WHERE a = 'x' LIMIT 10").rows() == [(1,), (1,), (1,)]


def test_truncate_while_it_is_filled(db: ebla.Database):
    write(db, *range(40))
    fold(db, "t")
    begin_index(db, "CREATE INDEX i ON t (n)")
    step_until(db, "i", Permission.BACKFILLING)
    db.sql("TRUNCATE t")
    write(db, 1, 2)
    step_until(db, "i", READABLE)
    assert sum(entries(db, "i").values()) == 2
    assert_exact(db, "i")


# ---- I7, I8, I9 -----------------------------------------------------------------------------------------


def test_i7_history_collected_past_the_read_version(db: ebla.Database):
    write(db, *range(40))
    fold(db, "t")
    begin_index(db, "CREATE INDEX i ON t (n)")
    step_until(db, "i", Permission.BACKFILLING)
    with db.context.catalog.writing() as connection:
        connection.execute(s.pins.delete())
    write(db, 1, n=5)
    db.compact("t")
    db.vacuum(retain_s=0)
    with pytest.raises(SnapshotError, match="older rows were vacuumed"):
        db.sql("BUILD INDEXES ON t")
    assert state(db, "i") is None
    write(db, 2, n=6)
    db.sql("CREATE INDEX i ON t (n)")
    assert_exact(db, "i")


def test_i7_the_pin_keeps_what_is_read(db: ebla.Database):
    write(db, *range(40))
    fold(db, "t")
    begin_index(db, "CREATE INDEX i ON t (n)")
    step_until(db, "i", Permission.BACKFILLING)
    write(db, 1, n=5)
    db.compact("t")
    db.vacuum(retain_s=0)
    db.sql("BUILD INDEXES ON t")
    assert_exact(db, "i")


def test_i8_check_finds_and_repair_mends(db: ebla.Database):
    write(db, *range(40))
    db.sql("CREATE INDEX i ON t (a, n) INCLUDE (x)")
    index = definition_of(db, "i")
    names = [column.physical for column in index.relation.columns]
    good = sorted(entries(db, "i").elements(), key=repr)
    wrong = [
        (dict(zip(names, good[0], strict=True)), b.DELETE),
        (dict(zip(names, good[1], strict=True)), b.DELETE),
        ({**dict(zip(names, good[2], strict=True)), "x": -1.0}, b.UPSERT),
        ({"a": "spurious", "n": 1, "id": 999, "x": 1.0}, b.UPSERT),
    ]
    damage(db, index.name, wrong)
    assert db.sql("CHECK INDEX i").rows()[0][2:5] == (2, 1, 1)
    assert db.sql("REPAIR INDEX i").rows()[0][2:] == (2, 1, 1, 100.0, True)
    assert_exact(db, "i")
    assert db.sql("REPAIR INDEX i").rows()[0][2:5] == (0, 0, 0)


def test_i8_a_sample_finds_a_part(db: ebla.Database):
    write(db, *range(400))
    db.sql("CREATE INDEX i ON t (n)")
    index = definition_of(db, "i")
    damage(db, index.name, [({"n": 1, "id": 1000 + i}, b.UPSERT) for i in range(400)])
    found = db.sql("CHECK INDEX i SAMPLE 25").rows()[0]
    assert 50 < found[3] < 150
    assert found[5] == 25.0


def test_i9_indexes_built_together_share_one_scan(db: ebla.Database):
    write(db, *range(40))
    fold(db, "t")
    for number, text in enumerate(("(a)", "(n) WHERE n > 3", "(upper(a)) INCLUDE (x)")):
        db.sql(f"CREATE INDEX i{number} ON t {text} WITH (build = 'deferred')")
    db.sql("BUILD INDEXES ON t")
    assert fills(db) == ["fill index i0, i1, i2"]
    assert_exact(db, "i0", "i1", "i2")


def test_i9_one_that_begins_while_another_waits_joins_it(db: ebla.Database):
    write(db, *range(40))
    begin_index(db, "CREATE INDEX first ON t (a)")
    step_until(db, "first", Permission.BACKFILLING)
    begin_index(db, "CREATE INDEX second ON t (n)")
    db.sql("WAIT FOR first, second")
    assert fills(db) == ["fill index first, second"]
    assert_exact(db, "first", "second")


def fills(db: ebla.Database) -> list[str]:
    """What scans of a base were for: each is one transaction."""
    with db.context.catalog.reading() as connection:
        reasons = select(s.transactions.c.reason).where(s.transactions.c.reason.like("fill index%"))
        return list(connection.execute(reasons.order_by(s.transactions.c.transaction_id)).scalars())


# ---- going --------------------------------------------------------------------------------------------


def test_a_drop_in_every_state_leaves_nothing(db: ebla.Database):
    write(db, *range(20))
    db.sql("CREATE INDEX stays ON t (a)")
    for wanted in (*STATES, READABLE):
        begin_index(db, "CREATE INDEX i ON t (n)")
        step_until(db, "i", wanted)
        write(db, 3, n=9)
        db.sql("DROP INDEX i")
        assert state(db, "i") is None
    db.sql("CREATE INDEX i ON t (n) WITH (build = 'deferred')")
    text, value, drawn = db.sql("EXPLAIN INDEX i").one()
    assert "state: absent; queries do not read it; writers leave it alone\n    to delete_only, by a statement" in text
    assert json.loads(value)["state"]["now"] == "absent"
    assert drawn.startswith("stateDiagram-v2")
    db.sql("DROP INDEX i; DROP INDEX IF EXISTS i")
    db.vacuum(retain_s=0)
    nothing_left(db)
    assert_exact(db, "stays")


def test_dropping_the_table_drops_its_indexes(db: ebla.Database):
    write(db, *range(20))
    db.sql("CREATE INDEX i ON t (n)")
    db.sql("DROP TABLE t")
    assert db.sql("SHOW INDEXES").rows() == []
    db.vacuum(retain_s=0)
    nothing_left(db)


def test_an_asynchronous_index_becomes_readable_by_itself(db: ebla.Database, spark: SparkSession):
    write(db, *range(20))
    with connect(db.context.catalog.where, spark) as background:
        background.sql("CREATE ASYNC INDEX i ON t (n)")
        eventually(lambda: state(background, "i") is READABLE)
    assert_exact(db, "i")


def test_what_was_begun_is_carried_on_by_whoever_comes(db: ebla.Database, spark: SparkSession):
    write(db, *range(20))
    begin_index(db, "CREATE INDEX i ON t (n)")
    step_until(db, "i", Permission.WRITE_AND_DELETE)
    with connect(db.context.catalog.where, spark) as other:
        eventually(lambda: state(other, "i") is READABLE)
    assert_exact(db, "i")


def test_create_index_that_is_there(db: ebla.Database):
    db.sql("CREATE INDEX i ON t (n); CREATE INDEX IF NOT EXISTS i ON t (a)")
    assert [i.text for i in definition_of(db, "i").items] == ["n"]
    assert index_build.ask_for_deferred(db.context.catalog, db.context.node, "t")[0].name == "i"
