"""Figures of a steady load: what was held, and what grew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import Result
from bench.steady.second import Second

WARM_SHARE = 0.1
"""The first part of a run, which warms it and is not counted."""
GROWTH_FROM_S = 600
GROWTH_MAX = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    rows_per_s: float
    visible_p50_s: float
    visible_p99_s: float | None
    query_p50_ms: float | None
    query_p99_ms: float | None


SMALL = Bars(rows_per_s=1000, visible_p50_s=1, visible_p99_s=3, query_p50_ms=20, query_p99_ms=100)
LARGE = Bars(rows_per_s=5000, visible_p50_s=2, visible_p99_s=None, query_p50_ms=None, query_p99_ms=None)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies; without values, none is small enough."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf


def results(seconds: Sequence[Second], bars: Bars) -> list[Result]:
    counted = [s for s in seconds if s.at >= WARM_SHARE * seconds[-1].at]
    span = counted[-1].at - counted[0].at
    rate = sum(s.rows for s in counted[1:]) / span
    visible = [v for s in counted for v in s.visible_s]
    queries = [1e3 * q for s in counted for q in s.query_s]
    commits = sum(s.commits for s in counted[1:]) / span
    found = [
        Result(
            work="steady load: rows per second",
            figure=rate,
            bar=0.99 * bars.rows_per_s,
            unit="rows/s",
            detail=f"{commits:.1f} commits/s for {span:.0f} s; {counted[-1].late_s:.1f} s late at the end",
            at_least=True,
        ),
        _quantile("commit to visible, p50", visible, 0.5, bars.visible_p50_s, "s"),
        _quantile("commit to visible, p99", visible, 0.99, bars.visible_p99_s, "s"),
        _quantile("first-100 query, p50", queries, 0.5, bars.query_p50_ms, "ms"),
        _quantile("first-100 query, p99", queries, 0.99, bars.query_p99_ms, "ms"),
    ]
    return [one for one in found if one is not None] + _growth(seconds)


def _quantile(work: str, values: Sequence[float], share: float, bar: float | None, unit: str) -> Result | None:
    if bar is None:
        return None
    detail = f"of {len(values)}; the longest {max(values, default=math.inf):.1f} {unit}"
    return Result(work=f"steady load: {work}", figure=quantile(values, share), bar=bar, unit=unit, detail=detail)


def _growth(seconds: Sequence[Second]) -> list[Result]:
    """What memory grew by after the first ten minutes; nothing for shorter runs."""
    late = [s for s in seconds if s.at >= GROWTH_FROM_S]
    if len(late) < 120:
        return []
    found = []
    for name, of in (("Python", "python_mib"), ("the JVM", "jvm_mib")):
        first = quantile([getattr(s, of) for s in late[:60]], 0.5)
        last = quantile([getattr(s, of) for s in late[-60:]], 0.5)
        found.append(
            Result(
                work=f"steady load: memory of {name} after the first ten minutes",
                figure=last / first,
                bar=GROWTH_MAX,
                unit="×",
                detail=f"{first:.0f} MiB to {last:.0f} MiB in {(late[-1].at - late[0].at) / 60:.0f} minutes",
            )
        )
    return found
