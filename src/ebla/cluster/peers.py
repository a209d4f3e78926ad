"""The other nodes of a cluster, as one process calls them: wake-ups for what it commits, and tasks of builds.

Theory of operation. A commit wakes the service `push`; its step reads which processes live and wakes them by threads of
a pool, one message at a time to each. What is committed meanwhile goes with the next message, so a burst of commits is
few messages. The answer to a wake-up for a step of the topology says that the receiver follows it: then this process
looks whether the barrier is passed. A node that cannot be reached is left alone for a while: it finds everything in the
catalog, as all nodes do.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx

from ebla.base.ids import NodeId, TaskId
from ebla.base.precedence import PRECEDENCE
from ebla.build.coordinator import Call
from ebla.build.node import TermRefused
from ebla.build.worker import Answer
from ebla.catalog import processes, topology
from ebla.cluster.file_calls import FileCalls
from ebla.cluster.peer import CONNECT_S, LEFT_ALONE_S, Peer, calling, with_address
from ebla.errors import EblaError, NodeUnavailableError
from ebla.model.topology import BUILDING_CALLS, features_in_use
from ebla.server.rpc import WORK_S

if TYPE_CHECKING:
    from ebla.api.database import Database
    from ebla.base.services import Scheduler

log = logging.getLogger("ebla.rpc")

GAP_S = 0.05
"""Between two messages to all: commits of this time share one."""
CENSUS_S = 1.0
"""How long a list of the living is taken for true."""
WAKE_S = 3.0
CALLS_MAX = 32


class Push:
    """The service that wakes the others behind commits: at once, and behind the gap since the last time."""

    name = "push"
    wanted = True

    def __init__(
        self,
        services: Scheduler,
        look: Callable[[], tuple[int, Iterable[Peer]]],
        wake: Callable[[Peer, int], None],
    ) -> None:
        self._services = services
        self._look = look
        """The version of the topology, and who lives."""
        self._wake = wake
        self._next_s = -math.inf
        """The end of the gap."""

    def ask(self) -> None:
        """Something was committed. Returns at once."""
        self._services.wake_in(self.name, max(0.0, self._next_s - self._services.clock()))

    def step(self, now_s: float) -> float | None:
        self._next_s = now_s + GAP_S
        try:
            with PRECEDENCE.beside():
                version, peers = self._look()
        except EblaError as error:
            log.debug("push: expected to read who lives, found reason=%s", error)
            return None
        for peer in peers:
            self._wake(peer, version)
        return None

    def stop(self) -> None:
        """It holds nothing."""


class Peers:
    """A context manager: it calls until the block ends."""

    def __init__(self, database: Database, secret: str, ca_file: str | None = None) -> None:
        self._database = database
        self._services = database.context.services
        self._clock = self._services.clock
        self._over = False
        self._census: tuple[float, dict[NodeId, Peer]] = (float("-inf"), {})
        self._by_address: dict[str, Peer] = {}
        self._lock = threading.Lock()
        self._client = calling(secret, ca_file, WAKE_S)
        self._calls = ThreadPoolExecutor(CALLS_MAX, "ebla-rpc")
        self._push = Push(self._services, self._look, self._wake)

    def __enter__(self) -> Peers:
        self._services.add(self._push)
        self._database.context.catalog.announce = self._push.ask
        self._database.builder.nodes.remote = self.work
        self._database.context.nodes.calls = FileCalls(self._client, self.living)
        return self

    def __exit__(self, *raised: object) -> None:
        self._database.context.catalog.announce = lambda: None
        self._database.builder.nodes.remote = lambda call: None
        self._database.context.nodes.calls = None
        self._over = True
        self._services.stop(self._push.name, timeout_s=WAKE_S)
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    # ---- who is there -----------------------------------------------------------------------------------

    def living(self) -> dict[NodeId, Peer]:
        """The nodes of other processes that live and have an address."""
        with self._lock:
            read_s, found = self._census
            if self._clock() - read_s < CENSUS_S:
                return found
            found = self._read()
            self._census = self._clock(), found
            return found

    def _read(self) -> dict[NodeId, Peer]:
        context = self._database.context
        with context.catalog.reading() as connection:
            members = topology.members(connection)
            living = processes.alive(connection, context.catalog.clock())
        calls = BUILDING_CALLS in features_in_use(members.values())
        found: dict[NodeId, Peer] = {}
        for process, _, address in with_address(members, living):
            if process.holder != context.holder:
                peer = self._by_address.setdefault(address, Peer(address))
                peer.builds = process.maintains and calls
                found |= dict.fromkeys(process.hosts, peer)
        return found

    # ---- wake-ups ---------------------------------------------------------------------------------------

    def _look(self) -> tuple[int, Iterable[Peer]]:
        return int(self._database.context.catalog.read(topology.version)), {*self.living().values()}

    def _wake(self, peer: Peer, version: int) -> None:
        """Send a wake-up, or have the one that is under way be followed by another."""
        with self._lock:
            peer.again = peer.is_called
            if self._over or peer.is_called or self._clock() < peer.alone_until_s:
                return
            peer.is_called = True
        self._calls.submit(self._send, peer, version)

    def _send(self, peer: Peer, version: int) -> None:
        moved = version > peer.topology
        try:
            answer = self.post(peer, "wake", {"topology": version}, WAKE_S)
            peer.topology = max(peer.topology, int(answer["topology"]))
        except NodeUnavailableError as error:
            log.info("push: expected %s to answer, found reason=%s; it looks by itself", peer.address, error)
            peer.alone_until_s = self._clock() + LEFT_ALONE_S
        finally:
            with self._lock:
                peer.is_called, again = False, peer.again
        if moved:
            self._database.background.membership.coordination.ask()
        if again:
            self._push.ask()

    # ---- building ---------------------------------------------------------------------------------------

    def work(self, call: Call) -> Future[Answer] | None:
        """Have the process of a node do tasks of it; `None`: they are done here."""
        try:
            peer = self.living().get(call.replica.host)
        except EblaError:
            return None
        if peer is None or not peer.builds or self._clock() < peer.alone_until_s or self._over:
            return None
        return self._calls.submit(self._work, peer, call)

    def _work(self, peer: Peer, call: Call) -> Answer:
        body = {"host": call.replica.host, "term": call.term, "shard": call.replica.shard, "ids": list(call.ids)}
        try:
            found = self.post(peer, "work_on_view_building_tasks", body, WORK_S + WAKE_S)
        except NodeUnavailableError:
            peer.alone_until_s = self._clock() + LEFT_ALONE_S
            raise
        if found["refused_by"] is not None:
            raise TermRefused("view_building: expected the newest term, found that a node knows a newer one; another "
                              "leader rules", found["refused_by"])  # fmt: skip
        return Answer(
            finished=frozenset(TaskId(one) for one in found["finished"]),
            failed={TaskId(one): str(error) for one, error in found["failed"].items()},
            waits_us={TaskId(one): int(wait) for one, wait in found["waits_us"].items()},
        )

    def post(self, peer: Peer, name: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Call a process; its answer. `NodeUnavailableError`: it gave none, or is not what it should be."""
        try:
            answer = self._client.post(
                f"{peer.address}/rpc/{name}", json=body, timeout=httpx.Timeout(timeout_s, connect=CONNECT_S)
            )
            found: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError, RuntimeError) as error:
            raise NodeUnavailableError(f"{peer.address}: {str(error) or type(error).__name__}") from error
        if not answer.is_success:
            raise NodeUnavailableError(f"{peer.address}: {found.get('detail', answer.status_code)}")
        return found
