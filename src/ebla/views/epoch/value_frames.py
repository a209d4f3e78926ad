"""Values that a plan asks for, each set of them a DataFrame with the columns `c0`, `c1`, …"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ebla.algebra.follow import (
    ChangedValues,
    LookupValues,
    PickedValues,
    Scope,
    Values,
    ValueUnion,
    WithoutNull,
)
from ebla.algebra.nodes import Column, stored
from ebla.spark import scan as sscan
from ebla.storage.rows import TooLarge
from ebla.views.epoch.changed_frames import ChangedFrames
from ebla.views.epoch.evaluate import semi
from ebla.views.epoch.expressions import evaluated, rows_with
from ebla.views.epoch.inputs import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ValueFrames:
    """Values of the inputs of one epoch."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._changes = ChangedFrames(inputs)
        self.scope: DataFrame | None = None
        """The affected values of the scope, once they are known."""

    def of(self, wanted: Values) -> DataFrame:
        """Distinct values, in columns `c0`, `c1`, …"""
        match wanted:
            case ChangedValues(table=table, columns=columns):
                names = stored(columns)
                found = self._columns(self._changes.rows(table, names).toDF(*names), columns)
                key = {k.name for k in self._inputs.relations[table].key}
                once = set(columns) == key and self._inputs.region_of(table) is None
                return found if once else found.distinct()  # the last mutation of each key has it once
            case LookupValues(table=table, by=by, source=source, columns=columns):
                return self._columns(self._having(table, by, self.of(source), stored(columns)), columns).distinct()
            case PickedValues(source=source, positions=positions):
                return _numbered(self.of(source).select(*[f"c{p}" for p in positions])).distinct()
            case ValueUnion(sources=sources):
                return reduce(lambda a, b: a.unionAll(b), [self.of(s) for s in sources]).distinct()
            case Scope():
                assert self.scope is not None
                return _numbered(self.scope)
            case WithoutNull():
                raise TooLarge("a large change of the list of NOT IN")

    def _columns(self, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
        names = [sscan.quoted(column) for column in columns if isinstance(column, str)]
        if len(names) == len(columns):
            return _numbered(rows.select(*names))  # a column may stand twice
        return evaluated(self._session(), rows, columns)

    def _session(self) -> SparkSession:
        return self._inputs.context.view_session(self._inputs.settings, small=False)

    def _having(self, table: str, by: Sequence[Column], values: DataFrame, names: Sequence[str]) -> DataFrame:
        """Columns of the rows of an input that have `by` among the values."""
        named = [name for name in by if isinstance(name, str)]
        if len(named) < len(by):
            return rows_with(self._session(), self._inputs.frame(table), by, values, names)
        return semi(self._inputs.frame(table), named, values).selectExpr(*[sscan.quoted(n) for n in names])


def _numbered(frame: DataFrame) -> DataFrame:
    return frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
