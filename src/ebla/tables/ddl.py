"""Statements that create, rename, comment and drop tables. Each is one exclusive commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import DuplicateNameError
from ebla.model import changes as c
from ebla.model.relation import Column, Constraint, Kind
from ebla.model.scopes import SCHEMA, TOPOLOGY
from ebla.relations.guard import dropping, refuse_if_read, require_kind
from ebla.tables.new_table import check_name, kept_constraints, new_columns, place_on_members, replaced, storage_options
from ebla.tables.write_access import WriteAccess


def create_table(
    context: WriteAccess,
    name: str,
    declared: Sequence[Column],
    primary_key: Sequence[str],
    *,
    if_not_exists: bool = False,
    or_replace: bool = False,
    comment: str | None = None,
    options: Mapping[str, object] | None = None,
    constraints: Sequence[Constraint] = (),
) -> bool:
    check_name(name, "table")
    columns = new_columns(name, declared, primary_key)
    tablets, replication, rest = storage_options(context.settings, options or {})
    rest |= kept_constraints(constraints)
    reached = context.reached()

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        gone = replaced(connection, name, if_not_exists=if_not_exists, or_replace=or_replace)
        if gone is None:
            return None
        created = c.CreateRelation(
            name=name,
            kind=Kind.TABLE,
            tablets=tablets,
            replication=replication,
            columns=columns,
            placement=place_on_members(connection, reached, tablets, replication),
            comment=comment,
            options=rest,
        )
        guards = frozenset() if gone else frozenset({SCHEMA, TOPOLOGY})
        reason = f"{'replace' if gone else 'create'} table {name}"
        return c.Decision(reason=reason, updates=(*gone, created), guards=guards)

    return context.catalog.decide(decide, node=context.node) is not None


def drop_table(catalog: Catalog, node: NodeId, name: str, *, if_exists: bool = False, cascade: bool = False) -> bool:
    def decide(connection: Connection, at: Version) -> c.Decision | None:
        relation = reads.find_relation(connection, name)
        if relation is None and if_exists:
            return None
        relation = relation or reads.relation(connection, name)
        require_kind(relation, Kind.TABLE, "DROP")
        updates, more = dropping(connection, relation, cascade=cascade)
        return c.Decision(reason=f"drop table {relation.name}{more}", relation=relation.id, updates=updates)

    return catalog.decide(decide, node=node) is not None


def rename_table(catalog: Catalog, node: NodeId, name: str, new: str, kind: Kind = Kind.TABLE) -> None:
    check_name(new, kind.value)

    def decide(connection: Connection, at: Version) -> c.Decision:
        relation = reads.relation(connection, name)
        require_kind(relation, kind, "ALTER")
        refuse_if_read(connection, relation, "rename it")
        taken = reads.find_relation(connection, new)
        if taken is not None and taken.id != relation.id:
            raise DuplicateNameError(f"{kind} {new}: expected a free name, found {taken.kind.named} of that name")
        rename = c.RenameRelation(relation=relation.id, name=new)
        return c.on_relation(relation.id, f"rename {kind} {relation.name} to {new}", rename)

    catalog.decide(decide, node=node)


def comment_table(catalog: Catalog, node: NodeId, name: str, comment: str | None) -> None:
    def decide(connection: Connection, at: Version) -> c.Decision:
        relation = reads.relation(connection, name)
        update = c.SetRelationComment(relation=relation.id, comment=comment)
        return c.on_relation(relation.id, f"comment on table {relation.name}", update)

    catalog.decide(decide, node=node)
