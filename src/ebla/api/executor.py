"""Statements carried out: each case of `ebla.sql.statements` to the operation that does it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api import checks, creation, system
from ebla.api.statements import handlers as jobs
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.errors import EblaError, SnapshotError, SqlError, StorageError, UnknownNameError, UsageError
from ebla.model.relation import FOREVER, Column, Constraint, Kind, Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import select
from ebla.predicates.conditions import Request
from ebla.query import explain as query_explain
from ebla.query.execute import result_of
from ebla.query.streams import TooMany
from ebla.relations.guard import require_built
from ebla.spark import comparisons, faults
from ebla.spark import write as swrite
from ebla.spark.query import over, refuse_deep
from ebla.spark.result import Result, named_like
from ebla.spark.session import java_class, local_frame
from ebla.spark.wording import in_users_words
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.lex import StatementText, quote, split
from ebla.sql.parse import parse
from ebla.sql.query import Query, TableRef
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables import compaction as maintenance
from ebla.tables import constraints, ddl, defaults, scans
from ebla.tables import create_as as filled
from ebla.tables.computed import values_batch
from ebla.tables.literals import dialect_of, is_common, literal_batch, zone_of
from ebla.tables.writes import Make, Written, write
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebla.api.database import Database

Parameters = Mapping[str, object]

SCAN_ROWS_MAX = 10_000_000
"""A query that no path fits is left to Spark if it would read more rows than this."""


Relations = Mapping[TableRef, Snapshot | pa.Table | None]
"""What every mention of a table in a query stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A query at one version, not run yet."""

    version: Version
    frame: DataFrame
    snapshots: Sequence[Snapshot] = ()
    holds: Sequence[scans.Hold] = ()

    def release(self) -> None:
        for hold in self.holds:
            hold.release()


def _snapshots(relations: Relations) -> list[Snapshot]:
    return [found for found in relations.values() if isinstance(found, Snapshot)]


class Executor:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context

    def run(self, text: str, parameters: Parameters) -> Result:
        """Run statements in order; return the last one's result. All are parsed before the first one runs."""
        if not isinstance(text, str):
            raise UsageError(f"sql: expected a text, found {type(text).__name__}")
        parsed = [(parse(part), part) for part in split(text)]
        if not parsed:
            raise SqlError("expected a statement, found none")
        with self._context.tags.statement():
            result = self._insisted(*parsed[0], parameters)
            for statement, part in parsed[1:]:
                result = self._insisted(statement, part, parameters)
            return result

    def _insisted(self, statement: st.Statement, source: StatementText, parameters: Parameters) -> Result:
        """One statement, again where the catalog fell silent before anything was committed."""
        again = isinstance(statement, st.Flush | st.WaitFor)
        patience = self._context.catalog.patience
        try:
            return patience.insist(lambda: self._one(statement, source, parameters), twice=again)
        except Exception as error:
            if isinstance(error, EblaError) or not faults.is_of_spark(error) or not faults.is_lost(error):
                raise
            raise faults.of_spark(error, "statement") from error

    def _one(self, statement: st.Statement, source: StatementText, parameters: Parameters) -> Result:
        match statement:
            case Query():
                return self.query(statement, parameters)
            case st.Explain():
                return self._explain(statement, parameters)
            case st.Insert() | st.Update() | st.Delete() | st.Merge():
                return self._change(statement, source, parameters)
            case st.Load():
                return self._load(statement, parameters)
            case st.Truncate(table=table):
                return self._row(version=int(ddl.truncate(self._context, table)))
            case st.Compact() | st.Vacuum():
                return self._maintain(statement)
            case st.ShowTables(like=like):
                return self._show_tables(like)
            case st.ShowCreate(what=what, name=name):
                return self._show_create(what, name)
            case st.CreateHandler() | st.DropHandler() | st.AlterHandler() | st.ShowHandlers():
                return jobs.run(self._database, statement)
            case (
                st.CreateView()
                | st.DropView()
                | st.RenameView()
                | st.ShowViews()
                | st.Flush()
                | st.WaitFor()
                | st.ExplainView()
                | st.AlterBuild()
                | st.CancelBuild()
                | st.ShowProgress()
            ):
                return self._database.views.run(statement)
            case st.CreateIndex() | st.DropIndex() | st.BuildIndexes() | st.ShowIndexes():
                return self._database.indexes.run(statement)
            case st.Check() | st.Repair():
                return checks.run(self._database, statement)
            case st.Describe(name=name, system=is_system):
                return self._describe(name, is_system=is_system)
            case st.CreateTable(query=Query()):
                return self._create_filled(statement, parameters)
            case (
                st.CreateTable()
                | st.DropTable()
                | st.RenameTable()
                | st.AddColumns()
                | st.AddConstraint()
                | st.DropConstraint()
                | st.DropColumns()
                | st.RenameColumn()
                | st.AlterColumnType()
                | st.SetDefault()
                | st.SetTableComment()
                | st.SetColumnComment()
            ):
                self._define(statement)
                return Result(table=pa.table({}), spark=lambda: self._context.spark)
            case _:
                assert_never(statement)

    # ---- queries ----------------------------------------------------------------------------------------

    def query(self, query: Query, parameters: Parameters) -> Result:
        for way in (self._system_rows, self._first_rows) if is_common(self._context, query.text) else ():
            found = way(query, parameters)
            if found is not None:
                return found
        read = self._read(query, parameters)

        def rescue(error: BaseException) -> DataFrame | BaseException | None:
            nonlocal read
            found = in_users_words(error, query)
            if not isinstance(found, StorageError):
                return found
            try:
                damaged = [rf.distrust_damaged(s, self._context.roots()) for s in read.snapshots]
            except StorageError as broken:
                return broken
            if not any(damaged):
                return found
            read = self._read(query, parameters, at=read.version)
            return read.frame

        return Result(
            frame=read.frame,
            spark=lambda: self._context.spark,
            rescue=rescue,
            holds=read.holds,
            running=lambda: self._context.tags.statement(with_jobs=True),
        )

    def _system_rows(self, query: Query, parameters: Parameters) -> Result | None:
        """The answer to a query that names only system tables, without Spark; `None` for any other."""
        if not query.refs or not all(_is_system(ref) for ref in query.refs):
            return None
        try:
            settings = self._context.expression_settings()
        except Exception:  # a session that has ended cannot be asked
            settings = None
        rows = system.answer(self._context, query, parameters, settings)
        return None if rows is None else Result(table=rows, spark=lambda: self._context.spark)

    def _first_rows(self, query: Query, parameters: Parameters) -> Result | None:
        """The answer to a query that asks for first rows of one relation, without Spark; `None` for any other."""
        wanted = select.recognize(query, parameters)
        if wanted is None:
            return None
        try:
            answer = self._database.reader.query(
                wanted.relation, lambda relation: self._request(wanted, relation), scan_rows_max=SCAN_ROWS_MAX
            )
        except (select.NotSimple, TooMany, UnknownNameError):
            return None  # Spark reads large relations in parallel, and knows the user's temporary views
        return result_of(answer, self._context)

    def _request(self, wanted: select.Select, relation: Relation) -> Request:
        """What a SELECT asks for. What indexes say is looked up only if it has more than comparisons of columns."""
        try:
            return select.bound(wanted, relation)
        except select.NotSimple:
            zone = zone_of(self._context)
        with contextlib.suppress(select.NotSimple):
            return select.bound(wanted, relation, zone=zone)
        return select.bound(wanted, relation, self._database.reader.spoken(wanted.relation), zone)

    def _read(self, query: Query, parameters: Parameters, *, at: Version | None = None) -> Reading:
        """A query over one consistent snapshot of all relations that it names, pinned."""
        wanted = [self._version_of(ref, parameters) for ref in query.refs]
        if not query.refs:
            return Reading(version=Version(0), frame=self._frame(query, parameters, {}))

        def read(connection: Connection, now: Version) -> tuple[Version, Relations]:
            return now, self._relations(connection, query, [now if v is None else v for v in wanted])

        asked = [v for v in wanted if v is not None]
        (version, relations), holds = scans.at_version(
            self._context, self._database.pins, at, "query", read, besides=asked
        )
        with scans.released_on_error(holds):
            frame = self._frame(query, parameters, relations)
        return Reading(version=version, frame=frame, snapshots=_snapshots(relations), holds=holds)

    def _read_in(self, query: Query, parameters: Parameters, at: Version) -> Reading:
        """The same inside an open transaction, whose row keeps its snapshot from vacuum."""
        wanted = [self._version_of(ref, parameters) for ref in query.refs]
        older = sorted({v for v in wanted if v is not None})
        holds = [self._database.pins.hold(v, "an older version in a write") for v in older]
        with scans.released_on_error(holds):
            with self._context.catalog.reading() as connection:
                relations = self._relations(connection, query, [at if v is None else v for v in wanted])
            frame = self._frame(query, parameters, relations)
        return Reading(version=at, frame=frame, snapshots=_snapshots(relations))

    def _relations(self, connection: Connection, query: Query, versions: Sequence[Version]) -> Relations:
        """Mentions of one table at one version are looked up once."""
        known: dict[tuple[object, ...], Snapshot | pa.Table | None] = {}
        found: dict[TableRef, Snapshot | pa.Table | None] = {}
        for ref, at in zip(query.refs, versions, strict=True):
            key = (ref.parts, ref.version, ref.timestamp, at)
            if key not in known:
                known[key] = self._relation(connection, ref, at)
            found[ref] = known[key]
        return found

    def _relation(self, connection: Connection, ref: TableRef, version: Version) -> Snapshot | pa.Table | None:
        """What a name stands for: a snapshot, the rows of a system table, or `None` for the user's temporary view."""
        if _is_system(ref):
            return system.read(connection, ref.name, self._context.catalog.clock())
        relation = reads.find_relation(connection, ref.name) if len(ref.parts) == 1 else None
        if relation is None:
            if len(ref.parts) == 1 and self._context.spark.catalog.tableExists(quote(ref.name)):
                return None
            relation = reads.relation(connection, ".".join(ref.parts))
        reads.require_readable(connection, relation, version)
        require_built(connection, relation)
        return reads.snapshot(connection, reads.relation(connection, ref.name, version=version), version)

    def _frame(self, query: Query, parameters: Parameters, relations: Relations) -> DataFrame:
        """The query over its relations; a name that is none of ours is the user's temporary view."""
        spark = self._context.spark
        frames: dict[int, DataFrame] = {}
        for number, ref in enumerate(query.refs):
            found = relations.get(ref)
            if isinstance(found, Snapshot):
                frames[number] = scans.frame_of(self._context, found, hidden=ref.target)
            elif found is not None:
                frames[number] = local_frame(spark, found)

        def reworded(error: Exception, names: Collection[str], place: Callable[[int], int]) -> EblaError | None:
            return in_users_words(error, query, names, spark, place)

        def exact(frame: DataFrame, text: str) -> str | None:
            users = query.source or StatementText(text=query.text)
            return comparisons.exact(frame, text, zone_of(self._context), users)

        frame = over(spark, query, frames, parameters=parameters, reworded=reworded, exact=exact)
        refuse_deep(frame)
        return frame

    def _version_of(self, ref: TableRef, parameters: Parameters) -> Version | None:
        if ref.version is not None:
            value: object = ref.version
            if isinstance(value, str) and value.startswith(":"):
                value = _parameter(value[1:], parameters)
            if not isinstance(value, int) or isinstance(value, bool):
                raise SqlError(f"VERSION AS OF: expected a whole number, found {value!r}")
            if abs(value) >= FOREVER:
                raise SnapshotError(f"VERSION AS OF: expected a version, found {value}")
            return Version(value)
        if ref.timestamp is not None:
            return self._version_at(ref.timestamp, parameters)
        return None

    def _version_at(self, expression: str, parameters: Parameters) -> Version:
        text = f"SELECT unix_micros(CAST({expression} AS TIMESTAMP))"
        try:
            found = self._context.spark.sql(text, dict(parameters)).collect()[0][0]
        except Exception as error:
            better = in_users_words(error, Query(text=expression))
            if better is None:
                raise
            raise better from error
        if found is None:
            raise SqlError(f"TIMESTAMP AS OF: expected a time, found {expression}")
        with self._context.catalog.reading() as connection:
            return reads.version_at(connection, int(found))

    def _explain(self, statement: st.Explain, parameters: Parameters) -> Result:
        alike = statement.mode is None and is_common(self._context, statement.query.text)
        wanted = select.recognize(statement.query, parameters) if alike else None
        why = ""
        if wanted is not None:
            try:
                plan = self._database.reader.explain(wanted.relation, lambda relation: self._request(wanted, relation))
                if not (plan.scan and plan.extent.rows > SCAN_ROWS_MAX):
                    return self._table({"plan": [query_explain.as_text(plan)]})
                why = f"{plan.extent.rows:,} rows would be read one by one"
            except (select.NotSimple, TooMany, UnknownNameError) as error:
                why = str(error)
        read = self._read(statement.query, parameters)
        mode = statement.mode or "formatted"
        utils = java_class(self._context.spark, "org.apache.spark.sql.api.python.PythonSQLUtils")
        shown = utils.explainString(read.frame._jdf.queryExecution(), mode)
        read.release()
        said = f"\nNot answered as first rows, without Spark: {why}\n" if why else ""
        return self._table({"plan": [f"{shown}{said}"]})

    # ---- changes ----------------------------------------------------------------------------------------

    def _change(
        self, statement: st.Insert | st.Update | st.Delete | st.Merge, source: StatementText, parameters: Parameters
    ) -> Result:
        def make(relation: Relation, transaction: tx.Transaction) -> b.ArrowBatch | b.FrameBatch:
            columns = [c.name for c in relation.visible]
            key = [c.name for c in relation.key]
            hidden = [c.name for c in relation.columns if c.hidden]
            kinds = {c.name: c.type for c in relation.visible}
            dialect, given = dialect_of(self._context, parameters), defaults.sql_by_name(relation)

            def read(query: Query) -> Reading:
                return self._read_in(replace(query, source=source), parameters, transaction.snapshot)

            match statement:
                case st.Insert():
                    verb = b.UPSERT if statement.upsert else b.INSERT
                    made = literal_batch(statement, relation, dialect)
                    if isinstance(made, b.ArrowBatch):
                        return made
                    found = None if made is None else values_batch(made, relation, verb, read)
                    if found is not None:
                        return found
                    query = dml.insert_query(statement, columns, key, hidden=hidden, defaults=given)
                case st.Update():
                    query = dml.update_query(statement, columns, key, hidden, kinds, dialect, given)
                case st.Delete():
                    query = dml.delete_query(statement, columns, key, hidden=hidden)
                case st.Merge():
                    query = dml.merge_query(statement, columns, key, hidden, kinds, dialect, given)
                case _:
                    assert_never(statement)
            rows = read(query)
            frame = swrite.fitted(rows.frame, relation, keep=[b.KIND], hidden=True, utf8=True)
            return b.FrameBatch(frame=frame, kind=None, reads=rows.snapshots)

        # A blind upsert of given values reads nothing that another writer could change.
        blind = isinstance(statement, st.Insert) and statement.upsert and not statement.source.refs
        reason = f"{_verb(statement)} {statement.table}"
        return self._write(statement.table, make, reason=reason, reads_target=not blind)

    def _write(self, table: str, make: Make, *, reason: str, reads_target: bool) -> Result:
        written: Written = write(self._context, table, make, reason=reason, reads_target=reads_target)
        self._database.maintainer.wake(written.relation.name)
        return self._row(rows=written.rows, version=None if written.version is None else int(written.version))

    def _load(self, load: st.Load, parameters: Parameters) -> Result:
        table = self._database.table(load.table)
        path = load.path
        if load.parameter is not None:
            given = _parameter(load.parameter, parameters)
            if not isinstance(given, str | os.PathLike):
                raise SqlError(f"LOAD … FROM :{load.parameter}: expected a path, which is a string, found {given!r}")
            path = os.fspath(given)
        written = table.load(path, format=load.format, options=load.options, wait=not load.asynchronous)
        version = None if written.version is None else int(written.version)
        numbers = {"rows": written.rows, "version": version, "staged": written.staged}
        columns = {name: pa.array([value], pa.int64()) for name, value in numbers.items()}
        return self._table({**columns, "note": pa.array([_load_note(load, written)], pa.string())})

    def _create_filled(self, statement: st.CreateTable, parameters: Parameters) -> Result:
        query = statement.query
        assert query is not None

        def rows(transaction: tx.Transaction) -> filled.Rows:
            read = self._read_in(query, parameters, transaction.snapshot)
            return filled.Rows(frame=read.frame, reads=read.snapshots)

        written = filled.create_filled(self._context, statement, rows)
        if written is not None:
            self._database.maintainer.wake(written.relation.name)
            return self._row(rows=written.rows, version=None if written.version is None else int(written.version))
        return self._row(rows=0, version=None)

    # ---- definitions ------------------------------------------------------------------------------------

    def _define(self, statement: st.Statement) -> None:
        context = self._context
        match statement:
            case st.CreateTable():
                ddl.create_table(
                    context,
                    statement.name,
                    defaults.columns_of(context, statement.name, statement.columns),
                    statement.primary_key,
                    if_not_exists=statement.if_not_exists,
                    or_replace=statement.or_replace,
                    comment=statement.comment,
                    options=statement.options,
                    constraints=self._constraints(statement),
                )
            case st.AddConstraint(table=table, check=check):
                constraints.add_constraint(context, table, check)
            case st.DropConstraint(table=table, name=name, if_exists=if_exists):
                constraints.drop_constraint(context, table, name, if_exists=if_exists)
            case st.DropTable(name=name, if_exists=if_exists, cascade=cascade):
                ddl.drop_table(context, name, if_exists=if_exists, cascade=cascade)
            case st.RenameTable(table=table, new_name=new):
                ddl.rename_table(context, table, new)
            case st.AddColumns(table=table, columns=specs, if_not_exists=optional):
                added = defaults.columns_of(context, table, specs)
                fills = partial(defaults.fills_rows, added=added)
                ddl.add_columns(context, table, added, if_not_exists=optional, fills=fills)
            case st.SetDefault(table=table, column=column, default=text):
                defaults.set_default(context, table, column, text)
            case st.DropColumns(table=table, columns=names, cascade=cascade):
                ddl.drop_columns(context, table, names, cascade=cascade)
            case st.RenameColumn(table=table, column=column, new_name=new):
                ddl.rename_column(context, table, column, new)
            case st.AlterColumnType(table=table, column=column, type=kind):
                ddl.widen_column(context, table, column, kind)
            case st.SetTableComment(table=table, comment=comment):
                ddl.comment_table(context, table, comment)
            case st.SetColumnComment(table=table, column=column, comment=comment):
                ddl.comment_column(context, table, column, comment)

    def _constraints(self, statement: st.CreateTable) -> Sequence[Constraint]:
        """Analysed only if the table comes to be."""
        if statement.if_not_exists:
            with self._context.catalog.reading() as connection:
                if reads.find_relation(connection, statement.name) is not None:
                    return ()
        columns = [_column(spec) for spec in statement.columns]
        return constraints.declared(self._context, statement.name, columns, statement.checks)

    def _maintain(self, statement: st.Compact | st.Vacuum) -> Result:
        if isinstance(statement, st.Vacuum):
            done = self._database.vacuum(statement.table, retain_s=statement.retain_seconds)
            return self._row(horizon=int(done.horizon), files=done.files, bytes=done.bytes, orphans=done.orphans)
        with self._context.catalog.reading() as connection:
            names = [statement.table] if statement.table else reads.relation_names(connection)
        found = [maintenance.compact(self._context, name) for name in names]
        return self._table(
            {
                "relation": [f.relation for f in found],
                "tablets": [f.tablets for f in found],
                "folded_runs": [f.folded_runs for f in found],
                "version": pa.array([f.version for f in found], pa.int64()),
            }
        )

    def _show_create(self, what: str, name: str) -> Result:
        with self._context.catalog.reading() as connection:
            return self._table({"statement": pa.array([creation.statement(connection, what, name)], pa.string())})

    def _show_tables(self, like: str | None) -> Result:
        with self._context.catalog.reading() as connection:
            every = [reads.relation(connection, n) for n in reads.relation_names(connection)]
        found = [r for r in every if r.kind is not Kind.INDEX]
        shown = pa.table(
            {
                "name": pa.array([r.name for r in found], pa.string()),
                "kind": pa.array([r.kind.value for r in found], pa.string()),
                "primary_key": pa.array([_key_text(r) for r in found], pa.string()),
                "tablets": pa.array([r.tablets for r in found], pa.int64()),
                "replication": pa.array([r.replication for r in found], pa.int64()),
                "comment": pa.array([r.comment for r in found], pa.string()),
            }
        )
        return Result(table=named_like(shown, like), spark=lambda: self._context.spark)

    def _describe(self, name: str, *, is_system: bool) -> Result:
        if is_system:
            fields = list(system.table_schema(name))
            return self._table({"column": [f.name for f in fields], "type": [types.from_arrow(f.type) for f in fields]})
        with self._context.catalog.reading() as connection:
            relation = reads.relation(connection, name)
        rows: list[tuple[object, ...]] = [
            (
                c.name,
                c.type,
                c.nullable,
                None if c.key_position is None else c.key_position + 1,
                c.comment,
                None if c.default is None else c.default.text,
            )
            for c in relation.visible
        ]
        rows += [(f"# check {one.name}", one.text, None, None, None, None) for one in relation.constraints]
        if relation.kind is Kind.VIEW:
            rows.append((creation.DEFINITION, str(relation.options["query"]), None, None, relation.comment, None))
        kinds = (pa.string(), pa.string(), pa.bool_(), pa.int64(), pa.string(), pa.string())
        arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        return self._table(dict(zip(("column", "type", "nullable", "key", "comment", "default"), arrays, strict=True)))

    # ---- results ----------------------------------------------------------------------------------------

    def _table(self, columns: Mapping[str, Sequence[Any] | pa.Array]) -> Result:
        return Result(table=pa.table(dict(columns)), spark=lambda: self._context.spark)

    def _row(self, **values: int | None) -> Result:
        return self._table({name: pa.array([value], pa.int64()) for name, value in values.items()})


