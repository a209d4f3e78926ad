"""Tablets in transition: the rules by which commits change them.

A transition is of a table or a view. Its indexes lie where it lies, so their runs and placements go with it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, assert_never

from ebla.base.ids import NodeId, RelationId, TabletId, TaskId, Version
from ebla.catalog import building, indexing, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.reads import called, merge_replicas, relation_by_id
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import task_moves
from ebla.model import topology_changes as t
from ebla.model.copies import tablets_with_rows, too_few_of
from ebla.model.lifecycle.node import may_receive
from ebla.model.lifecycle.tablet import LIFE, RIGHTS, Replicas, Stage, goes_back
from ebla.model.relation import Kind, Relation, Run
from ebla.model.tablets import token_range
from ebla.model.tasks import Replica, Task
from ebla.model.topology import Tablet

_table = s.tablet_transitions


def changes(state: State, update: t.TransitionUpdate, version: Version) -> tuple[Change, ...]:
    match update:
        case t.BeginTransition():
            return _begin(state, update, version)
        case t.AdvanceTransition():
            return _advance(state, update, version)
        case t.FailTransition(tablet=tablet, stage=stage, failure=failure):
            _in_stage(state, tablet, stage)
            return (rows.update(_table, {"failure": failure}, **_key(tablet)),)
        case t.SetReplication(relation=number, replication=replication):
            those = _with_indexes(state, _relation_of(state, (number, TabletId(0))))
            return tuple(rows.update(s.relations, {"replication": replication}, relation_id=one.id) for one in those)
        case t.EndTransition(tablet=tablet, stage=stage):
            return _end(state, tablet, _in_stage(state, tablet, stage), version)
        case _:
            assert_never(update)


def forget(state: State, relation: RelationId, version: Version) -> tuple[Change, ...]:
    """A relation is dropped: what copies its runs is refused from now on."""
    sessions = rows.values(state, _table.c.session_id, relation_id=relation) - {None}
    return (
        rows.update(s.sessions, {"closed_version": version}, session_id=frozenset(sessions), closed_version=None),
        rows.delete(_table, relation_id=relation),
    )


def on_shards(
    state: State, relation: RelationId, placement: tuple[tuple[NodeId, ...], ...]
) -> tuple[tuple[Replica, ...], ...]:
    """The replicas of a relation that begins on some nodes: on their shards in turn, with another first for each."""
    shards = {member.id: member.shards for member in topology.members(state).values()}
    turn: Counter[NodeId] = Counter()
    replicas = []
    for nodes in placement:
        replicas.append(tuple(Replica(node, (relation + turn[node]) % shards.get(node, 1)) for node in nodes))
        turn.update(nodes)
    return tuple(replicas)


# ---- the beginning --------------------------------------------------------------------------------------


def _begin(state: State, new: t.BeginTransition, version: Version) -> tuple[Change, ...]:
    relation = _relation_of(state, new.tablet)
    number, tablet = new.tablet
    found = rows.one(state, _table, **_key(new.tablet))
    if found is not None:
        raise ConflictError(
            f"tablet {tablet} of {relation.name}: expected no transition, found one in stage {found.stage}"
        )
    _refuse_nodes(state, relation, new)
    row = {
        "relation_id": number,
        "tablet_id": tablet,
        "kind": new.kind.value,
        "stage": Stage.ALLOW_WRITE_BOTH_READ_OLD.value,
        **_replica("leaving", new.leaving),
        **_replica("pending", new.pending),
        "request_id": new.request,
        "begun_version": version,
        "stage_version": version,
    }
    tokens = token_range(tablet, relation.tablets)
    tasks = () if new.leaving is None else task_moves.leave(_tasks(state, number), tokens, new.leaving)
    return (
        rows.insert(_table, [row]),
        *(change for update in tasks for change in building.changes(state, update, version, None)),
        *_new_placement_versions(state, relation),
    )


def _refuse_nodes(state: State, relation: Relation, new: t.BeginTransition) -> None:
    _, tablet = new.tablet
    nodes, members = relation.placement[tablet], topology.members(state)
    what = f"tablet {tablet} of {relation.name}"
    if new.leaving is None and new.pending is None:
        raise ConflictError(f"{what}: expected a replica that leaves or one that comes, found none")
    if new.leaving is not None and new.leaving.host not in nodes:
        raise ConflictError(f"{what}: expected a replica on node {new.leaving.host}, found it on {', '.join(nodes)}")
    if new.leaving is not None and new.pending is None and len(nodes) == 1:
        raise ConflictError(f"{what}: expected another replica beside the one that leaves, found none")
    if new.pending is None:
        return
    member = members.get(new.pending.host)
    if member is None or not may_receive(member.state):
        found = "none of this id" if member is None else f"it {member.state}"
        raise ConflictError(f"{what}: expected node {new.pending.host} to take replicas, found {found}")
    if new.leaving is not None and new.pending.host == new.leaving.host and new.pending != new.leaving:
        return  # another shard of the same node
    if new.pending.host in nodes:
        raise ConflictError(f"{what}: expected no replica on node {new.pending.host}, found one")


def _replica(which: str, replica: Replica | None) -> dict[str, object]:
    host, shard = (None, None) if replica is None else replica
    return {f"{which}_host": host, f"{which}_shard": shard}


# ---- stages ---------------------------------------------------------------------------------------------


def _advance(state: State, step: t.AdvanceTransition, version: Version) -> tuple[Change, ...]:
    row = _in_stage(state, step.tablet, step.stage)
    relation = _relation_of(state, step.tablet)
    LIFE.step(step.stage, step.to, f"tablet {step.tablet[1]} of {relation.name}")
    if step.to is Stage.WRITE_BOTH_READ_NEW:
        _refuse_incomplete(state, relation, step.tablet[1])
    values: dict[str, object] = {"stage": step.to.value, "stage_version": version, "session_id": None}
    changed: list[Change] = []
    if row.session_id is not None:
        changed.append(rows.update(s.sessions, {"closed_version": version}, session_id=row.session_id))
    if RIGHTS[step.to].has_session:
        session = f"{step.to}-{step.tablet[0]}-{step.tablet[1]}-{version}"
        values["session_id"] = session
        purpose = f"copy tablet {step.tablet[1]} of {relation.name}"
        changed.append(
            rows.insert(s.sessions, [{"session_id": session, "purpose": purpose, "opened_version": version}])
        )
    if step.failure is not None:
        values["failure"] = step.failure
    return (*changed, rows.update(_table, values, **_key(step.tablet)), *_new_placement_versions(state, relation))


def _refuse_incomplete(state: State, relation: Relation, tablet: TabletId) -> None:
    """Readers of the new replicas find every run: the one that comes has all, and enough of the others have each."""
    pending = relation.moves[tablet].pending
    for one in _with_indexes(state, relation):
        nodes = one.replicas(tablet, Replicas.NEW)
        for run in runs_of(state, one, tablet):
            lack = too_few_of(one, run, tablet, nodes)
            if (pending is not None and pending not in run.nodes) or lack is not None:
                raise ConflictError(
                    f"tablet {tablet} of {one.name}: expected run {run.id} on its new replicas {', '.join(nodes)}, "
                    f"found it on {', '.join(run.nodes)}; copy it first"
                )


# ---- the end --------------------------------------------------------------------------------------------


def _end(state: State, place: Tablet, row: Any, version: Version) -> tuple[Change, ...]:
    number, tablet = place
    relation, stage = _relation_of(state, place), Stage(row.stage)
    LIFE.step(stage, None, f"tablet {tablet} of {relation.name}")
    move, back = relation.moves[tablet], goes_back(stage)
    after = relation.placement[tablet] if back else move.after(relation.placement[tablet])
    gone = move.pending if back else move.leaving
    shards = {r.host_id: r.shard for r in rows.find(state, s.tablets, **_key(place))}
    if row.pending_host is not None and not back:
        shards[row.pending_host] = row.pending_shard
    tokens = token_range(tablet, relation.tablets)
    tasks: tuple[Any, ...] = ()
    if row.leaving_host is not None:
        source, again = Replica(NodeId(row.leaving_host), row.leaving_shard), _new_id(version)
        target = source if back else Replica(after[0], shards[after[0]])
        found = _tasks(state, number)
        tasks = task_moves.stay(found, tokens, source, again) if back else task_moves.arrive(
            found, tokens, source, target, again
        )  # fmt: skip
    changed: list[Change] = [rows.delete(_table, **_key(place))]
    for one in _with_indexes(state, relation):
        changed += _placement(one.id, tablet, after, shards)
        changed += _without_copies(state, one, tablet, after, gone)
    for update in tasks:
        changed += building.changes(state, update, version, None)
    return (*changed, *_new_placement_versions(state, relation))


def _placement(
    relation: RelationId, tablet: TabletId, nodes: tuple[NodeId, ...], shards: dict[str, int]
) -> list[Change]:
    rows_of = [
        {"relation_id": relation, "tablet_id": tablet, "host_id": node, "shard": shards[node], "ordinal": ordinal}
        for ordinal, node in enumerate(nodes)
    ]
    return [rows.delete(s.tablets, relation_id=relation, tablet_id=tablet), rows.insert(s.tablets, rows_of)]


def _without_copies(
    state: State, relation: Relation, tablet: TabletId, after: tuple[NodeId, ...], node: NodeId | None
) -> list[Change]:
    """Without the copies on a node that no tablet of it needs any more. Their files are swept."""
    if node is None or node in after:
        return []
    kept = {one for one in map(TabletId, range(relation.tablets)) if one != tablet}
    kept = {one for one in kept if node in relation.replicas(one, Replicas.BOTH)}
    gone = frozenset(
        run.id
        for run in runs_of(state, relation, tablet)
        if node in run.nodes and not kept.intersection(tablets_with_rows(relation, run))
    )
    return [rows.delete(s.runs, relation_id=relation.id, run_id=gone, host_id=node)] if gone else []


def _new_id(version: Version) -> task_moves.NewId:
    return lambda task: TaskId(str(uuid.uuid5(uuid.NAMESPACE_OID, f"{task.id} {version}")))


# ---- reads ----------------------------------------------------------------------------------------------


def runs_of(state: State, relation: Relation, tablet: TabletId) -> list[Run]:
    """The runs that have rows of a tablet, ended ones too, with all their copies."""
    tokens = token_range(tablet, relation.tablets)
    found = rows.find(state, s.runs, relation_id=relation.id, fork=rows.Overlapping((tokens,)))
    return [run for run in merge_replicas(found, relation.tablets) if tablet in tablets_with_rows(relation, run)]


def missing_copies(state: State, place: Tablet) -> list[tuple[Relation, Run, NodeId]]:
    """The copies that the new replicas of a tablet lack, of its relation and of the relation's indexes."""
    number, tablet = place
    relation = relation_by_id(state, number)
    if relation is None or tablet not in relation.moves:
        return []
    return [
        (one, run, node)
        for one in _with_indexes(state, relation)
        for run in runs_of(state, one, tablet)
        for node in one.replicas(tablet, Replicas.NEW)
        if node not in run.nodes
    ]


