"""What a run of the shop came to: for a person at the end of it, and for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebla.demo.shop.display import seconds
from ebla.demo.shop.proof import Proof
from ebla.demo.shop.watch import Watch, percentile
from ebla.demo.shop.writers import Count, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Two ways to have `card` after a small change, while nobody writes: an epoch, and plain Spark from nothing."""

    small_change_s: float
    recompute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows_loaded: int
    writing_s: float
    total_s: float
    counts: Mapping[str, Count]
    watch: Watch
    proofs: Sequence[Proof]
    times: Times

    @property
    def ok(self) -> bool:
        return bool(self.proofs) and all(proof.equal for proof in self.proofs)

    def as_json(self) -> dict[str, Any]:
        watch = self.watch
        return {
            "ok": self.ok,
            "rows_loaded": self.rows_loaded,
            "total_s": round(self.total_s, 2),
            "writing_s": round(self.writing_s, 2),
            "writes": {kind: {"commits": c.commits, "rows": c.rows} for kind, c in self.counts.items()},
            "epochs": len(watch.epochs),
            "epoch_s": _spread([epoch.seconds for epoch in watch.epochs]),
            "age_s": {view: _spread(ages) for view, ages in watch.ages.items()},
            "card": {
                "epoch_s": _spread(watch.seconds_of("card")),
                "small_change_s": round(self.times.small_change_s, 3),
                "recompute_s": round(self.times.recompute_s, 3),
            },
            "proofs": [_proof(proof) for proof in self.proofs],
        }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"median": percentile(values, 0.5), "p95": percentile(values, 0.95)}


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "view": proof.view,
        "engine": proof.engine,
        "equal": proof.equal,
        "version": proof.version,
        "rows": proof.rows,
        "expected_rows": proof.expected_rows,
        "extra": proof.extra,
        "missing": proof.missing,
        "seconds": round(proof.seconds, 3),
    }


def verdict(proof: Proof) -> str:
    """One line about one comparison."""
    if proof.equal:
        return (
            f"{proof.view:<11} equal   {proof.rows:,} rows, recomputed by {proof.engine} at version "
            f"{proof.version:,} in {seconds(proof.seconds)}"
        )
    return (
        f"{proof.view:<11} DIFFERS from what {proof.engine} computes at version {proof.version:,}: "
        f"{proof.rows:,} rows, expected {proof.expected_rows:,}; {proof.extra:,} too many, {proof.missing:,} missing"
    )


def summary(report: Report) -> list[tuple[str, str]]:
    """The end, as names and values."""
    done = total(report.counts)
    watch, times = report.watch, report.times
    ages = [age for found in watch.ages.values() for age in found]
    return [
        ("writes", f"{done.commits:,} commits of {done.rows:,} rows in {report.writing_s:.0f} s"),
        ("epochs", f"{len(watch.epochs):,}; {_words([epoch.seconds for epoch in watch.epochs])}"),
        ("age of views", _words(ages)),
        ("card, open", f"epochs {_words(watch.seconds_of('card'))}"),
        ("card, closed", f"a small change {seconds(times.small_change_s)}, from nothing {seconds(times.recompute_s)}"),
    ]


def _words(values: Sequence[float]) -> str:
    """The middle, and what nineteen of twenty stay below."""
    if not values:
        return "none seen"
    return f"median {seconds(percentile(values, 0.5))}, 95 % within {seconds(percentile(values, 0.95))}"


def next_steps(kept: str | None) -> list[str]:
    """Three commands to go on with."""
    where = kept or "./shop"
    look = f'ebla -w {where} sql "SELECT * FROM by_country ORDER BY total DESC LIMIT 5"'
    explain = f'ebla -w {where} sql "EXPLAIN MATERIALIZED VIEW revenue"'
    tour = "python -m ebla.demo tables"
    return [look, explain, tour] if kept else [f"python -m ebla.demo --keep {where}", look, tour]
