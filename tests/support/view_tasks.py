"""What child processes do to views; see `support.processes`. Each starts a Spark of its own when it needs one."""

from __future__ import annotations

import ebla


def say(*words: object) -> None:
    print(*words, flush=True)


def connect(where: str) -> ebla.Database:
    return ebla.connect(where, auto_compact=False, auto_refresh=False, fsync=False, spark_cores="1", spark_memory="1g")


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
