"""Expressions that are followed as columns are: computed from one row of one input, by functions on a short list.

A view that groups or joins by `year(day)` is followed by the values that changed rows give that expression. They must
be the very values that Spark gives it in the query, so the expression is written anew from what is on the list, and
Spark evaluates it under the settings that the view keeps. What is not on the list is a value without an origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ebla.algebra.names import unit_written
from ebla.algebra.nodes import Computation
from ebla.sql.lex import quote

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_COMPARED = frozenset({*_INTEGERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"})
"""Types whose values are equal in every engine if they are equal in one."""
_OF_TEXT: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Lower: ("lower", "string"),
    exp.Upper: ("upper", "string"),
    exp.Trim: ("trim", "string"),
    exp.Length: ("length", "int"),
}
_OF_TIME: Mapping[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "weekofyear",
    exp.Hour: "hour",
}
_ARITHMETIC: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%", exp.IntDiv: "div"}
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Like: "LIKE",
    exp.And: "AND",
    exp.Or: "OR",
}
_CASTS = {"bigint": "bigint", "int": "int", "date": "date", "string": "string"}
_UNITS = frozenset({"year", "yyyy", "yy", "quarter", "month", "mon", "mm", "week", "day", "dd", "hour", "minute"})
_TIMES = ("date", "timestamp", "timestamp_ntz")
_OF_ONE: frozenset[type[exp.Expr]] = frozenset({*_OF_TEXT, *_OF_TIME, exp.Paren, exp.Neg, exp.Not, exp.Boolean})
_OF_TWO: frozenset[type[exp.Expr]] = frozenset({*_ARITHMETIC, *_COMPARISONS, exp.Is, exp.Left})
_ARGUMENTS: Mapping[type[exp.Expr], frozenset[str]] = {
    **dict.fromkeys(_OF_ONE, frozenset({"this"})),
    **dict.fromkeys(_OF_TWO, frozenset({"this", "expression"})),
    exp.Column: frozenset({"this", "table"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Null: frozenset(),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Concat: frozenset({"expressions", "safe"}),
    exp.TimestampTrunc: frozenset({"this", "unit"}),
    exp.DateTrunc: frozenset({"this", "unit"}),
    exp.TsOrDsToDate: frozenset({"this", "safe"}),
}
"""All that a node may say. One that says more, such as `negate`, means something else."""

Lookup = Callable[[exp.Column], tuple[str, str] | None]
"""From a column of the tree to its stored name and type."""


class _Unlisted(Exception):
    """Something that is not on the list."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of an expression. `strict`: it is NULL where all columns are."""

    text: str
    type: str
    strict: bool


def computed(tree: exp.Expr, lookup: Lookup) -> tuple[Computation, bool] | None:
    """The expression over columns of one input, and whether it is NULL where all of them are; or `None`."""
    try:
        made = _piece(tree, lookup)
    except _Unlisted:
        return None
    if made.type not in _COMPARED:
        return None
    names = tuple(dict.fromkeys(found[0] for c in tree.find_all(exp.Column) if (found := lookup(c)) is not None))
    return Computation(text=made.text, columns=names, type=made.type), made.strict


def _piece(tree: exp.Expr, lookup: Lookup) -> _Piece:
    _refuse_unlisted(tree)
    match tree:
        case exp.Paren():
            return _piece(tree.this, lookup)
        case exp.Column():
            found = lookup(tree)
            if found is None:
                raise _Unlisted
            return _Piece(quote(found[0]), found[1], True)
        case exp.Literal() | exp.Boolean() | exp.Null():
            return _constant(tree)
        case exp.Neg():
            inner = _piece(tree.this, lookup)
            if inner.type not in _INTEGERS:
                raise _Unlisted
            return _Piece(f"(-{inner.text})", inner.type, inner.strict)
        case exp.Case() | exp.If() | exp.Coalesce():
            return _choice(tree, lookup)
        case exp.Cast():
            return _cast(tree, lookup)
        case exp.Between() | exp.Not() | exp.Is() | exp.In():
            return _Piece(f"({_condition(tree, lookup)})", "boolean", False)
        case _ if type(tree) in _COMPARISONS:
            sides = [_piece(part, lookup).text for part in (tree.this, tree.expression)]
            return _Piece(f"({sides[0]} {_COMPARISONS[type(tree)]} {sides[1]})", "boolean", False)
        case _ if type(tree) in _ARITHMETIC:
            return _arithmetic(tree, lookup)
        case _:
            return _function(tree, lookup)


def _refuse_unlisted(tree: exp.Expr) -> None:
    said = {name for name, value in tree.args.items() if value not in (None, False, [], "")}
    if type(tree) not in _ARGUMENTS or not said <= _ARGUMENTS[type(tree)]:
        raise _Unlisted


def _condition(tree: exp.Between | exp.Not | exp.Is | exp.In, lookup: Lookup) -> str:
    one = _piece(tree.this, lookup).text
    match tree:
        case exp.Between():
            low, high = (_piece(tree.args[name], lookup).text for name in ("low", "high"))
            return f"{one} BETWEEN {low} AND {high}"
        case exp.In() if tree.expressions:
            return f"{one} IN ({', '.join(_piece(part, lookup).text for part in tree.expressions)})"
        case exp.Is() if isinstance(tree.expression, exp.Null):
            return f"{one} IS NULL"
        case exp.Not():
            return f"NOT {one}"
        case _:
            raise _Unlisted


