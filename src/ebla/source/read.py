"""Reading a snapshot or net changes as a Spark data source: what is decided at `load()`, and how it is cut into tasks.

A partition is a group of neighbouring tablets, with the paths of their runs: small tables are one task, large ones a
task per tablet. What a task does with its partition is in `source_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from sqlalchemy import Connection

from ebla.base.ids import NodeId, TabletId, Version
from ebla.catalog import cdc, reads
from ebla.catalog import transactions as tx
from ebla.errors import SnapshotError, TypeMismatchError, UnknownNameError, UsageError
from ebla.model.relation import SPANS_TABLETS, Column, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import TokenRange, tablets_over
from ebla.source.options import Origin, Request
from ebla.source.partitions import ChangesPartition, Layout, SnapshotPartition, read_partition
from ebla.spark.changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from ebla.values import token as tokens
from ebla.values import types

PART_BYTES = 32 * 2**20
"""Neighbouring tablets go into one task until they have this many bytes to read."""

ROW_GROUP_ROWS = 65_536
"""About as many rows are read for the sake of one changed key."""

CHANGE_COLUMNS: Mapping[str, T.DataType] = {
    CHANGE_TYPE: T.StringType(),
    COMMIT_VERSION: T.LongType(),
    COMMIT_TIMESTAMP: T.TimestampType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one `load()` reads, fixed once."""

    relation: Relation
    """The relation with the columns that are read: those of a named version, or today's."""
    version: Version
    """The version of the snapshot, or the last one whose changes are read. A stream has no use for it."""
    since: Version | None = None
    changes: bool = False


# ---- load -----------------------------------------------------------------------------------------------


def resolve(request: Request) -> Target:
    """Choose the versions to read and pin them; a stream pins by itself, as it goes."""
    with Origin(request) as origin:
        if request.feed:
            with origin.catalog.reading() as connection:
                relation = reads.relation(connection, request.table)
                return Target(relation=relation, version=reads.current_version(connection), changes=True)
        if request.since is not None:
            return _resolve_changes(origin, request, request.since)
        return _resolve_snapshot(origin, request)


def _resolve_snapshot(origin: Origin, request: Request) -> Target:
    # Pin first, look at the horizon after: a vacuum that came between is then seen.
    at = _pin(origin, request.version, f"read of {request.table}")
    with origin.catalog.reading() as connection:
        reads.require_readable(connection, reads.relation(connection, request.table), at)
        return Target(relation=reads.relation(connection, request.table, version=at), version=at)


def _resolve_changes(origin: Origin, request: Request, since: int) -> Target:
    _pin(origin, since, f"changes of {request.table}")
    with origin.catalog.reading() as connection:
        relation = reads.relation(connection, request.table)
        until = reads.current_version(connection) if request.until is None else Version(request.until)
        if until < since:
            raise UsageError(f"{relation.name}: expected since <= until, found since {since} and until {until}")
        start = relation.created_version if since == 0 else Version(since)
        reads.require_readable(connection, relation, start, what="change")
        reads.require_readable(connection, relation, until, what="change")
        return Target(relation=relation, version=until, since=start, changes=True)


def _pin(origin: Origin, version: int | None, reason: str) -> Version:
    wanted = None if version is None else Version(version)
    _, at = tx.pin(origin.catalog, wanted, holder=origin.holder, reason=reason, lease_us=origin.pin_lease_us)
    return at


# ---- columns --------------------------------------------------------------------------------------------


def full_schema(target: Target) -> T.StructType:
    schema = T.StructType([T.StructField(c.name, types.to_spark(c.type)) for c in target.relation.visible])
    for name, kind in CHANGE_COLUMNS.items() if target.changes else ():
        schema.add(name, kind)
    return schema


def layout(schema: T.StructType, target: Target) -> Layout:
    """Where each column that Spark expects comes from. A schema that the user gave may leave columns out."""
    relation = target.relation
    declared = {c.name.lower(): c for c in relation.visible}
    wanted: list[Column] = []
    sources: list[str] = []
    for field in schema.fields:
        change = CHANGE_COLUMNS.get(field.name) if target.changes else None
        column = declared.get(field.name.lower())
        if change is not None:
            expected, source = types.from_spark(change), field.name
        elif column is not None:
            expected, source = column.type, column.physical
            wanted.append(column)
        else:
            have = ", ".join(full_schema(target).fieldNames())
            raise UnknownNameError(f"{relation.name}: expected columns {have}; found unknown column {field.name}")
        found = types.from_spark(field.dataType)
        if found != expected:
            raise TypeMismatchError(
                f"{relation.name}.{field.name}: expected {expected} in the schema to read, found {found}; "
                "read it as it is and cast afterwards"
            )
        sources.append(source)
    return Layout(columns=tuple(wanted), sources=tuple(sources), schema=to_arrow_schema(schema, timezone="UTC"))


# ---- tasks ----------------------------------------------------------------------------------------------


def snapshot_partitions(snapshot: Snapshot, committed_at: int | None = None) -> list[SnapshotPartition]:
    if not snapshot.level1 and not snapshot.level0:
        return []
    weights = _bytes_per_tablet(snapshot, (*snapshot.level1, *snapshot.level0))
    return [
        SnapshotPartition(snapshot=_of_tablets(snapshot, group), committed_at=committed_at)
        for group in _groups(snapshot.tablets, weights)
    ]


