"""`ebla run`, and what is said where no process maintains."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import ebla
from ebla.api.metrics import Metrics
from ebla.catalog import troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.cli import run as run_module
from ebla.cli.main import run
from ebla.model.relation import Kind
from ebla.relations import attention
from ebla.relations import status as status_module
from support.warehouse import eventually

pytestmark = pytest.mark.spark

SHOP = """
CREATE TABLE orders (id BIGINT, total BIGINT, PRIMARY KEY (id));
INSERT INTO orders VALUES (1, 10);
CREATE INDEX by_total ON orders (total);
CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(total) AS total FROM orders
"""


@pytest.fixture
def shop(tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A warehouse with a view and an index, made at the command line; nothing maintains it."""
    monkeypatch.setenv("EBLA_TABLETS", "2")
    monkeypatch.setenv("EBLA_EPOCH_PERIOD_S", "0.1")
    place = str(tmp_path / "shop")
    assert run(["-w", place, "sql", SHOP]) == 0
    assert "note: no process keeps view sums up to date; start ebla run" in capsys.readouterr().err
    return place


def write(place: str, number: int) -> int:
    """A write by a process without Spark."""
    with ebla.connect(place, auto_compact=False) as db:
        db.table("orders").upsert([{"id": number, "total": number}])
        return db.version


def test_what_nothing_maintains_is_said(shop: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(["-w", shop, "status"]) == 0
    fresh = capsys.readouterr().out
    assert "NEEDS A PERSON" not in fresh
    assert "no process maintains views" in fresh

    write(shop, 2)
    assert run(["-w", shop, "query", "sums"]) == 0
    assert "s old, of version" in (said := capsys.readouterr().err)
    assert f"waits for {attention.NO_PROCESS}" in said
    assert run(["-w", shop, "query", "sums", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == [[1, 10]]
    assert found["age_s"] > 0
    assert found["waits_for"] == attention.NO_PROCESS

    monkeypatch.setattr(attention, "STALE_S", 0.0)
    assert run(["-w", shop, "status", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["subject"] for one in found["needs"]] == ["view sums"]
    assert [(v["view"], v["status"], v["waits_for"]) for v in found["views"]] == [
        ("sums", "ready", attention.NO_PROCESS)
    ]
    assert [(i["index"], i["relation"], i["percent"], i["error"]) for i in found["indexes"]] == [
        ("by_total", "orders", 100.0, None)
    ]
    assert [t["table"] for t in found["tables"]] == ["orders"]
    assert [(h["handler"], h["views"]) for h in found["handlers"]] == [("default", ["sums"])]


def test_troubles_are_shown_and_need_a_person(shop: str, capsys: pytest.CaptureFixture[str]):
    catalog = Catalog.open(shop, create=False)
    status = status_module.of(catalog)
    relation = next(number for number, name in status.names.items() if name == "sums")
    troubles.record(
        catalog,
        relation=relation,  # type: ignore[arg-type]
        work=Activity.EPOCH,
        name="sums",
        kind=Kind.VIEW,
        final=True,
        code="DIVIDE_BY_ZERO",
        message="division by zero",
        culprit="id = 1",
        holder="me",
    )
    samples = {
        (one["name"], tuple(sorted(one["labels"].items()))): one["value"]  # type: ignore[attr-defined]
        for one in Metrics(catalog).samples()
    }
    catalog.close()
    assert run(["-w", shop, "status"]) == 1
    text = capsys.readouterr().out
    assert "NEEDS A PERSON" in text
    assert "division by zero (id = 1)" in text
    assert samples["ebla_needs_a_person", ()] == 1
    assert samples["ebla_trouble_attempts", (("final", "true"), ("name", "sums"), ("work", "epoch"))] == 1
    assert samples["ebla_index_percent", (("index", "by_total"), ("relation", "orders"))] == 100
    assert samples["ebla_relation_rows", (("kind", "table"), ("relation", "orders"))] == 1
    assert samples["ebla_handler_should_run", (("handler", "default"),)] == 1


def test_the_display_shows_views_builds_and_what_is_done(shop: str):
    write(shop, 2)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(run_module.display(status_module.read(shop), ("epoch of sums",), ["12:00:00 info started"], 61.0))
    text = console.export_text()
    assert "up 1 minute" in text
    assert "sums" in text
    assert "now: epoch of sums" in text
    assert "12:00:00 info started" in text


@pytest.mark.process
def test_it_maintains_until_it_is_stopped(shop: str):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "EBLA_COMPACT_RUNS": "3"}
    with subprocess.Popen(
        [sys.executable, "-m", "ebla", "-w", shop, "run", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            eventually(lambda: process.poll() is not None or status_module.read(shop).maintained, 180)
            for number in range(2, 8):
                write(shop, number)
            eventually(lambda: not status_module.read(shop).views[0].age_s, 120)
            eventually(lambda: status_module.read(shop).tables[0].size.level0_runs < 3, 120)
            (seen,) = status_module.read(shop).processes
            assert (seen.role.value, seen.maintains, seen.pid) == ("run", True, process.pid)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, err[-2000:]
    said = [json.loads(line)["message"] for line in out.splitlines()]
    assert said[0] == "starting Spark"
    assert any("view=sums epoch=" in line for line in said)
    assert said[-1] == "stopped"
    assert status_module.read(shop).processes == []


@pytest.mark.process
def test_ctrl_c_ends_it_within_seconds_and_gives_its_leases_back(shop: str):
    """As a terminal does it: the signal reaches all processes of the group, Spark's JVM too."""
    with subprocess.Popen(
        [sys.executable, "-m", "ebla", "-w", shop, "run", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            eventually(lambda: process.poll() is not None or status_module.read(shop).maintained, 180)
            write(shop, 2)
            eventually(lambda: not status_module.read(shop).views[0].age_s, 120)
            began = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert time.monotonic() - began < 15
    assert process.returncode == 0, err[-2000:]
    assert "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["message"] == "stopped"
    assert status_module.read(shop).processes == []
    with ebla.connect(shop, auto_refresh=False) as db:
        assert db.sql("SELECT name FROM system.leases WHERE expires_at > now()").rows() == []
