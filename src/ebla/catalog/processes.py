"""The processes that have the catalog open: each keeps a row under a lease and says in it what it is doing.

A process whose lease ran out is dead to the others. Its row goes when another process next renews its own. The row of a
leader that fell silent runs out with the lease of a leader, which is shorter: what waits for it can go on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ebla.base.ids import NodeId, Version
from ebla.catalog import jobs, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, AtMost, State
from ebla.catalog.store import Catalog, insisted
from ebla.model.jobs import RunnerId

NOTHING = Version(0)
"""What a process has seen that has not looked."""


class Role(StrEnum):
    """What a process was started for."""

    PYTHON = "python"
    COMMAND = "command"
    RUN = "run"
    NODE = "node"

    @property
    def maintains(self) -> bool:
        """Whether the process was started to maintain, and not for a while."""
        return self in (Role.RUN, Role.NODE)


class Disk(NamedTuple):
    """The file system that a storage root lies on, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a process has found of its machine when it wrote its row."""

    load_1m: float | None = None
    """How many processes ran or waited to run, on average over a minute."""
    cores: int | None = None
    disks: Mapping[NodeId, Disk] = field(default_factory=dict)
    """By node that lives with the process."""


UNKNOWN = Machine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    holder: str
    """The name under which it holds leases and transactions."""
    node: NodeId
    hosts: tuple[NodeId, ...]
    """The nodes whose storage roots it keeps, and that live with it."""
    seen: Version
    """The version of the topology that it follows."""
    host: str
    pid: int
    role: Role
    maintains: bool
    """Whether it runs epochs, builds and compaction in the background now."""
    doing: tuple[str, ...]
    started_at: int
    seen_at: int
    expires_at: int


@insisted
def report(
    catalog: Catalog,
    *,
    holder: str,
    node: NodeId,
    host: str,
    pid: int,
    role: Role,
    maintains: bool,
    doing: Sequence[str],
    lease_us: int,
    hosts: Collection[NodeId] = (),
    seen: Version = NOTHING,
    runner: RunnerId | None = None,
    runner_lease_us: int = 0,
    machine: Machine = UNKNOWN,
) -> None:
    """Put or renew a process's row, and that of its runner; remove those of processes whose lease ran out long ago."""
    with catalog.writing() as connection:
        now = catalog.clock()
        if runner is not None:
            jobs.renew(connection, runner, now, runner_lease_us)
        values = {
            "role": role.value,
            "maintains": maintains,
            "doing": json.dumps(list(doing)),
            "hosts": json.dumps(sorted(hosts)),
            "seen_version": seen,
            "seen_at": now,
            "expires_at": now + lease_us,
            "load_1m": machine.load_1m,
            "cores": machine.cores,
            "disks": json.dumps(machine.disks, sort_keys=True),
        }
        if not rows.write(connection, rows.update(s.processes, values, holder=holder)):
            fixed = {"holder": holder, "node_id": node, "host": host, "pid": pid, "started_at": now}
            rows.write(connection, rows.insert(s.processes, [fixed | values]))
        rows.write(connection, rows.delete(s.processes, expires_at=AtMost(now - 10 * lease_us - 1)))


def silence(state: State, holder: str, ended_at: int | None, lease_us: int) -> None:
    """A process has let the lease of a leader run out, or has ended: its row runs out one such lease after it was last
    written, or when the process ended. A process that lives writes its row again before that."""
    row = rows.one(state, s.processes, holder=holder)
    if row is not None:
        until = row.seen_at + lease_us if ended_at is None else ended_at
        rows.write(state, rows.update(s.processes, {"expires_at": min(row.expires_at, until)}, holder=holder))


@insisted
def leave(catalog: Catalog, holder: str) -> None:
    with catalog.writing() as connection:
        rows.write(connection, rows.delete(s.processes, holder=holder))


@lru_cache(maxsize=1024)
def _names(text: str) -> tuple[str, ...]:
    """A list as its column has it: all rows are read at each look, and most are as they were."""
    return tuple(json.loads(text))


def alive(state: State, now: int) -> list[Process]:
    """The processes whose lease holds, the oldest first."""
    return [
        Process(
            holder=row.holder,
            node=NodeId(row.node_id),
            hosts=tuple(map(NodeId, _names(row.hosts or "[]"))),
            seen=Version(row.seen_version),
            host=row.host,
            pid=row.pid,
            role=Role(row.role),
            maintains=bool(row.maintains),
            doing=_names(row.doing),
            started_at=row.started_at,
            seen_at=row.seen_at,
            expires_at=row.expires_at,
        )
        for row in rows.find(state, s.processes, "started_at", expires_at=Above(now))
    ]


def machines(state: State, holders: Collection[str]) -> dict[NodeId, Machine]:
    """What these processes have last found of their machines, by node: of those with a node, the youngest one's."""
    found: dict[NodeId, Machine] = {}
    for row in rows.find(state, s.processes, "started_at"):
        if row.holder in holders:
            disks = {NodeId(node): Disk(*disk) for node, disk in json.loads(row.disks or "{}").items()}
            machine = Machine(load_1m=row.load_1m, cores=row.cores, disks=disks)
            found |= dict.fromkeys(map(NodeId, _names(row.hosts or "[]")), machine)
    return found


def seen(living: Iterable[Process]) -> dict[NodeId, Version]:
    """The nodes that live, each with the oldest version of the topology that a process of it follows."""
    found: dict[NodeId, Version] = {}
    for process in living:
        for node in process.hosts:
            found[node] = min(process.seen, found.get(node, process.seen))
    return found
