"""Which row groups of a path can hold rows of a request: chosen by statistics, before any row is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ebla.base.ids import TabletId
from ebla.model.relation import DELETED, SPANS_TABLETS, Column, Run
from ebla.predicates import filters as fl
from ebla.predicates import values as v
from ebla.query.overlay import IS_DELETED, Division, Source, division
from ebla.query.plan import Extent, FittedPath
from ebla.query.run_keys import Spans
from ebla.storage.store import Footer, tokens_of
from ebla.values import token as tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedGroups:
    """Row groups of a run, in reading order, that can hold rows of an interval."""

    run: Run
    interval: int
    groups: tuple[int, ...]
    footer: Footer
    spans: Spans
    """Of all its row groups."""


class Selection:
    """The row groups of one path of one snapshot, for one request."""

    def __init__(self, source: Source, fitted: FittedPath) -> None:
        self._source = source
        self._fitted = fitted
        path = fitted.path
        self._relation = path.relation
        columns = {c.physical: c for c in path.relation.columns}
        self.here: dict[str, Column] = {base: columns[name] for base, name in path.columns.items()}
        """Columns by their names in the asked relation."""
        self.key = [columns[column.path] for column in path.key]
        self.identity = [columns[column.path] for column in path.identity]
        self.directions = fitted.directions()
        self.selected: list[SelectedGroups] = []
        """The row groups of level 1."""

    @cached_property
    def division(self) -> Division:
        return division(self._source, self._fitted.path)

    def extent(self, is_enough: Callable[[Extent], bool] | None = None) -> Extent:
        """Choose row groups by statistics. Opens footers only. What is known so far may be enough to go no further."""
        level1 = self._source.snapshot.level1
        tablets = self.tablets()
        groups = groups_read = rows = 0
        division = self.division

        def so_far() -> Extent:
            return Extent(
                runs=len(level1),
                runs_read=len({one.run.id for one in self.selected}),
                groups=groups,
                groups_read=groups_read,
                rows=rows,
                level0_runs=len(self._source.snapshot.level0),
                level0_rows=division.level0_rows,
                level0_files=len(division.files),
            )

        for run in level1:
            found = self.select(run, tablets)
            if found is None:
                continue
            self.selected += found
            footer = self._source.store.footer(self._source.roots, run)
            groups += len(footer.rows)
            for g in {g for one in found for g in one.groups}:
                groups_read += 1
                rows += footer.rows[g]
            if is_enough is not None and is_enough(so_far()):
                break
        return so_far()

    def select(self, run: Run, tablets: Sequence[TabletId] | None) -> list[SelectedGroups] | None:
        """The row groups of a run that can hold rows; `None` if the run lies in none of the intervals' tablets."""
        intervals = enumerate(self._fitted.intervals)
        wanted = [(n, one) for n, one in intervals if tablets is None or run.tablet in (tablets[n], SPANS_TABLETS)]
        if not wanted:
            return None
        footer = self._source.store.footer(self._source.roots, run)
        spans = footer.spans(list(zip(self.key, self.directions, strict=True)))
        allowed = list(range(len(footer.rows)))
        if run.tombstones or self._fitted.filters:
            allowed = [group for group in allowed if self._passes(footer, group)]
        if self._fitted.backwards:
            allowed.reverse()
        found = [(n, tuple(g for g in allowed if interval.may_hold(*spans[g]))) for n, interval in wanted]
        return [
            SelectedGroups(run=run, interval=n, groups=groups, footer=footer, spans=spans)
            for n, groups in found
            if groups
        ]

    def tablets(self) -> list[TabletId] | None:
        """The tablet of each interval, if each is one whole key."""
        intervals = self._fitted.intervals
        if self._fitted.fixed < len(self.key) or not intervals:
            return None
        rows = [[_value(rank) for rank in interval.high.ranks[: len(self.key)]] for interval in intervals]
        order = {c.physical: n for n, c in enumerate(self.key)}
        places = [order[c.physical] for c in self.identity]
        found = tokens_of(self._relation, [[row[p] for p in places] for row in rows])
        return [TabletId(t) for t in tokens.tablets_of(found, self._relation.tablets).tolist()]

    def _passes(self, footer: Footer, group: int) -> bool:
        if footer.place.get(DELETED) is not None and footer.bounds(IS_DELETED)[group][0] == v.rank(True):
            return False  # tombstones alone
        return all(fl.may_hold(f, *footer.bounds(self.here[f.column.physical])[group]) for f in self._fitted.filters)


def _value(rank: Any) -> Any:
    plain = rank.rank if isinstance(rank, v.Desc) else rank
    return None if plain == v.NULL else float("nan") if plain == v.NAN else plain[1]
