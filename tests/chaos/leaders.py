"""Leaders of a cluster of node processes, caught in the middle of a request."""

from __future__ import annotations

import os
import signal
import time

from ebla.base.ids import Version
from ebla.catalog import processes, topology, transactions
from ebla.catalog.store import Catalog
from ebla.cluster import local_cluster
from ebla.demo.cluster.load import TABLE
from ebla.demo.cluster.story import Story, wait
from ebla.model.topology import LEASE

TRIES = 20


def leading(catalog: Catalog) -> int | None:
    """The process that holds the lease of the topology."""
    with catalog.reading() as connection:
        holder = transactions.leader(connection, LEASE, catalog.clock())
        return next((one.pid for one in processes.alive(connection, catalog.clock()) if one.holder == holder), None)


def stopped_leader(story: Story, catalog: Catalog) -> tuple[int, int]:
    """Stop (SIGSTOP) the process that leads the topology in the middle of a request; the request, and the process."""
    for _ in range(TRIES):
        source, target = story.ends_of_tablet(0)
        request = int(story.rows(f"MOVE TABLET 0 OF {TABLE} FROM '{source}' TO '{target}'")[0]["request"])
        pid = None
        while pid is None and is_open(catalog, request):
            pid = leading(catalog)
        if pid is None:
            continue
        os.kill(pid, signal.SIGSTOP)
        if is_open(catalog, request) and leading(catalog) == pid:
            return request, pid
        os.kill(pid, signal.SIGCONT)
        wait("the end of the request", lambda: not is_open(catalog, request))  # noqa: B023
    raise AssertionError("expected to stop a leader that has something to do, found it done each time")


def is_open(catalog: Catalog, request: int) -> bool:
    with catalog.reading() as connection:
        return any(one.id == request for one in topology.open_requests(connection))


def killed_leader(story: Story, catalog: Catalog) -> tuple[str, float, Version, int]:
    """Kill a leader in the middle of a request: its node, when, the version of the topology then, and the request."""
    request, pid = stopped_leader(story, catalog)
    [name] = [one.name for one in story.cluster.nodes if process_id(story, one.name) == pid]
    began = time.monotonic()
    local_cluster.end(pid, signal.SIGKILL, 10)
    return name, began, catalog.read(topology.version), request


def process_id(story: Story, name: str) -> int | None:
    place = story.cluster.place(name)
    return None if place is None else place.pid
