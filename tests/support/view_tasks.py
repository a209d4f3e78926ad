"""What child processes do to views, with the Spark of the tests or one of their own; see `support.processes`."""

from __future__ import annotations

import itertools
import random
import signal
from typing import Any

import ebla


def say(*words: object) -> None:
    print(*words, flush=True)


def connect(where: str, **settings: Any) -> ebla.Database:
    quiet: dict[str, Any] = {"auto_compact": False, "auto_refresh": False, "fsync": False}
    return ebla.connect(where, **{**quiet, "spark_cores": "1", "spark_memory": "1g", **settings})


def of_handler(where: str, name: str) -> None:
    """One epoch of a handler."""
    with connect(where) as db:
        for done in db.epochs.of_handler(name):
            say(done.view, done.plan)


def of_dictionaries(where: str, name: str) -> None:
    """Gather changes of dictionaries and apply them to a handler's views."""
    with connect(where) as db:
        for done in db.epochs.of_dictionaries([name]):
            say(done.view, done.plan)


def flush(where: str, settings: dict[str, Any]) -> None:
    """One epoch of every view."""
    with connect(where, **settings) as db:
        for done in db.sql("FLUSH").rows():
            say(done[0], done[2])


def maintain(where: str, settings: dict[str, Any]) -> None:
    """Epochs and builds in the background, until the test kills it."""
    db = connect(where, **{"auto_refresh": True, "epoch_period_s": 0.0, **settings})
    db.sql("SELECT 1").rows()  # with Spark, they begin
    db.wake()
    say(db.context.holder)
    signal.pause()


def write_and_refresh_forever(where: str, seed: int) -> None:
    """Random writes to orders and customers, and epochs in the background, until the test kills it."""
    db = connect(where, auto_refresh=True, epoch_period_s=0.0, dictionary_period_s=0.0)
    db.sql("SELECT 1").rows()  # with Spark, epochs begin
    chance = random.Random(seed)
    for number in itertools.count(1):
        rows = [{"id": chance.randrange(120), "customer": chance.randrange(6), "total": number} for _ in range(5)]
        db.table("orders").upsert(rows)
        db.table("orders").delete([{"id": chance.randrange(120)}])
        if number % 3 == 0:
            db.table("customers").upsert([{"id": chance.randrange(6), "name": f"n{number}"}])
        say(number)
