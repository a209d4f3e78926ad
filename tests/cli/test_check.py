"""`ebla check`: what it prints, how it ends, and that it changes nothing. Nothing here comes as far as Spark."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import ebla
from ebla.cli.main import run

UNUSED = "CREATE HANDLER h PROCESS v INPUT orders AS STREAM, INPUT other AS STREAM"


@pytest.fixture
def shop(tmp_path: Path) -> str:
    place = str(tmp_path / "shop")
    with ebla.connect(place, tablets=1, auto_compact=False) as db:
        db.sql("CREATE TABLE orders (id BIGINT, total INT, PRIMARY KEY (id)); CREATE TABLE other (x INT)")
    return place


def version(shop: str) -> int:
    with ebla.connect(shop) as db:
        return db.version


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "script.sql"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_errors_are_shown_with_their_place_and_end_with_2(shop, tmp_path, capsys):
    before = version(shop)
    file = script(
        tmp_path, "CREATE TABLE t (id INT);\n\nCREATE MATERIALIZED VIEW v AS\n  SELECT totl, z.id FROM orders;\n"
    )
    assert run(["-w", shop, "check", file]) == 2
    found = capsys.readouterr()
    assert found.out == (
        "error unknown-column at line 4, column 10: expected a column of orders, found totl\n"
        "  4 |   SELECT totl, z.id FROM orders;\n"
        "    |          ^\n"
        "  hint: did you mean total?\n"
        "error unknown-alias at line 4, column 16: expected the name of a table in FROM before .id, found z\n"
        "  4 |   SELECT totl, z.id FROM orders;\n"
        "    |                ^\n"
        "  hint: tables in FROM are orders\n"
    )
    assert found.err == ""
    assert version(shop) == before


def test_json_is_one_object(shop, tmp_path, capsys):
    assert run(["-w", shop, "check", script(tmp_path, "DROP TABLE orderz"), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["errors"], found["warnings"], found["notes"]) == (1, 0, 0)
    assert found["issues"][0]["code"] == "unknown-table"
    assert (found["issues"][0]["line"], found["issues"][0]["column"]) == (1, 12)
    assert found["issues"][0]["hint"] == "did you mean orders?"


def test_a_clean_script_ends_with_0_and_says_nothing(shop, tmp_path, capsys):
    assert run(["-w", shop, "check", script(tmp_path, "CREATE TABLE t (id INT); DROP TABLE other")]) == 0
    assert capsys.readouterr().out == ""


def test_warnings_end_with_1_and_with_2_if_strict(shop, tmp_path, monkeypatch, capsys):
    from ebla.validate import QueryAnalysis
    from ebla.validate.spark import SparkAnalyser

    monkeypatch.setattr(SparkAnalyser, "analyse", lambda *_: QueryAnalysis(columns=(("id", "bigint"),)))
    file = script(tmp_path, f"CREATE MATERIALIZED VIEW v AS SELECT id FROM orders;\n{UNUSED}")
    assert run(["-w", shop, "check", file]) == 1
    assert capsys.readouterr().out.startswith("warning unused-input at line 2, column 58")
    assert run(["-w", shop, "check", file, "--strict"]) == 2
    assert capsys.readouterr().out.startswith("error unused-input")


def test_standard_input_is_a_file(shop, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("NONSENSE"))
    assert run(["-w", shop, "check", "-"]) == 2
    assert "unsupported-statement" in capsys.readouterr().out


def test_a_place_without_a_warehouse_counts_as_an_empty_one_and_stays_so(tmp_path, capsys):
    place = tmp_path / "nothing"
    assert run(["-w", str(place), "check", script(tmp_path, "CREATE TABLE t (id INT); TRUNCATE TABLE t")]) == 0
    assert run(["-w", str(place), "check", script(tmp_path, "TRUNCATE TABLE t")]) == 2
    assert "there are no tables yet" in capsys.readouterr().out
    assert not place.exists()


def test_a_file_that_cannot_be_read_is_one_error(shop, tmp_path, capsys):
    assert run(["-w", shop, "check", str(tmp_path / "none.sql")]) == 2
    assert "none.sql: expected a readable file" in capsys.readouterr().err
