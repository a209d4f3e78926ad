"""The SQL types of columns, and how a user's data is brought to them.

A type is a string: Spark's own `simpleString`, in one spelling per type (`canonical`).

    SQL                 Arrow                   Python                          may be a key
    boolean             bool                    bool                            yes
    tinyint … bigint    int8 … int64            int                             yes
    float, double       float32, float64        float, int                      yes
    decimal(p,s)        decimal128(p, s)        Decimal, int, float             yes
    string, binary      string, binary          str, bytes                      yes
    date                date32                  date                            yes
    timestamp           timestamp[us, UTC]      datetime (naive means UTC)      yes
    timestamp_ntz       timestamp[us]           naive datetime                  yes
    array<t>            list<t>                 list, tuple                     no
    map<k,v>            map<k, v>               dict, list of pairs             no
    struct<a:t,…>       struct<a: t, …>         dict                            no

Data is *stored, not converted*: a column takes a value if it can hold that very value. 3.0 goes into an int
column and a date into a timestamp, but neither '3' nor 3.5 becomes an int. This is ANSI store assignment,
stricter in two ways: nothing turns into a string, and what does not fit is an error instead of rounded. Only
binary fractions round, as is their nature: a double stored as float, a decimal stored as double; one that would become
infinite or zero is refused. A float goes into a decimal by its shortest decimal form, as in Spark: 0.1 is 0.1. A map
names each key once. What texts say, in files and as literals of SQL, is the matter of `ebla.values.texts`.

Messages count rows from 1. A struct's field that is no plain identifier is quoted by backticks, where Spark's
`simpleString` is not, so that every canonical type parses again.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebla.errors import DuplicateNameError, RefusedValue, TypeMismatchError, UnknownNameError
from ebla.values import python_values
from ebla.values.defaults import scalar
from ebla.values.grammar import DEPTH_MAX, SUPPORTED, Type, Unfit, parse, quoted_name, too_deep
from ebla.values.python_values import stored_value

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import DataType

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# Arrow's type, the name of Spark's class, and the Python type of which Arrow need only check the range.
_ATOMS: dict[str, tuple[pa.DataType, str, type | None]] = {
    "boolean": (pa.bool_(), "BooleanType", bool),
    "tinyint": (pa.int8(), "ByteType", int),
    "smallint": (pa.int16(), "ShortType", int),
    "int": (pa.int32(), "IntegerType", int),
    "bigint": (pa.int64(), "LongType", int),
    "float": (pa.float32(), "FloatType", None),
    "double": (pa.float64(), "DoubleType", float),
    "string": (pa.string(), "StringType", str),
    "binary": (pa.binary(), "BinaryType", bytes),
    "date": (pa.date32(), "DateType", dt.date),
    "timestamp": (pa.timestamp("us", "UTC"), "TimestampType", dt.datetime),
    "timestamp_ntz": (pa.timestamp("us"), "TimestampNTZType", None),
}
_EXACT = {kind: {type(None), exact} for kind, (_, _, exact) in _ATOMS.items() if exact}
_EXACT["decimal"] = {type(None), int}  # of some decimals Arrow makes 0 (`python_values`)
_FROM_ARROW = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)"}
_FROM_ARROW |= {"halffloat": "float", "date64[ms]": "date", "large_string": "string", "string_view": "string"}
_FROM_ARROW |= {"large_binary": "binary", "binary_view": "binary"}
_FROM_ARROW |= {str(arrow_type): kind for kind, (arrow_type, _, _) in _ATOMS.items()}
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


class ColumnSpec(Protocol):
    """What `fit` needs to know of a column; the catalog's column is one."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def nullable(self) -> bool: ...


Columns = Sequence[ColumnSpec]


def canonical(sql_type: str) -> str:
    """The one spelling of a type, from any spelling that Spark knows."""
    return str(parse(sql_type))


def is_key_type(sql_type: str) -> bool:
    """Whether a key may have a column of this type: every type but array, map and struct."""
    return not parse(sql_type).parts


