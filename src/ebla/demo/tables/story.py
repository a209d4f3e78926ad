"""The demonstration: its chapters in order, and the warehouse, model and Spark that they share."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ebla
from ebla.cli import failure
from ebla.demo.tables import files
from ebla.demo.tables.model import Order, Shop
from ebla.demo.tables.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebla.api.database import Database

SETTINGS: dict[str, Any] = {"auto_compact": False, "tablets": 8}
"""Compaction is left to the chapter about it."""


class Story:
    """What the chapters share: the stage, a warehouse, its model, and a version to come back to."""

    def __init__(self, stage: Stage, folder: Path, spark: SparkSession, shop: Shop) -> None:
        self.stage = stage
        self.folder = folder
        self.warehouse = str(folder / "warehouse")
        self.spark = spark
        self.shop = shop
        self.db = self.connect()
        self.loaded_version = 0
        self.loaded: dict[int, Order] = {}

    def connect(self) -> Database:
        return ebla.connect(self.warehouse, self.spark, **SETTINGS)

    def reconnect(self) -> None:
        """A new connection: the old one's reads are over, so vacuum need not keep what they saw."""
        self.db.close()
        self.db = self.connect()

    def close(self) -> None:
        self.db.close()

    def run(self, text: str) -> ebla.Result:
        """Show a statement and run it."""
        self.stage.statement(text)
        return self.db.sql(text)

    def count_and_cents(self, at: str = "") -> tuple[int, int]:
        count, total = self.db.sql(f"SELECT count(*), sum(total) FROM orders {at}").one()
        return count, int(total * 100)

    def claim_orders(self, text: str) -> None:
        shop = self.shop
        self.stage.claim(
            f"{text}: {len(shop.orders):,} orders worth {shop.cents() / 100:,.2f}, as in the model",
            self.count_and_cents(),
            (len(shop.orders), shop.cents()),
        )


def tell(stage: Stage, folder: Path) -> None:
    from ebla.demo.tables.chapters import CHAPTERS

    stage.say(f"A warehouse in {folder}, checked against a model of it in plain Python.")
    with stage.timed("files generated"):
        shop = files.generate(folder)
    # One connection owns Spark; the chapters open and close others beside it.
    with ebla.connect(str(folder / "warehouse"), spark_memory="2g", **SETTINGS) as owner:
        with stage.timed("Spark started"):
            spark = owner.spark
        with contextlib.closing(Story(stage, folder, spark, shop)) as story:
            for chapter in CHAPTERS:
                stage.chapter(str(chapter.__doc__))
                chapter(story)


@contextlib.contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="ebla-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="ebla-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m ebla.demo tables", description="Show and check what tables do.")
    parser.add_argument("--keep", action="store_true", help="keep the warehouse, to look at it with `ebla status`")
    arguments = parser.parse_args(given)
    failure.quiet_logs(failure.ErrorFormat(as_json=False, debug=False))
    stage = Stage()
    with _folder(arguments.keep) as folder:
        try:
            tell(stage, folder)
        except KeyboardInterrupt:
            return failure.INTERRUPTED
        except Exception as error:
            traceback.print_exc()
            stage.claim(f"the demonstration runs to its end ({type(error).__name__})", False)
    if arguments.keep:
        stage.say(f"kept: ebla -w {folder / 'warehouse'} status")
    return stage.end()
