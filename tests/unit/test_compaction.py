"""Compaction in pieces: which tablets each folds, and when level 0 runs end."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from ebla.base.ids import RunId, TabletId, Version
from ebla.model.relation import SPANS_TABLETS
from ebla.model.snapshot import BEGINNING, Snapshot, assemble
from ebla.model.tablets import ALL as TOKENS
from ebla.model.tablets import TokenRange, token_range
from ebla.tables.compaction import cores_of
from ebla.tables.fold import Fold, plan_fold
from support.manifests import NODE, run_of, table_of

TABLETS = 8
ALL = {TabletId(t) for t in range(TABLETS)}
RELATION = table_of(TABLETS)
run = partial(run_of, RELATION)


class Table:
    """Runs and cutoffs of one table, as commits of writers and of pieces leave them."""

    def __init__(self) -> None:
        self.version = 1
        self.runs = [run(f"base{t}", 1, tablet=t, level=1, rows=100) for t in range(TABLETS)]
        self.cutoffs: dict[TabletId, Version] = {}

    def write(self, tablet: int = SPANS_TABLETS, tokens: TokenRange = TOKENS) -> None:
        self.version += 1
        made = run(f"write{self.version}", self.version, tablet=tablet)
        if tablet == SPANS_TABLETS:
            made = replace(made, token_min=tokens.first, token_max=tokens.last)
        self.runs.append(made)

    def snapshot(self) -> Snapshot:
        folds = [(token_range(t, TABLETS), cutoff) for t, cutoff in self.cutoffs.items()]
        return assemble(RELATION, Version(self.version), self.runs, folds, {NODE: "/data"})

    def touched(self) -> set[TabletId]:
        level0 = self.snapshot().level0
        spans = any(r.tablet == SPANS_TABLETS for r in level0)
        return ALL if spans else {r.tablet for r in level0}

    def piece(self, since: Version, rows_max: int) -> Fold:
        snapshot = self.snapshot()
        fold = plan_fold(snapshot, self.touched(), since, rows_max)
        ended = fold.ended_level0 | fold.ended_level1
        self.runs = [r for r in self.runs if r.id not in ended]
        self.version += 1
        for tablet in fold.rewritten:
            found = run(f"fold{self.version}-{tablet}", self.version, tablet=tablet, level=1, rows=100)
            self.runs.append(found)
        self.cutoffs |= dict.fromkeys((*fold.rewritten, *fold.settled), snapshot.version)
        return fold


def test_a_small_table_is_folded_in_one_piece() -> None:
    table = Table()
    table.write()
    fold = table.piece(Version(table.version), 10**6)
    assert set(fold.rewritten) == ALL
    assert not fold.left
    assert not table.snapshot().level0


def test_a_spanning_run_ends_with_the_last_of_its_tablets() -> None:
    table = Table()
    table.write()
    since = Version(table.version)
    ended = []
    while (fold := table.piece(since, 250)).left:
        ended.append(fold.ended_level0)
        assert len(fold.rewritten) == 2
    assert not any(ended)
    assert fold.ended_level0 == {RunId("write2")}
    assert not table.snapshot().level0


def test_a_run_of_one_tablet_ends_with_it_and_others_are_settled() -> None:
    table = Table()
    table.write(tablet=3)
    fold = table.piece(Version(table.version), 10)
    assert (fold.rewritten, fold.left) == ((TabletId(3),), ())
    assert set(fold.settled) == ALL - {TabletId(3)}
    assert fold.ended_level0 == {RunId("write2")}


def test_a_run_of_some_tablets_ends_with_the_last_of_them() -> None:
    table = Table()
    table.write(tokens=TokenRange(token_range(1, TABLETS).first, token_range(2, TABLETS).last))
    table.cutoffs = {TabletId(1): Version(2)}
    table.write(tablet=5)
    fold = plan_fold(table.snapshot(), {TabletId(2), TabletId(5)}, Version(2), 100)
    assert (fold.rewritten, fold.left, fold.ended_level0) == (
        (TabletId(2),),
        (TabletId(5),),
        frozenset({RunId("write2")}),
    )


def test_runs_that_are_folded_already_end_with_the_next_fold() -> None:
    """Another tablet map has moved them out of tablets that were not folded."""
    table = Table()
    table.write(tablet=0)
    table.write(tokens=TokenRange(token_range(2, TABLETS).first, token_range(3, TABLETS).last))
    table.write(tablet=5)
    table.cutoffs = {TabletId(t): Version(3) for t in (0, 2, 3)}
    fold = table.piece(Version(table.version), 10)
    assert fold.rewritten == (TabletId(5),)
    assert fold.ended_level0 == {RunId("write2"), RunId("write3"), RunId("write4")}
    table.write(tablet=1)
    table.cutoffs = dict.fromkeys(ALL, Version(table.version))
    alone = table.piece(Version(table.version), 10)
    assert (alone.rewritten, alone.ended_level0) == ((), frozenset({RunId("write6")}))


def test_the_tablet_that_was_folded_longest_ago_comes_first() -> None:
    table = Table()
    table.write()
    table.cutoffs = {TabletId(t): Version(1 if t == 5 else 2) for t in range(TABLETS)}
    table.write()
    assert table.piece(Version(table.version), 10).rewritten == (TabletId(5),)


def test_a_compaction_under_load_writes_each_tablet_once_and_ends() -> None:
    """Writers commit between pieces: the compaction folds what was there at its beginning, and no tablet twice."""
    chance = random.Random(3)
    table = Table()
    for _ in range(20):
        for _ in range(chance.randrange(1, 4)):
            table.write(chance.choice([SPANS_TABLETS, *range(TABLETS)]))
        since = Version(table.version)
        before = [r.id for r in table.snapshot().level0]
        rewritten: list[TabletId] = []
        while True:
            fold = table.piece(since, chance.choice([10, 250, 10**6]))
            rewritten += fold.rewritten
            if not fold.left:
                break
            table.write(chance.choice([SPANS_TABLETS, *range(TABLETS)]))
        assert len(rewritten) == len(set(rewritten))
        assert not {r.id for r in table.runs} & set(before)
        assert all(table.cutoffs.get(t, BEGINNING) >= since for t in ALL)


def test_a_part_of_the_tablets_ends_no_spanning_run() -> None:
    table = Table()
    table.write()
    some = replace(table.snapshot(), tablets=(TabletId(0), TabletId(1)))
    fold = plan_fold(some, {TabletId(0), TabletId(1)}, Version(table.version))
    assert not fold.ended_level0


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (3, 1), (8, 4)])
def test_half_of_the_cores_are_left_to_other_jobs(cores: int, expected: int) -> None:
    assert cores_of(cores) == expected
