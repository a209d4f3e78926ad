"""A leader of the topology that dies is followed within its lease and a second, wherever in a request it dies.

Time is simulated: what is counted is what the leases, the rows of processes and the pauses between looks add up to.
The processes are on machines of their own, so that no other one knows at once that the leader has ended.
"""

from __future__ import annotations

import pytest

from ebla.base.ids import Version
from ebla.base.settings import Settings
from ebla.catalog import processes, topology
from ebla.catalog.processes import Process
from ebla.cluster.config import DEFAULTS
from ebla.model.topology import LEASE, RequestKind
from simulation.cluster import Cluster
from simulation.faults import MS, SECOND
from simulation.hosts import Host

SEEDS = 25
LEASE_S = float(str(DEFAULTS["leader_lease_s"]))
MORE_S = 1.0
"""What may pass beyond the lease."""


class Calm(Cluster):
    """A cluster with the leases of node processes in which nothing fails but what a test lets fail."""

    def new_settings(self) -> Settings:
        return Settings.model_validate(DEFAULTS)

    def leading(self) -> Host | None:
        return next((host for host in self.living() if host.holder == self.leader()), None)

    def topology_version(self) -> Version:
        return topology.version(self.catalog.tables)

    def ask_for_a_move(self) -> None:
        [base] = self.catalog.bases.values()
        here = {replica.host for replica in self.topology().layouts[base.id].replicas[0]}
        source = self.chance.choice(sorted(here))
        target = self.chance.choice(sorted(self.disks.keys() - here))
        given = {"tablet": 0, "source": source, "target": target}
        self.chance.choice(self.living()).handshake.ask_of(RequestKind.MOVE, base.id, given)


def row_of(world: Cluster, host: Host) -> Process:
    """The row of a process, which is alive to the others."""
    [found] = [one for one in processes.alive(world.catalog.tables, world.now) if one.holder == host.holder]
    return found


def calm(seed: int) -> Calm:
    """A cluster of three nodes, of which at least one does not have the tablet, in the middle of a move."""
    while len((world := Calm(seed)).disks) < 3:
        seed += 10_000
    world.healed = True
    world.create_base(tablets=1, rows=3)
    [base] = world.catalog.bases.values()
    if len(world.topology().layouts[base.id].replicas[0]) == len(world.disks):
        return calm(seed + 10_000)
    world.run_until(world.now + world.chance.randint(3_000, 8_000) * MS)
    return world


def followed_s(seed: int, steps: int) -> float:
    """How long after the death of a leader, some steps behind a request, the next step is committed."""
    world = calm(seed)
    world.ask_for_a_move()
    began = world.topology_version()
    world.run_until(world.now + 30 * SECOND, lambda: world.topology_version() >= began + steps)
    world.run_until(world.now + 30 * SECOND, lambda: world.leading() is not None)
    leader = world.leading()
    assert leader is not None
    world.run_until(world.now + world.chance.randint(0, 20) * MS)
    assert topology.open_requests(world.catalog.tables), "the leader has come to the end of the request"
    world.kill(leader.node)
    died, before = world.now, world.topology_version()
    world.run_until(died + 30 * SECOND, lambda: world.topology_version() != before)
    return (world.now - died) / SECOND


@pytest.mark.parametrize("steps", range(6))
def test_a_leader_that_dies_is_followed_within_its_lease_and_a_second(steps: int):
    found = {seed: followed_s(seed, steps) for seed in range(SEEDS)}
    late = {seed: seconds for seed, seconds in found.items() if seconds > LEASE_S + MORE_S}
    assert not late


def test_a_leader_that_only_loses_its_lease_stays_alive_to_the_others():
    """Its row is cut short, and written again before it runs out."""
    world = calm(0)
    leader, other = world.living()[:2]
    assert leader.leadership.take(LEASE) is not None
    world.run_until(world.now + int((LEASE_S + 0.1) * SECOND))
    before = row_of(world, leader).expires_at
    assert other.leadership.take(LEASE, until_given_back=True) is not None
    assert row_of(world, leader).expires_at == row_of(world, leader).seen_at + LEASE_S * SECOND < before
    cut_at, seen = world.now, set[int]()
    for ms in range(0, 10_000, 50):
        world.at(cut_at + ms * MS, lambda: seen.add(row_of(world, leader).seen_at))
    world.run_until(cut_at + 10 * SECOND)
    assert max(seen) > cut_at
