"""How things are timed, and how results are shown."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results.json"
README = ROOT.parent / "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table. `figure` and `bar` are in the same unit; smaller is better unless `at_least`."""

    work: str
    figure: float
    bar: float
    unit: str
    detail: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.figure >= self.bar if self.at_least else self.figure <= self.bar

    def row(self) -> str:
        sign = "≥" if self.at_least else "≤"
        verdict = "met" if self.met else "**missed**"
        cells = [self.work, f"{_number(self.figure)} {self.unit}", f"{sign} {_number(self.bar)}", verdict, self.detail]
        return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def alternately(
    ours: Callable[[], object], theirs: Callable[[], object], *, times: int, warm: int = 1
) -> tuple[float, float]:
    """Median seconds of both, run in turn so that neither has the warmer machine."""
    for _ in range(warm):
        theirs()
        ours()
    mine: list[float] = []
    other: list[float] = []
    for turn in range(times):
        pair = [(mine, ours), (other, theirs)]
        for sink, function in pair if turn % 2 else reversed(pair):
            sink.append(seconds(function))
    return statistics.median(mine), statistics.median(other)


def median(function: Callable[[], object], *, times: int, warm: int = 2) -> float:
    for _ in range(warm):
        function()
    return statistics.median(seconds(function) for _ in range(times))


def record(group: str, results: Sequence[Result]) -> None:
    """Keep the results, and put the table into the README between its markers."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[group] = [{**asdict(r), "met": r.met} for r in results]
    RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    text = README.read_text()
    begin, end = f"<!-- bench:{group} -->", f"<!-- /bench:{group} -->"
    if begin not in text:
        return
    table = "\n".join(["| work | measured | bar | | how |", "|---|---|---|---|---|", *(r.row() for r in results)])
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    README.write_text(f"{head}{begin}\n{table}\n{end}{tail}")
