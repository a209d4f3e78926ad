"""The building of views and indexes in one process: the loop, and the parts that it works with.

Theory of operation. The loop and what it decides with know ports alone (`ebla.build.ports`), so that they run in a
simulation. Here they get what stands behind the ports in a process: the catalog, workers and engines, fillers of views
and of indexes, and the settler. A statement that waits for a build waits here (`until`), and the loop works meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ebla.base.ids import NodeId, RelationId
from ebla.build.build_store import BuildStore
from ebla.build.fillers import fillers
from ebla.build.loop import BUILDING, Loop, Ports
from ebla.build.node import LocalNode, LocalNodes
from ebla.build.reach import Reach
from ebla.build.settlement import Settlement
from ebla.build.settler import Settler
from ebla.build.throttles import BuildThrottles
from ebla.build.trouble import Failures
from ebla.indexes import walk
from ebla.tables.context import Context
from ebla.views.handlers.epochs import Epochs


class Builder:
    """The builds of one open database."""

    def __init__(self, context: Context, epochs: Epochs, written: Callable[[str], None]) -> None:
        """`written` is called with the names of relations that were built: many small chunks are many runs."""
        self._context = context
        self._paces = BuildThrottles()
        self._fillers = fillers(context, epochs)
        self._failures = Failures(context.services.notify)
        settler = Settler(context, epochs, written)
        services = context.services
        settlement = Settlement(
            context.catalog, services, context.holder, settler, lambda: services.wake(BUILDING), self._failures.note
        )
        self.nodes = LocalNodes(Reach(context.reached).nodes, self._node)
        self.called = LocalNodes(Reach(context.reached).nodes, self._node)
        """What other processes ask this one to build: it goes on while this process does not lead."""
        self._store = BuildStore(
            context.catalog, context.node, lambda: self.nodes.alive, settlement.checked, settler.forgive
        )
        self.loop = Loop(
            context.holder,
            Ports(
                services=context.services,
                leases=context.leadership,
                store=self._store,
                nodes=self.nodes,
                settlement=settlement,
                failures=self._failures,
                clock_us=context.catalog.clock,
                maintains=lambda: context.maintains,
                walk=lambda requires: walk.step(context, requires),
                built=settler.built,
            ),
        )

    def until(
        self, over: Callable[[], bool], relations: Sequence[RelationId] = (), *, only_walk: bool = False
    ) -> dict[RelationId, list[Exception]]:
        """Build until a condition holds; errors of these relations meanwhile. A database that is away is waited for."""
        patience = self._context.catalog.patience
        return self.loop.wait(relations, lambda: patience.insist(over, twice=True), only_walk=only_walk)

    def _node(self, host: NodeId) -> LocalNode:
        return LocalNode(self._context, host, self._fillers, self._paces, self._store.load, self._failures.note)
