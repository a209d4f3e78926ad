"""The nodes whose tasks are done in this process: a worker and an engine for each, and calls without a network.

Theory of operation. These are the nodes whose storage roots the process reaches (`ebla.build.reach`), whichever node it
is itself: so nothing waits for another process that is not needed. A node whose process builds, too, is called there
(`LocalNodes.remote`, by `ebla.cluster.peers`). Any other call is a function call here, with the same words: it waits
until the worker answers it, and an older term is refused. The worker decides (`ebla.build.worker`); here its effects
are carried out.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId, TaskId, Term
from ebla.build.coordinator import Call, CallFailed, Event, WorkerAnswer
from ebla.build.coordinator import TermRefused as Refused
from ebla.build.engine import SparkEngine
from ebla.build.ports import Filler
from ebla.build.state import State
from ebla.build.throttles import BuildThrottles
from ebla.build.worker import Answer, Effect, Refuse, Reply, Start, Stop, Worker
from ebla.errors import StaleTermError, UnknownNameError
from ebla.model.relation import Kind
from ebla.tables.context import Context


class TermRefused(StaleTermError):
    """A worker has seen a newer leader, of this `term`."""

    def __init__(self, message: str, term: int = 0) -> None:
        super().__init__(message)
        self.term = Term(term)


class LocalNode:
    """One node's worker and engine. Safe to use from several threads."""

    def __init__(
        self,
        context: Context,
        host: NodeId,
        fillers: Mapping[Kind, Filler],
        paces: BuildThrottles,
        load: Callable[[], State],
        wrong: Callable[[RelationId, Exception], None],
    ) -> None:
        self._load = load
        self._wrong = wrong
        self._lock = threading.RLock()
        self._worker = Worker(host)
        self._calls: dict[int, Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self.engine = SparkEngine(context, host, fillers, paces, self, context.catalog.clock)

    def call(self, term: Term, shard: int, ids: Collection[TaskId]) -> Future[Answer]:
        """`work_on_view_building_tasks`."""
        with self._lock:
            number = next(self._numbers)
            future = self._calls[number] = Future()
            self._carry_out(self._worker.called(number, term, shard, ids, self._load()))
        return future

    def observed(self, state: State) -> None:
        with self._lock:
            self._carry_out(self._worker.observed(state))

    def let_go(self) -> None:
        with self._lock:
            self._carry_out(self._worker.let_go())

    def close(self) -> None:
        self.engine.close()
        with self._lock:
            for future in self._calls.values():
                future.cancel()
            self._calls.clear()

    # ---- what the engine reports ------------------------------------------------------------------------

    def finished(self, shard: int, ids: Collection[TaskId]) -> None:
        with self._lock:
            self._carry_out(self._worker.finished(shard, ids))

    def failed(self, shard: int, errors: Mapping[TaskId, str]) -> None:
        with self._lock:
            self._carry_out(self._worker.failed(shard, errors))

    def gave_way(self, shard: int, waits_us: Mapping[TaskId, int]) -> None:
        with self._lock:
            self._carry_out(self._worker.gave_way(shard, waits_us))

    def wrong(self, relation: RelationId, error: Exception) -> None:
        self._wrong(relation, error)

    # ---- effects ----------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(shard=shard, tasks=tasks):
                    self.engine.start(shard, tasks)
                case Stop(shard=shard, ids=ids):
                    self.engine.stop(shard, ids)
                case Reply(call=number, answer=answer):
                    self._calls.pop(number).set_result(answer)
                case Refuse(call=number, term=term):
                    said = f"view_building: expected term {term} or newer, found an older one; another leader rules"
                    self._calls.pop(number).set_exception(TermRefused(said, term))


def _event(call: Call, future: Future[Answer]) -> Event:
    """What came of a call, for the coordinator."""
    try:
        answer = future.result()
        hit("build.answered")
    except TermRefused as refused:
        return Refused(term=refused.term)
    except BaseException as error:  # a cancelled call, too: the node is closing
        return CallFailed(replica=call.replica, error=str(error))
    return WorkerAnswer(replica=call.replica, finished=answer.finished, failed=answer.failed, waits_us=answer.waits_us)


class LocalNodes:
    """Calls to nodes without a network: all that this process reaches. Safe to use from several threads."""

    def __init__(self, reach: Callable[[], frozenset[NodeId]], make: Callable[[NodeId], LocalNode]) -> None:
        self._reach = reach
        self._make = make
        self._lock = threading.Lock()
        self._nodes: dict[NodeId, LocalNode] = {}
        self._sent: set[Call] = set()
        self.remote: Callable[[Call], Future[Answer] | None] = lambda call: None
        """Sends a call to the process of a node, if that does its tasks itself."""

    @property
    def alive(self) -> frozenset[NodeId]:
        return self._reach()

    def work_on_view_building_tasks(self, host: NodeId, term: Term, shard: int, ids: Collection[TaskId]) -> Answer:
        """Call a worker and wait for its answer."""
        return self.call(host, term, shard, ids).result()

    def call(self, host: NodeId, term: Term, shard: int, ids: Collection[TaskId]) -> Future[Answer]:
        """The same without waiting."""
        return self._node(host).call(term, shard, ids)

    def send(self, call: Call, answered: Callable[[Event], None]) -> None:
        """Call a worker. A call that it has not answered yet is not sent again: here no message is lost."""
        with self._lock:
            if call in self._sent:
                return
            self._sent.add(call)

        def end(future: Future[Answer]) -> None:
            with self._lock:
                self._sent.discard(call)
            answered(_event(call, future))

        try:
            future = self.remote(call) or self.call(call.replica.host, call.term, call.replica.shard, call.ids)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(end)

    def _node(self, host: NodeId) -> LocalNode:
        with self._lock:
            if host not in self._nodes:
                reached = self._reach()
                if host not in reached:
                    raise UnknownNameError(
                        f"node {host}: expected one whose storage root this process reaches "
                        f"({', '.join(sorted(reached))})"
                    )
                self._nodes[host] = self._make(host)
            return self._nodes[host]

    def _all(self) -> list[LocalNode]:
        with self._lock:
            return list(self._nodes.values())

    def observed(self, state: State) -> None:
        for node in self._all():
            node.observed(state)

    def let_go(self) -> None:
        """Stop all batches: another process leads, or there is nothing to build here."""
        for node in self._all():
            node.let_go()

    def close(self) -> None:
        for node in self._all():
            node.close()
