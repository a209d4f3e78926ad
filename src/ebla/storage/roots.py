"""The storage roots of all nodes, as the catalog names them."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sqlalchemy import Connection

from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.storage.files import Root


class Roots:
    """Roots by node, each opened once. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._opened: dict[NodeId, Root] = {}
        self._lock = threading.Lock()

    def read(self, connection: Connection) -> dict[NodeId, Root]:
        """The roots of all nodes."""
        return self.of(reads.roots(connection))

    def of(self, locations: Mapping[NodeId, str]) -> dict[NodeId, Root]:
        """The roots of these nodes, and of all that were asked for before."""
        settings = self._settings
        with self._lock:
            for node, location in locations.items():
                if node not in self._opened:
                    place = self._catalog.located(location)
                    self._opened[node] = Root(place, fsync=settings.fsync, mask=settings.file_mask, claimed=True)
            return dict(self._opened)