@lru_cache(maxsize=4096)
def to_arrow(sql_type: str) -> pa.DataType:
    tree = parse(sql_type)
    parts = [(name, to_arrow(str(part))) for name, part in tree.parts]
    match tree.kind:
        case "decimal":
            return pa.decimal128(tree.precision, tree.scale)
        case "array":
            return pa.list_(parts[0][1])
        case "map":
            return pa.map_(parts[0][1], parts[1][1])
        case "struct":
            return pa.struct(parts)
        case kind:
            return _ATOMS[kind][0]


def from_arrow(arrow_type: pa.DataType, depth: int = 0) -> str:
    """The smallest SQL type that holds every value of the Arrow type, which is `depth` deep in another."""
    is_a, kind, inner = pa.types, arrow_type, depth + 1
    if depth > DEPTH_MAX:
        raise TypeMismatchError(str(too_deep()))
    if isinstance(kind, pa.BaseExtensionType):
        return from_arrow(kind.storage_type, depth)
    if is_a.is_dictionary(kind) or is_a.is_run_end_encoded(kind):
        return from_arrow(kind.value_type, depth)
    if is_a.is_decimal(kind) and kind.precision - min(kind.scale, 0) <= 38:
        # Arrow allows a scale below zero (tens, hundreds) and one above the precision.
        scale = max(kind.scale, 0)
        return f"decimal({max(kind.precision - min(kind.scale, 0), scale)},{scale})"
    if is_a.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if is_a.is_fixed_size_binary(kind):
        return "binary"
    if isinstance(kind, _LISTS):
        return f"array<{from_arrow(kind.value_type, inner)}>"
    if is_a.is_map(kind):
        return canonical(f"map<{from_arrow(kind.key_type, inner)},{from_arrow(kind.item_type, inner)}>")
    if is_a.is_struct(kind):
        return canonical(f"struct<{','.join(f'{quoted_name(f.name)}:{from_arrow(f.type, inner)}' for f in kind)}>")
    if str(kind) not in _FROM_ARROW:
        raise TypeMismatchError(f"found Arrow's {kind}; supported: {SUPPORTED}")
    return _FROM_ARROW[str(kind)]


def to_spark(sql_type: str) -> DataType:
    """Spark's object for the type; everything inside is nullable. Starts no Java."""
    from pyspark.sql import types as spark

    tree = parse(sql_type)
    parts = [(name, to_spark(str(part))) for name, part in tree.parts]
    match tree.kind:
        case "decimal":
            return spark.DecimalType(tree.precision, tree.scale)
        case "array":
            return spark.ArrayType(parts[0][1])
        case "map":
            return spark.MapType(parts[0][1], parts[1][1])
        case "struct":
            return spark.StructType([spark.StructField(name, part) for name, part in parts])
        case kind:
            return cast("DataType", getattr(spark, _ATOMS[kind][1])())


def from_spark(data_type: DataType, depth: int = 0) -> str:
    """The type of a Spark column. Whether nested values may be NULL is not kept: they may."""
    from pyspark.sql import types as spark

    inner = depth + 1
    if depth > DEPTH_MAX:
        raise TypeMismatchError(str(too_deep()))
    match data_type:
        case spark.ArrayType():
            return f"array<{from_spark(data_type.elementType, inner)}>"
        case spark.MapType():
            return canonical(f"map<{from_spark(data_type.keyType, inner)},{from_spark(data_type.valueType, inner)}>")
        case spark.StructType():
            fields = [f"{quoted_name(field.name)}:{from_spark(field.dataType, inner)}" for field in data_type.fields]
            return canonical(f"struct<{','.join(fields)}>")
        case _:
            return canonical(data_type.simpleString())


