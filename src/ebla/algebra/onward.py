"""Windows over all rows: how far a row looks along their order, and how a running one goes on from a row.

A window looks back alone if its frame ends at the row, or in front of it. It looks ahead by some rows if the frame ends
that many rows behind, or if it is `lead`. Any other depends on all rows.

A running window begins with the first row of all: `row_number`, `sum(x) OVER (ORDER BY t)`. If it is an output column,
what it gives for a row follows from what it gives for the row before, so that the rows in front need not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ebla.algebra.nodes import Along, Carry, NotUnderstood, Onward, Running, Value

_RANKS: Mapping[type[exp.Expr], Carry] = {
    exp.RowNumber: Carry.COUNT,
    exp.DenseRank: Carry.COUNT,
    exp.Rank: Carry.RANK,
}
_FRAMED: Mapping[type[exp.Expr], Carry | None] = {
    exp.Count: Carry.COUNT,
    exp.CountIf: Carry.COUNT,
    exp.Sum: Carry.SUM,
    exp.Min: Carry.LEAST,
    exp.Max: Carry.GREATEST,
    exp.FirstValue: Carry.FIRST,
    exp.LastValue: None,
    exp.Avg: None,
}
"""Functions of the rows of a frame."""
_CARRIED_PARTS = frozenset({"this", "expressions", "big_int"})

Plain = Callable[[exp.Expr], Value | None]
"""The value of an expression, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What one window sees."""

    ahead: int
    before: int | None
    carry: Carry | None = None


def looking_onward(
    tree: exp.Select, every: Sequence[exp.Window], named: Mapping[str, exp.Expr], plain: Plain
) -> Onward | str:
    """How the rows of a SELECT depend on each other by its windows, or why each depends on all."""
    firsts: list[Along] = []
    sights: list[_Sight] = []
    running: list[Running] = []
    places = {id(item.unalias()): place for place, item in enumerate(tree.expressions)}
    for window in every:
        parts = with_named(window, named)
        order = _order(parts, plain)
        if isinstance(order, str):
            return f"{_text(window)} {order}"
        sight = _sight(parts)
        if isinstance(sight, str):
            return f"{_text(window)} {sight}"
        place = places.get(id(window))
        if sight.carry is not None and place is not None:
            running.append(Running(place=place, carry=sight.carry, order=order))
            sight = _Sight(ahead=sight.ahead, before=0)
        firsts.append(order[0])
        sights.append(sight)
    if len(set(firsts)) > 1:
        return "windows over all rows in several orders"
    shows_all = tree.args.get("qualify") is None
    ahead = max(sight.ahead for sight in sights)
    if ahead and not shows_all:
        return "windows that look ahead, and QUALIFY"
    befores = [sight.before for sight in sights]
    return Onward(
        first=firsts[0],
        ahead=ahead,
        before=None if None in befores else max(before or 0 for before in befores),
        running=tuple(running),
        shows_all=shows_all,
    )


def with_named(window: exp.Expr, named: Mapping[str, exp.Expr]) -> list[exp.Expr]:
    """A window and those that it goes on from: `OVER w`, `OVER (w ORDER BY …)`."""
    name = window.text("alias")
    if not name:
        return [window]
    if name not in named:
        raise NotUnderstood(f"window {name}")
    return [window, *with_named(named[name], {n: w for n, w in named.items() if n != name})]


def _text(window: exp.Expr) -> str:
    """The name of its function."""
    call = window.this.this if isinstance(window.this, exp.Filter) else window.this
    return str(call.sql("spark")).partition("(")[0].lower() + " over all rows"


def _order(parts: Sequence[exp.Expr], plain: Plain) -> tuple[Along, ...] | str:
    """The columns of a window's order up to the first that is computed, or what is wrong with the first."""
    ordered = [one for part in parts if part.args.get("order") for one in part.args["order"].expressions]
    found: list[Along] = []
    for one in ordered:
        value = plain(one.this)
        if value is None:
            break
        descending, nulls_first = bool(one.args.get("desc")), bool(one.args.get("nulls_first"))
        found.append(Along(value=value, descending=descending, nulls_first=nulls_first))
    if not ordered:
        return "has no ORDER BY"
    return tuple(found) or "is ordered by what is no column of an input"


def _sight(parts: Sequence[exp.Expr]) -> _Sight | str:
    """What a window sees; `parts` are the window and those that it goes on from."""
    call = parts[0].this
    call = call.this if isinstance(call, exp.Filter) else call
    divided = any(part.args.get("partition_by") for part in parts)
    seen: _Sight | None = None
    if type(call) in _RANKS:
        seen = _Sight(ahead=0, before=None, carry=_RANKS[type(call)])
    elif isinstance(call, exp.Lag | exp.Lead):
        offset = 1 if call.args.get("offset") is None else _number(call.args["offset"])
        if offset is not None:
            is_lead = isinstance(call, exp.Lead)
            seen = _Sight(ahead=offset if is_lead else 0, before=0 if is_lead else offset)
    elif type(call) in _FRAMED:
        frames = [part.args["spec"] for part in parts if part.args.get("spec") is not None]
        seen = _framed(call, frames[0] if frames else None) if len(frames) < 2 else None
    if seen is None:
        return "sees every row"
    if not divided:
        return seen
    # Which row is some rows away in its partition, the order of all rows does not tell.
    return "looks ahead in a partition" if seen.ahead else _Sight(ahead=0, before=None)


def _framed(call: exp.Expr, frame: exp.Expr | None) -> _Sight | None:
    """What a function of the rows of a frame sees, if that ends somewhere."""
    carry = _FRAMED[type(call)]
    if any(value and name not in _CARRIED_PARTS for name, value in call.args.items()):
        carry = None
    if isinstance(call.this, exp.Distinct):
        carry = None
    if frame is None:
        return _Sight(ahead=0, before=0 if isinstance(call, exp.LastValue) else None, carry=carry)
    if frame.args.get("exclude"):
        return None
    by_rows = frame.text("kind").upper() == "ROWS"
    end, side = frame.args.get("end"), frame.args.get("end_side")
    ahead = back = 0
    if end not in (None, "CURRENT ROW"):
        number = _number(end)
        if side not in ("PRECEDING", "FOLLOWING") or number is None or (side == "FOLLOWING" and not by_rows):
            return None
        ahead, back = (number, 0) if side == "FOLLOWING" else (0, number)
    if isinstance(call, exp.LastValue):  # whatever begins the frame
        return _Sight(ahead=ahead, before=back if by_rows else None)
    start, side = frame.args.get("start"), frame.args.get("start_side")
    if start == "UNBOUNDED":
        return _Sight(ahead=ahead, before=None, carry=carry if end in (None, "CURRENT ROW") else None)
    if start == "CURRENT ROW" or (by_rows and side == "FOLLOWING"):
        return _Sight(ahead=ahead, before=0)
    return _Sight(ahead=ahead, before=_number(start) if by_rows else None)


def _number(tree: object) -> int | None:
    """A whole number that is written out and not negative."""
    if not isinstance(tree, exp.Literal) or tree.is_string:
        return None
    text = str(tree.this)
    return int(text) if text.isdecimal() and text.isascii() else None
