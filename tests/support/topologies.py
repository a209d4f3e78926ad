"""Topologies as values, and a cluster that carries out what the balancer plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.model.lifecycle.node import NodeState
from ebla.model.lifecycle.tablet import Stage
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, Member, Resize, Tablet, Topology, Transition
from ebla.topology.balancer import Limits, Move, Plan, plan
from ebla.topology.load import outcome

NOW = Version(1)


def member(
    name: str, *, dc: str = "dc1", rack: str = "r1", shards: int = 1, state: NodeState = NodeState.NORMAL,
    replaced: str | None = None,
) -> Member:  # fmt: skip
    return Member(
        id=NodeId(name),
        name=name,
        root=f"/{name}",
        datacenter=dc,
        rack=rack,
        shards=shards,
        state=state,
        replaced=None if replaced is None else NodeId(replaced),
    )


def layout(
    replicas: Sequence[Sequence[str | tuple[str, int]]],
    *,
    relation: int = 1,
    sizes: Sequence[int] | int = 100,
    replication: int | None = None,
    resize: Resize = Resize(),  # noqa: B008  a frozen value
    reported: Mapping[tuple[int, str], int] | None = None,
) -> Layout:
    count = len(replicas[0]) if replication is None else replication
    return Layout(
        relation=RelationId(relation),
        name=f"t{relation}",
        replication=count,
        min_copies=count // 2 + 1,
        replicas=tuple(tuple(_replica(one) for one in of_tablet) for of_tablet in replicas),
        bytes=(sizes,) * len(replicas) if isinstance(sizes, int) else tuple(sizes),
        resize=resize,
        reported={(TabletId(t), NodeId(n)): number for (t, n), number in (reported or {}).items()},
    )


def _replica(one: str | tuple[str, int]) -> Replica:
    host, shard = (one, 0) if isinstance(one, str) else one
    return Replica(NodeId(host), shard)


def topology(
    members: Iterable[Member],
    *layouts: Layout,
    dead: Iterable[str] = (),
    transitions: Iterable[Transition] = (),
    balancing: bool = True,
) -> Topology:
    known = {one.id: one for one in members}
    return Topology(
        version=NOW,
        members=known,
        alive=frozenset(known) - {NodeId(one) for one in dead},
        seen={},
        layouts={one.relation: one for one in layouts},
        transitions={one.tablet: one for one in transitions},
        requests=(),
        balancing=balancing,
    )


def begun(move: Move, stage: Stage = Stage.STREAMING) -> Transition:
    return Transition(
        tablet=move.tablet,
        kind=move.kind,
        stage=stage,
        leaving=move.leaving,
        pending=move.pending,
        session=None,
        request=None,
        begun=NOW,
        since=NOW,
    )


def start(state: Topology, moves: Iterable[Move]) -> Topology:
    new = {move.tablet: begun(move) for move in moves}
    assert not new.keys() & state.transitions.keys(), "a tablet has one transition at a time"
    return replace(state, transitions={**state.transitions, **new})


def turn_back(state: Topology, tablet: Tablet) -> Topology:
    back = replace(state.transitions[tablet], stage=Stage.CLEANUP_TARGET)
    return replace(state, transitions={**state.transitions, tablet: back})


def end(state: Topology, *tablets: Tablet) -> Topology:
    """The transitions of these tablets end as they go now."""
    replicas = {relation: list(one.replicas) for relation, one in state.layouts.items()}
    for relation, number in tablets:
        replicas[relation][number] = outcome(replicas[relation][number], state.transitions[relation, number])
    rest = {key: one for key, one in state.transitions.items() if key not in tablets}
    layouts = {relation: replace(one, replicas=tuple(replicas[relation])) for relation, one in state.layouts.items()}
    return replace(state, layouts=layouts, transitions=rest)


def settle(state: Topology, limits: Limits = Limits(), rounds: int = 1000) -> tuple[Topology, list[Move]]:  # noqa: B008
    """Plan and carry out, until a plan has nothing to do."""
    made: list[Move] = []
    for _ in range(rounds):
        found = plan(state, limits)
        if not found.moves and not state.transitions:
            return state, made
        made += found.moves
        state = start(state, found.moves)
        state = end(state, *state.transitions)
    raise AssertionError(f"expected the plans to end, found moves after {rounds} rounds: {found.moves}")


def bytes_of(state: Topology) -> dict[NodeId, int]:
    held = dict.fromkeys(state.members, 0)
    for one in state.layouts.values():
        for size, replicas in zip(one.bytes, one.replicas, strict=True):
            for replica in replicas:
                held[replica.host] += size
    return held


def moves_of(found: Plan) -> list[tuple[int, str | None, str | None]]:
    """Tablet, node that it leaves, node that it comes to."""
    return [
        (move.tablet[1], move.leaving and move.leaving.host, move.pending and move.pending.host) for move in found.moves
    ]