def widens(old: str, new: str) -> bool:
    """Whether Spark reads old Parquet files rightly when it is given the new type; true for equal types.

    Every line was tried on Spark 4.3 with files of Spark and of pyarrow (`test_widening_spark.py`):

    - An integer of up to 32 bits is an INT32 in Parquet, for which Spark wants 10 digits before the point
      in a decimal, and 20 for bigint, though fewer would hold tinyint or bigint.
    - A decimal of the same scale must keep its width in bytes. Otherwise Spark pushes a filter's literal
      down into the older, narrower file type, where it overflows: `x < 42949672.97` finds nothing in
      files of decimal(9,2). With a larger scale Spark does not push the filter down, and is right.
    - Spark also reads int as tinyint or date, and decimal as int, without a word and wrongly.

    Widening a key column may still move its rows: int and bigint have different tokens.
    """
    before, after = parse(old), parse(new)
    whole = after.precision - after.scale
    match before.kind, after.kind:
        case ("tinyint" | "smallint" | "int") as narrow, ("smallint" | "int" | "bigint") as wider:
            return _INTEGERS.index(wider) >= _INTEGERS.index(narrow)
        case ("tinyint" | "smallint" | "int" | "float", "double") | ("date", "timestamp_ntz"):
            return True
        case ("tinyint" | "smallint" | "int" | "bigint") as integer, "decimal":
            return whole >= (20 if integer == "bigint" else 10)
        case "decimal", "decimal" if whole >= before.precision - before.scale:
            # In Parquet a decimal has the width of the smallest signed integer with this many digits.
            old_width, new_width = (int(10**t.precision - 1).bit_length() // 8 for t in (before, after))
            return after.scale > before.scale or (after.scale == before.scale and old_width == new_width)
        case _:
            return before == after


_UNFIT = (Unfit, ValueError, TypeError, OverflowError)  # the middle two have Arrow's as children


def fit(table: pa.Table, columns: Columns, *, relation: str) -> pa.Table:
    """The table with exactly the declared columns, in their order and types.

    Names match without case, as in Spark; a column that is not given is NULL. Columns that have their type
    already are not copied.
    """
    given = _match_names(table.column_names, columns, relation)
    arrays: dict[str, pa.ChunkedArray] = {}
    for name, column in ((column.name, column) for column in columns if column.name in given):
        arrays[name] = _column(table.column(given[name]).chunks, _store, column, relation)
    return _assemble(arrays, table.num_rows, columns, relation)


def normalize_keys(table: pa.Table, key_names: Sequence[str]) -> pa.Table:
    """One spelling for equal keys: -0.0 becomes 0.0, and every NaN the same NaN."""
    for name in key_names:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        if pa.types.is_floating(field.type):
            column = pc.add(table.column(index), pa.scalar(0.0, field.type))
            column = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, field.type), column)
            table = table.set_column(index, field, column)
    return table


def _match_names(found: Iterable[object], columns: Columns, relation: str) -> dict[str, int]:
    """Declared name to position among the found names."""
    spelled = {column.name.lower(): column.name for column in columns}
    given: dict[str, int] = {}
    for index, name in enumerate(found):
        declared = spelled.get(str(name).lower())
        if declared is None:
            have = ", ".join(spelled.values())
            raise UnknownNameError(f"{relation} has no column {name!r}; its columns are {have}")
        if declared in given:
            raise DuplicateNameError(f"{relation}: column {declared!r} is given twice (case does not count)")
        given[declared] = index
    return given


def _ungiven(column: ColumnSpec, rows: int) -> pa.Array:
    """The values of a column that a write leaves out: its default, or NULL."""
    kind, default = to_arrow(column.type), getattr(column, "default", None)
    return pa.nulls(rows, kind) if default is None else pa.repeat(scalar(default, parse(column.type), kind), rows)


