"""Commands that need little start at once: what each imports, and how long it takes."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ebla
from ebla.base.server_packages import PACKAGES
from ebla.cli.main import _command_of
from ebla.cli.status import NEEDS_A_PERSON
from ebla.errors import MissingDependencyError
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.relations.indexes import options
from support.catalogs import exclusively, new_relation, relation

HEAVY = (
    "duckdb",
    "pandas",
    "prompt_toolkit",
    "pyarrow",
    "pydantic",
    "pydantic_settings",
    "pyspark",
    "sqlalchemy",
    "sqlglot",
)
ONLY_FOR_OTHERS = {"ebla.model.changes", "ebla.sql.statements", "numpy.ma", "rich", "sqlalchemy.dialects.postgresql"}
"""What commits, statements, masked arrays, help and another catalog need. Each costs a tenth of a short command."""
SHOWS_MODULES = """
import os, sys
from ebla.cli import main
def leave(code):
    print(*(name for name in sys.modules if name in WATCHED), file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)
WATCHED = os.environ["WATCHED"].split()
main._leave = sys.exit = leave
main.main()
"""
CPU_S_MAX = 3.0
"""Generous: a busy machine takes twice as long, and all of Ebla with all that it needs takes longer than this."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "warehouse"
    with ebla.connect(str(folder), auto_refresh=False, auto_compact=False) as db:
        db.sql("CREATE TABLE t (id BIGINT, name STRING, price DECIMAL(12,2), PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 1, "name": "a", "price": 2}])
        catalog = db.context.catalog
        base = relation(catalog, "t")
        roles = [{"column": "id", "call": "group", "type": "bigint"}]
        kept = {"query": "SELECT id FROM t", "kept": "SELECT id FROM t", "roles": roles}
        exclusively(catalog, replace(new_relation("v", kind=Kind.VIEW), options=kept, reads=(base.id,)))
        plain = options([], [], None, unique=False, placed_by=[], settings={})
        index = replace(new_relation("by_price", kind=Kind.INDEX), options=plain)
        exclusively(catalog, index, c.CreateIndex(base=base.id))
    return folder


def imported(*arguments: str) -> set[str]:
    """The heavy packages that a command imports."""
    watched = " ".join([*HEAVY, *ONLY_FOR_OTHERS])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WATCHED": watched}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", SHOWS_MODULES, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, NEEDS_A_PERSON), done.stderr
    assert "error" not in done.stderr
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < CPU_S_MAX, f"{arguments} took {cpu_s:.2f} s"
    found = set(done.stderr.split())
    assert arguments == ("--help",) or not found & ONLY_FOR_OTHERS, found & ONLY_FOR_OTHERS
    return found & set(HEAVY)


def test_help_imports_nothing_heavy():
    assert imported("--help") == set()


def test_status_imports_the_catalog_alone(place: Path):
    assert imported("-w", str(place), "status") <= {"sqlalchemy", "pydantic"}


def test_query_imports_what_reads_files(place: Path):
    assert imported("-w", str(place), "query", "t", "--where", "id=1") <= {"sqlalchemy", "pyarrow", "pydantic"}


def test_where_there_is_no_java_status_system_tables_and_first_rows_are_answered(place: Path):
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": "", "JAVA_HOME": str(place), "HOME": str(place)}

    def answer(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ebla", "-w", str(place), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    for arguments in (
        ("status",),
        ("query", "t", "--where", "id=1"),
        ("sql", "SELECT version, reason FROM system.history ORDER BY version DESC LIMIT 5"),
        ("sql", "SHOW NODES; SHOW JOBS; SHOW VIEWS"),
        ("sql", "SELECT * FROM t WHERE id >= 0 ORDER BY id LIMIT 100"),
    ):
        done = answer(*arguments)
        assert done.returncode in (0, NEEDS_A_PERSON), (arguments, done.stderr)
    needs_spark = answer("sql", "SELECT a.name, sum(b.price) FROM t a JOIN t b ON a.id = b.id GROUP BY a.name")
    assert "Java" in needs_spark.stderr, needs_spark


def test_a_client_is_installed_without_spark_and_the_server():
    needs = importlib.metadata.requires("ebla") or []
    of_server = {re.split(r"[^a-z-]", one)[0] for one in needs if "extra == 'server'" in one}
    of_client = {re.split(r"[^a-z-]", one)[0] for one in needs if "extra ==" not in one}
    assert of_server == {name.replace("_", "-") for name in PACKAGES}
    assert "httpx" in of_client
    assert not of_client & of_server


WITHOUT_SERVER = """
import sys
from ebla.base import lazy
from ebla.base.server_packages import PACKAGES
sys.meta_path[:0] = [lazy.AbsentPackage(name) for name in PACKAGES]
import ebla
from ebla.cli.main import run
try:
    ebla.connect(sys.argv[1])
except ebla.MissingDependencyError as error:
    print(error, file=sys.stderr)
sys.exit(run(["node", "start", "--name", "n1"]))
"""


def test_without_the_packages_of_a_node_it_says_what_to_install(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_SERVER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == MissingDependencyError.exit_code
    assert done.stderr.splitlines() == [
        "expected pyspark, found none; pip install 'ebla[server]'",
        "error: expected pydantic_settings, found none; pip install 'ebla[server]'",
    ]


def test_a_cluster_of_this_machine_is_looked_at_without_what_a_node_needs():
    program = "import sys; import ebla.cluster.local_cluster, ebla.cli.node; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert not {"fastapi", "uvicorn", "pydantic_settings", "pyspark", "pyarrow", "pandas"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["query", "t"], "query"),
        (["-w", "status", "--json", "query", "t"], "query"),
        (["--warehouse", "query", "sql", "status"], "sql"),
        (["--help"], None),
    ],
)
def test_the_command_is_the_first_argument_that_is_no_option(arguments: list[str], command: str | None):
    assert _command_of(arguments) == command


def test_names_of_the_package_are_there_when_asked_for():
    assert all(getattr(ebla, name) is not None for name in ebla.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ebla.nothing


def completed(*words: str) -> list[str]:
    """What Bash offers for the last word."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_EBLA_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["ebla", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([sys.executable, "-m", "ebla"], capture_output=True, text=True, check=False, env=environment)
    return done.stdout.split()


def test_the_shell_completes_commands_and_names_of_relations(place: Path):
    assert completed("sta") == ["status"]
    assert completed("-w", str(place), "query", "t") == ["t"]
    assert completed("-w", str(place / "nowhere"), "query", "t") == []
