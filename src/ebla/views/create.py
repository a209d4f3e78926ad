"""A view comes to be: its query is checked, its columns and key are found, its relation is made, its rows are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from ebla.algebra.driving import Driving
from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import building, reads
from ebla.errors import DuplicateNameError, UsageError
from ebla.model import changes as c
from ebla.model.relation import Kind
from ebla.model.tasks import PACE, Build, pace
from ebla.relations import views as definition
from ebla.relations.guard import dropping, refuse_if_replaced
from ebla.relations.tasks import NO_RELATION, first_tasks
from ebla.sql.query import Query
from ebla.tables import ddl
from ebla.tables.context import Context
from ebla.validate import Part
from ebla.views.analysis import Checked, checked_part, statement_of
from ebla.views.replace import begun


def create_view(
    context: Context,
    name: str,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    if_not_exists: bool = False,
    or_replace: bool = False,
    options: Mapping[str, object] | None = None,
) -> RelationId | None:
    """Make a view's relation and the tasks that build it, in one commit; `None` if there is one already.

    With `or_replace`, a view of this name stays, and what is made is its replacement (`ebla.views.replace`).
    """
    given = {k.lower(): v for k, v in (options or {}).items()}
    refresh = given.pop("refresh", "auto")
    if refresh not in ("auto", "incremental"):
        raise UsageError(f"refresh: expected 'auto' or 'incremental', found {refresh!r}")
    speed = pace({name: given.pop(name) for name in PACE if name in given})
    tablets, replication, _ = ddl.storage_options(context, given)
    with context.catalog.reading() as connection:
        if if_not_exists and reads.find_relation(connection, name) is not None:
            return None
    source, made_by = statement_of(query)
    statement = replace(
        made_by,
        name=name,
        columns=tuple(names),
        primary_key=tuple(primary_key),
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        options={"refresh": refresh},
    )
    checked = checked_part(context, Part(source=source, statement=statement), query)
    how = checked.how_built(definition.inputs_of(query))

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        older: tuple[c.Update, ...] = ()
        if found is not None:
            if if_not_exists:
                return None
            if not or_replace:
                raise DuplicateNameError(f"view {name}: expected a free name, found a {found.kind} of that name")
            ddl.require_kind(found, Kind.VIEW, "CREATE OR REPLACE")
            older = begun(connection, found)
        made = _relation(
            connection,
            checked,
            name=name if found is None else definition.replacement_name(found.name),
            storage=(tablets, replication),
            text=query.text,
            created={"refresh": refresh, "named": bool(names)},
        )
        base = None if how.base is None else reads.relation(connection, how.base)
        build = c.CreateBuild(
            build=Build(
                view=NO_RELATION,
                base=NO_RELATION if base is None else base.id,
                rows_per_minute=speed.get("rows_per_minute"),
                chunk_rows=speed.get("chunk_rows"),
                concurrency=speed.get("concurrency"),
            ),
            tasks=first_tasks(connection, base, context.node, together=not isinstance(how, Driving)),
            of_created=True,
        )
        what = "create" if found is None else "begin to replace"
        return c.Decision(reason=f"{what} materialized view {name}", updates=(*older, made, build))

    made = context.catalog.decide(decide, node=context.node)
    if made is None:
        return None
    hit("build.created")
    return made.relation


def _relation(
    connection: Connection,
    checked: Checked,
    *,
    name: str,
    storage: tuple[int, int],
    text: str,
    created: Mapping[str, object],
) -> c.CreateRelation:
    """The relation of a view whose query was checked; `storage`: how many tablets and replicas it has."""
    read = [reads.relation(connection, n) for n in checked.relations]
    for one in read:
        refuse_if_replaced(connection, one)
    return c.CreateRelation(
        name=name,
        kind=Kind.VIEW,
        tablets=storage[0],
        replication=storage[1],
        columns=checked.columns,
        placement=ddl.place(list(reads.nodes(connection).values()), *storage),
        comment=None,
        options=definition.options(
            text,
            [one.id for one in read],
            created,
            settings=checked.settings,
            kept=None if checked.drawn is None else checked.drawn.query,
            roles=None if checked.drawn is None else checked.drawn.roles,
        ),
    )


def drop_view(
    context: Context, name: str, *, if_exists: bool = False, cascade: bool = False, while_building: bool = False
) -> bool:
    """Drop a view with all that is being built of it; `while_building`: only if it is not built yet."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        if found is None and if_exists:
            return None
        if found is None:
            found = definition.load(connection, name).relation  # which says that there is none
        ddl.require_kind(found, Kind.VIEW, "CANCEL BUILD of a" if while_building else "DROP")
        if while_building and found.id not in building.builds(connection):
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
        )

    return context.catalog.decide(decide, node=context.node) is not None
