"""Tablet maps: a split and a merge are one commit, must fit what is there, and leave older versions as they were."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from sqlalchemy import text

from ebla.base.ids import RelationId, RunId, Version
from ebla.catalog import build_tasks, manifest, reads, rows
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.chunks import position_of
from ebla.model.relation import FOREVER, SPANS_TABLETS, Relation, RunState
from ebla.model.tablets import ALL, TokenRange, token_range, token_ranges
from ebla.model.tasks import Build
from ebla.tables.fold import plan_fold
from support.catalogs import (
    NODE,
    add,
    commit,
    create,
    create_index,
    exclusively,
    put_nodes,
    relation,
    run,
    segment,
    snapshot,
    statements,
    task,
    visible,
)

IN_MEMORY = True
VIEW = RelationId(91)


def resize(catalog: Catalog, target: Relation, tablets: int, *updates: c.Update) -> Version:
    return exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=tablets), *updates).version


def folded(target: Relation, tablets: Iterable[int], cutoff: Version, of: int | None = None) -> c.SetCutoff:
    ranges = tuple(token_range(t, of or target.tablets) for t in tablets)
    return c.SetCutoff(relation=target.id, tablets=ranges, cutoff=cutoff)


def maps(catalog: Catalog, target: Relation) -> list[tuple[int, int]]:
    with catalog.reading() as connection:
        return [(int(since), tablets) for since, tablets in reads.relation_maps(connection, target.id)]


def covered(catalog: Catalog) -> dict[tuple[int, ...], list[tuple[str | None, int]]]:
    with catalog.reading() as connection:
        found = build_tasks.segments(connection, VIEW)
    return {tuple(tokens): [(one.up_to, one.since) for one in segments] for tokens, segments in found.items()}


def test_a_relation_has_the_map_of_its_version(catalog: Catalog):
    put_nodes(catalog, "node2")
    target = create(catalog, "orders", tablets=2)
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE,), ("node2",))))  # type: ignore[arg-type]
    split = resize(catalog, target, 4)
    assert relation(catalog, "orders").placement == ((NODE,), (NODE,), ("node2",), ("node2",))
    with pytest.raises(ConflictError, match="expected tablets 0 to 3, which become one, on the same nodes, found them"):
        resize(catalog, target, 1)
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE,),) * 4))
    merged = resize(catalog, target, 1)
    assert maps(catalog, target) == [(target.created_version, 2), (split, 4), (merged, 1)]
    now = relation(catalog, "orders")
    assert (now.tablets, now.map_version, now.placement, now.placement_version) == (1, merged, ((NODE,),), 5)
    then = relation(catalog, "orders", split)
    assert (then.tablets, len(then.placement)) == (4, 4)
    assert relation(catalog, "orders", split - 1).tablets == 2
    for version, tablets in ((split - 1, 2), (split, 4), (merged - 1, 4), (merged, 1)):
        assert snapshot(catalog, now, version).relation.tablets == tablets
        assert snapshot(catalog, target, version).tablets == tuple(range(tablets))


def test_runs_and_folds_hold_for_the_tablets_inside_them(catalog: Catalog):
    target = create(catalog, "orders", tablets=2)
    old = add(catalog, run(target.id, id="all"), run(target.id, id="half", tablet=0))
    commit(
        catalog,
        c.EndRuns(relation=target.id, runs=frozenset({RunId("half")})),
        c.AddRuns(runs=tuple(run(target.id, id=f"one{t}", tablet=t, tablets=4, level=1) for t in (0, 1))),
        folded(target, (0,), old),
    )
    before = snapshot(catalog, target)
    assert ({r.id: r.tablet for r in before.level1}, before.cutoffs) == ({"one0": 0, "one1": 0}, {0: old})
    resize(catalog, target, 4)
    after = snapshot(catalog, target)
    assert {r.id: r.tablet for r in after.level1} == {"one0": 0, "one1": 1}
    assert after.cutoffs == {0: old, 1: old}
    assert [(r.id, r.tablet) for r in after.level0] == [("all", SPANS_TABLETS)]
    assert after.tablets_of(after.level0[0]) == (2, 3)
    assert snapshot(catalog, after.relation, tablets=[1]).level0 == ()
    assert [r.id for r in snapshot(catalog, after.relation, tablets=[1]).level1] == ["one1"]
    assert [r.id for r in snapshot(catalog, after.relation, tablets=[3]).level0] == ["all"]
    assert snapshot(catalog, target, before.version).cutoffs == {0: old}


def test_a_map_that_cuts_a_level_1_run_is_refused(catalog: Catalog):
    target = create(catalog, "orders", tablets=2)
    add(catalog, run(target.id, tablet=1, level=1))
    with pytest.raises(ConflictError, match=r"orders: expected every level 1 run in one of 4 tablets.*cut it first"):
        resize(catalog, target, 4)
    assert maps(catalog, target) == [(target.created_version, 2)]
    resize(catalog, target, 1)
    with pytest.raises(ConflictError, match=r"expected level 1 runs of one of 1 tablets.*retry it|cut it first"):
        resize(catalog, target, 4)


def test_a_level_1_run_that_was_cut_by_the_map_before_is_refused(catalog: Catalog):
    target = create(catalog, "orders", tablets=2)
    resize(catalog, target, 4)
    with pytest.raises(ConflictError, match=r"runs of one of 4 tablets each.*changed during the write"):
        add(catalog, run(target.id, tablet=0, tablets=2, level=1))
    add(catalog, run(target.id, id="fine", tablet=0, tablets=4, level=1))
    assert visible(catalog, target) == {"fine"}


@pytest.mark.database
def test_a_load_into_a_new_table_asks_once_for_its_tablets(catalog: Catalog):
    """Nothing is remembered of a table that the commit itself creates."""
    target = create(catalog, "orders", tablets=64)

    def sent_with(runs: int) -> int:
        rename = c.RenameRelation(relation=target.id, name=f"orders{runs}")
        added = c.AddRuns(runs=tuple(run(target.id, tablet=t, tablets=64, level=1) for t in range(runs)))
        with statements(catalog) as sent:
            exclusively(catalog, rename, added)
        return len(sent)

    sent_with(1)
    assert sent_with(64) == sent_with(2)


def test_a_run_of_a_bulk_load_is_compared_with_one_that_is_there(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    tablets = 256
    target = create(catalog, "orders", tablets=tablets)
    add(catalog, *(run(target.id, tablet=t, tablets=tablets) for t in range(0, tablets, 2)))
    compared, overlaps = itertools.count(), TokenRange.overlaps

    def counted(one: TokenRange, other: TokenRange) -> bool:
        next(compared)
        return overlaps(one, other)

    monkeypatch.setattr(TokenRange, "overlaps", counted)
    add(catalog, *(run(target.id, id=f"new{t:03}", tablet=t, tablets=tablets) for t in range(tablets)), bulk=True)
    assert next(compared) <= tablets
    found = snapshot(catalog, target)
    assert [r.id for r in found.level1] == [f"new{t:03}" for t in range(1, tablets, 2)]


def test_tablets_that_become_one_must_be_folded_up_to_one_version(catalog: Catalog):
    target = create(catalog, "orders", tablets=4)
    written = add(catalog, run(target.id, id="all"))
    commit(catalog, folded(target, (0, 1, 2), written))
    with pytest.raises(ConflictError, match=rf"tablets 2 to 3, .* found \[0, {written}\]; compact it first"):
        resize(catalog, target, 2)
    commit(catalog, folded(target, (3,), written))
    resize(catalog, target, 2)
    assert snapshot(catalog, target).cutoffs == {0: written, 1: written}
    assert snapshot(catalog, target).level0 == ()
    resize(catalog, target, 8)
    assert snapshot(catalog, target).cutoffs == dict.fromkeys(range(8), written)
    later = commit(catalog, folded(target, (5,), catalog.version(), 8)).version
    resize(catalog, target, 2)  # no level 0 run began between the two cutoffs
    assert snapshot(catalog, target).cutoffs == {0: written, 1: later - 1}


def test_indexes_follow_their_base(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    index = create_index(catalog, base)
    at = resize(catalog, base, 4)
    found = relation(catalog, "by_total")
    assert (found.tablets, found.map_version) == (4, at)
    with pytest.raises(ConflictError, match="by_total: expected a table or a view, found an index"):
        exclusively(catalog, c.SetTabletMap(relation=index, tablets=2))


def test_a_number_that_is_no_power_of_two_is_refused(catalog: Catalog):
    target = create(catalog, "orders")
    with pytest.raises(ValueError, match="expected a power of two"):
        resize(catalog, target, 3)


def test_segments_and_tasks_are_cut_and_joined_with_the_map(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    first, second = token_ranges(2)
    middle = position_of(token_range(1, 8).last)
    tasks = (task("a", base.id, VIEW, tablet=0), task("b", base.id, VIEW, tablet=1), task("s", base.id, None, tablet=1))
    commit(catalog, c.CreateBuild(build=Build(view=VIEW, base=base.id), tasks=tasks))
    commit(catalog, c.CoverSegment(view=VIEW, tokens=first, segment=segment(middle, 3, rows=8)))

    def ids() -> set[str]:
        with catalog.reading() as connection:
            return {t.id for t in build_tasks.tasks(connection)}

    def places() -> list[tuple[RelationId | None, tuple[int, ...], int]]:
        with catalog.reading() as connection:
            numbers = {row.id: row.base_tablet_id for row in rows.find(connection, s.view_building_tasks)}
            return [(t.view, tuple(t.tokens), numbers[t.id]) for t in build_tasks.tasks(connection)]

    before = ids()
    resize(catalog, base, 8)
    assert not before & ids(), "a task that goes on has another id"
    assert covered(catalog) == {tuple(token_range(t, 8)): [(None, 3)] for t in (0, 1)}
    of_view = [(VIEW, tuple(token_range(t, 8)), t) for t in range(8)]
    assert sorted(places(), key=repr) == sorted(
        [*of_view, *((None, tuple(token_range(t, 8)), t) for t in range(4, 8))], key=repr
    )
    commit(catalog, c.CoverSegment(view=VIEW, tokens=token_range(5, 8), segment=segment(None, 7)))
    resize(catalog, base, 2)
    assert covered(catalog) == {
        **{tuple(token_range(t, 8)): [(None, 3)] for t in (0, 1)},
        tuple(token_range(5, 8)): [(None, 7)],
    }
    assert sorted(places(), key=repr) == sorted(
        [(VIEW, tuple(first), 0), (VIEW, tuple(second), 1), (None, tuple(second), 1)], key=repr
    )


def test_staged_runs_are_found_by_their_tokens(catalog: Catalog):
    target = create(catalog, "orders", tablets=2)
    add(catalog, *(run(target.id, id=f"r{t}", tablet=t, state=RunState.STAGING) for t in (0, 1)))
    resize(catalog, target, 4)
    with catalog.reading() as connection:
        now = reads.relation_by_id(connection, target.id)
        assert now is not None
        for tablet, expected in ((0, ["r0"]), (1, ["r0"]), (2, ["r1"])):
            assert [r.id for r in reads.staged_runs(connection, now, [token_range(tablet, 4)])] == expected
        assert [r.id for r in reads.staged_runs(connection, now)] == ["r0", "r1"]


@pytest.mark.database
def test_staged_runs_of_many_places_are_one_query(catalog: Catalog):
    target = create(catalog, "orders", tablets=64)
    add(catalog, *(run(target.id, id=f"r{t:02}", tablet=t, tablets=64, state=RunState.STAGING) for t in range(64)))
    even = range(0, 64, 2)
    with catalog.reading() as connection, statements(catalog) as sent:
        found = reads.staged_runs(connection, target, [token_range(t, 64) for t in even])
    assert [r.id for r in found] == [f"r{t:02}" for t in even]
    assert len(sent) == 1


def test_vacuum_keeps_the_map_that_the_horizon_is_read_with(catalog: Catalog):
    target = create(catalog, "orders", tablets=2)
    first, second = resize(catalog, target, 4), resize(catalog, target, 8)
    commit(catalog, c.SetHorizon(relation=target.id, horizon=Version(second - 1)))
    assert maps(catalog, target) == [(first, 4), (second, 8)]
    assert snapshot(catalog, target, second - 1).relation.tablets == 4
    commit(catalog, c.SetHorizon(relation=target.id, horizon=second))
    assert maps(catalog, target) == [(second, 8)]


def fold_all(catalog: Catalog, target: Relation) -> c.CommitRecord:
    """What compaction commits, but for the new level 1 runs."""
    found = snapshot(catalog, target)
    touched = {t for one in found.level0 for t in found.tablets_of(one)}
    fold = plan_fold(found, touched, found.version)
    return commit(
        catalog,
        c.EndRuns(relation=target.id, runs=fold.ended_level0 | fold.ended_level1),
        folded(found.relation, found.tablets, found.version),
    )


def live(catalog: Catalog, target: Relation) -> set[str]:
    """Runs that no commit has ended, whether they count or not."""
    with catalog.reading() as connection:
        return rows.values(connection, s.runs.c.run_id, relation_id=target.id, end_version=FOREVER)


def test_a_run_that_a_merge_moves_below_the_cutoff_ends_with_the_next_fold(catalog: Catalog):
    target = create(catalog, "orders", tablets=4)
    spanning = replace(run(target.id, id="old"), token_max=token_range(1, 4).last)
    written = add(catalog, spanning)
    commit(catalog, folded(target, (0, 1), written))
    add(catalog, run(target.id, id="new", tablet=3, tablets=4))
    resize(catalog, target, 2)
    merged = snapshot(catalog, target)
    assert ([r.id for r in merged.level0], [r.id for r in merged.folded]) == (["new"], ["old"])
    fold_all(catalog, target)
    assert live(catalog, target) == set()
    assert [r.id for r in snapshot(catalog, target, written).level0] == ["old"]


# ---- catalogs of the release before ---------------------------------------------------------------------

NAMED = {
    "runs": "tablet_id",
    "folds": "tablet_id",
    "view_building_segments": "base_tablet_id",
}


def go_back(catalog: Catalog, *small: str) -> None:
    """The tables as they were when tablets had numbers of the one map of their relation; small writes had none."""
    with catalog.writing() as connection:
        for name, column in NAMED.items():
            connection.execute(text(f"CREATE TABLE old AS SELECT *, 0 AS {column} FROM {name}"))
            relations = "relation_id" if name != "view_building_segments" else None
            tablets = "(SELECT tablets FROM relations r WHERE r.relation_id = old.relation_id)" if relations else "2"
            # By the upper bits of the first token; a run of all tokens has the number -1.
            for number in range(2):
                first, last = token_range(number, 2)
                within = f"token_min >= {first} AND token_max <= {last}"
                connection.execute(text(f"UPDATE old SET {column} = {number} WHERE {within} AND {tablets} = 2"))
            connection.execute(
                text(f"UPDATE old SET {column} = -1 WHERE token_min = {ALL.first} AND token_max = {ALL.last}")
            )
            connection.execute(text(f"DROP TABLE {name}"))
            if name == "runs":
                for written in small:
                    connection.execute(text(f"UPDATE old SET tablet_id = -1 WHERE run_id = '{written}'"))
                connection.execute(text("ALTER TABLE old DROP COLUMN fork"))
            else:
                for gone in ("token_min", "token_max"):
                    connection.execute(text(f"ALTER TABLE old DROP COLUMN {gone}"))
            connection.execute(text(f"ALTER TABLE old RENAME TO {name}"))
        connection.execute(text("CREATE INDEX runs_of_tablet ON runs (relation_id, tablet_id, end_version)"))
        for gone in ("token_min", "token_max"):
            connection.execute(text(f"ALTER TABLE view_building_tasks DROP COLUMN {gone}"))
        connection.execute(text("ALTER TABLE relations DROP COLUMN map_version"))
        connection.execute(text("DROP TABLE tablet_maps"))
        connection.execute(text("DELETE FROM migrations WHERE number >= 13"))


@pytest.mark.database
def test_a_catalog_of_the_release_before_is_keyed_by_tokens(catalog: Catalog):
    target, other = create(catalog, "orders", tablets=2), create(catalog, "customers", tablets=1)
    written = add(
        catalog,
        run(target.id, id="all"),
        *(run(target.id, id=f"one{t}", tablet=t, level=1) for t in (0, 1)),
        run(other.id, id="whole", tablet=0, tablets=1, level=1),
    )
    commit(catalog, folded(target, (1,), written))
    tasks = tuple(task(f"a{t}", target.id, VIEW, tablet=t) for t in (0, 1))
    commit(catalog, c.CreateBuild(build=Build(view=VIEW, base=target.id), tasks=tasks))
    commit(catalog, c.CoverSegment(view=VIEW, tokens=token_range(1, 2), segment=segment(None, 7)))

    def all_of(one: Catalog) -> tuple[object, ...]:
        with one.reading() as connection:
            return (
                build_tasks.tasks(connection),
                build_tasks.segments(connection, VIEW),
                sorted(map(tuple, rows.find(connection, s.folds))),
                sorted(map(tuple, rows.find(connection, s.tablet_maps))),
                [
                    (snapshot(one, now, written).level1, snapshot(one, now).level0, snapshot(one, now).cutoffs)
                    for now in (relation(one, "orders"), relation(one, "customers"))
                ],
                [relation(one, name) for name in ("orders", "customers")],
                sorted((row.run_id, row.fork) for row in rows.find(connection, s.runs)),
            )

    before = all_of(catalog)
    go_back(catalog)
    again = Catalog.open(catalog.where, create=False)
    assert all_of(again) == before
    commit(again, folded(target, (0,), written))
    resize(again, target, 1)
    assert snapshot(again, target, written).relation.tablets == 2
    again.close()


@pytest.mark.database
def test_a_small_write_of_an_interrupted_compaction_ends_with_the_next(catalog: Catalog):
    """A write without a tablet ended with the last tablet of all; by its tokens it lies in one that is folded."""
    target = create(catalog, "orders", tablets=2)
    add(catalog, run(target.id, id="small", tablet=0), run(target.id, id="other", tablet=1))
    commit(catalog, folded(target, (0,), catalog.version()))
    go_back(catalog, "small", "other")
    again = Catalog.open(catalog.where, create=False)
    found = snapshot(again, target)
    assert ([r.id for r in found.level0], [r.id for r in found.folded]) == (["other"], ["small"])
    fold_all(again, target)
    assert live(again, target) == set()
    with again.reading() as connection:
        assert manifest.levels(connection, target).level0_runs == 0
    add(again, run(target.id, id="loaded", tablet=0), bulk=True)
    assert [r.id for r in snapshot(again, target).level1] == ["loaded"]
    again.close()
