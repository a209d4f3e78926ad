"""What the process that leads does for nodes that are rebuilt: files that they lost are copied to them again.

The manifest says which files a node has. One that is not there, or has another size, is copied from a node that has it;
then what the manifest knows to be missing is copied, too (`ebla.topology.run_copies`). What the node lacks after that
is counted from the manifest as it is then. Doing it twice finds nothing left to do, so what is done is remembered in
this process alone: another leader looks again, and a process that leads no more stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId
from ebla.base.pace import PACE
from ebla.catalog import manifest
from ebla.catalog import transactions as tx
from ebla.model.topology import LEASE, RebuildResult, Request, RequestKind, RequestState, Topology
from ebla.relations.copies import all_missing
from ebla.storage.copying import Copier, Lack
from ebla.topology.ports import Host, Threads
from ebla.topology.run_copies import COMMIT_FILES, REPAIR, begin, repair

log = logging.getLogger("ebla.topology")

REBUILDS_MAX = 1
"""Nodes that are rebuilt at a time: requests of nodes wait for each other."""


class Rebuilds:
    """The nodes that one process rebuilds while it leads. Safe to use from several threads."""

    def __init__(self, host: Host, threads: Threads, then: Callable[[], None]) -> None:
        """`then`: called when a node has what can be copied to it."""
        self._host = host
        self._threads = threads
        self._then = then
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._under_way: set[int] = set()
        """The requests whose nodes are being rebuilt, or have been."""
        self._done: dict[int, RebuildResult] = {}

    @property
    def done(self) -> Mapping[int, RebuildResult]:
        """The requests whose nodes have what can be copied."""
        with self._lock:
            return dict(self._done)

    def act(self, topology: Topology) -> None:
        """Begin what has been asked for, and forget what has ended."""
        wanted = {
            request.id: request
            for request in topology.requests
            if request.kind is RequestKind.REBUILD and request.state is RequestState.RUNNING
        }
        with self._lock:
            self._done = {number: done for number, done in self._done.items() if number in wanted}
            new = sorted(wanted.keys() - self._under_way)
            self._under_way = set(wanted)
        for number in new:
            self._threads.begin(partial(self._run, topology, wanted[number]))

    def close(self) -> None:
        """Begin no other file, and wait for those that are being copied."""
        self._stopping.set()
        self._threads.close()

    def _run(self, topology: Topology, request: Request) -> None:
        assert request.node is not None
        source = request.parameters.get("source")
        sources = {node.id for node in topology.members.values() if source is None or node.datacenter == source}
        found = None
        try:
            leadership = self._host.leadership
            with leadership.working(LEASE):
                if leadership.take(REPAIR, from_the_gone=True) is not None:
                    with leadership.working(REPAIR):
                        found = self._rebuild(request.node, sources - {request.node})
        except Exception:  # begun again with the next look
            log.exception("node=%s expected to be rebuilt, found an error", request.node)
        with self._lock:
            if found is None or self._is_over():
                self._under_way.discard(request.id)
                return
            self._done[request.id] = found
        self._then()

    def _is_over(self) -> bool:
        """Whether this process is to stop: it ends, or leads no more."""
        return self._stopping.is_set() or self._host.leadership.held(LEASE) is None

    def _rebuild(self, node: NodeId, sources: Collection[NodeId]) -> RebuildResult:
        reason = self._mend(node, sources)
        copied = repair(self._host, only=node, sources=sources, is_over=self._is_over)
        return RebuildResult(lacks=self._lacks(node), reason=copied.failed.get(node, reason))

    def _mend(self, node: NodeId, sources: Collection[NodeId]) -> str:
        """Copy the files that a node lost to it, while its disk has room; returns why a file could not be copied."""
        with self._host.catalog.reading() as connection:
            files = manifest.files_on(connection, node)
        stored = self._host.nodes.files()
        lost = [
            Lack(file.relation, file.path, file.bytes, node, sorted(file.hosts & set(sources)))
            for file in files
            if stored.size(node, file.path) != file.bytes
        ]
        if not lost:
            return ""
        transaction = begin(self._host, None, f"rebuild {node}")
        copier = Copier(stored, transaction, is_over=self._is_over)
        try:
            with PACE.paced(self._host.settings.move_share), self._host.kept_alive(transaction):
                for first in range(0, len(lost), COMMIT_FILES):
                    copier.copy(lost[first : first + COMMIT_FILES])
                    hit("copy.files_written")
        finally:
            tx.abort(self._host.catalog, transaction)
        return copier.copied.failed.get(node, "")

    def _lacks(self, node: NodeId) -> int:
        """How many files of the manifest a node has not, and how many copies it should have."""
        with self._host.catalog.reading() as connection:
            lacking = sum(one.node == node for _, found in all_missing(connection) for one in found)
            files = manifest.files_on(connection, node)
        stored = self._host.nodes.files()
        gone = {file.path for file in files if stored.size(node, file.path) != file.bytes}
        if gone:  # vacuum may have taken them meanwhile
            with self._host.catalog.reading() as connection:
                gone &= {file.path for file in manifest.files_on(connection, node)}
        return lacking + len(gone)
