"""What building is to do for a relation, from catalog rows: first tasks, tasks of staged runs, steps of indexes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, TabletId, TaskId
from ebla.catalog import build_tasks, index_states, reads
from ebla.catalog import relations as relation_rows
from ebla.catalog import transactions as tx
from ebla.model import barrier
from ebla.model.index_steps import IndexStanding
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Relation
from ebla.model.staging import Arrival, Destination, ViewStage, destination
from ebla.model.tablets import ALL, TokenRange, tablet_of, token_range, token_ranges
from ebla.model.tasks import Replica, Task, TaskKind

NO_RELATION = RelationId(0)
"""The base of a view whose query names no table."""


def standings(connection: Connection, base: RelationId | None = None) -> list[IndexStanding]:
    """Indexes that are on their way somewhere, of all bases or of one, and who keeps each from its next step."""
    states = index_states.all_states(connection) if base is None else index_states.of_base(connection, base)
    moving = [one for one in states if one.state not in (Permission.ABSENT, Permission.READ_WRITE_AND_DELETE)]
    began = reads.committed_at(connection, [one.since for one in moving]) if moving else {}
    at_work = {one: tx.in_the_way(connection, {one}, unnamed=False) for one in {one.base for one in moving}}
    return [
        IndexStanding(
            index=one.index,
            base=one.base,
            state=one.state,
            since=one.since,
            read_version=one.read_version,
            began_us=began.get(one.since, 0),
            blockers=tuple(w.transaction for w in barrier.blockers(at_work[one.base], one.since)),
        )
        for one in moving
    ]


def first_tasks(connection: Connection, base: Relation | None, node: NodeId, *, together: bool) -> tuple[Task, ...]:
    """The tasks that build a new view or index: one for each tablet of its base, on its first replica.

    A view that is not driven by its base has all of them in one place (`together`): it stands at one version, so that
    two workers would only be in each other's way.
    """
    places = {ALL: Replica(node, 0)} if base is None else _places(connection, base)
    first = next(iter(places.values()))
    return tuple(
        Task(
            id=TaskId(str(uuid.uuid4())),
            kind=TaskKind.BUILD_RANGE,
            base=NO_RELATION if base is None else base.id,
            view=NO_RELATION,
            tokens=tokens,
            replica=first if together else replica,
        )
        for tokens, replica in places.items()
    )


def _places(connection: Connection, base: Relation) -> dict[TokenRange, Replica]:
    """The first replica of each tablet, also where the relation has got other tablets since it was read."""
    found = relation_rows.first_replicas(connection, base.id)
    return {tokens: found[tablet_of(tokens.first, len(found))] for tokens in token_ranges(base.tablets)}


def staging_tasks(connection: Connection, base: Relation, tablets: Iterable[TabletId]) -> tuple[Task, ...]:
    """The tasks that make staged runs visible: one for each tablet that has some."""
    places = _places(connection, base)
    return tuple(
        Task(
            id=TaskId(str(uuid.uuid4())),
            kind=TaskKind.PROCESS_STAGING,
            base=base.id,
            view=None,
            tokens=tokens,
            replica=places[tokens],
        )
        for tokens in sorted({token_range(tablet, base.tablets) for tablet in tablets})
    )


def destination_of(connection: Connection, base: Relation, arrival: Arrival) -> Destination:
    """Where runs that arrive for a table go. Every table is the coordinator's."""
    return destination(view_stages(connection, base.id).values(), arrival)


def view_stages(connection: Connection, base: RelationId) -> dict[RelationId, ViewStage]:
    """How far each view that reads a table is. An index is none: a commit brings its entries."""
    builds, built, spans = build_tasks.builds(connection), build_tasks.built(connection), build_tasks.spans(connection)
    processing = build_tasks.processing_base(connection)
    found: dict[RelationId, ViewStage] = {}
    for view, inputs in relation_rows.inputs(connection).items():
        if base not in inputs:
            continue
        if view in builds:
            begun = view in spans or processing == builds[view].base
            found[view] = ViewStage.STARTED if begun else ViewStage.NOT_STARTED
        else:
            found[view] = ViewStage.BUILT if view in built else ViewStage.NOT_STARTED
    return found
