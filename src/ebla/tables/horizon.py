"""The horizon: the version below which nothing can be read any more. It moves up with time, behind every reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import history, leftovers, reads
from ebla.catalog import relations as relation_rows
from ebla.catalog.sessions import oldest_needed
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import FOREVER
from ebla.relations.readers import least_read


def plan_horizon(newest: Version, by_time: Version, needed: Version | None) -> Version:
    """Forget what is older than the retention period, but no version that a reader holds."""
    return min(newest, by_time) if needed is None else min(newest, by_time, needed)


def horizons(
    relations: Sequence[RelationId], horizon: Version, read: Mapping[RelationId, Version | None]
) -> dict[RelationId, Version]:
    """The horizon of each relation: a dictionary keeps the oldest version at which a view still reads it."""
    return {r: horizon if (least := read.get(r)) is None else min(horizon, least) for r in relations}


def advance(catalog: Catalog, node: NodeId, name: str | None, keep_s: float) -> tuple[Version, list[RelationId]]:
    """Commit the new horizon. From then on a read below it is refused, and only then may files go."""
    for _ in range(20):
        with catalog.reading() as connection:
            now = catalog.clock()
            newest = reads.current_version(connection)
            by_time = history.newest_until(connection, now - int(keep_s * 1e6))
            horizon = plan_horizon(newest, by_time, oldest_needed(connection, now))
            wanted = None if name is None else reads.relation(connection, name).id
            before = relation_rows.horizons(connection, wanted)
            own = horizons(list(before), horizon, least_read(connection))
            oldest = leftovers.oldest(connection, horizon)
        # A dropped relation's horizon is its end, and its runs go once the horizon of all has come that far.
        due = [r for r, to in own.items() if before[r] <= to and oldest.get(r, FOREVER) <= to]
        targets = list(before)
        if not due:
            return horizon, targets
        try:
            catalog.commit(
                c.Decision(
                    reason=f"vacuum up to version {horizon}",
                    requires=(c.NoReaderBelow(version=horizon),),
                    updates=tuple(c.SetHorizon(relation=r, horizon=own[r]) for r in due),
                ),
                node=node,
            )
        except ConflictError:
            continue  # a reader came between; look again
        return horizon, targets
    return Version(0), []
