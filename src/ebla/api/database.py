"""An open warehouse."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ebla.api.executor import Executor
from ebla.api.maintenance import Maintenance
from ebla.api.table import Table
from ebla.catalog import reads
from ebla.catalog.processes import Role
from ebla.errors import CatalogUnavailableError
from ebla.model.relation import Kind, Relation
from ebla.predicates import conditions
from ebla.predicates.conditions import LIMIT_DEFAULT
from ebla.relations.build_measure import BuildProgress
from ebla.spark.result import Result
from ebla.tables import backup, compaction, vacuum
from ebla.tables.context import Context
from ebla.tables.scans import Pins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Database:
    """An open warehouse. Safe to use from several threads; close it, or use it as a context manager."""

    is_remote = False

    def __init__(self, context: Context, role: Role = Role.PYTHON) -> None:
        self.context = context
        self.pins = Pins(context.catalog, context.holder, context.settings.pin_lease_s)
        self._maintenance = kept = Maintenance(context)
        self.epochs, self.background, self.builder, self.waits = kept.epochs, kept.background, kept.builder, kept.waits
        self.reader = kept.background.reader
        self.statements = Executor(self)
        kept.begin(role)

    def wake(self) -> None:
        """Look whether there is anything to build or to bring up to date."""
        self.background.wake()

    # ---- statements and tables --------------------------------------------------------------------------

    def sql(self, text: str, /, **parameters: object) -> Result:
        """Run one or more statements separated by `;` and return the last one's result.

        `:name` in the text stands for the parameter of that name; values are bound, never put into the text.
        """
        return self.statements.run(text, parameters)

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
            lambda: self.reader.query(relation, make, at_least=at_least, wait_s=wait_s).result(self.context)
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

    def progress(self, name: str) -> BuildProgress:
        """How far the build of a view or an index is."""
        return self.statements.operations.views.progress.of(name)

    def metrics(self) -> str:
        """How fresh the views are and what it costs, in Prometheus' text format."""
        return self._maintenance.metrics.text()

    @contextlib.contextmanager
    def telling(self, tell: Callable[[str, float | None], None]) -> Iterator[None]:
        """Say what statements do while they run."""
        before, self.context.progress = self.context.progress, tell
        try:
            yield
        finally:
            self.context.progress = before

    def statement(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C inside cancels the Spark jobs of what runs inside, and no others."""
        return self.context.sessions.tags.statement()

    def words(self) -> list[str]:
        """The names of relations and columns, for those who complete what a user types."""
        with self.context.catalog.reading() as connection:
            found = [reads.relation(connection, name) for name in reads.relation_names(connection)]
        return sorted({one.name for one in found} | {column.name for one in found for column in one.visible})

    # ---- upkeep -----------------------------------------------------------------------------------------

    def compact(self, name: str) -> compaction.CompactionResult:
        return compaction.compact(self.context, name)

    def vacuum(self, name: str | None = None, *, retain_s: float | None = None) -> vacuum.VacuumResult:
        self.pins.tidy()
        context = self.context
        return vacuum.vacuum(context.catalog, context.node, context.nodes, context.settings, name, retain_s=retain_s)

    def backup(self, place: str) -> backup.Backup:
        """Copy the warehouse as it is now into a directory; one with an earlier backup of it is brought up to date.

        Writers and readers go on meanwhile. `ebla.restore` makes a warehouse of it.
        """
        return backup.backup(self.context, self.pins, os.fspath(place))

    def close(self) -> None:
        """Finish background work, release pins, and stop Spark if Ebla started it."""
        OPEN.discard(self)
        self.context.catalog.patience.end()
        self._maintenance.end()
        with contextlib.suppress(CatalogUnavailableError):  # their leases end by themselves
            self.pins.release_all()
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


OPEN: weakref.WeakSet[Database] = weakref.WeakSet()
"""The databases of this process that are open."""


@atexit.register
def _close_all() -> None:
    """A program that ends without closing leaves no thread at work while the interpreter goes."""
    for database in list(OPEN):
        with contextlib.suppress(Exception):  # the caller is gone, no handler is left
            database.close()