def _assemble(given: Mapping[str, pa.ChunkedArray], rows: int, columns: Columns, relation: str) -> pa.Table:
    fields = [pa.field(column.name, to_arrow(column.type), nullable=column.nullable) for column in columns]
    arrays = [given[c.name] if c.name in given else _ungiven(c, rows) for c in columns]
    for array, column in zip(arrays, columns, strict=True):
        if array.null_count and not column.nullable:
            row = pc.index(pc.is_null(array), True).as_py()
            found = "NULL" if column.name in given else "no such column"
            refused = RefusedValue(column=column.name, row=row, expected=f"{column.type} NOT NULL", found=found)
            raise refused.error(f"{relation}.{column.name}, row {row + 1}")
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _column(
    chunks: Sequence[Any],
    store: Callable[[Any, Type], pa.Array],
    column: ColumnSpec,
    relation: str,
    show: Callable[[Any], str] = repr,
) -> pa.ChunkedArray:
    """The stored chunks of Arrow or Python values; an error names the first row that cannot be stored."""
    tree = parse(column.type)
    stored: list[pa.Array] = []
    try:
        for chunk in chunks:
            stored.append(store(chunk, tree))
    except TypeMismatchError as error:
        raise TypeMismatchError(f"{relation}.{column.name}: expected {tree}, {error}") from None
    except _UNFIT:
        row, value, why = _first_unfit(chunk, store, tree, show)
        at = sum(map(len, stored)) + row
        refused = RefusedValue(column=column.name, row=at, expected=str(tree), found=value, why=why)
        raise refused.error(f"{relation}.{column.name}, row {at + 1}") from None
    return pa.chunked_array(stored, type=to_arrow(str(tree)))


def _first_unfit(
    chunk: Any, store: Callable[[Any, Type], object], tree: Type, show: Callable[[Any], str]
) -> tuple[int, str, str]:
    """By halving: the first row that cannot be stored, its value, and why."""
    low, high, why = 0, len(chunk), ""
    while low < high:
        middle = (low + high + 1) // 2
        try:
            store(chunk[low:middle], tree)
            low = middle
        except _UNFIT as error:
            high, why = (middle if middle < high else middle - 1), _reason(error)
    value = chunk[min(low, len(chunk) - 1)]
    try:
        return low, str(value) if isinstance(value, pa.Scalar) else show(value), why
    except (ValueError, OverflowError):  # a date beyond Python's calendar, bytes that are no text
        return low, f"a {value.type} that Python cannot hold", why


def _reason(error: Exception) -> str:
    """Arrow's words for it, in ours."""
    said = str(error)
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair is no character"
    if "Invalid UTF8" in said:
        return "not UTF-8"
    if isinstance(error, OverflowError) or re.search("too large to fit|not fit in precision|not in range|bounds", said):
        return "out of range"
    return "more digits than the type has" if "would cause data loss" in said else said


