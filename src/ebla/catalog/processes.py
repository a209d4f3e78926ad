"""The processes that have the catalog open: each keeps a row under a lease and says in it what it is doing.

A process whose lease ran out is dead to the others. Its row goes when another process next renews its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ebla.base.ids import NodeId, Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, AtMost, State
from ebla.catalog.store import Catalog, insisted

NOTHING = Version(0)
"""What a process has seen that has not looked."""


class Role(StrEnum):
    """What a process was started for."""

    PYTHON = "python"
    COMMAND = "command"
    RUN = "run"


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
) -> None:
    """Put or renew a process's row; remove those of processes whose lease ran out long ago."""
    with catalog.writing() as connection:
        now = catalog.clock()
        values = {
            "role": role.value,
            "maintains": maintains,
            "doing": json.dumps(list(doing)),
            "hosts": json.dumps(sorted(hosts)),
            "seen_version": seen,
            "seen_at": now,
            "expires_at": now + lease_us,
        }
        if not rows.write(connection, rows.update(s.processes, values, holder=holder)):
            fixed = {"holder": holder, "node_id": node, "host": host, "pid": pid, "started_at": now}
            rows.write(connection, rows.insert(s.processes, [fixed | values]))
        rows.write(connection, rows.delete(s.processes, expires_at=AtMost(now - 10 * lease_us - 1)))


@insisted
def leave(catalog: Catalog, holder: str) -> None:
    with catalog.writing() as connection:
        rows.write(connection, rows.delete(s.processes, holder=holder))


def alive(state: State, now: int) -> list[Process]:
    """The processes whose lease holds, the oldest first."""
    return [
        Process(
            holder=row.holder,
            node=NodeId(row.node_id),
            hosts=tuple(map(NodeId, json.loads(row.hosts or "[]"))),
            seen=Version(row.seen_version),
            host=row.host,
            pid=row.pid,
            role=Role(row.role),
            maintains=bool(row.maintains),
            doing=tuple(json.loads(row.doing)),
            started_at=row.started_at,
            seen_at=row.seen_at,
            expires_at=row.expires_at,
        )
        for row in rows.find(state, s.processes, "started_at", expires_at=Above(now))
    ]


def seen(living: Iterable[Process]) -> dict[NodeId, Version]:
    """The nodes that live, each with the oldest version of the topology that a process of it follows."""
    found: dict[NodeId, Version] = {}
    for process in living:
        for node in process.hosts:
            found[node] = min(process.seen, found.get(node, process.seen))
    return found
