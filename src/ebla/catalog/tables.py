"""The catalog's tables as they are, for those who show them: `SELECT … FROM system.<name>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, FromClause, Row, case, func, literal, select

from ebla.catalog import schema as s
from ebla.catalog import schema_access as access
from ebla.model.topology import RequestKind

TABLET_DRAINING = "tablet_draining"
"""The state of the topology while tablets leave a node that leaves, is removed or is replaced,"""
TABLET_MIGRATION = "tablet_migration"
"""and while others are in transition."""

_DRAINS = select(s.tablet_transitions.c.tablet_id).where(
    s.tablet_transitions.c.request_id == s.topology_requests.c.id,
    s.topology_requests.c.kind.in_((RequestKind.LEAVE, RequestKind.REMOVE, RequestKind.REPLACE)),
)
_MIDDLE = func.coalesce(
    s.topology_state.c.transition_state,
    case(
        (_DRAINS.exists(), literal(TABLET_DRAINING)),
        (select(s.tablet_transitions.c.tablet_id).exists(), literal(TABLET_MIGRATION)),
    ),
).label(s.topology_state.c.transition_state.name)
"""What the topology is in the middle of: stored while a generation of change streams is committed, and otherwise told
by the tablets in transition."""

_STATE = [_MIDDLE if one.name == _MIDDLE.name else one for one in s.topology_state.columns]
_CLUSTER = [one for one in _STATE if one.name not in ("key", "topology_version", "balancing")]
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
    s.topology_state.name: select(*_STATE).subquery(),
}


def rows(connection: Connection, name: str) -> Sequence[Row[Any]]:
    return connection.execute(select(TABLES[name])).all()
