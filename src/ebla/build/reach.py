"""Which nodes' storage roots this process reaches.

Theory of operation. Nodes do not call each other: the leader's process does the tasks of every node whose root it
reaches. A root is reached if the marker in it names the catalog and the node; an empty mount point, or another
warehouse in its place, is not it.
"""

from __future__ import annotations

import threading
import time

from ebla.base.ids import NodeId
from ebla.errors import EblaError
from ebla.storage.files import Root
from ebla.tables.context import Context

LOOK_S = 1.0
"""How long an answer is taken for true."""


class Reach:
    """Safe to use from several threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cluster: str | None = None
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        self._found: frozenset[NodeId] = frozenset()

    def nodes(self) -> frozenset[NodeId]:
        """The nodes whose tasks can be done in this process."""
        with self._lock:
            if time.monotonic() - self._looked_s >= LOOK_S:
                if self._cluster is None:
                    self._cluster = self._context.catalog.cluster_id()
                roots = self._context.roots()
                self._found = frozenset(node for node, root in roots.items() if is_of(root, self._cluster, node))
                self._looked_s = time.monotonic()
            return self._found


def is_of(root: Root, cluster: str, node: NodeId) -> bool:
    """Whether a root is there, and is this node's."""
    try:
        owner = root.owner() or {}
        return owner.get("cluster") == cluster and owner.get("node") == node
    except (EblaError, OSError, ValueError):  # it cannot be read, or is no marker
        return False
