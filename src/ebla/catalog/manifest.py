"""The manifest, counted: how many runs, rows and bytes relations have, and which files a transaction recorded.

A run has a row in the manifest for each of its copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, literal, literal_column, or_, select

from ebla.base.ids import NodeId, RelationId, TransactionId
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.reads import merge_replicas
from ebla.catalog.rows import State
from ebla.model.relation import FOREVER, Relation, Run, RunState
from ebla.model.tablets import bits_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the manifest says of one relation's runs."""

    rows: int = 0
    """Rows of level 1, and level 0's upserts. A key that both have is counted twice."""
    level0_runs: int = 0
    level1_runs: int = 0
    bytes: int = 0
    """Bytes of the newest version, in all copies."""
    old_bytes: int = 0
    """Bytes that newer versions replaced and vacuum has not removed yet."""

    @property
    def exact(self) -> bool:
        """Whether no key is counted twice."""
        return self.level0_runs == 0 or (self.level0_runs == 1 and self.level1_runs == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """How many runs and rows a relation has in its levels."""

    level0_runs: int
    level0_rows: int
    level1_rows: int


def sizes(connection: Connection) -> dict[int, Size]:
    """Sums by relation. Copies count as bytes, not as rows."""
    runs = (
        select(
            s.runs.c.relation_id,
            s.runs.c.level,
            (s.runs.c.end_version == FOREVER).label("visible"),
            func.max(s.runs.c.row_count - s.runs.c.tombstones).label("row_count"),
            func.sum(s.runs.c.bytes).label("bytes"),
        )
        .where(s.runs.c.state == RunState.NORMAL.value)
        .group_by(s.runs.c.run_id, s.runs.c.relation_id, s.runs.c.level, s.runs.c.end_version)
        .subquery()
    )
    totals = connection.execute(
        select(
            runs.c.relation_id,
            runs.c.level,
            runs.c.visible,
            func.count().label("runs"),
            func.sum(runs.c.row_count).label("row_count"),
            func.sum(runs.c.bytes).label("bytes"),
        ).group_by(runs.c.relation_id, runs.c.level, runs.c.visible)
    )
    sums: dict[int, dict[str, int]] = {}
    for total in totals:
        found = sums.setdefault(total.relation_id, {})
        if not total.visible:
            found["old_bytes"] = found.get("old_bytes", 0) + int(total.bytes)
            continue
        found["rows"] = found.get("rows", 0) + int(total.row_count)
        found["bytes"] = found.get("bytes", 0) + int(total.bytes)
        found[f"level{total.level}_runs"] = int(total.runs)
    return {relation: Size(**found) for relation, found in sums.items()}


def levels(connection: Connection, relation: Relation) -> Levels:
    """What the visible runs of a relation hold, by level."""
    runs = (
        select(s.runs.c.run_id, s.runs.c.level, s.runs.c.row_count)
        .where(
            s.runs.c.relation_id == relation.id,
            s.runs.c.end_version == FOREVER,
            s.runs.c.state == RunState.NORMAL.value,
        )
        .distinct()
        .subquery()
    )
    sums = select(runs.c.level, func.count(), func.sum(runs.c.row_count)).group_by(runs.c.level)
    found = {level: (count, int(rows)) for level, count, rows in connection.execute(sums)}
    count, rows = found.get(0, (0, 0))
    return Levels(level0_runs=count, level0_rows=rows, level1_rows=found.get(1, (0, 0))[1])


def live(connection: Connection, index: Relation) -> tuple[int, int]:
    """How many entries an index has, and how many bytes one copy of them takes, on whichever nodes its tablets lie."""
    runs = (
        select(s.runs.c.run_id, s.runs.c.row_count, s.runs.c.tombstones, s.runs.c.bytes)
        .where(s.runs.c.relation_id == index.id, s.runs.c.end_version == FOREVER)
        .distinct()
        .subquery()
    )
    sums = select(func.sum(runs.c.row_count - 2 * runs.c.tombstones), func.sum(runs.c.bytes))
    entries, size = connection.execute(sums).one()
    return max(0, int(entries or 0)), int(size or 0)


def with_few_copies(state: State, relation: Relation) -> list[Run]:
    """The runs of a relation, ended ones too, that may lack a copy: a run in one tablet has one on each replica. What
    other nodes have does not count."""
    if not isinstance(state, Connection):
        return merge_replicas(rows.find(state, s.runs, relation_id=relation.id), relation.tablets)
    r, bits = s.runs.c, bits_of(relation.tablets)
    place: ColumnElement[int] = (
        r.token_min.op(">>")(literal_column(str(64 - bits))) + 2 ** (bits - 1) if bits else literal(0)
    )
    replica = and_(
        s.tablets.c.relation_id == r.relation_id, s.tablets.c.tablet_id == place, s.tablets.c.host_id == r.host_id
    )
    few = select(r.run_id).outerjoin_from(s.runs, s.tablets, replica).where(r.relation_id == relation.id)
    few = few.group_by(r.run_id).having(func.count(s.tablets.c.host_id) < relation.replication)
    those = select(s.runs).where(r.relation_id == relation.id, or_(r.level == 0, r.run_id.in_(few)))
    return merge_replicas(state.execute(those), relation.tablets)


def recorded(connection: Connection, relation: RelationId, transaction: TransactionId) -> set[str]:
    """The paths of the runs that a transaction brought to a relation."""
    paths = select(s.runs.c.path).where(s.runs.c.relation_id == relation, s.runs.c.transaction_id == transaction)
    return set(connection.execute(paths).scalars())


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """The file of a run, and the nodes that have a copy of it."""

    relation: RelationId
    path: str
    bytes: int
    hosts: frozenset[NodeId]


def files_on(state: State, node: NodeId) -> list[File]:
    """Every file that a node has by the manifest, by path."""
    return _files(_copies_of(state, node))


def files(connection: Connection) -> list[File]:
    """Every file that the manifest names, by path."""
    r = s.runs.c
    return _files(connection.execute(select(r.relation_id, r.path, r.bytes, r.host_id)))


def _files(copies: Iterable[Any]) -> list[File]:
    hosts: dict[tuple[str, int, RelationId], set[NodeId]] = {}
    for row in copies:
        hosts.setdefault((row.path, row.bytes, RelationId(row.relation_id)), set()).add(NodeId(row.host_id))
    return [
        File(relation=relation, path=path, bytes=size, hosts=frozenset(of))
        for (path, size, relation), of in sorted(hosts.items())
    ]


def _copies_of(state: State, node: NodeId) -> Iterable[Any]:
    """All copies of the runs of which a node has one."""
    r = s.runs.c
    if not isinstance(state, Connection):
        return rows.find(state, s.runs, run_id=frozenset(rows.values(state, r.run_id, host_id=node)))
    mine = select(r.run_id).where(r.host_id == node)
    return state.execute(select(r.relation_id, r.path, r.bytes, r.host_id).where(r.run_id.in_(mine)))
