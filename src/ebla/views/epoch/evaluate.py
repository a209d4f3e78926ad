"""A view's own query, computed over the rows that an epoch gives it: on the driver where it can be, else by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ebla.algebra.direct_query import DirectQuery, direct_of_relations
from ebla.algebra.nodes import ClosedSubquery, Ordering
from ebla.model.relation import under_names
from ebla.relations.views import View
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.spark.prepared_query import PreparedQuery, Rows
from ebla.spark.query import over
from ebla.spark.session import local_frame
from ebla.sql.query import Query
from ebla.storage import runs as rf
from ebla.storage.rows import TooLarge, matching
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.mutations import arrow_schema, column_of
from ebla.views.epoch.narrow import Bounds, Side, State

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T

SIGN = "_ebla_sign"
PLAN_BYTES = 256 * 2**10
INTERPRETED_ROWS_MAX = 2_000
"""For more rows than this a plan is worth code of its own."""


class Evaluation:
    """One epoch's runs of one query. Rows that several runs, or several views, share become one DataFrame."""

    def __init__(self, view: View, inputs: Inputs) -> None:
        self.view = view
        self.inputs = inputs

    @property
    def names(self) -> list[str]:
        return [col.name for col in self.view.columns]

    # ---- small: rows come to the driver -----------------------------------------------------------------

    def in_scope(self, bounds: Bounds, *, whole: bool) -> pa.Table:
        """The query on the narrowed inputs, only rows in scope. With `whole` inputs, Spark leaves the others out."""
        found = None if whole else self._directly(bounds.leaves)
        if found is None and self._has_all(bounds.leaves):
            [found] = self._on_rows([(bounds.leaves, ())])
        if found is None:
            frame = semi(self.frame(bounds.leaves), bounds.scope, self._values(bounds.values))
            found = self._collected(self._few(frame))
        cursor = self.inputs.context.duck()
        try:
            return matching(cursor, found, bounds.scope, bounds.values)
        finally:
            cursor.close()

    def differing(self, sides: Sequence[Side]) -> list[tuple[int, pa.Table]]:
        """Each side's rows with its sign; one Spark job for all of them, or none."""
        direct = [(side.sign, self._directly(side.leaves, side.unread)) for side in sides]
        terms = [(sign, rows) for sign, rows in direct if rows is not None]
        if len(terms) == len(sides):
            return terms
        if all(self._has_all(side.leaves, side.unread) for side in sides):
            found = self._on_rows([(side.leaves, side.unread) for side in sides])
        else:
            frames = [self.frame(side.leaves, old=side.old, unread=side.unread) for side in sides]
            with swrite.translated(self.view.relation.name):
                found = self._of_sides(self._few(_signed(frames)).toArrow(), len(sides))
        return [(side.sign, rows) for side, rows in zip(sides, found, strict=True)]

    def gives_the_same(self, part: ClosedSubquery) -> bool:
        """Whether a subquery gives one row at most, and the one that it gave before the change.

        One Spark job, which reads the inputs of the subquery twice.
        """
        inputs, session = self.inputs, self.inputs.context.view_session(self.view.settings, small=False)
        tables = [self.view.kept.refs[number].name.lower() for number in part.leaves]
        with swrite.translated(self.view.relation.name):
            sides = [
                over(session, part.query, {i: inputs.frame(table, state) for i, table in enumerate(tables)})
                for state in (State.OLD, State.NEW)
            ]
            named = [side.toDF(*[f"c{i}" for i in range(len(side.columns))]).limit(2) for side in sides]
            found = _signed(named).toArrow()
        rows = found.drop_columns([SIGN]).to_pylist()
        old, new = ([row for row, mark in zip(rows, found[SIGN].to_pylist(), strict=True) if mark == n] for n in (0, 1))
        # As texts: -0.0 is not 0.0, and NaN is NaN.
        return max(len(old), len(new)) < 2 and repr(old) == repr(new)

    def _on_rows(self, sides: Sequence[tuple[Mapping[int, pa.Table], Sequence[int]]]) -> list[pa.Table]:
        """The query on Spark, over rows of every mention but those that are unread, once for each of the sides.

        One job, by a plan that is kept for the next epoch of the same view that reads the same columns.
        """
        view, context = self.view, self.inputs.context
        given = [(number, leaves[number]) for leaves, _ in sides for number in sorted(leaves)]
        many = sum(rows.num_rows for _, rows in given) > INTERPRETED_ROWS_MAX
        session = context.view_session(view.settings, small=True, generates_code=many)
        schemas = [self._schema(number, rows.schema.names) for number, rows in given]
        read = tuple((tuple(sorted(leaves)), tuple(unread)) for leaves, unread in sides)
        signature = (
            view.kept,
            tuple(self.names),
            tuple(sorted(view.settings.items())),
            read,
            tuple(map(str, schemas)),
            many,
        )
        with swrite.translated(view.relation.name):
            prepared = context.plans.get(signature)
            if prepared is None:
                empty = {number: self._empty(number) for _, unread in read for number in unread}
                prepared = PreparedQuery(session, schemas, _on_sides(session, view.kept, self.names, read, empty))
                context.plans.put(signature, prepared, PLAN_BYTES)
            rows = [
                self.inputs.round.of_table(table, partial(Rows, session, table.select(schema.names), schema))
                for (_, table), schema in zip(given, schemas, strict=True)
            ]
            return self._of_sides(prepared.run(rows), len(sides))

    def _of_sides(self, found: pa.Table, sides: int) -> list[pa.Table]:
        self._refuse_many(found)
        marks = found[SIGN].to_numpy()
        rows = self._aligned(found.drop_columns([SIGN]))
        return [rows.filter(pa.array(marks == side)) for side in range(sides)]

    def _directly(self, leaves: Mapping[int, pa.Table], unread: Sequence[int] = ()) -> pa.Table | None:
        """The query computed by DuckDB, where all its rows are here and the answer is Spark's; else `None`."""
        made = self._direct()
        if made is None or not self._has_all(leaves, unread):
            return None
        cursor = self.inputs.context.duck()
        try:
            for number, ref in enumerate(self.view.kept.refs):
                relation = self.inputs.relations[ref.name.lower()]
                nothing = arrow_schema(relation, [col.name for col in relation.visible]).empty_table()
                cursor.register(f"leaf_{number}", nothing if number in unread else leaves[number])
            found = cursor.sql(made.sql).to_arrow_table()
        except duckdb.Error:
            return None  # an overflow, or something alike: Spark says what is right
        finally:
            cursor.close()
        self._refuse_many(found)
        return self._aligned(found)

    def _has_all(self, leaves: Mapping[int, pa.Table], unread: Sequence[int] = ()) -> bool:
        """Whether nothing is left that the query would read from an input."""
        return {*leaves, *unread}.issuperset(range(len(self.view.kept.refs)))

    def _direct(self) -> DirectQuery | None:
        view = self.view
        if not self._is_few():
            return None
        return direct_of_relations(view.kept, self.inputs.relations, view.columns, view.settings)

    def _is_few(self) -> bool:
        """Whether so little was written that the epoch may do without Spark."""
        inputs = self.inputs
        most = inputs.context.settings.driver_rows_max
        try:
            written = sum(inputs.written(table) for table, since in inputs.before.items() if since is not None)
        except TooLarge:
            return False
        return written <= most and most > 0

    def collected(self, frame: DataFrame) -> pa.Table:
        """Rows of the query, here, if they are not too many."""
        return self._collected(self._few(frame))

    def _collected(self, frame: DataFrame) -> pa.Table:
        with swrite.translated(self.view.relation.name):
            found = frame.toArrow()
        self._refuse_many(found)
        return self._aligned(found)

    def whole(self, *, rows_max: int) -> pa.Table | None:
        """All rows of the query, here, if there are fewer than these."""
        frame = self.frame({})
        with swrite.translated(self.view.relation.name):
            found = frame.limit(rows_max).toArrow()
        return None if found.num_rows == rows_max else self._aligned(found)

    def first(self, order: Sequence[Ordering], rows_max: int) -> pa.Table:
        """The first rows of the query by some of its columns, here."""
        from pyspark.sql import functions as F

        def key(one: Ordering) -> Column:
            column = F.col(sscan.quoted(self.names[one.place]))
            if one.descending:
                return column.desc_nulls_first() if one.nulls_first else column.desc_nulls_last()
            return column.asc_nulls_first() if one.nulls_first else column.asc_nulls_last()

        frame = self.frame({}).orderBy(*map(key, order)).limit(rows_max)
        with swrite.translated(self.view.relation.name):
            return self._aligned(frame.toArrow())

    def given(self, rows: pa.Table) -> DataFrame:
        """Rows of the view as a DataFrame."""
        return sscan.local(self.inputs.context.spark, rows, sscan.struct(under_names(self.view.columns)))

    def _few(self, frame: DataFrame) -> DataFrame:
        """Where an input is read whole, nothing else bounds the rows that come here."""
        return frame.limit(self.inputs.read_max + 1)

    def _refuse_many(self, found: pa.Table) -> None:
        if found.num_rows > self.inputs.read_max:
            raise TooLarge(f"more than {self.inputs.read_max} rows of the view")

    def _aligned(self, table: pa.Table) -> pa.Table:
        return rf.align(table.rename_columns(self.names), under_names(self.view.columns))

    def _values(self, values: pa.Table) -> DataFrame:
        from pyspark.sql import functions as F

        return F.broadcast(local_frame(self.inputs.context.spark, values))

    # ---- frames -----------------------------------------------------------------------------------------

    def frame(
        self,
        leaves: Mapping[int, pa.Table | DataFrame],
        *,
        old: frozenset[int] = frozenset(),
        unread: Sequence[int] = (),
    ) -> DataFrame:
        """The query, some mentions of inputs replaced by the rows that matter, some as they were, some empty."""
        frames: dict[int, DataFrame] = {}
        for number, ref in enumerate(self.view.kept.refs):
            table = ref.name.lower()
            given = leaves.get(number)
            if number in unread:
                given = self._empty(number)
            if given is None:
                frames[number] = self.inputs.frame(table, State.OLD if number in old else State.NEW)
            elif isinstance(given, pa.Table):
                frames[number] = self._as_frame(number, given)
            else:
                frames[number] = given
        with swrite.translated(self.view.relation.name):
            return over(self.inputs.context.view_session(self.view.settings, small=False), self.view.kept, frames).toDF(
                *self.names
            )

    def _as_frame(self, number: int, rows: pa.Table) -> DataFrame:
        schema = self._schema(number, rows.schema.names)
        session = self.inputs.context.spark
        make = partial(sscan.local, session, rows.select(schema.names), schema)
        found: DataFrame = self.inputs.round.of_table(rows, make)
        return found

    def _schema(self, number: int, names: Sequence[str]) -> T.StructType:
        """Of these columns of a mention, without those that are hidden."""
        relation = self.inputs.relations[self.view.kept.refs[number].name.lower()]
        columns = [column_of(relation, name) for name in names]
        return sscan.struct(under_names([column for column in columns if not column.hidden]))

    def _empty(self, number: int) -> DataFrame:
        relation = self.inputs.relations[self.view.kept.refs[number].name.lower()]
        return sscan.empty(self.inputs.context.spark, sscan.struct(under_names(relation.visible)))


