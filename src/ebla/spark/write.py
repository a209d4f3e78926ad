"""Rows of a DataFrame to run files, one sorted file per tablet.

Plan: project and check, one shuffle that sends every row to its tablet's partition, sort inside the partition, write.
One job. The partition number is the tablet, so the file's name says which tablet it holds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ebla.base.ids import TabletId
from ebla.catalog.troubles import ABOUT_VALUES
from ebla.errors import (
    DuplicateNameError,
    EblaError,
    SqlError,
    StorageError,
    TypeMismatchError,
    UnknownNameError,
)
from ebla.model.relation import ROW_SEQ, ROW_TXN, Relation
from ebla.spark import faults
from ebla.spark.scan import quoted, renamed, tablet_sql, token_sql
from ebla.sql.literals import default_sql
from ebla.storage.files import Root
from ebla.storage.runs import Facts
from ebla.values import types
from ebla.values.texts import BITS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_PART = re.compile(r"part-(\d+)-.*\.parquet$")
# What our own expressions say when they stop a job begins with one of these.
_MARK = "EBLA:"
_MARK_FILE = "EBLA@"
_AFTER_FILE = "@:"


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletFile:
    tablet: TabletId
    path: str
    facts: Facts | None = None
    """What the writer knows of it; it need not be read again."""


def fitted(
    frame: DataFrame,
    relation: Relation,
    *,
    keep: Sequence[str] = (),
    keyed: bool = False,
    hidden: bool = False,
    path: str | None = None,
    utf8: bool = False,
) -> DataFrame:
    """The frame's columns as the relation's, under physical names, checked while they are computed.

    Columns match by name, whatever their case. Missing ones have their default, or are NULL. Only lossless assignments
    are accepted: a value that does not fit its column stops the job. With `keyed`, only key columns are needed
    (deletes); with `hidden`, the frame may carry a hidden key. `path` names the column that says which file a row comes
    from.
    With `utf8`, bytes that are no text are refused in strings: Spark takes them on trust.
    """
    given = _given_columns(frame, relation, [*keep, *([path] if path else [])], hidden=hidden)
    schema = frame.schema
    where = None if path is None else F.col(path)
    selected: list[SparkColumn] = []
    for column in relation.columns:
        target = types.to_spark(column.type)
        source = given.get(column.name.lower())
        if source is None:
            if column.default is not None and not keyed:
                selected.append(F.expr(default_sql(column.default, column.type)).cast(target).alias(column.physical))
                continue
            if column.key_position is not None and not column.hidden:
                raise TypeMismatchError(f"{relation.name}: expected key column {column.name}, found no such column")
            if not column.nullable and not keyed and not column.hidden:
                raise TypeMismatchError(f"{relation.name}.{column.name}: expected a value, found no such column")
            selected.append(F.lit(None).cast(target).alias(column.physical))
            continue
        found = schema[source].dataType
        plain = column.nullable or column.hidden or (keyed and column.key_position is None)
        twice = repeated_key(F.col(quoted(source)), found)
        is_text = utf8 and isinstance(target, T.StringType)
        as_is = found == target and plain and twice is None and not is_text
        if as_is and not isinstance(target, T.FloatType | T.DoubleType):
            selected.append(F.expr(renamed([(source, column.physical)])[0]))
            continue
        what = f"{relation.name}.{column.name}" if path is None else f"column {column.name}"
        value = assigned(F.col(quoted(source)), found, target, what, where)
        if is_text:
            raw = F.col(quoted(source))
            message = F.concat(F.lit(f"{what}: expected string in UTF-8, found bytes "), F.hex(raw))
            value = F.when(F.is_valid_utf8(raw) | raw.isNull(), value).otherwise(refusal(message, target, where))
        if twice is not None:
            message = F.lit(f"{what}: expected {column.type}, found a map that names a key twice")
            value = F.when(F.coalesce(twice, F.lit(False)), refusal(message, target, where)).otherwise(value)
        if not column.nullable and not column.hidden and not (keyed and column.key_position is None):
            value = F.coalesce(value, refusal(F.lit(f"{what}: expected a value, found NULL"), target, where))
        if column.key_position is not None and isinstance(target, T.FloatType | T.DoubleType):
            value = F.when(value == 0, F.lit(0).cast(target)).otherwise(value)  # one zero, as in equality
        selected.append(value.alias(column.physical))
    return frame.select(*selected, *[F.col(quoted(given[k.lower()])).alias(k) for k in keep])


def repeated_key(value: SparkColumn, kind: T.DataType) -> SparkColumn | None:
    """Whether a map in the value, at any depth, names a key twice; `None` where there is no map.

    Spark's own functions make no such map, but files may hold one.
    """
    match kind:
        case T.MapType():
            keys = F.map_keys(value)
            here = F.size(F.array_distinct(keys)) < F.size(keys)
            inside = _in_some(F.map_values(value), kind.valueType)
            return here if inside is None else here | inside
        case T.ArrayType():
            return _in_some(value, kind.elementType)
        case T.StructType():
            parts = [repeated_key(value.getField(field.name), field.dataType) for field in kind.fields]
            found = [F.coalesce(part, F.lit(False)) for part in parts if part is not None]
            return functools.reduce(lambda one, other: one | other, found) if found else None
        case _:
            return None


def _in_some(values: SparkColumn, kind: T.DataType) -> SparkColumn | None:
    if repeated_key(F.lit(None), kind) is None:
        return None
    return F.exists(values, lambda item: F.coalesce(cast("SparkColumn", repeated_key(item, kind)), F.lit(False)))


def _given_columns(frame: DataFrame, relation: Relation, others: Sequence[str], *, hidden: bool) -> Mapping[str, str]:
    """The frame's columns by their names in lower case: each once, and none that is unknown."""
    given: dict[str, str] = {}
    for name in frame.columns:
        if name.lower() in given:
            raise DuplicateNameError(f"{relation.name}: expected each column once, found {name} twice")
        given[name.lower()] = name
    columns = relation.columns if hidden else relation.visible
    expected = {c.name.lower() for c in columns} | {k.lower() for k in others}
    unknown = [n for low, n in given.items() if low not in expected]
    if unknown:
        have = ", ".join(c.name for c in relation.visible)
        raise UnknownNameError(f"{relation.name}: expected columns {have}; found unknown column {unknown[0]}")
    return given


