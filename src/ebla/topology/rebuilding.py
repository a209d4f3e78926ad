"""What the process that leads does for nodes that are rebuilt: files that they lost are copied to them again.

The manifest says which files a node has. One that is not there, or has another size, is copied from a node that has it;
then what the manifest knows to be missing is copied, too (`ebla.topology.streaming`). What the node lacks after that is
counted from the manifest as it is then. Doing it twice finds nothing left to do, so what is done is remembered in this
process alone: another leader looks again, and a process that leads no more stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping

from ebla.base.ids import NodeId
from ebla.catalog import manifest
from ebla.catalog import transactions as tx
from ebla.errors import StorageError, StorageFullError
from ebla.model.topology import LEASE, Rebuilt, Request, RequestKind, RequestState, Topology
from ebla.relations.copies import all_missing
from ebla.storage import copies
from ebla.storage.files import copy_path
from ebla.tables.context import Context
from ebla.tables.transaction import begin_of
from ebla.topology.streaming import REPAIR, repair

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
        self._done: dict[int, Rebuilt] = {}

    @property
    def done(self) -> Mapping[int, Rebuilt]:
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
        found = None
        try:
            leadership = self._context.leadership
            with leadership.working(LEASE):
                if leadership.take(REPAIR, from_the_gone=True) is not None:
                    with leadership.working(REPAIR):
                        found = self._rebuild(request.node, sources - {request.node})
        except Exception:  # begun again with the next look
            log.exception("node=%s expected to be rebuilt, found an error", request.node)
        with self._lock:
            if found is None or self._is_over():
                self._threads.pop(request.id, None)
            else:
                self._done[request.id] = found
        self._then()

    def _is_over(self) -> bool:
        """Whether this process is to stop: it ends, or leads no more."""
        return self._stopping.is_set() or self._context.leadership.held(LEASE) is None

    def _rebuild(self, node: NodeId, sources: Collection[NodeId]) -> Rebuilt:
        reason = self._mend(node, sources)
        copied = repair(self._context, only=node, sources=sources, is_over=self._is_over)
        return Rebuilt(lacks=self._lacks(node), reason=copied.failed.get(node, reason))

    def _mend(self, node: NodeId, sources: Collection[NodeId]) -> str:
        """Copy to a node the files that it lost, for as long as its disk has room; why one could not be."""
        with self._context.catalog.reading() as connection:
            files = manifest.files_on(connection, node)
        roots, reason = self._context.roots(), ""
        lost = [file for file in files if roots[node].size(file.path) != file.bytes]
        if not lost:
            return reason
        transaction = begin_of(self._context, None, reason=f"rebuild {node}")
        try:
            with self._context.kept_alive(transaction.id):
                for number, file in enumerate(lost):
                    if self._is_over():
                        break
                    have = (other for other in sorted(file.hosts & roots.keys() & set(sources)))
                    source = next((one for one in have if roots[one].sound(file.path, file.bytes)), None)
                    if source is None:
                        reason = f"{file.path}: no sound copy to copy from"
                        continue
                    beside = copy_path(file.relation, transaction.id, number)
                    try:
                        copies.copy_checked(roots[source], roots[node], file.path, file.bytes, beside)
                    except StorageError as error:
                        reason = str(error)
                        log.warning("path=%s node=%s expected a copy, found reason=%s", file.path, node, error)
                        if isinstance(error, StorageFullError):
                            break
        finally:
            tx.abort(self._context.catalog, transaction.id)
        return reason

    def _lacks(self, node: NodeId) -> int:
        """How many files of the manifest a node has not, and how many copies it should have."""
        with self._context.catalog.reading() as connection:
            lacking = sum(one.node == node for _, found in all_missing(connection) for one in found)
            files = manifest.files_on(connection, node)
        root = self._context.roots()[node]
        gone = {file.path for file in files if root.size(file.path) != file.bytes}
        if gone:  # vacuum may have taken them meanwhile
            with self._context.catalog.reading() as connection:
                gone &= {file.path for file in manifest.files_on(connection, node)}
        return lacking + len(gone)
