"""`LOAD INTO t FROM 'files'`: what the files hold, checked file by file before a row moves.

Parquet is checked by its footers, CSV by its header, JSON line by line while it is read. Every error names the file
and, where there is one, the column.
"""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.build.staging import Arrival
from ebla.errors import EblaError, LoadError, TypeMismatchError, UnknownNameError
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.storage import types
from ebla.storage.model import Relation
from ebla.tables import batch as b
from ebla.tables.context import Context

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, DataFrameReader

SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
            ".ndjson": "json"}  # fmt: skip
# Spark takes any option and forgets those that it does not know; a misspelt one would change what is loaded.
_READER_OPTIONS = frozenset({"dateFormat", "encoding", "lineSep", "locale", "multiLine", "timestampFormat",
                             "timestampNTZFormat"})  # fmt: skip
OPTIONS = {
    "parquet": frozenset[str](),
    "csv": _READER_OPTIONS | {"charToEscapeQuoteEscaping", "comment", "delimiter", "emptyValue", "escape", "header",
                              "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nanValue", "negativeInf",
                              "nullValue", "positiveInf", "quote", "sep"},
    "json": _READER_OPTIONS | {"allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers",
                               "allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars",
                               "allowUnquotedFieldNames"},
}  # fmt: skip
_CORRUPT = "_ebla_corrupt"
_PATH = "_ebla_path"
_NOTHING = "\0"
"""What Spark takes for NULL in a CSV file beside an empty field. Its default is the empty text, even a quoted one."""


def find_files(path: str) -> list[str]:
    """The files that a path, a directory or a glob of both names, in order, each once.

    Of a directory that is all below it but for what begins with `.` or `_`, be it a file or a directory: programs keep
    there what is not finished or not data.
    """
    local = local_path(path)
    if "\0" in local:
        raise LoadError(f"{local!r}: expected the path of files, found a NUL in it")
    if os.path.isfile(local):
        return [os.path.abspath(local)]
    said = frozenset(local.split(os.sep))
    matches = [local] if os.path.isdir(local) else glob.glob(local, recursive=True)
    found: set[str] = set()
    for match in matches:
        if any(_is_hidden(part) and part not in said for part in match.split(os.sep)):
            continue  # a wildcard stands for it
        found.update(_below(match) if os.path.isdir(match) else [os.path.abspath(match)])
    if not found:
        raise LoadError(f"{path}: expected at least one file, found none; check the path from {os.getcwd()}")
    return sorted(found)


