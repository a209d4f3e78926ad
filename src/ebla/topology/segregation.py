"""Cutting runs for a resize, in the background of a process.

Theory of operation. Level-triggered. While a resize is decided, each process looks after the tablets whose first live
replica is on a node of its own. For a split it cuts the level 1 runs of these tablets, and of the indexes there, that
cross the coming tablets; for a merge it folds level 0 where tablets that become one are folded up to different
versions. When nothing is left to do for a tablet, it reports the number of the resize for its nodes' replicas. What is
written meanwhile may take a report back (`ebla.catalog.resizes`); then the tablet is looked after again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ebla.base.ids import NodeId, TabletId
from ebla.base.pace import PACE
from ebla.catalog import index_states, layouts, reads, resizes, runs
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.relation import Relation
from ebla.model.topology import Layout, ResizeType, Topology
from ebla.topology import loader
from ebla.topology.ports import Cutter, Host

log = logging.getLogger("ebla.topology")

LOOK_S = 1.0
"""How often a process looks whether anything is left to cut, while a resize is decided."""


class Segregation:
    """One process's part in resizes. Safe to use from several threads."""

    name = "resize"

    def __init__(self, host: Host, own: Callable[[], frozenset[NodeId]], cutter: Cutter) -> None:
        """`own`: the nodes that live with this process."""
        self._host = host
        self._cutter = cutter
        self._own = own
        self._sizes: layouts.Sizes = {}
        """Of tablets, as they were once: no cut depends on them."""
        host.services.add(self)

    @property
    def wanted(self) -> bool:
        return not self._host.catalog.read_only

    def step(self, now_s: float) -> float | None:
        """Look after what is decided; nothing is due before the topology changes where nothing is."""
        own, host = self._own(), self._host
        with host.catalog.reading() as connection:
            if not resizes.is_any_decided(connection):
                return None
            state = loader.load(connection, host.catalog.clock(), holder=host.holder, own=own, sizes=self._sizes)
            self._sizes = {relation: layout.bytes for relation, layout in state.layouts.items()}
        for layout in state.layouts.values():
            if layout.resize.type is not ResizeType.NONE:
                self._look_after(state, layout, own)
        return host.services.clock() + LOOK_S

    def stop(self) -> None:
        """Nothing is held."""

    def _look_after(self, state: Topology, layout: Layout, own: frozenset[NodeId]) -> None:
        with self._host.catalog.reading() as connection:
            left = layouts.unready(connection, layout.relation)
            relations = of_map(connection, layout)
        due = [tablet for tablet in led_by(state, layout, own) if tablet in left]
        try:
            for relation in relations if due else ():
                self._prepare(layout, relation, due)
        except ConflictError as error:
            log.debug("relation=%s others came first reason=%s", layout.name, error)
        self._report(layout, own)

    def _prepare(self, layout: Layout, relation: Relation, due: Sequence[TabletId]) -> None:
        if layout.resize.type is ResizeType.SPLIT:
            with PACE.paced(self._host.settings.move_share):
                count = self._cutter.cut(relation, due)
            if count:
                log.info("relation=%s resize=%d cut runs=%d", relation.name, layout.resize.number, count)
            return
        with self._host.catalog.reading() as connection:
            left = runs.unready(connection, relation.id, layout.resize.type, layout.tablets)
        if left & set(due):
            count = self._cutter.fold(relation)
            log.info("relation=%s resize=%d folded runs=%d", relation.name, layout.resize.number, count)

    def _report(self, layout: Layout, own: frozenset[NodeId]) -> None:
        """Say of each node's replicas what is ready."""
        with self._host.catalog.reading() as connection:
            left = layouts.unready(connection, layout.relation)
        for host in sorted({one.host for replicas in layout.replicas for one in replicas} & own):
            ready = tuple(tablet for tablet in _tablets_to_report(layout, host) if tablet not in left)
            if not ready:
                continue
            said = t.ReportCut(relation=layout.relation, tablets=ready, host=host, number=layout.resize.number)
            reason = f"{layout.name}: {len(ready)} tablets on {host} are cut"
            try:
                self._host.catalog.commit(c.Decision(reason=reason, updates=(said,)), node=self._host.node)
            except ConflictError as error:
                log.debug("relation=%s resize=%d is over reason=%s", layout.name, layout.resize.number, error)


def led_by(state: Topology, layout: Layout, own: frozenset[NodeId]) -> list[TabletId]:
    """The tablets that this process looks after: their first live replica is on a node of its own."""
    found = []
    for tablet, replicas in enumerate(layout.replicas):
        first = next((one.host for one in replicas if one.host in state.alive), None)
        if first in own:
            found.append(TabletId(tablet))
    return found


def _tablets_to_report(layout: Layout, host: NodeId) -> list[TabletId]:
    """The tablets whose replica on a node has not reported the resize."""
    return [
        TabletId(tablet)
        for tablet, replicas in enumerate(layout.replicas)
        if any(one.host == host for one in replicas)
        and layout.reported.get((TabletId(tablet), host), 0) < layout.resize.number
    ]


def of_map(connection: Connection, layout: Layout) -> list[Relation]:
    """The relation and its indexes, which have one tablet map."""
    found = [layout.relation, *(index.index for index in index_states.of_base(connection, layout.relation))]
    relations = (reads.relation_by_id(connection, one) for one in found)
    return [relation for relation in relations if relation is not None]
