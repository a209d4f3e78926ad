"""`ebla run`, and what is said where no process maintains."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ebla
from ebla.api.metrics import Metrics
from ebla.base.ids import NodeId, Version
from ebla.catalog import processes, reads, troubles
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.cli import run as run_module
from ebla.cli import status
from ebla.cli.main import run
from ebla.errors import Culprit
from ebla.model.relation import Kind
from ebla.relations import attention
from ebla.relations import status as status_module
from support.terminal import Terminal
from support.warehouse import eventually

pytestmark = pytest.mark.spark

HOUR_US = 3_600_000_000
STOP_S = 15.0
"""How long it takes to end at most, unless the machine is so busy that it took longer to start."""
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
    found = status_module.of(catalog)
    relation = next(number for number, name in found.names.items() if name == "sums")
    troubles.record(
        catalog,
        relation=relation,  # type: ignore[arg-type]
        work=Activity.EPOCH,
        name="sums",
        kind=Kind.VIEW,
        final=True,
        code="DIVIDE_BY_ZERO",
        message="division by zero",
        culprit=Culprit(None, "id = 1"),
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


def sections(text: str) -> dict[str, list[dict[str, str]]]:
    """The tables of `ebla status`: by title, a row by its columns."""
    found = {}
    for block in text.split("\n\n")[1:]:
        title, *lines = block.strip("\n").splitlines()
        if len(lines) > 2:
            names, _, *rows = ([cell.strip() for cell in re.split(r"\s{2,}", line.strip())] for line in lines)
            found[title] = [dict(zip(names, row, strict=True)) for row in rows]
    return found


def chosen(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def at_work(shop: str) -> Version:
    """A process that maintains, a paused build, an open transaction and a pin, whose version is returned."""
    with ebla.connect(shop, auto_refresh=False, auto_compact=False) as db:
        db.table("orders").upsert([{"id": 2, "total": 2}])
        db.sql("CREATE ASYNC INDEX downwards ON orders (total DESC); ALTER INDEX downwards PAUSE")
    with contextlib.closing(Catalog.open(shop, create=False)) as catalog:
        with catalog.reading() as connection:
            orders = reads.relation(connection, "orders")
        node = NodeId("node1")
        doing = ("epoch of sums", "compaction of orders")
        processes.report(
            catalog,
            holder="keeper",
            node=node,
            host="here",
            pid=7,
            role=processes.Role.RUN,
            maintains=True,
            doing=doing,
            lease_us=HOUR_US,
        )
        tx.begin(catalog, orders, node=node, holder="writer", reason="upsert into orders", lease_us=HOUR_US)
        return tx.pin(catalog, None, holder="reader", reason="query", lease_us=HOUR_US)[1]


def test_the_page_for_an_incident(shop: str, capsys: pytest.CaptureFixture[str]):
    """Every section of `ebla status`, as text, as JSON, and as metrics."""
    pinned = at_work(shop)
    size = status_module.read(shop).tables[0].size
    assert size.level0_runs > 0
    paused = "RESUME: it is paused"

    assert run(["-w", shop, "status"]) == 0
    text = capsys.readouterr().out
    found = sections(text)
    assert chosen(found["processes"], "process", "node", "role", "maintains", "doing") == [
        ("here/7", "node1", "run", "yes", "epoch of sums; compaction of orders")
    ]
    assert chosen(found["tables"], "table", "level 0", "bytes") == [
        ("orders", str(size.level0_runs), status.amount(size.bytes))
    ]
    assert chosen(found["views"], "view", "status", "rows", "handler", "last error") == [
        ("sums", "ready", "1", "default", "-")
    ]
    assert chosen(found["handlers"], "handler", "runs", "views") == [("default", "yes", "sums")]
    assert chosen(found["indexes"], "index", "on", "built", "waits for") == [
        ("by_total", "orders", "100 %", "-"),
        ("downwards", "orders", "0 %", paused),
    ]
    assert chosen(found["builds"], "build", "of", "phase", "done", "waits for") == [
        ("downwards", "orders", "waiting", "0 %", paused)
    ]
    assert chosen(found["open transactions"], "table", "reason", "holder") == [
        ("orders", "upsert into orders", "writer")
    ]
    assert chosen(found["pins"], "version", "reason", "holder") == [(str(pinned), "query", "reader")]
    # An index is written by the writers of its table: it has no last write of its own, and none is called missing.
    assert "written" not in found["indexes"][0]
    assert "never" not in text

    assert run(["-w", shop, "status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert chosen(told["processes"], "holder", "host", "pid", "role", "maintains", "doing") == [
        ("keeper", "here", 7, "run", True, ["epoch of sums", "compaction of orders"])
    ]
    assert chosen(told["builds"], "name", "base", "phase", "percent", "detail") == [
        ("downwards", "orders", "waiting", 0.0, paused)
    ]
    assert chosen(told["transactions"], "table", "holder") == [("orders", "writer")]
    assert chosen(told["pins"], "version", "holder") == [(pinned, "reader")]
    assert "written_at" not in told["indexes"][0]

    assert run(["-w", shop, "metrics", "--json"]) == 0
    samples = {
        (one["name"], *sorted(one["labels"].values())): one["value"]
        for one in json.loads(capsys.readouterr().out)["metrics"]
    }
    assert samples["ebla_processes", "run", "true"] == 1
    assert samples["ebla_build_percent", "downwards"] == 0
    assert samples["ebla_relation_level0_runs", "orders", "table"] == size.level0_runs
    assert samples["ebla_relation_bytes", "orders", "table"] == size.bytes
    assert samples["ebla_transactions_open",] == 1
    assert samples["ebla_transaction_oldest_seconds",] > 0
    assert samples["ebla_pins",] == 1
    assert samples["ebla_handler_age_seconds", "default"] > 0


def test_the_display_shows_views_builds_and_what_is_done(shop: str):
    write(shop, 2)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(run_module.display(status_module.read(shop), ("epoch of sums",), ["12:00:00 info started"], 61.0))
    text = console.export_text()
    assert "up 1 minute" in text
    assert "sums" in text
    assert "now: epoch of sums" in text
    assert "12:00:00 info started" in text


def nothing_is_said_of_missing_processes(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither by CREATE nor by a query of a view that may still be old: another process maintains both."""
    assert run(["-w", shop, "sql", "CREATE ASYNC MATERIALIZED VIEW ids AS SELECT id FROM orders"]) == 0
    assert "no process" not in capsys.readouterr().err
    write(shop, 8)
    assert run(["-w", shop, "query", "sums"]) == 0
    assert attention.NO_PROCESS not in capsys.readouterr().err
    assert run(["-w", shop, "query", "sums", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waits_for"] in (None, "the next epoch")
    eventually(lambda: all(view.status == "ready" for view in status_module.read(shop).views), 120)
    assert run(["-w", shop, "status"]) == 0
    assert "no process" not in capsys.readouterr().out


@pytest.mark.process
def test_it_maintains_until_it_is_stopped(shop: str, capsys: pytest.CaptureFixture[str]):
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
            nothing_is_said_of_missing_processes(shop, capsys)
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
    """As a terminal does it: the signal reaches all processes of the group, Spark's JVM too. It tells by log lines."""
    with subprocess.Popen(
        [sys.executable, "-m", "ebla", "-w", shop, "run"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            started = time.monotonic()
            eventually(lambda: process.poll() is not None or status_module.read(shop).maintained, 180)
            start_s = time.monotonic() - started
            write(shop, 2)
            eventually(lambda: not status_module.read(shop).views[0].age_s, 120)
            began = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert time.monotonic() - began < max(STOP_S, start_s)
    assert process.returncode == 0, err[-2000:]
    assert "Traceback" not in err
    lines = [re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (\w+) ([\w.]+) (.+)", line) for line in out.splitlines()]
    said = [line.groups() for line in lines if line is not None]
    assert len(said) == len(lines), out
    assert said[0] == ("info", "ebla.run", "starting Spark")
    assert any(level == "info" and "view=sums epoch=" in message for level, _, message in said)
    assert said[-1] == ("info", "ebla.run", "stopped")
    assert status_module.read(shop).processes == []
    with ebla.connect(shop, auto_refresh=False) as db:
        assert db.sql("SELECT name FROM system.leases WHERE expires_at > now()").rows() == []


@pytest.mark.process
def test_a_terminal_shows_what_is_done_until_ctrl_c(shop: str):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    started = time.monotonic()
    terminal = Terminal([sys.executable, "-m", "ebla", "-w", shop, "run"], environment)
    try:
        terminal.wait_for("Ctrl-C ends it", 180)
        start_s = time.monotonic() - started
        shown = terminal.wait_for("now: ")
        assert re.search(r"sums +ready", shown)
        assert "no builds" in shown
        wanted = [("run", True, terminal.process.pid)]
        eventually(lambda: [(p.role.value, p.maintains, p.pid) for p in status_module.read(shop).processes] == wanted)
        terminal.wait_for("info ")  # the last lines of the log
        terminal.wait_for("Ctrl-C ends it")  # drawn anew
        began = time.monotonic()
        terminal.type("\x03")
        assert terminal.wait() == 0
        assert time.monotonic() - began < max(STOP_S, start_s)
    finally:
        terminal.close()
    assert status_module.read(shop).processes == []
