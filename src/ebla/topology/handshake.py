"""Asking the topology for something, and waiting for its answer.

What a process can check itself it checks before it asks, so that a mistake changes nothing: the same `refusal` that the
coordinator asks again when the request's turn has come (`ebla.topology.requests`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import reads
from ebla.catalog import topology as stored_topology
from ebla.errors import UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import TOPOLOGY, of_relation
from ebla.model.topology import Member, Request, RequestKind, RequestState, Topology
from ebla.tables.context import Context
from ebla.topology import admission, loader, relation_requests, requests, resize
from ebla.topology.admission import Candidate
from ebla.topology.service import Coordination


class Handshake:
    """What one process asks of the topology. Safe to use from several threads."""

    def __init__(self, context: Context, coordination: Coordination) -> None:
        self._context = context
        self._coordination = coordination

    def admit(self, candidate: Candidate) -> int | None:
        """Check what any process can of a node that asks to join, and write its request; the request.

        What is asked again finds the request that is written; `None`: the node is a member, and waits for none.
        """
        context, node, before = self._context, candidate.node, list[int | None]()
        admission.require_cluster(node.name, candidate.cluster, context.catalog.cluster_id())
        owner = context.nodes.owner(node.root)

        def decide(connection: Connection, at: Version) -> c.Decision | None:
            before.clear()
            if candidate.cluster_name is not None:
                admission.require_name(candidate, stored_topology.cluster_name(connection))
            member = stored_topology.members(connection).get(node.id)
            if member is not None:
                before.append(admission.written(candidate, member, stored_topology.requests_of(connection, node.id)))
                return None
            admission.require_root(candidate, owner)
            return admission.asking(candidate)

        return self._commit(decide) or next(iter(before), None)

    def ask(self, kind: RequestKind, name: str, parameters: Mapping[str, object]) -> int:
        """Ask something of a node, by its name or id, or say why it is impossible; the request."""

        def decide(connection: Connection, at: Version) -> c.Decision:
            state = self.topology(connection)
            node = find_member(state, name)
            request = Request(id=0, kind=kind, state=RequestState.QUEUED, node=node.id, parameters=parameters)
            wrong = requests.refusal(state, request)
            if wrong is not None:
                raise UsageError(wrong)
            asked = t.AddRequest(kind=kind, holder=self._context.holder, node=node.id, parameters=parameters)
            return c.Decision(reason=f"ask for {kind} of {name}", updates=(asked,), guards=frozenset({TOPOLOGY}))

        return self._request(decide)

    def resize(self, table: str, tablets: int) -> int:
        """Ask that a table or a view has this number of tablets, or say why it is impossible; the request."""
        target = self._context.settings.tablet_bytes_target

        def decide(connection: Connection, at: Version) -> c.Decision:
            state, relation = self.topology(connection), reads.relation(connection, table)
            wrong = resize.refusal(state, relation.id, relation.name, tablets, target)
            if wrong is not None:
                raise UsageError(wrong)
            kind, holder = RequestKind.RESIZE, self._context.holder
            asked = t.AddRequest(kind=kind, holder=holder, relation=relation.id, parameters={"tablets": tablets})
            reason = f"ask for {tablets} tablets of {relation.name}"
            return c.Decision(reason=reason, updates=(asked,), guards=frozenset({TOPOLOGY}))

        return self._request(decide)

    def ask_of(self, kind: RequestKind, relation: RelationId, parameters: Mapping[str, object]) -> int:
        """Ask something of a table or a view, or say why it is impossible; the request."""

        def decide(connection: Connection, at: Version) -> c.Decision:
            request = Request(id=0, kind=kind, state=RequestState.QUEUED, relation=relation, parameters=parameters)
            wrong = relation_requests.refusal(self.topology(connection), request)
            if wrong is not None:
                raise UsageError(wrong)
            asked = t.AddRequest(kind=kind, holder=self._context.holder, relation=relation, parameters=parameters)
            guards = frozenset({TOPOLOGY, of_relation(relation)})
            return c.Decision(reason=f"ask for {kind} of relation {relation}", updates=(asked,), guards=guards)

        return self._request(decide)

    def renew(self, table: str | None) -> int:
        """Ask for new generations of change streams, of a table or a view or of all; the request."""

        def decide(connection: Connection, at: Version) -> c.Decision:
            relation = None if table is None else reads.relation(connection, table)
            return relation_requests.renewal(relation, self._context.holder)

        return self._request(decide)

    def cancel(self, request: int) -> None:
        """Take back a request that has not begun."""

        def decide(connection: Connection, at: Version) -> c.Decision:
            found = next((r for r in stored_topology.open_requests(connection) if r.id == request), None)
            if found is None:
                row = self._answer(connection, request)
                raise UsageError(f"request {request}: expected one that has not begun, found it {row.state}")
            if found.state is not RequestState.QUEUED:
                raise UsageError(
                    f"request {request}: expected one that has not begun, found it {found.state}; "
                    "it goes on to its end, or goes back by itself"
                )
            return requests.cancellation(found)

        self._commit(decide)

    def balance(self, on: bool) -> None:
        said = "on" if on else "off"
        updates = (t.SetBalancing(on=on),)
        self._commit(
            lambda connection, at: c.Decision(reason=f"balancing {said}", updates=updates, guards=frozenset({TOPOLOGY}))
        )

    def _commit(self, decide: Callable[[Connection, Version], c.Decision | None]) -> int | None:
        committed = self._context.catalog.decide(decide, node=self._context.node)
        self._coordination.ask()
        return None if committed is None else committed.version

    def _request(self, decide: Callable[[Connection, Version], c.Decision]) -> int:
        request = self._commit(decide)
        assert request is not None, "what always decides commits"
        return request

    # ---- answers ----------------------------------------------------------------------------------------

    def wait(self, request: int) -> str:
        """Wait until a request has ended: its result, or the error that it ended with."""
        catalog, services, coordination = self._context.catalog, self._context.services, self._coordination
        most = 0
        while True:
            rounds = coordination.rounds
            row = catalog.read(lambda connection: self._answer(connection, request))
            if row.state in stored_topology.OPEN and self._context.is_watched:
                most = max(most, self._tell(request, most))
            if row.state == RequestState.DONE:
                return str(row.result)
            if row.state not in stored_topology.OPEN:
                raise UsageError(f"request {request} ({row.kind}): {row.message}")
            if not services.is_running(coordination):
                raise UsageError(f"request {request} ({row.kind}): expected an open database, found it closed")
            if not coordination.wait_round(rounds):
                coordination.ask()

    def _tell(self, number: int, most: int) -> int:
        """Show what a request waits for and which share of its tablets has moved; returns how many are left."""
        with self._context.catalog.reading() as connection:
            state = self.topology(connection)
        request = next((one for one in state.requests if one.id == number), None)
        if request is None:
            return 0
        left = requests.tablets_left(state, request)
        waits = requests.waits_for(state, request) or "the coordinator"
        part = None if left is None or not max(most, left) else 1 - left / max(most, left)
        self._context.progress(f"request {number} ({request.kind}) waits for {waits}", part)
        return left or 0

    @staticmethod
    def _answer(connection: Connection, request: int) -> Any:
        row = stored_topology.answer(connection, request)
        if row is None:
            raise UnknownNameError(
                f"request {request}: expected the id of a request, found none; SHOW REQUESTS lists them"
            )
        return row

    def topology(self, connection: Connection) -> Topology:
        context, own = self._context, self._coordination.own()
        return loader.load(connection, context.catalog.clock(), holder=context.holder, own=own)


def find_member(state: Topology, name: str) -> Member:
    """The node of a name or an id; of several of a name the one that has not left."""
    found = state.members.get(NodeId(name))
    if found is not None:
        return found
    same = [member for member in state.members.values() if member.name == name]
    if not same:
        raise UnknownNameError(requests.unknown(state, name))
    return max(same, key=lambda member: (member.state != "left", member.id))
