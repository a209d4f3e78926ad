"""How far a build is, in words and numbers.

Theory of operation. Every phase reports, including those in which no row moves: what is waited for is said. The
percentage never falls, and is 100 exactly when the view or index can be read. Up to 99 goes by rows read (by tablets,
where the number of rows is not known); the rest belongs to catching up and checking, which end when they end. A view
that takes in a change of dictionaries can be read, and is at 100 again when it has taken in all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Phase(StrEnum):
    WAITING = "waiting"
    SCANNING = "scanning"
    CATCHING_UP = "catching up"
    VALIDATING = "validating"
    READABLE = "readable"
    FAILED = "failed"
    REFRESHING = "refreshing"
    """The view can be read, and takes in a change of dictionaries chunk by chunk."""


PERCENT_SCANNED = 99.0
"""What a full scan counts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFigures:
    """What is known about a build at a moment."""

    now_us: int
    tablets: int = 0
    tablets_covered: int = 0
    rows_read: int = 0
    rows_expected: int | None = None
    """An estimate, which may be too low: rows come while the build runs."""
    applied: bool = False
    """Whether epochs have reached every chunk."""
    built: bool = False
    started_us: int | None = None
    """When the first chunk began."""
    waiting_for: str | None = None
    """Such as `transaction 17 of machine:4711` or `the build of another table`."""
    failed: str | None = None
    """Why it cannot be built as things are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    phase: Phase
    percent: float
    rows: int
    tablets: str
    rows_per_s: float | None
    eta_s: float | None
    detail: str | None


def phase(m: BuildFigures) -> Phase:
    if m.built:
        return Phase.READABLE
    if m.failed is not None:
        return Phase.FAILED
    if m.waiting_for is not None:
        return Phase.WAITING
    if m.tablets_covered < m.tablets:
        return Phase.SCANNING if m.started_us is not None else Phase.WAITING
    return Phase.VALIDATING if m.applied else Phase.CATCHING_UP


def progress(m: BuildFigures, before: Progress | None = None) -> Progress:
    now = phase(m)
    percent = _percent(m)
    if before is not None:  # an estimate that turned out too low, or a task done again, is no way back
        percent = max(percent, before.percent)
    rate = _rate(m, now)
    return Progress(
        phase=now,
        percent=percent,
        rows=m.rows_read,
        tablets=f"{m.tablets_covered}/{m.tablets}",
        rows_per_s=rate,
        eta_s=_eta(m, now, rate),
        detail=_detail(m, now),
    )


def _percent(m: BuildFigures) -> float:
    if m.built:
        return 100.0
    by_tablets = m.tablets_covered / m.tablets if m.tablets else 1.0
    if m.rows_expected:
        part = min(1.0, m.rows_read / m.rows_expected)
        # The estimate may be reached while tablets are left; then only the tablets say how far it is.
        part = part if m.tablets_covered == m.tablets or part < 1.0 else by_tablets
    else:
        part = by_tablets
    return min(PERCENT_SCANNED, round(PERCENT_SCANNED * part, 1))


def _rate(m: BuildFigures, now: Phase) -> float | None:
    """Rows a second since the first chunk; `None` while nothing is read."""
    if now in (Phase.WAITING, Phase.FAILED) or m.started_us is None or m.now_us <= m.started_us or m.rows_read == 0:
        return None
    return m.rows_read * 1e6 / (m.now_us - m.started_us)


def _eta(m: BuildFigures, now: Phase, rate: float | None) -> float | None:
    """Seconds until all is read, by the rate so far; `None` where that cannot be known."""
    match now:
        case Phase.READABLE:
            return 0.0
        case Phase.SCANNING:
            if rate is None or m.rows_expected is None:
                return None
            return max(0, m.rows_expected - m.rows_read) / rate
        case Phase.WAITING | Phase.CATCHING_UP | Phase.VALIDATING | Phase.FAILED | Phase.REFRESHING:
            return None
        case _:
            assert_never(now)


def _detail(m: BuildFigures, now: Phase) -> str | None:
    match now:
        case Phase.WAITING:
            return m.waiting_for or "a worker"
        case Phase.SCANNING:
            left = m.tablets - m.tablets_covered
            return f"{left} tablet{'s' if left != 1 else ''} left"
        case Phase.CATCHING_UP:
            return "epochs have not reached the newest chunk"
        case Phase.VALIDATING:
            return "comparing with the base"
        case Phase.READABLE | Phase.REFRESHING:
            return None
        case Phase.FAILED:
            return m.failed
        case _:
            assert_never(now)


def refreshed(
    *,
    rows: int,
    rows_expected: int,
    tablets: int,
    share: float,
    elapsed_s: float,
    waiting_for: str | None,
    detail: str,
) -> Progress:
    """How far a refresh is: `share` of the tokens, and so of the tablets, lies behind its position."""
    part = min(1.0, rows / rows_expected) if rows_expected else share
    rate = rows / elapsed_s if rows and elapsed_s > 0 and waiting_for is None else None
    return Progress(
        phase=Phase.REFRESHING if waiting_for is None else Phase.WAITING,
        percent=min(PERCENT_SCANNED, round(PERCENT_SCANNED * part, 1)),
        rows=rows,
        tablets=f"{int(share * tablets)}/{tablets}",
        rows_per_s=rate,
        eta_s=None if rate is None else max(0, rows_expected - rows) / rate,
        detail=detail if waiting_for is None else waiting_for,
    )


UNATTENDED = "a process that maintains this warehouse, and none does: run `ebla run`"


def waiting_for(
    *,
    paused: bool,
    other_base: str | None,
    roots_down: Collection[str],
    transactions: Collection[str],
    attended: bool = True,
) -> str | None:
    """What keeps a build from going on, the first that holds."""
    if paused:
        return "RESUME: it is paused"
    if transactions:
        return ", ".join(sorted(transactions))
    if roots_down:
        return f"{', '.join(sorted(roots_down))}: expected to reach it, found it missing"
    if not attended:
        return UNATTENDED
    if other_base is not None:
        return f"the build on {other_base}"
    return None
