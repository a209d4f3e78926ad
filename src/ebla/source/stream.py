"""Changes as a stream of micro-batches.

Theory of operation. An offset is a catalog version (and the relation it belongs to, so that a table of the same name
is not taken for it). A micro-batch is the net changes in `(start, end]`. Version 0 stands before everything: a batch
from there is the snapshot at its end, as inserts. Spark writes a batch's end to its log before it runs the batch and
keeps no other state, so `partitions(start, end)` depends on nothing but its arguments and what the versions hold:
a batch that is run again has the same rows.

A pin at the last version that Spark has finished with keeps the history that is still needed. It has a lease, renewed
while the query lives. A query that stops leaves it, so that it can go on from its checkpoint within the lease
(`pin_lease_s`); after that, vacuum may take the history, and going on is a loud error.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import Version
from ebla.base.services import Scheduler
from ebla.catalog import cdc, reads
from ebla.catalog import transactions as tx
from ebla.catalog.reads import newest_write
from ebla.errors import ConflictError, EblaError, SnapshotError
from ebla.model.relation import FOREVER, Relation
from ebla.source.options import Origin, Request
from ebla.source.partitions import Layout, read_partition
from ebla.source.read import Target, change_partitions, living, snapshot_partitions

Offset = dict[str, int]

BEFORE_EVERYTHING = Version(0)


class EblaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One reader lives as long as its query, in a process on the driver's machine. The copies that go to the tasks
    only `read`."""

    def __init__(self, request: Request, target: Target, layout: Layout) -> None:
        self.request = request
        self.loaded = target.relation
        self.layout = layout
        self._keeper: Keeper | None = None
        self._last: Version | None = None

    # ---- offsets ----------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Always the same answer: Spark asks again when the very first batch has to be run again."""
        wanted = self.request.starting
        if wanted is None and self.request.stream is None:
            return self._offset(BEFORE_EVERYTHING)
        since = max(Version((wanted or 1) - 1), self.loaded.created_version)
        if self.request.stream is not None:
            since = max(since, Version(self._stream_ends()[0] - 1))
        self._keep().hold(since)
        with self._keep().origin.catalog.reading() as connection:
            reads.require_readable(connection, self._relation(connection), since, what="change")
        return self._offset(since)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        at = self._version(start)
        keeper = self._keep()
        if at == BEFORE_EVERYTHING:
            return self._offset(keeper.hold(self._last))
        keeper.hold_at_least(at)
        with keeper.origin.catalog.reading() as connection:
            relation = self._relation(connection)
            newest = newest_write(connection, relation.id)
            if self.request.stream is not None:
                newest = min(newest, self._stream_ends()[1])
            if newest <= at:
                # Nothing happens to this table, but its pin keeps the history of all others: move it on in time.
                idle = keeper.stale and self._last is None
                return self._offset(reads.current_version(connection)) if idle else start
            if self._last is None and not isinstance(limit, ReadMaxFiles):
                return self._offset(newest)
            written = self._writes(connection, relation, at, min(newest, self._last or newest))
        if not written:
            return start
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else len(written)
        return self._offset(written[:most][-1])

    def _stream_ends(self) -> tuple[Version, Version]:
        """The first and the last version that the change stream has changes of, which is followed."""
        assert self.request.stream is not None
        with self._keep().origin.catalog.reading() as connection:
            found = cdc.stream(connection, self.loaded.id, self.loaded.name, self.request.stream)
        return found.begun, Version(FOREVER if found.ended is None else found.ended - 1)

    def _writes(self, connection: Connection, relation: Relation, since: Version, until: Version) -> list[Version]:
        """The versions in `(since, until]` that changed the table."""
        found = {r.begin_version for r in reads.writes_between(connection, relation, since, until)}
        return sorted(found | set(reads.truncated_between(connection, relation, since, until)))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no limit that counts versions; of those it has, this one's meaning is nearest.
        most = self.request.versions_max
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._keep().origin.catalog.version()

    def reportLatestOffset(self) -> Offset:
        with self._keep().origin.catalog.reading() as connection:
            return self._offset(newest_write(connection, self.loaded.id))

    def _offset(self, version: Version) -> Offset:
        return {"version": int(version), "relation": int(self.loaded.id)}

    def _version(self, offset: Offset) -> Version:
        if offset["relation"] != self.loaded.id:
            raise SnapshotError(
                f"{self.loaded.name}: expected relation {offset['relation']}, which the stream began with, found "
                f"{self.loaded.id}: the table was dropped and created again; start with a new checkpoint"
            )
        return Version(offset["version"])

    # ---- batches ----------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        since, until = self._version(start), self._version(end)
        if since == until:
            return []
        keeper = self._keep()
        keeper.hold_at_least(until if since == BEFORE_EVERYTHING else since)
        with keeper.origin.catalog.reading() as connection:
            relation = self._relation(connection)
            roots = keeper.origin.roots(connection)
            if since != BEFORE_EVERYTHING:
                reads.require_readable(connection, relation, since, what="change")
                return list(
                    change_partitions(
                        connection, relation, since, until, roots, old=self.request.old, stream=self.request.stream
                    )
                )
            snapshot = replace(reads.snapshot(connection, relation, until), roots=roots)
            return list(snapshot_partitions(snapshot, reads.time_of(connection, until)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.layout)

    def _relation(self, connection: Connection) -> Relation:
        """The relation with its columns, which must be those that the stream was loaded with."""
        found = living(connection, self.loaded)
        if _columns(found) != _columns(self.loaded):
            raise ConflictError(
                f"{self.loaded.name}: expected columns {_list(self.loaded)}, found {_list(found)}; the table was "
                "altered under the stream: load it again and go on from the same checkpoint"
            )
        return found

    # ---- history ----------------------------------------------------------------------------------------

    def commit(self, end: Offset) -> None:
        self._keep().hold(self._version(end))

    def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _keep(self) -> Keeper:
        if self._keeper is None:
            self._keeper = Keeper(self.request)
        return self._keeper


def _columns(relation: Relation) -> list[tuple[str, str, str]]:
    return [(c.name, c.physical, c.type) for c in relation.visible]


def _list(relation: Relation) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in relation.visible)


