"""What every operation needs: the catalog, this node, its storage roots, and Spark once somebody wants it."""

from __future__ import annotations

import contextlib
import copy
import os
import socket
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import NodeId, TransactionId
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import EblaError
from ebla.model.relation import Kind, Relation
from ebla.relations.indexes import IndexCache
from ebla.spark import session as spark_session
from ebla.spark.sessions import Sessions
from ebla.spark.tags import Tags
from ebla.storage.files import Root
from ebla.storage.runs import LevelZeroCache
from ebla.storage.store import Store

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection

    from ebla.model.snapshot import Snapshot
    from ebla.tables.upkeep import IndexMaintainer

Progress = Callable[[str, float | None], None]
"""Told what is being done and, where known, how much of it is done (0 to 1)."""


class Context:
    """One open connection's shared state. Safe to use from several threads."""

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        spark: SparkSession | None,
        maintainer: IndexMaintainer | None = None,
    ) -> None:
        """`maintainer`: of the indexes of tables that are written to. A context that only reads has none."""
        self.catalog = catalog
        self.settings = settings
        self.node = NodeId(settings.node)
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self.cache = LevelZeroCache()
        self.frames = Frames()
        self.indexes = IndexCache()
        self._maintainer = maintainer
        self.store = Store(settings.read_cache_bytes)
        self.progress: Progress = lambda what, part: None
        self._sessions = Sessions(spark, settings, lambda: self.progress("starting Spark", None), self.frames.clear)
        self._lock = threading.RLock()
        self._roots: dict[NodeId, Root] = {}
        self._duck: duckdb.DuckDBPyConnection | None = None
        self._heart = Heart(self)
        self.tags = Tags(lambda: self.running)
        self.on_spark: Callable[[], None] = lambda: None
        """Called when Spark was started: work in the background was waiting for it."""
        self._works = Works()

    # ---- what is done -----------------------------------------------------------------------------------

    @property
    def maintains(self) -> bool:
        """Whether this process runs epochs and builds in the background: with a Spark that runs, or can again."""
        return self.settings.auto_refresh and self._sessions.can_work

    @property
    def doing(self) -> tuple[str, ...]:
        return self._works.now()

    def at_work(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Say what is being done (`epoch of card`) for as long as it takes."""
        return self._works.doing(what)

    @property
    def index_maintainer(self) -> IndexMaintainer:
        assert self._maintainer is not None, "a context that only reads keeps no index"
        return self._maintainer

    # ---- Spark ------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The user's session, or one that is started now and stopped at close."""
        session, fresh = self._sessions.main()
        self.tags.put()
        if fresh:
            self.on_spark()
        return session

    @property
    def running(self) -> SparkSession | None:
        """Spark's session, if Spark was started already."""
        return self._sessions.known

    @property
    def has_spark(self) -> bool:
        """Whether Spark was started already."""
        return self._sessions.known is not None

    @property
    def writer(self) -> SparkSession:
        _ = self.spark  # which says what there is to say when it is started
        return self._sessions.writer()

    def view_session(self, settings: Mapping[str, str], *, small: bool) -> SparkSession:
        """A session in which views of these settings are computed, whatever the user's session says.

        For a few rows (`small`) Spark plans once and runs one job: adapting to sizes would cost more than it saves.
        """
        _ = self.spark
        return self._sessions.of_view(settings, small=small)

    def expression_settings(self) -> Mapping[str, str]:
        """What expressions depend on in the user's session, or would in one that is started for them."""
        if self.has_spark:
            return spark_session.view_settings(self.spark)
        return spark_session.STARTED_SETTINGS

    def tuned(self, **changed: object) -> Context:
        """This context with some settings of its own; all else is shared, Spark too."""
        if all(getattr(self.settings, name) == value for name, value in changed.items()):
            return self
        other = copy.copy(self)
        other.settings = self.settings.model_copy(update=changed)
        return other

    def duck(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._duck is None:
                import duckdb

                self._duck = duckdb.connect(":memory:", config={"threads": max(2, os.cpu_count() or 2)})
                # At a prompt, and under `python -m`, DuckDB takes itself for interactive and draws on the screen.
                self._duck.execute("SET enable_progress_bar = false")
            return self._duck.cursor()

    def row_group_bytes(self, relation: Relation) -> int:
        """Of an index small ones: a page of a query reads one of each tablet."""
        is_index = relation.kind is Kind.INDEX
        return self.settings.index_row_group_bytes if is_index else self.settings.row_group_bytes

    # ---- storage ----------------------------------------------------------------------------------------

    def roots(self) -> dict[NodeId, Root]:
        with self.catalog.reading() as connection:
            return self.roots_in(connection)

    def roots_in(self, connection: Connection) -> dict[NodeId, Root]:
        return self._located(reads.roots(connection))

    def _located(self, locations: Mapping[NodeId, str]) -> dict[NodeId, Root]:
        with self._lock:
            for node, location in locations.items():
                if node not in self._roots:
                    settings = self.settings
                    self._roots[node] = Root(
                        self.catalog.located(location), fsync=settings.fsync, mask=settings.file_mask
                    )
            return dict(self._roots)

    def roots_of(self, snapshot: Snapshot) -> dict[NodeId, Root]:
        """The roots of the nodes that a snapshot knows."""
        return self._located(snapshot.roots)

    # ---- transactions -----------------------------------------------------------------------------------

    @property
    def lease_us(self) -> int:
        return int(self.settings.transaction_lease_s * 1e6)

    @contextlib.contextmanager
    def kept_alive(self, transaction: TransactionId) -> Iterator[None]:
        """Renew a transaction's lease in the background while its work goes on."""
        self._heart.add(transaction)
        try:
            yield
        finally:
            self._heart.remove(transaction)

    def _close_duck(self) -> None:
        if self._duck is not None:
            self._duck.close()

    def close(self) -> None:
        self._heart.stop()
        self.store.close()
        self._close_duck()
        self._sessions.stop()
        self.catalog.close()


class Works:
    """What this process is working on, as it tells others. Safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        with self._lock:
            self._counts[what] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[what] -= 1
                if not self._counts[what]:
                    del self._counts[what]

    def now(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._counts))


class Frames:
    """DataFrames of recent snapshots, by what they read; least recently used out first."""

    def __init__(self, count_max: int = 64) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[object, DataFrame] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, signature: object) -> DataFrame | None:
        with self._lock:
            found = self._kept.get(signature)
            if found is not None:
                self._kept.move_to_end(signature)
            return found

    def clear(self) -> None:
        """Forget all of them: the Spark that they belong to is gone."""
        with self._lock:
            self._kept.clear()

    def put(self, signature: object, frame: DataFrame) -> None:
        with self._lock:
            self._kept[signature] = frame
            while len(self._kept) > self._count_max:
                self._kept.popitem(last=False)


class Heart:
    """One thread that renews the leases of this process's open transactions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: set[TransactionId] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, transaction: TransactionId) -> None:
        with self._lock:
            self._open.add(transaction)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="ebla-leases", daemon=True)
                self._thread.start()

    def remove(self, transaction: TransactionId) -> None:
        with self._lock:
            self._open.discard(transaction)

    def _beat(self) -> None:
        period_s = self._context.settings.transaction_lease_s / 3
        while not self._stopped.wait(period_s):
            with self._lock:
                due = sorted(self._open)
            for transaction in due:
                # A closed transaction's commit will say so; a database that does not answer gets another beat.
                with contextlib.suppress(EblaError, OSError, SQLAlchemyError):
                    tx.renew(self._context.catalog, transaction, self._context.lease_us)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
