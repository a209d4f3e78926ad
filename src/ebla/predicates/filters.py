"""Conditions over Arrow arrays and row group statistics, with Spark's ideas of NULL and NaN."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebla.predicates import values as v
from ebla.predicates.conditions import Equals, Filter, IsNull, NotNull, OneOf, Prefix, Range, after_prefix


def mask(filters: Sequence[Filter], columns: Mapping[str, pa.Array]) -> pa.Array:
    """Which rows fulfil all conditions; `columns` by the physical names of the filters' columns."""
    return functools.reduce(pc.and_, (_mask(f, columns[f.column.physical]) for f in filters))


def _mask(f: Filter, array: pa.Array) -> pa.Array:
    kind = f.column.type
    match f.condition:
        case IsNull():
            return pc.is_null(array)
        case NotNull():
            return pc.is_valid(array)
        case Equals(value):
            found = pc.is_nan(array) if value != value else pc.equal(array, v.scalar(value, kind))
        case OneOf(values):
            found = pc.is_in(_one_zero(array), value_set=_one_zero(v.array(values, kind)))
        case Prefix(text):
            found = pc.starts_with(array, pattern=text)
        case Range() as wanted:
            found = _between(array, wanted, kind)
    return pc.fill_null(found, False)


def _one_zero(array: pa.Array) -> pa.Array:
    """Both zeros of binary fractions are equal, which Arrow's sets of values do not know."""
    return pc.add(array, pa.scalar(0.0, array.type)) if pa.types.is_floating(array.type) else array


def _between(array: pa.Array, wanted: Range, kind: str) -> pa.Array:
    """NaN is greater than every number, and equal to itself."""
    floating = pa.types.is_floating(array.type)
    nan = pc.is_nan(array) if floating else None
    parts: list[pa.Array] = []
    if wanted.low is not None:
        if wanted.low != wanted.low:
            parts.append(nan if wanted.low_in else pa.array([False] * len(array)))
        else:
            compare = pc.greater_equal if wanted.low_in else pc.greater
            found = compare(array, v.scalar(wanted.low, kind))
            parts.append(pc.or_(found, nan) if nan is not None else found)
    if wanted.high is not None:
        if wanted.high != wanted.high:
            parts.append(pc.is_valid(array) if wanted.high_in else pc.invert(nan))
        else:
            compare = pc.less_equal if wanted.high_in else pc.less
            parts.append(compare(array, v.scalar(wanted.high, kind)))
    return functools.reduce(pc.and_, parts)


def may_hold(f: Filter, low: Any, high: Any) -> bool:
    """Whether a row group whose ranks lie between these can have a row for the condition."""
    match f.condition:
        case IsNull():
            return bool(low == v.NULL)
        case NotNull():
            return bool(high != v.NULL)
        case Equals(value):
            return bool(low <= v.rank(value) <= high)
        case OneOf(values):
            return any(low <= v.rank(value) <= high for value in values)
        case Prefix(text):
            end = after_prefix(text)
            return bool(v.rank(text) <= high and (end is None or low < v.rank(end)) and high != v.NULL)
        case Range(first, last, _, _):
            if first is not None and high < v.rank(first):
                return False
            return not (last is not None and v.rank(last) < low) and bool(high != v.NULL)
