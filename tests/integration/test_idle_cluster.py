"""What a process with two nodes asks of the catalog while nothing happens, and while a request waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.model import topology_changes as t
from ebla.model.topology import RequestKind
from ebla.topology import service
from support.catalogs import exclusively, statements
from support.warehouse import connect, eventually

READS = ("SELECT", "PRAGMA", "BEGIN", "COMMIT", "ROLLBACK")


def looked(db: ebla.Database, times: int) -> None:
    before = db.background.membership.coordination.rounds
    eventually(lambda: db.background.membership.coordination.rounds >= before + times)


def writes(sent: list[str]) -> list[str]:
    """But for the row by which others know that the process lives."""
    return [one for one in sent if not one.startswith(READS) and " processes " not in one]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ebla.Database]:
    monkeypatch.setattr(service, "SIZES_S", 0.2)
    monkeypatch.setattr(service, "LOOK_S", 0.1)
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", nodes=nodes, replication=2, repair_period_s=0.1, leader_lease_s=60) as database:
        database.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        database.table("t").upsert([{"id": 1}])
        looked(database, 15)
        yield database


def test_an_idle_warehouse_is_not_written_to(db: ebla.Database):
    """Copies are looked for and sizes read, without any lease."""
    with statements(db.context.catalog) as sent:
        looked(db, 20)
    assert writes(sent) == []


def test_a_request_that_waits_is_looked_at_seldom_and_without_a_write(
    db: ebla.Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "SIZES_S", 60.0)
    looked(db, 5)
    waiting = t.AddRequest(kind=RequestKind.NEW_CDC_GENERATION, holder="test")  # nothing answers it
    exclusively(db.context.catalog, waiting)
    looked(db, 10)
    with statements(db.context.catalog) as sent:
        looked(db, 10)
    assert writes(sent) == []
    assert not [one for one in sent if "GROUP BY runs.relation_id" in one], "sizes are read when they are due"
    assert len(sent) < 10 * 40
