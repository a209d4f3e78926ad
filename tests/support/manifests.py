"""A table and its runs as values, for tests of what is decided from a manifest."""

from __future__ import annotations

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TransactionId, Version
from ebla.model.relation import SPANS_TABLETS, Kind, Relation, Run
from ebla.model.tablets import ALL, token_range

NODE = NodeId("node1")


def table_of(tablets: int) -> Relation:
    return Relation(
        id=RelationId(1),
        name="orders",
        kind=Kind.TABLE,
        tablets=tablets,
        replication=1,
        schema_version=1,
        placement_version=1,
        columns=(),
        placement=((NODE,),) * tablets,
        horizon=Version(0),
        created_version=Version(0),
    )


def run_of(
    table: Relation,
    name: str,
    begin: int,
    *,
    tablet: int = SPANS_TABLETS,
    level: int = 0,
    rows: int = 10,
    dead: int = 0,
) -> Run:
    """A run of one tablet, or of all."""
    tokens = ALL if tablet == SPANS_TABLETS else token_range(tablet, table.tablets)
    return Run(
        id=RunId(name),
        relation=table.id,
        level=level,
        tablet=TabletId(tablet),
        token_min=tokens.first,
        token_max=tokens.last,
        rows=rows,
        tombstones=dead,
        bytes=1,
        path=f"{name}.parquet",
        nodes=(NODE,),
        transaction=TransactionId(1),
        schema_version=1,
        begin_version=Version(begin),
    )
