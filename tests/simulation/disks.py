"""Files of nodes: which node has which run, and what is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ebla.base.ids import NodeId, RunId, TabletId, Token, TransactionId, Version
from ebla.errors import StorageError, StorageFullError
from ebla.model.relation import SPANS_TABLETS, Relation, Run, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.model.tablets import spread_of, tablet_of, token_range
from ebla.storage.files import run_path
from simulation.model import token

if TYPE_CHECKING:
    from simulation.cluster import Cluster
    from simulation.hosts import Host

T = TypeVar("T")
R = TypeVar("R")
Rows = Mapping[int, int | None]
"""Values by key; `None` is a tombstone."""


@dataclass(kw_only=True)
class Disk:
    """The storage root of one node."""

    node: NodeId
    up: bool = True
    full: bool = False
    lost: bool = False
    """For ever."""
    files: dict[str, tuple[int, Rows]] = field(default_factory=dict)
    """By path: bytes and rows."""

    # What a sweep asks of a storage root.

    @property
    def is_writable(self) -> bool:
        return self.up

    def listing(self) -> list[tuple[str, int, bool]]:
        return [(path, size, False) for path, (size, _) in sorted(self.files.items())]

    def remove(self, path: str) -> bool:
        if not self.up:
            raise StorageError(f"{self.node}: expected its root, found none")
        return self.files.pop(path, None) is not None

    def put(self, path: str, size: int, rows: Rows) -> None:
        if not self.up:
            raise StorageError(f"{self.node}: expected its root, found none")
        if self.full:
            raise StorageFullError(f"{self.node}: expected room, found none")
        self.files[path] = size, rows


class Copies:
    """The files of all nodes, as one process copies them. A copy takes time, in which anything may happen."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._world = host.world
        self._disks = host.world.roots()

    @property
    def writable(self) -> frozenset[NodeId]:
        return frozenset(node for node, disk in self._disks.items() if disk.up)

    def size(self, node: NodeId, path: str) -> int | None:
        disk = self._disks[node]
        return disk.files[path][0] if disk.up and path in disk.files else None

    def source(self, path: str, size: int, among: Collection[NodeId]) -> NodeId | None:
        return next((one for one in among if one in self._disks and self.size(one, path) == size), None)

    def copy(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        world, found = self._world, self._disks[source].files.get(path)
        assert found is not None
        self._disks[target].put(beside, *found)
        try:
            self._host.wait(world.copy_us())
            if not self._disks[source].up:
                raise StorageError(f"{source}: expected its root, found none")
        except Exception:
            if self._disks[target].up:
                self._disks[target].files.pop(beside, None)
            raise

    @property
    def near(self) -> frozenset[NodeId]:
        return frozenset(self._disks)

    def flush(self, target: NodeId, beside: str) -> None:
        """What is put here is stored."""

    def settle(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        disk = self._disks[target]
        if not disk.up or beside not in disk.files:
            raise StorageError(f"{target}: expected a copy of {path}, found none")
        disk.put(path, *disk.files[beside])
        disk.remove(beside)
        self._world.catalog.count("files copied")

    def flush_names(self, node: NodeId, paths: Sequence[str]) -> None:
        """What is put here lasts."""

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [function(item) for item in items]


# ---- runs -----------------------------------------------------------------------------------------------


def of_tablets(rows: Rows, tablets: Collection[TabletId], count: int) -> dict[int, int | None]:
    """The rows of some tablets of a map."""
    return {key: value for key, value in rows.items() if tablet_of(Token(token(key)), count) in tablets}


def write_level0(world: Cluster, relation: Relation, transaction: TransactionId, rows: Rows) -> list[Run]:
    """One run for each set of replicas, on those of its nodes that take it, as the writer of a process does: beside a
    move for fewer and wider sets, where all of their nodes do."""
    runs, roots = list[Run](), world.roots()
    sets = relation.joint_sets({tablet_of(Token(token(key)), relation.tablets) for key in rows})
    if not all(node in roots and roots[node].up and not roots[node].full for nodes in sets for node in nodes):
        sets = relation.replica_sets()
    for number, (nodes, tablets) in enumerate(sorted(sets.items())):
        part = of_tablets(rows, tablets, relation.tablets)
        if part:
            tokens = sorted(map(token, part))
            over = {tablet_of(Token(one), relation.tablets) for one in tokens}
            run = Run(
                id=RunId(f"{relation.id}-{transaction}-{number}"),
                relation=relation.id,
                level=0,
                tablet=SPANS_TABLETS if relation.tablets > 1 else TabletId(0),
                token_min=Token(tokens[0]),
                token_max=Token(tokens[-1]),
                rows=len(part),
                tombstones=sum(value is None for value in part.values()),
                bytes=world.chance.randint(100, 3000),
                path=run_path(relation.id, transaction, number),
                nodes=(),
                transaction=transaction,
                schema_version=relation.schema_version,
                spread=spread_of(over, relation.tablets),
            )
            runs.append(written(world, relation, run, nodes, part))
    return runs


def write_level1(
    world: Cluster, relation: Relation, transaction: TransactionId, rows: Rows, tablets: Iterable[TabletId], first: int
) -> list[Run]:
    """One run for each of some tablets that has rows."""
    runs = []
    for number, tablet in enumerate(tablets, start=first):
        part = of_tablets(rows, [tablet], relation.tablets)
        if part:
            low, high = token_range(tablet, relation.tablets)
            run = Run(
                id=RunId(f"{relation.id}-{transaction}-{number}"),
                relation=relation.id,
                level=1,
                tablet=tablet,
                token_min=low,
                token_max=high,
                rows=len(part),
                tombstones=0,
                bytes=200 * len(part),
                path=run_path(relation.id, transaction, number),
                nodes=(),
                transaction=transaction,
                schema_version=relation.schema_version,
                source=RunSource.COMPACTION,
            )
            runs.append(written(world, relation, run, relation.writes_to(tablet), part))
    return runs


def written(world: Cluster, relation: Relation, run: Run, nodes: Sequence[NodeId], rows: Rows) -> Run:
    """Write a file under the roots of nodes; `StorageError`: too few of them take it."""
    roots, done = world.roots(), []
    for node in nodes:
        if node in roots and roots[node].up and not roots[node].full:
            roots[node].put(run.path, run.bytes, rows)
            done.append(node)
    if len(done) < min(relation.min_copies, len(nodes)):
        raise StorageError(f"{run.path}: expected {relation.min_copies} copies, found {len(done)}")
    return replace(run, nodes=tuple(done))


def merged(snapshot: Snapshot, contents: Mapping[RunId, Rows]) -> dict[int, int]:
    """The rows of a snapshot: level 1, and above it what of level 0 is not folded yet."""
    found: dict[int, int | None] = {}
    for run in snapshot.level1:
        found |= contents[run.id]
    for run in snapshot.level0:
        for key, value in contents[run.id].items():
            tablet = tablet_of(Token(token(key)), snapshot.relation.tablets)
            if run.begin_version > Version(snapshot.cutoffs.get(tablet, BEGINNING)):
                found[key] = value
    return {key: value for key, value in found.items() if value is not None}
