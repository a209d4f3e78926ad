"""Runs and folds of the manifest: the rules of their requirements and updates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from ebla.base import lazy
from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Token, Version
from ebla.catalog import resizes, rows
from ebla.catalog import schema as s
from ebla.catalog.forks import fork
from ebla.catalog.reads import called, folds, merge_replicas, newest_write, relation_by_id
from ebla.catalog.rows import Change, Not, State
from ebla.errors import ConflictError
from ebla.model.copies import too_few, wanted
from ebla.model.relation import FOREVER, SPANS_TABLETS, Run, RunState
from ebla.model.snapshot import BEGINNING, cutoffs_of
from ebla.model.tablets import TokenRange, joined, tablet_around, tablets_around, tablets_over, token_range
from ebla.model.topology import ResizeType

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
        case c.CutoffsAre(relation=relation, cutoffs=cutoffs):
            current = current_cutoffs(state, relation, cutoffs)
            for tokens, expected in cutoffs.items():
                if current[tokens] != expected:
                    raise wrong(f" {tokens}: expected cutoff {expected}, found {current[tokens]}")
        case _:
            assert_never(requirement)


def _count_live(state: State, relation: RelationId, runs: frozenset[RunId], /, **also: str) -> int:
    live = {"relation_id": relation, "run_id": runs, "end_version": FOREVER, **also}
    return len(rows.values(state, s.runs.c.run_id, **live))


def current_cutoffs(state: State, relation: RelationId, tablets: Collection[TokenRange]) -> dict[TokenRange, Version]:
    found = folds(state, relation, tablets)
    return {tokens: max(found.get(one, BEGINNING) for one in tablets_around(tokens)) for tokens in tablets}


# ---- updates --------------------------------------------------------------------------------------------


def changes(state: State, update: c.RunUpdate, version: Version) -> tuple[Change, ...]:
    match update:
        case c.AddRuns(runs=runs, level1_if_empty=bulk):
            added = _level1_where_empty(state, runs) if bulk else runs
            _refuse_spanning(state, added)
            _refuse_too_few_copies(state, added)
            return (_insert(added, version), *_withdraw_reports(state, added))
        case c.AddCopies(relation=relation, copies=copies):
            return (_insert_copies(state, relation, copies),)
        case c.EndRuns(relation=relation, runs=ended):
            live = {"relation_id": relation, "end_version": FOREVER}
            return (rows.update(s.runs, {"end_version": version}, run_id=ended, **live),)
        case c.SetCutoff(relation=relation, tablets=tablets, cutoff=cutoff):
            withdrawn = resizes.withdraw(state, relation, tablets, folded=True)
            return (_insert_folds(relation, dict.fromkeys(tablets, cutoff), version), *withdrawn)
        case c.SetRunState(runs=runs_set, state=after):
            # What is in this state already keeps its version, and what has ended meanwhile never becomes visible.
            due = {"state": Not(after.value), "end_version": FOREVER}
            return (rows.update(s.runs, {"state": after.value, "begin_version": version}, run_id=runs_set, **due),)
        case _:
            assert_never(update)


def end_all(relation: RelationId, version: Version) -> Change:
    """End all runs of a relation: none is visible from this version on."""
    return rows.update(s.runs, {"end_version": version}, relation_id=relation, end_version=FOREVER)


# ---- another tablet map ---------------------------------------------------------------------------------


def resize(state: State, relation: RelationId, before: int, tablets: int, version: Version) -> tuple[Change, ...]:
    """What another tablet map means for runs and folds: it must fit them, and tablets that become one have one fold."""
    for tokens in _occupied(state, relation, level=1):
        if tablet_around(tokens, tablets) is None:
            raise ConflictError(
                f"{called(state, relation)}: expected every level 1 run in one of {tablets} tablets, "
                f"found one with {tokens}; cut it first"
            )
    if tablets >= before:
        return ()
    merged = _merged_cutoffs(state, relation, before, tablets)
    for tablet in uneven(state, relation, before, tablets):
        parts = range(tablet * before // tablets, (tablet + 1) * before // tablets)
        raise ConflictError(
            f"{called(state, relation)}: expected level 0 folded up to one version in tablets {parts[0]} to "
            f"{parts[-1]}, which become one, found {sorted(merged[tablet])}; compact it first"
        )
    newest = {token_range(t, tablets): max(found) for t, found in merged.items() if found != {BEGINNING}}
    return (_insert_folds(relation, newest, version),)


def uneven(state: State, relation: RelationId, before: int, tablets: int) -> list[TabletId]:
    """The tablets of a map with fewer of them that would have rows of level 0 which are folded in some of the tablets
    that become one, and not in others."""
    merged = _merged_cutoffs(state, relation, before, tablets)
    return [
        tablet
        for tablet, found in merged.items()
        if _began_between(state, relation, token_range(tablet, tablets), min(found), max(found))
    ]


def unready(state: State, relation: RelationId, resize: ResizeType, tablets: int) -> set[TabletId]:
    """The tablets in which something is left to cut or to fold before a resize of a relation with `tablets` tablets."""
    match resize:
        case ResizeType.SPLIT:
            found = [one for one in _occupied(state, relation, level=1) if tablet_around(one, tablets * 2) is None]
            return {tablet for one in found for tablet in tablets_over(one, tablets)}
        case ResizeType.MERGE:
            merged = uneven(state, relation, tablets, tablets // 2)
            return {TabletId(2 * tablet + half) for tablet in merged for half in (0, 1)}
        case ResizeType.NONE:
            return set()


def _merged_cutoffs(state: State, relation: RelationId, before: int, tablets: int) -> dict[TabletId, set[Version]]:
    """The different cutoffs of the tablets that become one, by the number of that one."""
    cutoffs = cutoffs_of(folds(state, relation).items(), before)
    found: dict[TabletId, set[Version]] = {}
    for part in range(before):
        found.setdefault(TabletId(part * tablets // before), set()).add(cutoffs.get(TabletId(part), BEGINNING))
    return found


def _began_between(state: State, relation: RelationId, tokens: TokenRange, low: Version, high: Version) -> bool:
    """Whether level 0 has runs with some tokens that are folded up to the one version and not up to the other."""
    if low >= high:
        return False
    live = rows.find(state, s.runs, relation_id=relation, level=0, end_version=FOREVER)
    between = [row for row in live if low < (row.newest_version or row.begin_version) <= high]
    return any(_tokens(row).overlaps(tokens) for row in between)


def _occupied(state: State, relation: RelationId, /, **where: object) -> list[TokenRange]:
    """Ranges that visible and staged runs lie in: of those with one first token the longest."""
    live: dict[str, object] = {"relation_id": relation, "end_version": FOREVER, **where}
    found = rows.extremes(state, s.runs.c.token_max, by=(s.runs.c.token_min,), **live)
    return [TokenRange(first, Token(last)) for (first,), (_, last) in sorted(found.items())]


def _tokens(row: Any) -> TokenRange:
    return TokenRange(row.token_min, row.token_max)


def _insert_folds(relation: RelationId, cutoffs: Mapping[TokenRange, Version], version: Version) -> Change:
    return rows.insert(
        s.folds,
        [
            {
                "relation_id": relation,
                "token_min": tokens.first,
                "token_max": tokens.last,
                "begin_version": version,
                "cutoff": cutoff,
            }
            for tokens, cutoff in cutoffs.items()
        ],
    )


# ---- rows of runs ---------------------------------------------------------------------------------------


def _insert(runs: tuple[Run, ...], version: Version) -> Change:
    return rows.insert(
        s.runs,
        [
            {
                "run_id": run.id,
                "host_id": node,
                "relation_id": run.relation,
                "level": run.level,
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
                "fork": fork(run.tokens),
                "newest_version": None if run.begin_version == FOREVER else run.begin_version,
                "spread": run.spread,
            }
            for run in runs
            for node in run.nodes
        ],
    )


def _insert_copies(state: State, number: RelationId, copies: Collection[tuple[RunId, NodeId]]) -> Change:
    relation = relation_by_id(state, number)
    found = rows.find(state, s.runs, relation_id=number, run_id=frozenset(run for run, _ in copies))
    of_run = {row.run_id: row for row in found}
    lacking = {} if relation is None else {
        run.id: wanted(relation, run) for run in merge_replicas(found, relation.tablets)
    }  # fmt: skip
    added = [(of_run[run], node) for run, node in copies if node in lacking.get(run, ())]
    columns = [column.name for column in s.runs.columns]
    return rows.insert(
        s.runs, [{name: getattr(row, name) for name in columns} | {"host_id": node} for row, node in added]
    )


def _level1_where_empty(state: State, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """A bulk load is level 1 where nothing lies below it, and where it is cut for the tablets that are coming."""
    relations = {run.relation for run in runs}
    occupied = {relation: joined(_occupied(state, relation)) for relation in relations}
    coming = {relation: resizes.coming_tablets(state, relation) for relation in relations}

    def level(run: Run) -> int:
        after = coming[run.relation]
        if after is not None and tablet_around(run.tokens, after) is None:
            return 0
        there = occupied[run.relation]
        first = bisect_left(there, run.token_min, key=lambda one: one.last)
        over_others = first < len(there) and there[first].overlaps(run.tokens)
        return 0 if over_others or run.tablet == SPANS_TABLETS else 1

    return tuple(replace(run, level=level(run)) for run in runs)


def _withdraw_reports(state: State, runs: tuple[Run, ...]) -> tuple[Change, ...]:
    """Level 1 runs that cross the tablets that are coming are to be cut before these come."""
    level1: dict[RelationId, list[TokenRange]] = {}
    for run in runs:
        if run.level == 1:
            level1.setdefault(run.relation, []).append(run.tokens)
    return tuple(
        change
        for relation, written in level1.items()
        for change in resizes.withdraw(state, relation, written, folded=False)
    )


def _refuse_spanning(state: State, runs: tuple[Run, ...]) -> None:
    """A level 1 run that was cut by a tablet map which is not the relation's any more is not written."""
    level1 = [run for run in runs if run.level == 1]
    relations = frozenset(run.relation for run in level1)
    found = rows.find(state, s.relations, relation_id=relations, dropped_version=None)
    tablets = {row.relation_id: row.tablets for row in found}
    for run in level1:
        if run.relation in tablets and tablet_around(run.tokens, tablets[run.relation]) is None:
            raise ConflictError(
                f"{called(state, run.relation)}: expected level 1 runs of one of {tablets[run.relation]} tablets each, "
                f"found one with {run.tokens}; its tablets have changed during the write: retry it"
            )


def _refuse_too_few_copies(state: State, runs: tuple[Run, ...]) -> None:
    """A run is on enough replicas of each tablet that it has rows of, as they are now: the writer may have written to
    those of before. Of a relation that is gone nothing is asked here."""
    relations = {number: relation_by_id(state, number) for number in {run.relation for run in runs}}
    for run in runs:
        relation = relations[run.relation]
        lack = None if relation is None else too_few(relation, run.in_map(relation.tablets))
        if relation is not None and lack is not None:
            raise ConflictError(
                f"{relation.name}: expected copies on at least {lack.least} of the nodes "
                f"{', '.join(lack.nodes)} of tablet {lack.tablet}, found {lack.copies} there; "
                "its replicas moved during the write: retry it"
            )