def marked(message: str) -> str:
    """A message of our own for an error that comes out of a task."""
    return f"{_MARK}{message}"


def refusal(message: SparkColumn, target: T.DataType, where: SparkColumn | None = None) -> SparkColumn:
    """An expression of the target's type that stops the job with a message, and the file of the row if it has one."""
    parts = [F.lit(_MARK), message] if where is None else [F.lit(_MARK_FILE), where, F.lit(_AFTER_FILE), message]
    return F.raise_error(F.concat(*parts)).cast(target)


def assigned(
    value: SparkColumn, found: T.DataType, target: T.DataType, what: str, where: SparkColumn | None = None
) -> SparkColumn:
    """A value cast to its column's type, or an error: never a changed value.

    Only binary fractions round, as in `ebla.values.types`: a double stored as float, a decimal stored as double.
    """
    if found == target or isinstance(found, T.NullType):
        return value.cast(target)
    have, want = types.from_spark(found), types.from_spark(target)
    if have == want or types.widens(have, want):
        return value.cast(target)
    match found, target:
        case (T.ArrayType(), T.ArrayType()):
            return F.transform(
                value, lambda item: assigned(item, found.elementType, target.elementType, f"{what} element", where)
            )
        case (T.MapType(), T.MapType()):
            keyed = F.transform_keys(
                value, lambda key, _: assigned(key, found.keyType, target.keyType, f"{what} key", where)
            )
            return F.transform_values(
                keyed, lambda _, item: assigned(item, found.valueType, target.valueType, f"{what} value", where)
            )
        case (T.StructType(), T.StructType()):
            return _assigned_struct(value, found, target, what, where)
    numeric = isinstance(found, T.NumericType) and isinstance(target, T.NumericType)
    times = isinstance(found, T.DateType | T.TimestampType | T.TimestampNTZType) and isinstance(
        target, T.TimestampType | T.TimestampNTZType
    )
    # A statement has its session's zone; a file has none, so that a moment in it shows no clock.
    zoneless = where is not None and (have, want) == ("timestamp", "timestamp_ntz")
    if not (numeric or times) or zoneless:
        raise TypeMismatchError(f"{what}: expected {want}, found {have}; cast it in the query if that is meant")
    fits = value.try_cast(target)
    if isinstance(found, T.FloatType) and isinstance(target, T.DecimalType):
        fits = value.cast("string").try_cast(target)  # by its shortest form; Spark takes that of the same double
    if isinstance(target, T.FloatType | T.DoubleType) and isinstance(found, T.FractionalType):
        infinite = F.lit(float("inf"))
        changed = ((F.abs(fits) >= infinite) & (F.abs(value) < infinite)) | ((fits == 0) & (value != 0))
        fits = F.when(~changed, fits)
    elif numeric:
        same = fits.try_cast(found) == value
        # The fraction behind the largest whole number of a type is that number to Spark.
        if isinstance(found, T.IntegralType) and isinstance(target, T.FloatType | T.DoubleType):
            same = same & (fits < F.lit(2.0 ** (BITS[have] - 1)))
        if isinstance(found, T.FloatType | T.DoubleType) and want in BITS:
            same = same & (value < F.lit(2.0 ** (BITS[want] - 1)))
        if isinstance(found, T.FloatType | T.DoubleType) and isinstance(target, T.DecimalType):
            # A whole number must be what its shortest form says.
            said = value.try_cast("bigint").cast(T.DecimalType(38, 0)) == fits
            same = same & ((F.abs(value) < F.lit(2.0**24)) | (value != F.rint(value)) | said)
        fits = F.when(same, fits)
    message = F.concat(F.lit(f"{what}: expected {want}, found "), value.cast("string"))
    return F.when(value.isNull(), F.lit(None).cast(target)).otherwise(F.coalesce(fits, refusal(message, target, where)))


