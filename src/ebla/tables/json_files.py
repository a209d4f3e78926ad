"""JSON files for LOAD: one object per line, read by `ebla.values.jsons`, on the driver if they are few bytes.

Many bytes are read by Spark's tasks, each a range of a file. A task that finds a line wrong counts the lines before it,
so that the message has its number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ebla.errors import LoadError, TypeMismatchError
from ebla.model.relation import Relation
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.spark.session import local_frame
from ebla.storage import runs as rf
from ebla.values import jsons, texts, types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE_BYTES = 16 * 2**20
LINES_AT_ONCE = 10_000
_LINES = re.compile("\r\n|\r|\n")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The lines of a file that begin from byte `start` on and before `end`; the whole file if `end` is None."""

    file: str
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFiles:
    """How JSON files become rows of a relation."""

    relation: Relation
    how: texts.TextFormat = texts.FILES
    leniency: jsons.Leniency = field(default_factory=jsons.Leniency)
    encoding: str = "UTF-8"
    line_separator: str | None = None
    multi_line: bool = False

    # ---- ranges -----------------------------------------------------------------------------------------

    def ranges(self, file: str) -> list[Range]:
        size = os.path.getsize(file)
        whole = self.multi_line or self.line_separator or not self._is_utf8 or file.endswith(COMPRESSED)
        if whole or size <= RANGE_BYTES:
            return [Range(file=file)]
        return [Range(file=file, start=at, end=min(at + RANGE_BYTES, size)) for at in range(0, size, RANGE_BYTES)]

    @property
    def _is_utf8(self) -> bool:
        return self.encoding.upper().replace("_", "-") in ("UTF-8", "UTF8")

    def frame(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        """The rows, under physical names. One task for each range; no shuffle."""
        ranges = [one for file in files for one in self.ranges(file)]
        columns = {
            "file": [one.file for one in ranges],
            "start": pa.array([one.start for one in ranges], pa.int64()),
            "end": pa.array([one.end for one in ranges], pa.int64()),
        }
        frame = local_frame(spark, pa.table(columns)).repartition(len(ranges))
        return frame.mapInArrow(self._task, sscan.struct(self.relation.columns))

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    for table in self.tables(Range(**row)):
                        yield from table.combine_chunks().to_batches()
                except LoadError as error:
                    raise RuntimeError(swrite.marked(str(error))) from None

    # ---- rows -------------------------------------------------------------------------------------------

    def tables(self, part: Range) -> Iterator[pa.Table]:
        """The rows of a range, some thousands at a time; an error names file and line."""
        text = self._text(part)
        numbers: list[int] = []
        rows: list[dict[str, Any]] = []
        if self.multi_line:
            found = self._parsed(text, part, 1)
            rows = [self._object(one, part, 1) for one in (found if isinstance(found, list) else [found])]
            yield self._table(rows, [1] * len(rows), part)
            return
        separated = text.split(self.line_separator) if self.line_separator else _LINES.split(text)
        for number, line in enumerate(separated, start=1):
            if not line.strip(" \t\r\n"):
                continue
            rows.append(self._object(self._parsed(line, part, number), part, number))
            numbers.append(number)
            if len(rows) == LINES_AT_ONCE:
                yield self._table(rows, numbers, part)
                rows, numbers = [], []
        yield self._table(rows, numbers, part)

    def _text(self, part: Range) -> str:
        try:
            if part.end is not None:
                raw = _lines_between(part.file, part.start, part.end)
            else:
                with pa.input_stream(part.file, compression="detect") as stream:
                    raw = stream.read()
        except (OSError, pa.ArrowInvalid) as error:
            raise LoadError(f"{part.file}: expected a file that can be read, found: {error}") from error
        try:
            return raw.decode("utf-8-sig" if self._is_utf8 and not part.start else self.encoding)
        except UnicodeDecodeError as error:
            where = _where(part, raw.count(b"\n", 0, error.start) + 1)
            raise LoadError(f"{where}: expected {self.encoding}, found byte 0x{raw[error.start]:02x}") from None
        except LookupError:
            raise LoadError(f"encoding: expected one that Python knows, found {self.encoding}") from None

    def _parsed(self, text: str, part: Range, line: int) -> Any:
        try:
            return jsons.read(text, self.leniency)
        except jsons.Unreadable as error:
            raise LoadError(f"{_where(part, line)}: {error}") from None

    def _object(self, found: Any, part: Range, line: int) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise LoadError(f"{_where(part, line)}: expected an object, found {jsons.text_of(found)[:80]}")
        return found

    def _table(self, rows: Sequence[dict[str, Any]], lines: Sequence[int], part: Range) -> pa.Table:
        """Rows as a table. An object that does not name a column with a default has the default, not NULL."""
        spelled = self._spellings(rows, lines, part)
        alike: dict[frozenset[str], list[int]] = {}
        for at, names in enumerate(spelled):
            left_out = {c.name for c in self.relation.visible if c.default is not None and c.name not in names}
            alike.setdefault(frozenset(left_out), []).append(at)
        tables = [
            self._gathered([(rows[at], spelled[at]) for at in places], [lines[at] for at in places], left_out, part)
            for left_out, places in (alike or {frozenset[str](): list[int]()}).items()
        ]
        return pa.concat_tables(tables)

    def _gathered(
        self,
        rows: Sequence[tuple[dict[str, Any], Mapping[str, str]]],
        lines: Sequence[int],
        left_out: Collection[str],
        part: Range,
    ) -> pa.Table:
        """Rows, each with its own spelling of names, that all leave the same columns to their defaults."""
        relation = self.relation
        given = {
            column.name: [row.get(names.get(column.name, "")) for row, names in rows]
            for column in relation.visible
            if column.name not in left_out
        }
        try:
            table = types.gather(
                given,
                len(rows),
                relation.visible,
                store=lambda values, tree: jsons.store(values, tree, self.how),
                relation=relation.name,
                show=jsons.text_of,
            )
        except TypeMismatchError as error:
            refused = error.refused
            if refused is None:
                raise LoadError(f"{part.file}: {error}") from None
            where = _where(part, lines[refused.row])
            raise LoadError(f"{where}: column {refused.column}: {refused}") from None
        return physical(table, relation)

    def _spellings(self, rows: Sequence[dict[str, Any]], lines: Sequence[int], part: Range) -> list[Mapping[str, str]]:
        """For each row, declared names to its own; rows nearly always have the same."""
        columns = {c.name.lower(): c.name for c in self.relation.visible}
        cache: dict[tuple[str, ...], dict[str, str]] = {}
        found: list[Mapping[str, str]] = []
        for row, line in zip(rows, lines, strict=True):
            names = tuple(row)
            if names not in cache:
                cache[names] = self._spelled(names, columns, part, line)
            found.append(cache[names])
        return found

    def _spelled(self, names: Sequence[str], columns: Mapping[str, str], part: Range, line: int) -> dict[str, str]:
        spelled: dict[str, str] = {}
        for name in names:
            declared = columns.get(name.lower())
            if declared is None:
                have = ", ".join(columns.values())
                where = _where(part, line)
                raise LoadError(f"{where}: column {name}: expected one of {self.relation.name}'s columns {have}")
            if declared in spelled:
                where = _where(part, line)
                raise LoadError(f"{where}: column {name}: expected each column once, found it in two spellings")
            spelled[declared] = name
        return spelled


def physical(table: pa.Table, relation: Relation) -> pa.Table:
    """Rows of the visible columns as the relation stores them."""
    named = table.rename_columns([c.physical for c in relation.visible])
    return types.normalize_keys(rf.align(named, relation.columns), [c.physical for c in relation.key])


def _lines_between(file: str, start: int, end: int) -> bytes:
    """The lines that begin in a range of bytes."""
    with open(file, "rb") as stream:
        if start:
            stream.seek(start - 1)
            stream.readline()
        start = stream.tell()
        return stream.read(end - start) + _rest_of_line(stream, end) if start < end else b""


def _rest_of_line(stream: BinaryIO, end: int) -> bytes:
    """What is behind a byte of the line that it is in; nothing if a line ends with it."""
    stream.seek(end - 1)
    return stream.readline()[1:]


def _where(part: Range, line: int) -> str:
    """A file and the number of a line, which is given as that in a range of the file."""
    return f"{part.file}, line {line + (_lines_before(part.file, part.start) if part.start else 0)}"


def _lines_before(file: str, start: int) -> int:
    """How many lines begin before byte `start`."""
    lines, left = 1, start - 1
    with open(file, "rb") as stream:
        while left > 0 and (piece := stream.read(min(1 << 20, left))):
            lines += piece.count(b"\n")
            left -= len(piece)
    return lines
