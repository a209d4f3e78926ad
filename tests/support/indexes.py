"""Indexes for tests: begin one, take its steps one by one, and compare its entries with its definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import ebla
from ebla.base.ids import RelationId
from ebla.catalog import reads
from ebla.indexes import create, walk
from ebla.model.lifecycle.index import Permission
from ebla.relations import indexes as definition
from ebla.sql import statements as st
from ebla.sql.parse import parse
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.tables.writes import commit
from ebla.values.columns import python_values
from support.folding import snapshot_rows

STATES = (Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE, Permission.BACKFILLING)


def begin_index(db: ebla.Database, text: str) -> RelationId:
    """What CREATE INDEX commits first; the base's id."""
    statement = parse(text)
    assert isinstance(statement, st.CreateIndex)
    made = create.create_index(db.context.catalog, db.context.sessions, db.context.node, statement)
    assert made is not None
    return made.base.id


def state(db: ebla.Database, name: str) -> Permission | None:
    with db.context.catalog.reading() as connection:
        found = definition.find(connection, name)
    return None if found is None else found.state


def step_until(db: ebla.Database, name: str, wanted: Permission) -> None:
    """Walk until the index is in a state; to be readable it is filled, by the leader."""
    if wanted is Permission.READ_WRITE_AND_DELETE:
        db.sql(f"WAIT FOR {name}")
    while state(db, name) is not wanted:
        walked = walk.step(db.context)
        assert walked.moved or walked.wait_us is not None, f"{name} is {state(db, name)} and goes no further"


def entries(db: ebla.Database, name: str) -> Counter[tuple[Any, ...]]:
    """What an index has now, under the order of its columns."""
    with db.context.catalog.reading() as connection:
        index = definition.load(connection, name)
        snapshot = reads.snapshot(connection, index.relation)
    table = snapshot_rows(db, snapshot)
    return bag([table.column(c.physical) for c in index.relation.columns])


def expected(db: ebla.Database, name: str) -> Counter[tuple[Any, ...]]:
    """What it should have, as Spark says."""
    with db.context.catalog.reading() as connection:
        index = definition.load(connection, name)
        snapshot = reads.snapshot(connection, index.base)
    table = snapshot_rows(db, snapshot)
    names = {c.physical: c.name for c in index.base.columns}
    frame = db.spark.createDataFrame(table.rename_columns([names[n] for n in table.schema.names]))
    texts = {item.physical: item.text for item in index.expressions}
    rows = frame if index.where is None else frame.filter(index.where)
    shown = rows.selectExpr(*[texts.get(c.physical, f"`{names.get(c.physical)}`") for c in index.relation.columns])
    found = shown.toArrow()
    return bag(found.columns)


def bag(columns: Sequence[pa.ChunkedArray]) -> Counter[tuple[Any, ...]]:
    """NaN is equal to itself, and lists are values."""

    def plain(value: Any) -> Any:
        return "NaN" if value != value else tuple(value) if isinstance(value, list) else value

    return Counter(tuple(map(plain, row)) for row in zip(*map(python_values, columns), strict=True))


def assert_exact(db: ebla.Database, *names: str) -> None:
    """Entries equal the definition, and CHECK says so."""
    for name in names:
        assert entries(db, name) == expected(db, name), name
        [(_, _, missing, spurious, different, *_)] = db.sql(f"CHECK INDEX {name}").rows()
        assert (missing, spurious, different) == (0, 0, 0), name


def damage(db: ebla.Database, name: str, wrong: list[tuple[dict[str, Any], str]]) -> None:
    """Write rows (physical names) and tombstones into an index or a view, as only the system may."""
    sink = Sink(begin(db.context, name, reason="damage"))
    table = pa.Table.from_pylist([row for row, _ in wrong], schema=rf.physical_schema(sink.relation.columns))
    kinds = pa.chunked_array([pa.array([kind for _, kind in wrong], pa.string())])
    sink.put(b.ArrowBatch(table=table, kinds=kinds, ordered=False))
    commit(sink, "damage", reads_target=False)
