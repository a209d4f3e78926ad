"""SELECTs that ask for first rows, recognized with certainty; every other query is Spark's.

    SELECT * | column [AS name], … FROM relation [[AS] alias]
    [WHERE condition AND …] [ORDER BY column [ASC|DESC], …] LIMIT n

A condition compares a column with a literal or a parameter of its own type, or with a string that says a value of it:
`=`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `LIKE 'text%'`, `IS [NOT] NULL`. What could mean something else to Spark, by
a setting of its session or by a cast, is not taken: names that are spelled otherwise than declared, strings with a
backslash, comparisons across types. A query that names the whole key needs no LIMIT.

Any other condition is kept as text. A partial index with the same text, word for word, has only rows that fulfil it, so
the query can be answered through that index, and by nothing else but Spark.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ebla.errors import EblaError
from ebla.model.relation import Column, Relation
from ebla.predicates import conditions as c
from ebla.predicates import values as v
from ebla.predicates.conjuncts import bare, condition_ends
from ebla.sql.cursor import Cursor, words
from ebla.sql.lex import Kind, StatementText, lex, unquote_name, unquote_string
from ebla.values import texts, types

if TYPE_CHECKING:
    from ebla.sql.query import Query

# Words that are no plain column or alias where one is expected.
_NOT_NAMES = words(
    "ALL ANTI ANY AND AS ASC BETWEEN BOTH BY CASE CAST CROSS CLUSTER COLLATE DESC DISTINCT DISTRIBUTE ELSE END EXCEPT "
    "EXISTS FALSE FETCH FOR FROM FULL GROUP HAVING IN INNER INTERSECT INTERVAL INTO IS JOIN LATERAL LEADING LEFT LIKE "
    "LIMIT MINUS NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER PIVOT QUALIFY RIGHT ROW ROWS SELECT SEMI SETMINUS "
    "SOME SORT STREAM STRUCT TABLE TABLESAMPLE THEN TO TRAILING TRUE UNION UNIQUE UNPIVOT USING VALUES WHEN WHERE "
    "WINDOW WITH"
)
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_OPERATORS = {"=": "=", "==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


_COMPARISONS = frozenset({*_OPERATORS, "<=>", "<>", "!=", *words("IS BETWEEN LIKE IN NOT AND OR ORDER LIMIT")})
_JOINING = words("AND OR NOT IS NULL LIKE IN BETWEEN")
_ORDER_ENDS = frozenset({",", *words("ASC DESC NULLS LIMIT")})


class NotSimple(Exception):
    """The query is for Spark; the message says why, where that is worth saying."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as written, and whether it was a parameter."""

    value: Any
    kind: str
    """number, string, date, boolean, or parameter"""


@dataclass(frozen=True, slots=True)
class Comparison:
    column: str
    operator: str
    """One of = < <= > >= between in like null not null."""
    values: tuple[Literal, ...] = ()
    text: str = ""
    """The whole condition, normalized."""


