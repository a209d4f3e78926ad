"""The table that a write changes, and the pieces that all builders of such queries share; see `dml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ebla.errors import DuplicateNameError, TypeMismatchError, UnknownNameError
from ebla.sql import literals
from ebla.sql.lex import StatementText, quote, quote_string
from ebla.sql.literals import Dialect
from ebla.sql.query import Query
from ebla.sql.refs import find
from ebla.sql.statements import Assignments, Places
from ebla.values.grammar import Unfit, parse
from ebla.values.texts import BITS

KIND = "_kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that is written, under the name that the statement gives it."""

    table: str
    alias: str
    columns: Sequence[str]
    key: Sequence[str]
    hidden: Sequence[str]
    types: Mapping[str, str]
    dialect: Dialect | None = None
    """What literals mean, if a string is to become the value that it says of its column's type."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column to an expression of its default, where it has one."""

    @property
    def stored(self) -> tuple[str, ...]:
        return (*self.columns, *self.hidden)

    def resolve(self, names: Iterable[str], *, doing: str) -> tuple[str, ...]:
        """Columns as the table spells them; unknown ones and repetitions are errors."""
        spelled = {column.lower(): column for column in self.columns}
        found: list[str] = []
        for name in names:
            column = spelled.get(name.lower())
            if column is None:
                raise UnknownNameError(
                    f"table {self.table} has no column {name}; its columns are {', '.join(self.columns)}"
                )
            if column in found:
                raise DuplicateNameError(f"column {column} of table {self.table} is {doing} twice; name it once")
            found.append(column)
        return tuple(found)

    def assigned(self, assignments: Assignments, places: Places) -> dict[str, str]:
        """Column to the expression that becomes its value, in parentheses: it cannot reach beyond itself."""
        names = self.resolve((column for column, _expression in assignments), doing="assigned")
        return self.expressions(names, [expression for _column, expression in assignments], places)

    def expressions(self, names: Sequence[str], expressions: Sequence[str], places: Places) -> dict[str, str]:
        """Column to expression; a string literal becomes the value that it says, or is an error at its place."""
        made: dict[str, str] = {}
        for number, (name, expression) in enumerate(zip(names, expressions, strict=True)):
            place = places[number] if number < len(places) else None
            made[name] = f"({self._literal(name, expression, place)})"
        return made

    def _literal(self, column: str, expression: str, place: StatementText | None) -> str:
        kind = self.types.get(column)
        if expression.strip().upper() == "DEFAULT":
            return self.ungiven(column)
        if self.dialect is None or kind is None:
            return expression
        tree = parse(kind)
        try:
            found = literals.whole(expression, self.dialect)
            if not literals.needs_reading(found):
                return expression
            value = literals.stored(found, tree, self.dialect.zone)
            return expression if tree.kind == "string" else literals.sql_of(value, tree)
        except literals.NotPlain:
            return expression
        except Unfit as why:
            at = "" if place is None else f" (line {place.line}, column {place.column})"
            raise TypeMismatchError(f"{self.table}.{column}: expected {tree}, found {expression} ({why}){at}") from None

    def ungiven(self, column: str) -> str:
        """What a column holds in a new row that gives it no value."""
        return self.defaults.get(column, "NULL")

    def stored_value(self, column: str, value: str) -> str:
        """A computed value as the column stores it, if the type is known."""
        kind = self.types.get(column)
        return value if kind is None else checked(value, kind, f"{self.table}.{column}")

    def old(self, column: str) -> str:
        return f"{quote(self.alias)}.{quote(column)}"


def target(
    table: str,
    alias: str | None,
    columns: Sequence[str],
    key: Sequence[str],
    hidden: Sequence[str],
    types: Mapping[str, str] | None,
    dialect: Dialect | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Target:
    spelled = {name.lower(): name for name in (*columns, *hidden)}
    return Target(
        table=table,
        alias=alias or table,
        columns=columns,
        key=[spelled[name.lower()] for name in key],
        hidden=hidden,
        types={spelled[name.lower()]: text for name, text in (types or {}).items() if name.lower() in spelled},
        dialect=dialect,
        defaults=defaults or {},
    )


@dataclass(frozen=True, slots=True)
class Sql:
    """A text under construction, and where in it the target table stands."""

    text: str
    target_at: int

    def within(self, before: str, after: str = "") -> Sql:
        return Sql(before + self.text + after, self.target_at + len(before))

    def query(self) -> Query:
        query = find(self.text)
        refs = tuple(replace(ref, target=ref.start == self.target_at) for ref in query.refs)
        return replace(query, refs=refs)


def comma(items: Iterable[str]) -> str:
    return ",\n  ".join(items)


def as_column(expression: str, name: str) -> str:
    return f"{expression} AS {quote(name)}"


def moves(table: Target, assigned: Iterable[str]) -> bool:
    """Whether assigning these columns can change a row's key."""
    return not set(table.key).isdisjoint(assigned)


def resolved(table: Target, changes: Sql, *, may_move: bool) -> Sql:
    """From old and new values to the output: a row whose key changes becomes two.

    `changes` has `_ebla_old<i>` and `_ebla_new<i>` for each stored column, and `_ebla_kind`, which is
    `update`, `delete` (new values are the old ones) or `insert`. No shuffle.
    """
    if not may_move:
        output = [as_column(f"`_ebla_new{i}`", name) for i, name in enumerate(table.stored)]
        output.append(as_column("IF(`_ebla_kind` = 'update', 'upsert', `_ebla_kind`)", KIND))
        return changes.within(f"SELECT {comma(output)}\nFROM (\n", "\n)")
    places = [table.stored.index(name) for name in table.key]
    same_key = " AND ".join(f"`_ebla_new{i}` <=> `_ebla_old{i}`" for i in places)
    kinds = (
        f"CASE WHEN `_ebla_kind` <> 'update' THEN array(`_ebla_kind`) "
        f"WHEN {same_key} THEN array('upsert') ELSE array('delete', 'insert') END"
    )
    output = [
        as_column(f"IF(`{KIND}` = 'delete', `_ebla_old{i}`, `_ebla_new{i}`)", name)
        for i, name in enumerate(table.stored)
    ]
    return changes.within(
        f"SELECT {comma([*output, f'`{KIND}`'])}\nFROM (\nSELECT *, explode({kinds}) AS `{KIND}` FROM (\n",
        "\n)\n)",
    )


MARK = "EBLA:"
"""How a message begins that a job stops with on purpose; `ebla.spark.write` looks for it."""

_ALIASES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float"}
_EXACT_NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal")
_BINARY_FRACTIONS = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")
_WHOLE = "void|tinyint|smallint|int|bigint"
_FRACTION = "float|double|decimal.*"


def checked(value: str, type_text: str, what: str, depth: int = 0) -> str:
    """`value` (a column or a field: it is named several times) as `type_text`, or an error that names the column.

    A plain CAST would cut 8.5 to 8 and read '7' as a number. The text has to work for a value whose type is not known
    here; `typeof` is a constant to Spark, so that what does not apply is gone from the plan. Only binary fractions
    round: a decimal stored as a double, a double stored as a float.
    """
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