def _on_sides(
    session: SparkSession,
    query: Query,
    names: Sequence[str],
    sides: Sequence[tuple[Sequence[int], Sequence[int]]],
    empty: Mapping[int, DataFrame],
) -> Callable[[Sequence[DataFrame]], DataFrame]:
    """The query once for each side, over frames of its mentions in their order; those that are unread are empty."""

    def computed(frames: Sequence[DataFrame]) -> DataFrame:
        left = iter(frames)
        given = [{n: next(left) for n in read} | {n: empty[n] for n in unread} for read, unread in sides]
        return _signed([over(session, query, side).toDF(*names) for side in given])

    return computed


def _signed(sides: Sequence[DataFrame]) -> DataFrame:
    """Rows of all sides, each with the number of its side."""
    marked = [side.selectExpr("*", f"{number} AS {SIGN}") for number, side in enumerate(sides)]
    return reduce(lambda a, b: a.unionAll(b), marked)


def semi(frame: DataFrame, by: Sequence[str], values: DataFrame, *, how: str = "left_semi") -> DataFrame:
    """Rows whose columns are among the values, by position, NULL equal to NULL; of an anti join those that are not."""
    from pyspark.sql import functions as F

    marked = values.toDF(*[f"_ebla_v{i}" for i in range(len(by))])
    on = " AND ".join(f"{sscan.quoted(n)} <=> _ebla_v{i}" for i, n in enumerate(by))
    return frame.join(marked, F.expr(on), how)
