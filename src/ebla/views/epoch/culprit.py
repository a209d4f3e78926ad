"""Which row of an input makes a view's expression fail: found by halving.

The rows that an epoch has at hand are halved on the driver. Where the whole view is computed, an input is first cut on
Spark, by a hash of its key, until what is left fits the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.errors import Culprit, SqlError, TypeMismatchError
from ebla.model.relation import under_names
from ebla.spark import scan as sscan
from ebla.spark.faults import is_final
from ebla.spark.halving import one_row
from ebla.storage import runs as rf
from ebla.values.bounds import short
from ebla.values.columns import python_value
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import Inputs
from ebla.views.epoch.mutations import column_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HERE_MAX = 10_000
"""Rows of an input that are halved on the driver."""


def _among(evaluation: Evaluation, leaves: Mapping[int, pa.Table]) -> Culprit | None:
    """The key of one row of an input that changed, without which the failure would not be; `None` if none is."""
    view, inputs = evaluation.view, evaluation.inputs
    for number, rows in leaves.items():
        table = view.kept.refs[number].name.lower()
        if rows.num_rows == 0 or inputs.changed(table).num_rows == 0:
            continue
        found = one_row(rows, _failure(evaluation, leaves, number))
        if found is not None:
            return _culprit(inputs, table, found)
    return None


def _anywhere(evaluation: Evaluation) -> Culprit | None:
    """The same among all rows of the inputs that may have changed."""
    inputs = evaluation.inputs
    for number, ref in enumerate(evaluation.view.kept.refs):
        table = ref.name.lower()
        if not inputs.may_have_changed(table):
            continue
        fails = _failure(evaluation, {}, number)
        rows = _few_rows(inputs, table, fails)
        found = None if rows is None else one_row(rows, fails)
        if found is not None:
            return _culprit(inputs, table, found)
    return None


@contextmanager
def naming_culprits(evaluation: Evaluation, leaves: Mapping[int, pa.Table] | None = None) -> Iterator[None]:
    """Where an expression fails, say for which row of an input that changed, if one alone makes it fail.

    Looks among the rows of the leaves; without them among all rows.
    """
    try:
        yield
    except (SqlError, TypeMismatchError) as error:
        found = _anywhere(evaluation) if leaves is None else _among(evaluation, leaves)
        if found is None:
            raise
        raise error.found_at(found) from error


def _failure(
    evaluation: Evaluation, leaves: Mapping[int, pa.Table], number: int
) -> Callable[[pa.Table | DataFrame], bool]:
    """Whether the query fails with these rows in the place of one mention."""

    def fails(some: pa.Table | DataFrame) -> bool:
        try:
            evaluation.frame({**leaves, number: some}).toArrow()
        except Exception as error:  # our words for a failure, or Spark's own at run time
            if not is_final(error):
                raise  # a job that was lost says nothing about rows
            return True
        return False

    return fails


def _few_rows(inputs: Inputs, table: str, fails: Callable[[DataFrame], bool]) -> pa.Table | None:
    """A part of an input that fails and fits the driver, or `None` if no part of it fails alone."""
    relation = inputs.relations[table]
    everything = inputs.frame(table, hidden=True)
    token = f"xxhash64({', '.join(sscan.quoted(k.name) for k in relation.key)})"
    seen = [sscan.quoted(col.name) for col in relation.visible]
    if fails(everything.select(*seen).limit(0)):
        return None  # it fails without them, too
    parts, chosen, part = 1, 0, everything
    while inputs.size(table) // parts > HERE_MAX:
        halves = [(n, everything.filter(f"pmod({token}, {2 * parts}) = {n}")) for n in (chosen, chosen + parts)]
        bad = next(((n, half) for n, half in halves if fails(half.select(*seen))), None)
        if bad is None:
            return None
        parts, (chosen, part) = 2 * parts, bad
    columns = [column_of(relation, n) for n in inputs.columns(table)]
    found = part.select(*[sscan.quoted(col.name) for col in columns]).toArrow()
    return rf.align(found, under_names(columns))


def _culprit(inputs: Inputs, table: str, row: pa.Table) -> Culprit:
    relation = inputs.relations[table]
    key = [k.name for k in relation.key if not k.hidden] or row.schema.names[:3]
    values = ", ".join(f"{name} = {short(str(python_value(row[name][0])))}" for name in key if name in row.schema.names)
    return Culprit(relation.name, values)
