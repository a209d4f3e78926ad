"""The storage roots of all nodes, as the catalog names them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection

from ebla.base.caches import Usage
from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model.topology import LOCAL, is_local
from ebla.storage.file_cache import FileCache, Reads
from ebla.storage.files import Owner, Root
from ebla.storage.node_files import NodeFiles
from ebla.storage.remote_root import FileCalls, RemoteRoot

CACHE = "ebla-file-cache"
"""The folder of files of other nodes, in a storage root of this process."""


def place_of(catalog: Catalog, location: str) -> str:
    """Where a root of this machine lies, whether others reach it or not."""
    return catalog.located(location).removeprefix(LOCAL)


class Roots:
    """Roots by node, each opened once. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, settings: Settings, own: Mapping[NodeId, str]) -> None:
        """`own`: where the nodes of this process keep their files, whether the catalog has them yet or not."""
        self._catalog = catalog
        self._cluster = catalog.cluster_id()
        self._own = own
        self._settings = settings
        self._opened: dict[NodeId, Root] = {}
        self._cache: FileCache | None = None
        self._reads = Reads()
        self._lock = threading.Lock()
        self.calls: FileCalls | None = None
        """Calls to other processes for files under roots that are local to their machines."""

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

    def own(self, node: NodeId) -> Root | None:
        """The root of a node that lives with this process."""
        return self.of(self._own)[node] if node in self._own else None

    def owner(self, location: str) -> dict[str, str] | None:
        """Whose a root is, by its marker; `None`: it has none that is seen from here, as one of another machine."""
        return None if "://" in location else Root(place_of(self._catalog, location)).owner()

    def of(self, locations: Mapping[NodeId, str]) -> dict[NodeId, Root]:
        """The roots of these nodes."""
        with self._lock:
            for node, location in locations.items():
                if node not in self._opened:
                    self._opened[node] = self._root(node, location)
            return {node: self._opened[node] for node in locations}

    def _root(self, node: NodeId, location: str) -> Root:
        settings = self._settings
        if is_local(location) and node not in self._own:
            return RemoteRoot(node, self._file_cache(), lambda: self.calls)
        owner = Owner(self._cluster, node)
        return Root(place_of(self._catalog, location), fsync=settings.fsync, mask=settings.file_mask, owner=owner)

    # ---- files of other machines ------------------------------------------------------------------------

    def _file_cache(self) -> FileCache:
        if self._cache is None:
            places = [place_of(self._catalog, root) for root in self._own.values()]
            here = next((Path(one) / CACHE for one in places if "://" not in one), None)
            folder = here or Path(tempfile.gettempdir()) / f"{CACHE}-{os.getpid()}"
            self._cache = FileCache(folder, self._settings.file_cache_bytes, self._reads, self._settings.file_mask)
        return self._cache

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Keep the files that are fetched until the block ends."""
        return self._reads.one()

    def usage(self) -> Sequence[Usage]:
        """How full the cache of fetched files is, where there is one."""
        return [] if self._cache is None else [self._cache.usage]
