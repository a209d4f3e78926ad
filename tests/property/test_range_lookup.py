"""Rows from a position on, and positions in front of it, are a dictionary's, however much of level 0 is in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ebla
from ebla.algebra.tails import Course
from ebla.catalog import reads
from ebla.storage.rows import TooLarge
from ebla.tables import range_lookup
from ebla.tables.context import Context
from ebla.tables.range_lookup import rows_from, value_before
from ebla.values import types
from support.folding import fold

IN_MEMORY = (0, 6, 10**6)
"""Rows of level 0 that are in memory: none, the smallest runs, all."""
VALUES: dict[str, Callable[[int], Any]] = {
    "BIGINT": lambda n: n,
    "TINYINT": lambda n: n - 3,
    "STRING": lambda n: f"é{n}'",
    "DATE": lambda n: date(2024, 1, n + 1),
    "TIMESTAMP": lambda n: datetime(2024, 1, 1, n, tzinfo=UTC),
    "TIMESTAMP_NTZ": lambda n: datetime(2024, 1, 1, n),
    "DECIMAL(20, 3)": lambda n: Decimal(n) / 8,
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(f"{tmp_path}/w", auto_compact=False, auto_refresh=False, tablets=4, fsync=False) as database:
        yield database


def asked(
    context: Context, course: Course, position: object, kind: str, count: int, most: int = 1000
) -> tuple[list[Any], Any]:
    """Numbers of the rows from a position on, and the value of the row so many in front of it."""
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    given = pa.scalar(position, types.to_arrow(kind.lower().replace(" ", "")))
    found = rows_from(context, snapshot, course, given, ["id", "v"], most=most)
    assert found.schema.names == ["id", "v"]
    before = value_before(context, snapshot, course, given, count)
    return sorted(found["id"].to_pylist()), "too few" if before is None else before.as_py()


@pytest.mark.parametrize("kind", VALUES)
def test_rows_along_a_column_are_those_of_a_dictionary(
    db: ebla.Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_lookup, "FIRST_LOOK", 1)  # so that rows that were replaced stand in the way
    monkeypatch.setattr(range_lookup, "LOOKS_GROW", 2)
    db.sql(f"CREATE TABLE t (id BIGINT, v {kind}, PRIMARY KEY (id))")
    chance = random.Random(kind)
    stored: dict[int, int | None] = {}
    for step in range(8):
        some = chance.sample(range(14), chance.choice([1, 3, 9]))
        if step and chance.random() < 0.3:
            db.table("t").delete([{"id": n} for n in some])
            stored = {n: v for n, v in stored.items() if n not in some}
        else:
            written = {n: chance.choice([None, *range(7)]) for n in some}
            rows = [{"id": n, "v": None if v is None else VALUES[kind](v)} for n, v in written.items()]
            db.table("t").upsert(rows)
            stored |= written
        if step % 3 == 2:
            fold(db, "t", tablets=chance.sample(range(4), 2) if step % 2 else None)
        for rows_max in IN_MEMORY:
            context = db.context.tuned(level0_rows_max=rows_max)
            course = Course(column="v", descending=chance.random() < 0.5, nulls_first=chance.random() < 0.5)
            position, count = chance.choice([None, *range(7)]), chance.choice([1, 2, 5])

            def place(v: int | None, course: Course = course) -> int:
                if v is None:
                    return -100 if course.nulls_first else 100
                return -v if course.descending else v

            before = sorted((v for v in stored.values() if place(v) < place(position)), key=place)
            nearest = before[-count] if len(before) >= count else "too few"
            expected = sorted(n for n, v in stored.items() if place(v) >= place(position))
            given, wanted = (VALUES[kind](v) if isinstance(v, int) else v for v in (position, nearest))
            assert asked(context, course, given, kind, count) == (expected, wanted)
    assert not db.context.has_spark


def test_more_rows_than_wanted_are_too_many(db: ebla.Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT, v INT, PRIMARY KEY (id))")
    for step in range(3):
        db.table("t").upsert([{"id": n, "v": n + step} for n in range(50)])
    course = Course(column="v", descending=False, nulls_first=True)
    for rows_max in IN_MEMORY:
        context = db.context.tuned(level0_rows_max=rows_max)
        assert len(asked(context, course, 42, "INT", 1, most=10)[0]) == 10
        with pytest.raises(TooLarge):
            asked(context, course, 41, "INT", 1, most=10)
