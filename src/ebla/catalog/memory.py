"""What a process has read of a catalog and need not ask for again.

Theory of operation. The counter `shape` advances with every commit that changes a relation, a column, a placement, a
node, a handler, a build or the state of an index: with all commits but those that only bring rows, positions and tasks
(`changes.ROWS_ONLY`). While it stands still, what was read of those tables holds. One statement, which reads all
counters, therefore allows a transaction to use what an earlier one has read. In one transaction the counters are
read once: a reader has a snapshot, and a writer holds the commit lock and is the only one who advances them.

A transaction that has changed the shape remembers nothing from there on: it may be rolled back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, case, select, update

from ebla.catalog import schema as s

Found = TypeVar("Found")

_SEEN = "ebla.seen"
"""Where a database connection keeps what its present transaction has seen."""


class Shape:
    """What was read while the counter `shape` had one value."""

    def __init__(self, version: tuple[int, int]) -> None:
        self.version = version
        self.found: dict[Hashable, Any] = {}


class Seen:
    """What one transaction has seen. Another transaction may use the same database connection later: see `owner`."""

    def __init__(self, owner: Connection) -> None:
        self.owner = weakref.ref(owner)
        self.counters: dict[str, int] | None = None
        self.shape: Shape | None = None
        self.reshaped = False


_newest: weakref.WeakKeyDictionary[Engine, Shape] = weakref.WeakKeyDictionary()


def begin(connection: Connection) -> None:
    """A transaction of the catalog begins on this connection."""
    connection.info[_SEEN] = Seen(connection)


def _seen(connection: Connection) -> Seen | None:
    """`None` for a connection that was not begun by the catalog: nothing is remembered for it."""
    seen = connection.info.get(_SEEN)
    return seen if isinstance(seen, Seen) and seen.owner() is connection else None


# ---- counters -------------------------------------------------------------------------------------------


def counters(connection: Connection) -> Mapping[str, int]:
    """All counters, by name."""
    seen = _seen(connection)
    if seen is not None and seen.counters is not None:
        return seen.counters
    found = {row.name: int(row.value) for row in connection.execute(select(s.counters.c.name, s.counters.c.value))}
    if seen is not None:
        seen.counters = found
    return found


def advance(connection: Connection, name: str) -> int:
    """Advance a counter and return its new value. The row lock lasts until the transaction ends."""
    more = case((s.counters.c.name == name, s.counters.c.value + 1), else_=s.counters.c.value)
    rows = connection.execute(update(s.counters).values(value=more).returning(s.counters.c.name, s.counters.c.value))
    return _note(connection, {row.name: int(row.value) for row in rows})[name]


def put(connection: Connection, name: str, value: int) -> None:
    """Set a counter."""
    connection.execute(update(s.counters).where(s.counters.c.name == name).values(value=value))
    seen = _seen(connection)
    if seen is not None and seen.counters is not None:
        seen.counters[name] = value


def _note(connection: Connection, found: dict[str, int]) -> dict[str, int]:
    seen = _seen(connection)
    if seen is not None:
        seen.counters = found
    return found


# ---- shape ----------------------------------------------------------------------------------------------


def reshape(connection: Connection) -> None:
    """This transaction is about to change the shape."""
    advance(connection, "shape")
    seen = _seen(connection)
    if seen is not None:
        seen.reshaped = True


def remembered(connection: Connection, key: Hashable, read: Callable[[], Found]) -> Found:
    """What `read` returns, or returned before under the same shape. It must read nothing that rows alone change."""
    shape = _shape(connection)
    if shape is None:
        return read()
    if key not in shape.found:
        shape.found[key] = read()
    found: Found = shape.found[key]
    return found


def _shape(connection: Connection) -> Shape | None:
    seen = _seen(connection)
    if seen is None or seen.reshaped:
        return None
    if seen.shape is None:
        now = counters(connection)
        # A process of an older release changes the shape without counting it, but for exclusive commits.
        version = now["shape"], now["exclusive_version"]
        newest = _newest.get(connection.engine)
        if newest is None or newest.version < version:
            newest = _newest[connection.engine] = Shape(version)
        seen.shape = newest if newest.version == version else Shape(version)  # a reader's snapshot may be older
    return seen.shape
