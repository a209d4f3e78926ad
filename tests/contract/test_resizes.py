"""Resizes in the catalog: decisions, reports that hold as long as they are true, and the commit that finalizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Connection

from ebla.base.ids import RelationId, TabletId, Version
from ebla.catalog import build_tasks, layouts, resizes, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.relation import Relation
from ebla.model.tablets import token_range
from ebla.model.tasks import Build, Replica
from ebla.model.topology import Layout, Resize, ResizeType
from ebla.topology import loader, resize
from support.catalogs import NODE, add, commit, create, create_index, exclusively, run, snapshot, task

SPLIT, MERGE, NONE = ResizeType.SPLIT, ResizeType.MERGE, ResizeType.NONE
VIEW = RelationId(91)


def decide(catalog: Catalog, target: Relation, type: ResizeType, number: int) -> Version:
    decided = Resize(type=type, number=number, tablets=target.tablets)
    return exclusively(catalog, t.SetResize(relation=target.id, resize=decided)).version


def report(catalog: Catalog, target: Relation, *tablets: int, number: int = 1) -> None:
    numbers = tuple(TabletId(tablet) for tablet in tablets)
    commit(catalog, t.ReportCut(relation=target.id, tablets=numbers, host=NODE, number=number))


def layout(catalog: Catalog, target: Relation) -> Layout:
    with catalog.reading() as connection:
        return layouts.layouts(connection)[target.id]


def reported(catalog: Catalog, target: Relation) -> set[int]:
    return {tablet for tablet, _ in layout(catalog, target).reported}


def test_a_resize_is_decided_reported_and_finalized(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    decided = decide(catalog, target, SPLIT, 1)
    assert layout(catalog, target).resize == Resize(type=SPLIT, number=1, tablets=2)
    with catalog.reading() as connection:
        assert topology.version(connection) == decided
    report(catalog, target, 0)
    assert not layout(catalog, target).is_cut({NODE})
    report(catalog, target, 1)
    assert layout(catalog, target).is_cut({NODE})
    with catalog.reading() as connection:
        assert topology.version(connection) == decided, "a report does not change the shape of the cluster"
    exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=4))
    after = layout(catalog, target)
    assert (after.tablets, after.resize, after.reported) == (4, Resize(number=1, tablets=2), {})


def test_numbers_do_not_fall_and_late_reports_are_refused(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    decide(catalog, target, SPLIT, 3)
    with pytest.raises(ConflictError, match="expected a number of 3 or more, found 2"):
        decide(catalog, target, MERGE, 2)
    with pytest.raises(ConflictError, match="expected number 2, found split 3"):
        report(catalog, target, 0, number=2)
    report(catalog, target, 0, 1, number=3)
    decide(catalog, target, NONE, 3)
    assert reported(catalog, target) == set(), "a revoked resize has no reports"
    with pytest.raises(ConflictError, match="expected number 3, found none 3"):
        report(catalog, target, 0, number=3)


def test_a_run_that_crosses_the_coming_tablets_takes_the_report_back(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    index = create_index(catalog, target, "by_total")
    decide(catalog, target, SPLIT, 1)
    report(catalog, target, 0, 1)
    add(catalog, run(target.id, tablet=3, tablets=4, level=1), run(target.id, tablet=0))
    assert reported(catalog, target) == {0, 1}
    add(catalog, run(target.id, tablet=0, level=1))
    assert reported(catalog, target) == {1}
    report(catalog, target, 0, 1)
    assert reported(catalog, target) == {1}, "a report that is not true is not kept"
    add(catalog, run(index, tablet=1, level=1))
    assert reported(catalog, target) == set()


def test_a_fold_takes_the_reports_of_a_merge_back(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    written = add(catalog, run(target.id, tablet=0))
    decide(catalog, target, MERGE, 1)
    report(catalog, target, 0, 1)
    commit(catalog, c.SetCutoff(relation=target.id, tablets=(token_range(0, 2),), cutoff=written))
    assert reported(catalog, target) == {1}


def test_a_bulk_load_is_level_0_where_it_crosses_the_coming_tablets(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    decide(catalog, target, SPLIT, 1)
    report(catalog, target, 0, 1)
    add(catalog, run(target.id, id="old", tablet=0), run(target.id, id="cut", tablet=3, tablets=4), bulk=True)
    found = snapshot(catalog, target)
    assert ([r.id for r in found.level0], [r.id for r in found.level1]) == (["old"], ["cut"])
    assert reported(catalog, target) == {0, 1}


def test_a_map_waits_for_transitions(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    with catalog.writing() as connection:
        moving = {"relation_id": target.id, "tablet_id": 1, "kind": "migration", "stage": "streaming"}
        rows.write(connection, rows.insert(s.tablet_transitions, [{**moving, "begun_version": 1, "stage_version": 1}]))
    with pytest.raises(ConflictError, match="orders: expected no tablet in transition, found tablet 1"):
        exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=4))


def test_shards_and_the_places_of_tasks_are_kept(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    with catalog.writing() as connection:
        rows.write(connection, rows.update(s.tablets, {"shard": 3}, relation_id=target.id, tablet_id=1))
    placed = Replica(NODE, 3)
    commit(
        catalog,
        c.CreateBuild(
            build=Build(view=VIEW, base=target.id),
            tasks=(
                task("a", target.id, VIEW, tablet=0),
                replace(task("b", target.id, VIEW, tablet=1), replica=placed),
            ),
        ),
    )
    exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=4))
    assert [replicas[0].shard for replicas in layout(catalog, target).replicas] == [0, 0, 3, 3]
    with catalog.reading() as connection:
        assert [one.replica for one in build_tasks.tasks(connection)][2:] == [placed, placed]


def test_sizes_are_those_of_one_copy_with_the_indexes(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    index = create_index(catalog, target, "by_total")
    add(catalog, run(target.id, rows=10), run(target.id, tablet=0, rows=3, level=1), run(index, tablet=1, rows=2))
    assert layout(catalog, target).bytes == (500 + 300, 500 + 200)


def test_a_dropped_relation_leaves_no_resize(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    decide(catalog, target, SPLIT, 1)
    report(catalog, target, 0)
    exclusively(catalog, c.DropRelation(relation=target.id))
    with catalog.reading() as connection:
        assert resizes.all_resizes(connection) == {}
        assert resizes.reports(connection) == {}


def test_a_relation_that_is_dropped_while_its_resize_is_decided_leaves_none(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    add(catalog, run(target.id, rows=10))
    made = []

    def drop_first(connection: Connection, at: Version) -> c.Decision | None:
        made.append(resize.step(loader.load(connection, catalog.clock()), 100))
        if len(made) == 1:
            exclusively(catalog, c.DropRelation(relation=target.id))
        return made[-1]

    assert catalog.decide(drop_first) is None
    assert made[0] is not None, "a split was decided"
    with catalog.reading() as connection:
        assert resizes.all_resizes(connection) == {}


def test_an_index_has_the_coming_tablets_of_its_base(catalog: Catalog) -> None:
    target = create(catalog, "orders", tablets=2)
    index = create_index(catalog, target, "by_total")
    other = create(catalog, "customers", tablets=2)
    decide(catalog, target, SPLIT, 1)
    with catalog.reading() as connection:
        found = [resizes.coming_tablets(connection, one) for one in (target.id, index, other.id)]
    assert found == [4, 4, None]


def test_a_relation_with_damaged_options_has_its_place_in_the_topology(catalog: Catalog):
    """What they say is missing; the topology of all others goes on."""
    target = create(catalog, "orders")
    with catalog.writing() as connection:
        rows.write(connection, rows.update(s.relations, {"options": "torn {"}, relation_id=target.id))
    with catalog.reading() as connection:
        found = layouts.layouts(connection)[target.id]
    assert (found.tablets, found.min_copies) == (target.tablets, 1)
