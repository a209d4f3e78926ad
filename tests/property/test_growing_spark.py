"""Random views built in tiny chunks while random changes and epochs come between: exact at every step.

After every commit of a build the unfinished view is compared with its query over what it knows of its base, by DuckDB.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import ebla
from ebla.algebra.build_method import GrowingBuild, driving
from ebla.algebra.keys import view_key
from ebla.algebra.merge import sketch
from ebla.algebra.nodes import NotUnderstood
from ebla.algebra.shape import shape
from ebla.build import chunks
from ebla.catalog import build_tasks, reads
from ebla.model.relation import Column
from ebla.relations import views as definition
from ebla.relations.shapes import build_method
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.tables import scans
from ebla.views.epoch import whole_epoch
from ebla.views.epoch.region import covered_stretches, inside
from support.duck import DuckEngine, State
from support.relations import relation
from support.spellings import naming, spelled
from support.view_queries import KEYS, ROWS, TABLES, Sql, queries
from support.view_states import bag, key_of, put

pytestmark = pytest.mark.spark

EXAMPLES = 4
STORED = naming(9)
RELATIONS = {
    table: relation(table, " ".join(KEYS[table]), *(f"{n} {kind}" for n, kind in columns.items()), number=number)
    for number, (table, columns) in enumerate(TABLES.items(), start=1)
}

Change = dict[str, tuple[list[dict[str, object]], list[tuple[object, ...]]]]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Rows to write, and keys to delete, of some tables; perhaps nothing."""
    tables = draw(st.lists(st.sampled_from(sorted(TABLES)), max_size=2, unique=True))
    return {
        table: (
            draw(st.lists(ROWS[table], max_size=2)),
            [key_of(table, row) for row in draw(st.lists(ROWS[table], max_size=2))],
        )
        for table in tables
    }


@st.composite
def filled(draw: st.DrawFn) -> State:
    """Rows in every table, enough for several chunks."""
    return {
        table: {key_of(table, row): row for row in draw(st.lists(ROWS[table], min_size=6, max_size=9))}
        for table in TABLES
    }


def changed(state: State, change: Change) -> State:
    after = {table: dict(rows) for table, rows in state.items()}
    for table, (rows, gone) in change.items():
        after[table].update({key_of(table, row): row for row in rows})
        for key in gone:
            after[table].pop(key, None)
    return after


class Watched:
    """One view while it is built: what it should have now, and what happens between its chunks."""

    def __init__(self, db: ebla.Database, sql: Sql, now: State, to_come: list[tuple[Change, bool]]) -> None:
        self.db = db
        self.sql = sql
        self.now = now
        self.to_come = to_come
        self.errors: list[BaseException] = []
        self.compared = 0

    def hit(self, place: str) -> None:
        if place == "build.before_chunk" and self.to_come:
            change, epoch = self.to_come.pop(0)
            after = changed(self.now, change)
            put(self.db, self.now, after, STORED)
            self.now = after
            if epoch:
                self.db.epochs.catch_up("v")
        if place in ("build.chunk_committed", "build.epoch_committed"):
            self._compare()

    def _compare(self) -> None:
        try:
            found, expected = self._both()
            assert found == expected, self.sql.text
            self.compared += 1
        except BaseException as error:
            self.errors.append(error)

    def _both(self) -> tuple[Counter[Any], Counter[Any]]:
        context = self.db.context
        with context.catalog.reading() as connection:
            view = definition.load(connection, "v")
            relations = {n: reads.relation(connection, n) for n in view.inputs}
            how = build_method(view, relations)
            assert isinstance(how, GrowingBuild)
            stretches = covered_stretches(build_tasks.segments(connection, view.relation.id))
            snapshot = reads.snapshot(connection, view.relation)
        engine = DuckEngine(self.now, self.now, STORED)
        base = STORED.plain_tables[how.base]
        rows = engine.stored(base, list(self.now[base].values()))
        covered = inside(rows, relations[how.base], stretches).rename_columns(list(TABLES[base])).to_pylist()
        restricted: State = {**self.now, base: {key_of(base, row): row for row in covered}}
        shown = bag(tuple(row) for row in scans.frame_of(context, snapshot).collect())
        return shown, bag(engine.evaluate(self.sql.text, restricted).elements())


@pytest.mark.parametrize("rows_max", [100_000, 1], ids=["driver", "spark"])
def test_random_views_grow_chunk_by_chunk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """`spark`: chunks and changes are too large for the driver."""
    quiet: dict[str, Any] = {"tablets": 2, "auto_compact": False, "auto_refresh": False, "fsync": False}
    with ebla.connect(str(tmp_path / "warehouse"), spark=spark, batch_rows_max=rows_max, **quiet) as db:
        for table in TABLES:
            db.sql(STORED.create(table))
        nothing: State = {table: {} for table in TABLES}
        last = [nothing]
        compared = [0]

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @seed(rows_max)
        @given(
            sql=queries(),
            first=filled(),
            to_come=st.lists(st.tuples(changes(), st.booleans()), min_size=3, max_size=3),
            chunk_rows=st.integers(1, 2),
            names=st.integers(0, 2**16),
        )
        def one_view(sql: Sql, first: State, to_come: list[tuple[Change, bool]], chunk_rows: int, names: int) -> None:
            text = spelled(sql, STORED, names).text
            note(text)
            assume(grows(sql))
            put(db, last[0], first, STORED)
            watched = Watched(db, sql, first, to_come)
            monkeypatch.setattr(whole_epoch, "hit", watched.hit)
            monkeypatch.setattr(chunks, "hit", watched.hit)
            db.sql("DROP MATERIALIZED VIEW IF EXISTS v")  # that of an example that failed
            db.sql(f"CREATE MATERIALIZED VIEW v WITH (chunk_rows = {chunk_rows}) AS {text}")
            if watched.errors:
                raise watched.errors[0]
            compared[0] += watched.compared
            db.sql("FLUSH v")
            last[0] = watched.now
            expected = DuckEngine(watched.now, watched.now).evaluate(sql.text, watched.now)
            assert bag(db.sql("SELECT * FROM v").rows()) == bag(expected.elements()), sql.text
            db.sql("DROP MATERIALIZED VIEW v")

        one_view()
        assert compared[0] >= 2 * EXAMPLES, "most views grow in several steps"


def grows(sql: Sql) -> bool:
    """Whether the view is one that this is about; known without a warehouse, so that no example is lost."""
    query = parse(sql.text)
    assert isinstance(query, Query)
    names = list(dict.fromkeys(ref.name.lower() for ref in query.refs))
    try:
        understood = shape(query, TABLES)
    except NotUnderstood:
        return False
    key = view_key(understood, KEYS)
    columns = [
        Column(name=n, physical=n, type=kind, key_position=key.index(n) if n in key else None)
        for n, kind in sql.columns
    ]
    merges = sketch(query, understood, [n for n, _ in sql.columns]) is not None
    relations = {n: RELATIONS[n] for n in names}
    return isinstance(driving(understood, names, relations, columns, merges=merges), GrowingBuild)
