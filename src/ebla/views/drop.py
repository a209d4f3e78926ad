"""A view goes, with all that is being built of it."""

from __future__ import annotations

from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.catalog import build_tasks, reads
from ebla.catalog.store import Catalog
from ebla.errors import UsageError
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.relations import guard
from ebla.relations import views as definition
from ebla.relations.guard import dropping


def drop_view(
    catalog: Catalog,
    node: NodeId,
    name: str,
    *,
    if_exists: bool = False,
    cascade: bool = False,
    while_building: bool = False,
) -> bool:
    """Drop a view with all that is being built of it; `while_building`: only if it is not built yet."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        if found is None and if_exists:
            return None
        if found is None:
            found = definition.load(connection, name).relation  # which says that there is none
        guard.require_kind(found, Kind.VIEW, "CANCEL BUILD of a" if while_building else "DROP")
        if while_building and found.id not in build_tasks.builds(connection):
            raise UsageError(
                f"view {found.name}: expected a build that can be cancelled, found it built; "
                "DROP MATERIALIZED VIEW removes it"
            )
        updates, more = dropping(connection, found, cascade=cascade)
        what = "cancel the build of" if while_building else "drop materialized view"
        return c.Decision(
            reason=f"{what} {found.name}{more}",
            relation=found.id,
            updates=updates,
            work=c.WorkKind.BUILD,
        )

    return catalog.decide(decide, node=node) is not None
