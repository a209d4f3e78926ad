"""What is said when something goes wrong, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ebla import errors
from ebla.cli import failure
from ebla.cli.failure import ErrorFormat
from ebla.sql.lex import StatementText
from ebla.sql.parse import parse
from ebla.validate import ScriptItem, Warehouse, refuse, statement_issues

PLAIN = ErrorFormat(as_json=False, debug=False)
JSON = ErrorFormat(as_json=True, debug=False)

CODES = {
    errors.EblaError: 1,
    errors.UsageError: 2,
    errors.CatalogError: 3,
    errors.ConflictError: 4,
    errors.StorageError: 5,
    errors.MissingDependencyError: 6,
    errors.SparkJobError: 7,
    errors.AccessError: 8,
    errors.NodeUnavailableError: 9,
    errors.RequestCancelledError: 10,
}


def descendants(kind: type[errors.EblaError]) -> Iterator[type[errors.EblaError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from descendants(child)


@pytest.mark.parametrize("kind", list(descendants(errors.EblaError)))
def test_the_class_decides_the_exit_code(kind, capsys):
    nearest = next(k for k in kind.__mro__ if k in CODES)
    assert failure.report(kind("table t: expected x, found y"), PLAIN) == CODES[nearest]
    assert capsys.readouterr().err == "error: table t: expected x, found y\n"


def test_json_errors_name_the_class_and_the_place(capsys):
    assert failure.report(errors.SqlError("expected FROM", line=2, column=5), JSON) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert json.loads(found.err) == {
        "error": {
            "type": "SqlError",
            "message": "expected FROM (line 2, column 5)",
            "line": 2,
            "column": 5,
        }
    }


def test_issues_are_a_list_with_their_lines(capsys):
    text = StatementText(text="CREATE MATERIALIZED VIEW v AS SELECT 1 AS x FROM nope", line=3)
    with pytest.raises(errors.UnknownNameError) as caught:
        refuse(text, statement_issues(ScriptItem(source=text, statement=parse(text)), Warehouse()))
    assert failure.report(caught.value, PLAIN) == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "error unknown-table at line 3, column 50: table nope: expected a table of this name, found none"
    assert shown[2].index("^") == shown[1].index("nope")
    assert failure.report(caught.value, JSON) == 2
    said = json.loads(capsys.readouterr().err)["error"]
    assert (said["type"], said["line"], said["column"]) == ("UnknownNameError", 3, 50)
    assert [i["code"] for i in said["issues"]] == ["unknown-table"]


def test_a_message_of_several_lines_becomes_one(capsys):
    failure.report(errors.SqlError("cannot resolve x;\n  'Project\n\nJVM stacktrace:\n  at org.apache"), PLAIN)
    assert capsys.readouterr().err == "error: cannot resolve x; 'Project\n"


def test_an_unexpected_error_is_one_line_with_a_hint(capsys):
    assert failure.report(ZeroDivisionError("oh"), PLAIN) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: unexpected ZeroDivisionError: oh; ")
    assert "--debug" in err
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(capsys):
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        failure.report(error, ErrorFormat(as_json=False, debug=True))
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_error_behind_which_is_ctrl_c_is_an_interruption(capsys):
    cancelled = errors.SqlError("[SPARK_JOB_CANCELLED] Job 5 cancelled")
    cancelled.__context__ = KeyboardInterrupt()
    assert failure.report(cancelled, PLAIN) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    cancelled.__context__.add_note("the build goes on")
    assert failure.report(cancelled, PLAIN) == 130
    assert capsys.readouterr().err == "error: interrupted; the build goes on\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["status"], "", ErrorFormat(as_json=False, debug=False)),
        (["status", "--json", "--debug"], "", ErrorFormat(as_json=True, debug=True)),
        (["sql", "--", "--json"], "", ErrorFormat(as_json=False, debug=False)),
        (["status"], "1", ErrorFormat(as_json=False, debug=True)),
        (["status"], "0", ErrorFormat(as_json=False, debug=False)),
    ],
)
def test_the_manner_is_known_before_the_arguments_are_understood(arguments, environment, expected, monkeypatch):
    monkeypatch.setenv("EBLA_DEBUG", environment)
    assert ErrorFormat.of(arguments) == expected
