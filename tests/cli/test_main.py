"""The commands, in this process and without Spark: what they print, what they change, how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import ebla
from ebla.cli.main import run

CREATE = "CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id))"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "shop")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that name no warehouse must not find one of the developer's."""
    monkeypatch.delenv("EBLA_WAREHOUSE", raising=False)
    monkeypatch.delenv("EBLA_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_alone_it_shows_its_help(capsys):
    assert run([]) == 0
    text = capsys.readouterr().out
    for word in ("sql", "status", "compact", "vacuum", "Examples"):
        assert word in text


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"ebla {version('ebla')}\n"
    assert run(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": version("ebla")}


@pytest.mark.parametrize(
    "arguments",
    [["--nope"], ["nope"], ["sql", "--nope"], ["sql", "a", "b"], ["vacuum", "--retain"], ["status", "t"]],
)
def test_wrong_arguments_are_one_line_and_code_2(arguments, capsys):
    assert run(arguments) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    assert "--help'" in found.err
    assert run([*arguments[:-1], "--json", arguments[-1]]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["type"] == "UsageError"


def test_the_warehouse_is_the_nearest_one_named(tmp_path, monkeypatch, capsys):
    for name in ("warehouse", "from_environment", "before", "behind"):
        with ebla.connect(str(tmp_path / name)) as db:
            db.sql(f"CREATE TABLE {name} (id BIGINT)")

    def tables(*arguments: str) -> list[str]:
        assert run([*arguments, "--json"]) == 0
        return [t["table"] for t in json.loads(capsys.readouterr().out)["tables"]]

    assert tables("status") == ["warehouse"]
    monkeypatch.setenv("EBLA_WAREHOUSE", str(tmp_path / "from_environment"))
    assert tables("status") == ["from_environment"]
    assert tables("-w", "before", "status") == ["before"]
    assert tables("-w", "before", "status", "--warehouse", "behind") == ["behind"]


def test_create_table_begins_a_warehouse(place, capsys):
    assert run(["-w", place, "sql", CREATE]) == 0
    assert run(["-w", place, "sql", "SHOW TABLES", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row[0] for row in found["rows"]] == ["t"]


@pytest.mark.parametrize("text", ["SHOW TABLES", "DROP TABLE t", "SELECT 1"])
def test_other_statements_do_not(place, text, capsys):
    assert run(["-w", place, "sql", text]) == 3
    assert "expected an Ebla warehouse" in capsys.readouterr().err
    assert not Path(place).exists()


def test_all_statements_are_parsed_before_the_first_one_runs(place, capsys):
    assert run(["-w", place, "sql", f"{CREATE}; SELEC 1"]) == 2
    assert "line 1" in capsys.readouterr().err
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CREATE, "DuplicateNameError"),
        ("DESCRIBE nope", "UnknownNameError"),
        ("CREATE TABLE u (m MAP<INT, INT>, PRIMARY KEY (m))", "TypeMismatchError"),
        ("", "UsageError"),
        (" ; -- nothing", "UsageError"),
    ],
)
def test_mistakes_are_code_2(place, text, kind, capsys):
    assert run(["-w", place, "sql", CREATE]) == 0
    assert run(["-w", place, "sql", text, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["type"] == kind


def test_a_file_and_standard_input(place, tmp_path, monkeypatch, capsys):
    script = tmp_path / "script.sql"
    script.write_text(f"\ufeff{CREATE};\nDESCRIBE t;\n", encoding="utf-8")
    assert run(["-w", place, "sql", "-f", str(script)]) == 0
    assert "bigint" in capsys.readouterr().out
    for arguments in (["sql"], ["sql", "-"], ["sql", "--file", "-"]):
        with open(script, encoding="utf-8-sig") as file:
            file.readline()
            monkeypatch.setattr("sys.stdin", file)
            assert run(["-w", place, *arguments]) == 0
        assert "bigint" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named(place, tmp_path, capsys):
    assert run(["-w", place, "sql", "-f", str(tmp_path / "nope.sql")]) == 2
    assert "nope.sql: expected a readable file, found: No such file" in capsys.readouterr().err
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe\x00")
    assert run(["-w", place, "sql", "-f", str(tmp_path / "binary.sql")]) == 2
    assert "not text in UTF-8" in capsys.readouterr().err
    assert run(["-w", place, "sql", "SELECT 1", "-f", "x.sql"]) == 2
    assert "found both" in capsys.readouterr().err


def test_without_java_it_says_what_to_install(place):
    """In a process of its own: here another test may have started Spark already."""
    assert run(["-w", place, "sql", CREATE]) == 0
    without = {k: v for k, v in os.environ.items() if k not in ("PATH", "JAVA_HOME")} | {"PATH": ""}
    command = [sys.executable, "-m", "ebla", "-w", place, "sql", "SELECT count(*) FROM t"]
    ended = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert ended.returncode == 6, ended.stderr
    assert "install Java 17" in ended.stderr


def test_vacuum_removes_what_was_truncated(place, capsys):
    with ebla.connect(place, auto_compact=False) as db:
        db.sql(CREATE)
        db.table("t").upsert([{"id": 1, "name": "Ada"}])
        db.sql("TRUNCATE TABLE t")
    for arguments, files in (
        (["vacuum"], 0),
        (["vacuum", "t", "--retain", "1h"], 0),
        (["vacuum", "--retain", "0s"], 1),
    ):
        assert run(["-w", place, *arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["columns"] == ["horizon", "files", "bytes", "orphans"]
        assert found["rows"][0][1] == files
    assert run(["-w", place, "vacuum"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["horizon", "files", "bytes", "orphans"]


def test_compact_with_nothing_to_fold(place, capsys):
    with ebla.connect(place) as db:
        db.sql(f"{CREATE}; CREATE TABLE u (id BIGINT)")
    assert run(["-w", place, "compact", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "columns": ["relation", "tablets", "folded_runs", "version"],
        "rows": [["t", 0, 0, None], ["u", 0, 0, None]],
    }
    assert run(["-w", place, "compact", "nope"]) == 2
    assert "table nope" in capsys.readouterr().err


def test_an_interruption_is_code_130(place, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ebla.cli.status.read", interrupted)
    assert run(["-w", place, "status"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_who_stops_waiting_for_a_build_is_told_that_it_goes_on(place, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    ebla.connect(place).close()
    monkeypatch.setattr("ebla.api.statements.arrivals.Arrivals.built", interrupted)
    said = "interrupted; only the waiting ended: the build goes on; CANCEL BUILD ends it"
    assert run(["-w", place, "sql", "WAIT FOR v"]) == 130
    assert capsys.readouterr().err == f"error: {said}\n"
    assert run(["-w", place, "sql", "WAIT FOR v", "--json"]) == 130
    assert json.loads(capsys.readouterr().err)["error"] == {"type": "Interrupted", "message": said}


def test_a_defect_is_no_traceback(place, monkeypatch, capsys):
    monkeypatch.setattr("ebla.cli.status.read", lambda _: dict[str, int]()["x"])
    assert run(["-w", place, "status"]) == 1
    assert capsys.readouterr().err.startswith("error: unexpected KeyError: 'x'; ")
    assert run(["-w", place, "status", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


CALLS_ANOTHER = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from ebla.cli import main
def run(arguments):
    ThreadPoolExecutor(1).submit(threading.Event().wait, 600)  # the other node does not answer
    print("stopped")
    return 5
main.run = run
main.main()
"""


@pytest.mark.process
def test_a_node_that_has_stopped_waits_for_no_call_to_another():
    done = subprocess.run(
        [sys.executable, "-c", CALLS_ANOTHER, "node", "start"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert (done.returncode, done.stdout) == (5, "stopped\n"), done.stderr


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_text_that_the_terminal_lacks_is_escaped(place, encoding):
    with ebla.connect(place) as db:
        db.sql("CREATE TABLE `東é` (id BIGINT)")
    for json_flag in ([], ["--json"]):
        found = subprocess.run(
            [sys.executable, "-m", "ebla", "-w", place, "status", *json_flag],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        text = found.stdout.decode(encoding)
        if json_flag:
            assert json.loads(text)["tables"][0]["table"] == "東é"
        else:
            assert ("東" in text) == (encoding == "utf-8")
