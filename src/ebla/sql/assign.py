"""Storing a value in a column, as SQL text: the value in the column's type, or an error, never a changed value.

A plain CAST would cut 8.5 to 8 and read '7' as a number. The text has to work for a value whose type is not
known here; `typeof` is a constant to Spark, so that what does not apply is gone from the plan. Only binary
fractions round: a decimal stored as a double, a double stored as a float.
"""

from __future__ import annotations

from ebla.sql.lex import quote_string
from ebla.values.texts import BITS

MARK = "EBLA:"
"""How a message begins that a job stops with on purpose; `ebla.spark.write` looks for it."""

_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}
_EXACT_NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal")
_BINARY_FRACTIONS = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")
_WHOLE = "void|tinyint|smallint|int|bigint"
_FRACTION = "float|double|decimal.*"


def checked(value: str, type_text: str, what: str, depth: int = 0) -> str:
    """`value` (a column or a field: it is named several times) as `type_text`; `what` names the column."""
    want = "".join(type_text.lower().split())
    want = _ALIASES.get(want, want)
    base = want.partition("(")[0].partition("<")[0]
    if base == "array":
        item = f"`_ebla_item{depth}`"
        inner = checked(item, want[len("array<") : -1], f"{what} element", depth + 1)
        return f"transform({value}, {item} -> {inner})"
    fits = f"try_cast({value} AS {type_text})"
    if base == "decimal":
        # A float by its shortest form; Spark takes that of the same double.
        shortest = f"try_cast(CAST({value} AS STRING) AS {type_text})"
        fits = f"CASE WHEN {_is(value, 'float')} THEN {shortest} ELSE {fits} END"
    if base in _EXACT_NUMBERS:
        # As doubles, the largest number of a type and the one behind it are equal.
        behind = (
            f" AND NOT ({_is(value, 'float|double')} AND {value} >= {2.0 ** (BITS[base] - 1)!r}D)"
            if base in BITS
            else ""
        )
        if base == "decimal":  # a whole fraction must be what its shortest form says
            said = f"CAST(try_cast({value} AS BIGINT) AS DECIMAL(38, 0)) = {fits}"
            whole = f"abs({value}) >= {2.0**24!r}D AND {value} = rint({value}) AND NOT coalesce({said}, FALSE)"
            behind = f" AND NOT ({_is(value, 'float|double')} AND {whole})"
        accepted = [f"{_is(value, f'{_WHOLE}|{_FRACTION}')} AND {fits} = {value}{behind}"]
    elif base in _BINARY_FRACTIONS:
        infinity = "CAST('Infinity' AS DOUBLE)"
        accepted = [
            f"{_is(value, _WHOLE)} AND try_cast({fits} AS BIGINT) = {value} AND {fits} < {2.0**63!r}D",
            f"{_is(value, _FRACTION)} AND (abs({fits}) < {infinity} OR abs({value}) >= {infinity}) "
            f"AND ({fits} <> 0 OR {value} = 0)",
        ]
    elif base in _TIMES:
        accepted = [_is(value, "void|date|timestamp|timestamp_ntz")]
    elif base == "string":
        accepted = [_is(value, "void|(string|char|varchar).*")]
    else:
        accepted = [f"typeof({value}) IN ('void', {quote_string(want)})"]
    expected = quote_string(f"{MARK}{what}: expected {want}, found ")
    refused = f"CAST(raise_error(concat({expected}, CAST({value} AS STRING))) AS {type_text})"
    branches = " ".join(f"WHEN {condition} THEN {fits}" for condition in accepted)
    return f"CASE WHEN {value} IS NULL THEN NULL {branches} ELSE {refused} END"


def _is(value: str, pattern: str) -> str:
    return f"typeof({value}) RLIKE '^({pattern})$'"