def local_path(path: str) -> str:
    """A path of this machine, also from its `file:` address, in which `%20` is a space."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)", path)
    if scheme is None or os.path.exists(path):
        return path
    host, rest = "", path[scheme.end() :]
    if rest.startswith("//"):
        host, _, behind = rest[2:].partition("/")
        rest = f"/{behind}"
    if scheme[1].lower() != "file" or host not in ("", "localhost"):
        raise LoadError(
            f"{path}: expected a path of this machine or a file:///… address, found another; "
            "read it with Spark, then upsert() the DataFrame"
        )
    return unquote(rest)


def _below(directory: str) -> Iterator[str]:
    seen: set[str] = set()
    for place, folders, files in os.walk(directory, followlinks=True):
        there = os.path.realpath(place)
        folders[:] = [] if there in seen else [name for name in folders if not _is_hidden(name)]
        seen.add(there)  # a link to a directory above would lead here again and again
        yield from (os.path.abspath(os.path.join(place, name)) for name in files if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def format_of(files: Sequence[str], given: str | None) -> str:
    if given is not None:
        if given.lower() not in ("parquet", "csv", "json"):
            raise LoadError(f"FORMAT: expected parquet, csv or json, found {given}")
        return given.lower()
    formats = {f: SUFFIXES.get(os.path.splitext(f)[1].lower()) for f in files}
    unknown = [f for f, kind in formats.items() if kind is None]
    if unknown:
        raise LoadError(f"{unknown[0]}: expected a name that ends in {', '.join(SUFFIXES)}; give FORMAT otherwise")
    if len(set(formats.values())) > 1:
        raise LoadError(f"{files[0]}: expected files of one format, found {sorted(set(map(str, formats.values())))}")
    return str(next(iter(formats.values())))


def load_batch(
    context: Context,
    relation: Relation,
    path: str,
    *,
    format: str | None = None,
    options: Mapping[str, object] | None = None,
) -> b.FrameBatch:
    """The rows of the files as a batch of upserts, with every check attached to it."""
    files = find_files(path)
    kind = format_of(files, format)
    given = _known_options(kind, options or {})
    match kind:
        case "parquet":
            return _parquet(context, relation, files)
        case "csv":
            return _csv(context, relation, files, given)
        case _:
            return _json(context, relation, files, given)


def _known_options(kind: str, given: Mapping[str, object]) -> dict[str, object]:
    """The options under the names that Spark gives them."""
    known = {name.lower(): name for name in OPTIONS[kind]}
    unknown = [name for name in given if name.lower() not in known]
    if unknown:
        have = f"one of {', '.join(sorted(known.values()))}" if known else "no option"
        raise UnknownNameError(f"WITH: expected {have} for {kind} files, found {unknown[0]}")
    return {known[name.lower()]: value for name, value in given.items()}


def _with_options(reader: DataFrameReader, options: Mapping[str, object]) -> DataFrameReader:
    for option, value in options.items():
        reader = reader.option(option, str(value).lower() if isinstance(value, bool) else str(value))
    return reader


def _with_path(read: DataFrame) -> DataFrame:
    return read.select("*", F.col("_metadata.file_path").alias(_PATH))


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionAll(part)
    return frame


# ---- Parquet --------------------------------------------------------------------------------------------


def _parquet(context: Context, relation: Relation, files: Sequence[str]) -> b.FrameBatch:
    rows = 0
    by_schema: dict[str, tuple[pa.Schema, T.StructType, list[str]]] = {}
    for file in files:
        try:
            footer = pq.ParquetFile(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise LoadError(f"{file}: expected a Parquet file, found: {error}") from error
        with footer:
            rows += footer.metadata.num_rows
            found = footer.schema_arrow.remove_metadata()
            schema = _spark_schema(file, relation, found)
        by_schema.setdefault(f"{found} {schema.json()}", (found, schema, []))[2].append(file)
    parts: list[DataFrame] = []
    for found, schema, group in by_schema.values():
        read = _with_path(context.writer.read.schema(schema).parquet(*map(sscan.literally, group)))
        read = read.select(*[_moment(column) for column in found], _PATH)
        try:
            parts.append(swrite.fitted(read, relation, path=_PATH))
        except EblaError as error:
            raise LoadError(f"{group[0]}: {error}") from error
    return b.FrameBatch(
        frame=_union(parts), kind=b.UPSERT, plain=True, rows=rows, arrival=Arrival.LOAD, errors=LoadError
    )


def _spark_schema(file: str, relation: Relation, schema: pa.Schema) -> T.StructType:
    known = {c.name.lower(): c for c in relation.visible}
    fields: dict[str, T.StructField] = {}
    for column in schema:
        low = column.name.lower()
        if low not in known:
            have = ", ".join(c.name for c in relation.visible)
            raise LoadError(f"{file}: column {column.name}: expected one of {relation.name}'s columns {have}")
        if low in fields:
            raise LoadError(f"{file}: column {column.name}: expected each column once, found it twice")
        try:
            sql_type = "bigint" if _is_nanoseconds(column.type) else types.from_arrow(column.type)
            fields[low] = T.StructField(column.name, types.to_spark(sql_type))
        except TypeMismatchError as error:
            raise LoadError(f"{file}: column {column.name}: {error}") from error
    missing = [c.name for c in relation.visible if not c.nullable and c.name.lower() not in fields]
    if missing:
        raise LoadError(f"{file}: column {missing[0]}: expected a value for every row, found no such column")
    return T.StructType(list(fields.values()))


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _moment(column: pa.Field) -> SparkColumn:
    """Nanoseconds, as pandas writes them, are read as numbers; more than microseconds is an error."""
    raw = F.col(sscan.quoted(column.name))
    if not _is_nanoseconds(column.type):
        return raw
    name, text = sscan.quoted(column.name), T.StringType()
    message = F.concat(F.lit(f"column {column.name}: expected microseconds, found nanoseconds "), raw.cast(text))
    refused = swrite.refusal(message, T.LongType(), F.col(_PATH))
    micros = F.when(raw % 1000 == 0, F.expr(f"{name} DIV 1000")).when(raw.isNotNull(), refused)
    instant = F.timestamp_micros(micros)
    return (instant if column.type.tz else instant.cast(T.TimestampNTZType())).alias(column.name)


# ---- CSV ------------------------------------------------------------------------------------------------


def _csv(context: Context, relation: Relation, files: Sequence[str], options: dict[str, object]) -> b.FrameBatch:
    header = _truth(options.pop("header", True))
    separator = str(options.pop("delimiter", options.pop("sep", "\t" if files[0].endswith(".tsv") else ",")))
    options.setdefault("escape", '"')
    options.setdefault("nullValue", _NOTHING)
    if len(separator) != 1:
        raise LoadError(f"delimiter: expected one character, found {separator!r}")
    names_by_file = {f: _csv_names(f, relation, options, header=header, separator=separator) for f in files}
    groups: dict[tuple[str, ...], list[str]] = {}
    for file, names in names_by_file.items():
        groups.setdefault(names, []).append(file)
    parts = []
    for names, group in groups.items():
        text = T.StructType([T.StructField(n, T.StringType()) for n in (*names, _CORRUPT)])
        reader = context.writer.read.schema(text).option("header", header).option("sep", separator)
        reader = reader.option("enforceSchema", True).option("mode", "PERMISSIVE")
        reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
        read = _with_options(reader, options).csv([sscan.literally(f) for f in group])
        try:
            parts.append(_from_text(_with_path(read), relation, names))
        except LoadError as error:
            raise LoadError(f"{group[0]}: {error}") from error
    return b.FrameBatch(frame=_union(parts), kind=b.UPSERT, plain=True, arrival=Arrival.LOAD, errors=LoadError)


def _truth(value: object) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def _first_line(file: str, options: Mapping[str, object], separator: str) -> list[str] | None:
    """The first line that is not empty and not a comment, read with the options that the rows are read with."""
    encoding = str(options.get("encoding", options.get("charset", "UTF-8")))
    quote, comment = str(options.get("quote", '"')), str(options.get("comment", ""))
    try:
        with open(file, newline="", encoding="utf-8-sig" if encoding.upper() == "UTF-8" else encoding) as text:
            kept = (line for line in text if line.strip() and not (comment and line.startswith(comment)))
            if len(quote) != 1:
                return next(csv.reader(kept, delimiter=separator, quoting=csv.QUOTE_NONE), None)
            return next(csv.reader(kept, delimiter=separator, quotechar=quote), None)
    except (OSError, UnicodeError, LookupError, csv.Error) as error:
        raise LoadError(f"{file}: expected a CSV file in {encoding}, found: {error}") from error


def _csv_names(
    file: str, relation: Relation, options: Mapping[str, object], *, header: bool, separator: str
) -> tuple[str, ...]:
    first = _first_line(file, options, separator)
    visible = relation.visible
    if not header:
        if first is not None and len(first) != len(visible):
            raise LoadError(f"{file}: expected {len(visible)} columns, found {len(first)}; give WITH (header = true)?")
        return tuple(c.name for c in visible)
    if first is None:
        raise LoadError(f"{file}: expected a header line, found an empty file")
    known = {c.name.lower(): c.name for c in visible}
    names: list[str] = []
    for name in first:
        column = known.get(name.strip().lower())
        if column is None:
            raise LoadError(
                f"{file}: column {name!r}: expected one of {relation.name}'s columns {', '.join(known.values())}; "
                "a file without a header line is loaded WITH (header = false)"
            )
        if column in names:
            raise LoadError(f"{file}: column {name!r}: expected each column once, found it twice")
        names.append(column)
    missing = [c.name for c in visible if not c.nullable and c.name not in names]
    if missing:
        raise LoadError(f"{file}: column {missing[0]}: expected a value for every row, found no such column")
    return tuple(names)


def _from_text(read: DataFrame, relation: Relation, names: Sequence[str]) -> DataFrame:
    """Text to the declared types; text that says something else stops the job, naming file, column and value."""
    columns: dict[str, SparkColumn] = {}
    for column in (c for name in names if (c := relation.column(name)) is not None):
        name = column.name
        if not types.is_key_type(column.type):
            raise LoadError(f"column {name}: expected a type that CSV can hold, found {column.type}")
        target = types.to_spark(column.type)
        raw = F.col(sscan.quoted(name))
        if not isinstance(target, T.StringType):
            raw = F.nullif(raw, F.lit(""))  # only a text can be empty
        message = F.concat(F.lit(f"column {name}: expected {column.type}, found "), raw)
        columns[name] = F.when(raw.isNull(), F.lit(None).cast(target)).otherwise(
            F.coalesce(_parsed(raw, target), swrite.refusal(message, target, F.col(_PATH)))
        )
    line = F.concat(F.lit(f"expected {len(names)} columns ({', '.join(names)}), found "), F.col(_CORRUPT))
    first = relation.column(names[0])
    assert first is not None
    return swrite.fitted(_refusing(read, line, columns, types.to_spark(first.type)), relation, path=_PATH)


def _parsed(raw: SparkColumn, target: T.DataType) -> SparkColumn:
    """The value that a text says exactly, or NULL."""
    match target:
        case T.BinaryType():
            return F.try_to_binary(raw, F.lit("base64"))
        case T.DecimalType():
            value = raw.try_cast(target)  # rounds
            return F.when(value == raw.try_cast(_exact(target)), value)
        case T.FloatType() | T.DoubleType():
            value = raw.try_cast(target)  # a number that is too large becomes infinite
            said = F.lower(F.trim(raw)).rlike("^[+-]?inf(inity)?$")
            return F.when((F.abs(value) < F.lit(float("inf"))) | F.isnan(value) | said, value)
        case _:
            return raw.try_cast(target)


def _exact(target: T.DecimalType) -> T.DecimalType:
    """A decimal with as many digits before the point, and all others behind it."""
    return T.DecimalType(38, 38 - (target.precision - target.scale))


def _refusing(
    read: DataFrame, message: SparkColumn, columns: Mapping[str, SparkColumn], first: T.DataType
) -> DataFrame:
    """The columns of the rows. A line that Spark could not make a row of is an error in place of its first column."""
    refused = F.when(F.col(_CORRUPT).isNotNull(), swrite.refusal(message, first, F.col(_PATH)))
    name, value = next(iter(columns.items()))
    checked = {**columns, name: refused.otherwise(value)}
    return read.select(*[made.alias(n) for n, made in checked.items()], _PATH)


# ---- JSON -----------------------------------------------------------------------------------------------


def _json(context: Context, relation: Relation, files: Sequence[str], options: dict[str, object]) -> b.FrameBatch:
    """One object per line. A line that is no object, or has a value of another type, stops the job.

    Spark matches names letter by letter, so each file is read with its own spelling of them.
    """
    spelled: dict[str, tuple[T.StructType, list[str]]] = {}
    for file in files:
        schema = _json_schema(context, file, relation, options)
        spelled.setdefault(schema.json(), (schema, []))[1].append(file)
    names = ", ".join(f"{c.name} {c.type}" for c in relation.visible)
    message = F.concat(F.lit(f"expected an object with columns {names}; found "), F.col(_CORRUPT))
    parts = []
    for schema, group in spelled.values():
        reader = _json_reader(context, options).schema(T.StructType([*schema.fields, _corrupt_field()]))
        read = _with_path(reader.json([sscan.literally(f) for f in group]))
        columns = {f.name: F.col(sscan.quoted(f.name)) for f in schema.fields}
        rows = _refusing(read, message, columns, schema.fields[0].dataType)
        parts.append(swrite.fitted(rows, relation, path=_PATH))
    return b.FrameBatch(frame=_union(parts), kind=b.UPSERT, plain=True, arrival=Arrival.LOAD, errors=LoadError)


def _json_type(target: T.DataType) -> T.DataType:
    """The type to read as: Spark rounds a decimal that has too many digits, and makes a float that is too large
    infinite, so more is read, and checked after."""
    if isinstance(target, T.DecimalType):
        return _exact(target)
    return T.DoubleType() if isinstance(target, T.FloatType) else target


def _corrupt_field() -> T.StructField:
    return T.StructField(_CORRUPT, T.StringType())


def _json_reader(context: Context, options: Mapping[str, object]) -> DataFrameReader:
    reader = context.writer.read.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    return _with_options(reader, options)


def _json_schema(context: Context, file: str, relation: Relation, options: Mapping[str, object]) -> T.StructType:
    """The schema to read a file with: its own names, the relation's types. What does not belong there is refused."""
    try:
        found = _json_reader(context, options).json(sscan.literally(file)).schema
    except Exception as error:
        raise LoadError(
            f"{file}: expected JSON objects, one per line, found: {swrite.first_message(str(error))}"
        ) from error
    declared = T.StructType([T.StructField(c.name, types.to_spark(c.type)) for c in relation.visible])
    given = T.StructType([f for f in found.fields if f.name != _CORRUPT])
    shaped = _json_struct(given, declared, file, "", f"{relation.name}'s columns ")
    spelled = {f.name.lower() for f in shaped.fields}
    absent = [T.StructField(f.name, _json_type(f.dataType)) for f in declared.fields if f.name.lower() not in spelled]
    return T.StructType([*shaped.fields, *absent])


