"""What reading needs: the catalog, settings, storage roots, Spark once it is wanted, and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ebla.base.caches import Lru
from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog.store import Catalog
from ebla.relations.indexes import IndexCache
from ebla.spark.sessions import Sessions
from ebla.storage.files import Root
from ebla.storage.node_storage import NodeStorage
from ebla.storage.roots import Roots

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession


@dataclass(kw_only=True, slots=True, eq=False)
class ReadAccess:
    """Pieces that each know one thing and may be used from several threads. Nothing of them writes rows."""

    catalog: Catalog
    settings: Settings
    sessions: Sessions
    storage: NodeStorage
    frames: Lru[Any]
    """DataFrames of recent snapshots, by what they read."""
    plans: Lru[Any]
    """Prepared queries of small epochs, by the query and the columns that it reads."""
    indexes: IndexCache = field(default_factory=IndexCache)

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
