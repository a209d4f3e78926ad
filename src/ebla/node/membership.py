"""This process as a part of the cluster: its row in `system.processes`, and the topology, which it follows and asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ebla.base.ids import Version
from ebla.catalog.processes import Role
from ebla.catalog.store import Catalog
from ebla.model.topology import Member
from ebla.node.assignment import Assignment
from ebla.node.presence import Presence
from ebla.tables.context import Context
from ebla.tables.split import Cutting
from ebla.topology.admission import Candidate
from ebla.topology.handshake import Handshake
from ebla.topology.segregation import Segregation
from ebla.topology.service import LOOK_S, Coordination

Ask = Callable[[Catalog, Candidate], int | None]
"""Asks a living process of the cluster to take a node's request; the request, `None`: no process took it."""


def ask_no_other(catalog: Catalog, candidate: Candidate) -> None:
    """Of a process that calls no other one."""


class Membership:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._segregation = Segregation(context, own=context.nodes.living, cutter=Cutting(context))
        saw = lambda: context.services.wake(Presence.name, Segregation.name)  # noqa: E731
        self.coordination = Coordination(context, own=context.nodes.living, saw=saw)
        self.handshake = Handshake(context, self.coordination)

    def show(self, role: Role, assignment: Assignment) -> None:
        """Keep a row in `system.processes` that says what this process does, and follow the topology."""
        self.presence = Presence(self._context, role, self.coordination, assignment)
        if role is Role.NODE:
            self.presence.appear()  # others ask at once whether it lives
        self.presence.start()
        self.coordination.start()

    def join(self, nodes: Sequence[Member], ask: Ask) -> None:
        """Have nodes of this process become members, and wait until they are.

        `ask` brings a node's request to a living process of the cluster; where none takes it, as where there is no
        other, this one writes it itself.
        """
        if not nodes:
            return
        self.presence.appear()
        catalog, holder = self._context.catalog, self._context.holder
        candidates = [Candidate(node=node, holder=holder, cluster=catalog.cluster_id()) for node in nodes]
        asked = [ask(catalog, one) or self.handshake.admit(one) for one in candidates]
        self.coordination.ask()  # the leader waits for this process to have seen its steps
        for request in asked:
            if request is not None:
                self.handshake.wait(request)

    def follow(self, version: Version) -> Version:
        """Follow the topology up to a version that another process has committed; returns the version that is followed.

        This process's row says which one it is before this returns. It waits one look (`LOOK_S`) at most: the version
        may be lower then. A transaction has ended there, for which a step of this process may wait.
        """
        self.coordination.ended()
        if self.coordination.seen < version:
            self.coordination.ask()
            self._context.services.wait_for(lambda: self.coordination.seen >= version, LOOK_S)
            self.presence.appear()
        return self.coordination.seen