@dataclass(frozen=True, slots=True)
class PlainCondition:
    """A condition that compares no column with a literal, normalized."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVocabulary:
    """What indexes of a relation have besides its columns, in the words of a session with these settings."""

    expressions: Mapping[str, Column] = field(default_factory=dict)
    """Columns of expressions, by their normalized text."""
    promises: frozenset[str] = frozenset()
    """Normalized conditions of partial indexes that only Spark understands."""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query of the shape, with names as written; nothing is looked up yet."""

    relation: str
    outputs: tuple[tuple[str, str], ...] | None
    """Columns and the names that they get; `None` for all."""
    where: tuple[Comparison | PlainCondition, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None


def recognize(query: Query, parameters: Mapping[str, object]) -> Select | None:
    """The query as a request for first rows; `None` if it is any other, or may be."""
    if len(query.refs) != 1 or any(character in query.text for character in '"\\$'):
        return None
    ref = query.refs[0]
    if len(ref.parts) != 1 or ref.version is not None or ref.timestamp is not None or ref.select or ref.target:
        return None
    try:
        return _Parser(Cursor(StatementText(text=query.text)), parameters).select()
    except (NotSimple, EblaError):
        return None


class _Parser:
    def __init__(self, cursor: Cursor, parameters: Mapping[str, object]) -> None:
        self._cursor = cursor
        self._parameters = parameters
        self._alias: str | None = None

    def select(self) -> Select:
        cursor = self._cursor
        self._need("SELECT")
        outputs = None if cursor.accept("*") else self._outputs()
        self._need("FROM")
        relation = self._name()
        self._alias = relation
        if cursor.accept("AS") or (cursor.sees_name() and cursor.peek().key not in ("WHERE", "ORDER", "LIMIT")):
            self._alias = self._name()
        where = self._where() if cursor.accept("WHERE") else ()
        order = self._order() if cursor.accept("ORDER", "BY") else ()
        limit = self._limit() if cursor.accept("LIMIT") else None
        if cursor.peek().kind is not Kind.END:
            raise NotSimple
        names = None if outputs is None else tuple((self._bare(name), name_as) for name, name_as in outputs)
        return Select(
            relation=relation,
            outputs=names,
            where=tuple(self._of_relation(one) for one in where),
            order=tuple((self._bare(name), down) for name, down in order),
            limit=limit,
        )

    def _need(self, key: str) -> None:
        if not self._cursor.accept(key):
            raise NotSimple

    def _name(self) -> str:
        token = self._cursor.peek()
        if token.kind is Kind.QUOTED:
            name = unquote_name(token.text)
            if "." in name or name.startswith(EXPRESSION):
                raise NotSimple
        elif token.kind is Kind.WORD and token.key not in _NOT_NAMES and not token.text[0].isdigit():
            name = token.text
        else:
            raise NotSimple
        self._cursor.at += 1
        return name

    def _column(self) -> str:
        """A column as written, with the relation's name or alias before it if it was given."""
        first = self._name()
        return f"{first}.{self._name()}" if self._cursor.accept(".") else first

    def _bare(self, name: str) -> str:
        if name.startswith(EXPRESSION):
            self._refuse_qualified(name)
            return name
        qualifier, dot, column = name.rpartition(".")
        if dot and qualifier != self._alias:
            raise NotSimple
        return column

    def _of_relation(self, one: Comparison | PlainCondition) -> Comparison | PlainCondition:
        if isinstance(one, Comparison):
            return replace(one, column=self._bare(one.column))
        self._refuse_qualified(one.text)
        return one

    def _refuse_qualified(self, text: str) -> None:
        """In an expression, a name before a dot could be the relation's, or that of a column."""
        assert self._alias is not None
        parts = text.removeprefix(EXPRESSION).lower().split(" ")
        if any(name.strip("`") == self._alias.lower() and dot == "." for name, dot in itertools.pairwise(parts)):
            raise NotSimple

    def _outputs(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        while True:
            column = self._column()
            name = self._name() if self._cursor.accept("AS") else column.rpartition(".")[2]
            found.append((column, name))
            if not self._cursor.accept(","):
                break
        if len({name.lower() for _, name in found}) < len(found):
            raise NotSimple
        return tuple(found)

    def _where(self) -> tuple[Comparison | PlainCondition, ...]:
        """The conditions that AND joins. Where OR stands outside all parentheses, all of it is one."""
        ends = condition_ends(self._cursor)
        found = [self._condition(ends[0])]
        for end in ends[1:]:
            self._need("AND")
            found.append(self._condition(end))
        return tuple(found)

    def _condition(self, end: int) -> Comparison | PlainCondition:
        cursor, first = self._cursor, self._cursor.at
        try:
            compared = self._compared()
            if cursor.at == end:
                return replace(compared, text=said(cursor.text(first)))
        except NotSimple:
            pass
        if end == first:
            raise NotSimple
        cursor.at = end
        return PlainCondition(said(cursor.text(first)))

    def whole_condition(self) -> tuple[Comparison | PlainCondition, ...]:
        """The text is a condition and nothing else, of columns without a qualifier."""
        found = self._where()
        if self._cursor.peek().kind is not Kind.END:
            raise NotSimple
        return found

    def _term(self, ends: frozenset[str]) -> str:
        """A column, or an expression up to one of these words or operators outside all parentheses."""
        cursor, first, depth = self._cursor, self._cursor.at, 0
        while cursor.peek().kind is not Kind.END and (depth or cursor.peek().key not in ends):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(cursor.peek().key, 0)
            if depth < 0:
                raise NotSimple
            cursor.at += 1
        end, cursor.at = cursor.at, first
        if end - first in (1, 3):
            try:
                column = self._column()
                if cursor.at == end:
                    return column
            except NotSimple:
                pass
        if end == first:
            raise NotSimple
        cursor.at = end
        return normalized(cursor.text(first))

    def _compared(self) -> Comparison:
        cursor = self._cursor
        column = self._term(_COMPARISONS)
        key = cursor.peek().key
        if key in _OPERATORS:
            cursor.at += 1
            return Comparison(column, _OPERATORS[key], (self._literal(),))
        if cursor.accept("IS", "NULL"):
            return Comparison(column, "null")
        if cursor.accept("IS", "NOT", "NULL"):
            return Comparison(column, "not null")
        if cursor.accept("BETWEEN"):
            low = self._literal()
            self._need("AND")
            return Comparison(column, "between", (low, self._literal()))
        if cursor.accept("LIKE"):
            return Comparison(column, "like", (self._literal(),))
        if cursor.accept("IN", "("):
            values = [self._literal()]
            while cursor.accept(","):
                values.append(self._literal())
            self._need(")")
            return Comparison(column, "in", tuple(values))
        raise NotSimple

    def _literal(self) -> Literal:
        cursor = self._cursor
        token = cursor.next()
        if token.kind is Kind.STRING and token.text[0] == "'" and cursor.peek().kind is not Kind.STRING:
            return Literal(unquote_string(token.text), "string")
        if token.key == "-" and cursor.peek().kind is Kind.NUMBER:
            number = self._literal()
            return Literal(-number.value, "number")
        if token.kind is Kind.NUMBER and _PLAIN_NUMBER.match(token.text):
            return Literal(Decimal(token.text) if "." in token.text else int(token.text), "number")
        if token.kind is Kind.WORD and token.key in ("TRUE", "FALSE"):
            return Literal(token.key == "TRUE", "boolean")
        if token.kind is Kind.WORD and token.key == "DATE" and cursor.peek().kind is Kind.STRING:
            return Literal(_date(unquote_string(cursor.next().text)), "date")
        if token.key == ":" and cursor.peek().kind is Kind.WORD and cursor.peek().text in self._parameters:
            return Literal(self._parameters[cursor.next().text], "parameter")
        raise NotSimple

    def _order(self) -> tuple[tuple[str, bool], ...]:
        found: list[tuple[str, bool]] = []
        while True:
            column = self._term(_ORDER_ENDS)
            down = self._cursor.accept("DESC")
            if not down:
                self._cursor.accept("ASC")
            if self._cursor.accept("NULLS") and not self._cursor.accept("LAST" if down else "FIRST"):
                raise NotSimple
            found.append((column, down))
            if not self._cursor.accept(","):
                return tuple(found)

    def _limit(self) -> int:
        found = self._literal().value
        if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= c.LIMIT_MAX:
            raise NotSimple
        return found


def conditions_of(text: str, relation: Relation) -> tuple[c.Filter, ...] | None:
    """A condition as comparisons of the relation's columns with literals; `None` if it is, or may be, anything else."""
    if any(character in text for character in '"\\$'):
        return None
    try:
        parser = _Parser(Cursor(StatementText(text=text)), {})
        return tuple(_plain_filter(relation, one) for one in parser.whole_condition())
    except (NotSimple, EblaError):
        return None


def promises_of(text: str, relation: Relation) -> tuple[tuple[c.Filter, ...], frozenset[str]]:
    """A condition as comparisons of the relation's columns with literals, and as normalized text what is none.

    What could be one and means something else to Spark, by a setting of its session, stays as it is written.
    """
    try:
        conditions = _Parser(Cursor(StatementText(text=text)), {}).whole_condition()
    except (NotSimple, EblaError):
        return (), frozenset({said(text)})
    filters, texts = [], set()
    for one in conditions:
        try:
            filters.append(_plain_filter(relation, one))
        except (NotSimple, EblaError):
            texts.add(one.text)
    return tuple(filters), frozenset(texts)


def _plain_filter(relation: Relation, one: Comparison | PlainCondition) -> c.Filter:
    if isinstance(one, PlainCondition) or any(character in one.text for character in '"\\$'):
        raise NotSimple
    return _filter(relation, _plain_column(relation, one.column), one)


def _plain_column(relation: Relation, name: str) -> Column:
    found = next((column for column in relation.visible if column.name == name), None)
    if found is None:
        raise NotSimple
    return found


EXPRESSION = "="
"""What the name of a column that is an expression begins with; no column's own name does in a query's text."""


def normalized(text: str) -> str:
    """An expression such that two spellings of it are equal.

    One space is between tokens, words of calls are in lower case, words that join conditions in upper case. Names stay
    as they are: whether another spelling is the same name depends on the session.
    """
    tokens = lex(StatementText(text=text))
    parts = []
    for token, after in itertools.pairwise(tokens):
        is_word = token.kind is Kind.WORD
        joins, called = is_word and token.key in _JOINING, is_word and after.key == "("
        parts.append(token.key if joins else token.text.lower() if called else token.text)
    return EXPRESSION + " ".join(parts)


def in_words(text: str) -> str:
    """A normalized expression for people."""
    found, before = "", None
    for token in lex(StatementText(text=text.removeprefix(EXPRESSION))):
        calls = token.key == "(" and before is not None and before.kind is Kind.WORD and before.key not in _JOINING
        opens = before is None or before.key in ("(", "[", ".")
        found += ("" if opens or calls or token.key in (")", "]", ",", ".", "[") else " ") + token.text
        before = token
    return found.rstrip()


def said(text: str) -> str:
    """A condition, normalized, without parentheses around all of it."""
    inner = bare(text)
    return normalized(inner) if inner else ""


# ---- the relation ---------------------------------------------------------------------------------------


def bound(
    select: Select, relation: Relation, spoken: IndexVocabulary | None = None, zone: str | None = None
) -> c.Request:
    """The request, if it is certain to mean what Spark would make of the query; raises NotSimple if it is not.

    `spoken` is what indexes of the relation have besides its columns; `zone` that of times without one.
    """
    try:
        return _bound(select, relation, spoken or IndexVocabulary(), zone)
    except EblaError as error:
        raise NotSimple(str(error)) from error


def _bound(select: Select, relation: Relation, spoken: IndexVocabulary, zone: str | None) -> c.Request:
    columns = {**{column.name: column for column in relation.visible}, **spoken.expressions}

    def column_of(name: str) -> Column:
        if name not in columns:  # another spelling is another name in a case-sensitive session
            what = "an expression that no index has in this session" if name.startswith(EXPRESSION) else "no column"
            raise NotSimple(f"{in_words(name) if name.startswith(EXPRESSION) else name} is {what}")
        return columns[name]

    def filter_of(one: Comparison | PlainCondition) -> c.Filter | str:
        try:
            if isinstance(one, Comparison):
                return replace(_filter(relation, column_of(one.column), one, zone), text=one.text)
        except (NotSimple, EblaError):
            pass  # as a promise of an index it may be known all the same
        if one.text not in spoken.promises:
            raise NotSimple(
                f"{in_words(one.text)} is no comparison of a column with a literal, and no index's condition"
            )
        return one.text

    outputs = relation.visible
    if select.outputs is not None:
        # ORDER BY would see the new name of a column before the relation's own.
        if any(name_as != name and name_as.lower() in map(str.lower, columns) for name, name_as in select.outputs):
            raise NotSimple
        outputs = tuple(replace(column_of(name), name=name_as) for name, name_as in select.outputs)
    conditions = [filter_of(one) for one in select.where]
    where = tuple(one for one in conditions if isinstance(one, c.Filter))
    order: list[c.SortColumn] = []
    for name, down in select.order:
        column = column_of(name)
        if not types.is_key_type(column.type):
            raise NotSimple
        if all(by.column != column for by in order):
            order.append(c.SortColumn(column, down))
    limit = select.limit if select.limit is not None else _of_whole_key(relation, where)
    return c.Request(
        relation=relation,
        where=where,
        order=c.whole_order(relation, order) if order else (),
        asked=len(order),
        columns=outputs,
        limit=limit,
        any_order=not order,
        said=frozenset(one for one in conditions if isinstance(one, str)),
        settings=spoken.settings,
    )


def _of_whole_key(relation: Relation, where: tuple[c.Filter, ...]) -> int:
    fixed = {f.column.physical for f in where if isinstance(f.condition, c.Equals)}
    if not all(column.physical in fixed for column in relation.key):
        raise NotSimple
    return 1


def _filter(relation: Relation, column: Column, one: Comparison, zone: str | None = None) -> c.Filter:
    if one.operator in ("null", "not null"):
        return c.Filter(column, c.IsNull() if one.operator == "null" else c.NotNull())
    values = [_value(literal, column, zone) for literal in one.values]
    match one.operator:
        case "=":
            made: c.Condition = c.Equals(values[0])
        case "<" | "<=":
            made = c.Range(None, values[0], high_in=one.operator == "<=")
        case ">" | ">=":
            made = c.Range(values[0], None, low_in=one.operator == ">=")
        case "between":
            made = c.Range(values[0], values[1])
        case "in":
            made = c.OneOf(tuple(values))
        case _:
            made = c.Prefix(_prefix(values[0]))
    return c.checked(relation, column, made)


def _prefix(pattern: object) -> str:
    if not isinstance(pattern, str) or not pattern.endswith("%") or any(mark in pattern[:-1] for mark in "%_\\"):
        raise NotSimple
    return pattern[:-1]


def _value(literal: Literal, column: Column, zone: str | None) -> object:
    """A literal that Spark compares with the column without changing the column's values.

    A string is the value of the column's type that it says, with the session's zone if that is known.
    """
    value, kind = literal.value, column.type.partition("(")[0]
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "boolean" if isinstance(value, bool):
            return value
        case _ if kind in _WHOLE and is_whole and -(2**63) <= value < 2**63:
            return value
        case "decimal" if is_whole or (isinstance(value, Decimal) and value.is_finite()):
            return value  # one with more digits than the column has is refused when it is checked
        case "double" if _exactly(value, is_whole, "<d"):
            return float(value)
        case "float" if _exactly(value, is_whole, "<f"):
            return float(value)
        case "string" if isinstance(value, str):
            return value
        case _ if isinstance(value, str) and zone is not None and types.is_key_type(column.type):
            return v.from_text(value, column, "", texts.TextFormat(zone=zone, binary="utf-8"))
        case "date" if literal.kind == "string" and isinstance(value, str):
            return _date(value)
        case "date" if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        case "timestamp" if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return value
        case _:
            raise NotSimple


def _exactly(value: object, is_whole: bool, layout: str) -> bool:
    """Whether a number is the same in the column's binary fractions, whichever way it gets there."""
    if not (is_whole or isinstance(value, float | Decimal)):
        return False
    if isinstance(value, Decimal) and layout == "<d" and _is_short(value):
        return True  # one correctly rounded division, here and in Java
    try:
        found = struct.unpack(layout, struct.pack(layout, value))[0]
        return bool(found == value) and math.isfinite(found)
    except (OverflowError, struct.error, ValueError):
        return False


def _is_short(value: Decimal) -> bool:
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and -22 <= exponent <= 0 and len(digits) <= 15


def _date(text: str) -> dt.date:
    if not _DATE.match(text):
        raise NotSimple
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise NotSimple from None
