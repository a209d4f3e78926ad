"""Reading: snapshots, pinned for as long as a lazy DataFrame may need them, and the changes between two versions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Version
from ebla.catalog import cdc, reads
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import SnapshotError, UsageError
from ebla.model.relation import FOREVER, Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.model.tablets import TokenRange, token_range
from ebla.spark import changes as schanges
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.tables.read_access import ReadAccess
from ebla.tables.replaced_places import replaced_places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection


TIDY_PERIOD_US = 5_000_000


class Pins:
    """Versions that this connection reads lazily, kept from vacuum until released, the lease ends or it closes.

    Readers of one version share one catalog row. Releasing may happen while Python collects garbage, so it only notes
    the fact; the row goes with the next call from an ordinary place.
    """

    def __init__(self, catalog: Catalog, holder: str, lease_s: float) -> None:
        self._catalog = catalog
        self._holder = holder
        self._lease_us = int(lease_s * 1e6)
        self._held: dict[Version, _KeptFrame] = {}
        self._lock = threading.Lock()
        self._tidied_at = 0

    def hold(self, version: Version, reason: str) -> Hold:
        lease_us = self._lease_us
        with self._lock:
            now = self._catalog.clock()
            held = self._held.get(version)
            stale = held is None or held.expires_at - now < lease_us // 2
            if held is None or stale:
                row, _ = tx.pin(self._catalog, version, holder=self._holder, reason=reason, lease_us=lease_us)
                rows = [row] if held is None else [*held.rows, row]
                held = _KeptFrame(rows=rows, expires_at=now + lease_us, readers=held.readers if held else [])
                self._held[version] = held
            hold = Hold()
            held.readers.append(hold)
        if now - self._tidied_at > TIDY_PERIOD_US:
            self.tidy()
        return hold

    def tidy(self) -> None:
        """Remove the rows of versions that no reader holds any more."""
        now = self._tidied_at = self._catalog.clock()
        with self._lock:
            for version in [v for v, held in self._held.items() if held.expires_at <= now]:
                del self._held[version]  # the lease is over; the row protects nothing any more
            for held in self._held.values():
                held.readers = [r for r in held.readers if not r.released]
            gone = [v for v, held in self._held.items() if all(r.released for r in held.readers)]
            rows = [row for v in gone for row in self._held.pop(v).rows]
        if rows:
            tx.unpin(self._catalog, rows)

    def release_all(self) -> None:
        with self._lock:
            rows = [row for held in self._held.values() for row in held.rows]
            self._held.clear()
        if rows:
            tx.unpin(self._catalog, rows)


class Hold:
    """One reader's claim on a pinned version."""

    released = False

    def release(self) -> None:
        self.released = True


@dataclass(slots=True, kw_only=True)
class _KeptFrame:
    rows: list[str]
    expires_at: int
    readers: list[Hold]


def tokens_of(relation: Relation, tablets: Sequence[int] | None) -> list[TokenRange] | None:
    """The tokens of tablets that a user names; `None`: all."""
    if tablets is None:
        return None
    wrong = [t for t in tablets if not 0 <= t < relation.tablets]
    if wrong:
        raise UsageError(f"{relation.name}: expected tablets 0 to {relation.tablets - 1}, found {wrong[0]}")
    return [token_range(t, relation.tablets) for t in tablets]


FRAME_BYTES = 256 * 2**10
FILE_BYTES = 4 * 2**10
STORED_TIMES = 6
"""About what a DataFrame takes in the JVM, for each file that it names, and how much larger its rows are there."""


class _FrameKey(NamedTuple):
    """What a kept DataFrame reads."""

    relation: RelationId
    columns: tuple[Column, ...]
    copies: tuple[tuple[RunId, NodeId], ...]
    cutoffs: tuple[tuple[TabletId, Version], ...]
    tablets: tuple[int, ...]
    """How many the relation has, and those that are read."""
    by_places: bool = False
    """Whether replaced rows of level 1 are left out by their places, as far as these can be found."""


def _frame_bytes(snapshot: Snapshot, rows_max: int) -> int:
    """What a kept DataFrame takes: files, and rows of level 0 where these are in its plan."""
    rows = sum(run.bytes for run in snapshot.level0) if sscan.carries_rows(snapshot, rows_max) else 0
    return FRAME_BYTES + FILE_BYTES * (len(snapshot.level1) + len(snapshot.level0)) + STORED_TIMES * rows


