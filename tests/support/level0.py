"""Level 0 runs as files, and a dictionary that knows what they should come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ebla.base.caches import SHARES, CacheName, Caches, Lru
from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TransactionId, Version
from ebla.model.relation import DELETED, SPANS_TABLETS, TOKEN, Relation, Run
from ebla.model.snapshot import BEGINNING, Snapshot, assemble
from ebla.model.tablets import ALL, token_range
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath, base_path
from ebla.query.streams import Source
from ebla.storage import runs as rf
from ebla.storage.files import Root
from ebla.storage.layers import Key, Layer, key_of
from ebla.storage.store import Store
from ebla.values import token as tokens
from support.relations import relation

NODE = NodeId("n")
TABLETS = 2
TABLE = replace(relation("t", "f s b", "f double", "s string", "b int", "x bigint"), tablets=TABLETS)
ARROW = pa.schema([("f", pa.float64()), ("s", pa.string()), ("b", pa.int32()), ("x", pa.int64())])

Rows = Mapping[Key, int | None]
"""Keys and what was written there; `None` is a tombstone."""


@dataclass
class Level0:
    """Runs of one table in a folder, and the folds of its tablets."""

    folder: Path
    runs: list[Run] = field(default_factory=list)
    written: list[Rows] = field(default_factory=list)
    folds: list[tuple[Version, TabletId, Version]] = field(default_factory=list)
    """At which version, which tablet, up to which version."""
    version: int = 0

    def append(self, rows: Rows, *, with_tokens: bool = True) -> Run:
        self.version += 1
        table = _table(rows)
        if with_tokens:
            table = table.append_column(TOKEN, pa.array(tokens.tokens(table, ["f", "s", "b"])))
        path = f"{self.version}.parquet"
        pq.write_table(table, self.folder / path)
        made = Run(
            id=RunId(f"run-{self.version}"),
            relation=RelationId(1),
            level=0,
            tablet=SPANS_TABLETS,
            token_min=ALL.first,
            token_max=ALL.last,
            rows=table.num_rows,
            tombstones=sum(value is None for value in rows.values()),
            bytes=(self.folder / path).stat().st_size,
            path=path,
            nodes=(NODE,),
            transaction=TransactionId(self.version),
            schema_version=1,
            begin_version=Version(self.version),
        )
        self.runs.append(made)
        self.written.append(rows)
        return made

    def fold(self, tablet: int) -> None:
        """A tablet contains everything up to now."""
        self.version += 1
        self.folds.append((Version(self.version), TabletId(tablet), Version(self.version - 1)))

    def snapshot(self, version: int | None = None) -> Snapshot:
        at = self.version if version is None else version
        runs = [run for run in self.runs if run.begin_version <= at]
        folds = [(token_range(tablet, TABLE.tablets), cutoff) for since, tablet, cutoff in self.folds if since <= at]
        return assemble(TABLE, Version(at), runs, folds, {})

    def expected(self, snapshot: Snapshot) -> dict[Key, int | None]:
        """The last mutation of each key that counts."""
        found: dict[Key, int | None] = {}
        for run, rows in zip(self.runs, self.written, strict=True):
            if run.begin_version <= snapshot.version:
                for key, tablet in zip(rows, tablets_of(list(rows)), strict=True):
                    if run.begin_version > snapshot.cutoffs.get(tablet, BEGINNING):
                        found[key] = rows[key]
        return found

    def source(self, snapshot: Snapshot, store: Store) -> Source:
        cache = rf.LevelZeroCache(Lru("level 0", 2**28))
        return Source(snapshot=snapshot, roots={NODE: Root(str(self.folder))}, store=store, cache=cache)

    def layers(self, store: Store, path: AccessPath, snapshot: Snapshot) -> list[Layer]:
        source = self.source(snapshot, store)
        return store.layers(source.roots, path, snapshot, source.cache)


def store_of(layers_bytes_max: int = 2**28) -> Store:
    """Caches of which layers have so many bytes."""
    return Store(Caches(-(-layers_bytes_max * sum(SHARES.values()) // SHARES[CacheName.LAYERS])))


def path_of(table: Relation = TABLE, *down: str) -> AccessPath:
    """The table as a path, sorted downwards in these columns."""
    path = base_path(table)
    return replace(path, key=tuple(replace(column, descending=column.path in down) for column in path.key))


def tablets_of(keys: Sequence[Key]) -> list[TabletId]:
    found = tokens.tablets_of(tokens.tokens(_table(dict.fromkeys(keys, 0)), ["f", "s", "b"]), TABLETS)
    return [TabletId(int(t)) for t in found]


def ranks(key: Key, path: AccessPath, *, backwards: bool = False) -> Any:
    directions = [column.descending != backwards for column in path.key]
    return tuple(v.ranker(down)(value) for value, down in zip(key, directions, strict=True))


def keys_of(table: pa.Table) -> list[Key]:
    return [key_of(row) for row in zip(*(table[name].to_pylist() for name in ("f", "s", "b")), strict=True)]


def _table(rows: Rows) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    values = list(rows.values())
    arrays = [pa.array(one, kind.type) for one, kind in zip([*columns, values], ARROW, strict=True)]
    table = pa.table(arrays, schema=ARROW)
    return table.append_column(DELETED, pa.array([value is None for value in values], pa.bool_()))
