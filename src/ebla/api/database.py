"""The way in: `ebla.connect("./warehouse")`."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection

from ebla.api.builder import Builder
from ebla.api.executor import Executor
from ebla.api.metrics import Metrics
from ebla.api.statements.indexes import Indexes
from ebla.api.statements.views import Views
from ebla.api.table import Table
from ebla.base import settings as settings_module
from ebla.base.ids import NodeId, Version
from ebla.base.settings import Settings
from ebla.catalog import reads
from ebla.catalog.processes import Role
from ebla.catalog.store import FILE, Catalog, is_postgres
from ebla.errors import CatalogError, CatalogUnavailableError, NodeConflictError, UsageError
from ebla.indexes.maintainer import EntryMaintainer
from ebla.model import changes as c
from ebla.model.relation import Kind, Node, Relation
from ebla.node.maintainer import Maintainer
from ebla.node.presence import Presence
from ebla.node.runner import Runner
from ebla.predicates import conditions
from ebla.predicates.conditions import LIMIT_DEFAULT
from ebla.query.execute import Reader, result_of
from ebla.relations.builds import Shown
from ebla.spark.result import Result
from ebla.spark.session import require_classic
from ebla.storage.files import Root
from ebla.tables import compaction as maintenance
from ebla.tables.context import Context
from ebla.tables.scans import Pins
from ebla.views.epoch.maintain import Epoch
from ebla.views.handlers.epochs import Epochs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_ROOT = "./data"


class Database:
    """An open warehouse. Safe to use from several threads; close it, or use it as a context manager."""

    def __init__(self, context: Context, role: Role = Role.PYTHON) -> None:
        self.context = context
        self._presence = Presence(context, role)
        self.pins = Pins(context)
        self.maintainer = Maintainer(context, self._wake_runner)
        self._metrics = Metrics(context.catalog)
        self.epochs = Epochs(context, self._on_epoch)
        self.runner = Runner(context, self.epochs)
        self.builder = Builder(self)
        self.views = Views(self)
        self.reader = Reader(context, self._wake_runner)
        self.indexes = Indexes(self)
        self._executor = Executor(self)
        self.runner.also_wakes = self.builder.wake
        context.on_spark = self.wake
        if not context.catalog.read_only:
            self.builder.adopt()
            self._presence.start()
        self.wake()  # what was written, or begun and not ended, while nobody was here

    def wake(self) -> None:
        """Look whether there is anything to build or to bring up to date."""
        self.runner.wake()
        self.builder.wake()

    def _wake_runner(self) -> None:
        self.runner.wake()

    def _on_epoch(self, done: Epoch) -> None:
        self._metrics.observe(done)
        self.maintainer.wake(done.view)

    # ---- statements and tables --------------------------------------------------------------------------

    def sql(self, text: str, /, **parameters: object) -> Result:
        """Run one or more statements separated by `;` and return the last one's result.

        `:name` in the text stands for the parameter of that name; values are bound, never put into the text.
        """
        return self._executor.run(text, parameters)

    def query(
        self,
        relation: str,
        *,
        where: Mapping[str, object] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int = LIMIT_DEFAULT,
        columns: Sequence[str] | None = None,
        after: object = None,
        at_least: int | None = None,
        wait_s: float = 10.0,
    ) -> Result:
        """The first rows of a table or view that fulfil conditions, in an order, without a Spark job.

        `after` is the `next` of the page before, or a dict of its last row's order and key columns. `at_least` waits,
        `wait_s` at most, until a view shows everything committed up to that version.
        """

        def make(found: Relation) -> conditions.Request:
            return conditions.request(found, where=where, order_by=order_by, limit=limit, columns=columns, after=after)

        return self.context.catalog.patience.insist(
            lambda: result_of(self.reader.query(relation, make, at_least=at_least, wait_s=wait_s), self.context)
        )

    def table(self, name: str) -> Table:
        found = self.context.catalog.read(lambda connection: reads.relation(connection, name))
        return Table(self, found.name)

    def tables(self) -> list[str]:
        return self.context.catalog.read(lambda connection: reads.relation_names(connection, Kind.TABLE))

    @property
    def version(self) -> int:
        """The newest committed version, shared by all tables."""
        return int(self.context.catalog.version())

    @property
    def spark(self) -> SparkSession:
        """The session that queries run in; started now if none was given."""
        return self.context.spark

    def progress(self, name: str) -> Shown:
        """How far the build of a view or an index is."""
        return self.builder.progress(name)

    def metrics(self) -> str:
        """How fresh the views are and what it costs, in Prometheus' text format."""
        return self._metrics.text()

    # ---- upkeep -----------------------------------------------------------------------------------------

    def compact(self, name: str) -> maintenance.Compacted:
        return maintenance.compact(self.context, name)

    def vacuum(self, name: str | None = None, *, retain_s: float | None = None) -> maintenance.Vacuumed:
        self.pins.tidy()
        return maintenance.vacuum(self.context, name, retain_s=retain_s)

    def close(self) -> None:
        """Finish background work, release pins, and stop Spark if Ebla started it."""
        _OPEN.discard(self)
        self.context.catalog.patience.end()
        self.builder.stop()
        self.runner.stop()
        self.maintainer.stop()
        with contextlib.suppress(CatalogUnavailableError):  # their leases end by themselves
            self.pins.release_all()
        self._presence.stop()
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    url: str,
    spark: SparkSession | None = None,
    *,
    create: bool = True,
    role: Role | str = Role.PYTHON,
    **settings: object,
) -> Database:
    """Open the warehouse at a directory, or the one whose catalog is at a `postgresql://` address.

    A given Spark session is used and left as it was; otherwise one is started when it is first needed, and stopped at
    close. `role` says in `system.processes` what the process is for. Settings are described in `ebla.base.settings`.
    """
    loaded = settings_module.load(**settings)
    if role not in set(Role):
        raise UsageError(f"role: expected one of {', '.join(Role)}, found {role!r}")
    if spark is not None:
        require_classic(spark)
    url = os.fspath(url)
    embedded = not is_postgres(url)
    if not embedded and loaded.storage_root is None:
        raise CatalogError(
            "storage_root: expected a path that all nodes' Spark can reach, found none; "
            "pass connect(url, storage_root=…) or set EBLA_STORAGE_ROOT"
        )
    where = str(Path(url).absolute()) if embedded else url
    _refuse_foreign_root(where, loaded)
    catalog = Catalog.open(where, create=create, retry_s=loaded.catalog_retry_s, mask=loaded.file_mask)
    try:
        if catalog.read_only:
            loaded = loaded.model_copy(update={"auto_compact": False, "auto_refresh": False})
        else:
            _join(catalog, loaded)
    except BaseException:
        catalog.close()
        raise
    opened = Database(Context(catalog, loaded, spark, EntryMaintainer()), Role(role))
    _OPEN.add(opened)
    return opened


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A program that ends without closing leaves no thread at work while the interpreter goes."""
    for database in list(_OPEN):
        with contextlib.suppress(Exception):  # there is nobody left to tell
            database.close()


def _join(catalog: Catalog, settings: Settings) -> None:
    """Register this process's nodes; one that is registered with another storage root is refused.

    A root belongs to one node of one catalog, and holds no other root: what is swept there is surely nobody's.
    """
    # A warehouse's own data directory is recorded relative to it, so that the warehouse can be moved.
    own = settings.storage_root
    wanted = {settings.node: DEFAULT_ROOT if own is None else _absolute(own)}
    wanted |= {node: _absolute(root) for node, root in settings.nodes.items()}

    with catalog.reading() as connection:
        registered = reads.nodes(connection).get(NodeId(settings.node))
    if own is None and registered is not None:
        wanted[settings.node] = registered.root  # whoever names no root means the registered one

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        known = reads.nodes(connection)
        fresh = []
        for name, root in wanted.items():
            node = NodeId(name)
            if node not in known:
                fresh.append(c.PutNode(node=Node(id=node, root=root, shards=os.cpu_count() or 1)))
            elif known[node].root != root:
                raise NodeConflictError(
                    f"node {name}: expected storage root {known[node].root}, found {root}; "
                    "use the registered root, or another node id for this one"
                )
        _refuse_shared_roots(catalog, {**{n: k.root for n, k in known.items()}, **wanted})
        if not fresh:
            return None
        return c.Decision(reason=f"join {', '.join(sorted(wanted))}", updates=tuple(fresh))

    catalog.decide(decide, node=NodeId(settings.node))
    for name, root in wanted.items():
        place = Root(catalog.located(root), mask=settings.file_mask)
        place.claim({"cluster": catalog.cluster_id(), "node": name})


def _refuse_foreign_root(where: str, settings: Settings) -> None:
    """Before a catalog is created: one that could not use its storage root would be left behind empty."""
    if is_postgres(where) or "://" in where:
        return
    try:
        if (Path(where) / FILE).exists():
            return
    except (OSError, ValueError) as error:
        raise CatalogError(f"{where!r}: expected a directory to keep a warehouse in, found: {error}") from error
    own = settings.storage_root
    roots = {settings.node: str(Path(where) / "data") if own is None else _absolute(own)}
    roots |= {node: _absolute(root) for node, root in settings.nodes.items()}
    _refuse_nested(roots)
    for name, place in roots.items():
        if Root(place).owner() is not None:
            raise NodeConflictError(
                f"node {name}: expected a storage root of its own, found {place} of another warehouse"
            )


def _refuse_shared_roots(catalog: Catalog, roots: Mapping[str, str]) -> None:
    cluster = catalog.cluster_id()
    places = {name: catalog.located(root) for name, root in roots.items()}
    _refuse_nested(places)
    for name, place in places.items():
        owner = None if "://" in place else Root(place).owner()
        if owner is not None and owner != {"cluster": cluster, "node": name}:
            whose = "another warehouse" if owner.get("cluster") != cluster else f"node {owner.get('node')}"
            raise NodeConflictError(f"node {name}: expected a storage root of its own, found {place} of {whose}")


def _refuse_nested(roots: Mapping[str, str]) -> None:
    try:
        places = {name: os.path.realpath(root) for name, root in roots.items() if "://" not in root}
    except ValueError as error:
        raise CatalogError(f"storage root: expected a path, found one with {error}") from error
    for name, place in places.items():
        for other, theirs in places.items():
            if name != other and (place == theirs or place.startswith(theirs.rstrip("/") + "/")):
                raise NodeConflictError(
                    f"node {name}: expected a storage root of its own, found {place} in that of node {other}"
                )


def _absolute(root: str) -> str:
    return root if "://" in root else str(Path(root).absolute())
