"""TRUNCATE: a table loses all its rows in one commit that touches no file."""

from __future__ import annotations

from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.topology import RequestKind
from ebla.model.topology_changes import AddRequest
from ebla.relations.guard import require_table


def truncate(catalog: Catalog, node: NodeId, holder: str, name: str) -> Version:
    """Empty a table. It is a request of the topology that its own commit answers: nothing has to be moved for it."""
    with catalog.reading() as connection:
        relation = reads.relation(connection, name)
    require_table(relation)
    committed = catalog.commit(
        c.Decision(
            reason=f"truncate {relation.name}",
            relation=relation.id,
            requires=(c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),),
            updates=(
                c.TruncateRelation(relation=relation.id),
                AddRequest(
                    kind=RequestKind.TRUNCATE,
                    holder=holder,
                    relation=relation.id,
                    result=f"{relation.name} has no rows",
                ),
            ),
        ),
        node=node,
    )
    return committed.version
