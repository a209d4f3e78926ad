"""The topology as the catalog has it, in one consistent read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ebla.base.ids import NodeId, Version
from ebla.catalog import cdc, layouts, processes, topology
from ebla.catalog.rows import State
from ebla.model.topology import Topology


def load(state: State, now: int, own: Collection[NodeId] = (), rebuilt: Mapping[int, int] | None = None) -> Topology:
    """All that a step is decided from. `own` are nodes of this process: it is alive, and sees what it reads."""
    version = topology.version(state)
    seen: dict[NodeId, Version] = dict(processes.seen(state, now)) | dict.fromkeys(own, version)
    return Topology(
        version=version,
        members=topology.members(state),
        alive=frozenset(seen),
        seen=seen,
        layouts=layouts.layouts(state),
        transitions=topology.transitions(state),
        requests=topology.open_requests(state),
        balancing=topology.is_balancing(state),
        rebuilt=rebuilt or {},
        unpublished=tuple(cdc.unpublished(state)),
    )
