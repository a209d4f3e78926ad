"""What child processes do to tables; see `support.processes`. They write Arrow rows, so they need no Spark.

Every write is printed once it is acknowledged, and not before.
"""

from __future__ import annotations

import itertools
from typing import Any

import ebla
from ebla.tables import cutting, tiers

BATCH_ROWS = 20


def say(*words: object) -> None:
    print(*words, flush=True)


def connect(where: str, **settings: Any) -> ebla.Database:
    return ebla.connect(where, auto_compact=False, fsync=False, **settings)


def batch(writer: int, number: int) -> list[dict[str, Any]]:
    """The same keys every time: after a crash all of them must say the same number."""
    return [{"id": writer * 1000 + i, "writer": writer, "n": number} for i in range(BATCH_ROWS)]


def write_forever(where: str, writer: int) -> None:
    """Batch after batch, until the test kills it."""
    table = connect(where).table("t")
    for number in itertools.count(1):
        table.upsert(batch(writer, number))
        say(number)


def write_some(where: str, writer: int, count: int) -> None:
    """Print the version of each commit to keys that all writers share."""
    db = connect(where)
    table = db.table("t")
    for number in range(count):
        rows = [{"id": (writer + number + i) % 12, "writer": writer, "n": number} for i in range(5)]
        if number % 4 == 3:
            written = table.delete([{"id": row["id"]} for row in rows[:2]])
            say(written.version, "delete", *(row["id"] for row in rows[:2]))
        else:
            written = table.upsert(rows)
            say(written.version, "upsert", number, *(row["id"] for row in rows))
    db.close()


def write_once(where: str, number: int) -> None:
    """One batch over what is there."""
    db = connect(where)
    db.table("t").upsert(batch(1, number))
    say(number)
    db.close()


def vacuum(where: str) -> None:
    db = connect(where)
    db.vacuum(retain_s=0)
    say("vacuumed")
    db.close()


def write_large(where: str, number: int) -> None:
    """By Spark's tablets, in a Spark of its own."""
    db = connect(where, batch_rows_max=0, spark_cores="1", spark_memory="1g")
    db.table("t").upsert(batch(1, number))
    say(number)
    db.close()


def compact(where: str) -> None:
    db = connect(where, spark_cores="1", spark_memory="1g")
    db.compact("t")
    say("compacted")
    db.close()


def cut(where: str) -> None:
    """Runs that lie across tablets into runs of one tablet each, without Spark."""
    db = connect(where)
    cutting.cut_runs(db.context, "t", 4, lambda snapshot: cutting.crossing(snapshot.level0, 4))
    say("cut")
    db.close()


def merge(where: str) -> None:
    """Level 0 runs with each other, without Spark."""
    db = connect(where)
    tiers.merge(db.context, "t")
    say("merged")
    db.close()


def backup(where: str, place: str) -> None:
    db = connect(where)
    db.backup(place)
    say("copied")
    db.close()


def restore(place: str, where: str) -> None:
    ebla.restore(place, where)
    say("restored")
