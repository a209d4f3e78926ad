"""Metrics of the cluster: its nodes, what moves, what was asked for and waits, and which copies are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ebla.base.ids import NodeId
from ebla.catalog import processes, topology
from ebla.catalog.processes import Machine
from ebla.catalog.store import Catalog
from ebla.model.lifecycle.node import NodeState
from ebla.relations import copies


class ClusterMetrics(Collector):
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def describe(self) -> Iterable[Metric]:
        return []  # so that registering reads nothing

    def collect(self) -> Iterator[Metric]:
        with self._catalog.reading() as connection:
            members = [one for one in topology.members(connection).values() if one.state is not NodeState.LEFT]
            living = processes.alive(connection, self._catalog.clock())
            followed = processes.seen(living)
            machines = processes.machines(connection, {one.holder for one in living})
            version = topology.version(connection)
            transitions = topology.transitions(connection).values()
            requests = topology.open_requests(connection)
            lacking = copies.all_missing(connection)
        alive = GaugeMetricFamily(
            "ebla_node_alive", "1 if a process of the node renews its lease.", labels=("node", "state")
        )
        behind = GaugeMetricFamily(
            "ebla_node_behind_versions",
            "Versions of the topology that the node has not seen; only of nodes that live.",
            labels=("node",),
        )
        for one in members:
            alive.add_metric([one.name, one.state.value], float(one.id in followed))
            if one.id in followed:
                behind.add_metric([one.name], float(max(0, version - followed[one.id])))
        moving = GaugeMetricFamily("ebla_tablet_transitions", "Tablets in transition, by stage.", labels=("stage",))
        for stage, count in sorted(Counter(one.stage.value for one in transitions).items()):
            moving.add_metric([stage], count)
        asked = GaugeMetricFamily("ebla_topology_requests", "Requests that have not ended, by kind.", labels=("kind",))
        for kind, count in sorted(Counter(one.kind.value for one in requests).items()):
            asked.add_metric([kind], count)
        few = GaugeMetricFamily("ebla_missing_copies", "Copies of runs that nodes lack.", labels=("relation",))
        for relation, missing in lacking:
            few.add_metric([relation.name], len(missing))
        yield from (alive, behind, moving, asked, few)
        yield from _machines({one.name: (one.id, machines[one.id]) for one in members if one.id in machines})


def _machines(found: Mapping[str, tuple[NodeId, Machine]]) -> Iterator[Metric]:
    """By name of the node."""
    free = GaugeMetricFamily("ebla_node_disk_free_bytes", "Free bytes of the disk of a node's root.", labels=("node",))
    total = GaugeMetricFamily("ebla_node_disk_bytes", "Bytes of the disk of a node's root.", labels=("node",))
    load = GaugeMetricFamily("ebla_node_load1", "The load of the node's machine over a minute.", labels=("node",))
    cores = GaugeMetricFamily("ebla_node_cores", "Cores of the node's machine.", labels=("node",))
    for name, (node, machine) in found.items():
        if node in machine.disks:
            free.add_metric([name], machine.disks[node].free)
            total.add_metric([name], machine.disks[node].total)
        if machine.load_1m is not None:
            load.add_metric([name], machine.load_1m)
        if machine.cores is not None:
            cores.add_metric([name], machine.cores)
    yield from (free, total, load, cores)
