"""An index is created: its definition is checked, its relation and its tasks are made in one commit.

Nothing is read here; the leader of building takes it from there (`ebla.indexes.walk`, `ebla.indexes.filler`).
"""

from __future__ import annotations

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import DuplicateNameError, UsageError
from ebla.indexes.analysis import analyze_index
from ebla.indexes.index_build import UNKNOWN, base_to_index, build_options, building
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.model.scopes import SCHEMA, of_relation
from ebla.relations import indexes as definition
from ebla.relations.guard import refuse_if_replaced
from ebla.relations.indexes import Index
from ebla.spark.sessions import Sessions
from ebla.sql.statements import CreateIndex
from ebla.tables import new_table


def create_index(catalog: Catalog, sessions: Sessions, node: NodeId, statement: CreateIndex) -> Index | None:
    """Make the index's relation and its tasks. Its entries come with its steps. `None` if it was there already."""
    new_table.check_name(statement.name, "index")
    deferred, speed = build_options(statement.options)
    with catalog.reading() as connection:
        if _taken(connection, statement):
            return None
        base = base_to_index(connection, statement.table)
    checked = analyze_index(sessions, base, statement)
    kept = definition.options(
        checked.items,
        checked.include,
        statement.where,
        unique=statement.unique,
        placed_by=[column.physical for column in base.key],
        settings=checked.settings,
    )

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        if _taken(connection, statement):
            return None
        current = base_to_index(connection, statement.table)
        refuse_if_replaced(connection, current)
        if (current.id, current.schema_version) != (base.id, base.schema_version):
            raise UsageError(f"{base.name}: altered while index {statement.name} was created; create it again")
        made = c.CreateRelation(
            name=statement.name,
            kind=Kind.INDEX,
            tablets=current.tablets,
            replication=current.replication,
            columns=checked.columns,
            placement=current.placement,
            comment=None,
            options=kept | {n: v for n, v in current.options.items() if n == "min_copies"},
        )
        build: tuple[c.Update, ...] = ()
        if not deferred:
            build = (building(connection, current, UNKNOWN, speed, node=node),)
        return c.Decision(
            reason=f"create index {statement.name} on {current.name}",
            updates=(made, c.CreateIndex(base=current.id, deferred=deferred), *build),
            guards=frozenset({SCHEMA, of_relation(current.id)}),
            work=c.WorkKind.BUILD,
        )

    if catalog.decide(decide, node=node) is None:
        return None
    hit("index.created")
    with catalog.reading() as connection:
        return definition.load(connection, statement.name)


def _taken(connection: Connection, statement: CreateIndex) -> bool:
    found = reads.find_relation(connection, statement.name)
    if found is not None and not statement.if_not_exists:
        raise DuplicateNameError(
            f"index {statement.name}: expected a free name, found {found.kind.named} of that name; choose another"
        )
    return found is not None


# ---- asking for it --------------------------------------------------------------------------------------
