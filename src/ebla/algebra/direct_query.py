"""A view's query as DuckDB computes it, where that is Spark's answer to the last digit.

Theory of operation. Starting Spark on a few thousand rows costs more than the rows do. So where the rows that an epoch
needs are all on the driver, and the query says nothing that two engines could understand differently, DuckDB computes
it. This module decides that: it compiles the qualified tree into DuckDB's SQL, knows the type that Spark gives every
expression, and gives up (`None`) at the first thing that is not on its list. The list is short on purpose:

- columns, literals, comparisons of like types, AND, OR, NOT, IN, BETWEEN, IS NULL, CASE, COALESCE, `||`;
- plus, minus and times of whole numbers and decimals under ANSI, as long as no digit can be lost;
- year, month and day of a date that is finite to DuckDB;
- inner, outer and cross joins, WHERE, GROUP BY, HAVING, DISTINCT, subqueries in FROM;
- count, sum, min and max, with DISTINCT and FILTER.

The types of the result must be those that Spark gave the view when it was created. What DuckDB refuses at run time (an
overflow, a sum that does not fit, a date that it takes for infinity) is left to Spark, whose answer or error counts.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from ebla.algebra.names import Mention, StoredColumn, Types, is_case_sensitive, qualified
from ebla.algebra.nodes import NotUnderstood
from ebla.model.relation import Column, Relation
from ebla.sql.lex import lex, quote
from ebla.sql.query import Query
from ebla.sql.refs import find

_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Whole numbers, with the digits of the decimal that Spark takes them for."""
_ORDERED = frozenset({*_INTEGERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"})
_CARRIED = _ORDERED | {"float", "double"}
"""What may be passed on. Floating numbers are neither compared nor added: the engines differ in NaN, zero and order."""
_DUCK = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
}
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_SELECT_PARTS = frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct"})
_DIGITS_MAX = 38


class _Unlike(Exception):
    """Something that the engines may compute differently, or that no test compares."""


@dataclass(frozen=True, slots=True)
class _Decimal:
    digits: int
    scale: int

    @classmethod
    def of(cls, kind: str) -> _Decimal | None:
        """The decimal that Spark takes a type for in arithmetic."""
        if kind in _INTEGERS:
            return cls(_INTEGERS[kind], 0)
        found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
        return None if found is None else cls(int(found[1]), int(found[2]))

    @property
    def text(self) -> str:
        if self.digits > _DIGITS_MAX:
            raise _Unlike(f"{self.digits} digits")
        return f"decimal({self.digits},{self.scale})"

    def common(self, other: _Decimal) -> _Decimal:
        """The type that holds the values of both."""
        scale = max(self.scale, other.scale)
        return _Decimal(max(self.digits - self.scale, other.digits - other.scale) + scale, scale)


@dataclass(frozen=True, slots=True)
class _TypedSql:
    """An expression in DuckDB's SQL, with the type that Spark gives it."""

    sql: str
    kind: str
    literal: int | None = None
    """The value of a whole number that is written in the text."""

    def as_decimal(self) -> _Decimal:
        # Spark takes a written number for the smallest decimal that holds it.
        found = _Decimal(len(str(abs(self.literal))), 0) if self.literal is not None else _Decimal.of(self.kind)
        if found is None:
            raise _Unlike(f"arithmetic of {self.kind}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectQuery:
    """SQL over tables `leaf_0`, `leaf_1`, …, one for each mention of an input in the text."""

    sql: str
    types: tuple[str, ...]
    """The types that Spark gives the columns."""


def direct(
    query: Query, inputs: Mapping[str, Types], outputs: Sequence[str], settings: Mapping[str, str]
) -> DirectQuery | None:
    """The query for DuckDB, or `None`. `outputs` are the types that Spark gives its columns."""
    found = _of_query(query, inputs, settings)
    return found if found is not None and found.types == tuple(outputs) else None


ROW = "_ebla_row"
"""The number of a row among those whose expressions are computed."""


def direct_of_rows(
    table: str,
    alias: str,
    columns: Types,
    expressions: Sequence[str],
    where: str | None,
    settings: Mapping[str, str],
) -> DirectQuery | None:
    """`ROW` and expressions of single rows of a table that has a column `ROW`, for those that fulfil a condition."""
    items = ", ".join([ROW, *(f"({text})" for text in expressions)])
    condition = "" if where is None else f" WHERE ({where})"
    query = find(f"SELECT {items} FROM {quote(table)} AS {quote(alias)}{condition}")
    if len(query.refs) != 1 or any(map(_is_of_many, [*expressions, where or ""])):
        return None
    found = _of_query(query, {table.lower(): {ROW: "bigint", **columns}}, settings)
    return found if found is not None and len(found.types) == 1 + len(expressions) else None


def _is_of_many(text: str) -> bool:
    """Whether a text may hold a subquery, or a function of more than one row, of those that DuckDB would compute."""
    keys = [token.key for token in lex(text)]
    called = {before for before, key in itertools.pairwise(keys) if key == "("}
    return bool(called & {"COUNT", "SUM", "MIN", "MAX", "AVG"}) or not {"SELECT", "OVER"}.isdisjoint(keys)


def _of_query(query: Query, inputs: Mapping[str, Types], settings: Mapping[str, str]) -> DirectQuery | None:
    return _direct(
        query,
        tuple((name, tuple(types.items())) for name, types in sorted(inputs.items())),
        settings.get("spark.sql.ansi.enabled", "").lower() == "true",
        is_case_sensitive(settings),
    )


def direct_of_relations(
    query: Query, relations: Mapping[str, Relation], columns: Sequence[Column], settings: Mapping[str, str]
) -> DirectQuery | None:
    """The same for a view's query over these relations, by name in lower case; `columns` are those that it computes."""
    inputs = {name: {col.name: col.type for col in relation.visible} for name, relation in relations.items()}
    return direct(query, inputs, [col.type for col in columns], settings)


@lru_cache(maxsize=256)
def _direct(
    query: Query,
    inputs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    ansi: bool,
    case_sensitive: bool,
) -> DirectQuery | None:
    if case_sensitive or "\\" in query.text:  # escapes are read in many ways
        return None
    try:
        found = qualified(query, {name: dict(types) for name, types in inputs})
        sql, columns = _Compiler(found.mentions, ansi=ansi).query(found.tree, top=True)
    except (_Unlike, NotUnderstood):
        return None
    return DirectQuery(sql=sql, types=tuple(kind for _, kind in columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duck(kind: str) -> str:
    if kind in _DUCK:
        return _DUCK[kind]
    if kind.startswith("decimal"):
        return kind.upper()
    raise _Unlike(f"conversion to {kind}")


def _cast(one: _TypedSql, kind: str) -> str:
    return one.sql if one.kind == kind and one.literal is None else f"CAST({one.sql} AS {_duck(kind)})"


Columns = Mapping[str, StoredColumn]
"""By folded name. DuckDB is asked for a column by the name that the rows have: it folds other letters than Spark."""


class _Compiler:
    def __init__(self, mentions: Mapping[str, Mention], *, ansi: bool) -> None:
        self._mentions = mentions
        self._ansi = ansi

    # ---- queries ----------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, *, top: bool = False) -> tuple[str, list[tuple[str, str]]]:
        if isinstance(tree, exp.Subquery):
            _only(tree, {"this", "alias"})
            return self.query(tree.this)
        if not isinstance(tree, exp.Select):
            raise _Unlike(tree.key)
        _only(tree, _SELECT_PARTS)
        scope: dict[str, Columns] = {}
        from_ = tree.args.get("from_")
        if from_ is None:
            raise _Unlike("no FROM")
        parts = [self._source(from_.this, scope)]
        parts += [self._join(join, scope) for join in [*(from_.this.args.get("joins") or []), *_list(tree, "joins")]]
        text = "FROM " + " ".join(parts)
        where = tree.args.get("where")
        if where is not None:
            text += f" WHERE {self._boolean(where.this, scope)}"
        group = tree.args.get("group")
        if group is not None:
            _only(group, {"expressions"})
            keys = [self._key(one, scope) for one in group.expressions]
            text += f" GROUP BY {', '.join(keys)}"
        having = tree.args.get("having")
        if having is not None:
            text += f" HAVING {self._boolean(having.this, scope)}"
        items, columns = self._items(tree, scope, top=top)
        distinct = tree.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") or any(kind not in _ORDERED and not _Decimal.of(kind) for _, kind in columns):
                raise _Unlike("DISTINCT")
            items = f"DISTINCT {items}"
        return f"SELECT {items} {text}", columns

    def _items(self, tree: exp.Select, scope: Mapping[str, Columns], *, top: bool) -> tuple[str, list[tuple[str, str]]]:
        items: list[str] = []
        columns: list[tuple[str, str]] = []
        for place, item in enumerate(tree.expressions):
            one = self._expression(item.unalias(), scope)
            name = f"c{place}" if top else item.alias_or_name
            items.append(f"{_cast(one, one.kind)} AS {_quoted(name)}")
            columns.append((name, one.kind))
        if len({name for name, _ in columns}) != len(columns):
            raise _Unlike("two columns of one name")
        return ", ".join(items), columns

    def _source(self, tree: exp.Expr, scope: dict[str, Columns]) -> str:
        alias = tree.alias_or_name
        if not alias or alias in scope:
            raise _Unlike("sources without names of their own")
        if isinstance(tree, exp.Table):
            _only(tree, {"this", "alias", "joins"})
            mention = self._mentions.get(tree.name)
            if mention is None or _columns_of(tree):
                raise _Unlike(f"table {tree.name}")
            scope[alias] = mention.columns
            return f"{_quoted(tree.name)} AS {_quoted(alias)}"
        if isinstance(tree, exp.Subquery) and not _columns_of(tree):
            _only(tree, {"this", "alias", "joins"})
            sql, columns = self.query(tree.this)
            scope[alias] = {name: StoredColumn(name=name, type=kind) for name, kind in columns}
            return f"({sql}) AS {_quoted(alias)}"
        raise _Unlike(tree.key)

    def _join(self, join: exp.Join, scope: dict[str, Columns]) -> str:
        _only(join, {"this", "on", "side", "kind"})
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise _Unlike(f"{side} {kind} JOIN")
        source = self._source(join.this, scope)
        on = join.args.get("on")
        if on is None:
            if side:
                raise _Unlike(f"{side} JOIN without a condition")
            return f"CROSS JOIN {source}"
        return f"{side} JOIN {source} ON {self._boolean(on, scope)}"

    def _key(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> str:
        one = self._expression(tree, scope)
        if isinstance(tree, exp.Literal) or not (one.kind in _ORDERED or _Decimal.of(one.kind)):
            raise _Unlike("such a group")
        return one.sql

    # ---- expressions ------------------------------------------------------------------------------------

    def _boolean(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> str:
        one = self._expression(tree, scope)
        if one.kind != "boolean":
            raise _Unlike(f"a condition of {one.kind}")
        return one.sql

    def _expression(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> _TypedSql:  # noqa: C901 dispatch by match
        match tree:
            case exp.Paren():
                return self._expression(tree.this, scope)
            case exp.Column():
                return _column(tree, scope)
            case exp.Literal():
                return _literal(tree)
            case exp.Boolean():
                return _TypedSql("TRUE" if tree.this else "FALSE", "boolean")
            case exp.Neg() if isinstance(tree.this, exp.Literal):
                return _negative(_literal(tree.this))
            case exp.Cast() if isinstance(tree.this, exp.Literal) and tree.this.is_string:
                return _date(tree)
            case exp.And() | exp.Or():
                word = tree.key.upper()
                return _TypedSql(
                    f"({self._boolean(tree.this, scope)} {word} {self._boolean(tree.expression, scope)})", "boolean"
                )
            case exp.Not():
                return _TypedSql(f"(NOT {self._boolean(tree.this, scope)})", "boolean")
            case exp.Is() if isinstance(tree.expression, exp.Null):
                return _TypedSql(f"({self._expression(tree.this, scope).sql} IS NULL)", "boolean")
            case exp.In():
                return self._in(tree, scope)
            case exp.Between():
                _only(tree, {"this", "low", "high"})
                one, low, high = (self._expression(tree.args[n], scope) for n in ("this", "low", "high"))
                return _TypedSql(f"({_compared(one, '>=', low)} AND {_compared(one, '<=', high)})", "boolean")
            case exp.Case() | exp.If() | exp.Coalesce():
                return self._choice(tree, scope)
            case exp.DPipe():
                left, right = self._expression(tree.this, scope), self._expression(tree.expression, scope)
                if (left.kind, right.kind) != ("string", "string"):
                    raise _Unlike("|| of other types")
                return _TypedSql(f"({left.sql} || {right.sql})", "string")
            case exp.Year() | exp.Month() | exp.Day():
                return self._part(tree, scope)
            case exp.Filter() | exp.Count() | exp.Sum() | exp.Min() | exp.Max():
                return self._aggregate(tree, scope)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._arithmetic(tree, scope)
            case _ if type(tree) in _COMPARISONS:
                left, right = self._expression(tree.this, scope), self._expression(tree.expression, scope)
                return _TypedSql(f"({_compared(left, _COMPARISONS[type(tree)], right)})", "boolean")
            case _:
                raise _Unlike(tree.key)

    def _in(self, tree: exp.In, scope: Mapping[str, Columns]) -> _TypedSql:
        _only(tree, {"this", "expressions"})
        one = self._expression(tree.this, scope)
        each = [self._expression(item, scope) for item in tree.expressions]
        if not each:
            raise _Unlike("IN of nothing")
        if any(item.kind != one.kind and not {item.kind, one.kind} <= _INTEGERS.keys() for item in each):
            raise _Unlike("IN of other types")  # Spark finds one type for all of them
        return _TypedSql("(" + " OR ".join(_compared(one, "=", item) for item in each) + ")", "boolean")

    def _choice(self, tree: exp.Case | exp.If | exp.Coalesce, scope: Mapping[str, Columns]) -> _TypedSql:
        if isinstance(tree, exp.Coalesce):
            parts = [self._expression(item, scope) for item in (tree.this, *tree.expressions)]
            sql = f"COALESCE({', '.join(p.sql for p in parts)})"
        else:
            whens, default = (
                (tree.args["ifs"], tree.args.get("default"))
                if isinstance(tree, exp.Case)
                else ([tree], tree.args.get("false"))
            )
            if isinstance(tree, exp.Case) and tree.this is not None:
                raise _Unlike("CASE of a value")
            chosen = [(self._boolean(w.this, scope), self._expression(w.args["true"], scope)) for w in whens]
            parts = [value for _, value in chosen]
            sql = "CASE " + " ".join(f"WHEN {condition} THEN {value.sql}" for condition, value in chosen)
            if default is not None:
                parts.append(self._expression(default, scope))
                sql += f" ELSE {parts[-1].sql}"
            sql += " END"
        kinds = {p.kind for p in parts}
        if len(kinds) != 1:
            raise _Unlike("branches of several types")
        kind = kinds.pop()
        return _TypedSql(f"CAST({sql} AS {_duck(kind)})" if kind in _DUCK or _Decimal.of(kind) else sql, kind)

    def _part(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> _TypedSql:
        # Spark's parts of a date may be wrapped in a conversion that does nothing to a date.
        inner = tree.this
        while isinstance(inner, exp.TsOrDsToDate | exp.Paren):
            inner = inner.this
        one = self._expression(inner, scope)
        if one.kind != "date":
            raise _Unlike(f"{tree.key} of {one.kind}")
        # DuckDB takes the last day of all, and the second one, for infinities that have no year. It refuses to read a
        # number in the word for them, and Spark computes the rows.
        part = f"CASE WHEN isinf({one.sql}) THEN CAST(CAST({one.sql} AS VARCHAR) AS INTEGER) ELSE {{}} END"
        return _TypedSql(f"CAST({part.format(f'{tree.key}({one.sql})')} AS INTEGER)", "int")

    def _arithmetic(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> _TypedSql:
        if not self._ansi:
            raise _Unlike("arithmetic that overflows in silence")
        left, right = self._expression(tree.this, scope), self._expression(tree.expression, scope)
        sign = {"add": "+", "sub": "-", "mul": "*"}[tree.key]
        if {left.kind, right.kind} <= _INTEGERS.keys():
            kind = max(left.kind, right.kind, key=lambda k: _INTEGERS[k])
            return _TypedSql(f"CAST({_cast(left, kind)} {sign} {_cast(right, kind)} AS {_duck(kind)})", kind)
        a, b = left.as_decimal(), right.as_decimal()
        if isinstance(tree, exp.Mul):
            made = _Decimal(a.digits + b.digits + 1, a.scale + b.scale).text
            return _TypedSql(f"CAST({_cast(left, a.text)} * {_cast(right, b.text)} AS {_duck(made)})", made)
        both = a.common(b)
        made = _Decimal(both.digits + 1, both.scale).text
        return _TypedSql(f"CAST({_cast(left, made)} {sign} {_cast(right, made)} AS {_duck(made)})", made)

    def _aggregate(self, tree: exp.Expr, scope: Mapping[str, Columns]) -> _TypedSql:
        filtered = ""
        if isinstance(tree, exp.Filter):
            filtered = f" FILTER (WHERE {self._boolean(tree.expression.this, scope)})"
            tree = tree.this
        if isinstance(tree, exp.Count):
            _only(tree, {"this", "big_int"})
            if isinstance(tree.this, exp.Star):
                return _TypedSql(f"count(*){filtered}", "bigint")
        else:
            _only(tree, {"this"})
        inner, distinct = tree.this, ""
        if isinstance(inner, exp.Distinct):
            _only(inner, {"expressions"})
            if len(inner.expressions) != 1:
                raise _Unlike("DISTINCT of several columns")
            inner, distinct = inner.expressions[0], "DISTINCT "
        if inner.find(exp.AggFunc) is not None:
            raise _Unlike("an aggregate of an aggregate")
        one = self._expression(inner, scope)
        decimal = _Decimal.of(one.kind)
        if one.kind not in _ORDERED and decimal is None and not (isinstance(tree, exp.Count) and not distinct):
            raise _Unlike(f"{tree.key} of {one.kind}")
        call = f"{tree.key}({distinct}{_cast(one, one.kind)}){filtered}"
        if isinstance(tree, exp.Count):
            return _TypedSql(call, "bigint")
        if isinstance(tree, exp.Min | exp.Max):
            return _TypedSql(call, one.kind)
        if decimal is None:
            raise _Unlike(f"sum of {one.kind}")
        kind = (
            "bigint" if one.kind in _INTEGERS else _Decimal(min(decimal.digits + 10, _DIGITS_MAX), decimal.scale).text
        )
        return _TypedSql(f"CAST({call} AS {_duck(kind)})", kind)


# ---- leaves of expressions ------------------------------------------------------------------------------


def _only(tree: exp.Expr, parts: frozenset[str] | set[str]) -> None:
    """Refuse what is not known: every argument that says anything must be among these."""
    for name, value in tree.args.items():
        if name not in parts and value not in (None, False, [], ""):
            raise _Unlike(f"{tree.key} with {name}")


def _list(tree: exp.Expr, name: str) -> list[exp.Expr]:
    found = tree.args.get(name)
    return list(found) if isinstance(found, list) else []


def _columns_of(tree: exp.Expr) -> bool:
    alias = tree.args.get("alias")
    return alias is not None and bool(alias.args.get("columns"))


def _column(tree: exp.Column, scope: Mapping[str, Columns]) -> _TypedSql:
    found = scope.get(tree.table, {}).get(tree.name)
    if found is None or not (found.type in _CARRIED or _Decimal.of(found.type)):
        raise _Unlike(f"column {tree.name} of {None if found is None else found.type}")
    return _TypedSql(f"{_quoted(tree.table)}.{_quoted(found.name)}", found.type.replace(" ", ""))


def _literal(tree: exp.Literal) -> _TypedSql:
    text = str(tree.this)
    if tree.is_string:
        return _TypedSql("'" + text.replace("'", "''") + "'", "string")
    if text.isdecimal() and text.isascii():
        value = int(text)
        if value >= 2**63:
            raise _Unlike("a large number")
        return _TypedSql(text, "int" if value < 2**31 else "bigint", value)
    found = re.fullmatch(r"(\d*)\.(\d*)", text)
    if found is None or not text.strip("."):
        raise _Unlike(f"number {text}")
    whole, part = found[1].lstrip("0"), found[2]
    kind = _Decimal(max(len(whole) + len(part), 1), len(part)).text
    return _TypedSql(f"CAST('{text}' AS {_duck(kind)})", kind)


def _negative(one: _TypedSql) -> _TypedSql:
    if one.kind == "string" or one.literal == 0:
        raise _Unlike("minus")
    if one.literal == 2**31:  # DuckDB takes what is negated for a BIGINT
        return _TypedSql(f"CAST(-{one.sql} AS INTEGER)", "int", -one.literal)
    if one.literal is not None:
        return _TypedSql(f"(-{one.sql})", one.kind, -one.literal)
    return _TypedSql(f"(-{one.sql})", one.kind)


def _date(tree: exp.Cast) -> _TypedSql:
    text = str(tree.this.this)
    if tree.to.this is not exp.DataType.Type.DATE or not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise _Unlike("a conversion")
    try:
        datetime.date.fromisoformat(text)
    except ValueError as error:
        raise _Unlike("no date") from error
    return _TypedSql(f"DATE '{text}'", "date")


def _compared(left: _TypedSql, sign: str, right: _TypedSql) -> str:
    """Comparison of like types: equal ones, whole numbers, or decimals that one decimal holds."""
    if left.kind == right.kind and left.kind in _ORDERED:
        return f"{left.sql} {sign} {right.sql}"
    a, b = _Decimal.of(left.kind), _Decimal.of(right.kind)
    if a is None or b is None:
        raise _Unlike(f"comparison of {left.kind} with {right.kind}")
    if {left.kind, right.kind} <= _INTEGERS.keys():
        return f"CAST({left.sql} AS BIGINT) {sign} CAST({right.sql} AS BIGINT)"
    kind = _duck(a.common(b).text)
    return f"CAST({left.sql} AS {kind}) {sign} CAST({right.sql} AS {kind})"
