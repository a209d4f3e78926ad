"""How values and rows are printed."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

from ebla.cli import output
from ebla.cli.node import show
from ebla.cli.output import Sheet
from ebla.values.json_values import to_json

MOMENT = dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**60, 2**60),
        (1.5, 1.5),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("10.50"), "10.50"),
        (Decimal("1E+3"), "1000"),
        (b"\x00\xff", "AP8="),
        (dt.date(2024, 5, 1), "2024-05-01"),
        (MOMENT, "2024-05-01T10:30:00+00:00"),
        (dt.datetime(2024, 5, 1, 12, 30, 0, 5), "2024-05-01T12:30:00.000005"),
        (dt.timedelta(minutes=1, milliseconds=500), "PT60.5S"),
        (-dt.timedelta(seconds=2), "-PT2S"),
        ({"a": Decimal("1.0"), 2: None}, {"a": "1.0", "2": None}),
        ([b"a", [float("inf")]], ["YQ==", ["Infinity"]]),
    ],
)
def test_json_of_a_value(value, expected):
    assert to_json(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (False, "false"),
        (float("nan"), "NaN"),
        (Decimal("0.00"), "0.00"),
        (b"\x00\xff", "0x00ff"),
        (MOMENT, "2024-05-01 10:30:00+00:00"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
    ],
)
def test_text_of_a_value(value, expected):
    assert output.to_text(value) == expected


def test_piped_rows_are_aligned_numbers_to_the_right(capsys):
    output.show(Sheet(columns=["id", "name"], rows=[(1, "Ada"), (20, None), (300, "東京")]), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        " id  name",
        "---  ----",
        "  1  Ada",
        " 20  NULL",
        "300  東京",
    ]


def test_json_is_one_object_on_one_line(capsys):
    output.show(Sheet(columns=["a", "a"], rows=[(1, "é"), (None, float("nan"))]), as_json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"columns": ["a", "a"], "rows": [[1, "é"], [None, "NaN"]]}


def test_a_statement_without_rows_prints_nothing_but_is_an_object_in_json(capsys):
    nothing = Sheet(columns=[], rows=[])
    output.show(nothing, as_json=False)
    assert capsys.readouterr().out == ""
    output.show(nothing, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"columns": [], "rows": []}


def test_a_plan_is_printed_as_it_is(capsys):
    output.show(Sheet(columns=["plan"], rows=[("== Plan ==\n\tScan \x1b\n",)]), as_json=False)
    assert capsys.readouterr().out == "== Plan ==\n        Scan \\x1b\n"


def test_a_terminal_gets_a_table_of_the_first_rows(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    sheet = Sheet(columns=["n"], rows=[(n,) for n in range(output.TERMINAL_ROWS_MAX + 5)])
    output.show(sheet, as_json=False)
    lines = capsys.readouterr().out.split()
    assert str(output.TERMINAL_ROWS_MAX - 1) in lines
    assert str(output.TERMINAL_ROWS_MAX) not in lines
    assert "the first 1,000 are shown" in output.summary(sheet, 1.0)


def test_the_summary_counts_rows():
    assert output.summary(Sheet(columns=["n"], rows=[(1,)]), 0.5) == "1 row in 0.50 s"
    assert output.summary(Sheet(columns=["n"], rows=[]), 0.5) == "0 rows in 0.50 s"
    assert output.summary(Sheet(columns=[], rows=[]), 0.5) == "done in 0.50 s"


def test_an_explained_view_is_shown_as_text_and_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = Sheet(columns=output.EXPLAINED, rows=[("view v\n  change of t", '{"view": "v"}', "flowchart LR")])
    output.show(sheet, as_json=False)
    assert capsys.readouterr().out == "view v\n  change of t\n"
    output.show(sheet, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"view": "v", "text": "view v\n  change of t", "mermaid": "flowchart LR"}


def test_a_report_is_said_in_words_and_lists_as_options_take_them(capsys):
    urls = ["http://127.0.0.1:7601", "http://127.0.0.1:7602"]
    jobs = [{"name": "default", "runs_on": "n1"}, {"name": "other", "runs_on": None}]
    show({"urls": urls, "leader": None, "load": [], "postgres": {"pid": 7}, "jobs": jobs}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "urls: http://127.0.0.1:7601,http://127.0.0.1:7602",
        "leader: NULL",
        "load: -",
        "postgres: pid=7",
        "jobs: name=default runs_on=n1, name=other runs_on=NULL",
    ]
