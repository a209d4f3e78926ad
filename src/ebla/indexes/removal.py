"""An index goes: on request, or because it cannot be built."""

from __future__ import annotations

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission, back
from ebla.model.scopes import of_relation
from ebla.relations import indexes as definition
from ebla.tables import troubles as troubled


def begin_removal(
    catalog: Catalog,
    node: NodeId,
    index: RelationId,
    reason: str,
    message: str | None = None,
    *,
    unless_readable: bool = False,
) -> bool:
    """The first step back. `False` if it is on its way already, gone, or (where that counts) readable."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = definition.find_by_id(connection, index)
        if found is None or found.state in (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES):
            return None
        if unless_readable and found.readable:
            return None
        if found.state is Permission.ABSENT:
            step: c.Update = c.DropRelation(relation=index)
        else:
            to = back(found.state)
            assert to is not None
            step = c.SetIndexState(index=index, state=to, message=message)
        guards = frozenset({of_relation(index), of_relation(found.base.id)})  # with which it may go
        return c.Decision(reason=reason, relation=index, updates=(step,), guards=guards, work=c.WorkKind.BUILD)

    return catalog.decide(decide, node=node) is not None


def give_up(catalog: Catalog, node: NodeId, holder: str, index: RelationId, error: Exception) -> None:
    """An index that cannot be built goes; why is kept as a trouble, for those who wait elsewhere or ask later."""
    with catalog.reading() as connection:
        relation = reads.relation_by_id(connection, index)
    if relation is None:
        return
    troubled.note(catalog, holder, relation, Activity.BUILD, error, final=True)
    begin_removal(
        catalog,
        node,
        index,
        f"index {relation.name} cannot be built: {type(error).__name__}: {error}",
        str(error),
    )
    hit("index.failed")
