"""No raw exception reaches a user from any door, whatever is given: every error is one of Ebla's, and says something.

The cases come from seeds (`support.fuzz`); a failure names its seed and its place. All doors but files run in processes
that find no Java, so that a statement that is right and needs Spark ends with an error that says so, at once.
"""

from __future__ import annotations

import itertools
import json
import uuid
from decimal import Decimal
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import ebla
from ebla.sql.parse import parse, split
from support import fuzz, fuzz_tasks
from support.processes import Processes
from support.warehouse import connect

CASES = {"statements": 6000, "rows": 1800, "queries": 1700, "names": 200, "commands": 200, "settings": 100}
PARTS = 2
"""Into how many processes the statements are cut, so that two workers of the tests share them."""
FILES = 30
ON_SPARK = 130
ON_POSTGRES = 80


@pytest.mark.process
@pytest.mark.parametrize(
    ("door", "part"), [(d, p) for d in CASES for p in range(PARTS if d == "statements" else 1)], ids=str
)
def test_wrong_input_gets_an_error_that_says_something(door: str, part: int, processes: Processes, tmp_path: Path):
    count = CASES[door] // (PARTS if door == "statements" else 1)
    found = processes.start("support.fuzz_tasks:run", str(tmp_path / "w"), door, part * count, count).finish()
    assert not found, "\n".join(_told(json.loads(line)) for line in found[:5])


def test_wrong_statements_that_reach_spark_get_an_error_that_says_something(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where Java is: of the statements that Ebla's own parser takes, since the others end before Spark."""
    monkeypatch.chdir(tmp_path)
    wrong: list[dict[str, object]] = []
    with connect(tmp_path / "w", spark, tablets=1, barrier_grace_s=0.0) as db:
        for place, seed in enumerate(itertools.islice(filter(_parses, itertools.count()), ON_SPARK)):
            if place % 10 == 0:
                fuzz_tasks.restore(db)
            found = fuzz_tasks.trial(db, fuzz_tasks.statements, seed)
            wrong += [] if found is None else [found]
    assert not wrong, "\n".join(_told(found) for found in wrong[:5])


PARAMETERS = (2**63, 10**40, Decimal("NaN"), pd.NaT, uuid.UUID(int=0), print, ..., object(), "\ud800")


def test_a_parameter_that_spark_has_no_type_for_is_named(spark: SparkSession, tmp_path: Path):
    """Neither a raw exception of Py4J nor a lost job: repeating the statement would not help."""
    with connect(tmp_path / "w", spark) as db:
        for value in PARAMETERS:
            with pytest.raises(ebla.TypeMismatchError, match=r"^parameter :p: expected .*, found "):
                db.sql("SELECT upper(:p) AS p", p=value)
        assert db.sql("SELECT upper(:p) AS p", p="a").rows() == [("A",)]


def _parses(seed: int) -> bool:
    try:
        for one in split(fuzz.statement(Random(seed))):
            parse(one)
    except ebla.EblaError:
        return False
    return True


def test_names_in_postgresql_get_an_error_that_says_something(postgres_url: str, tmp_path: Path):
    """PostgreSQL takes other texts than SQLite does: no NUL, for one."""
    with connect(postgres_url, storage_root=str(tmp_path / "data"), tablets=1) as db:
        found = [fuzz_tasks.trial(db, fuzz_tasks.names, seed) for seed in range(ON_POSTGRES)]
    wrong = [one for one in found if one is not None]
    assert not wrong, "\n".join(map(_told, wrong[:5]))


def _told(found: dict[str, object]) -> str:
    trace = found.get("trace")
    return f"seed {found['seed']}: {found['error']}\n" + ("".join(trace) if isinstance(trace, list) else "")


def test_the_cases_are_ten_thousand():
    assert sum(CASES.values()) >= 10_000


def test_damaged_files_are_refused_or_loaded(spark: SparkSession, tmp_path: Path):
    """Each file is loaded whole or refused by an error of Ebla that names it."""
    with ebla.connect(str(tmp_path / "w"), spark, fsync=False, auto_compact=False, tablets=1) as db:
        db.sql(fuzz.SETUP[0])
        refusals: dict[str, str] = {}
        for seed in range(FILES):
            name, data = fuzz.file(Random(seed))
            path = tmp_path / f"{seed}-{name}"
            path.write_bytes(data)
            try:
                db.table("t").load(str(path))
            except ebla.EblaError as error:
                refusals[path.name] = str(error)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {data!r}") from error
    assert [name for name, said in refusals.items() if name not in said] == []
    assert 5 < len(refusals) < FILES, "expected some files to be refused and some to be loaded"
