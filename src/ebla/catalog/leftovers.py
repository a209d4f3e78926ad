"""What no version that can be read needs any more: of relations that are there, and of those that were dropped.

Vacuum forgets it. Below a relation's horizon no snapshot, no change and no position is read (`reads.require_readable`),
so of each kind of row only what counts at the horizon, or behind it, stays:

- runs that have not ended by then, and the tablet maps from the one of the horizon on,
- of the folds of a range the one with the highest cutoff, unless those of other ranges say as much,
- the last truncation, which may be the relation's last write,
- of each column in files the last description: its name in files is never given away again.

A dropped relation has no name, so it is found by those alone who began to read it before. Its runs go when the horizon
has come to its end, and its other rows behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, select, union_all

from ebla.base.ids import RelationId, Version
from ebla.catalog import cdc, rows
from ebla.catalog import schema as s
from ebla.catalog.reads import relation_maps
from ebla.catalog.rows import AtMost, Change, State
from ebla.model.scopes import DROPPED, relation_of
from ebla.model.snapshot import superseded
from ebla.model.tablets import TokenRange

OF_RELATIONS = (
    s.folds, s.truncations, s.tablet_maps, s.tablets, s.cdc_streams, s.cdc_generations, s.columns, s.relations,
)  # fmt: skip
"""Where a dropped relation has rows; the one that others refer to is the last."""


# ---- relations that are there ---------------------------------------------------------------------------


def oldest(connection: Connection, until: Version) -> dict[RelationId, int]:
    """The relations of which something may be forgotten, and from which horizon on, up to a version."""
    cuts, columns = s.truncations.c, s.columns.c
    later_cut, later = s.truncations.alias().c, s.columns.alias().c
    replaced = and_(
        later.relation_id == columns.relation_id,
        later.physical == columns.physical,
        later.begin_version > columns.begin_version,
    )
    repeated = and_(later_cut.relation_id == cuts.relation_id, later_cut.version > cuts.version)
    parts = union_all(
        _oldest(s.runs.c.relation_id, s.runs.c.end_version, until),
        _oldest(cuts.relation_id, cuts.version, until, exists().where(repeated)),
        _oldest(columns.relation_id, columns.end_version, until, exists().where(replaced)),
    )
    found: dict[RelationId, int] = {}
    for relation, version in connection.execute(parts):
        found[RelationId(relation)] = min(version, found.get(RelationId(relation), version))
    return found


def _oldest(
    relation: ColumnElement[int], version: ColumnElement[int], until: Version, *also: ColumnElement[bool]
) -> Select[int, int]:
    return select(relation, func.min(version)).where(version <= until, *also).group_by(relation)


def forget(state: State, relation: RelationId, horizon: Version) -> tuple[Change, ...]:
    """No version below the horizon is read any more."""
    return (
        rows.delete(s.runs, relation_id=relation, end_version=AtMost(horizon)),
        *_forget_folds(state, relation, horizon),
        *_forget_maps(state, relation, horizon),
        *cdc.forget(state, relation, horizon),
        *_forget_truncations(state, relation, horizon),
        *_forget_columns(state, relation, horizon),
    )


def _forget_folds(state: State, relation: RelationId, horizon: Version) -> Iterator[Change]:
    """The folds of one commit are of one map, so that the first token tells them apart."""
    old = rows.find(state, s.folds, "cutoff", relation_id=relation, begin_version=AtMost(horizon))
    last = {TokenRange(fold.token_min, fold.token_max): fold for fold in old}
    cutoffs = {tokens: Version(fold.cutoff) for tokens, fold in last.items()}
    kept = {id(last[tokens]) for tokens in cutoffs.keys() - superseded(cutoffs, _fewest(state, relation, horizon))}
    gone: dict[int, set[int]] = {}
    for fold in old:
        if id(fold) not in kept:
            gone.setdefault(fold.begin_version, set()).add(fold.token_min)
    for begun, first in gone.items():
        yield rows.delete(s.folds, relation_id=relation, begin_version=begun, token_min=frozenset(first))


def _fewest(state: State, relation: RelationId, horizon: Version) -> int:
    """The tablets of that map with the fewest which a version from the horizon on has."""
    maps = relation_maps(state, relation)
    begun = max((since for since, _ in maps if since <= horizon), default=0)
    return min((tablets for since, tablets in maps if since >= begun), default=1)


def _forget_maps(state: State, relation: RelationId, horizon: Version) -> Iterator[Change]:
    """Forget maps before the one of the horizon. Most relations have had one map alone, and lose none."""
    begun = [since for since, _ in relation_maps(state, relation) if since <= horizon]
    if len(begun) > 1:
        yield rows.delete(s.tablet_maps, relation_id=relation, begin_version=AtMost(begun[-1] - 1))


def _forget_truncations(state: State, relation: RelationId, horizon: Version) -> Iterator[Change]:
    last = rows.greatest(state, s.truncations.c.version, relation_id=relation)
    if last is not None:
        yield rows.delete(s.truncations, relation_id=relation, version=AtMost(min(horizon, last - 1)))


def _forget_columns(state: State, relation: RelationId, horizon: Version) -> Iterator[Change]:
    described = rows.find(state, s.columns, "begin_version", relation_id=relation)
    last = {column.physical: column.begin_version for column in described}
    gone: dict[int, set[str]] = {}
    for column in described:
        if column.end_version <= horizon and column.begin_version < last[column.physical]:
            gone.setdefault(column.begin_version, set()).add(column.physical)
    for begun, names in gone.items():
        yield rows.delete(s.columns, relation_id=relation, begin_version=begun, physical=frozenset(names))


# ---- relations that were dropped ------------------------------------------------------------------------


def forget_dropped(state: State, until: Version, progress_name: Callable[[RelationId], str]) -> frozenset[RelationId]:
    """Forget relations that were dropped up to a version, once none of their runs is left; which they were.

    A decision that was made from one of them before must still be refused: one guard stands for those of all.
    """
    dropped = frozenset(rows.values(state, s.relations.c.relation_id, dropped_version=AtMost(until)))
    gone = frozenset(map(RelationId, dropped - rows.values(state, s.runs.c.relation_id, relation_id=dropped)))
    if not gone:
        return gone
    moved = {row.scope: row.version for row in rows.find(state, s.guards) if relation_of(row.scope) in gone}
    if moved:
        before = rows.greatest(state, s.guards.c.version, scope=DROPPED) or 0
        rows.write(state, rows.delete(s.guards, scope=frozenset(moved)))
        rows.write(state, rows.put(s.guards, scope=DROPPED, version=max(before, *moved.values())))
    for table in OF_RELATIONS:
        rows.write(state, rows.delete(table, relation_id=gone))
    rows.write(state, rows.delete(s.progress, name=frozenset(map(progress_name, gone))))
    return gone


# ---- sessions -------------------------------------------------------------------------------------------


def forget_sessions(state: State, until: Version) -> int:
    """Forget sessions that were closed up to a version. One that is not there counts as closed to every commit."""
    return rows.write(state, rows.delete(s.sessions, closed_version=AtMost(until)))
