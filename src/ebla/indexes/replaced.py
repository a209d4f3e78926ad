"""The rows that a write replaces, by key, from the few row groups that can hold one.

Keys of one write may lie far apart: some rows are changed and others are new, behind all others. What lies between the
first and the last key of a batch is then most of a table. So row groups are chosen key by key, from footers that are
kept, and only those are read. Nothing starts a Spark job.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ebla.errors import CorruptRunError
from ebla.ids import TabletId
from ebla.query import values as v
from ebla.query.store import Footer, footer_of, from_copy, read_groups, single
from ebla.storage import runs as rf
from ebla.storage import token as tokens
from ebla.storage.model import DELETED, TOKEN, Column, Run
from ebla.storage.snapshot import Snapshot
from ebla.tables.context import Context
from ebla.tables.lookup import quoted

Tokens = npt.NDArray[np.int64]


def replaced_rows(context: Context, snapshot: Snapshot, rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Columns (physical names, today's types) of the rows that a snapshot has of the keys of some rows."""
    relation, roots = snapshot.relation, context.roots()
    key = [column.physical for column in relation.key]
    keys = rows.select(key)
    token = tokens.tokens(keys, [column.physical for column in relation.placed_by])
    changed = rf.mutations(relation, snapshot.level0, roots, context.cache, snapshot, np.unique(token))
    names = [column.physical for column in columns]
    parts = [rf.physical_schema(columns).empty_table()]
    cursor = context.duck()
    try:
        cursor.register("wanted", keys)
        cursor.register("changed", changed)
        same = " AND ".join(f"r.{quoted(k)} IS NOT DISTINCT FROM w.{quoted(k)}" for k in key)
        shown = ", ".join(f"r.{quoted(name)}" for name in names)
        if changed.num_rows:
            live = f"SELECT {shown} FROM changed r SEMI JOIN wanted w ON {same} WHERE NOT coalesce(r.{DELETED}, false)"
            parts.append(cursor.sql(live).to_arrow_table())
        found = _from_files(context, snapshot, _unsettled(keys, token, changed), columns)
        if found.num_rows:
            cursor.register("found", found)
            # What level 0 has is not the files' to say.
            newer = " AND ".join(f"r.{quoted(k)} IS NOT DISTINCT FROM n.{quoted(k)}" for k in key)
            asked = f"SELECT r.* FROM found r SEMI JOIN wanted w ON {same}"
            parts.append(cursor.sql(f"SELECT {shown} FROM ({asked}) r ANTI JOIN changed n ON {newer}").to_arrow_table())
    except duckdb.Error as error:
        raise CorruptRunError(f"{relation.name}: expected readable runs, found: {error}") from error
    finally:
        cursor.close()
    return pa.concat_tables([part.cast(parts[0].schema) for part in parts])


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
    context: Context, snapshot: Snapshot, wanted: tuple[pa.Table, Tokens], columns: Sequence[Column]
) -> pa.Table:
    """All rows of the row groups that can hold a wanted key, with the key."""
    relation = snapshot.relation
    keys, token = wanted
    read = list({c.physical: c for c in (*relation.key, *columns)}.values())
    parts = [rf.physical_schema(read).empty_table()]
    tablets = tokens.tablets_of(token, relation.tablets)
    by_tablet: dict[TabletId, list[Run]] = {}
    for run in snapshot.level1:
        by_tablet.setdefault(run.tablet, []).append(run)
    for tablet in np.unique(tablets).tolist():
        first = single(keys.filter(pa.array(tablets == tablet)).column(0))
        ranks = sorted({v.rank(value) for value in v.plain(first).to_pylist()})
        for run in by_tablet.get(TabletId(tablet), ()):
            parts.append(_rows(context, run, ranks, relation.key[0], read))
    return pa.concat_tables(parts)


def _rows(context: Context, run: Run, ranks: list[v.Rank], first: Column, read: Sequence[Column]) -> pa.Table:
    roots = context.roots()
    footer = context.footers.get(run.id)
    if footer is None:
        footer = from_copy(roots, run, lambda root: footer_of(root, run))
        context.footers.put(run.id, footer)
    groups = _groups(footer, ranks, first)
    if not groups:
        return rf.physical_schema(read).empty_table()
    names = [c.physical for c in read if footer.schema.get_field_index(c.physical) >= 0]
    kept: Footer = footer
    tables = from_copy(roots, run, lambda root: read_groups(root, run, kept, groups, names))
    return rf.align(pa.concat_tables(tables), read)


def _groups(footer: Footer, ranks: list[v.Rank], first: Column) -> list[int]:
    """Row groups between whose bounds of the key's first column one of the values lies."""
    found = []
    for number, (low, high) in enumerate(footer.bounds(first)):
        at = bisect.bisect_left(ranks, low)
        if at < len(ranks) and not high < ranks[at]:
            found.append(number)
    return found
