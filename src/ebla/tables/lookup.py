"""Keys found in run files with DuckDB: row groups are pruned by the keys asked for, nothing starts a Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from ebla.base.ids import NodeId, TabletId
from ebla.base.settings import Settings
from ebla.errors import CorruptRunError
from ebla.model.relation import DELETED, Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.storage import runs as rf
from ebla.storage.duck import READ, Duck, literally, quoted
from ebla.storage.files import Root
from ebla.storage.node_storage import NodeStorage
from ebla.tables.level0 import LevelZero
from ebla.values import token as tokens
from ebla.values.columns import python_row


def _equal(left: str, right: str, key: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{quoted(k)} IS NOT DISTINCT FROM {right}.{quoted(k)}" for k in key)


def stored_keys(
    storage: NodeStorage, settings: Settings, snapshot: Snapshot, keys: pa.Table, *, limit: int | None = None
) -> pa.Table:
    """The given keys that have a row in the snapshot."""
    if keys.num_rows == 0:
        return keys
    while True:
        try:
            return _stored_keys(storage, settings, snapshot, keys, limit)
        except duckdb.Error as error:
            if rf.distrust_damaged(snapshot, storage.nodes.all()):
                continue  # with another copy
            raise CorruptRunError(f"{snapshot.relation.name}: expected readable runs, found: {error}") from error


def _stored_keys(
    storage: NodeStorage, settings: Settings, snapshot: Snapshot, keys: pa.Table, limit: int | None
) -> pa.Table:
    key = [c.physical for c in snapshot.relation.key]
    roots = storage.nodes.all()
    cursor = storage.lookups.cursor()
    try:
        changed = LevelZero.of(storage, settings, snapshot, roots, cursor).of_keys(keys, ())
        cursor.register("wanted", keys)
        cursor.register("changed", changed)
        parts = [
            f"SELECT {', '.join('w.' + quoted(k) for k in key)} FROM wanted w SEMI JOIN "
            f"(SELECT * FROM changed WHERE NOT coalesce({DELETED}, false)) c ON {_equal('w', 'c', key)}"
        ]
        files = files_of(snapshot, roots, keys)
        parameters: list[object] = []
        if files:
            names = ", ".join(quoted(k) for k in key)
            parts.append(
                f"SELECT {', '.join('w.' + quoted(k) for k in key)} "
                f"FROM (SELECT * FROM wanted u ANTI JOIN changed c ON {_equal('u', 'c', key)}) w "
                f"SEMI JOIN (SELECT {names} FROM {READ}) s ON {_equal('w', 's', key)}"
            )
            parameters.append(files)
        query = " UNION ALL ".join(parts) + ("" if limit is None else f" LIMIT {limit:d}")
        return cursor.sql(query, params=parameters).to_arrow_table().cast(keys.schema)
    finally:
        cursor.close()


def files_of(snapshot: Snapshot, roots: Mapping[NodeId, Root], keys: pa.Table | None = None) -> list[str]:
    """Level 1 files, or those of the tablets that these keys (columns in the key's order) belong to."""
    copies = rf.require_copies(snapshot, roots)
    runs = snapshot.level1
    if keys is not None and len(runs) > 1:
        found = tokens.tablets_of(tokens.tokens(keys, keys.schema.names), snapshot.relation.tablets)
        tablets = {TabletId(int(t)) for t in np.unique(found)}
        runs = tuple(r for r in runs if r.tablet in tablets)
    return [literally(path) for path in rf.paths(roots, runs, Root.inner, copies)]


def shared_key(
    storage: NodeStorage,
    relation: Relation,
    mine: Sequence[Run],
    theirs: Sequence[Run],
    roots: Mapping[NodeId, Root],
) -> list[object] | None:
    """A row that both sets of runs write, if there is one."""
    if not mine or not theirs:
        return None
    low, high = min(r.token_min for r in mine), max(r.token_max for r in mine)
    theirs = [r for r in theirs if r.token_min <= high and r.token_max >= low]
    if not theirs:
        return None
    names = [c.physical for c in relation.identity]
    return in_both(storage.lookups, relation.name, names, mine, theirs, roots, nulls_equal=True)


def in_both(
    duck: Duck,
    name: str,
    columns: Sequence[str],
    mine: Sequence[Run],
    theirs: Sequence[Run],
    roots: Mapping[NodeId, Root],
    *,
    nulls_equal: bool,
) -> list[object] | None:
    """Values of some columns that both sets of runs have, if there are such: one semi join by DuckDB."""

    def paths(runs: Sequence[Run]) -> list[str]:
        return [literally(path) for path in rf.paths(roots, runs, Root.inner)]

    names = ", ".join(quoted(n) for n in columns)
    # Not by plain equality: statistics leave NaN out, and DuckDB believes them.
    same = _equal("m", "t", columns)
    if not nulls_equal:
        same += "".join(f" AND m.{quoted(n)} IS NOT NULL" for n in columns)
    cursor = duck.cursor()
    try:
        found = cursor.sql(
            f"SELECT {names} FROM (SELECT {names} FROM {READ}) m "
            f"SEMI JOIN (SELECT {names} FROM {READ}) t ON {same} LIMIT 1",
            params=[paths(mine), paths(theirs)],
        ).to_arrow_table()
    except duckdb.Error as error:
        raise CorruptRunError(f"{name}: expected readable runs, found: {error}") from error
    finally:
        cursor.close()
    return None if found.num_rows == 0 else python_row(found, columns)