def _assigned_struct(
    value: SparkColumn, found: T.StructType, target: T.StructType, what: str, where: SparkColumn | None
) -> SparkColumn:
    """Fields match by name; Spark's own cast would match them by their place."""
    given = {field.name.lower(): field for field in found.fields}
    unknown = given.keys() - {field.name.lower() for field in target.fields}
    if unknown or len(given) < len(found.fields):
        raise TypeMismatchError(
            f"{what}: expected {types.from_spark(target)}, found {types.from_spark(found)}; "
            "a field is unknown or given twice"
        )
    fields = []
    for field in target.fields:
        source = given.get(field.name.lower())
        if source is None:
            made = F.lit(None).cast(field.dataType)
        else:
            inner = value.getField(source.name)
            made = assigned(inner, source.dataType, field.dataType, f"{what}.{field.name}", where)
        fields.append(made.alias(field.name))
    return F.when(value.isNull(), F.lit(None).cast(target)).otherwise(F.struct(*fields))


def with_row_ids(frame: DataFrame, transaction: int) -> DataFrame:
    """Give new rows of a table without a key their hidden row id: the transaction, and a number that no other row
    of it has."""
    return frame.withColumn(ROW_TXN, F.coalesce(F.col(ROW_TXN), F.lit(transaction).cast("bigint"))).withColumn(
        ROW_SEQ, F.coalesce(F.col(ROW_SEQ), F.monotonically_increasing_id())
    )


def by_tablet(frame: DataFrame, relation: Relation, *, index: Sequence[TabletId] | None = None) -> DataFrame:
    """Rows in their tablet's partition, sorted by key. `index` maps partitions to a subset of the tablets."""
    tablet = tablet_sql(token_sql(relation.placed_by), relation.tablets)
    partitions = relation.tablets
    if index is not None:
        partitions = len(index)
        place = {t: i for i, t in enumerate(index)}
        places = ", ".join(str(place.get(TabletId(t), 0)) for t in range(relation.tablets))
        tablet = f"element_at(array({places}), {tablet} + 1)"
    return in_order(frame.repartitionById(partitions, F.expr(tablet)), relation)


def in_order(frame: DataFrame, relation: Relation) -> DataFrame:
    """Rows sorted by key inside each partition."""
    order = [
        F.col(quoted(c.physical)).desc_nulls_last()
        if c.physical in relation.descending
        else F.col(quoted(c.physical)).asc_nulls_first()
        for c in relation.key
    ]
    return frame.sortWithinPartitions(*order)


