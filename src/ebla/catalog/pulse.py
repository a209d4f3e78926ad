"""What tells whether anything has changed: a few numbers, read by one statement."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, func, literal, select, union_all

from ebla.catalog import schema as s


def read(connection: Connection, now: int) -> dict[str, int]:
    """The counters of the catalog, and numbers of what changes without a commit: processes, leases, troubles."""
    living = s.processes.c.expires_at > now
    parts: list[Select[Any]] = [
        select(s.counters.c.name, s.counters.c.value),
        _one("processes", select(func.count()).select_from(s.processes).where(living)),
        _one("started_at", select(func.max(s.processes.c.started_at)).where(living)),
        _one("terms", select(func.sum(s.leases.c.term))),
        _one("troubles", select(func.count()).select_from(s.troubles)),
        _one("trouble_at", select(func.max(s.troubles.c.last_at))),
    ]
    return {row.name: int(row.value or 0) for row in connection.execute(union_all(*parts))}


def _one(name: str, value: Select[Any]) -> Select[Any]:
    return select(literal(name).label("name"), value.scalar_subquery().label("value"))
