"""`LOAD INTO t FROM 'files'`: what the files hold, checked file by file before a row moves.

Parquet is checked by its footers, CSV by its header, and every text in CSV and JSON while it is read. Every error names
the file and, where there is one, the line and the column.
"""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.errors import EblaError, LoadError, TypeMismatchError, UnknownNameError
from ebla.model.relation import Column, Relation
from ebla.model.staging import Arrival
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.spark.sessions import Sessions
from ebla.tables import batch as b
from ebla.tables.csv_files import CsvFiles, check_encoding
from ebla.tables.json_files import COMPRESSED, JsonFiles
from ebla.values import texts, types
from ebla.values.jsons import LENIENT_OPTIONS, Leniency
from ebla.values.patterns import pattern

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

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
SMALL_BYTES = 32 * 2**20
"""Files of texts that have no more bytes than this, all together, are read by the driver."""
COMPRESSION = 10
"""How many times as large a compressed file is taken to be."""
_READ_AS = {"dateFormat": "date", "timestampFormat": "timestamp", "timestampNTZFormat": "timestamp_ntz"}
_WORDS = {"nanValue": "NaN", "positiveInf": "Infinity", "negativeInf": "-Infinity"}
_PATH = "_ebla_path"


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
    once = {os.path.realpath(file): file for file in sorted(found, reverse=True)}  # a link and its target are one file
    return sorted(once.values())


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
        if there in seen:  # a link led here again
            folders[:] = []
            continue
        seen.add(there)
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
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
    sessions: Sessions,
    relation: Relation,
    path: str,
    *,
    format: str | None = None,
    options: Mapping[str, object] | None = None,
) -> b.ArrowBatch | b.FrameBatch:
    """The rows of the files as a batch of upserts, with every check attached to it."""
    files = find_files(path)
    kind = format_of(files, format)
    given = _spark_options(kind, options or {})
    match kind:
        case "parquet":
            return _parquet(sessions, relation, files)
        case "csv":
            return _csv(sessions, relation, files, given)
        case _:
            return _json(sessions, relation, files, given)


def _spark_options(kind: str, given: Mapping[str, object]) -> dict[str, object]:
    """The options under the names that Spark gives them."""
    options = {name.lower(): name for name in OPTIONS[kind]}
    unknown = [name for name in given if name.lower() not in options]
    if unknown:
        have = f"one of {', '.join(sorted(options.values()))}" if options else "no option"
        raise UnknownNameError(f"WITH: expected {have} for {kind} files, found {unknown[0]}")
    return {options[name.lower()]: value for name, value in given.items()}


def _how(options: dict[str, object]) -> texts.TextFormat:
    """How texts are read, by the options that say so, which are taken out."""
    locale = str(options.pop("locale", "en-US"))
    if locale.lower().replace("_", "-") not in ("en-us", "en"):
        raise LoadError(f"locale: expected en-US, found {locale}; numbers and dates are read by digits alone")
    given = {name: options.pop(option, None) for option, name in _READ_AS.items()}
    read = {name: None if text is None else pattern(name, str(text)) for name, text in given.items()}
    words = [(str(options.pop(option)), word) for option, word in _WORDS.items() if option in options]
    return texts.TextFormat(
        date=read["date"], timestamp=read["timestamp"], timestamp_ntz=read["timestamp_ntz"], words=tuple(words)
    )


def _with_path(read: DataFrame) -> DataFrame:
    return read.select("*", F.col("_metadata.file_path").alias(_PATH))


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionAll(part)
    return frame


# ---- Parquet --------------------------------------------------------------------------------------------


def _parquet(sessions: Sessions, relation: Relation, files: Sequence[str]) -> b.FrameBatch:
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
        read = _with_path(sessions.writer.read.schema(schema).parquet(*map(sscan.literally, group)))
        read = read.select(*[_moment(column) for column in found], _PATH)
        try:
            parts.append(swrite.fitted(read, relation, path=_PATH, utf8=True))
        except EblaError as error:
            raise LoadError(f"{group[0]}: {error}") from error
    return b.FrameBatch(
        frame=_union(parts), kind=b.UPSERT, plain=True, rows=rows, arrival=Arrival.LOAD, errors=LoadError
    )


def _spark_schema(file: str, relation: Relation, schema: pa.Schema) -> T.StructType:
    declared = {c.name.lower(): c for c in relation.visible}
    fields: dict[str, T.StructField] = {}
    for column in schema:
        low = column.name.lower()
        if low not in declared:
            have = ", ".join(c.name for c in relation.visible)
            raise LoadError(f"{file}: column {column.name}: expected one of {relation.name}'s columns {have}")
        if low in fields:
            raise LoadError(f"{file}: column {column.name}: expected each column once, found it twice")
        try:
            sql_type = "bigint" if _is_nanoseconds(column.type) else types.from_arrow(column.type)
            fields[low] = T.StructField(column.name, types.to_spark(sql_type))
        except TypeMismatchError as error:
            raise LoadError(f"{file}: column {column.name}: {error}") from error
    missing = [c.name for c in relation.visible if c.required and c.name.lower() not in fields]
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


