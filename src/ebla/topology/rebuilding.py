"""What the process that leads does for nodes that are rebuilt: files that they lost are copied to them again.

The manifest says which files a node has. One that is not there, or has another size, is copied from a node that has it;
then what the manifest knows to be missing is copied, too (`ebla.topology.streaming`). Doing it twice finds nothing left
to do, so what is done is remembered in this process alone: another leader looks again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ebla.base.ids import NodeId
from ebla.catalog import manifest
from ebla.errors import EblaError, StorageError
from ebla.model.topology import Request, RequestKind, RequestState, Topology
from ebla.storage import copies
from ebla.storage.files import Root
from ebla.tables.context import Context
from ebla.topology.streaming import repair

log = logging.getLogger("ebla.topology")


class Rebuilding:
    """The nodes that one process rebuilds while it leads. Safe to use from several threads."""

    def __init__(self, context: Context, then: Callable[[], None]) -> None:
        """`then`: called when a node has what can be copied to it."""
        self._context = context
        self._then = then
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._lost: dict[int, int] = {}

    @property
    def done(self) -> Mapping[int, int]:
        """The requests whose nodes have what can be copied, each with how many files no node has."""
        with self._lock:
            return dict(self._lost)

    def act(self, topology: Topology) -> None:
        """Begin what has been asked for, and forget what has ended."""
        wanted = {
            request.id: request
            for request in topology.requests
            if request.kind is RequestKind.REBUILD and request.state is RequestState.RUNNING
        }
        with self._lock:
            self._lost = {number: lost for number, lost in self._lost.items() if number in wanted}
            self._threads = {number: thread for number, thread in self._threads.items() if number in wanted}
            for number in wanted.keys() - self._threads.keys():
                thread = threading.Thread(target=self._run, args=(topology, wanted[number]), name="ebla-rebuild")
                thread.start()
                self._threads[number] = thread

    def close(self) -> None:
        """Begin no other file, and wait for those that are being copied."""
        self._stopping.set()
        for thread in list(self._threads.values()):
            thread.join()

    def _run(self, topology: Topology, request: Request) -> None:
        assert request.node is not None
        source = request.parameters.get("source")
        sources = {node.id for node in topology.members.values() if source is None or node.datacenter == source}
        try:
            lost = self._mend(request.node, sources)
            repair(self._context)
            with self._lock:
                if not self._stopping.is_set():
                    self._lost[request.id] = lost
        except EblaError as error:  # the catalog does not answer: begun again with the next look
            log.warning("node=%s expected to be rebuilt, found reason=%s", request.node, error)
            with self._lock:
                self._threads.pop(request.id, None)
        self._then()

    def _mend(self, node: NodeId, sources: set[NodeId]) -> int:
        """Copy to a node the files that it lost; how many of them no source has."""
        with self._context.catalog.reading() as connection:
            files = manifest.files_on(connection, node)
        roots, lost = self._context.roots(), 0
        for file in files:
            if self._stopping.is_set():
                break
            if roots[node].size(file.path) != file.bytes and not _copied(roots, node, file, sources):
                lost += 1
        return lost


def _copied(roots: Mapping[NodeId, Root], node: NodeId, file: manifest.File, sources: set[NodeId]) -> bool:
    for other in sorted(file.hosts & sources - {node}):
        try:
            if other in roots and roots[other].size(file.path) == file.bytes:
                copies.copy_checked(roots[other], roots[node], file.path, file.bytes, f"{file.path}.copy")
                return True
        except StorageError as error:
            log.warning("path=%s node=%s expected a copy, found none reason=%s", file.path, node, error)
    return False
