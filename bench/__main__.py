"""`python -m bench [group …]`: run the benchmarks, print their tables, and put them into the README."""

from __future__ import annotations

import argparse
import sys

from bench import (
    building,
    cli,
    cluster,
    console,
    foundation,
    indexes,
    large,
    large_level0,
    moves,
    one_row,
    query,
    topology,
    views,
)
from bench.measure import record
from bench.steady import watch

GROUPS = {
    "foundation": foundation.run,
    "views": views.run,
    "building": building.run,
    "query": query.run,
    "indexes": indexes.run,
    "cli": cli.run,
    "one_row": one_row.run,
    "large_level0": large_level0.run,
    "topology": topology.run,
    "moves": moves.run,
    "cluster": cluster.run,
    "console": console.run,
    "steady": watch.run,
    "large": large.run,
}
ON_REQUEST = ("large",)
"""Groups that run only when they are named."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"of {', '.join(GROUPS)}; all by default but {', '.join(ON_REQUEST)}")
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*views.PARTS, *views.ON_REQUEST),
        help="parts of views; the README keeps what it has",
    )
    arguments = parser.parse_args()
    unknown = [g for g in arguments.group if g not in GROUPS]
    if unknown:
        parser.error(f"expected one of {', '.join(GROUPS)}, found {unknown[0]}")
    missed = 0
    for name in arguments.group or [g for g in GROUPS if g not in ON_REQUEST]:
        only = arguments.only if name == "views" else None
        results = GROUPS[name](arguments.scale) if only is None else views.run(arguments.scale, only)
        for result in results:
            print(result.row())
            missed += not result.met
        if results and only is None and arguments.scale == 1.0:
            record(name, results)
    print(f"\n{missed} bars missed" if missed else "\nall bars met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
