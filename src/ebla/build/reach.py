"""Which nodes' storage roots this process reaches.

Theory of operation. The leader calls the process of a node, if that lives and builds; the tasks of every other node
whose root it reaches it does itself. A root is reached if the marker in it names the catalog and the node; an empty
mount point, or another warehouse in its place, is not it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ebla.base.ids import NodeId

LOOK_S = 1.0
"""How long an answer is taken for true."""


class Reach:
    """Safe to use from several threads."""

    def __init__(self, look: Callable[[], frozenset[NodeId]]) -> None:
        """`look` says which nodes' roots are there now."""
        self._look = look
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        self._found: frozenset[NodeId] = frozenset()

    def nodes(self) -> frozenset[NodeId]:
        """The nodes whose tasks can be done in this process."""
        with self._lock:
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._found = self._look()
                self._looked_s = time.monotonic()
            return self._found
