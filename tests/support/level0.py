"""Runs as files, and a dictionary that knows what they should come to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from ebla.base.caches import SHARES, CacheName, Caches, Lru
from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TransactionId, Version
from ebla.model.relation import DELETED, SPANS_TABLETS, TOKEN, Kind, Relation, Run
from ebla.model.snapshot import BEGINNING, Snapshot, assemble
from ebla.model.tablets import ALL, token_range
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath, base_path
from ebla.query.overlay import Source
from ebla.storage import runs as rf
from ebla.storage.duck import Duck
from ebla.storage.files import Root
from ebla.storage.layers import Key, Layer, key_of
from ebla.storage.store import Store
from ebla.tables.level0 import LevelZero
from ebla.values import token as tokens
from support.relations import relation

NODE = NodeId("n")
TABLETS = 2
TABLE = replace(relation("t", "f s b", "f double", "s string", "b int", "x bigint"), tablets=TABLETS)
INDEX = replace(
    relation("i", "x f s b", "f double", "s string", "b int", "x bigint"),
    tablets=TABLETS,
    kind=Kind.INDEX,
    options={"placed_by": ["f", "s", "b"]},
)
"""Entries of the rows of the table, sorted by what they hold."""
ARROW = pa.schema([("f", pa.float64()), ("s", pa.string()), ("b", pa.int32()), ("x", pa.int64())])

KEYS = st.tuples(
    st.sampled_from([None, -math.inf, -1.5, 0.0, 2.5, math.nan]),
    st.sampled_from([None, "", "a", "é", "🙂"]),
    st.sampled_from([0, 1]),
)
ROWS = st.dictionaries(KEYS, st.none() | st.integers(0, 999), max_size=12)

Rows = Mapping[Key, int | None]
"""Keys and what was written there; `None` is a tombstone."""


@dataclass
class Level0:
    """Runs of one relation in a folder, and the folds of its tablets."""

    folder: Path
    relation: Relation = TABLE
    runs: list[Run] = field(default_factory=list)
    written: list[Rows] = field(default_factory=list)
    folds: list[tuple[Version, TabletId, Version]] = field(default_factory=list)
    """At which version, which tablet, up to which version."""
    version: int = 0
    below: list[Run] = field(default_factory=list)
    """Level 1."""
    bottom: dict[Key, int | None] = field(default_factory=dict)
    """What it holds."""

    def append(self, rows: Rows, *, with_tokens: bool = True) -> Run:
        self.version += 1
        table = _table(rows)
        if with_tokens:
            table = table.append_column(TOKEN, pa.array(tokens.tokens(table, ["f", "s", "b"])))
        made = self._written(table, SPANS_TABLETS, f"{self.version}")
        self.runs.append(made)
        self.written.append(rows)
        return made

    def append_tablets(self, rows: Rows) -> None:
        """One run for each tablet, as Spark writes them."""
        self.version += 1
        for tablet, part in self._by_tablet(rows).items():
            self.runs.append(self._written(_table(part), tablet, f"{self.version}-{tablet}"))
            self.written.append(part)

    def begin(self, rows: Rows) -> None:
        """Rows that level 1 has from the beginning."""
        self.bottom = dict(rows)
        for tablet, part in self._by_tablet(rows).items():
            made = self._written(_table(part).drop_columns([DELETED]), tablet, f"level1-{tablet}")
            self.below.append(replace(made, level=1))

    def _by_tablet(self, rows: Rows) -> dict[TabletId, dict[Key, int | None]]:
        found: dict[TabletId, dict[Key, int | None]] = {}
        for key, tablet in zip(rows, tablets_of(list(rows)), strict=True):
            found.setdefault(tablet, {})[key] = rows[key]
        return found

    def _written(self, table: pa.Table, tablet: TabletId, name: str) -> Run:
        relation, path = self.relation, f"{name}.parquet"
        order = rf.in_order(table, [(c.physical, c.physical in relation.descending) for c in relation.key])
        table = table.take(order).replace_schema_metadata({rf.ORDERED: b"1"})
        size = Root(str(self.folder), fsync=False).write_parquet(table, path, row_group_rows=3)
        tokens_in = ALL if tablet == SPANS_TABLETS else token_range(tablet, TABLETS)
        return Run(
            id=RunId(f"run-{name}"),
            relation=RelationId(1),
            level=0,
            tablet=tablet,
            token_min=tokens_in.first,
            token_max=tokens_in.last,
            rows=table.num_rows,
            tombstones=pc.sum(table[DELETED].cast(pa.int64())).as_py() or 0 if DELETED in table.schema.names else 0,
            bytes=size,
            path=path,
            nodes=(NODE,),
            transaction=TransactionId(self.version),
            schema_version=1,
            begin_version=Version(self.version),
        )

    def fold(self, tablet: int) -> None:
        """A tablet contains everything up to now."""
        self.version += 1
        self.folds.append((Version(self.version), TabletId(tablet), Version(self.version - 1)))

    def snapshot(self, version: int | None = None) -> Snapshot:
        at = self.version if version is None else version
        runs = [run for run in self.runs if run.begin_version <= at]
        folds = [(token_range(tablet, TABLETS), cutoff) for since, tablet, cutoff in self.folds if since <= at]
        return assemble(self.relation, Version(at), [*self.below, *runs], folds, {})

    def expected(self, snapshot: Snapshot) -> dict[Key, int | None]:
        """The last mutation of each key that counts, over level 1."""
        found: dict[Key, int | None] = dict(self.bottom)
        for run, rows in zip(self.runs, self.written, strict=True):
            if run.begin_version <= snapshot.version:
                for key, tablet in zip(rows, tablets_of(list(rows)), strict=True):
                    if run.begin_version > snapshot.cutoffs.get(tablet, BEGINNING):
                        found[key] = rows[key]
        return found

    def source(self, snapshot: Snapshot, store: Store, rows_max: int = 200_000) -> Source:
        cache = rf.LevelZeroCache(Lru("level 0", 2**28))
        roots = {NODE: Root(str(self.folder))}
        duck = Duck(2**28)
        return Source(snapshot=snapshot, roots=roots, store=store, cache=cache, lookups=duck, level0_rows_max=rows_max)

    def layers(self, store: Store, path: AccessPath, snapshot: Snapshot) -> list[Layer]:
        source = self.source(snapshot, store)
        return [part for part in store.layers(source.roots, path, snapshot, source.cache) if isinstance(part, Layer)]


def store_of(layers_bytes_max: int = 2**28) -> Store:
    """Caches of which layers have `layers_bytes_max` bytes."""
    return Store(Caches(-(-layers_bytes_max * sum(SHARES.values()) // SHARES[CacheName.LAYERS])))


def newest_of(level0: Level0, keys: Sequence[Key], rows_max: int) -> dict[Key, int | None]:
    """The last mutation of each of these keys, as a lookup finds it with up to `rows_max` rows in memory."""
    relation = level0.relation
    cache, roots = rf.LevelZeroCache(Lru("level 0", 2**28)), {NODE: Root(str(level0.folder))}
    with duckdb.connect() as cursor:
        asked = _table(dict.fromkeys(keys, 0)).select([column.physical for column in relation.identity])
        lookup = LevelZero(level0.snapshot(), roots, cache, cursor, rows_max)
        found = lookup.of_keys(asked, [column for column in relation.columns if column.physical == "x"])
    values = zip(found["x"].to_pylist(), found[DELETED].to_pylist(), strict=True)
    return dict(zip(keys_of(found), (None if gone else x for x, gone in values), strict=True))


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
