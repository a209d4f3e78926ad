"""An index is created and dropped: its definition is checked, its relation and its tasks are made in one commit.

Nothing is read here; the leader of building takes it from there (`ebla.indexes.walk`, `ebla.indexes.filler`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog.troubles import Activity
from ebla.errors import (
    DuplicateNameError,
    UnknownNameError,
    UsageError,
)
from ebla.indexes.analysis import analyze_index
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission, back
from ebla.model.relation import Kind, Relation
from ebla.model.scopes import SCHEMA, of_relation
from ebla.model.tasks import PACE, Build, pace
from ebla.relations import indexes as definition
from ebla.relations.guard import refuse_if_replaced, require_built
from ebla.relations.indexes import Index
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.sql.statements import CreateIndex
from ebla.tables import ddl
from ebla.tables import troubles as troubled
from ebla.tables.context import Context

UNKNOWN = NO_RELATION
"""In place of the relation that the same commit creates."""


# ---- checking -------------------------------------------------------------------------------------------


# ---- creating -------------------------------------------------------------------------------------------


def create_index(context: Context, statement: CreateIndex) -> Index | None:
    """Make the index's relation and its tasks. Its entries come with its steps. `None` if it was there already."""
    ddl.check_name(statement.name, "index")
    deferred, speed = _options(statement.options)
    with context.catalog.reading() as connection:
        if _taken(connection, statement):
            return None
        base = _base(connection, statement.table)
    checked = analyze_index(context, base, statement)
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
        current = _base(connection, statement.table)
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
            build = (building(connection, current, UNKNOWN, speed, node=context.node),)
        return c.Decision(
            reason=f"create index {statement.name} on {current.name}",
            updates=(made, c.CreateIndex(base=current.id, deferred=deferred), *build),
            guards=frozenset({SCHEMA, of_relation(current.id)}),
        )

    if context.catalog.decide(decide, node=context.node) is None:
        return None
    hit("index.created")
    with context.catalog.reading() as connection:
        return definition.load(connection, statement.name)


def building(
    connection: Connection, base: Relation, index: RelationId, speed: Mapping[str, int | None], *, node: NodeId
) -> c.CreateBuild:
    """The build of an index: a task for each tablet of its base, on the tablet's first replica."""
    tasks = first_tasks(connection, base, node, together=False)
    build = Build(
        view=index,
        base=base.id,
        rows_per_minute=speed.get("rows_per_minute"),
        chunk_rows=speed.get("chunk_rows"),
        concurrency=speed.get("concurrency"),
    )
    return c.CreateBuild(
        build=build, tasks=tuple(replace(task, view=index) for task in tasks), of_created=index == UNKNOWN
    )


def _options(options: Mapping[str, object]) -> tuple[bool, Mapping[str, int | None]]:
    """Whether the index waits to be asked for, and how fast it is built."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(set(given) - {"build", *PACE})
    if unknown:
        raise UnknownNameError(f"WITH: expected build, {' or '.join(PACE)}, found {unknown[0]}")
    if given.get("build", "now") not in ("now", "deferred"):
        raise UsageError(f"build: expected 'now' or 'deferred', found {given['build']!r}")
    deferred = given.pop("build", "now") == "deferred"
    if deferred and given:
        raise UsageError(
            f"{next(iter(given))}: expected an index that is built now, found it deferred; "
            "ALTER INDEX i SET (…) says it once it is built"
        )
    return deferred, pace(given)


def _taken(connection: Connection, statement: CreateIndex) -> bool:
    found = reads.find_relation(connection, statement.name)
    if found is not None and not statement.if_not_exists:
        raise DuplicateNameError(
            f"index {statement.name}: expected a free name, found {found.kind.named} of that name; choose another"
        )
    return found is not None


def _base(connection: Connection, name: str) -> Relation:
    base = reads.relation(connection, name)
    if base.kind is Kind.INDEX:
        raise UsageError(f"{base.name}: expected a table or a view to index, found an index")
    require_built(connection, base)
    return base


# ---- asking for it --------------------------------------------------------------------------------------


def ask_for_deferred(context: Context, table: str) -> list[Index]:
    """Begin with the deferred indexes of a relation, all in one commit, so that one scan feeds them."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        base = _base(connection, table)
        waiting = [i for i in definition.of_base(connection, base) if i.state is Permission.ABSENT]
        if not waiting:
            return None
        updates: list[c.Update] = []
        for index in waiting:
            updates.append(c.SetIndexState(index=index.id, state=Permission.DELETE_ONLY))
            updates.append(building(connection, base, index.id, {}, node=context.node))
        names = ", ".join(index.name for index in waiting)
        return c.Decision(reason=f"build indexes {names}", relation=base.id, updates=tuple(updates))

    with context.catalog.reading() as connection:
        base = _base(connection, table)
        found = definition.of_base(connection, base)
    context.catalog.decide(decide, node=context.node)
    return found


def begin_removal(
    context: Context, index: RelationId, reason: str, message: str | None = None, *, unless_readable: bool = False
) -> bool:
    """The first step back. `False` if it is on its way already, gone, or (where that counts) readable."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        relation = reads.relation_by_id(connection, index)
        found = None if relation is None else definition.find(connection, relation.name)
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
        return c.Decision(reason=reason, relation=index, updates=(step,), guards=guards)

    return context.catalog.decide(decide, node=context.node) is not None


def give_up(context: Context, index: RelationId, error: Exception) -> None:
    """An index that cannot be built goes; why is kept as a trouble, for those who wait elsewhere or ask later."""
    with context.catalog.reading() as connection:
        relation = reads.relation_by_id(connection, index)
    if relation is None:
        return
    troubled.note(context, relation, Activity.BUILD, error, final=True)
    begin_removal(context, index, f"index {relation.name} cannot be built: {type(error).__name__}: {error}", str(error))
    hit("index.failed")
