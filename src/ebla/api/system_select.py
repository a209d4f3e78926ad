"""A query over system tables alone, in DuckDB's SQL: they are asked most when Spark is ill.

sqlglot parses the text and names the source of every column. What follows is a list of what both engines understand
in the same way, over the few types that system tables have. At the first thing that is not on it (`Unlike`) the query
is left to Spark, and so is what DuckDB refuses at run time, such as an overflow.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from ebla.sql.query import Query
from ebla.sql.refs import rewrite


class Unlike(Exception):
    """Something that the engines may understand differently, or that was never compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedQuery:
    """SQL over tables `leaf_0`, `leaf_1`, …, one for each mention of a table; and the names of its columns in order.

    Timestamps are taken for those of UTC and have no zone in them.
    """

    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    """As Spark gives them; `interval` is a length of time."""


D = exp.DataType.Type
_KINDS = {
    **dict.fromkeys((D.BIGINT, D.INT, D.SMALLINT, D.TINYINT), "integer"),
    **dict.fromkeys((D.DOUBLE, D.FLOAT), "double"),
    **dict.fromkeys((D.TEXT, D.VARCHAR), "string"),
    **dict.fromkeys((D.TIMESTAMP, D.TIMESTAMPTZ, D.TIMESTAMPLTZ), "timestamp"),
    D.BOOLEAN: "boolean",
    D.DATE: "date",
    D.INTERVAL: "interval",
    D.NULL: "null",
}
_NUMBERS = ("integer", "double")
_ANYTHING: tuple[type[exp.Expr], ...] = (
    exp.Alias, exp.And, exp.Boolean, exp.CTE, exp.Column, exp.Count, exp.CountIf, exp.Distinct, exp.Except, exp.Exists,
    exp.Filter, exp.From, exp.Group, exp.Having, exp.Identifier, exp.Intersect, exp.Is, exp.Join, exp.Limit,
    exp.Literal, exp.Max, exp.Min, exp.Not, exp.Null, exp.Offset, exp.Or, exp.Order, exp.Ordered, exp.Paren,
    exp.Select, exp.Star, exp.Subquery, exp.Table, exp.TableAlias, exp.Tuple, exp.Union, exp.Var, exp.Where,
    exp.Window, exp.With, exp.Lag, exp.Lead,
)  # fmt: skip
"""What means the same, whatever it is applied to."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between)
_OF_STRINGS = (exp.Lower, exp.Upper, exp.StartsWith, exp.Contains, exp.Like, exp.Concat, exp.DPipe)
_AS_INT = (exp.Length, exp.RowNumber, exp.Rank, exp.DenseRank)
"""DuckDB answers with a wider type."""
_UNITS = frozenset({"WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_TRUNCATED = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_ZONED = (exp.TimestampTrunc, exp.CurrentDate)
"""What depends on the session's time zone."""
_JOINS = frozenset({"", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"})


def translate(
    query: Query,
    tables: Mapping[str, Mapping[str, str]],
    parameters: Mapping[str, object],
    now: dt.datetime,
    *,
    is_utc: bool,
) -> TranslatedQuery:
    """The query for DuckDB, or `Unlike`. `tables` are the types of columns, by the names of tables in lower case."""
    if "\\" in query.text:
        raise Unlike("a backslash, which the engines read in different ways")
    try:
        schema = MappingSchema(
            {f"leaf_{number}": dict(tables[ref.name.lower()]) for number, ref in enumerate(query.refs)}, dialect="spark"
        )
        tree = _qualified(query, schema).transform(lambda node: _bound(node, parameters, now, is_utc=is_utc))
        tree = annotate_types(tree, schema=schema, dialect="spark")
        names = _names(query, tree)
    except (SqlglotError, RecursionError) as error:
        raise Unlike(str(error)) from error
    for node in tree.walk():
        _require_alike(node, is_utc=is_utc)
    types = tuple(_type(one) for one in _selects(tree))
    return TranslatedQuery(sql=tree.transform(_for_duckdb).sql(dialect="duckdb"), names=names, types=types)


def _qualified(query: Query, schema: MappingSchema) -> exp.Expr:
    """The query as a tree in which every column names its source, and every mention of a table is one of its own."""
    numbers = {(ref.start, ref.end): f"leaf_{number}" for number, ref in enumerate(query.refs)}
    parsed = sqlglot.parse_one(rewrite(query, lambda ref: numbers[ref.start, ref.end]), dialect="spark")
    return qualify(parsed, schema=schema, dialect="spark", identify=False, validate_qualify_columns=True)


# ---- values that the text does not hold -----------------------------------------------------------------


def _bound(node: exp.Expr, parameters: Mapping[str, object], now: dt.datetime, *, is_utc: bool) -> exp.Expr:
    if isinstance(node, exp.Placeholder):
        if node.name not in parameters:
            raise Unlike(f"no value for :{node.name}")
        return _literal(parameters[node.name])
    if isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and node.name.upper() == "NOW"):
        return _timestamp(now)
    if isinstance(node, exp.CurrentDate) and is_utc:
        return exp.cast(exp.Literal.string(now.date().isoformat()), "date")
    return node


def _literal(value: object) -> exp.Expr:
    match value:
        case None:
            return exp.null()
        case bool():
            return exp.true() if value else exp.false()
        case int() if abs(value) < 2**31:
            return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
        case str() if "\\" not in value:
            return exp.Literal.string(value)
        case dt.datetime() if value.tzinfo is not None:
            return _timestamp(value)
        case _:
            raise Unlike(f"a parameter of type {type(value).__name__}")


def _timestamp(at: dt.datetime) -> exp.Expr:
    return exp.cast(exp.Literal.string(at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")), "timestamp")


# ---- what is alike --------------------------------------------------------------------------------------


def _kind(node: exp.Expr | None) -> str:
    while isinstance(node, exp.Paren | exp.Alias):
        node = node.this
    if isinstance(node, exp.Sub) and _kind(node.left) == _kind(node.right) == "timestamp":
        return "interval"
    if isinstance(node, exp.TimestampTrunc):
        return "timestamp"
    found = None if node is None or node.type is None else _KINDS.get(node.type.this)
    if found is None:
        raise Unlike(f"the type of {'' if node is None else node.sql(dialect='spark')}")
    return found


def _type(node: exp.Expr) -> str:
    kind = _kind(node)
    if kind == "integer":
        inner = node.unalias()
        widths = [inner.args["true"], inner.args.get("false")] if isinstance(inner, exp.If) else [inner]
        return "bigint" if any(one is not None and one.is_type(D.BIGINT) for one in widths) else "int"
    if kind == "null":
        raise Unlike("a column of NULL alone")
    return kind


def _require_alike(node: exp.Expr, *, is_utc: bool) -> None:  # noqa: C901 dispatch by match
    """Raise `Unlike` for what is not on the list."""
    if not is_utc and isinstance(node, _ZONED):
        raise Unlike("the session's time zone")
    match node:
        case exp.DataType() | exp.Interval() if isinstance(node.parent, exp.Interval | exp.Cast | exp.Add | exp.Sub):
            if isinstance(node, exp.Interval):
                _require_plain_interval(node)
        case exp.Literal() if not node.is_string and not _is_plain_number(node.name):
            raise Unlike("a decimal fraction, or a number of many digits")
        case exp.Join():
            words = {str(node.args.get(part) or "").upper() for part in ("method", "side", "kind")}
            if not words <= _JOINS or node.args.get("using"):
                raise Unlike("a kind of join")
        case exp.With() if node.args.get("recursive"):
            raise Unlike("a recursive query")
        case exp.Window() if node.args.get("spec") is not None or node.args.get("first") is not None:
            raise Unlike("the frame of a window")
        case exp.Table() if not isinstance(node.this, exp.Identifier) or node.args.get("sample"):
            raise Unlike("a table function, or a sample")
        case exp.Cast() | exp.TryCast():
            _require_exact_cast(node, is_utc=is_utc)
        case exp.TimestampTrunc():
            _one_kind(node.this, only=("timestamp",))
            if node.unit is None or node.unit.name.upper() not in _TRUNCATED:
                raise Unlike("a unit of time")
        case exp.Div() | exp.Mod():
            _one_kind(node.left, node.right, only=_NUMBERS)
            if not isinstance(node.right, exp.Literal) or float(node.right.name) == 0:
                raise Unlike("a division by what may be 0")
        case exp.Add() | exp.Sub():
            _require_sum(node)
        case exp.Mul():
            _one_kind(node.left, node.right, only=_NUMBERS)
        case exp.Neg() | exp.Abs() | exp.Sum() | exp.Avg():
            _one_kind(_argument(node), only=_NUMBERS)
        case exp.Case():
            results = [branch.args["true"] for branch in node.args["ifs"]]
            _one_kind(*results, node.args.get("default"))
        case exp.If():
            _one_kind(node.args["true"], node.args.get("false"))
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            _one_kind(node.this, *node.expressions)
        case exp.Nullif():
            _one_kind(node.this, node.expression)
        case _ if isinstance(node, _COMPARISONS):
            _require_comparison(node, is_utc=is_utc)
        case _ if isinstance(node, _OF_STRINGS):
            operands = [node.args.get("this"), node.args.get("expression"), *node.expressions]
            _one_kind(*[one for one in operands if one is not None], only=("string",))
        case _ if isinstance(node, _AS_INT):
            if isinstance(node, exp.Length):
                _one_kind(node.this, only=("string",))
        case _ if isinstance(node, _ANYTHING):
            pass
        case exp.DataType() | exp.DataTypeParam():
            pass
        case _:
            raise Unlike(type(node).__name__)


def _is_plain_number(text: str) -> bool:
    if re.fullmatch(r"\d+", text):
        return int(text) < 2**63
    return re.fullmatch(r"\d+[eE][+-]?\d{1,2}", text) is not None


def _argument(node: exp.Expr) -> exp.Expr:
    inner = node.this
    if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        inner = inner.expressions[0]
    assert isinstance(inner, exp.Expr)
    return inner


def _one_kind(*nodes: exp.Expr | None, only: tuple[str, ...] | None = None) -> None:
    """All are of one kind, where whole numbers and doubles are one; or NULL."""
    kinds = {_kind(node) for node in nodes if node is not None} - {"null"}
    if only is not None and not kinds <= set(only):
        raise Unlike(f"{kinds} where {only} are expected")
    if len({"number" if kind in _NUMBERS else kind for kind in kinds}) > 1:
        raise Unlike(f"values of several types: {kinds}")


def _require_plain_interval(node: exp.Interval) -> None:
    unit = "" if node.unit is None else node.unit.name.upper().rstrip("S")
    if unit not in _UNITS or not isinstance(node.this, exp.Literal) or not re.fullmatch(r"\d{1,6}", node.this.name):
        raise Unlike("an interval of a certain form")


def _require_sum(node: exp.Add | exp.Sub) -> None:
    left, right = _kind(node.left), _kind(node.right)
    if left == "timestamp" and (right == "interval" or (right == "timestamp" and isinstance(node, exp.Sub))):
        return
    if left == right == "interval":
        return
    _one_kind(node.left, node.right, only=_NUMBERS)


def _require_comparison(node: exp.Expr, *, is_utc: bool) -> None:
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        selected = node.args["query"].this if isinstance(node.args["query"], exp.Subquery) else node.args["query"]
        if len(selected.selects) != 1:
            raise Unlike("several columns of a subquery")
        _one_kind(node.this, selected.selects[0])
        return
    others = [node.args.get(part) for part in ("expression", "low", "high")]
    sides = [node.this, *[one for one in others if one is not None], *node.expressions]
    if isinstance(node.this, exp.Tuple):
        raise Unlike("a comparison of tuples")
    kinds = {_kind(side) for side in sides} - {"null"}
    texts = [side for side in sides if _kind(side) == "string"]
    if kinds == {"timestamp", "string"} and is_utc and all(_is_time(text) for text in texts):
        return
    _one_kind(*sides)


def _is_time(node: exp.Expr) -> bool:
    """Whether a text is a time that both engines read in the same way."""
    form = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?"
    return isinstance(node, exp.Literal) and re.fullmatch(form, node.name) is not None


def _require_exact_cast(node: exp.Expr, *, is_utc: bool) -> None:
    of, to = _kind(node.this), _kind(node)
    if (of, to) in {("integer", "string"), ("integer", "integer"), ("integer", "double"), ("double", "double")}:
        return
    if of == to and of in ("string", "boolean", "timestamp", "date"):
        return
    if is_utc and (of, to) == ("timestamp", "date"):
        return
    if of == "string" and to in ("timestamp", "date") and is_utc and _is_time(node.this):
        return
    raise Unlike(f"a cast of {of} to {to}")


# ---- writing --------------------------------------------------------------------------------------------


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.TryCast):  # what sqlglot takes Spark's CAST for
        node = exp.Cast(this=node.this, to=node.args["to"])
    if isinstance(node, exp.Cast) and node.to.this in (D.TIMESTAMPTZ, D.TIMESTAMPLTZ):
        return exp.Cast(this=node.this, to=exp.DataType.build("timestamp", dialect="duckdb"))
    if isinstance(node, exp.Div):
        return exp.Div(this=node.left, expression=node.right, typed=False, safe=True)
    return node


def _names(query: Query, tree: exp.Expr) -> tuple[str, ...]:
    """The names of the result's columns: as written, those of a star, and for an expression about its text."""
    plain = sqlglot.parse_one(rewrite(query, lambda ref: None), dialect="spark")
    written, made = _selects(plain), [one.alias_or_name for one in _selects(tree)]
    stars = [one for one in written if one.is_star]
    if not stars:
        return tuple(_name(one) for one in written)
    if len(stars) > 1:
        if any(name.startswith("_col_") for name in made) or plain.find(exp.Alias) is not None:
            raise Unlike("names beside several stars")
        return tuple(made)
    at, behind = written.index(stars[0]), len(written) - written.index(stars[0]) - 1
    middle = made[at : len(made) - behind]
    return (*(_name(one) for one in written[:at]), *middle, *(_name(one) for one in written[at + 1 :]))


def _selects(tree: exp.Expr) -> list[exp.Expr]:
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        raise Unlike(type(tree).__name__)
    return list(tree.expressions)


_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


def _name(node: exp.Expr) -> str:
    """What Spark calls a column that was given no name."""
    match node:
        case exp.Alias() | exp.Column() | exp.Literal():
            return str(node.alias_or_name)
        case exp.Paren():
            return _name(node.this)
        case exp.Neg():
            return f"(- {_name(node.this)})"
        case exp.Count(this=exp.Star()):
            return "count(1)"
        case exp.Distinct():
            return f"DISTINCT {', '.join(_name(one) for one in node.expressions)}"
        case exp.Sum() | exp.Avg() | exp.Min() | exp.Max() | exp.Count() | exp.Lower() | exp.Upper() | exp.Length():
            return f"{type(node).__name__.lower()}({_name(node.this)})"
        case _ if type(node) in _SIGNS:
            return f"({_name(node.this)} {_SIGNS[type(node)]} {_name(node.expression)})"
        case _:
            return node.sql(dialect="spark", normalize_functions="lower")
