"""`python -m simulation --seed 7`, or `--seeds 1000 [--first 0]`: run seeds and stop at the first that fails."""

from __future__ import annotations

import argparse
import sys
import time

from simulation.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    arguments = parser.parse_args()
    first, count = (arguments.first, arguments.seeds) if arguments.seed is None else (arguments.seed, 1)
    begun = time.perf_counter()
    steps = 0
    for seed in range(first, first + count):
        steps += run(seed).steps
    print(f"{count} seeds from {first}, {steps} steps, {time.perf_counter() - begun:.1f} s: all invariants hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
