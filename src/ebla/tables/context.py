"""What operations share: the catalog, this node's settings, storage roots, Spark once it is wanted, and caches."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ebla.base.activities import Activities, Progress
from ebla.base.caches import CacheName, Caches, Lru
from ebla.base.ids import NodeId, TransactionId
from ebla.base.services import Scheduler
from ebla.base.settings import Settings
from ebla.catalog.lag import Lag
from ebla.catalog.leadership import Leadership
from ebla.catalog.store import Catalog
from ebla.relations.indexes import IndexCache
from ebla.spark.sessions import Sessions
from ebla.storage.files import Root
from ebla.storage.node_storage import NodeStorage
from ebla.storage.roots import Roots
from ebla.tables.leases import Leases

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

    from ebla.tables.upkeep import IndexMaintainer

CLOSE_S = 5.0
"""How long services are waited for at close. Those that must come to an end were stopped before."""


def _unwatched(what: str, part: float | None) -> None:
    """Progress is not shown."""


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


@dataclass(kw_only=True, slots=True, eq=False)
class Context:
    """One open connection: pieces that each know one thing and may be used from several threads, and its settings.

    It holds no state of its own beside the receiver of progress, so that `tuned` shares every piece.
    """

    catalog: Catalog
    settings: Settings
    sessions: Sessions
    storage: NodeStorage
    services: Scheduler
    leadership: Leadership
    leases: Leases
    lag: Lag
    maintainer: IndexMaintainer | None
    """Computes the entries of indexes of tables that are written to. A context that only reads has none."""
    frames: Lru[Any]
    """DataFrames of recent snapshots, by what they read."""
    plans: Lru[Any]
    """Prepared queries of small epochs, by the query and the columns that it reads."""
    holder: str
    node: NodeId
    """The host id of the node that this process is."""
    indexes: IndexCache = field(default_factory=IndexCache)
    activities: Activities = field(default_factory=Activities)
    progress: Progress = _unwatched

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

    # ---- what is done -----------------------------------------------------------------------------------

    @property
    def maintains(self) -> bool:
        """Whether this process runs epochs and builds in the background: with a Spark that runs, or can again."""
        return self.settings.auto_refresh and self.sessions.can_work

    @property
    def is_watched(self) -> bool:
        """Whether progress is shown."""
        return self.progress is not _unwatched

    @contextlib.contextmanager
    def at_work(self, what: str) -> Iterator[None]:
        """Say what is being done (`epoch of card`) for as long as it takes, and keep the files that it fetches."""
        with self.activities.doing(what), self.storage.nodes.reading():
            yield

    def kept_alive(self, transaction: TransactionId) -> contextlib.AbstractContextManager[None]:
        """Renew a transaction's lease in the background while its work goes on."""
        return self.leases.renewed(transaction)

    @property
    def index_maintainer(self) -> IndexMaintainer:
        assert self.maintainer is not None, "a context that only reads keeps no index"
        return self.maintainer

    # ---- Spark ------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The user's session, or one that is started now and stopped at close."""
        return self.sessions.spark

    @property
    def has_spark(self) -> bool:
        """Whether Spark was started already."""
        return self.sessions.has_spark

    @property
    def writer(self) -> SparkSession:
        return self.sessions.writer

    def view_session(self, settings: Mapping[str, str], *, small: bool, generates_code: bool = False) -> SparkSession:
        """A session in which views of these settings are computed, whatever the user's session says."""
        return self.sessions.of_view(settings, small=small, generates_code=generates_code)

    def expression_settings(self) -> Mapping[str, str]:
        """What expressions depend on in the user's session, or would in one that is started for them."""
        return self.sessions.expression_settings()

    # ---- storage ----------------------------------------------------------------------------------------

    def duck(self) -> duckdb.DuckDBPyConnection:
        return self.storage.lookups.cursor()

    @property
    def nodes(self) -> Roots:
        """The storage roots of nodes."""
        return self.storage.nodes

    def roots(self) -> dict[NodeId, Root]:
        return self.nodes.all()

    def reached(self) -> frozenset[NodeId]:
        """The nodes whose storage roots are there, and theirs."""
        return frozenset(node for node, root in self.roots().items() if root.is_writable)

    # ---- the end ----------------------------------------------------------------------------------------

    def release(self) -> None:
        """End everything but the catalog, which may be another's."""
        self.services.close(CLOSE_S)
        self.storage.close()
        self.sessions.stop()

    def close(self) -> None:
        self.release()
        self.catalog.close()
