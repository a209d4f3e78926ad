"""The topology as the catalog has it, in one consistent read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import cdc, layouts, processes, resizes, tablet_copies, topology
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import is_gone
from ebla.catalog.rows import State
from ebla.model.lifecycle.node import is_member
from ebla.model.lifecycle.tablet import Stage
from ebla.model.topology import RebuildResult, Tablet, Topology, Transition


def load(
    state: State,
    now: int,
    *,
    holder: str = "",
    own: Collection[NodeId] = (),
    rebuilt: Mapping[int, RebuildResult] | None = None,
    paused: Mapping[Tablet, frozenset[NodeId | None]] | None = None,
    sizes: layouts.Sizes | None = None,
    counted: Mapping[Tablet, int] | None = None,
    is_copied: Callable[[Transition], bool] = lambda one: False,
) -> Topology:
    """All that a step is decided from. `own` are nodes of the process `holder`, which loads: it is alive, and sees what
    it reads. Of other processes of the same nodes their rows tell it.

    `sizes`: those of tablets as they were a while ago, which saves reading all runs. `counted`: how many copies tablets
    lacked a while ago, which saves reading theirs for those that this process copies meanwhile (`is_copied`).
    """
    version = topology.version(state)
    living = processes.alive(state, now)
    others = (one for one in living if one.holder != holder and not (is_gone(one.holder) and {*one.hosts} & {*own}))
    seen = processes.seen(others)
    for node in own:
        seen[node] = min(version, seen.get(node, version))
    moving = topology.transitions(state)
    members = topology.members(state)
    placed = layouts.layouts(state, sizes or {})
    before = counted or {}
    dead = [node for node, member in members.items() if is_member(member.state) and node not in seen]
    return Topology(
        version=version,
        members=members,
        alive=frozenset(seen),
        seen=seen,
        holders=frozenset(process.holder for process in living),
        layouts=placed,
        transitions=moving,
        requests=topology.open_requests(state),
        balancing=topology.is_balancing(state),
        rebuilt=rebuilt or {},
        paused=paused or {},
        unreached=layouts.unreached_runs(state, dead, seen.keys()),
        empty=layouts.empty_tablets(state, placed.values(), seen.keys()),
        unpublished=tuple(cdc.unpublished_generations(state)),
        oldest_open=oldest_open(state, {relation for relation, _ in moving}, now) if moving else None,
        lacking={
            place: (before.get(place) if is_copied(one) else None) or _count_missing(state, one)
            for place, one in moving.items()
            if one.stage is Stage.STREAMING
        },
    )


def oldest_open(state: State, relations: Collection[RelationId], now: int) -> Version | None:
    """Under which version the oldest transaction began that is in the way of moves of some relations' tablets."""
    return min((Version(one.began_under) for one in tx.in_the_way(state, relations, now)), default=None)


def _count_missing(state: State, one: Transition) -> int:
    """How many copies a pending replica lacks; without one, how many the replicas that stay lack."""
    pending = None if one.pending is None else one.pending.host
    return sum(pending is None or node == pending for _, _, node in tablet_copies.missing_copies(state, one.tablet))


def is_at_rest(state: State) -> bool:
    """Whether nothing is asked for, moves, is to be resized or to be published."""
    return not (
        topology.open_requests(state)
        or topology.transitions(state)
        or resizes.is_any_decided(state)
        or cdc.unpublished_generations(state)
    )
