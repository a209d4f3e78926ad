"""Nodes: what updates of them change."""

from __future__ import annotations

from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, State
from ebla.model import changes as c


def put(state: State, update: c.PutNode, now: int) -> Change:
    node = update.node
    before = rows.one(state, s.topology, key="topology", host_id=node.id)
    return rows.put(
        s.topology,
        key="topology",
        host_id=node.id,
        datacenter=node.datacenter,
        rack=node.rack,
        shard_count=node.shards,
        node_state=node.state,
        storage_root=node.root,
        release_version="" if before is None else before.release_version,
        joined_at=now if before is None else before.joined_at,
    )