def write_tablets(
    frame: DataFrame,
    relation: Relation,
    root: Root,
    scratch: str,
    *,
    row_group_bytes: int,
    index: Sequence[TabletId] | None = None,
) -> list[TabletFile]:
    """Write the frame under a scratch directory, one sorted file per tablet that has rows. One Spark job."""
    arranged = by_tablet(frame, relation, index=index)
    return [
        TabletFile(tablet=TabletId(number) if index is None else index[number], path=path)
        for number, path in write_partitions(arranged, relation, root, scratch, row_group_bytes=row_group_bytes)
    ]


def write_partitions(
    arranged: DataFrame, relation: Relation, root: Root, scratch: str, *, row_group_bytes: int
) -> list[tuple[int, str]]:
    """Write each partition that has rows as a file under a scratch directory; its number and path. One Spark job."""
    with translated(relation.name):
        arranged.write.mode("overwrite").option("parquet.block.size", str(row_group_bytes)).option(
            "compression", "snappy"
        ).parquet(root.full(scratch))
    parts = [(_PART.search(path), path) for path, _, folder in root.listing(scratch) if not folder]
    return sorted((int(part.group(1)), path) for part, path in parts if part is not None)


_ABOUT_ROWS = (TypeMismatchError, SqlError, StorageError)


class translated:
    """Turn what Spark raises into an Ebla error that a user can act on; `into` says of which class, if not its own."""

    def __init__(self, what: str, *, into: type[EblaError] | None = None) -> None:
        self.what = what
        self.into = into

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        found = error if isinstance(error, EblaError) else translate(error, self.what)
        if found is not None and self.into is not None and type(found) in _ABOUT_ROWS:
            found = self.into(str(found))
        if found is not None and found is not error:
            raise found from error


def translate(error: BaseException, what: str) -> EblaError | None:
    """What Spark says, in our words: of the text, a row, files, or Spark itself; `None` if it is not Spark's."""
    text = faults.text_of(error)
    # An analysis error shows the plan, in which our expressions stand though none of them ran.
    ours = None if isinstance(error, AnalysisException) else _our_message(text)
    if ours is not None:
        return TypeMismatchError(ours)
    if not faults.is_of_spark(error):
        return None
    whole = f"{text}\n{getattr(error, '_stackTrace', None) or ''}"
    if any(words in whole for words in faults.NO_SPACE):
        return faults.full(what)
    raised = faults.of_worker(error, what)
    if raised is not None:
        return raised
    if re.search(
        r"FileNotFoundException|FAILED_READ_FILE|PATH_NOT_FOUND|not a Parquet file|CANNOT_READ_FILE_FOOTER", text
    ):
        return StorageError(f"{what}: {first_message(text)}{_last_cause(whole)}")
    fault = faults.fault_of(error)
    if not fault.final:
        return faults.of_spark(error, what)
    said = f"{what}: {fault.message}"
    if fault.code.split(".")[0] in ABOUT_VALUES:
        return TypeMismatchError(said)
    place = re.search(r"\(line (\d+), pos (\d+)\)|line (\d+) pos (\d+)", text)
    if place is not None:
        line, column = (int(g) for g in place.groups() if g is not None)
        return SqlError(said, line=line, column=column + 1)
    return SqlError(said)


def _our_message(text: str) -> str | None:
    """What one of our own expressions said when it stopped the job."""
    found = re.search(f"(?:{_MARK_FILE}([^\n]*?){_AFTER_FILE}|{_MARK})([^\n]*)", text)
    if found is None:
        return None
    said = found.group(2).split(" SQLSTATE", maxsplit=1)[0].rstrip(". ")
    return said if found.group(1) is None else f"{path_of_address(found.group(1))}: {said}"


def path_of_address(address: str) -> str:
    """The address of a local file in Spark's spelling, as a user would write it."""
    return re.sub(r"^file:/+", "/", unquote(address)) if address.startswith("file:") else address


def _last_cause(text: str) -> str:
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)
    return f" ({causes[-1].strip()})" if causes else ""


first_message = faults.sentence


_PLAIN = ("Project", "LogicalRelation", "Range", "LocalRelation", "Union", "SubqueryAlias", "LogicalRDD")


def is_plain(frame: DataFrame) -> bool:
    """Whether a frame only reads and projects, so that what it reads is what it returns."""
    plan = str(frame._jdf.queryExecution().optimizedPlan().toString())
    names = (line.lstrip(" :+-").split(" ")[0].split("[")[0] for line in plan.splitlines() if line.strip())
    return all(n in _PLAIN or n.startswith("Relation") for n in names)
