"""Writing as a Spark data source: one transaction, run files from the tasks, one commit on the driver.

One write's way. Spark asks for a writer: the columns are checked and a transaction begins (a catalog row with a lease)
→ every task fits its rows to the columns and writes runs whose names carry the transaction and the task's attempt
(`ebla.source.partition_writer`) → the driver gets the messages of one attempt per task, refuses a key that stands twice
in them, makes the entries of the table's indexes (`ebla.source.commit`), and commits all of it.
Files of other attempts are never named by the manifest, and a sweep removes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId
from ebla.catalog import index_states
from ebla.catalog import transactions as tx
from ebla.errors import CatalogUnavailableError, TypeMismatchError
from ebla.model.relation import Relation
from ebla.relations import indexes as definition
from ebla.relations.guard import require_table
from ebla.source import duplicate_keys
from ebla.source.commit import commit, refuse_what_needs_spark
from ebla.source.options import Origin, Request
from ebla.source.partition_writer import Message, PartitionWriter
from ebla.storage.files import Owner, Root, owner
from ebla.tables import constraints
from ebla.values import types

LEASE_S = 86_400.0
"""No process renews the lease of this transaction, so it lasts as long as a Spark job may take. A write that fails ends
it at once; a driver that dies leaves it, and until then vacuum spares what the transaction could have read."""


def begin_write(request: Request, schema: T.StructType, *, overwrite: bool) -> EblaWriter:
    settings = request.settings
    lease_s = max(LEASE_S, settings.transaction_lease_s) if request.patient else settings.transaction_lease_s
    with Origin(request) as origin:

        def look(connection: Connection, relation: Relation) -> dict[NodeId, str]:
            require_table(relation)
            indexes = definition.of_base(connection, relation)
            refuse_what_needs_spark(relation, [index for index in indexes if index.maintained])
            constraints.refuse_what_needs_spark(relation)
            check_columns(schema, relation)
            return origin.roots(connection)

        relation, transaction, roots = tx.begin_on(
            origin.catalog,
            request.table,
            look,
            node=origin.node,
            holder=origin.holder,
            reason=f"{'overwrite' if overwrite else 'append to'} {request.table} from Spark",
            lease_us=int(lease_s * 1e6),
        )
        cluster = origin.catalog.cluster_id()
    return EblaWriter(request, relation, transaction, roots, cluster=cluster, overwrite=overwrite)


def check_columns(schema: T.StructType, relation: Relation) -> None:
    """Refuse columns that the table does not have, types that never fit, and missing ones that may not be NULL."""
    types.fit(to_arrow_schema(schema, timezone="UTC").empty_table(), relation.visible, relation=relation.name)
    given = {name.lower() for name in schema.fieldNames()}
    missing = [col.name for col in relation.visible if col.required and col.name.lower() not in given]
    if missing:
        raise TypeMismatchError(f"{relation.name}.{missing[0]}: expected a value, found no such column")


class EblaWriter(DataSourceArrowWriter):
    """One transaction. Made and committed on the driver's machine; its copies write in the tasks."""

    def __init__(
        self,
        request: Request,
        relation: Relation,
        transaction: tx.Transaction,
        roots: Mapping[NodeId, str],
        *,
        cluster: str,
        overwrite: bool,
    ) -> None:
        self.request = request
        self.relation = relation
        self.transaction = transaction
        self.roots = roots
        self.cluster = cluster
        self.overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        assert context is not None, "Spark writes inside tasks"
        task = PartitionWriter(self, attempt=context.taskAttemptId(), partition=context.partitionId())
        try:
            return task.run(iterator)
        except BaseException:
            task.forget()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done = [message for message in messages if isinstance(message, Message)]
        level0 = tuple(run for message in done for run in message.level0)
        tablets = tuple(run for message in done for run in message.sorted)
        with Origin(self.request) as origin:
            try:
                duplicate_keys.refuse(self.relation, (*level0, *tablets), self.roots)
                hit("source.commit.checked")
                if level0 or tablets or self.overwrite:
                    commit(origin, self.transaction, self.relation, level0, tablets, emptied=self.overwrite)
                else:
                    self._roll_back(origin)
            except BaseException:
                with origin.catalog.patience.without(), contextlib.suppress(CatalogUnavailableError):
                    self._roll_back(origin)  # else the lease ends by itself
                raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with Origin(self.request) as origin:
            self._roll_back(origin)

    def _roll_back(self, origin: Origin) -> None:
        """Close the transaction and remove its files. One that is closed has committed, or a sweep has its files."""
        if not tx.abort(origin.catalog, self.transaction.id):
            return
        with origin.catalog.reading() as connection:
            indexes = index_states.of_base(connection, self.relation.id)
        for node, location in self.roots.items():
            root = Root(location, owner=Owner(self.cluster, node))
            for relation in (self.relation.id, *(one.index for one in indexes)):
                for path, _, folder in root.listing(f"r{relation}"):
                    if not folder and owner(path) == self.transaction.id:
                        root.remove(path)
