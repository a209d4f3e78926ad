"""Which process runs the epochs of a handler in the background, without any: leases, and epochs that run elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

import ebla
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import is_gone
from ebla.model.work import WorkKind
from ebla.relations import views as definition
from ebla.relations.views import View
from support.processes import Processes
from support.warehouse import HOUR_US, connect, eventually, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "handler/default"


def held_until(db: ebla.Database) -> int:
    with db.context.catalog.reading() as connection:
        return int(connection.execute(select(s.leases.c.expires_at).where(s.leases.c.name == NAME)).scalar_one())


def test_one_of_two_has_the_lease_until_it_gives_it_back(tmp_path: Path):
    with connect(tmp_path / "w") as db, connect(tmp_path / "w") as other:
        mine, theirs = db.context.leadership, other.context.leadership
        taken = mine.take(NAME)
        assert taken is not None
        assert theirs.take(NAME) is None
        assert mine.take(NAME) == taken
        mine.stop()
        assert theirs.take(NAME) is not None
        mine.lost(NAME)
        assert mine.held(NAME) is None


def test_a_lease_is_renewed_while_its_work_goes_on(tmp_path: Path):
    with connect(tmp_path / "w", leader_lease_s=0.3) as db:
        leases = db.context.leadership
        assert leases.take(NAME) is not None
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


@pytest.mark.process
def test_a_process_whose_parent_has_not_noticed_its_end_is_gone():
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        holder = f"{socket.gethostname()}/{child.pid}/abc"
        assert not is_gone(holder)
        child.kill()
        eventually(lambda: is_gone(holder))
        assert child.returncode is None


def load(db: ebla.Database, name: str) -> View:
    with db.context.catalog.reading() as connection:
        return definition.load(connection, name)


@pytest.fixture
def view(tmp_path: Path, spark: SparkSession) -> Iterator[tuple[ebla.Database, View]]:
    with connect(tmp_path / "w", spark, auto_refresh=False) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    # On a busy machine so short a lease runs out in every round of a build.
    with connect(tmp_path / "w", spark, auto_refresh=False, leader_lease_s=0.2) as db:
        yield db, load(db, "v")


def begun_elsewhere(db: ebla.Database, view: View) -> tx.Transaction:
    return tx.begin(
        db.context.catalog,
        view.relation,
        node=db.context.node,
        holder="elsewhere/1/abc",
        reason="epoch of v",
        lease_us=HOUR_US,
        work=WorkKind.EPOCH,
    )


def test_an_epoch_lets_one_of_another_process_end_first_but_does_not_wait_for_long(view: tuple[ebla.Database, View]):
    db, one = view
    theirs = begun_elsewhere(db, one)
    began = time.monotonic()
    db.sql("INSERT INTO t VALUES (1); FLUSH v")
    assert time.monotonic() - began >= 0.2
    tx.abort(db.context.catalog, theirs.id)
    with connect(db.context.catalog.where, db.spark, auto_refresh=False, leader_lease_s=3600) as patient:
        theirs = begun_elsewhere(db, one)
        patient.sql("INSERT INTO t VALUES (2)")
        flushing = threading.Thread(target=patient.sql, args=("FLUSH v",))
        flushing.start()
        tx.abort(db.context.catalog, theirs.id)
        flushing.join(150)
        assert not flushing.is_alive()
    assert rows(db, "v") == [(1,), (2,)]