def _json_struct(found: T.StructType, declared: T.StructType, file: str, path: str, whose: str = "") -> T.StructType:
    known = {f.name.lower(): f for f in declared.fields}
    fields: list[T.StructField] = []
    for field in found.fields:
        name = f"{path}{field.name}"
        target = known.get(field.name.lower())
        if target is None:
            have = ", ".join(f.name for f in declared.fields)
            raise LoadError(f"{file}: column {name}: expected one of {whose}{have}")
        if field.name.lower() in {f.name.lower() for f in fields}:
            raise LoadError(f"{file}: column {name}: expected each column once, found it in two spellings")
        fields.append(T.StructField(field.name, _json_field(field.dataType, target.dataType, file, name)))
    return T.StructType(fields)


def _json_field(found: T.DataType, declared: T.DataType, file: str, name: str) -> T.DataType:
    """The type to read a value as. JSON has texts, numbers, truths, lists and objects: each has its place."""
    texts = T.StringType | T.BinaryType | T.DateType | T.TimestampType | T.TimestampNTZType
    match found, declared:
        case (T.NullType(), _):
            return _json_type(declared)
        case (T.StructType(), T.StructType()):
            return _json_struct(found, declared, file, f"{name}.")
        case (T.ArrayType(), T.ArrayType()):
            return T.ArrayType(_json_field(found.elementType, declared.elementType, file, f"{name} element"))
        case (T.StructType(), T.MapType()):
            for field in found.fields:
                _json_field(field.dataType, declared.valueType, file, f"{name}.{field.name}")
            return declared
        case (T.NumericType(), T.NumericType()) | (T.BooleanType(), T.BooleanType()):
            return _json_type(declared)
    if isinstance(found, texts) and (isinstance(declared, texts | T.FloatType | T.DoubleType)):
        return _json_type(declared)  # "NaN" and "Infinity" are texts in JSON; Spark refuses any other for a number
    if isinstance(found, T.StringType):
        return _json_type(declared)  # values of several kinds: those that do not fit stop the job
    raise LoadError(f"{file}: column {name}: expected {types.from_spark(declared)}, found {_json_kind(found)}")


def _json_kind(found: T.DataType) -> str:
    match found:
        case T.StructType():
            return "an object"
        case T.ArrayType():
            return "a list"
        case T.NumericType():
            return "a number"
        case T.BooleanType():
            return "true or false"
        case _:
            return "a text"
