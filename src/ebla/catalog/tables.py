"""The catalog's tables as they are, for those who show them: `SELECT … FROM system.<name>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, select

from ebla.catalog import schema

TABLES: dict[str, Table] = {t.name: t for t in schema.metadata.sorted_tables}


def rows(connection: Connection, name: str) -> Sequence[Row[Any]]:
    return connection.execute(select(TABLES[name])).all()