def frame_of(context: ReadAccess, snapshot: Snapshot, *, hidden: bool = False, by_places: bool = False) -> DataFrame:
    """A snapshot's rows under the names that users know, in the user's session.

    Snapshots of the same runs are the same query, so its DataFrame is kept: a page that is asked for again costs no
    listing of files and no second merge of level 0. With `by_places`, one that is read again leaves replaced rows of
    level 1 out by their places, which are looked up once: for readers that will ask often, and not for epochs.
    """
    relation = snapshot.relation
    columns = relation.columns if hidden else relation.visible
    roots = context.roots()
    if any(root.is_remote for root in roots.values()):
        rf.paths(roots, (*snapshot.level1, *snapshot.level0))  # a kept frame names files that may have gone since
    copies = rf.require_copies(snapshot, roots)
    signature = _FrameKey(
        relation.id,
        columns,
        tuple((r.id, copies[r.id]) for r in (*snapshot.level1, *snapshot.level0)),
        tuple(sorted(snapshot.cutoffs.items())),
        (relation.tablets, *snapshot.tablets),
    )
    placed = signature._replace(by_places=True)
    kept: DataFrame | None = context.frames.get(placed)
    if kept is not None:
        return kept
    before: DataFrame | None = context.frames.get(signature)
    rows_max = context.settings.level0_rows_max
    places = None
    if before is not None and not by_places:
        return before
    if before is not None:
        places = (
            replaced_places(context.storage, context.settings, snapshot)
            if snapshot.level0 and snapshot.level1
            else None
        )
        if places is None:
            context.frames.put(placed, before, FRAME_BYTES)
            return before
    made = sscan.merged(context.spark, snapshot, roots, context.storage.level0, rows_max=rows_max, places=places)
    frame = sscan.logical(made, columns)
    context.frames.put(signature if places is None else placed, frame, _frame_bytes(snapshot, rows_max))
    return frame


def scan(
    context: ReadAccess,
    pins: Pins,
    name: str,
    *,
    version: int | None = None,
    tablets: Sequence[int] | None = None,
) -> DataFrame:
    def read(connection: Connection, at: Version) -> Snapshot:
        reads.require_readable(connection, reads.relation(connection, name), at)
        relation = reads.relation(connection, name, version=at)
        return reads.snapshot(connection, relation, at, tokens_of(relation, tablets))

    asked = None if version is None else Version(version)
    snapshot, holds = at_version(context.catalog, pins, asked, f"scan of {name}", read)
    with released_on_error(holds):
        return frame_of(context, snapshot, by_places=True)


Read = TypeVar("Read")
READ_ATTEMPTS = 10


def at_version(
    catalog: Catalog,
    pins: Pins,
    version: Version | None,
    reason: str,
    read: Callable[[Connection, Version], Read],
    *,
    besides: Sequence[Version] = (),
) -> tuple[Read, list[Hold]]:
    """Read the catalog at a version (the newest by default) that is pinned, as are those `besides`.

    Pin first, look at the horizon after: a vacuum that came between is then seen. The newest version is merely the one
    to begin with, so if it is gone before it is pinned, a newer one is read.
    """
    for asked in (version, *besides):
        if asked is not None and abs(asked) >= FOREVER:
            raise SnapshotError(f"expected a version up to {catalog.version()}, found {asked}")
    for attempt in range(READ_ATTEMPTS):
        at = catalog.version() if version is None else version
        holds = [pins.hold(v, reason) for v in sorted({at, *besides})]
        with released_on_error(holds):
            try:
                with catalog.reading() as connection:
                    return read(connection, at), holds
            except SnapshotError:
                if version is not None or at == catalog.version() or attempt == READ_ATTEMPTS - 1:
                    raise
        for hold in holds:
            hold.release()
    raise AssertionError("unreachable: the last attempt returns or raises")


@contextlib.contextmanager
def released_on_error(holds: Sequence[Hold]) -> Iterator[None]:
    """What was not read needs no pin; one that stayed would keep vacuum from its work until its lease ends."""
    try:
        yield
    except BaseException:
        for hold in holds:
            hold.release()
        raise


def changes(
    context: ReadAccess,
    pins: Pins,
    name: str,
    *,
    since: int,
    until: int | None = None,
    old: bool = False,
    stream: str | None = None,
) -> DataFrame:
    """Net changes per key in `(since, until]`: see `ebla.spark.changes`. Version 0 means: since there is the table.

    With `stream`, those of one change stream: of its tokens, while its generation lasts.
    """
    with context.catalog.reading() as connection:
        target = reads.relation(connection, name)
        begun = 0 if stream is None else cdc.stream(connection, target.id, name, stream).begun - 1

    def read(connection: Connection, start: Version) -> schanges.Feed:
        relation = reads.relation(connection, name)
        end = reads.current_version(connection) if until is None else Version(until)
        if end < since:
            raise UsageError(f"{name}: expected since <= until, found since {since} and until {end}")
        only = None if stream is None else cdc.stream(connection, relation.id, name, stream)
        end = end if only is None else only.within(start, end)[1]
        reads.require_readable(connection, relation, start, what="change")
        reads.require_readable(connection, relation, end, what="change")
        runs = reads.writes_between(connection, relation, start, end)
        truncated = reads.truncated_between(connection, relation, start, end)
        return schanges.Feed(
            before=reads.snapshot(connection, relation, start),
            until=end,
            runs=tuple(runs),
            truncated=tuple(truncated),
            committed_at=reads.committed_at(connection, {r.begin_version for r in runs} | set(truncated)),
            tokens=None if only is None else only.tokens,
        )

    start = Version(max(target.created_version if since == 0 else since, begun))
    feed, holds = at_version(context.catalog, pins, start, f"changes of {name}", read)
    with released_on_error(holds):
        return schanges.frame(
            context.spark,
            feed,
            context.roots(),
            context.storage.level0,
            old=old,
            rows_max=context.settings.level0_rows_max,
        )
