"""What child processes do with wrong input; see `support.processes` and `support.fuzz`.

They run where Java is not: what needs Spark ends with an error that says so. Each prints every case that ended in an
exception which is not Ebla's own, or took too long, as one line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import ebla
from support import fuzz

SLOW_S = 10.0
PLACES = (
    "fresh", "nul\0", "", "a" * 300, "\ud800", "ftp://x", "postgresql://", "postgresql://u@127.0.0.1:1/x?connect_timeout=1",
)  # fmt: skip
FRESH_CASES = 40
"""After this number of cases the tables that statements may have dropped are made again."""


def run(where: str, door: str, first: int, count: int) -> None:
    os.environ["JAVA_HOME"] = "/nonexistent"
    logging.disable(logging.CRITICAL)
    os.chdir(Path(where).parent)
    with ebla.connect(where, fsync=False, auto_compact=False, tablets=1) as db:
        case = DOORS[door]
        for seed in range(first, first + count):
            if seed % FRESH_CASES == 0 or door != "statements":
                restore(db)
            wrong = trial(db, case, seed)
            if wrong is not None:
                print(json.dumps(wrong), flush=True)


def restore(db: ebla.Database) -> None:
    if {"t", "u", "odd name"} <= set(db.tables()):
        return
    for text in fuzz.SETUP:
        db.sql(text)


def trial(db: ebla.Database, case: Callable[[ebla.Database, Random], object], seed: int) -> dict[str, object] | None:
    """What is wrong with how a case ended; `None` if nothing is."""
    began = time.monotonic()
    try:
        case(db, Random(seed))
    except ebla.EblaError as error:
        if not str(error).strip():
            return {"seed": seed, "error": f"{type(error).__name__} without a word"}
    except BaseException as error:
        return {"seed": seed, "error": repr(error)[:300], "trace": traceback.format_exception(error)[-6:]}
    took_s = time.monotonic() - began
    return {"seed": seed, "error": f"took {took_s:.1f} s"} if took_s > SLOW_S else None


def statements(db: ebla.Database, random: Random) -> None:
    text = fuzz.statement(random)
    db.sql(text, p=fuzz.value(random))


def rows(db: ebla.Database, random: Random) -> None:
    table = db.table(random.choice(("t", "u", "odd name")))
    (table.upsert if random.random() < 0.7 else table.delete)(fuzz.rows(random))


def queries(db: ebla.Database, random: Random) -> None:
    relation = random.choice(("t", "u", "odd name", "nosuch"))
    for row in db.query(relation, **fuzz.request(random)).rows():
        repr(row)


def names(db: ebla.Database, random: Random) -> None:
    """A name that a table accepts must work in every place where it is used afterwards."""
    table, column = fuzz.name(random), fuzz.name(random)
    q = fuzz.quoted
    db.sql(f"CREATE TABLE {q(table)} ({q(column)} INT, v STRING, PRIMARY KEY ({q(column)}))")
    try:
        db.table(table).upsert([{column: 1, "v": "a"}])
        assert db.query(table).rows() == [(1, "a")]
        db.sql(f"DESCRIBE {q(table)}")
    finally:
        db.sql(f"DROP TABLE {q(table)}")


def commands(db: ebla.Database, random: Random) -> None:
    from ebla.cli.main import run

    arguments = fuzz.command(random)
    if "run" in arguments and "--help" not in arguments:
        return  # it runs until it is stopped
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    text = err.getvalue()
    if "defect of Ebla" in text or ("Traceback" in text and "--debug" not in arguments):
        raise AssertionError(f"{arguments}: {code}: {text[:400]}")


def settings(db: ebla.Database, random: Random) -> None:
    given = fuzz.settings(random)
    where = random.choice(
        ("fresh", "nul\0", "", "a" * 300, "postgresql://", "postgresql://u@127.0.0.1:1/x?connect_timeout=1", "ftp://x")
    )
    with ebla.connect(where, **given):
        pass


DOORS: dict[str, Callable[[Any, Random], None]] = {
    "statements": statements,
    "rows": rows,
    "queries": queries,
    "names": names,
    "commands": commands,
    "settings": settings,
}
