"""The topology as the catalog has it, in one consistent read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ebla.base.ids import NodeId, Version
from ebla.catalog import cdc, layouts, processes, topology, transitions
from ebla.catalog import transactions as tx
from ebla.catalog.rows import State
from ebla.model.lifecycle.node import is_member
from ebla.model.lifecycle.tablet import Stage
from ebla.model.topology import Rebuilt, Tablet, Topology, Transition


def load(
    state: State,
    now: int,
    own: Collection[NodeId] = (),
    rebuilt: Mapping[int, Rebuilt] | None = None,
    sizes: layouts.Sizes | None = None,
) -> Topology:
    """All that a step is decided from. `own` are nodes of this process: it is alive, and sees what it reads.

    `sizes`: those of tablets as they were a while ago, which saves reading all runs.
    """
    version = topology.version(state)
    living = processes.alive(state, now)
    seen: dict[NodeId, Version] = processes.seen(living) | dict.fromkeys(own, version)
    moving = topology.transitions(state)
    members = topology.members(state)
    dead = [node for node, member in members.items() if is_member(member.state) and node not in seen]
    return Topology(
        version=version,
        members=members,
        alive=frozenset(seen),
        seen=seen,
        holders=frozenset(process.holder for process in living),
        layouts=layouts.layouts(state, sizes or {}),
        transitions=moving,
        requests=topology.open_requests(state),
        balancing=topology.is_balancing(state),
        rebuilt=rebuilt or {},
        unreached=layouts.unreached(state, dead, seen.keys()),
        unpublished=tuple(cdc.unpublished(state)),
        oldest_open=_oldest_open(state, moving, now) if moving else None,
        lacking={place: _lacking(state, one) for place, one in moving.items() if one.stage is Stage.STREAMING},
    )


def _oldest_open(state: State, moving: Collection[Tablet], now: int) -> Version | None:
    """Under which version the oldest transaction began that is in the way of tablets in transition."""
    found = tx.in_the_way(state, {relation for relation, _ in moving}, now)
    return min((Version(row.topology_version) for row in found), default=None)


def _lacking(state: State, one: Transition) -> int:
    """How many copies a pending replica lacks; without one, how many the replicas that stay lack."""
    pending = None if one.pending is None else one.pending.host
    return sum(pending is None or node == pending for _, _, node in transitions.lacking(state, one.tablet))
