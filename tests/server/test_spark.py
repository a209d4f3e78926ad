"""What needs Spark over HTTP: changes as server-sent events, LOAD from the node's directories, and cancelled jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.server.app import create_app
from ebla.server.listener import Address, Listener
from ebla.server.options import Options
from support.warehouse import connect, eventually


@pytest.fixture
def db(spark: SparkSession, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(tmp_path / "warehouse", spark, auto_refresh=False) as opened:
        opened.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        yield opened


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def client(db: ebla.Database, files: Path) -> Iterator[httpx.Client]:
    app = create_app(db, Options(users=False, load_from=(files,)))
    with Listener(app, Address(port=0)) as listener, httpx.Client(base_url=listener.url, timeout=120) as opened:
        yield opened


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Events of a stream: their id, kind and data."""
    event: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in event:
            yield event
            event = {}
        elif name in ("id", "event"):
            event[name] = value
        elif name == "data":
            event["data"] = json.loads(value)


def test_changes_come_as_events_and_go_on_behind_the_last_one(db: ebla.Database, client: httpx.Client):
    with client.stream("GET", "/v1/changes", params={"table": "t", "since": 0}) as stream:
        found = events(stream.iter_lines())
        first = db.table("t").upsert([{"id": 1, "n": 1}]).version
        event = next(found)
        assert (event["event"], event["id"]) == ("changes", str(first))
        assert [row[:2] for row in event["data"]["rows"]] == [[1, 1]] or event["data"]["rows"][0][-2:] == [1, 1]
    second = db.table("t").upsert([{"id": 2, "n": 2}]).version
    headers = {"Last-Event-ID": str(first)}
    with client.stream("GET", "/v1/changes", params={"table": "t"}, headers=headers) as stream:
        event = next(events(stream.iter_lines()))
    assert event["id"] == str(second)
    assert len(event["data"]["rows"]) == 1


def test_files_are_loaded_from_the_nodes_directories_alone(db: ebla.Database, client: httpx.Client, files: Path):
    (files / "rows.csv").write_text("id,n\n5,50\n6,60\n")
    (files.parent / "secret.csv").write_text("id,n\n7,70\n")
    loaded = client.post("/v1/tables/t/load", json={"path": str(files / "rows.csv"), "format": "csv"})
    assert loaded.status_code == 200, loaded.text
    assert sorted(db.query("t").rows()) == [(5, 50), (6, 60)]
    for path in (files.parent / "secret.csv", files / ".." / "secret.csv"):
        refused = client.post("/v1/tables/t/load", json={"path": str(path), "format": "csv"})
        assert (refused.status_code, refused.json()["title"]) == (403, "RightError")
    assert len(db.query("t").rows()) == 2


def test_a_statement_that_runs_on_spark_is_cancelled(db: ebla.Database, client: httpx.Client):
    endless = "SELECT count(*) FROM range(1000000000000000) WHERE id < 0"  # its tasks look often whether they go on
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(client.post("/v1/sql", json={"sql": endless}, headers={"Ebla-Request": "endless"}))

    thread = threading.Thread(target=ask)
    thread.start()
    tracker = db.spark.sparkContext.statusTracker()
    eventually(lambda: bool(tracker.getActiveJobsIds()))
    assert client.delete("/v1/requests/endless").status_code == 202
    thread.join(120)
    assert [(one.status_code, one.json()["title"]) for one in answers] == [(409, "RequestCancelledError")]
    eventually(lambda: not tracker.getActiveJobsIds())
    assert db.spark.range(8).repartition(8).count() == 8  # no task keeps a core
