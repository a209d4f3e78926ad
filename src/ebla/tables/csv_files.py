"""CSV files for LOAD: Spark cuts them into texts, `ebla.values.texts` says what the texts are.

Few rows come to the driver as texts and are read there; many are read in Spark's tasks, by the same function. Spark
does not say where a row stands in its file: the line of a text that is refused is looked up by reading the file again.
"""

from __future__ import annotations

import codecs
import csv
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.errors import LoadError, TypeMismatchError
from ebla.model.relation import Relation
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.tables.json_files import physical
from ebla.values import texts, types
from ebla.values.grammar import Type, Unfit, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORRUPT = "_ebla_corrupt"
_PATH = "_ebla_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFiles:
    """How CSV files with these columns become rows of a relation."""

    relation: Relation
    names: tuple[str, ...]
    """The relation's columns that the files have, in the files' order."""
    how: texts.TextFormat
    separator: str = ","
    header: bool = True
    encoding: str = "UTF-8"
    quote: str = '"'
    escape: str = '"'
    comment: str = ""
    null: str | None = None
    """What is NULL besides an empty field."""

    def texts(self, spark: SparkSession, files: Sequence[str], options: Mapping[str, object]) -> DataFrame:
        """The fields as texts, with the line if Spark could not make a row of it, and the file."""
        schema = T.StructType([T.StructField(n, T.StringType()) for n in (*self.names, _CORRUPT)])
        reader = spark.read.schema(schema).option("header", self.header).option("sep", self.separator)
        reader = reader.option("enforceSchema", True).option("mode", "PERMISSIVE")
        reader = reader.option("columnNameOfCorruptRecord", _CORRUPT).option("escape", self.escape)
        # Spark takes the empty text for NULL, even a quoted one, unless another text is NULL: one that no file has.
        reader = reader.option("nullValue", secrets.token_hex(16) if self.null is None else self.null)
        for option, value in options.items():
            reader = reader.option(option, str(value).lower() if isinstance(value, bool) else str(value))
        read = reader.csv([sscan.literally(f) for f in files])
        return read.select("*", F.col("_metadata.file_path").alias(_PATH))

    def rows(self, found: DataFrame) -> DataFrame:
        """The rows of texts, under physical names, read in Spark's tasks."""
        return found.mapInArrow(self._task, sscan.struct(self.relation.columns))

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                yield from self.read(pa.Table.from_batches([batch])).combine_chunks().to_batches()
            except LoadError as error:
                raise RuntimeError(swrite.marked(str(error))) from None

    def read(self, found: pa.Table) -> pa.Table:
        """The rows that texts say; an error names file, line, column and text."""
        self._refuse_corrupt(found)
        relation = self.relation
        given: dict[str, pa.ChunkedArray] = {}
        for name in self.names:
            column = found[name]
            if self._tree(name).kind != "string":
                column = pc.if_else(pc.equal(column, ""), None, column)  # only a text can be empty
            given[name] = column
        try:
            table = types.gather(
                given,
                found.num_rows,
                relation.visible,
                store=lambda values, tree: texts.array(values, tree, self.how),
                relation=relation.name,
            )
        except TypeMismatchError as error:
            refused = error.refused
            if refused is None:
                raise LoadError(str(error)) from None
            file = swrite.path_of_address(found[_PATH][refused.row].as_py())
            where = self._where(file, lambda fields: self._refuses(fields, refused.column))
            raise LoadError(f"{where}: column {refused.column}: {refused}") from None
        return physical(table, relation)

    def _tree(self, name: str) -> Type:
        column = self.relation.column(name)
        assert column is not None
        return parse(column.type)

    def _refuse_corrupt(self, found: pa.Table) -> None:
        wrong = pc.index(pc.is_valid(found[_CORRUPT]), True).as_py()
        if wrong < 0:
            return
        line, file = found[_CORRUPT][wrong].as_py(), swrite.path_of_address(found[_PATH][wrong].as_py())
        where = self._where(file, lambda fields: len(fields) != len(self.names))
        text = " ".join(line.split("\n"))
        raise LoadError(f"{where}: expected {len(self.names)} columns ({', '.join(self.names)}), found {text}")

    # ---- lines ------------------------------------------------------------------------------------------

    def _refuses(self, fields: Sequence[str], name: str) -> bool:
        if len(fields) != len(self.names):
            return False
        text, tree = fields[self.names.index(name)], self._tree(name)
        column = self.relation.column(name)
        if text == self.null or (text == "" and tree.kind != "string"):
            return column is not None and not column.nullable
        try:
            texts.value(text, tree, self.how)
        except Unfit:
            return True
        return False

    def _where(self, file: str, wrong: Callable[[Sequence[str]], bool]) -> str:
        """The file and the line of its first record that is wrong, if a plain reader of CSV finds it."""
        try:
            for line, fields in self.records(file):
                if wrong(fields):
                    return f"{file}, line {line}"
        except (OSError, UnicodeError, csv.Error):
            pass
        return file

    def records(self, file: str, *, header: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The records of a file, with the line that each begins in; `header`: with the first one, if it is a header."""
        begin, fresh = 0, True

        def kept(lines: Iterator[str]) -> Iterator[str]:
            nonlocal begin, fresh
            for number, line in enumerate(lines, start=1):
                if line.strip() and not (self.comment and line.startswith(self.comment)):
                    begin, fresh = number if fresh else begin, False
                    yield line

        manner: dict[str, Any] = {"delimiter": self.separator}
        if len(self.quote) != 1:
            manner["quoting"] = csv.QUOTE_NONE
        else:
            manner["quotechar"] = self.quote
            if self.escape and self.escape != self.quote:
                manner |= {"doublequote": False, "escapechar": self.escape}
        encoding = "utf-8-sig" if self.encoding.upper() == "UTF-8" else self.encoding
        with open(file, newline="", encoding=encoding) as stream:
            skipped = header or not self.header
            for fields in csv.reader(kept(stream), **manner):
                fresh = True
                if skipped:
                    yield begin, fields
                skipped = True


def check_encoding(file: str, encoding: str) -> None:
    """Refuse bytes that are no text: Spark would replace them by a question mark."""
    line = 1
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        with open(file, "rb") as stream:
            while piece := stream.read(1 << 20):
                try:
                    decoder.decode(piece)
                except UnicodeDecodeError as error:
                    line += piece.count(b"\n", 0, max(0, error.start))
                    wrong = error.object[error.start]
                    raise LoadError(f"{file}, line {line}: expected {encoding}, found byte 0x{wrong:02x}") from None
                line += piece.count(b"\n")
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise LoadError(f"{file}, line {line}: expected {encoding}, found half a character at the end") from None
    except LookupError:
        raise LoadError(f"{file}: expected a CSV file in {encoding}, found: no such encoding") from None
    except OSError as error:
        raise LoadError(f"{file}: expected a CSV file in {encoding}, found: {error}") from error
