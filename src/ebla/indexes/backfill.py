"""Rows of a base to the runs of all its indexes, in one Spark job.

Plan: one scan, one projection that computes every expression and condition, one shuffle that brings each tablet into a
partition of its own (entries lie where their rows lie). There, for each index, Arrow sorts the tablet's entries and
writes one file. So one more index costs a sort and a file, not a scan. A tablet of more rows than one task should hold
is sorted by Spark itself, index by index, from rows that are kept between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import RelationId, TabletId
from ebla.base.settings import Settings
from ebla.indexes import entries
from ebla.model.relation import Relation
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.spark.sessions import Sessions
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.tables.chunk_scan import Scan
from ebla.tables.sink import Sink
from ebla.values import bounds, types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS_MAX = 4_000_000
"""A task sorts at most about this many rows in memory."""

_TABLET = "_ebla_tablet"
_FACTS = "relation long, tablet int, path string, row_count long, bytes long, key_min string, key_max string"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLayout:
    """What a task needs to know of one index. Plain values: it travels."""

    relation: int
    columns: tuple[tuple[str, str, str], ...]
    """Name in the rows, name in the file, type."""
    flag: str | None
    key: tuple[tuple[str, bool], ...]
    """Names in the file and whether they descend."""
    scratch: str


def fill(
    sessions: Sessions,
    settings: Settings,
    frame: DataFrame,
    base: Relation,
    sinks: Mapping[RelationId, tuple[Index, Sink]],
    scan: Scan,
    *,
    tablet_rows: int,
) -> None:
    """Write level 1 of the indexes for all rows of some parts of their base (physical names). Nothing is committed.

    `tablet_rows`: how many rows the largest tablet has, about. Indexes have the tablets that their base has now, which
    may be others than at the version that is read.
    """
    indexes = [index for index, _ in sinks.values()]
    rows = entries.computed(frame, base, indexes)
    count = next(sink.relation.tablets for _, sink in sinks.values())
    tablets = scan.tablets(count)
    with swrite.translated(base.name):
        if tablet_rows > TASK_ROWS_MAX:
            found = _by_spark(sessions.writer, rows, sinks, tablets)
        else:
            placed = sscan.tablet_sql(sscan.token_sql(base.key), count)
            found = _by_tasks(settings, rows.selectExpr("*", f"{placed} AS {_TABLET}"), count, sinks, tablets)
    for number, (_, sink) in sinks.items():
        sink.runs = sink.files.adopt(found.get(number, []), level=1)


# ---- one task for each tablet ---------------------------------------------------------------------------


def _by_tasks(
    settings: Settings,
    rows: DataFrame,
    count: int,
    sinks: Mapping[RelationId, tuple[Index, Sink]],
    tablets: Sequence[TabletId],
) -> dict[RelationId, list[swrite.TabletFile]]:
    layouts = [_layout(index, sink) for index, sink in sinks.values()]
    home = next(iter(sinks.values()))[1].files.home()
    task = _EntryWriter(home.location, settings.fsync, settings.index_row_group_bytes, layouts)
    from pyspark.sql import functions as F

    place = {tablet: number for number, tablet in enumerate(tablets)}
    places = ", ".join(str(place.get(TabletId(t), 0)) for t in range(count))
    arranged = rows.repartitionById(len(tablets), F.expr(f"element_at(array({places}), {_TABLET} + 1)"))
    found: dict[RelationId, list[swrite.TabletFile]] = {}
    for row in arranged.mapInArrow(task, _FACTS).collect():  # a row for each file
        facts = rf.Facts(rows=row.row_count, bytes=row.bytes, key_min=row.key_min, key_max=row.key_max)
        file = swrite.TabletFile(tablet=TabletId(row.tablet), path=row.path, facts=facts)
        found.setdefault(RelationId(row.relation), []).append(file)
    return found


def _layout(index: Index, sink: Sink) -> IndexLayout:
    values = {item.physical: entries.value_name(index, item.physical) for item in index.expressions}
    relation = index.relation
    return IndexLayout(
        relation=int(index.id),
        columns=tuple((values.get(c.physical, c.physical), c.physical, c.type) for c in relation.columns),
        flag=None if index.where is None else entries.flag_name(index),
        key=tuple((c.physical, c.physical in relation.descending) for c in relation.key),
        scratch=sink.files.next_scratch(),
    )


class _EntryWriter:
    """Sorts and writes the entries of the tablets that come to it. Runs in Spark's Python workers."""

    def __init__(self, location: str, fsync: bool, row_group_bytes: int, layouts: Sequence[IndexLayout]) -> None:
        self.location = location
        self.fsync = fsync
        self.row_group_bytes = row_group_bytes
        self.layouts = list(layouts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        given = [batch for batch in batches if batch.num_rows]
        if not given:
            return
        rows = pa.Table.from_batches(given)
        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        root = Root(self.location, fsync=self.fsync)
        written = []
        for tablet in pc.unique(rows[_TABLET]).to_pylist():
            own = rows.filter(pc.equal(rows[_TABLET], tablet))
            for layout in self.layouts:
                facts = self._write(root, own, layout, tablet, attempt)
                if facts is not None:
                    written.append(facts)
        if written:
            yield pa.RecordBatch.from_pylist(written, schema=_facts_schema())

    def _write(
        self, root: Root, rows: pa.Table, layout: IndexLayout, tablet: int, attempt: int
    ) -> dict[str, Any] | None:
        chosen = rows if layout.flag is None else rows.filter(rows[layout.flag])
        if chosen.num_rows == 0:
            return None
        fields = [pa.field(name, types.to_arrow(kind)) for _, name, kind in layout.columns]
        arrays = [chosen[source].cast(field.type) for (source, _, _), field in zip(layout.columns, fields, strict=True)]
        table = pa.table(arrays, schema=pa.schema(fields))
        table = table.take(rf.in_order(table, layout.key))
        path = f"{layout.scratch}/{tablet}-{attempt}.parquet"
        group_rows = max(1024, int(self.row_group_bytes * table.num_rows / max(1, table.nbytes)))
        size = root.write_parquet(table, path, group_rows)
        first, last = rf.ends(table, [name for name, _ in layout.key])
        down = [descending for _, descending in layout.key]
        return {
            "relation": layout.relation,
            "tablet": tablet,
            "path": path,
            "row_count": table.num_rows,
            "bytes": size,
            "key_min": None if first is None else bounds.below(first, down),
            "key_max": None if last is None else bounds.above(last, down),
        }


def _facts_schema() -> pa.Schema:
    kinds = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in (f.split() for f in _FACTS.split(", "))])


# ---- large tablets --------------------------------------------------------------------------------------


def _by_spark(
    writer: SparkSession,
    rows: DataFrame,
    sinks: Mapping[RelationId, tuple[Index, Sink]],
    tablets: Sequence[TabletId],
) -> dict[RelationId, list[swrite.TabletFile]]:
    kept = rows.persist() if len(sinks) > 1 else rows
    found: dict[RelationId, list[swrite.TabletFile]] = {}
    try:
        for number, (index, sink) in sinks.items():
            frame = ssession.rebind(entries.entries_of(kept, index), writer)
            found[number] = sink.files.cut(frame, tablets)
    finally:
        if kept is not rows:
            kept.unpersist()
    return found
