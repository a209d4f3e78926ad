"""Which process runs the epochs of a handler in the background, without any: leases, and epochs that run elsewhere."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

import ebla
from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.jobs.leases import Leases, is_gone
from support.processes import Processes
from support.warehouse import HOUR_US, connect, eventually

NAME = "handler/default"


def held_until(db: ebla.Database) -> int:
    with db.context.catalog.reading() as connection:
        return int(connection.execute(select(s.leases.c.expires_at).where(s.leases.c.name == NAME)).scalar_one())


def test_one_of_two_has_the_lease_until_it_gives_it_back(tmp_path: Path):
    with connect(tmp_path / "w") as db, connect(tmp_path / "w") as other:
        mine, theirs = Leases(db.context), Leases(other.context)
        assert mine.take(NAME) == 0.0
        assert theirs.take(NAME) > 0
        assert mine.take(NAME) == 0.0
        mine.stop()
        assert theirs.take(NAME) == 0.0
        theirs.stop()


def test_a_lease_is_renewed_while_its_work_goes_on(tmp_path: Path):
    with connect(tmp_path / "w", leader_lease_s=0.3) as db:
        leases = Leases(db.context)
        assert leases.take(NAME) == 0.0
        until = held_until(db)
        with leases.working(NAME):
            eventually(lambda: held_until(db) > until)
        leases.stop()
        assert held_until(db) == 0


@pytest.mark.process
def test_only_a_process_of_this_machine_that_has_ended_is_gone(processes: Processes, tmp_path: Path):
    here = socket.gethostname()
    child = processes.start("support.catalog_tasks:wait_for", str(tmp_path / "gate"))
    assert not is_gone(f"{here}/{child.pid}/abc")
    child.kill()
    child.close()
    assert is_gone(f"{here}/{child.pid}/abc")
    assert not is_gone(f"elsewhere/{child.pid}/abc")
    assert not is_gone(f"{here}/{os.getpid()}/abc")
    assert not is_gone("test")


def test_an_epoch_lets_one_of_another_process_end_first(tmp_path: Path):
    with connect(tmp_path / "w", leader_lease_s=60) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        with db.context.catalog.reading() as connection:
            relation = reads.relation(connection, "t")
        theirs = tx.begin(
            db.context.catalog,
            relation,
            node=db.context.node,
            holder="elsewhere/1/abc",
            reason=f"{tx.EPOCH}t",
            lease_us=HOUR_US,
        )
        waiting = threading.Thread(target=db.epochs._wait_for_others, args=([relation.id],))
        waiting.start()
        assert waiting.is_alive()
        tx.abort(db.context.catalog, theirs.id)
        waiting.join(30)
        assert not waiting.is_alive()


def test_an_epoch_does_not_wait_for_long(tmp_path: Path):
    with connect(tmp_path / "w", leader_lease_s=0.2) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        with db.context.catalog.reading() as connection:
            relation = reads.relation(connection, "t")
        tx.begin(
            db.context.catalog,
            relation,
            node=db.context.node,
            holder="elsewhere/1/abc",
            reason=f"{tx.EPOCH}t",
            lease_us=HOUR_US,
        )
        began = time.monotonic()
        db.epochs._wait_for_others([relation.id])
        assert time.monotonic() - began >= 0.2