def change_partitions(
    connection: Connection,
    relation: Relation,
    since: Version,
    until: Version,
    roots: Mapping[NodeId, str],
    *,
    old: bool,
    stream: str | None = None,
) -> list[ChangesPartition]:
    """The tasks that find the net changes in `(since, until]`, or of these a stream's; none if there are none."""
    within: TokenRange | None = None
    if stream is not None:
        only = cdc.stream(connection, relation.id, relation.name, stream)
        (since, until), within = only.within(since, until), only.tokens
    runs = reads.writes_between(connection, relation, since, until)
    truncated = reads.truncated_between(connection, relation, since, until)
    emptied = truncated[-1] if truncated else None
    # A commit that empties the table and adds rows does so in this order.
    runs = [r for r in runs if emptied is None or r.begin_version >= emptied]
    if not runs and emptied is None:
        return []
    before = replace(reads.snapshot(connection, relation, since), roots=roots)
    runs = [run.in_map(before.relation.tablets) for run in runs]
    times = reads.committed_at(connection, {r.begin_version for r in runs} | set(truncated))
    weights = _bytes_per_tablet(before, runs)
    for tablet, size in enumerate(_bytes_of_old_rows(before, runs, everything=emptied is not None)):
        weights[tablet] += size
    return [
        ChangesPartition(
            before=_of_tablets(before, group),
            runs=_touching(runs, group, before.relation.tablets),
            emptied=emptied,
            committed_at=times,
            old=old,
            tokens=within,
        )
        for group in _groups(_with_tokens(before, within), weights)
    ]


def _with_tokens(snapshot: Snapshot, within: TokenRange | None) -> Sequence[TabletId]:
    """The tablets of a snapshot that have some of these tokens."""
    return snapshot.tablets if within is None else tablets_over(within, snapshot.relation.tablets)


def _bytes_per_tablet(snapshot: Snapshot, runs: Sequence[Run]) -> list[float]:
    tablets = snapshot.relation.tablets
    weights = [0.0] * tablets
    for run in runs:
        if run.tablet != SPANS_TABLETS:
            weights[run.tablet] += run.bytes
    spread = sum(r.bytes for r in runs if r.tablet == SPANS_TABLETS) / tablets
    return [w + spread for w in weights]


def _bytes_of_old_rows(before: Snapshot, runs: Sequence[Run], *, everything: bool) -> list[float]:
    """What is read of the old rows: all of them, or about a row group for each changed key."""
    tablets = before.relation.tablets
    changed = [sum(r.rows for r in runs if r.tablet == SPANS_TABLETS) / tablets] * tablets
    for run in runs:
        if run.tablet != SPANS_TABLETS:
            changed[run.tablet] += run.rows
    weights = [0.0] * tablets
    for run in before.level1:
        share = 1.0 if everything else min(1.0, changed[run.tablet] * ROW_GROUP_ROWS / max(1, run.rows))
        weights[run.tablet] += run.bytes * share
    return weights


def _groups(tablets: Sequence[TabletId], weights: Sequence[float]) -> Iterator[tuple[TabletId, ...]]:
    """Neighbouring tablets until they are worth a task."""
    group: list[TabletId] = []
    size = 0.0
    for tablet in tablets:
        group.append(tablet)
        size += weights[tablet]
        if size >= PART_BYTES:
            yield tuple(group)
            group, size = [], 0.0
    if group:
        yield tuple(group)


def _of_tablets(snapshot: Snapshot, group: Sequence[TabletId]) -> Snapshot:
    chosen = set(group)
    return replace(
        snapshot,
        relation=replace(snapshot.relation, placement=()),  # a task has no use for it, and it can be large
        tablets=tuple(group),
        level1=tuple(r for r in snapshot.level1 if r.tablet in chosen),
        level0=_touching(snapshot.level0, group, snapshot.relation.tablets),
        cutoffs={t: v for t, v in snapshot.cutoffs.items() if t in chosen},
        folded=(),
    )


def _touching(runs: Sequence[Run], group: Sequence[TabletId], tablets: int) -> tuple[Run, ...]:
    """Level 0 runs that may have rows in a group of neighbouring tablets."""
    low, high = tokens.token_range(group[0], tablets)[0], tokens.token_range(group[-1], tablets)[1]
    return tuple(r for r in runs if r.token_min <= high and r.token_max >= low)


def living(connection: Connection, loaded: Relation) -> Relation:
    """The relation as the catalog has it now."""
    found = reads.relation_by_id(connection, loaded.id)
    if found is None:
        raise SnapshotError(f"{loaded.name}: expected the table that was loaded, found it dropped; load it again")
    return found


class EblaReader(DataSourceReader):
    """A batch read. Spark asks it for partitions on the driver's machine, and sends it to the tasks as it is."""

    def __init__(self, request: Request, target: Target, layout: Layout) -> None:
        self.request = request
        self.target = target
        self.layout = layout

    def partitions(self) -> list[InputPartition]:
        target = self.target
        with Origin(self.request) as origin, origin.catalog.reading() as connection:
            relation = replace(living(connection, target.relation), columns=target.relation.columns)
            roots = origin.roots(connection)
            if target.since is None:
                snapshot = reads.snapshot(connection, relation, target.version)
                return list(snapshot_partitions(replace(snapshot, roots=roots)))
            return list(
                change_partitions(
                    connection,
                    relation,
                    target.since,
                    target.version,
                    roots,
                    old=self.request.old,
                    stream=self.request.stream,
                )
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.layout)
