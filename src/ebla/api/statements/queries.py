"""Queries, carried out: from system tables, as first rows, or over snapshots by Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api import system
from ebla.api.statements.answers import columns
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import EblaError, SnapshotError, SqlError, StorageError, UnknownNameError
from ebla.model.relation import FOREVER, Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import select
from ebla.predicates.conditions import Request
from ebla.query import explain as query_explain
from ebla.query.streams import TooMany
from ebla.relations.guard import require_built
from ebla.spark import comparisons
from ebla.spark.query import over, parameter_columns, refuse_deep
from ebla.spark.result import Result
from ebla.spark.session import java_class, local_frame
from ebla.spark.wording import in_users_words
from ebla.sql import statements as st
from ebla.sql.lex import StatementText, quote
from ebla.sql.query import Query, TableRef
from ebla.storage import runs as rf
from ebla.tables import scans
from ebla.tables.literals import is_common, zone_of

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


class Queries:
    """The queries of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context

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
        return answer.result(self._context)

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

    def read_in(self, query: Query, parameters: Parameters, at: Version) -> Reading:
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
                value = parameter(value[1:], parameters)
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
            found = self._context.spark.sql(text, parameter_columns(parameters)).collect()[0][0]
        except Exception as error:
            better = in_users_words(error, Query(text=expression))
            if better is None:
                raise
            raise better from error
        if found is None:
            raise SqlError(f"TIMESTAMP AS OF: expected a time, found {expression}")
        with self._context.catalog.reading() as connection:
            return reads.version_at(connection, int(found))

    def explain(self, statement: st.Explain, parameters: Parameters) -> Result:
        alike = statement.mode is None and is_common(self._context, statement.query.text)
        wanted = select.recognize(statement.query, parameters) if alike else None
        why = ""
        if wanted is not None:
            try:
                plan = self._database.reader.explain(wanted.relation, lambda relation: self._request(wanted, relation))
                if not (plan.scan and plan.extent.rows > SCAN_ROWS_MAX):
                    return columns(self._context, {"plan": [query_explain.as_text(plan)]})
                why = f"{plan.extent.rows:,} rows would be read one by one"
            except (select.NotSimple, TooMany, UnknownNameError) as error:
                why = str(error)
        read = self._read(statement.query, parameters)
        mode = statement.mode or "formatted"
        utils = java_class(self._context.spark, "org.apache.spark.sql.api.python.PythonSQLUtils")
        shown = utils.explainString(read.frame._jdf.queryExecution(), mode)
        read.release()
        said = f"\nNot answered as first rows, without Spark: {why}\n" if why else ""
        return columns(self._context, {"plan": [f"{shown}{said}"]})


def parameter(name: str, parameters: Parameters) -> object:
    if name not in parameters:
        raise UnknownNameError(f"parameter :{name}: expected a value, found none; pass {name}=…")
    return parameters[name]


def _is_system(ref: TableRef) -> bool:
    """Whether a mention is of a system table, which has no version but the present."""
    found = len(ref.parts) == 2 and ref.parts[0].lower() == "system"
    if found and (ref.version is not None or ref.timestamp is not None):
        raise SnapshotError(f"system.{ref.name}: expected the present, found a version; it has no other")
    return found