def _store(array: Any, tree: Type) -> Any:
    """The array as the type; raises `TypeMismatchError` for its type, or one of `_UNFIT` for a value."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    target = to_arrow(str(tree))
    if array.type == target and not holds_map(tree):
        if "string" in str(tree):
            array.validate(full=True)  # of files that another program wrote, Arrow takes the bytes on trust
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    mask = array.is_null() if array.null_count else None
    match tree.kind:
        case "array" if isinstance(array.type, _LISTS):
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
            offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
            values = _store(array.flatten(), tree.parts[0][1])
            return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)
        case "map" if pa.types.is_map(array.type):
            # Of a slice, `keys` and `items` are those of the whole array, `offsets` those of the slice.
            first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
            keys = _store(array.keys[first:last], tree.parts[0][1])
            values = _store(array.items[first:last], tree.parts[1][1])
            offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
            _refuse_repeated_keys(keys, offsets)
            return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=mask)
        case "struct" if pa.types.is_struct(array.type):
            names = [field.name.lower() for field in array.type]
            given = dict(zip(names, array.flatten(), strict=True))
            if len(given) < len(names) or given.keys() - {name.lower() for name, _ in tree.parts}:
                raise TypeMismatchError(f"found {array.type} with an unknown field, or one twice")
            nulls = pa.nulls(len(array))
            children = [_store(given.get(name.lower(), nulls), part) for name, part in tree.parts]
            return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
        case _:
            return _store_atomic(array, tree, target)


@lru_cache(maxsize=4096)
def holds_map(tree: Type) -> bool:
    return tree.kind == "map" or any(holds_map(part) for _, part in tree.parts)


def _refuse_repeated_keys(keys: pa.Array, offsets: pa.Array) -> None:
    """A map names each key once: which of two values is meant, no reader could say. NaN is one key, and so is 0."""
    if len(keys) == 0:
        return
    of_map = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets.to_numpy()))
    if pa.types.is_nested(keys.type):
        named = pa.array(list(map(repr, keys.to_pylist())))
    else:
        named = normalize_keys(pa.table({"key": keys}), ["key"]).column(0).combine_chunks()
    table = pa.table({"map": of_map, "key": pc.dictionary_encode(named).indices})
    counted = table.group_by(["map", "key"]).aggregate([([], "count_all")])
    if counted.num_rows == len(keys):
        return
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    row = pc.index(pc.and_(pc.equal(table["map"], twice["map"][0]), pc.equal(table["key"], twice["key"][0])), True)
    raise Unfit(f"a map names key {keys[row.as_py()]} twice")


def _family(kind: Any) -> str:
    family = "float" if pa.types.is_floating(kind) else from_arrow(kind).partition("(")[0]
    return "integer" if pa.types.is_integer(kind) else family


def _float_of_float(array: Any, target: Any) -> Any:
    stored = array.cast(target)
    if pc.any(pc.and_(pc.is_inf(stored), pc.is_finite(array))).as_py():
        raise Unfit("out of range")
    narrower = stored.type.bit_width < array.type.bit_width
    if narrower and pc.any(pc.and_(pc.equal(stored, 0.0), pc.not_equal(array, 0.0))).as_py():
        raise Unfit("too small: it would become 0")
    return stored


def _decimal_of_float(array: Any, tree: Type, target: Any) -> Any:
    shortest = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
    # Arrow reads a number of 39 digits as another one, without an error.
    if pc.any(pc.greater_equal(pc.abs(shortest), 10.0 ** (tree.precision - tree.scale))).as_py():
        raise Unfit("out of range")
    # Of one with a long exponent Arrow makes 0, without an error.
    width = shortest.type.to_pandas_dtype()  # a power of ten lies beside its number, in each width elsewhere
    finest = float(np.nextafter(width(10.0**-tree.scale), width(0.0)))
    if pc.any(pc.and_(pc.less(pc.abs(shortest), finest), pc.not_equal(shortest, 0.0))).as_py():
        raise Unfit("more digits than the type has")
    large = shortest.filter(pc.greater_equal(pc.abs(shortest), 2.0**24))
    for value in large.to_numpy(zero_copy_only=False):
        python_values.shortest(value)
    return shortest.cast(pa.string()).cast(target)


def _store_atomic(array: Any, tree: Type, target: Any) -> Any:
    match _family(array.type), _family(target):
        case "integer", "decimal":
            # Arrow wants room for every value of the integer type; 256 bits have it at any scale.
            return array.cast(pa.decimal256(20 + tree.scale, tree.scale)).cast(target)
        case "integer", "float" if not pa.types.is_uint64(array.type):
            return _same_fractions(array.cast(pa.int64()), target)
        case "float", "float":
            return _float_of_float(array, target)
        case "decimal", "float":
            # By its digits: Arrow's own cast is often beside the nearest one.
            digits = array.cast(pa.string())
            stored = _store_atomic(digits.cast(pa.float64()), tree, target)
            return stored if tree.kind == "double" else digits.cast(target)  # rounded once
        case "float", "decimal":
            return _decimal_of_float(array, tree, target)
        case "decimal", "decimal":
            # Arrow overflows in 128 bits, without an error; in 256 bits there is room for both types' digits.
            return array.cast(pa.decimal256(76, tree.scale)).cast(target)
        case ("date", "timestamp" | "timestamp_ntz"):
            return array.cast(pa.date32()).cast(target)
        case "timestamp_ntz", "timestamp":
            return array.cast(pa.timestamp("us")).cast(target)
        case "timestamp_ntz", "date":
            stored = array.cast(target)
            if pc.any(pc.not_equal(stored.cast(array.type), array)).as_py():
                raise Unfit("not a whole day")
            return stored
        case one, other if one == other or {one, other} <= {"integer", "float", "decimal"}:
            return array.cast(target)
        case _:
            raise TypeMismatchError(f"found {from_arrow(array.type)}; cast it first, nothing is converted")


def _same_fractions(whole: pa.Array, target: pa.DataType) -> pa.Array:
    """Whole numbers as binary fractions, if those are the same numbers. Arrow takes none that has more digits than any
    such fraction has."""
    stored = whole.cast(target, safe=False)
    as_double = pc.fill_null(stored.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    inside = (as_double >= -(2.0**63)) & (as_double < 2.0**63)
    back = np.where(inside, as_double, 0.0).astype(np.int64)
    if not np.all(inside & (back == pc.fill_null(whole, 0).to_numpy(zero_copy_only=False))):
        raise Unfit("not the same number as a binary fraction")
    return stored


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """A schema from names and types."""
    return pa.schema([(name, to_arrow(sql_type)) for name, sql_type in columns.items()])


def table_of(columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows that Ebla made itself, whose values are of the columns' types, as a table."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(columns))


def from_rows(rows: Sequence[Mapping[str, object]], columns: Columns, *, relation: str) -> pa.Table:
    """A table from dictionaries, by the rules of `fit`; their keys match column names without case."""
    spellings: dict[tuple[str, ...], dict[str, str]] = {}  # rows nearly always have the same keys
    of_row: list[dict[str, str]] = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeMismatchError(f"{relation}: expected a dictionary for each row, found {row!r}")
        found = tuple(row)
        if found not in spellings:
            spellings[found] = {name: found[i] for name, i in _match_names(found, columns, relation).items()}
        of_row.append(spellings[found])
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in columns:
        if any(column.name in keys for keys in spellings.values()):
            values = [row.get(keys.get(column.name, "")) for row, keys in zip(rows, of_row, strict=True)]
            made = _column([values], _store_values, column, relation)
            given = [column.name in keys for keys in of_row]
            arrays[column.name] = made if all(given) else pc.if_else(pa.array(given), made, _ungiven(column, len(rows)))
    return _assemble(arrays, len(rows), columns, relation)


def gather(
    given: Mapping[str, Any],
    rows: int,
    columns: Columns,
    *,
    store: Callable[[Any, Type], pa.Array],
    relation: str,
    show: Callable[[Any], str] = repr,
) -> pa.Table:
    """A table from values by declared column; `store` makes a column's values an array of its type, or is `Unfit`."""
    specs = {column.name: column for column in columns}
    arrays = {
        name: _column(
            values.chunks if isinstance(values, pa.ChunkedArray) else [values], store, specs[name], relation, show
        )
        for name, values in given.items()
    }
    return _assemble(arrays, rows, columns, relation)