def _function(tree: exp.Expr, lookup: Lookup) -> _Piece:
    match tree:
        case exp.Substring():
            given = [tree.args[name] for name in ("start", "length") if tree.args.get(name)]
            return _call("substring", [tree.this, *given], lookup)
        case exp.Left():
            return _call("left", [tree.this, tree.expression], lookup)
        case exp.DPipe() | exp.Concat() if tree.args.get("safe"):  # two strings side by side are no call of a function
            parts = [tree.this, tree.expression] if isinstance(tree, exp.DPipe) else tree.expressions
            if any(_piece(part, lookup).type != "string" for part in parts):
                raise _Unlisted
            return _call("concat", parts, lookup)
        case exp.TimestampTrunc():
            return _truncated("date_trunc({unit}, {of})", tree, "timestamp", lookup)
        case exp.DateTrunc():
            return _truncated("trunc({of}, {unit})", tree, "date", lookup)
        case exp.TsOrDsToDate():
            return _of_time("to_date", tree.this, "date", lookup)
        case _ if type(tree) in _OF_TEXT:
            name, kind = _OF_TEXT[type(tree)]
            made = _call(name, [tree.this], lookup)
            return _Piece(made.text, kind, made.strict)
        case _ if type(tree) in _OF_TIME:
            return _of_time(_OF_TIME[type(tree)], tree.this, "int", lookup)
        case _:
            raise _Unlisted


def _call(name: str, arguments: Sequence[exp.Expr], lookup: Lookup) -> _Piece:
    """A function that gives a string of a string, and NULL of a NULL."""
    parts = [_piece(argument, lookup) for argument in arguments]
    if parts[0].type != "string":
        raise _Unlisted
    return _Piece(f"{name}({', '.join(part.text for part in parts)})", "string", any(part.strict for part in parts))


def _of_time(name: str, tree: exp.Expr, kind: str, lookup: Lookup) -> _Piece:
    if isinstance(tree, exp.TsOrDsToDate) and name != "hour":
        # sqlglot wraps what Spark takes for a date in a conversion, which changes no date and no day of a time.
        _refuse_unlisted(tree)
        tree = tree.this
    inner = _piece(tree, lookup)
    if inner.type not in _TIMES:
        raise _Unlisted
    return _Piece(f"{name}({inner.text})", kind, inner.strict)


def _truncated(form: str, tree: exp.Expr, kind: str, lookup: Lookup) -> _Piece:
    unit, inner = unit_written(tree), _piece(tree.this, lookup)
    if unit is None or unit.lower() not in _UNITS or inner.type not in _TIMES[: 1 if kind == "date" else 2]:
        raise _Unlisted
    return _Piece(form.format(unit=f"'{unit}'", of=inner.text), kind, inner.strict)


def _constant(tree: exp.Expr) -> _Piece:
    if isinstance(tree, exp.Boolean):
        return _Piece("TRUE" if tree.this else "FALSE", "boolean", False)
    if isinstance(tree, exp.Null):
        return _Piece("NULL", "void", False)
    text = str(tree.this)
    if tree.is_string:
        if not re.fullmatch(r"[^'\\]*", text):
            raise _Unlisted
        return _Piece(f"'{text}'", "string", False)
    if re.fullmatch(r"\d+", text):
        return _Piece(text, "int" if int(text) < 2**31 else "bigint", False)
    if re.fullmatch(r"\d+\.\d+", text):
        return _Piece(text, "decimal", False)
    raise _Unlisted


def _cast(tree: exp.Cast, lookup: Lookup) -> _Piece:
    kind = _CASTS.get(tree.to.sql("spark").lower())
    if kind is None:
        raise _Unlisted
    inner = _piece(tree.this, lookup)
    return _Piece(f"{'TRY_CAST' if tree.args.get('safe') else 'CAST'}({inner.text} AS {kind})", kind, inner.strict)


def _arithmetic(tree: exp.Expr, lookup: Lookup) -> _Piece:
    left, right = _piece(tree.this, lookup), _piece(tree.expression, lookup)
    if not {left.type, right.type} <= set(_INTEGERS):
        raise _Unlisted
    kind = "bigint" if isinstance(tree, exp.IntDiv) else max(left.type, right.type, key=_INTEGERS.index)
    return _Piece(f"({left.text} {_ARITHMETIC[type(tree)]} {right.text})", kind, left.strict or right.strict)


def _choice(tree: exp.Case | exp.If | exp.Coalesce, lookup: Lookup) -> _Piece:
    if isinstance(tree, exp.Coalesce):
        values = [_piece(part, lookup) for part in (tree.this, *tree.expressions)]
        text = f"coalesce({', '.join(part.text for part in values)})"
    else:
        whens = tree.args["ifs"] if isinstance(tree, exp.Case) else [tree]
        for when in whens:
            _refuse_unlisted(when)
        default = tree.args.get("default") if isinstance(tree, exp.Case) else tree.args.get("false")
        of = f" {_piece(tree.this, lookup).text}" if isinstance(tree, exp.Case) and tree.this is not None else ""
        values = [_piece(when.args["true"], lookup) for when in whens]
        chosen = zip(whens, values, strict=True)
        text = f"CASE{of}" + "".join(f" WHEN {_piece(w.this, lookup).text} THEN {v.text}" for w, v in chosen)
        if default is not None:
            values.append(_piece(default, lookup))
            text += f" ELSE {values[-1].text}"
        text += " END"
    kinds = {part.type for part in values} - {"void"}
    if len(kinds) != 1:
        raise _Unlisted
    return _Piece(text, kinds.pop(), False)
