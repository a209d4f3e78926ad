"""The files of all nodes as one process uses them: their roots, what it keeps of them in memory, and a DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebla.base.caches import CacheName, Caches
from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog.store import Catalog
from ebla.storage.duck import Duck
from ebla.storage.roots import Roots
from ebla.storage.runs import LevelZeroCache
from ebla.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeStorage:
    """Pieces that each know one thing and may be used from several threads."""

    nodes: Roots
    caches: Caches
    store: Store
    level0: LevelZeroCache
    lookups: Duck

    @classmethod
    def open(cls, catalog: Catalog, settings: Settings, caches: Caches, own: Mapping[NodeId, str]) -> NodeStorage:
        """`own`: where the nodes of this process keep their files."""
        nodes = Roots(catalog, settings, own)
        caches.others.append(nodes.usage)
        return cls(
            nodes=nodes,
            caches=caches,
            store=Store(caches),
            level0=LevelZeroCache(caches.cache(CacheName.LEVEL0)),
            lookups=Duck(settings.driver_memory_bytes),
        )

    def close(self) -> None:
        self.store.close()
        self.lookups.close()