def _csv(
    sessions: Sessions, relation: Relation, files: Sequence[str], options: dict[str, object]
) -> b.ArrowBatch | b.FrameBatch:
    how = _how(options)
    header = _truth(options.pop("header", True))
    separator = str(options.pop("delimiter", options.pop("sep", "\t" if files[0].endswith(".tsv") else ",")))
    if len(separator) != 1:
        raise LoadError(f"delimiter: expected one character, found {separator!r}")
    plain = CsvFiles(
        relation=relation,
        names=(),
        how=how,
        separator=separator,
        header=header,
        encoding=str(options.get("encoding", "UTF-8")),
        quote=str(options.get("quote", '"')),
        escape=str(options.pop("escape", '"')),
        comment=str(options.get("comment", "")),
        null=None if "nullValue" not in options else str(options.pop("nullValue")),
    )
    groups: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        check_encoding(file, plain.encoding)
        groups.setdefault(_csv_names(file, plain), []).append(file)
    found = [(replace(plain, names=names), group) for names, group in groups.items()]
    read = [(one, one.texts(sessions.writer, group, options)) for one, group in found]
    size = sum(os.path.getsize(file) for file in files)
    if size > SMALL_BYTES:
        frame = _union([one.rows(frame) for one, frame in read])
        return b.FrameBatch(frame=frame, kind=b.UPSERT, plain=True, bytes=size, arrival=Arrival.LOAD, errors=LoadError)
    with swrite.translated(relation.name, into=LoadError):
        tables = [one.read(frame.toArrow()) for one, frame in read]
    return b.ArrowBatch(table=pa.concat_tables(tables), kinds=b.UPSERT, ordered=False, arrival=Arrival.LOAD)


def _truth(value: object) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def _first_line(file: str, how: CsvFiles) -> list[str] | None:
    """The first line that is not empty and not a comment, read with the options that the rows are read with."""
    try:
        return next((fields for _, fields in how.records(file, header=True)), None)
    except (OSError, UnicodeError, LookupError, csv.Error) as error:
        raise LoadError(f"{file}: expected a CSV file in {how.encoding}, found: {error}") from error


def _csv_names(file: str, how: CsvFiles) -> tuple[str, ...]:
    first = _first_line(file, how)
    relation, visible = how.relation, how.relation.visible
    nested = next((c for c in visible if not types.is_key_type(c.type)), None)
    if not how.header:
        if first is not None and len(first) != len(visible):
            raise LoadError(f"{file}: expected {len(visible)} columns, found {len(first)}; give WITH (header = true)?")
        if nested is not None:
            raise _no_texts(file, nested)
        return tuple(c.name for c in visible)
    if first is None:
        raise LoadError(f"{file}: expected a header line, found an empty file")
    declared = {c.name.lower(): c for c in visible}
    names: list[str] = []
    for name in first:
        column = declared.get(name.strip().lower())
        if column is None:
            raise LoadError(
                f"{file}: column {name!r}: expected one of {relation.name}'s columns "
                f"{', '.join(c.name for c in visible)}; "
                "a file without a header line is loaded WITH (header = false)"
            )
        if column.name in names:
            raise LoadError(f"{file}: column {name!r}: expected each column once, found it twice")
        if not types.is_key_type(column.type):
            raise _no_texts(file, column)
        names.append(column.name)
    missing = [c.name for c in visible if c.required and c.name not in names]
    if missing:
        raise LoadError(f"{file}: column {missing[0]}: expected a value for every row, found no such column")
    return tuple(names)


def _no_texts(file: str, column: Column) -> LoadError:
    return LoadError(f"{file}: column {column.name}: expected a type that CSV can hold, found {column.type}")


# ---- JSON -----------------------------------------------------------------------------------------------


def _json(
    sessions: Sessions, relation: Relation, files: Sequence[str], options: dict[str, object]
) -> b.ArrowBatch | b.FrameBatch:
    """One object per line. Few bytes are read by the driver, without Spark."""
    how = _how(options)
    lenient = {name: _truth(options[option]) for option, name in LENIENT_OPTIONS.items() if option in options}
    separator = options.get("lineSep")
    reading = JsonFiles(
        relation=relation,
        how=how,
        leniency=Leniency(**lenient),
        encoding=str(options.get("encoding", "UTF-8")),
        line_separator=None if separator is None else str(separator),
        multi_line=_truth(options.get("multiLine", False)),
    )
    size = sum(os.path.getsize(file) * (COMPRESSION if file.endswith(COMPRESSED) else 1) for file in files)
    if size > SMALL_BYTES:
        frame = reading.frame(sessions.writer, files)
        return b.FrameBatch(frame=frame, kind=b.UPSERT, plain=True, bytes=size, arrival=Arrival.LOAD, errors=LoadError)
    tables = [table for file in files for part in reading.ranges(file) for table in reading.tables(part)]
    return b.ArrowBatch(table=pa.concat_tables(tables), kinds=b.UPSERT, ordered=False, arrival=Arrival.LOAD)
