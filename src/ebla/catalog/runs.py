"""Runs and folds, as the manifest keeps them: checked and written inside one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, select, update

from ebla.base.ids import RelationId, RunId, TabletId, Version
from ebla.catalog import schema as s
from ebla.catalog.reads import called, newest_write
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, SPANS_TABLETS, Run, RunState

CHUNK = 500
"""Values in one `IN (…)`; both databases allow more, but plans stay small."""


# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.RunRequirement) -> None:
    def wrong(text: str) -> ConflictError:
        return ConflictError(f"{called(connection, requirement.relation)}{text}")

    match requirement:
        case c.NoWritesSince(relation=relation, version=version):
            newest = newest_write(connection, relation)
            if newest > version:
                raise wrong(f": expected no write after version {version}, found one at {newest}")
        case c.RunsLive(relation=relation, runs=runs):
            live = _count_live(connection, relation, runs)
            if live != len(runs):
                raise wrong(f": expected {len(runs)} visible runs, found {live}; another compaction came first")
        case c.RunsStaged(relation=relation, runs=runs):
            staged = _count_live(connection, relation, runs, s.runs.c.state == RunState.STAGING.value)
            if staged != len(runs):
                raise wrong(
                    f": expected {len(runs)} staged runs, found {staged}; "
                    "another worker or a truncation came first: look again"
                )
        case c.CutoffIs(relation=relation, tablet=tablet, cutoff=expected):
            found = current_cutoff(connection, relation, tablet)
            if found != expected:
                raise wrong(f" tablet {tablet}: expected cutoff {expected}, found {found}")
        case _:
            assert_never(requirement)


def _count_live(
    connection: Connection, relation: RelationId, runs: frozenset[RunId], *also: ColumnElement[bool]
) -> int:
    count = 0
    for part in _chunks(runs):
        live = (s.runs.c.relation_id == relation, s.runs.c.run_id.in_(part), s.runs.c.end_version == FOREVER)
        count += connection.execute(select(func.count(func.distinct(s.runs.c.run_id))).where(*live, *also)).scalar_one()
    return count


def current_cutoff(connection: Connection, relation: RelationId, tablet: TabletId) -> Version:
    found = connection.execute(
        select(func.max(s.folds.c.cutoff)).where(s.folds.c.relation_id == relation, s.folds.c.tablet_id == tablet)
    ).scalar()
    return Version(found or 0)


def _chunks(values: Iterable[RunId]) -> Iterable[list[RunId]]:
    ordered = sorted(values)
    return (ordered[i : i + CHUNK] for i in range(0, len(ordered), CHUNK))


# ---- updates --------------------------------------------------------------------------------------------


def apply(connection: Connection, change: c.RunUpdate, version: Version) -> None:
    match change:
        case c.AddRuns(runs=runs, level1_if_empty=bulk):
            _add(connection, runs, version, bulk=bulk)
        case c.EndRuns(relation=relation, runs=ended):
            live = and_(s.runs.c.relation_id == relation, s.runs.c.end_version == FOREVER)
            for part in _chunks(ended):
                connection.execute(update(s.runs).where(s.runs.c.run_id.in_(part), live).values(end_version=version))
        case c.SetCutoff(relation=relation, tablet=tablet, cutoff=cutoff):
            connection.execute(
                insert(s.folds),
                {"relation_id": relation, "tablet_id": tablet, "begin_version": version, "cutoff": cutoff},
            )
        case c.SetRunState(runs=runs_set, state=state):
            # What is in this state already keeps its version, and what has ended meanwhile never becomes visible.
            due = and_(s.runs.c.state != state.value, s.runs.c.end_version == FOREVER)
            for part in _chunks(runs_set):
                connection.execute(
                    update(s.runs)
                    .where(s.runs.c.run_id.in_(part), due)
                    .values(state=state.value, begin_version=version)
                )
        case _:
            assert_never(change)


def end_all(connection: Connection, relation: RelationId, version: Version) -> None:
    """Nothing of a relation is visible from this version on."""
    visible = and_(s.runs.c.relation_id == relation, s.runs.c.end_version == FOREVER)
    connection.execute(update(s.runs).where(visible).values(end_version=version))


def forget(connection: Connection, relation: RelationId, horizon: Version) -> None:
    """No version below the horizon is read any more."""
    connection.execute(delete(s.runs).where(s.runs.c.relation_id == relation, s.runs.c.end_version <= horizon))
    _forget_folds(connection, relation, horizon)


def _forget_folds(connection: Connection, relation: RelationId, horizon: Version) -> None:
    """Of the folds up to the horizon only each tablet's last counts for a version that can still be read."""
    later = s.folds.alias("later")
    replaced = exists().where(
        later.c.relation_id == relation,
        later.c.tablet_id == s.folds.c.tablet_id,
        later.c.begin_version > s.folds.c.begin_version,
        later.c.begin_version <= horizon,
        later.c.cutoff >= s.folds.c.cutoff,
    )
    connection.execute(delete(s.folds).where(s.folds.c.relation_id == relation, replaced))


def _add(connection: Connection, runs: tuple[Run, ...], version: Version, *, bulk: bool) -> None:
    if bulk and runs:
        runs = _level1_where_empty(connection, runs)
    rows = [
        {
            "run_id": run.id,
            "host_id": node,
            "relation_id": run.relation,
            "level": run.level,
            "tablet_id": run.tablet,
            "token_min": run.token_min,
            "token_max": run.token_max,
            "key_min": run.key_min,
            "key_max": run.key_max,
            "row_count": run.rows,
            "tombstones": run.tombstones,
            "bytes": run.bytes,
            "path": run.path,
            "state": run.state.value,
            "source": run.source.value,
            "transaction_id": run.transaction,
            "schema_version": run.schema_version,
            "begin_version": version,
            "end_version": FOREVER,
        }
        for run in runs
        for node in run.nodes
    ]
    if rows:
        connection.execute(insert(s.runs), rows)


def _level1_where_empty(connection: Connection, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    relations = sorted({run.relation for run in runs})
    occupied = {
        (relation, tablet)
        for relation, tablet in connection.execute(
            select(s.runs.c.relation_id, s.runs.c.tablet_id)
            .where(s.runs.c.relation_id.in_(relations), s.runs.c.end_version == FOREVER)
            .distinct()
        )
    }

    def level(run: Run) -> int:
        over_others = (run.relation, SPANS_TABLETS) in occupied or (run.relation, run.tablet) in occupied
        return 0 if over_others or run.tablet == SPANS_TABLETS else 1

    return tuple(replace(run, level=level(run)) for run in runs)
