"""Tablets in transition: the rules by which commits change them.

A transition is of a table or a view. Its indexes lie where it lies, so their runs and placements go with it.
"""

from __future__ import annotations

from typing import Any, assert_never

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.catalog import rows, task_moves, topology
from ebla.catalog import schema as s
from ebla.catalog.reads import called, relation_by_id
from ebla.catalog.rows import Change, State
from ebla.catalog.tablet_copies import refuse_incomplete, with_indexes, without_copies
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import may_receive
from ebla.model.lifecycle.tablet import LIFE, RIGHTS, Stage, goes_back
from ebla.model.relation import Kind, Relation
from ebla.model.tablets import token_range
from ebla.model.tasks import Replica
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
            those = with_indexes(state, _relation_of(state, (number, TabletId(0))))
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
    tasks = () if new.leaving is None else task_moves.leave(state, number, tokens, new.leaving, version)
    return (
        rows.insert(_table, [row]),
        *tasks,
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
        refuse_incomplete(state, relation, step.tablet[1])
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
    tasks: tuple[Change, ...] = ()
    if row.leaving_host is not None:
        source = Replica(NodeId(row.leaving_host), row.leaving_shard)
        if back:
            tasks = task_moves.stay(state, number, tokens, source, version)
        else:
            target = Replica(after[0], shards[after[0]])
            tasks = task_moves.arrive(state, number, tokens, source, target, version)
    changed: list[Change] = [rows.delete(_table, **_key(place))]
    for one in with_indexes(state, relation):
        changed += _placement(one.id, tablet, after, shards)
        changed += without_copies(state, one, tablet, after, gone)
    return (*changed, *tasks, *_new_placement_versions(state, relation))


def _placement(
    relation: RelationId, tablet: TabletId, nodes: tuple[NodeId, ...], shards: dict[str, int]
) -> list[Change]:
    rows_of = [
        {"relation_id": relation, "tablet_id": tablet, "host_id": node, "shard": shards[node], "ordinal": ordinal}
        for ordinal, node in enumerate(nodes)
    ]
    return [rows.delete(s.tablets, relation_id=relation, tablet_id=tablet), rows.insert(s.tablets, rows_of)]


# ---- reads ----------------------------------------------------------------------------------------------


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
        for one in with_indexes(state, relation)
    ]


def _key(place: Tablet) -> dict[str, Any]:
    return {"relation_id": place[0], "tablet_id": place[1]}
