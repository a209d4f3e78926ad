"""Strings that a query compares with values of another type: each is the value that it says, or an error at its place.

Spark casts such a string in its own way: `day = '2024'` means the first of January, `day = '2024-01-05 13:45'` forgets
the time, and a decimal is compared as a double. So the analysed plan is asked which strings are compared with what. One
that says no value of that type is refused; one that Spark would compare in another type becomes a value in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebla.errors import EblaError, TypeMismatchError
from ebla.sql import literals
from ebla.sql.lex import Kind, StatementText, lex, unquote_string
from ebla.values import texts, types
from ebla.values.grammar import Type, Unfit, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPARISONS = frozenset({"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
                          "GreaterThanOrEqual", "In"})  # fmt: skip
_COMPARED_OTHERWISE = ("decimal", "float")
"""Types that Spark compares with a string as doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StringComparison:
    """A string, the type of what it is compared with, and where it stands in the text, if that is known."""

    text: str
    tree: Type
    start: int | None
    end: int | None


def exact(frame: DataFrame, text: str, zone: str, users: StatementText) -> str | None:
    """The query's text with values for strings where Spark needs them; `None` if it is right as it is.

    `users` is the statement as the user wrote it, for the place in an error.
    """
    strings = {unquote_string(token.text) for token in lex(text) if token.kind is Kind.STRING}
    if not strings:
        return None
    plan = frame._jdf.queryExecution().analyzed()
    # One call shows whether Spark casts any of them; to look at every expression takes thousands.
    drawn = str(plan.treeString(True, False, 2**31 - 1, False, False))
    if not any(f"cast({one} as " in drawn for one in strings):
        return None
    changes: list[tuple[int, int, str]] = []
    for one in _in_plan(plan):
        try:
            value = texts.value(one.text, one.tree, texts.TextFormat(zone=zone, binary="utf-8"))
        except Unfit as why:
            raise _refused(one, why, text, users) from None
        if one.tree.kind in _COMPARED_OTHERWISE and one.start is not None and one.end is not None:
            written = text[one.start : one.end]
            if written[:1] in ("'", '"', "r", "R") and _has_strings(written):
                changes.append((one.start, one.end, literals.sql_of(value, one.tree)))
    return _replaced(text, changes) if changes else None


def _refused(one: StringComparison, why: Unfit, text: str, users: StatementText) -> TypeMismatchError:
    written = repr(one.text) if one.start is None else text[one.start : one.end]
    at, place = users.text.find(written), ""
    if at >= 0:
        line, column = users.place(at)
        place = f" (line {line}, column {column})"
    return TypeMismatchError(f"expected {one.tree} to compare with, found {written} ({why}){place}")


def _has_strings(text: str) -> bool:
    return any(token.kind is Kind.STRING for token in lex(text))


def _replaced(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    for start, end, made in sorted(set(changes), reverse=True):
        text = text[:start] + made + text[end:]
    return text


# ---- the plan -------------------------------------------------------------------------------------------


def _in_plan(plan: Any) -> Iterator[StringComparison]:
    if plan.getClass().getSimpleName() == "View":
        return  # what a name stands for is no part of the query
    for expression in _each(plan.expressions()):
        yield from _in_expression(expression)
    for child in _each(plan.children()):
        yield from _in_plan(child)


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _in_expression(expression: Any) -> Iterator[StringComparison]:
    children = list(_each(expression.children()))
    if _is_subquery(expression):
        yield from _in_plan(expression.plan())
    if expression.getClass().getSimpleName() in _COMPARISONS:
        yield from _compared(children)
    for child in children:
        yield from _in_expression(child)


def _is_subquery(expression: Any) -> bool:
    return expression.getClass().getSimpleName() in ("Exists", "ScalarSubquery", "ListQuery", "LateralSubquery")


def _compared(operands: Sequence[Any]) -> Iterator[StringComparison]:
    strings = {number: found for number, one in enumerate(operands) if (found := _string(one)) is not None}
    others = [_type(one) for number, one in enumerate(operands) if number not in strings]
    types = [tree for tree in others if tree is not None]
    if not strings or not types or any(tree != types[0] for tree in types):
        return
    tree = types[0]
    if tree.parts or tree.kind == "string":
        return
    for literal in strings.values():
        origin = literal.origin()
        start, stop = origin.startIndex(), origin.stopIndex()
        placed = start.isDefined() and stop.isDefined()
        yield StringComparison(
            text=literal.value().toString(),
            tree=tree,
            start=int(start.get()) if placed else None,
            end=int(stop.get()) + 1 if placed else None,
        )


def _string(expression: Any) -> Any | None:
    """The string literal that an operand is, under a cast that Spark added."""
    found = _uncast(expression)
    if found.getClass().getSimpleName() != "Literal" or found.value() is None:
        return None
    return found if found.dataType().simpleString() == "string" else None


def _type(expression: Any) -> Type | None:
    """The type that an operand has of its own."""
    try:
        return parse(types.canonical(_uncast(expression).dataType().simpleString()))
    except EblaError:
        return None


def _uncast(expression: Any) -> Any:
    """An operand without casts that Spark added; those that the user wrote carry a tag."""
    while (
        expression.getClass().getSimpleName() == "Cast"
        and not expression.getTagValue(expression.USER_SPECIFIED_CAST()).isDefined()
    ):
        expression = expression.child()
    return expression
