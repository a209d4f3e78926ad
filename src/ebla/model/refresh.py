"""A refresh: how far a view has taken in a change of its dictionaries, and at which versions each part of it stands.

Theory of operation. A change of a dictionary may touch a large part of a view. A *refresh* takes it in chunk by chunk,
in the order of the token of some columns of the view's key, the *cut*. Behind the position the view's rows are those of
its query with the dictionaries at the new versions (`to`), beyond it with the old ones; all other inputs are at one and
the same version in both parts. So for a view that shows the rows of a query Q, with position p:

    view = { r in Q(streams at s, dictionaries at `to`)   : token(r) <= p }
         + { r in Q(streams at s, dictionaries as `read`) : token(r) >  p }

A chunk moves p, and nothing else. An epoch moves s, and computes each part at its own versions of the dictionaries. An
epoch that brings the dictionaries elsewhere (`FLUSH`) computes each part from where it stands, and ends the refresh.
Rows and state move in one commit, so the equation holds at every version, and a process that is killed leaves a
position at which any other goes on.

A row must not lie on one side before and on the other side after the dictionaries have changed: it would be seen twice,
or not at all, while p is between. So the cut consists of columns whose values no dictionary decides
(`ebla.relations.cut`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from ebla.base.ids import Version

TOKEN_MIN, TOKEN_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """The state of a refresh, as the view's position keeps it."""

    to: Mapping[str, int]
    """The versions to which dictionaries are brought; where they come from is what the position has read."""
    by: tuple[str, ...]
    """The cut: columns of the view whose token gives the order."""
    up_to: int | None = None
    """The token up to which it has come; `None`: it has begun with nothing yet."""
    rows: int = 0
    """Rows of the view that were computed again."""
    values: int = 0
    """Values of the cut that they have."""
    expected: int = 0
    """Values of the cut that the change touches, as counted when it began."""
    started_us: int = 0
    rows_per_minute: int | None = None
    """`ALTER … SET`: in the place of the handler's rate; 0: paused."""
    chunk_rows: int | None = None
    """`ALTER … SET`: in the place of the handler's."""
    on_hold: bool = False
    """`PAUSE`: no chunk until `RESUME`."""
    cancelled: bool = False
    """`CANCEL`: no chunk until `RESUME`, or until a dictionary changes again."""

    def value(self) -> dict[str, Any]:
        """Without limits that were not set and marks that do not hold."""
        found = {one.name: getattr(self, one.name) for one in fields(self)} | {"to": dict(self.to)}
        return {name: v for name, v in found.items() if name == "up_to" or (v is not None and v is not False)}

    @property
    def paused(self) -> bool:
        return self.on_hold or self.cancelled or self.rows_per_minute == 0

    @property
    def rows_expected(self) -> int:
        """Rows in all, about: values may have several rows each, or none."""
        counted = round(self.expected * self.rows_per_value)
        return max(self.rows, counted) if self.values < self.expected else self.rows + self.rows_left

    @property
    def rows_left(self) -> int:
        """Rows yet to come, about; at least one."""
        return max(1, round(self.values_left * self.rows_per_value))

    @property
    def values_left(self) -> int:
        """Values of the cut yet to come, about; at least one.

        Streams may have added values since they were counted. Once there were more than expected, those behind the
        position tell how many lie beyond it: tokens are spread evenly.
        """
        counted = self.expected - self.values
        if counted > 0 or self.up_to is None:
            return max(1, counted)
        return max(1, round(self.values * (1.0 - self.share) / self.share))

    @property
    def rows_per_value(self) -> float:
        return self.rows / self.values if self.rows and self.values else 1.0

    @property
    def share(self) -> float:
        """How much of the tokens lies behind the position."""
        return 0.0 if self.up_to is None else (self.up_to - TOKEN_MIN + 1) / 2**64

    def spans(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The tokens behind the position and those beyond it, first and last."""
        if self.up_to is None:
            return [], [(TOKEN_MIN, TOKEN_MAX)]
        return [(TOKEN_MIN, self.up_to)], [(self.up_to + 1, TOKEN_MAX)]

    def advanced(self, up_to: int, rows: int, values: int) -> Refresh:
        """Behind a chunk. One that was cancelled and goes on is not cancelled."""
        return replace(self, up_to=up_to, rows=self.rows + rows, values=self.values + values, cancelled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMove:
    """A range of tokens, the versions at which the view's rows there are, and those to which they are brought."""

    first: int
    last: int
    before: Mapping[str, Version]
    now: Mapping[str, Version]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """What an epoch does to a view with a refresh: its moves, and what the view has read behind it."""

    moves: tuple[RangeMove, ...]
    read: Mapping[str, Version]
    refresh: Refresh | None


def moved(
    read: Mapping[str, int], refresh: Refresh, target: Mapping[str, Version], chunk: int | None = None
) -> RefreshOutcome:
    """The moves of an epoch to the target's versions, which name every input.

    The refresh stays if the target leaves its dictionaries where they are; else it ends, and everything is at the
    target. `chunk`: the token up to which the refresh comes with this epoch.
    """
    old = {name: Version(read[name]) for name in target}
    new = {**old, **{name: Version(v) for name, v in refresh.to.items()}}
    behind = TOKEN_MIN - 1 if refresh.up_to is None else refresh.up_to
    if any(target[name] != old[name] for name in refresh.to):
        moves = [_Span(TOKEN_MIN, behind, new, target), _Span(behind + 1, TOKEN_MAX, old, target)]
        return RefreshOutcome(moves=_moves(moves), read=target, refresh=None)
    ahead = {**target, **{name: Version(v) for name, v in refresh.to.items()}}
    end = behind if chunk is None else chunk
    assert behind <= end <= TOKEN_MAX, "a chunk goes on where the refresh is"
    moves = [
        _Span(TOKEN_MIN, behind, new, ahead),
        _Span(behind + 1, end, old, ahead),
        _Span(end + 1, TOKEN_MAX, old, target),
    ]
    if end == TOKEN_MAX:
        return RefreshOutcome(moves=_moves(moves), read=ahead, refresh=None)
    return RefreshOutcome(
        moves=_moves(moves), read=target, refresh=refresh if chunk is None else replace(refresh, up_to=end)
    )


class _Span(NamedTuple):
    first: int
    last: int
    before: Mapping[str, Version]
    now: Mapping[str, Version]


def _moves(spans: Sequence[_Span]) -> tuple[RangeMove, ...]:
    """Without those that are empty, and those in which nothing moves."""
    return tuple(
        RangeMove(first=one.first, last=one.last, before=one.before, now=one.now)
        for one in spans
        if one.first <= one.last and one.before != one.now
    )


def ahead(read: Mapping[str, int], refresh: Refresh, target: Mapping[str, Version]) -> RangeMove:
    """What a refresh has yet to do, with all other inputs at the target: where the view has read them, if it can be."""
    return RangeMove(
        first=TOKEN_MIN if refresh.up_to is None else refresh.up_to + 1,
        last=TOKEN_MAX,
        before={n: Version(read[n]) for n in target},
        now={**target, **{n: Version(v) for n, v in refresh.to.items()}},
    )
