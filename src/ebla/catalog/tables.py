"""The catalog's tables as they are, for those who show them: `SELECT … FROM system.<name>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, FromClause, Row, select

from ebla.catalog import schema as s
from ebla.catalog import schema_access as access

_CLUSTER = [one for one in s.topology_state.columns if one.name not in ("key", "topology_version", "balancing")]
"""What `topology` says in each of its rows: it is the same for the whole cluster."""

TABLES: dict[str, FromClause] = {
    **{table.name: table for table in s.metadata.sorted_tables},
    access.users.name: select(*(one for one in access.users.columns if one.name != "token_digest")).subquery(),
    access.grants.name: select(s.relations.c.name.label("relation"), *access.grants.columns)
    .join(s.relations, s.relations.c.relation_id == access.grants.c.relation_id)
    .where(s.relations.c.dropped_version.is_(None))
    .subquery(),
    s.topology.name: select(s.topology, *_CLUSTER)
    .join(s.topology_state, s.topology_state.c.key == s.topology.c.key)
    .subquery(),
}


def rows(connection: Connection, name: str) -> Sequence[Row[Any]]:
    return connection.execute(select(TABLES[name])).all()
