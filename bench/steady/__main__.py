"""`python -m bench.steady`: put a steady load on a warehouse, watch it, and judge it.

With `--before SRC`, the folder `src` of another release, the same load runs against that one, too.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measure import ROOT, Result
from bench.steady.figures import LARGE, SMALL, results
from bench.steady.plot import svg
from bench.steady.watch import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.steady", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=int, default=1000, help="changed rows per second")
    parser.add_argument("--commit-rows", type=int, default=50)
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale factor")
    parser.add_argument("--before", help="the src folder of another release")
    parser.add_argument("--plot", type=Path, help="an SVG file for the picture of the run")
    parser.add_argument("--json", type=Path, help="a file for the seconds of the run")
    given = parser.parse_args()
    of_load = [
        *("--seconds", str(given.seconds)),
        *("--rate", str(given.rate)),
        *("--commit-rows", str(given.commit_rows)),
        *("--scale", str(given.scale)),
    ]
    bars = LARGE if given.rate >= LARGE.rows_per_s else SMALL
    seconds = measure(str(ROOT.parent / "src"), of_load, name="now")
    if given.plot is not None:
        given.plot.write_text(
            svg(seconds, f"{given.rate} rows/s in commits of {given.commit_rows}, scale {given.scale:g}")
        )
    if given.json is not None:
        given.json.write_text(json.dumps([s.__dict__ for s in seconds]))
    found = results(seconds, bars)
    before = [] if given.before is None else results(measure(given.before, of_load, name="before"), bars)
    _print(found, before)
    missed = sum(not one.met for one in found)
    print(f"\nverdict: {missed} of {len(found)} bars missed" if missed else "\nverdict: all bars met")
    return 1 if missed else 0


def _print(found: Sequence[Result], before: Sequence[Result]) -> None:
    figures = {one.work: one.figure for one in before}
    for one in found:
        was = figures.get(one.work, math.nan)
        print(one.row() + ("" if math.isnan(was) else f" before: {was:.2f} {one.unit}"))


if __name__ == "__main__":
    sys.exit(main())
