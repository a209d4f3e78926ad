"""A request carried out: the catalog is read once, a path is chosen, and rows come from runs without a Spark job.

The answer is that of one version: the newest when the catalog was read. Nothing is pinned, as a read takes
milliseconds; should vacuum remove a file in that moment, the read begins again at a newer version.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.errors import CorruptRunError, SnapshotError, StorageError, UsageError
from ebla.model.relation import Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import conditions as c
from ebla.predicates import filters as fl
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath
from ebla.predicates.select import Spoken
from ebla.query import plan as planning
from ebla.query.fetch import fetch
from ebla.query.fresh import Fresh, fresh, reached
from ebla.query.paths import index_path, paths_of, spoken_of, unreadable
from ebla.query.plan import Extent, Fitted, Plan, choose, fit, lacks, plan
from ebla.query.streams import Place, Seek, Source, TooMany
from ebla.relations.guard import require_built
from ebla.spark.result import Facts, Result
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.store import Lru, single
from ebla.tables.context import Context
from ebla.values import types

POLL_S = 0.02
ATTEMPTS = 5
PREPARED_MAX = 256


def _duckdb_error() -> type[Exception]:
    """Asked for only when something failed: most answers need no DuckDB."""
    import duckdb

    return duckdb.Error


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the catalog says of a relation at one version, for as long as that is the newest."""

    version: Version
    relation: Relation
    paths: tuple[tuple[AccessPath, Snapshot], ...]
    """The relation itself comes first."""
    roots: Mapping[NodeId, Root]
    fresh: Fresh | None
    """Of a view."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Indexes that are not among the paths, and why."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    table: pa.Table
    """The shown columns under their names."""
    version: Version
    plan: Plan
    next: str | None
    """Where the next page begins; `None` after the last one."""
    applied_version: Version | None = None
    age_s: float | None = None


def result_of(answer: Answer, context: Context) -> Result:
    applied = answer.applied_version
    facts = Facts(applied_version=None if applied is None else int(applied), age_s=answer.age_s, next=answer.next)
    return Result(table=answer.table, spark=lambda: context.spark, facts=facts)


Make = Callable[[Relation], c.Request]


class Reader:
    """The reads of one open database."""

    def __init__(self, context: Context, wake: Callable[[], None] = lambda: None) -> None:
        self._context = context
        self._wake = wake
        self._store = context.store
        self._prepared: Lru[Prepared] = Lru(PREPARED_MAX)

    def query(
        self,
        name: str,
        make: Make,
        *,
        at_least: int | None = None,
        wait_s: float = 10.0,
        scan_rows_max: int | None = None,
        also: Sequence[str] = (),
        down: Sequence[str] = (),
    ) -> Answer:
        """Answer the request that `make` gives for the relation as it is now.

        A scan of more rows than `scan_rows_max` is refused with `TooMany`. `also` names relations that serve as
        indexes, `down` their columns that are sorted downwards.
        """
        if at_least is not None:
            if type(at_least) is not int or at_least < 0:
                raise UsageError(f"at_least: expected a version, a whole number from 0, found {at_least!r}")
            if type(wait_s) not in (int, float) or not wait_s >= 0:
                raise UsageError(f"wait_s: expected seconds from 0, found {wait_s!r}")
            self._wait(name, at_least, wait_s)
        for attempt in range(ATTEMPTS):
            prepared = self._prepare(name, tuple(also), tuple(down))
            request = make(prepared.relation)
            try:
                return self._answer(prepared, request, scan_rows_max)
            except (StorageError, _duckdb_error(), FileNotFoundError) as error:
                self._after_failure(prepared, error, is_last=attempt == ATTEMPTS - 1)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def explain(self, name: str, make: Make, *, also: Sequence[str] = ()) -> Plan:
        prepared = self._prepare(name, tuple(also))
        return self._plan(prepared, make(prepared.relation), whole=True)[0]

    def spoken(self, name: str) -> Spoken:
        """What indexes of a relation have besides its columns, as far as it means the same in this session."""
        prepared = self._prepare(name)
        paths = [path for path, _ in prepared.paths if path.settings]
        return spoken_of(paths, self._context.expression_settings()) if paths else Spoken()

    # ---- the catalog ------------------------------------------------------------------------------------

    def _prepare(self, name: str, also: tuple[str, ...] = (), down: tuple[str, ...] = ()) -> Prepared:
        """Every commit makes a version, so what was read at this version is still so."""
        if not isinstance(name, str):
            raise UsageError(f"relation: expected the name of a table or view, found {name!r}")
        signature = (name.lower(), also, down)
        with self._context.catalog.reading() as connection:
            version = reads.current_version(connection)
            kept = self._prepared.get(signature)
            if kept is not None and kept.version == version:
                return kept
            made = self._read(connection, name, also, down, version)
        self._prepared.put(signature, made)
        return made

    def _read(
        self, connection: Connection, name: str, also: Sequence[str], down: Sequence[str], version: Version
    ) -> Prepared:
        relation = reads.relation(connection, name)
        require_built(connection, relation)
        paths = paths_of(connection, relation, self._context.indexes)
        paths += [index_path(relation, reads.relation(connection, other), descending=down) for other in also]
        found = tuple((path, reads.snapshot(connection, path.relation, version)) for path in paths)
        return Prepared(
            version=version,
            relation=relation,
            paths=found,
            roots=self._context.roots_in(connection),
            fresh=fresh(connection, relation),
            unreadable=tuple(unreadable(connection, relation, self._context.indexes)),
        )

    def _wait(self, name: str, version: int, wait_s: float) -> None:
        """Return when the relation shows everything committed up to a version."""
        deadline = time.monotonic() + wait_s
        while True:
            with self._context.catalog.reading() as connection:
                relation = reads.relation(connection, name)
                newest = reads.current_version(connection)
                if version > newest:
                    raise SnapshotError(
                        f"{relation.name}: expected at_least up to {newest}, the newest version, found {version}"
                    )
                shown = reached(connection, relation, version)
            if shown is None:
                return
            if time.monotonic() >= deadline:
                raise SnapshotError(
                    f"view {relation.name}: expected version {version} applied within {wait_s:g} s, found {shown}; "
                    f"FLUSH {relation.name}, or wait longer"
                )
            self._wake()
            time.sleep(POLL_S)

    def _after_failure(self, prepared: Prepared, error: Exception, *, is_last: bool) -> None:
        """Decide whether another attempt can succeed: with another copy, or at a newer version; else raise."""
        newer = self._context.catalog.version() != prepared.version
        damaged = False
        try:
            damaged = any(rf.distrust_damaged(snapshot, prepared.roots) for _, snapshot in prepared.paths)
        except CorruptRunError:
            if is_last or not newer:
                raise
        if is_last or not (newer or damaged):
            if isinstance(error, StorageError):
                raise error
            raise CorruptRunError(f"{prepared.relation.name}: expected readable runs, found: {error}") from error

    # ---- the answer -------------------------------------------------------------------------------------

    def _source(self, prepared: Prepared, snapshot: Snapshot) -> Source:
        return Source(snapshot=snapshot, roots=prepared.roots, store=self._store, cache=self._context.cache)

    def _plan(
        self, prepared: Prepared, request: c.Request, *, can_seek: bool = True, whole: bool = False
    ) -> tuple[Plan, Seek]:
        """The best plan. Of others it is known that they are worse; with `whole`, also how much."""
        fits: list[tuple[Fitted, Snapshot]] = []
        unfit = list(prepared.unreadable)
        for path, snapshot in prepared.paths:
            why = lacks(path, request)
            fitted = None if why is not None else fit(path, request)
            if fitted is None or not (can_seek or fitted.covering):
                unfit.append((path.name, why or "it has not all columns, and rows by key would be too many"))
            else:
                fits.append((fitted, snapshot))
        if not fits:
            raise TooMany("; ".join(f"{name}: {why}" for name, why in unfit))  # its index went meanwhile, or must scan
        found: dict[str, tuple[Plan, Seek]] = {}
        least = math.inf
        for fitted, snapshot in sorted(fits, key=lambda one: (not one[0].exact, -one[0].used)):
            asked = request.without(fitted.path.promises)
            level0_rows = sum(r.rows for r in snapshot.level0)
            seekable = can_seek and level0_rows <= self._context.settings.level0_rows_max
            made = partial(plan, asked, fitted, can_seek=seekable)
            seek = Seek(self._source(prepared, snapshot), fitted, asked.order)
            extent = seek.extent(None if whole else _worse(made, least))
            found[fitted.path.name] = made(extent), seek
            least = min(least, found[fitted.path.name][0].cost_us)
        best = choose([found[fitted.path.name][0] for fitted, _ in fits], unfit)
        return best, found[best.fitted.path.name][1]

    def _answer(self, prepared: Prepared, request: c.Request, scan_rows_max: int | None) -> Answer:
        chosen, seek = self._plan(prepared, request)
        found: pa.Table | None = None
        if not chosen.scan:
            try:
                found = _Sought(self, prepared, chosen, seek).rows()
            except TooMany:
                chosen, seek = self._plan(prepared, request, can_seek=False)
        if found is None:
            if scan_rows_max is not None and chosen.extent.rows + chosen.extent.level0_rows > scan_rows_max:
                raise TooMany
            found = self._scanned(chosen, seek)
        more = found.num_rows > request.limit
        page = found.slice(0, request.limit)
        applied, age_s = (None, None) if prepared.fresh is None else prepared.fresh.now(self._context.catalog.clock())
        return Answer(
            table=_shown(page, request.columns),
            version=prepared.version,
            plan=chosen,
            next=_cursor(request, page) if more and not request.any_order else None,
            applied_version=applied,
            age_s=age_s,
        )

    def _scanned(self, chosen: Plan, seek: Seek) -> pa.Table:
        from ebla.query.scan import Scan

        runs = {one.run.id: one.run for one in seek.selected}
        cursor = self._context.duck()
        try:
            return Scan(cursor, seek.source, seek.path, chosen.request).rows(list(runs.values()))
        finally:
            cursor.close()

    def fetched(self, prepared: Prepared, keys: Sequence[tuple[Any, ...]], wanted: Sequence[Column]) -> pa.Table:
        path, snapshot = prepared.paths[0]
        return fetch(self._source(prepared, snapshot), path, keys, wanted)


def _worse(made: Callable[[Extent], Plan], least: float) -> Callable[[Extent], bool]:
    """Whether a plan is worse than one of this cost, from a part of its row groups.

    More of them cost more, but up to half of what the first ones cost may turn out to lie outside the intervals.
    """
    return lambda so_far: made(so_far).cost_us > 2 * least


class _Sought:
    """Rows from sorted streams, in batches that are whole in the order, until there are enough."""

    def __init__(self, reader: Reader, prepared: Prepared, chosen: Plan, seek: Seek) -> None:
        self._reader = reader
        self._prepared = prepared
        self._request = chosen.request
        self._fitted = chosen.fitted
        self._seek = seek
        order = () if self._request.any_order else tuple(by.column for by in self._request.order)
        used = (*self._request.columns, *order, *(f.column for f in self._fitted.late))
        self._wanted = list({column.physical: column for column in used}.values())

    def rows(self) -> pa.Table:
        want = self._request.limit + 1
        items = iter(self._seek.rows(in_order=not self._request.any_order))
        parts: list[pa.Table] = []
        count, read, ended = 0, 0, False
        held: tuple[v.Ranks, Place] | None = None
        while not ended and count < want:
            places, held, ended = self._batch(items, held, want - count)
            read += len(places)
            if self._fitted.late and read > planning.FETCHED_MAX:
                raise TooMany
            part = self._settled(places)
            parts.append(part)
            count += part.num_rows
        joined = pa.concat_tables(parts) if parts else rf.physical_schema(self._wanted).empty_table()
        return joined.slice(0, want)

    def _batch(
        self, items: Any, held: tuple[v.Ranks, Place] | None, least: int
    ) -> tuple[list[Place], tuple[v.Ranks, Place] | None, bool]:
        """At least so many rows, and in an order that is not exact all that are equal to the last of them.

        Also the row that was read too far, and whether there are no more.
        """
        places: list[Place] = []
        last: v.Ranks | None = None
        exact = self._fitted.exact
        if held is not None:
            last = held[0]
            places.append(held[1])
        for ranks, _, place in items:
            if len(places) >= least and (exact or ranks != last):
                return places, (ranks, place), False
            places.append(place)
            last = ranks
            if not exact and len(places) > planning.COLLECTED_MAX:
                raise TooMany
        return places, None, True

    def _settled(self, places: Sequence[Place]) -> pa.Table:
        """The batch's columns, without rows that late conditions or the last page leave out, in order."""
        if self._fitted.covering:
            table = self._seek.taken(places, self._wanted)
        else:
            key = list(self._prepared.relation.key)
            keys = self._seek.taken(places, key)
            lists = [v.plain(single(keys.column(k.physical))).to_pylist() for k in key]
            stored = [column for column in self._wanted if not planning.is_expression(column.physical)]
            table = self._reader.fetched(self._prepared, list(zip(*lists, strict=True)), stored)
            made = [column for column in self._wanted if planning.is_expression(column.physical)]
            for column, array in zip(made, self._seek.taken(places, made).columns, strict=True):
                table = table.append_column(column.physical, array)
        if self._fitted.late and table.num_rows:
            columns = {f.column.physical: single(table.column(f.column.physical)) for f in self._fitted.late}
            table = table.filter(fl.mask(self._fitted.late, columns))
        return table if self._fitted.exact else self._sorted(table)

    def _sorted(self, table: pa.Table) -> pa.Table:
        order = self._request.order
        if table.num_rows == 0:
            return table
        ranked = []
        for by in order:
            ranker = v.ranker(by.descending)
            values = v.plain(single(table.column(by.column.physical))).to_pylist()
            ranked.append([ranker(value) for value in values])
        rows = list(zip(*ranked, strict=True))
        wanted: Sequence[int] = range(len(rows))
        if self._request.after is not None:
            pairs = zip(order, self._request.after, strict=True)
            end = tuple(v.ranker(by.descending)(value) for by, value in pairs)
            wanted = [n for n in wanted if end < rows[n]]
        return table.take(pa.array(sorted(wanted, key=rows.__getitem__), pa.int64()))


def _shown(page: pa.Table, columns: Sequence[Column]) -> pa.Table:
    schema = pa.schema([pa.field(column.name, types.to_arrow(column.type)) for column in columns])
    return page.select([column.physical for column in columns]).rename_columns(schema.names).cast(schema)


def _cursor(request: c.Request, page: pa.Table) -> str:
    last = page.num_rows - 1
    names = [by.column.physical for by in request.order]
    values = [v.plain(single(page.column(name)))[last].as_py() for name in names]
    return c.cursor(request.relation, request.order, values)
