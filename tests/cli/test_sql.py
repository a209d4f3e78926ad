"""`ebla sql` with Spark: statements on a shared session, and the program itself in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ebla
from ebla.api.database import Database
from ebla.cli import script, upkeep

EVERY_KIND = """
SELECT 1 AS int, 12.50BD AS dec, double('NaN') AS nan, true AS truth, NULL AS nothing, 'é' AS text,
  DATE '2024-05-01' AS day, TIMESTAMP '2024-05-01 12:30:00+02:00' AS instant,
  TIMESTAMP_NTZ '2024-05-01 12:30:00' AS clock, X'00FF' AS bytes, array(1, NULL) AS list, map('a', 1.5BD) AS map,
  named_struct('x', DATE '2024-05-01', 'y', array(map(1, X'61'))) AS struct
"""
EXPECTED = {
    "int": 1,
    "dec": "12.50",
    "nan": "NaN",
    "truth": True,
    "nothing": None,
    "text": "é",
    "day": "2024-05-01",
    "instant": "2024-05-01T10:30:00+00:00",
    "clock": "2024-05-01T12:30:00",
    "bytes": "AP8=",
    "list": [1, None],
    "map": {"a": "1.5"},
    "struct": {"x": "2024-05-01", "y": [{"1": "YQ=="}]},
}


@pytest.fixture
def db(spark, tmp_path: Path) -> Iterator[Database]:
    with ebla.connect(str(tmp_path / "shop"), spark, auto_compact=False, tablets=2) as database:
        database.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id))")
        yield database


def test_the_last_result_is_printed(db, capsys):
    script.run(db, "INSERT INTO t VALUES (1, 'Ada'), (2, NULL); SELECT * FROM t ORDER BY id", {}, as_json=False)
    assert capsys.readouterr().out.splitlines() == ["id  name", "--  ----", " 1  Ada", " 2  NULL"]


def test_every_kind_of_value_in_json(db, capsys):
    script.run(db, EVERY_KIND, {}, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert dict(zip(found["columns"], found["rows"][0], strict=True)) == EXPECTED


def test_parameters_are_bound_not_pasted(db, capsys):
    parameters = {"a": 5, "b": 1.5, "c": True, "d": None, "e": "'; DROP TABLE t --"}
    script.run(db, "SELECT :a, :b, :c, :d, :e, typeof(:a)", parameters, as_json=True)
    assert json.loads(capsys.readouterr().out)["rows"] == [[5, 1.5, True, None, "'; DROP TABLE t --", "int"]]
    assert db.tables() == ["t"]


def test_a_plan_keeps_its_lines(db, capsys):
    script.run(db, "EXPLAIN SELECT * FROM t", {}, as_json=False)
    assert "== Physical Plan ==" in capsys.readouterr().out.splitlines()


def test_compact_reports_what_it_folded(db):
    for number in range(3):
        db.table("t").upsert([{"id": number, "name": "x"}])
    sheet = upkeep.compact(db, None)
    assert [row[0] for row in sheet.rows] == ["t"]
    assert sheet.rows[0][2] == 3
    assert db.sql("SELECT count(*) FROM t").one() == (3,)


# ---- processes ------------------------------------------------------------------------------------------


def ebla_process(place: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"EBLA_WAREHOUSE": str(place), "EBLA_SPARK_MEMORY": "1g", "EBLA_DEBUG": ""}
    return subprocess.run(
        [sys.executable, "-m", "ebla", *arguments],
        env=environment,
        input=more.get("input"),
        stdin=None if "input" in more else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.spark
@pytest.mark.process
def test_standard_input_to_json_without_noise(tmp_path):
    text = "CREATE TABLE t (id BIGINT, name STRING);\nINSERT INTO t VALUES (1, :name);\nSELECT * FROM t;\n"
    found = ebla_process(tmp_path / "shop", "sql", "--json", "-p", "name=Ada", input=text)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {"columns": ["id", "name"], "rows": [[1, "Ada"]]}
    assert found.stderr == "", "Spark's words must not reach the user"


@pytest.mark.spark
@pytest.mark.process
def test_a_file_whose_query_fails_keeps_what_was_committed(tmp_path):
    place, file = tmp_path / "shop", tmp_path / "script.sql"
    file.write_text("CREATE TABLE t (id BIGINT);\nSELECT nope\nFROM t;\nCREATE TABLE u (id BIGINT);", encoding="utf-8")
    found = ebla_process(place, "sql", "-f", str(file))
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: ")
    assert "nope" in found.stderr
    assert found.stderr.count("\n") == 1, "one line, no traceback"
    tables = ebla_process(place, "status", "--json")
    assert [t["table"] for t in json.loads(tables.stdout)["tables"]] == ["t"]


@pytest.mark.process
def test_a_reader_that_leaves_early_is_no_error_message(tmp_path):
    """`ebla … | head`: the pipe is closed before anything is written."""
    place = tmp_path / "shop"
    with ebla.connect(str(place)) as database:
        database.sql("CREATE TABLE t (id BIGINT)")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        found = subprocess.run(
            [sys.executable, "-m", "ebla", "-w", str(place), "status"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 1
    assert found.stderr == ""
