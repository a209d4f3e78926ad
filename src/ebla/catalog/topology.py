"""Nodes, as commits write them."""

from __future__ import annotations

from sqlalchemy import Connection, and_, exists, insert, select, update

from ebla.catalog import schema as s
from ebla.model import changes as c


def put(connection: Connection, change: c.PutNode, now: int) -> None:
    node = change.node
    where = and_(s.topology.c.key == "topology", s.topology.c.host_id == node.id)
    values = {
        "datacenter": node.datacenter,
        "rack": node.rack,
        "shard_count": node.shards,
        "node_state": node.state,
        "storage_root": node.root,
    }
    if connection.execute(select(exists().where(where))).scalar():
        connection.execute(update(s.topology).where(where).values(**values))
    else:
        connection.execute(
            insert(s.topology),
            {"key": "topology", "host_id": node.id, "release_version": "", "joined_at": now, **values},
        )
