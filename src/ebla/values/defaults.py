"""What a column holds in rows that give it no value: a value of its type, kept in the catalog beside the text of it.

A default is a constant. It is computed once, when it is declared, and kept as JSON in the form in which columns store
values: days and microseconds since 1970 for dates and times, digits for decimals and fractions, hexadecimal digits for
bytes. So every door takes the same value, with and without Spark.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebla.model.relation import Default
from ebla.values.grammar import Type

_MOMENTS = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}


def stored_form(default: Default, tree: Type) -> Any:
    """The value as `pa.array` and `literals.sql_of` take it."""
    value = json.loads(default.value)
    if value is None:
        return None
    match tree.kind:
        case "binary":
            return bytes.fromhex(value)
        case "decimal":
            return Decimal(value)
        case "float" | "double":
            return float(value)
        case _:
            return value


def scalar(default: Default, tree: Type, kind: pa.DataType) -> pa.Scalar:
    return pa.array([stored_form(default, tree)], kind)[0]


def of_array(text: str, values: pa.Array, tree: Type) -> Default:
    """A default from the one value of an array of the type."""
    return Default(text=text, value=_encoded(stored_forms(values, tree)[0]))


def stored_forms(values: pa.Array | pa.ChunkedArray, tree: Type) -> list[Any]:
    """The values of an array of the type as `pa.array` and `literals.sql_of` take them."""
    return list((values.cast(_MOMENTS[tree.kind]) if tree.kind in _MOMENTS else values).to_pylist())


def _encoded(value: Any) -> str:
    match value:
        case bytes():
            return json.dumps(value.hex())
        case Decimal():
            return json.dumps(f"{value:f}")
        case float():
            return json.dumps(repr(value))
        case _:
            return json.dumps(value)
