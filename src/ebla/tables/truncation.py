"""TRUNCATE: a table loses all its rows in one commit that touches no file."""

from __future__ import annotations

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model import changes as c
from ebla.model.topology import RequestKind
from ebla.model.topology_changes import AddRequest
from ebla.relations.guard import require_table
from ebla.tables.context import Context


def truncate(context: Context, name: str) -> Version:
    """Empty a table. It is a request of the topology that its own commit answers: nothing has to be moved for it."""
    with context.catalog.reading() as connection:
        relation = reads.relation(connection, name)
    require_table(relation)
    committed = context.catalog.commit(
        c.Decision(
            reason=f"truncate {relation.name}",
            relation=relation.id,
            requires=(c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),),
            updates=(
                c.TruncateRelation(relation=relation.id),
                AddRequest(
                    kind=RequestKind.TRUNCATE,
                    holder=context.holder,
                    relation=relation.id,
                    result=f"{relation.name} has no rows",
                ),
            ),
        ),
        node=context.node,
    )
    return committed.version