class Keeper:
    """The open catalog of a living query, and its one pin, renewed in the background."""

    name = "stream-pin"
    wanted = True

    def __init__(self, request: Request) -> None:
        self.origin = Origin(request)
        self._reason = f"stream of {request.table}"
        self._pin: str | None = None
        self._version: Version | None = None
        self._moved_at = 0
        self._lock = threading.Lock()
        self._services = Scheduler()
        self._services.add(self)
        self._services.wake_in(self.name, self._beat_s)

    @property
    def _beat_s(self) -> float:
        return self.origin.settings.pin_lease_s / 3

    def hold(self, version: Version | None) -> Version:
        """Move the pin to a version, or to the newest; the old one goes after the new one is there."""
        with self._lock:
            self._version = self._place(version)
            self._moved_at = self.origin.catalog.clock()
            return self._version

    def hold_at_least(self, version: Version) -> None:
        """Pin a version unless it, or an older one, is pinned: what a query that goes on needs."""
        if self._version is None or self._version > version:
            self.hold(version)

    @property
    def stale(self) -> bool:
        """Whether the pin has stood at one version for half its lease."""
        return self.origin.catalog.clock() - self._moved_at > self.origin.pin_lease_us // 2

    def _place(self, version: Version | None) -> Version:
        origin = self.origin
        before = self._pin
        self._pin, at = tx.pin(
            origin.catalog, version, holder=origin.holder, reason=self._reason, lease_us=origin.pin_lease_us
        )
        if before is not None:
            tx.unpin(origin.catalog, [before])
        return at

    def step(self, now_s: float) -> float:
        """Renew the pin; a database that does not answer gets another beat."""
        with self._lock, contextlib.suppress(EblaError, SQLAlchemyError, OSError):
            if self._version is not None:
                self._place(self._version)
        return now_s + self._beat_s

    def stop(self) -> None:
        """Leave the pin to its lease: the query may go on from its checkpoint."""

    def close(self) -> None:
        self._services.close(timeout_s=5)
        self.origin.close()
