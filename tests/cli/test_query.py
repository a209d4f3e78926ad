"""`ebla query`: conditions as typed, pages, JSON, errors; no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ebla
from ebla.cli.main import run


@pytest.fixture
def shop(tmp_path: Path) -> str:
    place = str(tmp_path / "shop")
    with ebla.connect(place, tablets=4, auto_compact=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, status STRING, total DECIMAL(8,2), day DATE, PRIMARY KEY (id))")
        db.table("orders").upsert(
            [{"id": i, "status": ["open", "paid", None][i % 3], "total": i % 7} for i in range(30)]
        )
    return place


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["query", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_rows_in_an_order_and_the_next_page(shop, capsys):
    arguments = ["orders", "-w", shop, "--where", "status=open", "--order-by", "-total", "--limit", "2"]
    first = answer(capsys, *arguments, "--columns", "id,total")
    assert first["columns"] == ["id", "total"]
    assert first["rows"] == [[6, "6.00"], [27, "6.00"]]
    assert first["applied_version"] is None
    rest = answer(capsys, *arguments, "--columns", "id", "--after", str(first["next"]))
    assert rest["rows"] == [[12], [18]]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (["id=5"], [5]),
        (["id>=3", "id<5"], [3, 4]),
        (["id > 27"], [28, 29]),
        (["id<=1"], [0, 1]),
        (["status^=op", "id<4"], [0, 3]),
        (["id in 4, 2"], [2, 4]),
        (["status is null", "id<6"], [2, 5]),
        (["status is not null", "id<3"], [0, 1]),
    ],
)
def test_conditions(shop, capsys, where, ids):
    options = [part for text in where for part in ("-W", text)]
    assert answer(capsys, "orders", "-w", shop, *options, "--columns", "id")["rows"] == [[i] for i in ids]


def test_text_for_people_and_the_plan(shop, capsys):
    assert run(["query", "orders", "-w", shop, "-W", "id=5", "--columns", "id,status"]) == 0
    assert capsys.readouterr().out.split() == ["id", "status", "--", "------", "5", "NULL"]
    assert run(["query", "orders", "-w", shop, "-W", "id=5", "--explain"]) == 0
    assert "sought: id = 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "expected a table of this name"),
        (["orders", "-W", "id=abc"], "orders.id: expected bigint, found 'abc'"),
        (["orders", "-W", "day=tomorrow"], "orders.day: expected date"),
        (["orders", "-W", "nope=1"], "expected a column of orders"),
        (["orders", "-W", "id"], "expected name=value"),
        (["orders", "--limit", "0"], "from 1 to 10000"),
        (["orders", "--after", "x"], "`next` of a result"),
    ],
)
def test_mistakes(shop, capsys, arguments, message):
    assert run(["query", *arguments, "-w", shop]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.process
def test_it_needs_no_java(shop):
    """In a process that cannot find Java."""
    done = subprocess.run(
        [sys.executable, "-m", "ebla", "query", "orders", "-w", shop, "-W", "id=5", "--json"],
        env={"PATH": "", "JAVA_HOME": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0][0] == 5
