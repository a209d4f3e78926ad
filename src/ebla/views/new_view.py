"""A view that a statement asks for, its query checked, and the commit that makes its relation and its build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from ebla.algebra.build_method import DrivenBuild
from ebla.base.ids import NodeId
from ebla.catalog import reads
from ebla.errors import DuplicateNameError
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.model.tasks import Build
from ebla.relations import guard
from ebla.relations import views as definition
from ebla.relations.guard import refuse_if_replaced
from ebla.relations.tasks import first_tasks
from ebla.sql.query import Query
from ebla.tables import new_table
from ebla.views.replace import begun
from ebla.views.view_analysis import ViewAnalysis


@dataclass(frozen=True, slots=True, kw_only=True)
class NewView:
    """What a statement asks for, after its query was checked."""

    name: str
    query: Query
    checked: ViewAnalysis
    storage: tuple[int, int]
    """How many tablets and replicas the view has."""
    reached: frozenset[NodeId]
    """The nodes whose storage roots its process reaches."""
    created: Mapping[str, object]
    """What of the statement the view keeps."""
    build: Build
    if_not_exists: bool
    or_replace: bool


def decision(connection: Connection, new: NewView, node: NodeId) -> c.Decision | None:
    """What to commit; `None`: a relation of that name is there, and the statement says that this is well."""
    found = reads.find_relation(connection, new.name)
    name, older = new.name, tuple[c.Update, ...]()
    if found is not None:
        if new.if_not_exists:
            return None
        if not new.or_replace:
            raise DuplicateNameError(f"view {name}: expected a free name, found a {found.kind} of that name")
        guard.require_kind(found, Kind.VIEW, "CREATE OR REPLACE")
        name, older = definition.replacement_name(found.name), begun(connection, found)
    how = new.checked.build_method(definition.inputs_of(new.query))
    base = None if how.base is None else reads.relation(connection, how.base)
    build = c.CreateBuild(
        build=new.build if base is None else replace(new.build, base=base.id),
        tasks=first_tasks(connection, base, node, together=not isinstance(how, DrivenBuild)),
        of_created=True,
    )
    what = "create" if found is None else "begin to replace"
    return c.Decision(
        reason=f"{what} materialized view {new.name}",
        updates=(*older, _relation(connection, new, name), build),
        work=c.WorkKind.BUILD,
    )


def _relation(connection: Connection, new: NewView, name: str) -> c.CreateRelation:
    checked, (tablets, replication) = new.checked, new.storage
    read = [reads.relation(connection, n) for n in checked.relations]
    for one in read:
        refuse_if_replaced(connection, one)
    return c.CreateRelation(
        name=name,
        kind=Kind.VIEW,
        tablets=tablets,
        replication=replication,
        columns=checked.columns,
        placement=new_table.place_on_members(connection, new.reached, tablets, replication),
        comment=None,
        options=definition.options(
            new.query.text,
            new.created,
            settings=checked.settings,
            kept=None if checked.drawn is None else checked.drawn.query,
            roles=None if checked.drawn is None else checked.drawn.roles,
        ),
        reads=tuple(one.id for one in read),
    )
