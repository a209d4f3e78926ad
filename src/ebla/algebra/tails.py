"""Rows of windows from a position on: how they go on from the rows in front of them, which are not computed again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.algebra.follow import NarrowedLeaf, Scope, origins
from ebla.algebra.nodes import Along, Carry, Group, Onward, Shape, leaves

_EXACT = re.compile(r"tinyint|smallint|int|bigint|decimal\(.*\)")
_ORDERED = re.compile(rf"{_EXACT.pattern}|string|date|timestamp|timestamp_ntz")
"""Types whose values all engines order alike. Sums of floating numbers depend on how they are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A column of the output in an order."""

    column: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        usual = self.nulls_first != self.descending
        nulls = "" if usual else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return self.column + (" DESC" if self.descending else "") + nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningColumn:
    """A column of the output that goes on from the row before."""

    column: str
    carry: Carry
    order: tuple[Course, ...]
    """The first columns of its window's order, as far as they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Rows from a position on, made of the inputs' rows from there on and of the view's own rows in front of them."""

    before: int
    """Of how many rows in front of it a row is made, beside what running columns carry."""
    running: tuple[RunningColumn, ...]
    narrowed: tuple[NarrowedLeaf, ...]
    """How rows with some values of the order's first column are computed. The view tells which values there are."""
    whole: tuple[str, ...]

    def is_exact(self, course: Course, types: Mapping[str, str], *, ansi: bool) -> bool:
        """Whether columns of these types go on to the last digit, with Spark's errors or without."""
        return _ORDERED.fullmatch(types[course.column]) is not None and all(
            _goes_on(one, types, ansi=ansi) for one in self.running
        )


def continuation(
    shape: Shape, windows: Group, narrowed: Sequence[NarrowedLeaf], whole: Sequence[str]
) -> Continuation | None:
    """How rows go on, if the rows of the inputs that are read by some values make all rows below that have them, and
    no others: those would be counted."""
    onward = windows.onward
    assert isinstance(onward, Onward), "windows in one order"
    value = onward.first.value
    sources = origins(windows.child, value)
    if onward.before is None or sources is None:
        return None
    numbers = [leaf.number for leaf in leaves(windows.child)]
    for source, column in sources:
        by = [(one.by, one.source) for one in narrowed if one.leaf == source.number]
        if numbers.count(source.number) > 1 or by != [((column,), Scope(width=1))]:
            return None
    running: list[RunningColumn] = []
    for one in onward.running:
        parts = itertools.takewhile(lambda found: found is not None, (course_of(shape, part) for part in one.order))
        order = tuple(part for part in parts if part is not None)
        running.append(RunningColumn(column=shape.outputs[one.place][0], carry=one.carry, order=order))
    return Continuation(before=onward.before, running=tuple(running), narrowed=tuple(narrowed), whole=tuple(whole))


def course_of(shape: Shape, along: Along) -> Course | None:
    """The output column that shows what a window is ordered by."""
    column = next((name for name, output in shape.outputs if output == along.value), None)
    if column is None:
        return None
    return Course(column=column, descending=along.descending, nulls_first=along.nulls_first)


def _goes_on(one: RunningColumn, types: Mapping[str, str], *, ansi: bool) -> bool:
    match one.carry:
        case Carry.COUNT | Carry.RANK:
            return True
        case Carry.SUM:  # without ANSI, a sum that does not fit is NULL, or wraps
            ordered = all(_ORDERED.fullmatch(types[part.column]) for part in one.order)
            return ansi and ordered and _EXACT.fullmatch(types[one.column]) is not None
        case Carry.LEAST | Carry.GREATEST | Carry.FIRST:
            return _ORDERED.fullmatch(types[one.column]) is not None