def _with_indexes(state: State, relation: Relation) -> Iterator[Relation]:
    yield relation
    for one in indexing.of_base(state, relation.id):
        index = relation_by_id(state, one.index)
        if index is not None:
            yield index


def _tasks(state: State, base: RelationId) -> list[Task]:
    return [task for task in building.tasks(state) if task.base == base]


def _relation_of(state: State, place: Tablet) -> Relation:
    number, tablet = place
    found = relation_by_id(state, number)
    if found is None or found.kind is Kind.INDEX or not 0 <= tablet < found.tablets:
        what = "none" if found is None else f"{found.kind.named} of {found.tablets} tablets"
        name = called(state, number)
        raise UnknownNameError(f"tablet {tablet} of {name}: expected one of a table or a view, found {what}")
    return found


def _in_stage(state: State, place: Tablet, stage: Stage) -> Any:
    row = rows.one(state, _table, **_key(place))
    if row is None or row.stage != stage:
        found = "none" if row is None else row.stage
        raise ConflictError(
            f"tablet {place[1]} of {called(state, place[0])}: expected stage {stage}, found {found}; look again"
        )
    return row


def _new_placement_versions(state: State, relation: Relation) -> list[Change]:
    """The replica sets of a relation and its indexes have changed."""
    return [
        rows.update(s.relations, {"placement_version": one.placement_version + 1}, relation_id=one.id)
        for one in _with_indexes(state, relation)
    ]


def _key(place: Tablet) -> dict[str, Any]:
    return {"relation_id": place[0], "tablet_id": place[1]}