def from_pandas(frame: pd.DataFrame, columns: Columns, *, relation: str) -> pa.Table:
    """A table from a pandas frame, by the rules of `fit`; its index is ignored. NaN is NULL, as in pandas."""
    given = _match_names(frame.columns, columns, relation)
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in (column for column in columns if column.name in given):
        series = frame.iloc[:, given[column.name]]
        if series.dtype == object:
            values = [None if isinstance(value, float) and math.isnan(value) else value for value in series]
            arrays[column.name] = _column([values], _store_values, column, relation)
        else:
            found = pa.table({"series": pa.Array.from_pandas(series)})["series"]
            arrays[column.name] = _column(found.chunks, _store, column, relation)
    return _assemble(arrays, len(frame), columns, relation)


def _store_values(values: list[Any], tree: Type) -> pa.Array:
    exact = set(map(type, values)) <= _EXACT.get(tree.kind, set())
    made = pa.array(values if exact else [stored_value(value, tree) for value in values], to_arrow(str(tree)))
    return checked_maps(made, tree)


def checked_maps(array: pa.Array, tree: Type) -> pa.Array:
    """An array of the type, if its maps, at any depth, name each key once; raises `Unfit`."""
    return _store(array, tree) if holds_map(tree) else array


def as_stored(value: Any, tree: Type) -> Any:
    """A value that `stored_value` gave, if it is in the type's range, as a column would give it back."""
    found = pa.array([value], to_arrow(str(tree)))
    if tree.kind in ("date", "timestamp", "timestamp_ntz"):
        found = found.view(pa.int32() if tree.kind == "date" else pa.int64())
    return found[0].as_py()
