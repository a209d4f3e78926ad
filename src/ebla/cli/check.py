"""`ebla check`: what is wrong with a script, without running it."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ebla.catalog.store import Catalog, is_postgres
from ebla.cli import output, script
from ebla.relations import handlers as stored
from ebla.validate import Issue, Severity, Warehouse, render, script_issues, strict, warehouse
from ebla.validate.facts import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebla.spark.session import StartedSession

WARNINGS, ERRORS = 1, 2
"""Exit codes. Notes alone are no reason to stop a pipeline."""


def read(file: str) -> str:
    return sys.stdin.read() if file == "-" else script.read_file(file, file)


def issues(place: str, text: str) -> tuple[Issue, ...]:
    """The issues of a script against a warehouse, or against an empty one where there is none."""
    from ebla.validate.spark import SparkAnalyser

    with _spark() as session:
        return script_issues(text, _warehouse(place), SparkAnalyser(session))


def _warehouse(place: str) -> Warehouse:
    if not is_postgres(place) and not (Path(place) / "catalog.db").exists():
        output.note(f"there is no warehouse {place}: checked as if it were empty")
        return Warehouse(system=_system())
    catalog = Catalog.open(place, create=False)
    try:
        with catalog.reading() as connection:
            found = warehouse.read(connection, handlers=stored.by_names(connection))
        return replace(found, system=_system())
    finally:
        catalog.close()


def _system() -> dict[str, Columns]:
    from ebla.api import system
    from ebla.values import types

    return {name: {f.name: types.from_arrow(f.type) for f in system.table_schema(name)} for name in system.names()}


class _Lazy:
    """Spark, started by the first view that comes as far as its analysis."""

    def __init__(self) -> None:
        self.started: StartedSession | None = None

    def __call__(self) -> SparkSession:
        from ebla.base import settings
        from ebla.spark.session import StartedSession

        if self.started is None:
            self.started = StartedSession.start(settings.load())
        return self.started.session


@contextlib.contextmanager
def _spark() -> Iterator[_Lazy]:
    lazy = _Lazy()
    try:
        yield lazy
    finally:
        if lazy.started is not None:
            lazy.started.stop()


def show(found: tuple[Issue, ...], text: str, *, as_json: bool, as_errors: bool) -> int:
    """Print issues by place; returns the exit code."""
    found = strict(found) if as_errors else found
    counts = Counter(i.severity for i in found)
    if as_json:
        totals = {f"{s.value}s": counts[s] for s in Severity}
        output.write_json({"issues": [i.as_json() for i in found], **totals})
    else:
        if found:
            print(render(found, text))
        said = [f"{counts[s]} {s.value}{'s' if counts[s] > 1 else ''}" for s in Severity if counts[s]]
        output.note(", ".join(said) or "no issues")
    if counts[Severity.ERROR]:
        return ERRORS
    return WARNINGS if counts[Severity.WARNING] else 0
