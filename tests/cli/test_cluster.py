"""`ebla cluster …`: what it shows without being a node, and that it waits for what it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ebla
from ebla.catalog import topology
from ebla.cli import progress
from ebla.cli.main import run
from support.warehouse import connect


@pytest.fixture
def db(tmp_path: Path):
    """Two nodes in one process, and a table with a replica of each of its four tablets."""
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}, tablets=4) as opened:
        opened.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        opened.table("t").upsert([{"id": number} for number in range(20)])
        opened.background.membership.presence.appear()
        yield opened


def said(capsys: pytest.CaptureFixture[str], place: Path, *arguments: str) -> list[dict[str, object]]:
    """The rows that a command prints."""
    assert run(["-w", str(place), "cluster", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def test_what_is_listed_is_what_sql_lists(db: ebla.Database, tmp_path: Path, capsys):
    place = tmp_path / "w"
    listed = said(capsys, place, "nodes")
    assert [(row["name"], row["state"], row["alive"]) for row in listed] == [
        ("node1", "normal", True),
        ("node2", "normal", True),
    ]
    tablets = said(capsys, place, "tablets", "t")
    assert [row["replicas"] for row in tablets] == [row[2] for row in db.sql("SHOW TABLETS OF t").rows()]
    assert [row["name"] for row in said(capsys, place, "replication", "t")] == ["t"]
    assert said(capsys, place, "transitions") == []
    assert said(capsys, place, "requests") == []
    assert run(["-w", str(place), "cluster", "tablets", "nope"]) == 2
    assert run(["-w", str(place), "cluster", "replication", "nope"]) == 2


def test_a_node_leaves_with_its_progress_shown(db: ebla.Database, tmp_path: Path, capsys, monkeypatch):
    told: list[tuple[str, float | None]] = []
    monkeypatch.setattr(progress.Lines, "__call__", lambda self, what, part: told.append((what, part)))
    [answer] = said(capsys, tmp_path / "w", "decommission", "node2")
    assert answer["result"] == "node node2 left"
    assert any(what.startswith(f"request {answer['request']} (leave) waits for") for what, _ in told), told
    parts = [part for what, part in told if "tablets on node node2" in what]
    assert parts, told
    assert parts == sorted(part for part in parts if part is not None)
    assert {row["replicas"] for row in said(capsys, tmp_path / "w", "tablets")} == {"node1"}
    [row] = said(capsys, tmp_path / "w", "requests")
    assert (row["id"], row["kind"], row["state"]) == (answer["request"], "leave", "done")
    assert len(db.query("t", limit=100).rows()) == 20


def test_what_is_asked_without_waiting_is_waited_for_later(db: ebla.Database, tmp_path: Path, capsys):
    place = tmp_path / "w"
    source = str(said(capsys, place, "tablets", "t")[0]["replicas"])
    target = "node1" if source == "node2" else "node2"
    [asked] = said(capsys, place, "move", "t", "0", "--from", source, "--to", target, "--no-wait")
    [ended] = said(capsys, place, "wait", str(asked["request"]))
    assert ended["request"] == asked["request"]
    assert said(capsys, place, "tablets", "t")[0]["replicas"] == target
    [ended] = said(capsys, place, "replication", "t", "--set", "2")
    assert said(capsys, place, "requests")[0]["kind"] == "replication"
    assert said(capsys, place, "replication", "t")[0]["replication"] == 2
    assert said(capsys, place, "rebuild", "node2")[0]["request"] == said(capsys, place, "requests")[0]["id"]


def test_the_balancer_is_turned_off_and_on(db: ebla.Database, tmp_path: Path, capsys):
    for state, stored in (("off", False), ("ON", True)):
        assert said(capsys, tmp_path / "w", "balancing", state) == []
        assert db.context.catalog.read(topology.is_balancing) is stored


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["decommission", "nope"], "node nope: expected a node of the cluster, found none of this name"),
        (["remove", "node2"], "expected a dead node to remove, found it alive; DECOMMISSION NODE 'node2'"),
        (["replication", "--set", "2"], "--set: expected a RELATION"),
        (["replication", "t", "--set", "3"], "expected a replication of at most 2"),
        (["balancing", "maybe"], "balancing: expected on or off, found 'maybe'"),
        (["wait", "7777"], "request 7777: expected the id of a request, found none"),
        (["cancel", "7777"], "request 7777: expected the id of a request, found none"),
    ],
)
def test_what_is_impossible_is_an_error_and_asks_nothing(db: ebla.Database, tmp_path: Path, capsys, arguments, says):
    assert run(["-w", str(tmp_path / "w"), "cluster", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert db.sql("SELECT id FROM system.topology_requests").rows() == []
