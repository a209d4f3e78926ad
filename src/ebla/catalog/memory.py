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

from sqlalchemy import Connection, Engine, case, update

from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import State

Found = TypeVar("Found")

_SEEN = "ebla.seen"
"""Where a database connection keeps what its present transaction has seen."""


class Shape:
    """What was read while the counter `shape` had one value."""

    def __init__(self, version: tuple[int, int]) -> None:
        self.version = version
        self.found: dict[Hashable, Any] = {}


class TransactionMemory:
    """What one transaction has seen. Another transaction may use the same database connection later: see `owner`."""

    def __init__(self, owner: Connection) -> None:
        self.owner = weakref.ref(owner)
        self.counters: dict[str, int] | None = None
        self.shape: Shape | None = None
        self.reshaped = False


_newest: weakref.WeakKeyDictionary[Engine, Shape] = weakref.WeakKeyDictionary()


def begin(connection: Connection) -> None:
    """A transaction of the catalog begins on this connection."""
    connection.info[_SEEN] = TransactionMemory(connection)


def undone(connection: Connection) -> None:
    """The last part of this transaction was undone: its counters are read anew."""
    seen = _seen(connection)
    if seen is not None:
        seen.counters = None


def _seen(state: State) -> TransactionMemory | None:
    """`None` for tables in memory and for a connection that the catalog did not begin: nothing is kept of them."""
    seen = state.info.get(_SEEN) if isinstance(state, Connection) else None
    return seen if isinstance(seen, TransactionMemory) and seen.owner() is state else None


# ---- counters -------------------------------------------------------------------------------------------


def counters(state: State) -> Mapping[str, int]:
    """All counters, by name."""
    seen = _seen(state)
    if seen is not None and seen.counters is not None:
        return seen.counters
    return note(state, {row.name: int(row.value) for row in rows.find(state, s.counters)})


def advance(state: State, name: str) -> int:
    """Advance a counter and return its new value. The row lock lasts until the transaction ends."""
    if not isinstance(state, Connection):
        value = counters(state)[name] + 1
        put(state, name, value)
        return value
    more = case((s.counters.c.name == name, s.counters.c.value + 1), else_=s.counters.c.value)
    found = state.execute(update(s.counters).values(value=more).returning(s.counters.c.name, s.counters.c.value))
    return note(state, {row.name: int(row.value) for row in found})[name]


def put(state: State, name: str, value: int) -> None:
    """Set a counter."""
    rows.write(state, rows.put(s.counters, name=name, value=value))
    seen = _seen(state)
    if seen is not None and seen.counters is not None:
        seen.counters[name] = value


def note(state: State, found: dict[str, int]) -> dict[str, int]:
    """Keep all counters as another statement of this transaction has read them."""
    seen = _seen(state)
    if seen is not None:
        seen.counters = found
    return found


# ---- shape ----------------------------------------------------------------------------------------------


def shape_version(state: State) -> tuple[int, int]:
    """What was read of the shape holds as long as this is the same."""
    now = counters(state)
    # A process of an older release changes the shape without counting it, but for exclusive commits.
    return now["shape"], now["exclusive_version"]


def reshape(state: State) -> None:
    """This transaction is about to change the shape."""
    advance(state, "shape")
    seen = _seen(state)
    if seen is not None:
        seen.reshaped = True


def remembered(state: State, key: Hashable, read: Callable[[], Found]) -> Found:
    """What `read` returns, or returned before under the same shape. It must read nothing that rows alone change."""
    if not isinstance(state, Connection):
        return state.remembered(key, read)
    shape = _shape(state)
    if shape is None:
        return read()
    if key not in shape.found:
        shape.found[key] = read()
    found: Found = shape.found[key]
    return found


def _shape(state: Connection) -> Shape | None:
    seen = _seen(state)
    if seen is None or seen.reshaped:
        return None
    if seen.shape is None:
        version = shape_version(state)
        newest = _newest.get(state.engine)
        if newest is None or newest.version < version:
            newest = _newest[state.engine] = Shape(version)
        seen.shape = newest if newest.version == version else Shape(version)  # a reader's snapshot may be older
    return seen.shape
