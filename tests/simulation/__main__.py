"""`python -m simulation cluster --seed 7`, or `--seeds 1000 [--first 0]`: run seeds and stop at the first that fails.

Without `building` or `cluster` both are run.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from simulation import cluster, world

WORLDS = {"building": world.run, "cluster": cluster.run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("what", nargs="?", choices=sorted(WORLDS), help="which world; both unless it is given")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # every fault is logged, and there are many
    first, count = (arguments.first, arguments.seeds) if arguments.seed is None else (arguments.seed, 1)
    for what in sorted(WORLDS) if arguments.what is None else [arguments.what]:
        begun, steps = time.perf_counter(), 0
        for seed in range(first, first + count):
            steps += WORLDS[what](seed).steps
        took_s = time.perf_counter() - begun
        print(f"{what}: {count} seeds from {first}, {steps} steps, {took_s:.1f} s: all invariants hold", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
