"""Runs and folds of the manifest: the rules of their requirements and updates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from ebla.base import lazy
from ebla.base.ids import RelationId, RunId, TabletId, Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.reads import called, newest_write
from ebla.catalog.rows import AtMost, Change, Not, State
from ebla.errors import ConflictError
from ebla.model.relation import FOREVER, SPANS_TABLETS, Run, RunState

if TYPE_CHECKING:
    from ebla.model import changes as c
else:
    c = lazy.Module("ebla.model.changes")

# ---- requirements ---------------------------------------------------------------------------------------


def require_runs(state: State, requirement: c.RunRequirement) -> None:
    def wrong(text: str) -> ConflictError:
        return ConflictError(f"{called(state, requirement.relation)}{text}")

    match requirement:
        case c.NoWritesSince(relation=relation, version=version):
            newest = newest_write(state, relation)
            if newest > version:
                raise wrong(f": expected no write after version {version}, found one at {newest}")
        case c.RunsLive(relation=relation, runs=runs):
            live = _count_live(state, relation, runs)
            if live != len(runs):
                raise wrong(f": expected {len(runs)} visible runs, found {live}; another compaction came first")
        case c.RunsStaged(relation=relation, runs=runs):
            staged = _count_live(state, relation, runs, state=RunState.STAGING.value)
            if staged != len(runs):
                raise wrong(
                    f": expected {len(runs)} staged runs, found {staged}; "
                    "another worker or a truncation came first: look again"
                )
        case c.CutoffIs(relation=relation, tablet=tablet, cutoff=expected):
            found = current_cutoff(state, relation, tablet)
            if found != expected:
                raise wrong(f" tablet {tablet}: expected cutoff {expected}, found {found}")
        case _:
            assert_never(requirement)


def _count_live(state: State, relation: RelationId, runs: frozenset[RunId], /, **also: str) -> int:
    live = {"relation_id": relation, "run_id": runs, "end_version": FOREVER, **also}
    return len(rows.values(state, s.runs.c.run_id, **live))


def current_cutoff(state: State, relation: RelationId, tablet: TabletId) -> Version:
    return Version(rows.greatest(state, s.folds.c.cutoff, relation_id=relation, tablet_id=tablet) or 0)


# ---- updates --------------------------------------------------------------------------------------------


def changes(state: State, update: c.RunUpdate, version: Version) -> tuple[Change, ...]:
    match update:
        case c.AddRuns(runs=runs, level1_if_empty=bulk):
            return (_insert(_level1_where_empty(state, runs) if bulk else runs, version),)
        case c.EndRuns(relation=relation, runs=ended):
            live = {"relation_id": relation, "end_version": FOREVER}
            return (rows.update(s.runs, {"end_version": version}, run_id=ended, **live),)
        case c.SetCutoff(relation=relation, tablet=tablet, cutoff=cutoff):
            fold = {"relation_id": relation, "tablet_id": tablet, "begin_version": version, "cutoff": cutoff}
            return (rows.insert(s.folds, [fold]),)
        case c.SetRunState(runs=runs_set, state=after):
            # What is in this state already keeps its version, and what has ended meanwhile never becomes visible.
            due = {"state": Not(after.value), "end_version": FOREVER}
            return (rows.update(s.runs, {"state": after.value, "begin_version": version}, run_id=runs_set, **due),)
        case _:
            assert_never(update)


def end_all(relation: RelationId, version: Version) -> Change:
    """Nothing of a relation is visible from this version on."""
    return rows.update(s.runs, {"end_version": version}, relation_id=relation, end_version=FOREVER)


def forget(state: State, relation: RelationId, horizon: Version) -> tuple[Change, ...]:
    """No version below the horizon is read any more.

    Of the folds up to the horizon only each tablet's last counts for a version that can still be read.
    """
    last: dict[int, int] = {}
    replaced: dict[int, set[int]] = {}
    folds = rows.find(state, s.folds, "begin_version", relation_id=relation, begin_version=AtMost(horizon))
    for fold in reversed(folds):
        if fold.cutoff <= last.get(fold.tablet_id, -1):
            replaced.setdefault(fold.begin_version, set()).add(fold.tablet_id)
        last[fold.tablet_id] = max(fold.cutoff, last.get(fold.tablet_id, -1))
    return (
        rows.delete(s.runs, relation_id=relation, end_version=AtMost(horizon)),
        *(rows.delete(s.folds, relation_id=relation, begin_version=v, tablet_id=t) for v, t in replaced.items()),
    )


def _insert(runs: tuple[Run, ...], version: Version) -> Change:
    return rows.insert(
        s.runs,
        [
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
        ],
    )


def _level1_where_empty(state: State, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    occupied = {
        (relation, tablet)
        for relation in {run.relation for run in runs}
        for tablet in rows.values(state, s.runs.c.tablet_id, relation_id=relation, end_version=FOREVER)
    }

    def level(run: Run) -> int:
        over_others = (run.relation, SPANS_TABLETS) in occupied or (run.relation, run.tablet) in occupied
        return 0 if over_others or run.tablet == SPANS_TABLETS else 1

    return tuple(replace(run, level=level(run)) for run in runs)
