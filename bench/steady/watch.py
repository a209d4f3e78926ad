"""A steady load in a process of its own, watched from here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench.measure import ROOT, Result
from bench.steady.figures import SMALL, quantile, results
from bench.steady.second import Second

SAY_EVERY = 10
SHORT_S = 120


def run(scale: float = 1.0) -> list[Result]:
    """Two minutes of the load, at a tenth of the scale of other benchmarks."""
    arguments = ["--seconds", str(SHORT_S), "--scale", str(scale / 10)]
    return results(measure(str(ROOT.parent / "src"), arguments, name="steady"), SMALL)


def measure(source: str, arguments: Sequence[str], *, name: str) -> list[Second]:
    """Run the load in a process of its own, with the release of this source; its seconds, shown as they come."""
    path = os.pathsep.join([source, str(ROOT.parent)])
    with tempfile.TemporaryDirectory(prefix="ebla-steady-") as folder:
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.steady.load", f"{folder}/warehouse", *arguments],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        found: list[Second] = []
        for line in child.stdout:
            if not line.startswith("{"):
                continue
            found.append(Second(**json.loads(line)))
            _show(name, found)
        if child.wait() != 0:
            raise SystemExit(f"{name}: expected the load to end by itself, found exit code {child.returncode}")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return found


def _show(name: str, seconds: Sequence[Second]) -> None:
    """One line that changes on a terminal; a line now and then elsewhere."""
    last = seconds[-SAY_EVERY:]
    rate = sum(s.rows for s in last) / len(last)
    visible = quantile([v for s in last for v in s.visible_s], 0.5)
    query = quantile([q for s in last for q in s.query_s], 0.5)
    now = seconds[-1]
    line = (
        f"{name} {now.at:5.0f} s  {rate:6.0f} rows/s  visible {visible:5.2f} s  lag {now.lag_s:5.1f} s  "
        f"query {query * 1e3:5.0f} ms  Python {now.python_mib:5.0f} MiB  JVM {now.jvm_mib:5.0f} MiB  files {now.files}"
    )
    if sys.stderr.isatty():
        print(f"\r{line}", end="", file=sys.stderr, flush=True)
    elif len(seconds) % SAY_EVERY == 0:
        print(line, file=sys.stderr, flush=True)
