"""The rows of a chunk: read from the base once, however many views and indexes are filled with them.

Theory of operation. Every filler says what it reads (`ChunkReading`); the chunk is read at one version for all. Indexes
are filled from the version at which they became `backfilling`, or a newer one. A view may read any version since its
creation, because epochs bring it forward; before that, one of its inputs may not have been there.

Plan: the files of the chunk's tablets at that version, level 0 merged in (`ebla.spark.scan.merged`), filtered by token
where a tablet is read in stretches. One Spark job for each view and one for all indexes reads them; where that is more
than one, the columns that any of them needs are kept between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.base.closing import Closing
from ebla.base.ids import TabletId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import UnknownNameError
from ebla.model.chunks import Stretch, spans
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import ALL, TokenRange, joined, tablets_over
from ebla.spark import scan as sscan
from ebla.tables.read_access import ReadAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReading:
    """What some relations of one kind read of a chunk."""

    columns: frozenset[str]
    """Physical names."""
    jobs: int
    """The number of Spark jobs that read the rows."""
    not_before: Version
    """At an older version they could not be computed."""
    at: Version | None = None
    """The rows are read at this version or a newer one, which a pin keeps from vacuum; `None`: at the newest."""


def version_of(readings: Collection[ChunkReading]) -> Version | None:
    """The version at which a chunk is read for all; `None`: whatever is the newest when it is read."""
    if all(one.at is None for one in readings):
        return None
    return max(at for one in readings for at in (one.at, one.not_before) if at is not None)


class Scan(Closing):
    """One chunk of a base, for all who read it. Used by one thread."""

    def __init__(
        self, context: ReadAccess, base: Relation, stretches: Sequence[Stretch], readings: Collection[ChunkReading]
    ) -> None:
        self.base = base
        self.stretches = stretches
        self.at = version_of(readings)
        self._context = context
        self._columns = frozenset[str]().union(*(one.columns for one in readings))
        self._shared = sum(one.jobs for one in readings) > 1
        self._snapshot: Snapshot | None = None
        self._rows: DataFrame | None = None

    def tablets(self, tablets: int) -> list[TabletId]:
        """The tablets, of a relation that has this many and lies where the base does, that hold the stretches."""
        return sorted({t for stretch in self.stretches for t in tablets_over(stretch.tokens, tablets)})

    def snapshot(self, version: Version) -> Snapshot:
        """The snapshot that is read. The first caller chooses the version, unless a filler has."""
        if self._snapshot is None:
            self._snapshot = base_snapshot(self._context.catalog, self.base, version, self.stretches)
        assert self._snapshot.version == version, "all read a chunk at one version"
        return self._snapshot

    def rows(self, version: Version) -> DataFrame:
        """The rows of the stretches, under physical names."""
        if self._rows is None:
            frame = base_rows(self._context, self.snapshot(version), self.stretches)
            if self._shared:
                names = [c.physical for c in self.snapshot(version).relation.columns if c.physical in self._columns]
                frame = frame.selectExpr(*map(sscan.quoted, names)).persist()
            self._rows = frame
        return self._rows

    def close(self) -> None:
        if self._rows is not None and self._shared:
            self._rows.unpersist()


def base_snapshot(catalog: Catalog, base: Relation, version: Version, stretches: Sequence[Stretch]) -> Snapshot:
    """The tablets of a base that stretches lie in, with the columns that it had at a version."""
    with catalog.reading() as connection:
        now = reads.relation_by_id(connection, base.id)
        if now is None:
            raise UnknownNameError(f"{base.name}: expected to be there, found dropped")
        then = reads.relation(connection, now.name, version=version)
        return reads.snapshot(connection, then, version, tokens_of(stretches))


def base_rows(context: ReadAccess, snapshot: Snapshot, stretches: Sequence[Stretch]) -> DataFrame:
    """The rows of these stretches of a snapshot, all columns, under physical names."""
    base = snapshot.relation
    frame = sscan.merged(
        context.spark, snapshot, context.roots(), context.storage.level0, rows_max=context.settings.level0_rows_max
    )
    ranges = spans(stretches)
    if snapshot.is_just(ranges):
        return frame
    return frame.filter(within([k.physical for k in base.placed_by], ranges))


def tokens_of(stretches: Sequence[Stretch]) -> list[TokenRange] | None:
    """Which tokens of a relation are read for some stretches; `None`: all."""
    found = joined(stretch.tokens for stretch in stretches)
    return None if found == [ALL] else found


def within(columns: Sequence[str], ranges: Sequence[tuple[int, int]]) -> str:
    """A condition: the token of these columns lies in one of the ranges."""
    hashed = f"xxhash64({', '.join(map(sscan.quoted, columns))})"
    conditions = [f"{hashed} BETWEEN {_long(first)} AND {_long(last)}" for first, last in ranges]
    return f"({' OR '.join(conditions)})" if conditions else "false"


def _long(value: int) -> str:
    return f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"
