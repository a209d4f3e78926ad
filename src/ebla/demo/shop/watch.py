"""What is seen of the views from outside: SHOW VIEWS, looked at a few times a second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

TRAIL = 24
"""How many ages of a view are kept to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """One row of SHOW VIEWS. Columns are taken by name, so that there may be more of them, or not yet all."""

    name: str
    status: str
    applied_version: int | None = None
    behind: int | None = None
    age_s: float | None = None
    last_plan: str | None = None
    last_epoch_s: float | None = None
    rows: int | None = None
    message: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ViewRow:
        return cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """An epoch that was noticed because the view had moved."""

    at_s: float
    view: str
    plan: str
    seconds: float
    version: int
    versions: int
    """How many versions of the warehouse it brought into the view."""


@dataclass(slots=True)
class Watch:
    """Remembers what was seen. Epochs lie a second apart, so looking four times a second misses none."""

    views: list[ViewRow] = field(default_factory=list)
    epochs: list[EpochRow] = field(default_factory=list)
    ages: dict[str, list[float]] = field(default_factory=dict)
    trails: dict[str, deque[float]] = field(default_factory=dict)
    _applied: dict[str, int] = field(default_factory=dict)

    def look(self, at_s: float, rows: Sequence[Mapping[str, Any]], writing_s: float | None = None) -> None:
        """Take in what SHOW VIEWS says at a time; the first write was `writing_s` ago, or at time 0.

        A view's age counts from the version that it shows, even if nothing was written since; no view is staler than
        the time since the first write.
        """
        stalest_s = at_s if writing_s is None else writing_s
        seen = [ViewRow.of(row) for row in rows]
        self.views = [v if v.age_s is None else replace(v, age_s=min(v.age_s, stalest_s)) for v in seen]
        for view in self.views:
            if view.age_s is not None:
                self.ages.setdefault(view.name, []).append(view.age_s)
                self.trails.setdefault(view.name, deque(maxlen=TRAIL)).append(view.age_s)
            self._notice(at_s, view)

    def _notice(self, at_s: float, view: ViewRow) -> None:
        if view.applied_version is None:
            return
        before = self._applied.get(view.name)
        self._applied[view.name] = view.applied_version
        if before is not None and view.applied_version > before:
            self.epochs.append(
                EpochRow(
                    at_s=at_s,
                    view=view.name,
                    plan=view.last_plan or "",
                    seconds=view.last_epoch_s or 0.0,
                    version=view.applied_version,
                    versions=view.applied_version - before,
                )
            )

    def seconds_of(self, view: str, plan: str = "incremental") -> list[float]:
        """How long a view's epochs of one kind took."""
        return [epoch.seconds for epoch in self.epochs if epoch.view == view and epoch.plan == plan]

    @property
    def failed(self) -> list[ViewRow]:
        return [view for view in self.views if view.status == "failed"]


def percentile(values: Sequence[float], part: float) -> float | None:
    """The value that this part of the values does not exceed, nearest rank; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
