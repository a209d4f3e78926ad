"""This process as a part of the cluster: its row in `system.processes`, and the topology, which it follows and asks."""

from __future__ import annotations

from collections.abc import Sequence

from ebla.base.ids import Version
from ebla.catalog.processes import Role
from ebla.model.topology import Member
from ebla.node.assignment import Assignment
from ebla.node.presence import Presence
from ebla.tables.context import Context
from ebla.tables.split import Cutting
from ebla.topology.handshake import Handshake
from ebla.topology.segregation import Segregation
from ebla.topology.service import LOOK_S, Coordination


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

    def join(self, nodes: Sequence[Member]) -> None:
        """Have nodes of this process become members, and wait until they are."""
        if nodes:
            self.presence.appear()
        for request in [self.handshake.join(node) for node in nodes]:
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