def _parameter(name: str, parameters: Parameters) -> object:
    if name not in parameters:
        raise UnknownNameError(f"parameter :{name}: expected a value, found none; pass {name}=…")
    return parameters[name]


def _verb(statement: st.Insert | st.Update | st.Delete | st.Merge) -> str:
    """What the history says of a statement, in front of the table's name."""
    match statement:
        case st.Insert(upsert=upsert):
            return "upsert into" if upsert else "insert into"
        case st.Update():
            return "update"
        case st.Delete():
            return "delete from"
        case st.Merge():
            return "merge into"
        case _:
            assert_never(statement)


def _is_system(ref: TableRef) -> bool:
    """Whether a mention is of a system table, which has no version but the present."""
    found = len(ref.parts) == 2 and ref.parts[0].lower() == "system"
    if found and (ref.version is not None or ref.timestamp is not None):
        raise SnapshotError(f"system.{ref.name}: expected the present, found a version; it has no other")
    return found


def _load_note(load: st.Load, written: Written) -> str | None:
    """What the version of a staged load means."""
    if not written.staged:
        return None
    if load.asynchronous:
        return f"staged at version {written.version}; becomes visible tablet by tablet: SHOW PROGRESS"
    return f"was staged and became visible tablet by tablet, the last one at version {written.version}"


def _column(spec: st.ColumnSpec) -> Column:
    return Column(name=spec.name, physical=spec.name, type=spec.type, nullable=spec.nullable, comment=spec.comment)


def _key_text(relation: Relation) -> str | None:
    return None if relation.keyless else ", ".join(c.name for c in relation.key)
