"""Numbers that the catalog counts: the version, and the ids of what is new."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from ebla.catalog import schema as s


def counter(connection: Connection, name: str) -> int:
    return int(connection.execute(select(s.counters.c.value).where(s.counters.c.name == name)).scalar_one())


def take(connection: Connection, name: str) -> int:
    """Advance a counter and return its new value. The row lock lasts until the transaction ends."""
    connection.execute(update(s.counters).where(s.counters.c.name == name).values(value=s.counters.c.value + 1))
    return counter(connection, name)
