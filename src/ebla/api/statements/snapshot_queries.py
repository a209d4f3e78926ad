"""Queries over one consistent snapshot of all relations that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api import system
from ebla.api.statements.frames import Relations, Rows, Source, frame_of
from ebla.api.statements.versions import is_system, version_of
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.snapshot import Snapshot
from ebla.relations.guard import require_built
from ebla.sql.lex import quote
from ebla.sql.query import Parameters, Query, TableRef
from ebla.tables import scans
from ebla.tables.context import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query at one version, not run yet."""

    version: Version
    frame: DataFrame
    snapshots: Sequence[Snapshot] = ()
    holds: Sequence[scans.Hold] = ()

    def release(self) -> None:
        for hold in self.holds:
            hold.release()


def _snapshots(relations: Relations) -> list[Snapshot]:
    return [found for found in relations.values() if isinstance(found, Snapshot)]


class Snapshots:
    """Reads what queries name, at one version, and keeps it from vacuum."""

    def __init__(self, context: Context, pins: scans.Pins) -> None:
        self._context = context
        self._pins = pins

    def read(self, query: Query, parameters: Parameters, *, at: Version | None = None) -> PlannedQuery:
        """A query over one consistent snapshot of all relations that it names, pinned."""
        wanted = self._versions(query, parameters)
        if not query.refs:
            return PlannedQuery(version=Version(0), frame=frame_of(self._context, query, parameters, {}))

        def look(connection: Connection, now: Version) -> tuple[Version, Relations]:
            return now, self._relations(connection, query, [now if v is None else v for v in wanted])

        asked = [v for v in wanted if v is not None]
        (version, relations), holds = scans.at_version(
            self._context.catalog, self._pins, at, "query", look, besides=asked
        )
        with scans.released_on_error(holds):
            frame = frame_of(self._context, query, parameters, relations)
        return PlannedQuery(version=version, frame=frame, snapshots=_snapshots(relations), holds=holds)

    def read_in(self, query: Query, parameters: Parameters, at: Version, target: Rows | None = None) -> PlannedQuery:
        """The same inside an open transaction, whose row keeps its snapshot from vacuum.

        `target`: those rows of the table that is written which can matter, if they were looked up.
        """
        wanted = self._versions(query, parameters)
        older = sorted({v for v in wanted if v is not None})
        holds = [self._pins.hold(v, "an older version in a write") for v in older]
        with scans.released_on_error(holds):
            with self._context.catalog.reading() as connection:
                versions = [at if v is None else v for v in wanted]
                relations = self._relations(connection, query, versions, target)
            frame = frame_of(self._context, query, parameters, relations)
        return PlannedQuery(version=at, frame=frame, snapshots=_snapshots(relations))

    def _versions(self, query: Query, parameters: Parameters) -> list[Version | None]:
        catalog, sessions = self._context.catalog, self._context.sessions
        return [version_of(catalog, sessions, ref, parameters) for ref in query.refs]

    def _relations(
        self, connection: Connection, query: Query, versions: Sequence[Version], target: Rows | None = None
    ) -> Relations:
        """Mentions of one table at one version are looked up once."""
        sources: dict[tuple[object, ...], Source] = {}
        found: dict[TableRef, Source] = {}
        for ref, at in zip(query.refs, versions, strict=True):
            if ref.target and target is not None:
                found[ref] = target
                continue
            key = (ref.parts, ref.version, ref.timestamp, at)
            if key not in sources:
                sources[key] = self._relation(connection, ref, at)
            found[ref] = sources[key]
        return found

    def _relation(self, connection: Connection, ref: TableRef, version: Version) -> Snapshot | pa.Table | None:
        """What a name stands for: a snapshot, the rows of a system table, or `None` for the user's temporary view."""
        if is_system(ref):
            return system.read(connection, ref.name, self._context.catalog.clock(), self._context)
        relation = reads.find_relation(connection, ref.name) if len(ref.parts) == 1 else None
        if relation is None:
            if len(ref.parts) == 1 and self._context.spark.catalog.tableExists(quote(ref.name)):
                return None
            relation = reads.relation(connection, ".".join(ref.parts))
        reads.require_readable(connection, relation, version)
        require_built(connection, relation)
        return reads.snapshot(connection, reads.relation(connection, ref.name, version=version), version)
