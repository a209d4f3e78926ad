"""Rows looked up, however much of level 0 is in memory, are those that a dictionary has."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ebla
from ebla.catalog import reads
from ebla.model.relation import TOKEN, Relation, Run
from ebla.predicates import conditions
from ebla.query.execute import Reader
from ebla.sql.literals import Dialect
from ebla.sql.parse import parse
from ebla.sql.statements import Merge
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.rows import TooLarge
from ebla.tables.context import Context
from ebla.tables.level0 import LevelZero, in_memory
from ebla.tables.lookup import stored_keys
from ebla.tables.merged_rows import literal_merge, merged_rows
from ebla.tables.value_lookup import rows_by
from support.folding import fold

Row = tuple[int, str, int | None, str]
IN_MEMORY = (0, 6, 10**6)
"""Rows of level 0 that are in memory: none, the smallest runs, all."""
KEYS = pa.schema([("c0", pa.int64()), ("c1", pa.string())])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with ebla.connect(f"{tmp_path}/w", auto_compact=False, auto_refresh=False, tablets=4) as database:
        database.sql("CREATE TABLE t (id BIGINT, name STRING, v INT, note STRING, PRIMARY KEY (id, name))")
        yield database


def looked_up(context: Context, by: list[str], values: pa.Table, most: int | None = None) -> list[Row]:
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    found = rows_by(context, snapshot, by, values, ["id", "name", "v", "note"], most=most)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)


def keys_there(context: Context, keys: list[tuple[int, str]]) -> set[tuple[int, str]]:
    with context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    names = [column.physical for column in snapshot.relation.key]
    table = pa.table([pa.array(one, kind.type) for one, kind in zip(zip(*keys, strict=True), KEYS, strict=True)], names)
    found = stored_keys(context.storage, context.settings, snapshot, table)
    return set(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_lookups_find_what_a_dictionary_has(db: ebla.Database) -> None:
    chance = random.Random(4)
    stored: dict[tuple[int, str], Row] = {}
    keys = [(n, s) for n in range(6) for s in "ab"]
    for step in range(18):
        some = chance.sample(keys, chance.choice([1, 2, 8]))
        if step and chance.random() < 0.3:
            db.table("t").delete([{"id": n, "name": s} for n, s in some])
            stored = {key: row for key, row in stored.items() if key not in some}
        else:
            rows = [(n, s, chance.choice([None, 0, 1, 2]), f"{step}") for n, s in some]
            db.table("t").upsert([dict(zip(("id", "name", "v", "note"), row, strict=True)) for row in rows])
            stored |= {(row[0], row[1]): row for row in rows}
        if step % 4 == 2:
            fold(db, "t", tablets=chance.sample(range(4), 2) if step % 8 == 2 else None)
        wanted = chance.sample(keys, 3)
        numbers = chance.sample([None, 0, 1, 2], 2)
        by_key = pa.table([pa.array([k[i] for k in wanted], KEYS[i].type) for i in range(2)], ["c0", "c1"])
        for rows_max in IN_MEMORY:
            context = db.context.tuned(level0_rows_max=rows_max)
            assert looked_up(context, ["id", "name"], by_key) == sorted(
                (stored[key] for key in wanted if key in stored), key=repr
            )
            assert keys_there(context, wanted) == stored.keys() & set(wanted)
            for by, values, place in ((["v"], numbers, 2), (["id"], [1, 5], 0)):
                kind = pa.int32() if by == ["v"] else pa.int64()
                table = pa.table({"c0": pa.array(values, kind)})
                expected = sorted((row for row in stored.values() if row[place] in values), key=repr)
                assert looked_up(context, by, table) == expected
            conditioned: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
                ({"v": ebla.between(0, 1)}, lambda row: row[2] in (0, 1)),
                ({"id": 3}, lambda row: row[0] == 3),
                ({}, lambda row: True),
            ]
            for where, holds in conditioned:
                found = [row for row in stored.values() if holds(row)]
                assert first_rows(context, where) == sorted(found, key=lambda row: (row[3], row[:2]))[:5]
    assert not db.context.has_spark


def first_rows(context: Context, where: dict[str, Any]) -> list[Row]:
    def make(relation: Relation) -> conditions.Request:
        return conditions.request(relation, where=where, order_by=["note", "id", "name"], limit=5)

    found = Reader(context).query("t", make).table
    return list(zip(*(found[name].to_pylist() for name in ("id", "name", "v", "note")), strict=True))


def test_both_zeros_are_one_value(db: ebla.Database) -> None:
    db.sql("CREATE TABLE zeros (id INT, f DOUBLE, PRIMARY KEY (id))")
    db.table("zeros").upsert([{"id": 1, "f": 0.0}, {"id": 2, "f": -0.0}, {"id": 3, "f": 1.0}, {"id": 4, "f": None}])
    for value in (0.0, -0.0):
        for where in (value, ebla.one_of(value, 7.0)):
            assert db.query("zeros", where={"f": where}, columns=["id"]).rows() == [(1,), (2,)]
    db.sql("UPDATE zeros SET f = 5 WHERE id IN (1, 2, 3) AND f IN (0.0, 7.0)")
    assert db.query("zeros", where={"f": 5.0}, columns=["id"]).rows() == [(1,), (2,)]


def test_too_many_rows_are_said_to_be_too_many(db: ebla.Database) -> None:
    for note in "xyz":
        db.table("t").upsert([{"id": n, "name": "a", "v": 1, "note": note} for n in range(50)])
    values = pa.table({"c0": pa.array([1], pa.int32())})
    for rows_max in IN_MEMORY:
        context = db.context.tuned(level0_rows_max=rows_max)
        with pytest.raises(TooLarge):
            looked_up(context, ["v"], values, most=49)
        assert len(looked_up(context, ["v"], values, most=50)) == 50


@pytest.mark.parametrize("folded", [False, True])
def test_rows_that_do_not_count_hide_none_behind_them(db: ebla.Database, folded: bool) -> None:
    """Of a commit only some rows are read. Tombstones, and rows of folded tablets, are among them."""
    for first in (0, 30, 60):
        db.table("t").upsert([{"id": 1, "name": f"{n:02}", "v": 0} for n in range(first, first + 30)])
    if folded:
        fold(db, "t", tablets=[0, 1, 2])
    rows = ", ".join(f"(1, '{n:02}', {n})" for n in range(90))
    db.sql(
        f"MERGE INTO t USING (VALUES {rows}) AS s(id, name, n) ON t.id = s.id AND t.name = s.name "
        "WHEN MATCHED AND s.n < 87 THEN DELETE WHEN MATCHED THEN UPDATE SET v = t.v + s.n"
    )
    values = pa.table({"c0": pa.array([1], pa.int64())})
    for rows_max in IN_MEMORY:
        context = db.context.tuned(level0_rows_max=rows_max)
        try:
            found = looked_up(context, ["id"], values, most=10)
        except TooLarge:
            found = looked_up(context, ["id"], values)
        assert [row[:3] for row in found] == [(1, f"{n}", n) for n in (87, 88, 89)]
    assert not db.context.has_spark


def test_a_run_without_tokens_brings_no_other_rows(db: ebla.Database) -> None:
    """As Spark writes it."""
    db.table("t").upsert([{"id": n, "name": "a", "v": n, "note": ""} for n in range(9)])
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    for run in snapshot.level0:
        stored = rf.read_copy(db.context.roots(), run, db.context.storage.level0)
        db.context.storage.level0.put(run.path, stored.drop_columns([TOKEN]))
    by_key = pa.table([pa.array([3, 40], pa.int64()), pa.array(["a", "a"])], ["c0", "c1"])
    assert looked_up(db.context, ["id", "name"], by_key) == [(3, "a", 3, "")]
    assert keys_there(db.context, [(3, "a"), (40, "a")]) == {(3, "a")}


KEY_TYPES: dict[str, Callable[[int], Any]] = {
    "TIMESTAMP": lambda n: datetime(2024, 1, 1, n, tzinfo=UTC),
    "TIMESTAMP_NTZ": lambda n: datetime(2024, 1, 1, n),
    "DATE": lambda n: date(2024, 1, n + 1),
    "STRING": lambda n: f"é{n}",
    "BINARY": lambda n: bytes([n]),
    "DECIMAL(20, 3)": lambda n: Decimal(n) / 8,
    "DOUBLE": lambda n: n / 4,
    "TINYINT": lambda n: n,
}


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_keys_of_every_type_are_found_while_some_tablets_are_folded(db: ebla.Database, kind: str) -> None:
    db.sql(f"CREATE TABLE k (id {kind}, v INT, PRIMARY KEY (id))")
    rows = {KEY_TYPES[kind](n): n for n in range(20)}
    db.table("k").upsert([{"id": key, "v": n} for key, n in rows.items()])
    fold(db, "k", tablets=[0, 1])
    for context in (db.context.tuned(level0_rows_max=n) for n in IN_MEMORY):
        with context.catalog.reading() as connection:
            snapshot = reads.snapshot(connection, reads.relation(connection, "k"))
        keys = pa.array(list(rows), rf.physical_schema(snapshot.relation.key)[0].type)
        for by, values in ((["id"], keys), (["v"], pa.array(list(rows.values()), pa.int32()))):
            found = rows_by(context, snapshot, by, pa.table({"c0": values}), ["v"])
            assert sorted(found["v"].to_pylist()) == sorted(rows.values())
        table = pa.table([keys], [snapshot.relation.key[0].physical])
        assert stored_keys(context.storage, context.settings, snapshot, table).num_rows == len(rows)


def test_a_number_of_a_source_is_no_number_of_the_text(db: ebla.Database) -> None:
    """Spark rounds them differently beside decimals, so it is asked."""
    db.sql("CREATE TABLE p (id INT, price DECIMAL(36, 10), PRIMARY KEY (id))")
    statement = parse(
        "MERGE INTO p USING (SELECT 1 AS id, 2 AS v) s ON p.id = s.id "
        "WHEN MATCHED THEN UPDATE SET price = p.price * s.v"
    )
    assert isinstance(statement, Merge)
    with db.context.catalog.reading() as connection:
        relation = reads.relation(connection, "p")
    dialect = Dialect()
    merge = literal_merge(statement, relation, dialect)
    assert merge is not None
    row = pa.table({"id": pa.array([1], pa.int32()), "price": pa.array([Decimal(1)], pa.decimal128(36, 10))})
    assert merged_rows(db.context.storage, db.context.sessions, relation, merge, row, dialect) is None
    clause = replace(statement.clauses[0], assignments=(("price", "s.v"),))
    plain = replace(merge, statement=replace(statement, clauses=(clause,)))
    assert merged_rows(db.context.storage, db.context.sessions, relation, plain, row, dialect) is not None


def test_the_smallest_runs_are_in_memory(db: ebla.Database) -> None:
    for rows in (3, 1, 2):
        db.table("t").upsert([{"id": n, "name": "a", "v": rows, "note": ""} for n in range(rows)])
    with db.context.catalog.reading() as connection:
        runs = reads.snapshot(connection, reads.relation(connection, "t")).level0
    kept, others = in_memory(runs, 3)
    assert [run.rows for run in kept] == [1, 2]
    assert [run.rows for run in others] == [3]


def test_a_point_statement_reads_one_row_group_of_a_large_level_0(
    db: ebla.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing starts Spark, no run is read whole, and of the rows in files those of one row group are looked at."""
    rows, group = 400_000, 65_536
    tuned = db.context.settings.model_copy(update={"batch_rows_max": rows, "level0_rows_max": 1_000})
    db.context.settings = tuned
    db.table("t").upsert(
        pa.table(
            {"id": range(rows), "name": ["a"] * rows, "v": pa.array(range(rows), pa.int32()), "note": ["n"] * rows}
        )
    )
    read: list[int] = []
    original = rf.read_run

    def counted(root: Root, run: Run, cache: rf.LevelZeroCache | None = None) -> pa.Table:
        read.append(run.rows)
        return original(root, run, cache)

    monkeypatch.setattr(rf, "read_run", counted)
    for turn in range(3):
        db.sql("UPDATE t SET v = v + :more WHERE id = :id AND name = 'a'", id=1000 * turn, more=turn)
    db.sql("DELETE FROM t WHERE id IN (5, 6)")
    db.sql(
        "MERGE INTO t USING (VALUES (7, 'a', 3), (7, 'b', 4)) AS s(id, name, v) ON t.id = s.id AND t.name = s.name "
        "WHEN MATCHED THEN UPDATE SET v = t.v + s.v "
        "WHEN NOT MATCHED THEN INSERT (id, name, v) VALUES (s.id, s.name, s.v)"
    )
    assert db.query("t", where={"id": ebla.between(4, 7)}, columns=["id", "name", "v"]).rows() == [
        (4, "a", 4),
        (7, "a", 10),
        (7, "b", 4),
    ]
    assert not db.context.has_spark
    assert max(read, default=0) < 10
    assert scanned(db, tmp_path / "profile.json", id=77_777) == (1, rows // group + 1)


def scanned(db: ebla.Database, profile: Path, *, id: int) -> tuple[int, int]:
    """Row groups of level 0's files that a lookup of one key looks at, of all that they have."""
    cursor = db.context.duck()
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, reads.relation(connection, "t"))
    names = [column.physical for column in snapshot.relation.key]
    keys = pa.table([pa.array([id], pa.int64()), pa.array(["a"])], names)
    cursor.execute("PRAGMA enable_profiling = 'json'")
    cursor.execute(f"SET profiling_output = '{profile}'")
    assert (
        LevelZero.of(db.context.storage, db.context.settings, snapshot, db.context.roots(), cursor)
        .of_keys(keys, ())
        .num_rows
        == 1
    )
    cursor.close()
    groups = [(n["row_groups_scanned"], n["total_row_groups_to_scan"]) for n in nodes(json.loads(profile.read_text()))]
    return max(groups, key=lambda one: one[1])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "row_groups_scanned" in plan:
        yield plan
    for value in plan.values():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict):
                yield from nodes(child)
