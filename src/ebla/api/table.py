"""One table, from Python: `db.table("orders")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebla.catalog import reads
from ebla.errors import TypeMismatchError
from ebla.model.relation import Column, Relation
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables import loads, scans
from ebla.tables.transaction import OpenTransaction
from ebla.tables.writes import WriteResult, write
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebla.api.database import Database


class Table:
    """A handle; it holds no state, and a table that is renamed or dropped meanwhile is an error at the next call."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._context = database.context
        self.name = name

    # ---- writing ----------------------------------------------------------------------------------------

    def upsert(self, rows: Any) -> WriteResult:
        """Write rows; one whose key is there already replaces it.

        Takes a Spark DataFrame, an Arrow table, a pandas frame or a list of dicts. Of several rows with one key the
        last wins; a Spark DataFrame has no order, so there it is an error.
        """
        return self._write(lambda relation: self._batch(relation, rows, b.UPSERT), f"upsert into {self.name}")

    def delete(self, rows: Any) -> WriteResult:
        """Delete the rows that have these keys; keys that are not there are no error. Other columns are ignored."""

        def make(relation: Relation) -> b.ArrowBatch | b.FrameBatch:
            if relation.keyless:
                raise TypeMismatchError(
                    f"{relation.name}: expected a table with a primary key, found one without; use DELETE … WHERE"
                )
            return self._batch(relation, rows, b.DELETE)

        return self._write(make, f"delete from {self.name}")

    def load(
        self,
        path: str,
        *,
        format: str | None = None,
        options: Mapping[str, object] | None = None,
        wait: bool = True,
    ) -> WriteResult:
        """Upsert the rows of files: a path, a directory or a glob of Parquet, CSV or JSON lines.

        While a view of the table is being built the rows are staged first. `wait=False` returns without waiting until
        they are visible.
        """
        written = self._write(
            lambda relation: loads.load_batch(self._context.sessions, relation, path, format=format, options=options),
            f"load into {self.name}",
        )
        if not wait or not written.staged:
            return written
        visible = self._database.waits.wait_visible(written)
        self._database.background.written(written.relation.name)
        return visible

    def _write(self, make: Callable[[Relation], b.ArrowBatch | b.FrameBatch], reason: str) -> WriteResult:
        def of_transaction(transaction: OpenTransaction) -> b.ArrowBatch | b.FrameBatch:
            return make(transaction.relation)

        written = write(self._context, self.name, of_transaction, reason=reason, reads_target=False)
        self._database.background.written(written.relation.name)
        return written

    def _batch(self, relation: Relation, rows: Any, kind: str) -> b.ArrowBatch | b.FrameBatch:
        if _is_spark(rows):
            frame = rows.select(*_key_names(rows.columns, relation)) if kind == b.DELETE else rows
            fitted = swrite.fitted(frame, relation, keyed=kind == b.DELETE, utf8=True)
            return b.FrameBatch(frame=fitted, kind=kind, plain=swrite.is_plain(rows))
        table = self._fit(relation, rows, only_key=kind == b.DELETE)
        return b.ArrowBatch(table=table, kinds=kind, ordered=True)

    def _fit(self, relation: Relation, rows: Any, *, only_key: bool) -> pa.Table:
        columns: Sequence[Column] = relation.key if only_key else relation.visible
        match rows:
            case pa.Table() | pa.RecordBatch():
                given = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
                if only_key:
                    given = given.select(_key_names(given.schema.names, relation))
                table = types.fit(given, columns, relation=relation.name)
            case list() | tuple():
                if only_key:
                    rows = [_key_of(row, relation) for row in rows]
                table = types.from_rows(rows, columns, relation=relation.name)
            case _ if type(rows).__module__.startswith("pandas") and hasattr(rows, "columns"):
                given = rows[_key_names([str(n) for n in rows.columns], relation)] if only_key else rows
                table = types.from_pandas(given, columns, relation=relation.name)
            case _:
                raise TypeMismatchError(
                    f"{relation.name}: expected a Spark DataFrame, an Arrow table, a pandas frame or a list of dicts, "
                    f"found {type(rows).__name__}"
                )
        physical = table.rename_columns([c.physical for c in columns])
        return rf.align(physical, relation.columns)

    # ---- reading ----------------------------------------------------------------------------------------

    def scan(self, version: int | None = None, *, tablets: Sequence[int] | None = None) -> DataFrame:
        """The rows at a version (the newest by default) as a lazy DataFrame."""
        return self._context.catalog.patience.insist(
            lambda: scans.scan(self._context, self._database.pins, self.name, version=version, tablets=tablets)
        )

    def changes(
        self, since: int, until: int | None = None, *, old: bool = False, stream: str | None = None
    ) -> DataFrame:
        """Net changes per key after version `since`, up to and including `until`; with old rows on request.

        With `stream`, an id of `system.cdc_streams`, those of one change stream.
        """
        return self._context.catalog.patience.insist(
            lambda: scans.changes(
                self._context, self._database.pins, self.name, since=since, until=until, old=old, stream=stream
            )
        )

    @property
    def version(self) -> int:
        """The version of the last write."""
        from ebla.catalog.reads import newest_write

        return self._context.catalog.read(
            lambda connection: int(newest_write(connection, reads.relation(connection, self.name).id))
        )

    def __repr__(self) -> str:
        return f"Table({self.name!r})"


def _is_spark(rows: object) -> bool:
    return type(rows).__module__.startswith("pyspark.sql")


def _key_of(row: object, relation: Relation) -> object:
    """Only the key of a row; what is no row is left for others to refuse."""
    if not isinstance(row, Mapping):
        return row
    return {n: row[n] for n in _key_names([str(n) for n in row], relation)}


def _key_names(given: Sequence[str], relation: Relation) -> list[str]:
    """The given spellings of the key's columns, all of which are needed."""
    found = {n.lower(): n for n in given}
    missing = [c.name for c in relation.key if c.name.lower() not in found]
    if missing:
        raise TypeMismatchError(f"{relation.name}: expected key column {missing[0]}, found columns {', '.join(given)}")
    return [found[c.name.lower()] for c in relation.key]
