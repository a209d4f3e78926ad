"""What a warehouse looks like at one moment, from catalog rows alone: `ebla status`, `ebla run` and the metrics.

Read in one catalog transaction, without Spark and without a data file. What follows from it, and whether a person is
needed, is decided in `ebla.relations.attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ebla.catalog import history, manifest, processes, reads, topology, troubles
from ebla.catalog import relations as relation_rows
from ebla.catalog import transactions as tx
from ebla.catalog.manifest import Size
from ebla.catalog.processes import Process
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Trouble
from ebla.model.relation import Kind
from ebla.model.topology import Member
from ebla.relations import attention as at
from ebla.relations.derived_status import DerivedRelations, HandlerStatus, IndexStatus, ViewStatus

if TYPE_CHECKING:
    from sqlalchemy import Row

    from ebla.relations.build_measure import BuildProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    name: str
    tablets: int
    replication: int
    size: Size
    written_version: int | None
    written_at: int | None
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The warehouse at one moment. Times are microseconds since 1970."""

    catalog: str
    now: int
    version: int
    committed_at: int | None
    reason: str | None
    nodes: Sequence[tuple[Member, str]]
    tables: Sequence[TableStatus]
    views: Sequence[ViewStatus]
    indexes: Sequence[IndexStatus]
    builds: Sequence[BuildProgress]
    handlers: Sequence[HandlerStatus]
    processes: Sequence[Process]
    troubles: Sequence[Trouble]
    transactions: Sequence[Row[Any]]
    pins: Sequence[Row[Any]]
    names: Mapping[int, str]
    needs: Sequence[at.Need]
    """What needs a person."""

    @property
    def maintained(self) -> bool:
        return any(process.maintains for process in self.processes)


def read(url: str) -> Status:
    """Everything at once, from an existing catalog."""
    catalog = Catalog.open(url, create=False)
    try:
        return of(catalog)
    finally:
        catalog.close()


def of(catalog: Catalog) -> Status:
    with catalog.reading() as connection:
        return _read(connection, catalog)


def _read(connection: Connection, catalog: Catalog) -> Status:
    now = catalog.clock()
    version = int(reads.current_version(connection))
    newest = history.commit(connection, version)
    relations = relation_rows.rows(connection)
    sizes = manifest.sizes(connection)
    alive = processes.alive(connection, now)
    found = troubles.everything(connection)
    derived = DerivedRelations(connection, relations, sizes, alive, found, now)
    views, builds, handlers = derived.views, derived.builds, derived.handlers()
    return Status(
        catalog=_place(catalog),
        now=now,
        version=version,
        committed_at=None if newest is None else newest.committed_at,
        reason=None if newest is None else newest.reason,
        nodes=[(node, catalog.located(node.root)) for node in topology.members(connection).values()],
        tables=_tables(connection, relations, sizes),
        views=views,
        indexes=derived.indexes(),
        builds=builds,
        handlers=handlers,
        processes=alive,
        troubles=found,
        transactions=tx.open_rows(connection),
        pins=tx.pins(connection, now),
        names={r.relation_id: r.name for r in relations},
        needs=at.needs(
            views=[
                at.View(name=v.name, handler=v.handler, status=v.status, age_s=v.age_s, error=v.error) for v in views
            ],
            builds=[one.name for one in builds if _wants_process(one)],
            handlers={h.name: h.should_run for h in handlers},
            troubles=found,
            maintained=any(process.maintains for process in alive),
        ),
    )


def _wants_process(one: BuildProgress) -> bool:
    """Whether a build goes on when there is a process: it is neither paused nor waits to be asked for."""
    return one.build is not None and not one.build.paused and not one.deferred


def _tables(connection: Connection, relations: Sequence[Row[Any]], sizes: Mapping[int, Size]) -> list[TableStatus]:
    written = history.last_writes(connection)
    times = reads.committed_at(connection, written.values())
    return [
        TableStatus(
            name=r.name,
            tablets=r.tablets,
            replication=r.replication,
            size=sizes.get(r.relation_id, Size()),
            written_version=written.get(r.relation_id),
            written_at=times.get(written.get(r.relation_id, -1)),
            horizon=r.horizon,
        )
        for r in relations
        if r.kind == Kind.TABLE.value
    ]


def _place(catalog: Catalog) -> str:
    """Where the catalog is, without its password."""
    url = catalog.engine.url
    if catalog.engine.dialect.name == "sqlite":
        return str(Path(str(url.database)).absolute())
    return url.set(drivername="postgresql").render_as_string(hide_password=True)
