"""What a run of the shop came to: for a person at the end of it, and for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ebla.demo.shop import schema
from ebla.demo.shop.building import FinishedBuild
from ebla.demo.shop.display import seconds
from ebla.demo.shop.pages import PageCheck, Pages
from ebla.demo.shop.proof import Proof
from ebla.demo.shop.watch import Watch, percentile
from ebla.demo.shop.writers import Count, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Two ways to have `card` after a small change, without writers: an epoch, and plain Spark from nothing."""

    small_change_s: float
    recompute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows_loaded: int
    writing_s: float
    total_s: float
    counts: Mapping[str, Count]
    built: FinishedBuild
    pages: Pages
    watch: Watch
    proofs: Sequence[Proof]
    times: Times

    @property
    def ok(self) -> bool:
        return not faults(self)

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
            "build": _build(self.built),
            "index": _index(self.pages),
            "proofs": [_proof(proof) for proof in self.proofs],
        }


def faults(report: Report) -> list[str]:
    """What did not come out as it must; nothing, if all did."""
    found = [f"{view} is not what its query gives" for view in sorted({p.view for p in report.proofs if not p.equal})]
    if not report.proofs:
        found.append("no view was compared with its query")
    if not report.built.resumed:
        found.append("the build of card did not go on where the worker was killed")
    if not report.pages.taken:
        found.append(f"{schema.INDEX_NAME} is not taken by the query that it is for")
    if report.pages.checked is None or not report.pages.checked.right:
        found.append(f"{schema.INDEX_NAME} is not what its definition gives")
    return found


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"median": percentile(values, 0.5), "p95": percentile(values, 0.95)}


def _build(built: FinishedBuild) -> dict[str, Any]:
    return {
        "seconds": round(built.seconds, 2),
        "commits": built.commits,
        "worker_exit_code": built.killed.exit_code,
        "killed_at_rows": built.killed.rows,
        "killed_at_percent": built.killed.percent,
        "resumed_at_rows": built.resumed_rows,
        "resumed": built.resumed,
    }


def _index(pages: Pages) -> dict[str, Any]:
    checked = pages.checked
    return {
        "name": schema.INDEX_NAME,
        "build_s": round(pages.build_s, 2),
        "path": pages.path,
        "query_s": {
            when: _spread([round(value, 6) for value in values])
            for when, values in (("without", pages.before_s), ("open", pages.open_s), ("closed", pages.closed_s))
        },
        "refused": pages.refused,
        "check": None if checked is None else asdict(checked) | {"seconds": round(checked.seconds, 3)},
    }


def _proof(proof: Proof) -> dict[str, Any]:
    found = asdict(proof) | {"equal": proof.equal, "seconds": round(proof.seconds, 3)}
    del found["examples"]
    return found


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


def resumption(built: FinishedBuild) -> str:
    """One line about the build that another process had begun."""
    killed = built.killed
    if built.resumed:
        return (
            f"all readable after {seconds(built.seconds)} and {built.commits:,} commits of the writers; card went on "
            f"from {built.resumed_rows:,} rows"
        )
    return (
        f"card did NOT go on where it was: {killed.rows:,} rows when the worker was killed (exit code "
        f"{killed.exit_code}), then {built.resumed_rows:,}"
    )


def latency(values: Sequence[float]) -> str:
    """What queries took."""
    median, most = percentile(values, 0.5), percentile(values, 0.95)
    if median is None or most is None:
        return "none asked"
    return f"{len(values)} queries, first 100 rows each: p50 {median * 1e3:.1f} ms, p95 {most * 1e3:.1f} ms"


def checked(found: PageCheck) -> str:
    """One line about the index."""
    name, at = schema.INDEX_NAME, f"at version {found.version:,} in {seconds(found.seconds)}"
    if found.right:
        return f"{name} right: no entry missing, spurious or different, checked {at}"
    return (
        f"{name} WRONG: {found.missing:,} entries missing, {found.spurious:,} spurious, {found.different:,} different, "
        f"checked {at}"
    )


def summary(report: Report) -> list[tuple[str, str]]:
    """The end, as names and values."""
    done = total(report.counts)
    watch, times = report.watch, report.times
    ages = [age for found in watch.ages.values() for age in found]
    built, pages = report.built, report.pages
    return [
        ("views built", f"in {seconds(built.seconds)}, while {built.commits:,} commits came; killed and carried on"),
        ("index built", f"in {seconds(pages.build_s)}"),
        ("first 100", _page_times(pages)),
        ("writes", f"{done.commits:,} commits of {done.rows:,} rows in {report.writing_s:.0f} s"),
        ("epochs", f"{len(watch.epochs):,}; {_words([epoch.seconds for epoch in watch.epochs])}"),
        ("age of views", _words(ages)),
        ("card, open", f"epochs {_words(watch.seconds_of('card'))}"),
        ("card, closed", f"a small change {seconds(times.small_change_s)}, from nothing {seconds(times.recompute_s)}"),
    ]


def _page_times(pages: Pages) -> str:
    times = (("open", pages.open_s), ("closed", pages.closed_s), ("without the index", pages.before_s))
    medians = [(name, percentile(values, 0.5)) for name, values in times]
    return ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in medians if value is not None) + " (p50)"


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
