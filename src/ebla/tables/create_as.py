"""A table that is created with its rows: `CREATE [OR REPLACE] TABLE … AS query`.

The rows are computed and written before there is a table: a transaction takes the number that the table will have, and
its files lie where they will stay. One commit then makes the table, with all of its rows, or puts it in the place of
the one that it replaces. Until that commit readers see what was there before; without it nothing is left but files that
no commit names, which a sweep removes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId
from ebla.catalog import transactions as tx
from ebla.model.relation import Kind, Relation
from ebla.model.snapshot import Snapshot
from ebla.spark import write as swrite
from ebla.sql.statements import CreateTable
from ebla.tables import batch as b
from ebla.tables import constraint_ddl, new_table
from ebla.tables.commit import Commit
from ebla.tables.new_table import columns_of
from ebla.tables.sink import Sink
from ebla.tables.transaction import join
from ebla.tables.write_access import WriteAccess
from ebla.tables.writes import WriteResult, until_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A query's rows, not computed yet, and what it reads."""

    frame: DataFrame
    reads: Sequence[Snapshot] = ()


def create_filled(
    context: WriteAccess, statement: CreateTable, rows: Callable[[tx.Transaction], Rows]
) -> WriteResult | None:
    """Make a table of a query's rows; `None` if there is one already, and that is well.

    A query that reads the table which it replaces is computed again if that table was written to meanwhile.
    """
    return until_committed(context, lambda: _attempt(context, statement, rows))


def _attempt(
    context: WriteAccess, statement: CreateTable, rows: Callable[[tx.Transaction], Rows]
) -> WriteResult | None:
    new_table.check_name(statement.name, "table")
    tablets, replication, kept = new_table.storage_options(context.settings, statement.options)
    reached = context.reached()
    with context.catalog.reading() as connection:  # a wrong request computes nothing
        if new_table.replaced(connection, statement.name, **_how(statement)) is None:
            return None
        placement = new_table.place_on_members(connection, reached, tablets, replication)
    transaction = tx.begin_new(
        context.catalog,
        node=context.node,
        holder=context.holder,
        reason=f"create table {statement.name}",
        lease_us=context.leases.lease_us,
    )
    try:
        found = rows(transaction)
        table = Relation(
            id=_number(transaction),
            name=statement.name,
            kind=Kind.TABLE,
            tablets=tablets,
            replication=replication,
            schema_version=1,
            placement_version=1,
            columns=new_table.new_columns(
                statement.name, columns_of(statement.name, found.frame), statement.primary_key
            ),
            placement=placement,
            horizon=transaction.snapshot,
            created_version=transaction.snapshot,
            comment=statement.comment,
        )
        declared = constraint_ddl.declared(context.sessions, table.name, table.visible, statement.checks)
        table = replace(table, options=kept | new_table.kept_constraints(declared))
        opened = join(context, transaction, table)
    except BaseException:
        tx.abort(context.catalog, transaction.id)
        raise
    try:
        with context.kept_alive(transaction.id):
            with swrite.translated(table.name):  # Spark computes constants while it plans
                frame, plain = swrite.fitted(found.frame, table), swrite.is_plain(found.frame)
            sink = Sink(opened)
            sink.put(b.FrameBatch(frame=frame, kind=b.UPSERT, plain=plain, reads=found.reads))
            hit("write.files_written")
            return _commit(statement, sink, {snapshot.relation.id for snapshot in found.reads})
    except BaseException as error:
        opened.give_up(error)
        raise


def _number(transaction: tx.Transaction) -> RelationId:
    assert transaction.relation is not None, "begin_new takes one"
    return transaction.relation


def _how(statement: CreateTable) -> dict[str, bool]:
    """What is done where a table of this name is there."""
    return {"if_not_exists": statement.if_not_exists, "or_replace": statement.or_replace}


def _commit(statement: CreateTable, sink: Sink, read: Collection[RelationId]) -> WriteResult | None:
    table, transaction = sink.relation, sink.transaction
    committed = transaction.decide(
        lambda connection, _: Commit(sink).creation(new_table.replaced(connection, table.name, **_how(statement)), read)
    )
    if committed is None:
        transaction.roll_back()
        return None
    made = replace(table, created_version=committed.version, horizon=committed.version)
    return WriteResult(version=committed.version, rows=sink.rows, relation=made, level0_runs=len(sink.runs))
