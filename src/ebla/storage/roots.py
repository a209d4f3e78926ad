"""The storage roots of all nodes, as the catalog names them."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sqlalchemy import Connection

from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.storage.files import Owner, Root
from ebla.storage.node_files import NodeFiles


class Roots:
    """Roots by node, each opened once. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, settings: Settings, own: Mapping[NodeId, str]) -> None:
        """`own`: where the nodes of this process keep their files, whether the catalog has them yet or not."""
        self._catalog = catalog
        self._cluster = catalog.cluster_id()
        self._own = own
        self._settings = settings
        self._opened: dict[NodeId, Root] = {}
        self._lock = threading.Lock()

    def read(self, connection: Connection) -> dict[NodeId, Root]:
        """The roots of all nodes that may hold replicas."""
        return self.of(reads.roots(connection))

    def all(self) -> dict[NodeId, Root]:
        """The same, as the catalog is now."""
        with self._catalog.reading() as connection:
            return self.read(connection)

    def files(self) -> NodeFiles:
        """The files of all nodes that may hold replicas."""
        return NodeFiles(self._catalog.read(self.read))

    def living(self) -> frozenset[NodeId]:
        """The nodes that live with this process: its own, if their roots are there."""
        return frozenset(node for node, root in self.of(self._own).items() if root.is_writable)

    def of(self, locations: Mapping[NodeId, str]) -> dict[NodeId, Root]:
        """The roots of these nodes."""
        settings = self._settings
        with self._lock:
            for node, location in locations.items():
                if node not in self._opened:
                    place = self._catalog.located(location)
                    owner = Owner(self._cluster, node)
                    self._opened[node] = Root(place, fsync=settings.fsync, mask=settings.file_mask, owner=owner)
            return {node: self._opened[node] for node in locations}
