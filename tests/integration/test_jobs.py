"""Jobs of one process, and of two: what runs where, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import ebla
from ebla.catalog import jobs
from ebla.model.jobs import COORDINATOR
from support.catalogs import statements
from support.warehouse import connect, eventually, rows

TABLES = ("mv_handlers", "mv_runners", "mv_runner_jobs", "mv_commands")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shown(db: ebla.Database, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = db.sql(f"SHOW {what}").to_arrow().to_pylist()
    return found


def states(db: ebla.Database) -> dict[str, str]:
    return {one["name"]: one["state"] for one in shown(db, "JOBS")}


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Any:
    with connect(tmp_path / "w", spark) as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
        eventually(lambda: states(database) == {"default": "running", COORDINATOR: "running"})
        yield database


def test_a_process_alone_is_its_own_coordinator_and_runner(db: ebla.Database):
    [runner] = shown(db, "RUNNERS")
    assert (runner["alive"], runner["jobs"], runner["permanent"]) == (True, f"default, {COORDINATOR}", False)
    assert [(one["type"], one["job"], one["status"]) for one in shown(db, "COMMANDS")] == [
        ("START", "default", "SUCCESS")
    ]
    counted = db.context.catalog.read(jobs.changed)
    with statements(db.context.catalog) as sent:
        db.sql("INSERT INTO t VALUES (1)")
        eventually(lambda: rows(db, "v") == [(1,)])
    assert db.context.catalog.read(jobs.changed) == counted
    assert not [one for one in sent if "mv_runner_jobs" in one or "mv_commands" in one], (
        "no other process can change them"
    )


def test_should_run_false_stops_a_job_and_true_starts_it(db: ebla.Database):
    db.sql("ALTER HANDLER default SET (should_run = false)")
    eventually(lambda: states(db)["default"] == "stopped")
    assert "handler/default" not in db.context.services
    db.sql("ALTER HANDLER default SET (should_run = true); INSERT INTO t VALUES (2)")
    eventually(lambda: rows(db, "v") == [(2,)])
    assert [one["type"] for one in shown(db, "COMMANDS")] == ["START", "STOP", "START"]
    assert {one["status"] for one in shown(db, "COMMANDS")} == {"SUCCESS"}


def test_the_jobs_of_a_process_that_ends_run_in_another(db: ebla.Database, spark: SparkSession):
    [first] = [one["name"] for one in shown(db, "RUNNERS")]
    with connect(db.context.catalog.where, spark) as other:
        eventually(lambda: len(shown(other, "RUNNERS")) == 2)
        assert "handler/default" not in other.context.services, "one process runs it"
        db.close()
        eventually(lambda: [one["jobs"] for one in shown(other, "RUNNERS")] == [f"default, {COORDINATOR}"])
        assert first not in [one["name"] for one in shown(other, "RUNNERS")]
        other.sql("INSERT INTO t VALUES (3)")
        eventually(lambda: rows(other, "v") == [(3,)])


@pytest.mark.postgres
def test_jobs_run_in_tables_of_other_names(tmp_path: Path, spark: SparkSession, postgres_url: str):
    names: dict[str, Any] = {
        "handlers_table": "shop_handlers",
        "runners_table": "shop_runners",
        "runner_jobs_table": "shop_runner_jobs",
        "commands_table": "shop_commands",
    }
    root = str(tmp_path / "data")
    with (
        connect(postgres_url, spark, storage_root=root, **names) as db,
        connect(postgres_url, spark, storage_root=root) as follower,
    ):
        db.sql("CREATE TABLE t (id INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
        follower.sql("CREATE HANDLER h PROCESS v, INPUT t AS STREAM; INSERT INTO t VALUES (1)")
        eventually(lambda: rows(follower, "v") == [(1,)])
        running = "SELECT job_name FROM system.mv_runner_jobs WHERE job_name = 'h'"
        eventually(lambda: db.sql(running).rows() == [("h",)])
        assert ("START", "h", "SUCCESS") in [(one["type"], one["job"], one["status"]) for one in shown(db, "COMMANDS")]
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'ebla'").fetchall()
            assert set(names.values()) <= {name for (name,) in found}
            assert not set(TABLES) & {name for (name,) in found}
            assert connection.execute("SELECT 1 FROM ebla.shop_commands WHERE job_name = 'h'").fetchone() == (1,)


def test_a_process_that_was_taken_for_dead_ends_its_jobs_and_registers_anew(db: ebla.Database):
    [first] = [one["name"] for one in shown(db, "RUNNERS")]
    db.context.catalog.change(lambda state: jobs.remove(state, first))
    eventually(lambda: states(db)["default"] == "running")
    [second] = [one["name"] for one in shown(db, "RUNNERS")]
    assert second != first
    db.sql("INSERT INTO t VALUES (4)")
    eventually(lambda: rows(db, "v") == [(4,)])
