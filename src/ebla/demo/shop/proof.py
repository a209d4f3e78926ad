"""Proof that a view is its query: at one version of the tables, neither has a row that the other lacks.

Rows are compared as bags: a row that stands twice on one side must stand twice on the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebla.sql.query import TableRef
from ebla.sql.refs import find

if TYPE_CHECKING:
    from ebla.api.database import Database

EXAMPLES_MAX = 3
ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a comparison found."""

    view: str
    engine: str
    version: int
    rows: int
    expected_rows: int
    extra: int
    """Rows of the view that the query does not give."""
    missing: int
    """Rows of the query that the view does not have."""
    seconds: float
    examples: tuple[tuple[Any, ...], ...] = ()

    @property
    def equal(self) -> bool:
        return self.extra == 0 and self.missing == 0 and self.rows == self.expected_rows


def recomputation(name: str, views: Mapping[str, str], version: int) -> str:
    """The query of a view over the tables at a version; views that it reads are replaced by their own queries."""

    def at_version(ref: TableRef) -> str:
        inside = recomputation(ref.name, views, version) if ref.name in views else None
        table = f"{ref.name} VERSION AS OF {version}" if inside is None else f"({inside})"
        return table if ref.alias else f"{table} AS {ref.name}"

    query = find(views[name].strip())
    pieces, at = [], 0
    for ref in query.refs:
        pieces += [query.text[at : ref.start], at_version(ref)]
        at = ref.end
    return "".join([*pieces, query.text[at:]])


def tables_of(name: str, views: Mapping[str, str]) -> list[str]:
    """The tables that a view is made of, through the views that it reads."""
    found: dict[str, None] = {}
    for ref in find(views[name].strip()).refs:
        found |= dict.fromkeys(tables_of(ref.name, views) if ref.name in views else [ref.name])
    return list(found)


def applied_version(db: Database, view: str) -> int:
    found = {row["name"]: row["applied_version"] for row in db.sql("SHOW VIEWS").to_arrow().to_pylist()}
    return int(found[view])


def unread(db: Database, view: str, views: Mapping[str, str]) -> list[str]:
    """The tables of a view that were written to after the version that it shows: none after a FLUSH."""
    applied = applied_version(db, view)
    return [table for table in tables_of(view, views) if db.table(table).version > applied]


def prove(db: Database, view: str, views: Mapping[str, str]) -> Proof:
    """Compare a view's rows with its query over the tables, on Spark, at the version that the view has applied."""
    for _ in range(ATTEMPTS_MAX):
        version = applied_version(db, view)
        proof = _by_spark(db, view, recomputation(view, views, version), version)
        if applied_version(db, view) == version:  # no epoch came in between
            return proof
    raise RuntimeError(f"{view}: expected the view to stand still, found an epoch during each of {ATTEMPTS_MAX} looks")


def _by_spark(db: Database, view: str, query: str, version: int) -> Proof:
    """`view EXCEPT ALL query` and `query EXCEPT ALL view`, counted; rows are fetched only if there are any.

    Both at once, as Spark plans each: one union in which the view's rows weigh 1 and the query's -1, one shuffle, and
    what does not cancel out is the difference. Each side is computed once, not three times.
    """
    began = time.perf_counter()
    columns = ", ".join(f"`{name}`" for name in db.sql(f"SELECT * FROM {view} LIMIT 0").columns)
    rows, expected, extra, missing = db.sql(
        f"""
        SELECT coalesce(sum(held), 0), coalesce(sum(given), 0),
               coalesce(sum(greatest(held - given, 0)), 0), coalesce(sum(greatest(given - held, 0)), 0)
        FROM (SELECT count_if(_weight = 1) AS held, count_if(_weight = -1) AS given
              FROM (SELECT *, 1 AS _weight FROM {view} UNION ALL SELECT *, -1 FROM ({query}))
              GROUP BY {columns})
        """
    ).one()
    return Proof(
        view=view,
        engine="Spark",
        version=version,
        rows=rows,
        expected_rows=expected,
        extra=extra,
        missing=missing,
        seconds=time.perf_counter() - began,
        examples=_examples(db, view, query) if extra or missing else (),
    )


def _examples(db: Database, view: str, query: str) -> tuple[tuple[Any, ...], ...]:
    """Some rows of each difference, behind a word on which side they are."""
    found: list[tuple[Any, ...]] = []
    for side, text in (
        ("only in the view", f"SELECT * FROM {view} EXCEPT ALL ({query})"),
        ("only in the query", f"({query}) EXCEPT ALL SELECT * FROM {view}"),
    ):
        found += [(side, *row) for row in db.sql(f"SELECT * FROM ({text}) LIMIT {EXAMPLES_MAX}").rows()]
    return tuple(found)


def prove_by_duckdb(db: Database, view: str, views: Mapping[str, str]) -> Proof:
    """The same with another engine: DuckDB runs the query on the tables' rows. Spark only reads them."""
    import duckdb

    began = time.perf_counter()
    version = applied_version(db, view)
    with duckdb.connect() as engine:
        engine.execute("SET enable_progress_bar = false")  # it would be printed into what a program reads
        for table in tables_of(view, views):
            engine.register(table, db.sql(f"SELECT * FROM {table} VERSION AS OF {version}").to_arrow())
        engine.register("held", db.sql(f"SELECT * FROM {view}").to_arrow())
        engine.execute(f"CREATE TEMP TABLE expected AS {views[view]}")
        sides = ("held", "expected", "(FROM held EXCEPT ALL FROM expected)", "(FROM expected EXCEPT ALL FROM held)")
        counts = [engine.execute(f"SELECT count(*) FROM {side}").fetchall()[0][0] for side in sides]
    return Proof(
        view=view,
        engine="DuckDB",
        version=version,
        rows=counts[0],
        expected_rows=counts[1],
        extra=counts[2],
        missing=counts[3],
        seconds=time.perf_counter() - began,
    )
