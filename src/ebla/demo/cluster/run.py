"""The story of a cluster on the terminal."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ebla.cli import failure
from ebla.cli.output import write_json
from ebla.cluster.local_cluster import SparkKind
from ebla.demo.cluster import story
from ebla.demo.shop.run import Teller


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ebla.demo cluster", description="A cluster that loses nodes while it is written to."
    )
    parser.add_argument("--seed", type=int, default=0, help="of what the writers write (default: 0)")
    parser.add_argument(
        "--spark", choices=("local", "standalone"), default="local", help="Spark in nodes, or beside them"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")
    found = parser.parse_args(arguments)
    failure.quiet_logs(failure.ErrorFormat(as_json=found.json, debug=False))
    teller = Teller(Console(quiet=found.json, highlight=False))
    began = time.perf_counter()
    try:
        facts = _run(teller, found.seed, found.spark)
    except (Exception, KeyboardInterrupt) as error:
        if failure.was_interrupted(error):
            return failure.INTERRUPTED
        if not isinstance(error, story.StoryError):
            traceback.print_exc()
        if found.json:
            write_json({"ok": False, "error": f"{type(error).__name__}: {error}"}, sys.stdout)
        teller.say(f"\nFAILED: {error}", "bold red")
        return 1
    total_s = time.perf_counter() - began
    if found.json:
        write_json({"ok": True, "total_s": round(total_s, 1), **facts}, sys.stdout)
    teller.say(f"\nEvery acknowledged write is there, and every view is exact. {total_s:.0f} s in total.", "bold green")
    teller.say("\nTo go on:")
    teller.say("  $ ebla cluster up --nodes 3 --dir ./demo", "cyan")
    return 0


def _run(teller: Teller, seed: int, spark: SparkKind) -> dict[str, object]:
    teller.title("Three nodes, a PostgreSQL and Spark")
    with tempfile.TemporaryDirectory(prefix="ebla-cluster-", ignore_cleanup_errors=True) as folder:
        began = time.perf_counter()
        with story.started(Path(folder) / "cluster", spark=spark) as cluster:
            teller.say(f"  {len(cluster.nodes)} nodes serve after {time.perf_counter() - began:.1f} s:")
            for one in cluster.nodes:
                teller.say(f"    {one.name}  {one.url}  Spark: {one.spark_master}")
            played = story.Story(cluster, say=lambda text: teller.say(f"  {text}"))
            story.tell(played, teller.title, seed=seed)
            return played.facts
