"""Online building: the coordinator's decision. No Spark is needed."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from bench.measure import ROOT, Result

sys.path.insert(0, str(Path(ROOT).parent / "tests"))

from support.build_load import Load


def run(scale: float = 1.0) -> list[Result]:
    load = Load(tasks=int(100_000 * scale))
    times = sorted(load.decide_s() for _ in range(200))
    return [
        Result(
            work="coordinator's decision with 100,000 open tasks",
            figure=times[-2] * 1000,
            bar=50,
            unit="ms",
            detail=f"99th of 100; median {statistics.median(times) * 1000:.1f} ms; "
            f"indexing all tasks anew {load.load_s * 1000:.0f} ms",
        )
    ]
