"""What `system.processes` says of the processes that have a warehouse open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ebla
from ebla.catalog import processes
from ebla.catalog.processes import Process, Role
from ebla.errors import UsageError
from ebla.node import presence
from ebla.node.presence import DOING_S, QUIET_S, PresenceRow, is_due, periods
from support.warehouse import connect, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE = PresenceRow(maintains=False, doing=())
MAINTAINS = PresenceRow(maintains=True, doing=())


def alive(db: ebla.Database) -> list[Process]:
    with db.context.catalog.reading() as connection:
        return processes.alive(connection, db.context.catalog.clock())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LOOK_S", 0.01)
    monkeypatch.setattr(presence, "DOING_S", 0.01)
    monkeypatch.setattr(presence, "QUIET_S", 3600.0)  # one that only reads says nothing, however slow it is


@pytest.mark.parametrize(
    ("now", "said", "said_s", "is_now", "due"),
    [
        (QUIET_S - 0.1, None, 0.0, IDLE, False),
        (QUIET_S, None, 0.0, IDLE, True),
        (0.1, None, 0.0, MAINTAINS, True),
        (10.0, IDLE, 9.0, IDLE, False),
        (15.0, IDLE, 9.0, IDLE, True),
        (10.0, IDLE, 9.9, MAINTAINS, True),
        (10.0, IDLE, 10.1 - DOING_S, PresenceRow(maintains=False, doing=("epoch of v",)), False),
        (10.0, IDLE, 10.0 - DOING_S, PresenceRow(maintains=False, doing=("epoch of v",)), True),
    ],
)
def test_a_row_is_written_when_it_says_something_new_or_gets_old(
    now: float, said: PresenceRow | None, said_s: float, is_now: PresenceRow, due: bool
):
    assert is_due(now, 0.0, 5.0, said, said_s, is_now) is due


@pytest.mark.parametrize("lease_s", [0.1, 0.5, 3.0, 5.0, 60.0])
def test_the_row_of_a_leader_that_lives_holds_when_another_one_follows_it(lease_s: float):
    written_s, look_s = periods(lease_s, 10.0)
    assert written_s + look_s < 0.9 * lease_s


def test_a_process_says_what_it_is_for_and_what_it_does_until_it_closes(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(presence, "QUIET_S", 0.0)
    with connect(tmp_path / "w") as db:
        with connect(tmp_path / "w", role="run") as other:
            eventually(lambda: [p.role for p in alive(db)] == [Role.PYTHON, Role.RUN])
            with other.context.at_work("epoch of v"), other.context.at_work("epoch of v"):
                eventually(lambda: [p.doing for p in alive(db)] == [(), ("epoch of v",)])
            eventually(lambda: [p.doing for p in alive(db)] == [(), ()])
        assert [(p.role, p.pid, p.maintains) for p in alive(db)] == [(Role.PYTHON, os.getpid(), False)]


def test_a_command_that_reads_and_ends_writes_nothing(tmp_path: Path, quick: None):
    with connect(tmp_path / "w") as db, connect(tmp_path / "w", role="command"):
        assert alive(db) == []


def test_a_process_maintains_once_it_has_spark(tmp_path: Path, spark: SparkSession, quick: None):
    with connect(tmp_path / "w", spark) as db:
        eventually(lambda: [p.maintains for p in alive(db)] == [True])
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        db.table("t").upsert([{"id": n} for n in range(10)])
        db.compact("t")
    with connect(tmp_path / "w", spark, auto_refresh=False) as db:
        assert alive(db) == []


def test_an_unknown_role_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="role: expected one of python, command, run, node, found 'walk'"):
        connect(tmp_path / "w", role="walk")
