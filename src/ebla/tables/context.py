"""An open connection: what reading and writing need, and what runs in the background until it is closed."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ebla.base.caches import CacheName, Caches
from ebla.base.ids import NodeId
from ebla.base.services import Scheduler
from ebla.base.settings import Settings
from ebla.catalog.lag import Lag
from ebla.catalog.leadership import Leadership
from ebla.catalog.store import Catalog
from ebla.spark.sessions import Sessions
from ebla.storage.node_storage import NodeStorage
from ebla.tables.leases import Leases
from ebla.tables.write_access import WriteAccess, unwatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebla.tables.upkeep import IndexMaintainer

CLOSE_S = 5.0
"""How long services are waited for at close. Those that must come to an end were stopped before."""


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


@dataclass(kw_only=True, slots=True, eq=False)
class Context(WriteAccess):
    """One open connection. It holds no state of its own beside the receiver of progress, so that `tuned` shares every
    piece."""

    services: Scheduler
    leadership: Leadership

    @classmethod
    def open(
        cls,
        catalog: Catalog,
        settings: Settings,
        spark: SparkSession | None = None,
        maintainer: IndexMaintainer | None = None,
        *,
        node: NodeId | None = None,
        own: Mapping[NodeId, str] = MappingProxyType({}),
        without_spark: str | None = None,
    ) -> Context:
        """`node`: the host id of this process's node; one that only reads may do without. `own`: the storage roots of
        all nodes that live with it.

        `without_spark`: what an operation that needs Spark is answered, where none may be started.
        """
        caches = Caches(settings.read_cache_bytes)
        frames, plans = caches.cache(CacheName.FRAMES), caches.cache(CacheName.PLANS)

        def forget() -> None:
            """Forget the frames and plans of a Spark that has ended."""
            frames.clear()
            plans.clear()

        sessions = Sessions(
            spark, settings, lambda: context.progress("starting Spark", None), forget, refusal=without_spark
        )
        services, holder = Scheduler(), _holder()
        context = cls(
            catalog=catalog,
            settings=settings,
            sessions=sessions,
            storage=NodeStorage.open(catalog, settings, caches, own),
            services=services,
            leadership=Leadership(catalog, holder, settings.leader_lease_s, services),
            leases=Leases(catalog, settings.transaction_lease_s, services),
            lag=Lag(catalog, services, settings.max_lag_s),
            holder=holder,
            node=NodeId(settings.node) if node is None else node,
            maintainer=maintainer,
            frames=frames,
            plans=plans,
        )
        return context

    def tuned(self, **changed: object) -> Context:
        """This context with some settings of its own; all else is shared, Spark too."""
        if all(getattr(self.settings, name) == value for name, value in changed.items()):
            return self
        return replace(self, settings=self.settings.model_copy(update=changed))

    @property
    def maintains(self) -> bool:
        """Whether this process runs epochs and builds in the background: with a Spark that runs, or can again."""
        return self.settings.auto_refresh and self.sessions.can_work

    @property
    def is_watched(self) -> bool:
        """Whether progress is shown."""
        return self.progress is not unwatched

    # ---- the end ----------------------------------------------------------------------------------------

    def release(self) -> None:
        """End everything but the catalog, which may be another's."""
        self.services.close(CLOSE_S)
        self.storage.close()
        self.sessions.stop()

    def close(self) -> None:
        self.release()
        self.catalog.close()
