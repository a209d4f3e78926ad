"""The build of an index: how fast it goes, its first tasks, and the start of builds that were deferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Kind, Relation
from ebla.model.tasks import PACE, Build, pace
from ebla.relations import indexes as definition
from ebla.relations.guard import require_built
from ebla.relations.indexes import Index
from ebla.relations.tasks import NO_RELATION, first_tasks

UNKNOWN = NO_RELATION
"""In place of the relation that the same commit creates."""


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


def build_options(options: Mapping[str, object]) -> tuple[bool, Mapping[str, int | None]]:
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


def base_to_index(connection: Connection, name: str) -> Relation:
    """The relation that an index is to be on, if it can have one."""
    base = reads.relation(connection, name)
    if base.kind is Kind.INDEX:
        raise UsageError(f"{base.name}: expected a table or a view to index, found an index")
    require_built(connection, base)
    return base


def ask_for_deferred(catalog: Catalog, node: NodeId, table: str) -> list[Index]:
    """Begin with the deferred indexes of a relation, all in one commit, so that one scan feeds them."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        base = base_to_index(connection, table)
        waiting = [i for i in definition.of_base(connection, base) if i.state is Permission.ABSENT]
        if not waiting:
            return None
        updates: list[c.Update] = []
        for index in waiting:
            updates.append(c.SetIndexState(index=index.id, state=Permission.DELETE_ONLY))
            updates.append(building(connection, base, index.id, {}, node=node))
        names = ", ".join(index.name for index in waiting)
        return c.Decision(
            reason=f"build indexes {names}", relation=base.id, updates=tuple(updates), work=c.WorkKind.BUILD
        )

    with catalog.reading() as connection:
        base = base_to_index(connection, table)
        found = definition.of_base(connection, base)
    catalog.decide(decide, node=node)
    return found
