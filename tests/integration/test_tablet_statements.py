"""MOVE TABLET, ALTER TABLE … SET (replication), SHOW TABLETS and SHOW TRANSITIONS, between nodes of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ebla.base.ids import Version
from ebla.errors import UnknownNameError, UsageError
from ebla.model.changes import Decision
from ebla.tables.transaction import OpenTransaction
from ebla.topology import service
from support.catalogs import dump
from support.warehouse import connect, eventually, named, open_transactions, stored

if TYPE_CHECKING:
    import ebla

NODES = ("node1", "node2", "node3")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    nodes = {name: str(tmp_path / name) for name in NODES[1:]}
    with connect(tmp_path / "warehouse", nodes=nodes, repair_period_s=0) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)) WITH (tablets = 2); CREATE INDEX by_n ON t (n)")
        db.table("t").upsert([{"id": i, "n": i % 3} for i in range(50)])
        yield db


def replicas(db: ebla.Database) -> dict[int, set[str]]:
    found = db.sql("SHOW TABLETS OF t").to_arrow().to_pylist()
    return {row["tablet"]: set(row["replicas"].split(", ")) for row in found}


def ids(db: ebla.Database) -> list[int]:
    return sorted(row[0] for row in db.query("t", limit=1000).rows())


def test_a_tablet_is_moved_by_a_statement(db):
    (source,) = replicas(db)[1]
    target = next(name for name in NODES if name != source)
    request = db.sql(f"MOVE TABLET 1 OF t FROM '{source}' TO '{target}'").one()[0]
    assert db.sql(f"WAIT FOR REQUEST {request}").one() == (request, "tablet 1 has moved")
    assert replicas(db)[1] == {target}
    assert db.sql("SHOW TRANSITIONS").rows() == []
    assert ids(db) == list(range(50))
    assert sorted(row[0] for row in db.query("t", where={"n": 1}).rows()) == list(range(1, 50, 3))
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


def test_a_step_that_waits_for_a_transaction_comes_when_that_ends(db, monkeypatch):
    for pause in ("POLL_S", "LOOK_S"):
        monkeypatch.setattr(service, pause, 600.0)
    may_commit, real = threading.Event(), OpenTransaction.commit

    def late(self: OpenTransaction, decision: Decision) -> Version:
        may_commit.wait()
        return real(self, decision)

    monkeypatch.setattr(OpenTransaction, "commit", late)
    (source,) = replicas(db)[1]
    target = next(name for name in NODES if name != source)
    with ThreadPoolExecutor() as pool:
        try:
            written = pool.submit(db.table("t").upsert, [{"id": 50, "n": 0}])
            eventually(lambda: bool(open_transactions(db)))
            db.sql(f"MOVE TABLET 1 OF t FROM '{source}' TO '{target}'")
            eventually(lambda: db.background.membership.coordination.waits_for_transactions)
            assert (
                "a transaction that began before" in db.sql("SHOW TRANSITIONS").to_arrow().to_pylist()[0]["waits_for"]
            )
        finally:
            may_commit.set()
        written.result()
    eventually(lambda: db.sql("SHOW TRANSITIONS").rows() == [])
    assert replicas(db)[1] == {target}
    assert ids(db) == list(range(51))


def test_a_table_gets_more_copies_and_fewer(db):
    for wanted in (3, 2, 1):
        request = db.sql(f"ALTER TABLE t SET (replication = {wanted})").one()[0]
        done = db.sql(f"WAIT FOR REQUEST {request}").one()
        assert done == (request, f"t has {wanted} copies of each tablet")
        assert {len(nodes) for nodes in replicas(db).values()} == {wanted}
        assert db.sql("SELECT count(*) FROM system.under_replicated").one() == (0,)
        db.table("t").upsert([{"id": 50 + wanted, "n": 0}])
    shown = {name: copies for name, _, _, copies, *_ in db.sql("SHOW REPLICATION").rows()}
    assert shown == {"t": 1, "by_n": 1}
    assert ids(db) == [*range(50), 51, 52, 53]
    db.vacuum(retain_s=0)
    assert stored(db) == named(db)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("MOVE TABLET 1 OF t FROM '{source}' TO '{source}'", UsageError, "expected no replica on node"),
        ("MOVE TABLET 1 OF t FROM '{other}' TO '{source}'", UsageError, "tablet 1 of t: expected a replica on node"),
        ("MOVE TABLET 2 OF t FROM '{source}' TO '{other}'", UsageError, "expected a tablet from 0 to 1, found 2"),
        ("MOVE TABLET 1 OF t FROM '{source}' TO 'node9'", UnknownNameError, "node node9: expected a node"),
        ("MOVE TABLET 1 OF missing FROM '{source}' TO '{other}'", UnknownNameError, "missing: expected a table"),
        ("MOVE TABLET 1 OF by_n FROM '{source}' TO '{other}'", UsageError, "found an index, which lies where its base"),
        ("ALTER TABLE t SET (replication = 4)", UsageError, "expected a replication of at most 3, the number of live"),
        ("ALTER TABLE t SET (replication = 0)", UsageError, "expected a replication from 1, found 0"),
        ("ALTER TABLE t SET (replication = 'two')", UsageError, "expected a whole number from 1, found 'two'"),
    ],
)
def test_what_is_impossible_is_refused_and_changes_nothing(db, statement, error, message):
    (source,) = replicas(db)[1]
    other = next(name for name in NODES if name != source)
    before = dump(db.context.catalog)
    with pytest.raises(error, match=message):
        db.sql(statement.format(source=source, other=other))
    assert dump(db.context.catalog) == before


def test_fewer_copies_than_a_write_needs_are_refused(db):
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (replication = 2, min_copies = 2)")
    with pytest.raises(UsageError, match="u: expected a replication of at least 2, its min_copies, found 1"):
        db.sql("ALTER TABLE u SET (replication = 1)")
