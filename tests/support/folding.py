"""Level 1 without Spark: tests fold small tables by themselves, into as many row groups as they like."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ebla
from ebla.catalog import memory, reads
from ebla.catalog import schema as s
from ebla.model.relation import DELETED, Relation, RunSource
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import token_range
from ebla.model.work import WorkKind
from ebla.predicates import values as v
from ebla.spark.write import TabletFile
from ebla.storage import runs as rf
from ebla.storage.store import single
from ebla.tables import fold as table_fold
from ebla.tables.sink import Sink
from ebla.tables.transaction import begin
from ebla.values import token as tokens
from ebla.values.columns import plain_type


def snapshot_rows(db: ebla.Database, snapshot: Snapshot) -> pa.Table:
    """All rows of a snapshot under their physical names: level 1 without the rows of level 0, and its upserts."""
    relation, roots = snapshot.relation, db.context.roots()
    key = [c.physical for c in relation.identity]
    level1 = [rf.align(rf.read_run(roots[run.nodes[0]], run), relation.columns) for run in snapshot.level1]
    old = pa.concat_tables([rf.physical_schema(relation.columns).empty_table(), *level1])
    changed = rf.mutations(relation, snapshot.level0, roots, None, snapshot)
    gone = set(_keys(changed, key))
    kept = old.filter(pa.array([one not in gone for one in _keys(old, key)], pa.bool_()))
    new = changed.filter(pc.invert(pc.fill_null(changed[DELETED], False))).select(old.schema.names)
    return pa.concat_tables([kept, new])


def _keys(table: pa.Table, key: Sequence[str]) -> list[tuple[Any, ...]]:
    lists = [table[name].cast(plain_type(table[name].type)).to_pylist() for name in key]
    return [tuple("NaN" if value != value else value for value in row) for row in zip(*lists, strict=True)]


def fold(
    db: ebla.Database,
    name: str,
    *,
    row_group_rows: int = 3,
    descending: Collection[str] = (),
    tablets: Collection[int] | None = None,
) -> None:
    """Compact some tablets of a table. The runs are sorted downwards in the key columns named."""
    sink = Sink(begin(db.context, name, reason=f"compact {name}", work=WorkKind.COMPACTION))
    relation, transaction = sink.relation, sink.transaction
    chosen = None if tablets is None else [token_range(t, relation.tablets) for t in sorted(tablets)]
    with db.context.catalog.reading() as connection:
        snapshot = reads.snapshot(connection, relation, transaction.snapshot, chosen)
    files = _write(sink, snapshot, snapshot_rows(db, snapshot), row_group_rows, descending)
    sink.runs = sink.files.adopt(files, level=1, source=RunSource.COMPACTION)
    table_fold.commit_fold(sink, snapshot, table_fold.plan_fold(snapshot, set(snapshot.tablets), snapshot.version))


def _write(
    sink: Sink, snapshot: Snapshot, rows: pa.Table, row_group_rows: int, descending: Collection[str]
) -> list[TabletFile]:
    relation: Relation = snapshot.relation
    numbers = tokens.tablets_of(tokens.tokens(rows, [c.physical for c in relation.placed_by]), relation.tablets)
    root, scratch = sink.files.home(), sink.files.next_scratch()
    root.make_parent(f"{scratch}/x")
    files: list[TabletFile] = []
    for tablet in snapshot.tablets:
        part = rows.filter(pa.array(numbers == tablet))
        lists = []
        for column in relation.key:
            ranker = v.ranker(column.name in descending or column.physical in relation.descending)
            lists.append([ranker(value) for value in v.plain(single(part[column.physical])).to_pylist()])
        ranks = list(zip(*lists, strict=True))
        order = pa.array(sorted(range(part.num_rows), key=ranks.__getitem__), pa.int64())
        path = f"{scratch}/part-{tablet}.parquet"
        pq.write_table(part.take(order), root.full(path), row_group_size=row_group_rows, write_page_checksum=True)
        files.append(TabletFile(tablet=tablet, path=path))
    return files


def allow_null_keys(db: ebla.Database, name: str) -> None:
    """Let a table's key have NULLs, as an index's key may."""
    with db.context.catalog.writing() as connection:
        number = reads.relation(connection, name).id
        memory.reshape(connection)
        connection.execute(s.columns.update().where(s.columns.c.relation_id == number).values(nullable=True))
