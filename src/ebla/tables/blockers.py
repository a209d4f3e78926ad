"""What is in the way of a barrier (`ebla.model.barrier`): looked for in the catalog, and aborted when it is late."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from sqlalchemy import Connection

from ebla.base.ids import RelationId, Version
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.model import barrier
from ebla.model.barrier import Open
from ebla.model.relation import Relation


class Process(Protocol):
    """What is needed of an open database, or of a model of one."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def settings(self) -> Settings: ...


log = logging.getLogger("ebla.catalog")


def pass_by(
    process: Process, relations: Collection[RelationId], version: Version, *, unnamed: bool = True
) -> list[Open]:
    """The transactions on some relations that a step of a version still has to wait for; none: its barrier holds.

    The step's own commit says when the grace period began.
    """
    with process.catalog.reading() as connection:
        stepped_us = reads.committed_at(connection, [version]).get(version, process.catalog.clock())
    return wait_or_abort(
        process, lambda connection, now: tx.in_the_way(connection, relations, now, unnamed=unnamed), version, stepped_us
    )


def planned_before(process: Process, relation: Relation, began_us: int) -> list[Open]:
    """The transactions on a relation that were planned before its present schema; aborted a grace period after
    `began_us`."""
    look = lambda connection, now: tx.planned_with(connection, relation.id, now)  # noqa: E731
    return wait_or_abort(process, look, relation.schema_version, began_us)


def wait_or_abort(
    process: Process, look: Callable[[Connection, int], list[Open]], state: int, stepped_us: int
) -> list[Open]:
    """The transactions that began under an older state; once the grace period is over they are aborted, and none is
    left."""
    tx.reap(process.catalog)
    now = process.catalog.clock()
    with process.catalog.reading() as connection:
        found = barrier.blockers(look(connection, now), state)
    late = barrier.late(found, state, stepped_us, now, int(process.settings.barrier_grace_s * 1e6))
    for one in late:
        if tx.abort(process.catalog, one):
            log.info("transaction=%d aborted reason=a barrier waited for it for too long", one)
    return [] if late else found
