"""Snapshots: which runs hold some tablets at a version, and which of their rows still count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from ebla.base.ids import RunId, TabletId, Version
from ebla.model.relation import FOREVER, SPANS_TABLETS, Run, RunSource
from ebla.model.snapshot import BEGINNING, Snapshot, assemble
from ebla.model.tablets import tablets_over, token_range
from support.manifests import NODE, run_of, table_of

TABLETS = 4
ALL = tuple(TabletId(t) for t in range(TABLETS))

RELATION = table_of(TABLETS)
run = partial(run_of, RELATION)


def between(name: str, begin: int, first: int, last: int) -> Run:
    """A level 0 run with tokens of some neighbouring tablets."""
    if first == last:
        return run(name, begin, tablet=first)
    low, high = token_range(first, TABLETS).first, token_range(last, TABLETS).last
    return replace(run(name, begin), token_min=low, token_max=high)


def snapshot(*runs: Run, folds: dict[int, int] | None = None, tablets: list[int] | None = None) -> Snapshot:
    return assemble(
        RELATION,
        Version(100),
        runs,
        [(token_range(t, TABLETS), Version(v)) for t, v in (folds or {}).items()],
        {NODE: "/data"},
        None if tablets is None else [TabletId(t) for t in tablets],
    )


def names(runs: tuple[Run, ...]) -> list[str]:
    return [r.id for r in runs]


# ---- levels and order -----------------------------------------------------------------------------------


def test_an_empty_relation():
    found = snapshot()
    assert (found.level0, found.level1, found.cutoffs, found.tablets) == ((), (), {}, ALL)
    assert found.complete
    assert found.uniform_cutoff
    assert found.rows_at_most == 0
    assert found.roots == {NODE: "/data"}


def test_level_0_is_oldest_first_and_level_1_by_tablet():
    found = snapshot(
        run("d", 7), run("b", 3), run("c", 3), run("z", 1, tablet=1, level=1), run("a", 1, tablet=2, level=1),
        run("y", 1, tablet=1, level=1),
    )  # fmt: skip
    assert names(found.level0) == ["b", "c", "d"]
    assert names(found.level1) == ["y", "z", "a"]


def test_rows_at_most_leaves_tombstones_out():
    found = snapshot(run("a", 1, tablet=0, level=1, rows=100), run("b", 2, rows=10, dead=4))
    assert found.rows_at_most == 106


# ---- cutoffs --------------------------------------------------------------------------------------------


def test_level_0_of_a_tablet_counts_after_its_cutoff_only():
    runs = [run("old", 4, tablet=1), run("at", 5, tablet=1), run("new", 6, tablet=1), run("other", 4, tablet=2)]
    assert names(snapshot(*runs, folds={1: 5}).level0) == ["other", "new"]
    assert names(snapshot(*runs).level0) == ["old", "other", "at", "new"]


def test_a_spanning_run_counts_until_it_is_folded_in_every_tablet():
    spanning = run("all", 5)
    partly = snapshot(spanning, folds={0: 5, 1: 9, 2: 5})
    assert names(partly.level0) == ["all"]
    assert partly.tablets_of(spanning) == (3,)
    everywhere = snapshot(spanning, folds={0: 5, 1: 9, 2: 5, 3: 5})
    assert everywhere.level0 == ()


def test_a_run_of_some_tablets_counts_until_it_is_folded_in_these():
    some = between("some", 5, 1, 2)
    partly = snapshot(some, folds={1: 5})
    assert (names(partly.level0), partly.tablets_of(some), partly.folded) == (["some"], (2,), ())
    everywhere = snapshot(some, folds={1: 5, 2: 7})
    assert (everywhere.level0, names(everywhere.folded)) == ((), ["some"])


def test_what_is_folded_is_said_of_runs_whose_tablets_are_all_read():
    runs = [run("one", 5, tablet=1), between("some", 5, 1, 2), run("all", 5)]
    folds = dict.fromkeys(range(TABLETS), 5)
    assert names(snapshot(*runs, folds=folds).folded) == ["one", "some", "all"]
    assert names(snapshot(*runs, folds=folds, tablets=[1, 2]).folded) == ["one", "some"]
    assert names(snapshot(*runs, folds=folds, tablets=[1]).folded) == ["one"]


def test_the_newest_of_several_folds_counts():
    folds = [(token_range(0, TABLETS), Version(version)) for version in (7, 3)]
    found = assemble(RELATION, Version(9), [run("a", 5)], folds, {NODE: "/data"}, [ALL[0]])
    assert found.cutoffs == {0: 7}
    assert found.level0 == ()


def test_level_1_has_no_cutoff():
    assert names(snapshot(run("one", 3, tablet=0, level=1), folds={0: 8}).level1) == ["one"]


# ---- some tablets ---------------------------------------------------------------------------------------


def test_a_part_holds_its_own_tablets_and_what_spans_them():
    runs = [
        *(run(f"one{t}", 1, tablet=t, level=1) for t in ALL),
        *(run(f"zero{t}", 2, tablet=t) for t in ALL),
        run("all", 3),
    ]
    found = snapshot(*runs, tablets=[3, 1, 3])
    assert found.tablets == (1, 3)
    assert not found.complete
    assert names(found.level1) == ["one1", "one3"]
    assert names(found.level0) == ["zero1", "zero3", "all"]


def test_a_part_leaves_out_what_is_folded_in_it():
    spanning = run("all", 5)
    assert snapshot(spanning, folds={1: 5, 2: 6}, tablets=[1, 2]).level0 == ()
    part = snapshot(spanning, folds={1: 5, 2: 6, 3: 1}, tablets=[2, 3])
    assert names(part.level0) == ["all"]
    assert part.cutoffs == {2: 6, 3: 1}
    assert part.tablets_of(spanning) == (3,)


def test_a_part_leaves_out_what_lies_in_other_tablets():
    found = snapshot(between("low", 5, 0, 1), between("high", 5, 2, 3), tablets=[0, 1])
    assert names(found.level0) == ["low"]
    assert snapshot(between("middle", 5, 1, 2), tablets=[2, 3]).tablets_of(between("middle", 5, 1, 2)) == (2,)


def test_no_tablets_hold_nothing():
    found = snapshot(run("all", 5), run("one", 1, tablet=0, level=1), tablets=[])
    assert (found.tablets, found.level1) == ((), ())
    assert not found.complete


def test_tablets_of_a_run_inside_one_tablet():
    inside = run("zero2", 5, tablet=2)
    assert snapshot(inside).tablets_of(inside) == (2,)
    one = run("one2", 5, tablet=2, level=1)
    assert snapshot(one, folds={2: 9}).tablets_of(one) == (2,)


# ---- uniform cutoff -------------------------------------------------------------------------------------


def test_cutoffs_are_uniform_when_no_level_0_is_folded_anywhere():
    assert snapshot(run("a", 5), run("b", 6)).uniform_cutoff
    assert snapshot(run("a", 5), folds={0: 4, 1: 3}).uniform_cutoff
    assert snapshot(run("one", 1, tablet=0, level=1), folds={0: 9}).uniform_cutoff


def test_cutoffs_are_not_uniform_when_a_run_is_folded_in_one_tablet_only():
    assert not snapshot(run("a", 5), folds={0: 5}).uniform_cutoff
    assert not snapshot(run("a", 5), run("b", 8), folds={2: 6}).uniform_cutoff


def test_cutoffs_of_a_part_are_not_uniform_over_level_0():
    """A spanning run has rows of tablets that the part does not read."""
    assert not snapshot(run("a", 5), tablets=[0, 1]).uniform_cutoff
    assert snapshot(run("one", 1, tablet=0, level=1), tablets=[0]).uniform_cutoff


# ---- against naive models -------------------------------------------------------------------------------

RUNS = st.lists(
    st.builds(
        lambda number, begin, ends, level: (
            run(f"r{number}", begin, tablet=ends[0], level=1)
            if level == 1
            else between(f"r{number}", begin, min(ends), max(ends))
        ),
        st.integers(0, 10**6),
        st.integers(1, 12),
        st.tuples(st.integers(0, TABLETS - 1), st.integers(0, TABLETS - 1)),
        st.integers(0, 1),
    ),
    max_size=12,
    unique_by=lambda r: r.id,
)
FOLDS = st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 12).map(Version)), max_size=8)
PARTS = st.none() | st.lists(st.sampled_from(ALL), min_size=1, max_size=6)


@given(runs=RUNS, folds=FOLDS, part=PARTS)
def test_a_run_is_there_exactly_if_it_counts_in_a_tablet_that_is_read(
    runs: list[Run], folds: list[tuple[TabletId, Version]], part: list[TabletId] | None
):
    named = [(token_range(t, TABLETS), v) for t, v in folds]
    found = assemble(RELATION, Version(100), runs, named, {NODE: "/data"}, part)
    read = set(ALL if part is None else part)

    def cutoff(tablet: TabletId) -> int:
        return max((v for t, v in folds if t == tablet), default=0)

    def counts_in(one: Run) -> list[TabletId]:
        covered = [t for t in sorted(read) if one.tokens.overlaps(token_range(t, TABLETS))]
        return [t for t in covered if one.level == 1 or one.begin_version > cutoff(t)]

    expected = {one.id for one in runs if counts_in(one)}
    assert {r.id for r in (*found.level0, *found.level1)} == expected
    assert all(r.level == 0 for r in found.level0)
    assert all(r.level == 1 for r in found.level1)
    assert list(found.level0) == sorted(found.level0, key=lambda r: (r.begin_version, r.id))
    for one in (*found.level0, *found.level1):
        assert list(found.tablets_of(one)) == counts_in(one)
    if found.uniform_cutoff:
        everywhere = {one.id for one in runs if len(counts_in(one)) == len(tablets_over(one.tokens, TABLETS))}
        assert all(one.id in everywhere for one in found.level0)
    inside = [one for one in runs if set(tablets_over(one.tokens, TABLETS)) <= read]
    assert {one.id for one in found.folded} == {one.id for one in inside if one.level == 0 and not counts_in(one)}


# A store of numbers: key k lies in tablet k % TABLETS. Runs hold {key: value}, None for a tombstone.

Rows = dict[int, int | None]


@dataclass
class Store:
    """Level 0 and level 1 as the catalog keeps them, beside a plain dictionary for every version."""

    version: int = 0
    runs: list[Run] = field(default_factory=list)
    rows: dict[RunId, Rows] = field(default_factory=dict)
    folds: list[tuple[int, TabletId, Version]] = field(default_factory=list)
    states: list[dict[int, int | None]] = field(default_factory=lambda: [{}])

    def write(self, rows: Rows, tablet: int) -> None:
        """One commit's mutations, in one file for all tablets or for one."""
        if tablet != SPANS_TABLETS:
            rows = {key: value for key, value in rows.items() if key % TABLETS == tablet}
        self._next()
        self._add(rows, tablet=tablet, level=0)
        self.states[-1].update(rows)

    def fold(self, tablets: set[TabletId]) -> None:
        """What compaction does to some tablets: level 1 anew, cutoffs up, and level 0 ended where that is all of it."""
        before = self.snapshot(self.version, sorted(tablets))
        folded = self.read(before)
        ended = {r.id for r in before.level1}
        ended |= {r.id for r in before.level0 if r.tablet != SPANS_TABLETS or before.complete}
        self._next()
        self.runs = [replace(r, end_version=Version(self.version)) if r.id in ended else r for r in self.runs]
        for tablet in tablets:
            self._add({k: v for k, v in folded.items() if k % TABLETS == tablet}, tablet=tablet, level=1)
            self.folds.append((self.version, tablet, before.version))

    def truncate(self) -> None:
        self._next()
        self.runs = [replace(r, end_version=min(r.end_version, Version(self.version))) for r in self.runs]
        self.states[-1].clear()

    def _next(self) -> None:
        self.version += 1
        self.states.append(dict(self.states[-1]))

    def _add(self, rows: Rows, *, tablet: int, level: int) -> None:
        name = f"r{len(self.rows)}"
        source = RunSource.COMPACTION if level else RunSource.WRITE
        self.runs.append(replace(run(name, self.version, tablet=tablet, level=level), source=source))
        self.rows[RunId(name)] = rows

    def snapshot(self, version: int, tablets: list[TabletId] | None = None) -> Snapshot:
        visible = [r for r in self.runs if r.begin_version <= version < r.end_version]
        assert all(r.end_version <= FOREVER for r in visible)
        folds = [(token_range(tablet, TABLETS), cutoff) for begin, tablet, cutoff in self.folds if begin <= version]
        return assemble(RELATION, Version(version), visible, folds, {NODE: "/data"}, tablets)

    def read(self, found: Snapshot) -> Rows:
        """What design §4 says a read is: level 1, and over it the last mutation of each key that counts."""
        rows: Rows = {}
        for one in found.level1:
            rows |= self.rows[one.id]
        for one in found.level0:
            for key, value in self.rows[one.id].items():
                tablet = TabletId(key % TABLETS)
                if found.uniform_cutoff or (
                    tablet in found.tablets and one.begin_version > found.cutoffs.get(tablet, BEGINNING)
                ):
                    rows[key] = value
        return {key: value for key, value in rows.items() if value is not None}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.dictionaries(st.integers(0, 11), st.none() | st.integers(0, 99), max_size=5),
            st.integers(-1, TABLETS - 1),
        ),
        st.tuples(st.just("fold"), st.sets(st.sampled_from(ALL), min_size=1), st.just(0)),
        st.tuples(st.just("fold"), st.just(set(ALL)), st.just(0)),
        st.tuples(st.just("truncate"), st.just(None), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_every_version_reads_as_it_was_whatever_was_folded_since(steps: list[tuple[str, object, int]]):
    store = Store()
    for verb, what, tablet in steps:
        match verb, what:
            case "write", dict():
                store.write(what, tablet)
            case "fold", set():
                store.fold(what)
            case _:
                store.truncate()
    for version, state in enumerate(store.states):
        living = {key: value for key, value in state.items() if value is not None}
        assert store.read(store.snapshot(version)) == living
        for tablets in ([ALL[0]], [ALL[1], ALL[3]]):
            wanted = {key: value for key, value in living.items() if key % TABLETS in tablets}
            assert store.read(store.snapshot(version, tablets)) == wanted
