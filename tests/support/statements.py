"""How many statements the catalog of a warehouse gets for a small piece of work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from sqlalchemy import event

import ebla


@contextlib.contextmanager
def sent(db: ebla.Database) -> Iterator[list[str]]:
    """The statements that this thread sends in the block. What begins and ends transactions is not among them."""
    engine, thread, found = db.context.catalog.engine, threading.get_ident(), list[str]()

    def note(_connection: object, _cursor: object, text: str, *_: object) -> None:
        if threading.get_ident() == thread:
            found.append(text)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def of_upsert(db: ebla.Database) -> int:
    """Of an upsert of ten rows: the least of some, for a cache may have to be filled."""
    db.sql("CREATE TABLE IF NOT EXISTS small (id BIGINT PRIMARY KEY, n BIGINT)")
    table, counts = db.table("small"), list[int]()
    for turn in range(5):
        with sent(db) as found:
            table.upsert([{"id": 10 * turn + i, "n": i} for i in range(10)])
        counts.append(len(found))
    return min(counts)


def of_epoch(db: ebla.Database) -> int:
    """Of an epoch of an aggregate, run as a job runs it. The database runs none by itself (`auto_refresh`)."""
    of_upsert(db)
    db.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS of_small AS SELECT n, count(*) AS c FROM small GROUP BY n")
    counts = list[int]()
    for turn in range(5):
        db.table("small").upsert([{"id": 1000 + turn, "n": turn}])
        with sent(db) as found:
            db.epochs.of_handler("default")
        counts.append(len(found))
    return min(counts)
