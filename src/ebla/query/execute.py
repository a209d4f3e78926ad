"""A request carried out: the catalog is read once, a path is chosen, and rows come from runs without a Spark job.

The answer is that of one version: the newest when the catalog was read. Nothing is pinned, as a read takes
milliseconds; should vacuum remove a file in that moment, the read begins again at a newer version.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from ebla.base.precedence import PRECEDENCE
from ebla.errors import CorruptRunError, EblaError, StorageError, UsageError
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates import conditions as c
from ebla.predicates.select import IndexVocabulary
from ebla.query.answer import Answer, cursor_behind, under_names
from ebla.query.overlay import Overlay, Source, division
from ebla.query.plan import Extent, FittedPath, Plan, choose, fit, lacks, plan
from ebla.query.preparation import Permit, Preparation, anyone
from ebla.query.prepared_relation import PreparedRelation
from ebla.query.row_search import RowSearch
from ebla.query.streams import Seek, TooMany
from ebla.tables.read_access import ReadAccess

ATTEMPTS = 5


def _duckdb_error() -> type[Exception]:
    """Asked for only when something failed: most answers need no DuckDB."""
    import duckdb

    return duckdb.Error


Make = Callable[[Relation], c.Request]


class Reader:
    """The reads of one open database."""

    def __init__(self, context: ReadAccess, wake: Callable[[], None] = lambda: None) -> None:
        self._context = context
        self._store = context.storage.store
        self._preparation = Preparation(context.catalog, context.storage, context.indexes, wake)

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
        permit: Permit = anyone,
    ) -> Answer:
        """Answer the request that `make` gives for the relation as it is now.

        A scan of more rows than `scan_rows_max` is refused with `TooMany`. `also` names relations that serve as
        indexes, `down` their columns that are sorted downwards. `permit` raises for one that is not for who asks.
        """
        if at_least is not None:
            if type(at_least) is not int or at_least < 0:
                raise UsageError(f"at_least: expected a version, a whole number from 0, found {at_least!r}")
            if type(wait_s) not in (int, float) or not wait_s >= 0:
                raise UsageError(f"wait_s: expected seconds from 0, found {wait_s!r}")
            self._preparation.wait(name, at_least, wait_s, permit)
        for attempt in range(ATTEMPTS):
            with PRECEDENCE.query():
                prepared = self._preparation.asked(name, tuple(also), tuple(down), permit)
                request = make(prepared.relation)
                try:
                    return self._answer(prepared, request, scan_rows_max)
                except (StorageError, _duckdb_error(), FileNotFoundError) as error:
                    self._after_failure(prepared, error, is_last=attempt == ATTEMPTS - 1)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def prepare(self) -> None:
        """Read and merge what the next queries need like those that were asked since this was done before."""
        for signature in self._preparation.taken_asked():
            with contextlib.suppress(EblaError):  # the next query says what is wrong
                prepared = self._preparation.of(*signature)
                for path, snapshot in prepared.paths:
                    source = self._source(prepared, snapshot)
                    if self._store.has_layers(path):
                        Overlay(source, path, division(source, path).files)

    def explain(self, name: str, make: Make, *, also: Sequence[str] = ()) -> Plan:
        prepared = self._preparation.of(name, tuple(also))
        return self._plan(prepared, make(prepared.relation), whole=True)[0]

    def spoken(self, name: str) -> IndexVocabulary:
        """What indexes of a relation have besides its columns, as far as it means the same in this session."""
        return self._preparation.of(name).spoken(self._context.expression_settings)

    def _after_failure(self, prepared: PreparedRelation, error: Exception, *, is_last: bool) -> None:
        """Decide whether another attempt can succeed: with another copy, or at a newer version; else raise."""
        newer = self._context.catalog.version() != prepared.version
        damaged = False
        try:
            damaged = prepared.distrust_damaged()
        except CorruptRunError:
            if is_last or not newer:
                raise
        if is_last or not (newer or damaged):
            if isinstance(error, StorageError):
                raise error
            raise CorruptRunError(f"{prepared.relation.name}: expected readable runs, found: {error}") from error

    # ---- the answer -------------------------------------------------------------------------------------

    def _source(self, prepared: PreparedRelation, snapshot: Snapshot) -> Source:
        return Source(
            snapshot=snapshot,
            roots=prepared.roots,
            store=self._store,
            cache=self._context.storage.level0,
            lookups=self._context.storage.lookups,
            level0_rows_max=self._context.settings.level0_rows_max,
            divisions=prepared.divisions,
        )

    def _plan(
        self, prepared: PreparedRelation, request: c.Request, *, can_seek: bool = True, whole: bool = False
    ) -> tuple[Plan, Seek]:
        """The best plan. Of others it is known that they are worse; with `whole`, also how much."""
        fits: list[tuple[FittedPath, Snapshot]] = []
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
            seek = Seek(self._source(prepared, snapshot), fitted, asked.order)
            made = partial(plan, asked, fitted, can_seek=can_seek and seek.selection.division.seekable)
            extent = seek.selection.extent(None if whole else _worse(made, least))
            found[fitted.path.name] = made(extent), seek
            least = min(least, found[fitted.path.name][0].cost_us)
        best = choose([found[fitted.path.name][0] for fitted, _ in fits], unfit)
        return best, found[best.fitted.path.name][1]

    def _answer(self, prepared: PreparedRelation, request: c.Request, scan_rows_max: int | None) -> Answer:
        chosen, seek = self._plan(prepared, request)
        found: pa.Table | None = None
        if not chosen.scan:
            path, base = prepared.paths[0]
            try:
                found = RowSearch((self._source(prepared, base), path), chosen, seek).rows()
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
            table=under_names(page, request.columns),
            version=prepared.version,
            plan=chosen,
            next=cursor_behind(request, page) if more and not request.any_order else None,
            applied_version=applied,
            age_s=age_s,
        )

    def _scanned(self, chosen: Plan, seek: Seek) -> pa.Table:
        from ebla.query.scan import Scan

        runs = {one.run.id: one.run for one in seek.selection.selected}
        cursor = self._context.duck()
        try:
            return Scan(cursor, seek.source, seek.path, chosen.request).rows(list(runs.values()))
        finally:
            cursor.close()


def _worse(made: Callable[[Extent], Plan], least: float) -> Callable[[Extent], bool]:
    """Whether a plan is worse than one of this cost, from a part of its row groups.

    More of them cost more, but up to half of what the first ones cost may turn out to lie outside the intervals.
    """
    return lambda so_far: made(so_far).cost_us > 2 * least
