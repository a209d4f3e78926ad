"""Level 0 of a snapshot, asked for a few rows, at a cost that does not depend on how much of it there is.

The smallest runs, up to `level0_rows_max` rows together, are in memory. Every other run is a sorted file like those of
level 1: DuckDB reads the row groups of it that can have a row that is asked for. Rows by other columns than the key are
*candidates*: an older row of the same key may match where the newest does not. So the newest mutation of each
candidate's key is looked up, and the candidate counts if it is that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.ids import NodeId, Version
from ebla.base.settings import Settings
from ebla.model.relation import DELETED, TOKEN, Column, Run
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.storage.duck import READ, literally, quoted
from ebla.storage.files import Root
from ebla.storage.node_storage import NodeStorage
from ebla.storage.runs import VERSION
from ebla.values import token as tokens
from ebla.values import types

if TYPE_CHECKING:
    import duckdb


def in_memory(runs: Sequence[Run], rows_max: int) -> tuple[list[Run], list[Run]]:
    """The smallest runs, up to `rows_max` rows together, and the others; each in the order given."""
    kept: set[str] = set()
    rows = 0
    for run in sorted(runs, key=lambda one: one.rows):
        rows += run.rows
        if rows > rows_max:
            break
        kept.add(run.id)
    return [run for run in runs if run.id in kept], [run for run in runs if run.id not in kept]


def on_driver(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether rows are looked up without a Spark job: all files that are not in memory are of today's schema."""
    _, files = in_memory(snapshot.level0, settings.level0_rows_max)
    return all(r.schema_version == snapshot.relation.schema_version for r in (*snapshot.level1, *files))


