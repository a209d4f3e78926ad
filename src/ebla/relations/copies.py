"""`system.under_replicated` and SHOW REPLICATION: which copies of runs are missing, as the manifest knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import NodeId, TabletId
from ebla.catalog import manifest, reads, topology
from ebla.model import copies
from ebla.model.relation import Kind, Relation, Run
from ebla.values import types

UNDER_REPLICATED = {
    "relation": "string",
    "kind": "string",
    "tablet": "bigint",
    "node": "string",
    "runs": "bigint",
    "bytes": "bigint",
}
REPLICATION = {
    "name": "string",
    "kind": "string",
    "tablets": "bigint",
    "replication": "bigint",
    "min_copies": "bigint",
    "missing_copies": "bigint",
    "missing_bytes": "bigint",
    "lacking_nodes": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A node lacks a run that it should have, of this tablet and maybe of others of its tablets."""

    relation: Relation
    run: Run
    node: NodeId
    tablet: TabletId


def missing(connection: Connection, relation: Relation) -> list[Missing]:
    return [
        Missing(relation=relation, run=run, node=node, tablet=tablet)
        for run in manifest.with_few_copies(connection, relation)
        for node, tablet in copies.missing(relation, run).items()
    ]


def relations(connection: Connection) -> Iterator[Relation]:
    for kind in Kind:
        for number in reads.relation_ids(connection, kind):
            if (found := reads.relation_by_id(connection, number)) is not None:
                yield found


def all_missing(connection: Connection) -> list[tuple[Relation, list[Missing]]]:
    """The missing copies of each relation that lacks any."""
    if len(reads.roots(connection)) < 2:
        return []
    found = [(relation, missing(connection, relation)) for relation in relations(connection)]
    return [(relation, lacking) for relation, lacking in found if lacking]


def table(connection: Connection) -> pa.Table:
    """A row for each tablet and each node that lacks runs of it."""
    rows: list[dict[str, object]] = []
    members = topology.members(connection)
    for relation, lacking in all_missing(connection):
        runs: Counter[tuple[TabletId, NodeId]] = Counter((one.tablet, one.node) for one in lacking)
        sizes: Counter[tuple[TabletId, NodeId]] = Counter()
        for one in lacking:
            sizes[one.tablet, one.node] += one.run.bytes
        rows += [
            {
                "relation": relation.name,
                "kind": relation.kind.value,
                "tablet": tablet,
                "node": members[node].name,
                "runs": runs[tablet, node],
                "bytes": sizes[tablet, node],
            }
            for tablet, node in sorted(runs)
        ]
    return types.table_of(UNDER_REPLICATED, rows)


def summary(connection: Connection) -> pa.Table:
    """A row for each relation."""
    rows: list[dict[str, object]] = []
    members = topology.members(connection)
    for relation in sorted(relations(connection), key=lambda one: one.name):
        lacking = missing(connection, relation)
        rows.append(
            {
                "name": relation.name,
                "kind": relation.kind.value,
                "tablets": relation.tablets,
                "replication": relation.replication,
                "min_copies": relation.min_copies,
                "missing_copies": len(lacking),
                "missing_bytes": sum(one.run.bytes for one in lacking),
                "lacking_nodes": ", ".join(sorted({members[one.node].name for one in lacking})) or None,
            }
        )
    return types.table_of(REPLICATION, rows)
