"""Rows by key, such as those that a write replaces, from the few row groups that can hold one.

Keys of one write may lie far apart: some rows are changed and others are new, behind all others. What lies between the
first and the last key of a batch is then most of a table. So row groups are chosen key by key, from footers that are
kept, and only those are read, several at a time, and kept as those that queries read. Nothing starts a Spark job.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ebla.ids import NodeId, TabletId
from ebla.query import values as v
from ebla.query.store import Footer, single
from ebla.storage import runs as rf
from ebla.storage import token as tokens
from ebla.storage.files import Root
from ebla.storage.model import DELETED, TOKEN, Column, Run
from ebla.storage.snapshot import Snapshot
from ebla.tables.context import Context
from ebla.views.rows import matching

Tokens = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
GROUPS_AT_ONCE = 64
"""Row groups that are in memory together, at most, for one write."""


def rows_by_key(context: Context, snapshot: Snapshot, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Columns (physical names, today's types) of the rows that a snapshot has of the keys of some rows."""
    relation, roots = snapshot.relation, context.roots()
    key = [column.physical for column in relation.key]
    keys = rows.select(key)
    token = tokens.tokens(keys, [column.physical for column in relation.placed_by])
    changed = rf.mutations(relation, snapshot.level0, roots, context.cache, snapshot, np.unique(token))
    names = [column.physical for column in columns]
    found = _from_files(context, roots, snapshot, _unsettled(keys, token, changed), columns)
    parts = _chosen(found, changed, keys, token, key, [column.physical for column in relation.placed_by])
    if parts is None:
        parts = _joined(context, found, changed, keys, key)
    return pa.concat_tables([part.select(names).cast(rf.physical_schema(columns)) for part in parts])


def _chosen(
    found: pa.Table, changed: pa.Table, keys: pa.Table, token: Tokens, key: Sequence[str], placed_by: Sequence[str]
) -> list[pa.Table] | None:
    """Rows with a wanted key: those of level 0, and those of files that level 0 does not know. `None`: see `among`."""
    new = changed.column(TOKEN).to_numpy()
    old = tokens.tokens(found, placed_by)
    asked = among(changed, new, keys, token, key)
    wanted = among(found, old, keys, token, key)
    newer = among(found, old, changed, new, key)
    if asked is None or wanted is None or newer is None:
        return None
    dead = pc.fill_null(changed.column(DELETED), False).to_numpy()
    return [found.filter(pa.array(wanted & ~newer)), changed.filter(pa.array(asked & ~dead))]


def among(rows: pa.Table, token: Tokens, keys: pa.Table, of_keys: Tokens, key: Sequence[str]) -> Mask | None:
    """Which rows have one of some keys; `None` if that is not seen by comparing each with the key of its token.

    So it is where two keys have one token, and where equal is more than equal bits.
    """
    hits = np.zeros(rows.num_rows, np.bool_)
    if rows.num_rows == 0 or keys.num_rows == 0:
        return hits
    order = np.argsort(of_keys)
    known = of_keys[order]
    if (known[1:] == known[:-1]).any() or any(pa.types.is_floating(keys.field(name).type) for name in key):
        return None
    place = np.minimum(np.searchsorted(known, token), len(known) - 1)
    at = np.flatnonzero(known[place] == token)
    ours, theirs = rows.take(pa.array(at)), keys.take(pa.array(order[place[at]]))
    equal = np.ones(len(at), np.bool_)
    for name in key:
        a, b = ours.column(name), theirs.column(name)
        same = pc.if_else(pc.is_null(a), pc.is_null(b), pc.fill_null(pc.equal(a, b), False))
        equal &= same.to_numpy()
    hits[at] = equal
    return hits


def _joined(context: Context, found: pa.Table, changed: pa.Table, keys: pa.Table, key: Sequence[str]) -> list[pa.Table]:
    """The same by joins, for all keys there are."""
    cursor = context.duck()
    try:
        asked = matching(cursor, found, key, keys)
        live = changed.filter(pc.invert(pc.fill_null(changed.column(DELETED), False)))
        # What level 0 has is not the files' to say.
        return [
            matching(cursor, asked, key, changed.select(list(key)), negated=True),
            matching(cursor, live, key, keys),
        ]
    finally:
        cursor.close()


def _unsettled(keys: pa.Table, token: Tokens, changed: pa.Table) -> tuple[pa.Table, Tokens]:
    """Keys whose token level 0 does not have: the files need not be asked for the others.

    Where two keys have one token, all are asked for: whose mutation it is, is seen when keys are compared.
    """
    known = changed.column(TOKEN).to_numpy()
    if len(known) == 0 or len(np.unique(token)) < len(token) or len(np.unique(known)) < len(known):
        return keys, token
    left = ~np.isin(token, known)
    return keys.filter(pa.array(left)), token[left]


def _from_files(
    context: Context,
    roots: Mapping[NodeId, Root],
    snapshot: Snapshot,
    wanted: tuple[pa.Table, Tokens],
    columns: Sequence[Column],
) -> pa.Table:
    """Rows of level 1 that may have a wanted key: their first column has a wanted value. With the key."""
    relation, store = snapshot.relation, context.store
    keys, token = wanted
    read = list({c.physical: c for c in (*relation.key, *columns)}.values())
    schema = rf.physical_schema(read)
    tablets = tokens.tablets_of(token, relation.tablets)
    by_tablet: dict[TabletId, list[Run]] = {}
    for run in snapshot.level1:
        by_tablet.setdefault(run.tablet, []).append(run)
    asked: list[tuple[Run, int, pa.Array]] = []
    for tablet in np.unique(tablets).tolist():
        first = pc.unique(single(keys.filter(pa.array(tablets == tablet)).column(0)))
        ranks = sorted({v.rank(value) for value in v.plain(first).to_pylist()})
        for run in by_tablet.get(TabletId(tablet), ()):
            groups = _groups(store.footer(roots, run), ranks, relation.key[0])
            asked += [(run, group, first) for group in groups]
    parts = [schema.empty_table()]
    for at in range(0, len(asked), GROUPS_AT_ONCE):
        some = asked[at : at + GROUPS_AT_ONCE]
        store.warm(roots, [(run, group) for run, group, _ in some], read)
        for run, group, first in some:
            found = store.columns(roots, run, group, read)
            table = pa.table([found[c.physical] for c in read], schema=schema)
            parts.append(_with_one_of(table, relation.key[0], first))
    return pa.concat_tables(parts)


def _with_one_of(rows: pa.Table, column: Column, values: pa.Array) -> pa.Table:
    """Most rows of a row group are none of those that are asked for: they go before keys are joined.

    Numbers with a point stay all: which of them are equal is for the join to say.
    """
    if rows.num_rows == 0 or pa.types.is_floating(values.type):
        return rows
    return rows.filter(pc.is_in(rows.column(column.physical), values))


def _groups(footer: Footer, ranks: list[v.Rank], first: Column) -> list[int]:
    """Row groups between whose bounds of the key's first column one of the values lies."""
    found = []
    for number, (low, high) in enumerate(footer.bounds(first)):
        at = bisect.bisect_left(ranks, low)
        if at < len(ranks) and not high < ranks[at]:
            found.append(number)
    return found