class LevelZero:
    """Level 0 of one snapshot, for lookups with one cursor."""

    @classmethod
    def of(
        cls,
        storage: NodeStorage,
        settings: Settings,
        snapshot: Snapshot,
        roots: Mapping[NodeId, Root],
        cursor: duckdb.DuckDBPyConnection,
    ) -> LevelZero:
        return cls(snapshot, roots, storage.level0, cursor, settings.level0_rows_max)

    def __init__(
        self,
        snapshot: Snapshot,
        roots: Mapping[NodeId, Root],
        cache: rf.LevelZeroCache,
        cursor: duckdb.DuckDBPyConnection,
        rows_max: int,
    ) -> None:
        """Up to `rows_max` rows of it are in memory."""
        self._snapshot = snapshot
        self._relation = snapshot.relation
        self._roots = roots
        self._cache = cache
        self._cursor = cursor
        self._runs, self._files = in_memory(snapshot.level0, rows_max)
        self._identity = [column.physical for column in self._relation.identity]

    @property
    def rows(self) -> int:
        """How many mutations are in memory."""
        return sum(run.rows for run in self._runs)

    def of_keys(self, keys: pa.Table, columns: Sequence[Column]) -> pa.Table:
        """The last mutation of each of these rows, if it has one: identity, columns, `_deleted` and `_version`.

        `keys` has the identity under physical names, in its types.
        """
        wanted = types.normalize_keys(keys, self._identity)
        found = np.unique(tokens.tokens(wanted, self._identity))
        names = list(dict.fromkeys([*self._identity, *(column.physical for column in columns)]))
        small = rf.mutations(self._relation, self._runs, self._roots, self._cache, self._snapshot, found)
        parts = [small.select([*names, DELETED, VERSION])]
        self._cursor.register("wanted_keys", wanted)
        if small.num_rows:  # other keys may have the same tokens
            self._cursor.register("small", parts[0])
            same = self._cursor.sql(f"SELECT * FROM small r SEMI JOIN wanted_keys w ON {self._match(wanted)}")
            parts = [same.to_arrow_table().cast(parts[0].schema)]
        parts += self._newest_in_files(wanted, names, parts[0])
        if len(parts) == 1:
            return parts[0]
        return rf.last_of_each_key(pa.concat_tables(parts).sort_by(VERSION), self._identity)

    def _newest_in_files(self, wanted: pa.Table, names: Sequence[str], small: pa.Table) -> list[pa.Table]:
        """What files have of the wanted keys, newest commit first: a key is not looked for behind where it was found.

        So after a change of all rows no file of an earlier commit is read. `small`: what is in memory of these keys.
        """
        parts: list[pa.Table] = []
        left, newer, settled = wanted, small, 0
        for version, runs in _newest_first(self._files):
            above = newer.filter(pc.greater(newer[VERSION], int(version)))
            if above.num_rows > settled:
                left, settled = self._without(wanted, above), above.num_rows
            having = self._having(runs, np.unique(tokens.tokens(left, self._identity))) if left.num_rows else []
            if not having:
                continue
            self._cursor.register("wanted_keys", left)
            for part in self._read(having, names, f"SEMI JOIN wanted_keys w ON {self._match(left)}", ""):
                parts.append(self._counted(part).select(small.schema.names).cast(small.schema))
                newer = pa.concat_tables([newer, parts[-1]])
        return parts

    def _match(self, wanted: pa.Table) -> str:
        identity = self._relation.identity
        return " AND ".join(equal(c, wanted[c.physical], "r", f"w.{quoted(c.physical)}") for c in identity)

    def _without(self, wanted: pa.Table, found: pa.Table) -> pa.Table:
        """Keys that no row that was found has."""
        self._cursor.register("all_keys", wanted)
        self._cursor.register("found_rows", found)
        same = " AND ".join(f"a.{quoted(n)} IS NOT DISTINCT FROM f.{quoted(n)}" for n in self._identity)
        left = self._cursor.sql(f"SELECT a.* FROM all_keys a ANTI JOIN found_rows f ON {same}")
        return left.to_arrow_table().cast(wanted.schema)

    def candidates(
        self, matching: str, columns: Sequence[Column], limit: int | None, order: str = ""
    ) -> Iterator[tuple[pa.Table, bool]]:
        """Rows that match: identity, columns and `_version`; of a row also those that were replaced.

        `matching` says which rows of `r`: `SEMI JOIN …` with a registered table, or `WHERE …`. Of each commit no more
        rows are read than `limit`, the first in an order if one is given; beside them stands whether there may be more.
        """
        names = list(dict.fromkeys([*self._identity, *(column.physical for column in columns)]))
        end = f"{order and ' ORDER BY '}{order}" + ("" if limit is None else f" LIMIT {limit:d}")
        if self._runs:
            kept = rf.all_mutations(self._relation, self._runs, self._roots, self._cache, self._snapshot)
            self._cursor.register("kept_mutations", kept.select([*names, DELETED, VERSION]))
            selected = ", ".join(f"r.{quoted(name)}" for name in [*names, VERSION])
            rows = f"SELECT * FROM kept_mutations r {matching}"
            live = f"SELECT {selected} FROM ({rows}) r WHERE NOT coalesce(r.{DELETED}, false)"
            part = self._cursor.sql(live + (end if order else "")).to_arrow_table()
            yield part, bool(order) and limit is not None and part.num_rows >= limit
        for part in self._read(self._files, names, matching, end):
            live_rows = self._counted(part.filter(pc.invert(part[DELETED])))
            yield live_rows.select([*names, VERSION]), limit is not None and part.num_rows >= limit

    def _having(self, runs: Sequence[Run], found: np.ndarray) -> list[Run]:
        """Files that can have a row with one of these tokens, which are sorted."""
        return [
            run
            for run in runs
            if np.searchsorted(found, run.token_min) < np.searchsorted(found, run.token_max, side="right")
        ]

    def _read(self, runs: Sequence[Run], names: Sequence[str], matching: str, end: str) -> Iterator[pa.Table]:
        """Matching rows of files, those of one commit at a time; `end` is the end of what reads them."""
        together: dict[tuple[Version, bool], list[str]] = {}
        for run, path in zip(runs, rf.paths(self._roots, runs, Root.inner), strict=True):
            together.setdefault((run.begin_version, run.tombstones > 0), []).append(literally(path))
        for (version, deletes), paths in together.items():
            read = ", ".join(map(quoted, names)) + (f", {DELETED}" if deletes else "")
            rows = f"SELECT {read} FROM {READ}"
            selected = ", ".join(f"r.{quoted(name)}" for name in names)
            deleted = f"coalesce(r.{DELETED}, false)" if deletes else "false"
            text = (
                f"SELECT {selected}, {deleted} AS {DELETED}, CAST({version:d} AS BIGINT) AS {VERSION} "
                f"FROM ({rows}) r {matching}"
            )
            yield self._cursor.sql(text + end, params=[paths]).to_arrow_table()

    def _counted(self, part: pa.Table) -> pa.Table:
        """Without rows of tablets that have folded the commit that they are of."""
        if self._snapshot.uniform_cutoff or not part.num_rows:
            return part
        fitted = part.select(self._identity).cast(rf.physical_schema(self._relation.identity))
        token = tokens.tokens(fitted, self._identity)
        version = Version(part[VERSION][0].as_py())
        return rf.counting(part.append_column(TOKEN, pa.array(token, pa.int64())), version, self._snapshot)


def _newest_first(files: Sequence[Run]) -> list[tuple[Version, list[Run]]]:
    """Files by the commit that they are of."""
    found: dict[Version, list[Run]] = {}
    for run in sorted(files, key=lambda one: one.begin_version, reverse=True):
        found.setdefault(run.begin_version, []).append(run)
    return list(found.items())


def equal(column: Column, given: pa.ChunkedArray, table: str, other: str) -> str:
    """Plain equality where no value is NULL: DuckDB then skips row groups that cannot have one.

    Statistics leave NaN out, and DuckDB believes them, so binary fractions are compared row by row.
    """
    is_plain = not given.null_count and column.type not in ("float", "double")
    return f"{table}.{quoted(column.physical)} {'=' if is_plain else 'IS NOT DISTINCT FROM'} {other}"
