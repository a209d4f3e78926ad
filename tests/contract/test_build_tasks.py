"""Building tasks, segments and what is built, as the catalog keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TaskId, TransactionId, Version
from ebla.build import build_store
from ebla.catalog import build_tasks, migrations, reads, rows
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.relation import Kind, Relation, RunState
from ebla.model.segments import Segment, Segments, advance
from ebla.model.staging import Arrival, Destination
from ebla.model.tablets import token_range
from ebla.model.tasks import Build, Replica, Task, TaskKind
from ebla.relations import tasks as relation_tasks
from ebla.relations.views import Position, progress_name
from support.catalogs import (
    NO_VIEW,
    commit,
    create,
    exclusively,
    new_relation,
    relation,
    run,
    segment,
    task,
    task_ids,
    visible,
)

IN_MEMORY = True
HERE, THERE = Replica(NodeId("node1"), 0), Replica(NodeId("node2"), 1)


def create_view(catalog: Catalog, base: Relation, *, name: str = "card", prefix: str = "a") -> Relation:
    """As a statement will do it: the relation and its tasks in one commit."""
    exclusively(
        catalog,
        new_relation(name, kind=Kind.VIEW),
        c.CreateBuild(
            build=Build(view=NO_VIEW, base=base.id, rows_per_minute=600),
            tasks=tuple(task(f"{prefix}{t}", base.id, tablet=t) for t in range(base.tablets)),
            of_created=True,
        ),
    )
    return relation(catalog, name)


def tasks(catalog: Catalog) -> dict[str, Task]:
    with catalog.reading() as connection:
        return {t.id: t for t in build_tasks.tasks(connection)}


def covered(catalog: Catalog, view: Relation, tablet: int = 0) -> Segments[str]:
    with catalog.reading() as connection:
        return build_tasks.segments(connection, view.id).get(token_range(tablet, 2), ())


def checkpoint(view: Relation, task: str, before: Segments[str], covers: Segment[str], *extra: c.Update) -> c.Decision:
    """What a worker commits behind a chunk."""
    tokens = token_range(0, 2)
    return c.Decision(
        reason="chunk",
        requires=(
            c.TasksOpen(tasks=task_ids(task)),
            c.SegmentsBegin(view=view.id, tokens=tokens, segments=before, exactly=True),
        ),
        updates=(*extra, c.CoverSegment(view=view.id, tokens=tokens, segment=covers)),
    )


def marked_built(view: Relation) -> c.Decision:
    nothing_left = c.NothingLeftToBuild(view=view.id)
    return c.Decision(reason="built", requires=(nothing_left,), updates=(c.MarkBuilt(view=view.id),))


def test_a_view_and_its_tasks_come_in_one_commit(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    view = create_view(catalog, base)
    at = view.created_version
    assert tasks(catalog) == {f"a{t}": replace(task(f"a{t}", base.id, view.id, tablet=t), created=at) for t in range(2)}
    with catalog.reading() as connection:
        assert build_tasks.builds(connection) == {
            view.id: Build(view=view.id, base=base.id, rows_per_minute=600, created=at)
        }
        row = rows.find(connection, s.view_building_tasks)[0]
    assert [*row._asdict()][:9] == [
        "key", "id", "type", "aborted", "base_id", "view_id", "base_tablet_id", "host_id", "shard"
    ]  # fmt: skip


def test_tasks_of_a_relation_that_was_not_created_are_refused(catalog: Catalog):
    base = create(catalog, "orders")
    with pytest.raises(ValueError, match="expected a relation that this commit has created"):
        commit(catalog, c.CreateBuild(build=Build(view=NO_VIEW, base=base.id), tasks=(), of_created=True))


def test_tasks_are_in_the_order_of_their_turns(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    create_view(catalog, base, name="first", prefix="z")
    create_view(catalog, base, name="second", prefix="a")
    assert list(tasks(catalog)) == ["z0", "z1", "a0", "a1"]
    commit(catalog, c.AbortTasks(tasks=task_ids("z0")))
    moved = tasks(catalog)["z0"].again(TaskId("new"), replica=THERE)
    commit(catalog, c.RemoveTasks(tasks=task_ids("z0")), c.CreateTasks(tasks=(moved,)))
    assert list(tasks(catalog)) == ["new", "z1", "a0", "a1"]
    assert tasks(catalog)["new"] == replace(moved, aborted=False)


def test_an_aborted_task_is_not_finished_and_not_revived(catalog: Catalog):
    create_view(catalog, create(catalog, "orders", tablets=2))
    commit(catalog, c.AbortTasks(tasks=task_ids("a0", "unknown")))
    assert {n: t.aborted for n, t in tasks(catalog).items()} == {"a0": True, "a1": False}
    commit(catalog, c.FinishTasks(tasks=task_ids("a0", "a1", "unknown")))
    assert list(tasks(catalog)) == ["a0"]
    commit(catalog, c.AbortTasks(tasks=task_ids("a0")))
    assert tasks(catalog)["a0"].aborted


def test_many_finished_tasks_go_in_one_commit(catalog: Catalog):
    base = create(catalog, "orders")
    many = tuple(task(f"t{n}", base.id, None) for n in range(1200))
    commit(catalog, c.CreateTasks(tasks=many))
    assert len(tasks(catalog)) == 1200
    before = catalog.version()
    commit(catalog, c.FinishTasks(tasks=frozenset(t.id for t in many)))
    assert tasks(catalog) == {}
    assert catalog.version() == before + 1


def test_a_position_moves_with_its_rows_or_not_at_all(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders"))
    added = c.AddRuns(runs=(run(view.id, id="rows", tablet=0, level=1),))
    first = segment("[5]", 7)
    catalog.commit(checkpoint(view, "a0", (), first, added))
    assert (covered(catalog, view), visible(catalog, view)) == ((first,), {"rows"})
    again = c.AddRuns(runs=(run(view.id, id="again", tablet=0, level=1),))
    with pytest.raises(ConflictError, match=r"expected it covered by nothing, found \(\[5\], 7\)"):
        catalog.commit(checkpoint(view, "a0", (), first, again))
    assert (covered(catalog, view), visible(catalog, view)) == ((first,), {"rows"})


@pytest.mark.parametrize(
    ("stop", "found"), [(c.AbortTasks(tasks=task_ids("a0")), "aborted"), (c.FinishTasks(tasks=task_ids("a0")), "gone")]
)
def test_a_late_checkpoint_of_a_stopped_task_is_refused(catalog: Catalog, stop: c.Update, found: str):
    view = create_view(catalog, create(catalog, "orders"))
    commit(catalog, stop)
    with pytest.raises(ConflictError, match=f"task a0: expected open, found {found}"):
        catalog.commit(checkpoint(view, "a0", (), segment("[5]", 7)))
    assert covered(catalog, view) == ()


def test_a_chunk_and_an_epoch_commit_in_either_order(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders"))
    for before, next_ in (((), segment("[3]", 4)), ((segment("[3]", 4),), segment("[5]", 6))):
        catalog.commit(checkpoint(view, "a0", before, next_))
    seen = covered(catalog, view)
    epoch = c.Decision(
        reason="epoch",
        requires=(c.SegmentsBegin(view=view.id, tokens=token_range(0, 2), segments=seen),),
        updates=(
            c.ReplaceSegments(
                view=view.id, tokens=token_range(0, 2), seen=len(seen), segments=advance(seen, Version(9))
            ),
        ),
    )
    catalog.commit(checkpoint(view, "a0", seen, segment("[8]", 8)))
    catalog.commit(epoch)
    assert covered(catalog, view) == (segment("[5]", 9, rows=2), segment("[8]", 8))
    with pytest.raises(ConflictError, match="another worker or epoch came first"):
        catalog.commit(epoch)
    catalog.commit(checkpoint(view, "a0", covered(catalog, view), segment(None, 10)))
    assert [x.up_to for x in covered(catalog, view)] == ["[5]", "[8]", None]
    with catalog.reading() as connection:
        assert build_tasks.spans(connection) == {view.id: (8, 10)}


def test_a_view_is_marked_built_when_no_task_is_left(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders", tablets=1))
    catalog.commit(checkpoint(view, "a0", (), segment(None, 3)))
    done = marked_built(view)
    commit(catalog, c.AbortTasks(tasks=task_ids("a0")))
    with pytest.raises(ConflictError, match="expected no task left, found 1"):
        catalog.commit(done)
    commit(catalog, c.RemoveTasks(tasks=task_ids("a0")))
    version = catalog.commit(done).version
    assert covered(catalog, view) == ()
    with catalog.reading() as connection:
        assert build_tasks.built(connection) == {view.id: version}
        assert build_tasks.builds(connection) == {}
    with pytest.raises(ConflictError, match="found it built or dropped"):
        catalog.commit(done)


def test_a_view_that_was_dropped_meanwhile_is_not_marked_built(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders", tablets=1))
    exclusively(catalog, c.DropRelation(relation=view.id))
    done = marked_built(view)
    with pytest.raises(ConflictError, match="found it built or dropped"):
        catalog.commit(done)
    with catalog.reading() as connection:
        assert build_tasks.built(connection) == {}


def test_the_rate_is_altered_while_it_builds(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders"))
    commit(catalog, c.AlterBuild(view=view.id, rows_per_minute=0, chunk_rows=10))
    with catalog.reading() as connection:
        found = build_tasks.builds(connection)[view.id]
    assert (found.rows_per_minute, found.chunk_rows, found.paused) == (0, 10, True)
    commit(catalog, c.AlterBuild(view=view.id, rows_per_minute=600, chunk_rows=None, concurrency=3, on_hold=True))
    with catalog.reading() as connection:
        found = build_tasks.builds(connection)[view.id]
    assert (found.rows_per_minute, found.chunk_rows, found.concurrency) == (600, None, 3)
    assert (found.on_hold, found.paused, found.rate) == (True, True, 0)


def test_the_base_being_processed(catalog: Catalog):
    base = create(catalog, "orders")

    def processing() -> RelationId | None:
        with catalog.reading() as connection:
            return build_tasks.processing_base(connection)

    assert processing() is None
    for value in (base.id, base.id, None, base.id):
        commit(catalog, c.SetProcessingBase(base=value))
        assert processing() == value
    exclusively(catalog, c.DropRelation(relation=base.id))
    assert processing() is None


def test_a_dropped_view_leaves_nothing_and_its_neighbour_everything(catalog: Catalog):
    base = create(catalog, "orders", tablets=1)
    first = create_view(catalog, base, name="first", prefix="f")
    second = create_view(catalog, base, name="second", prefix="s")
    commit(catalog, c.CreateTasks(tasks=(task("staging", base.id, None),)))
    catalog.commit(checkpoint(first, "f0", (), segment("[3]", 4)))
    catalog.commit(checkpoint(second, "s0", (), segment("[3]", 4)))
    exclusively(catalog, c.DropRelation(relation=first.id))
    assert list(tasks(catalog)) == ["s0", "staging"]
    assert (covered(catalog, first), covered(catalog, second)) == ((), (segment("[3]", 4),))
    with catalog.reading() as connection:
        assert list(build_tasks.builds(connection)) == [second.id]
    exclusively(catalog, c.DropRelation(relation=second.id), c.DropRelation(relation=base.id))
    with catalog.reading() as connection:
        for table in (s.view_building_tasks, s.view_building_segments, s.view_builds, s.built_views):
            assert not rows.find(connection, table), table.name


def test_a_build_that_starts_over_forgets_its_segments(catalog: Catalog):
    view = create_view(catalog, create(catalog, "orders"))
    catalog.commit(checkpoint(view, "a0", (), segment("[3]", 4)))
    commit(catalog, c.ForgetSegments(view=view.id))
    assert covered(catalog, view) == ()


@pytest.mark.database
def test_a_catalog_of_the_release_before_gets_the_tables(catalog: Catalog):
    new = (s.view_building_tasks, s.view_builds, s.view_building_segments, s.built_views)
    with catalog.writing() as connection:
        for table in new:
            table.drop(connection)
        connection.execute(s.migrations.delete().where(s.migrations.c.number >= 3))
    again = Catalog.open(catalog.where, create=False)
    view = create_view(again, create(again, "orders"))
    again.close()
    assert {t.view for t in tasks(catalog).values()} == {view.id}
    assert migrations.MIGRATIONS[2].number == 3


@pytest.mark.database
def test_the_coordinators_state_is_read_whole(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    view = create_view(catalog, base)
    exclusively(catalog, new_relation("by_total", kind=Kind.INDEX))
    index = relation(catalog, "by_total")
    commit(
        catalog,
        c.CreateBuild(build=Build(view=index.id, base=base.id), tasks=(task("i0", base.id, index.id),)),
        c.SetProcessingBase(base=base.id),
        c.AbortTasks(tasks=task_ids("a1")),
    )
    catalog.commit(checkpoint(view, "a0", (), segment("[3]", 4)))
    position = Position(applied_version=Version(3), read={})
    commit(catalog, c.SetProgress(name=progress_name(view.id), value=position.text()))
    with catalog.reading() as connection:
        state = build_store.load(connection, [HERE.host])
    assert list(state.tasks) == ["a0", "a1", "i0"]
    assert [(r, list(by)) for r, by in state.replicas(base.id)] == [(HERE, [(token_range(0, 2), TaskKind.BUILD_RANGE)])]
    assert (state.processing, state.spans) == (base.id, {view.id: (4, 4)})
    assert state.applied == {view.id: 3, index.id: None}
    assert state.unmoved == {view.id: c.ProgressIs(name=progress_name(view.id), value=position.text())}
    assert set(state.builds) == {view.id, index.id}


# ---- staging --------------------------------------------------------------------------------------------


def staged_of(catalog: Catalog, base: Relation, *tablets: int) -> list[str]:
    with catalog.reading() as connection:
        return [r.id for r in reads.staged_runs(connection, base, [token_range(t, 2) for t in tablets])]


def visible_since(catalog: Catalog, base: Relation, transaction: int) -> Version | None:
    with catalog.reading() as connection:
        return reads.visible_since(connection, base.id, TransactionId(transaction))


def test_staged_runs_and_their_tasks_come_in_one_commit_and_go_one_by_one(catalog: Catalog):
    base = create(catalog, "orders", tablets=2)
    with catalog.reading() as connection:
        made = relation_tasks.staging_tasks(connection, base, map(TabletId, (1, 0, 1)))
    assert [(t.kind, t.view, t.tokens, t.replica) for t in made] == [
        (TaskKind.PROCESS_STAGING, None, token_range(0, 2), HERE),
        (TaskKind.PROCESS_STAGING, None, token_range(1, 2), HERE),
    ]
    files = [
        replace(run(base.id, id=f"r{t}", tablet=t, state=RunState.STAGING), transaction=TransactionId(7))
        for t in range(2)
    ]
    later = run(base.id, id="a later one", tablet=0, state=RunState.STAGING)
    commit(catalog, c.AddRuns(runs=tuple(files)), c.CreateTasks(tasks=made))
    commit(catalog, c.AddRuns(runs=(later,)))
    assert tasks(catalog).keys() == {t.id for t in made}
    assert staged_of(catalog, base, 0) == ["r0", "a later one"]
    assert staged_of(catalog, base, 0, 1) == ["r0", "r1", "a later one"]
    with catalog.reading() as connection:
        assert reads.first_write_after(connection, base.id, 0) is None

    def flip(*ids: str) -> Version:
        return commit(catalog, c.SetRunState(runs=frozenset(map(RunId, ids)), state=RunState.NORMAL)).version

    flip("r0")
    assert visible_since(catalog, base, 7) is None
    assert staged_of(catalog, base, 0, 1) == ["r1", "a later one"]
    last = flip("r1")
    assert visible_since(catalog, base, 7) == last
    commit(catalog, c.TruncateRelation(relation=base.id))
    assert staged_of(catalog, base, 0, 1) == []


def test_where_files_go_follows_the_views_of_a_table(catalog: Catalog):
    base, other = create(catalog, "orders"), create(catalog, "customers")

    def goes(table: Relation = base) -> Destination:
        with catalog.reading() as connection:
            return relation_tasks.destination_of(connection, table, Arrival.LOAD)

    def new_view(name: str, *inputs: Relation) -> Relation:
        created = replace(new_relation(name, kind=Kind.VIEW), reads=tuple(i.id for i in inputs))
        build = c.CreateBuild(build=Build(view=NO_VIEW, base=inputs[0].id), tasks=(), of_created=True)
        exclusively(catalog, created, build)
        return relation(catalog, name)

    assert goes() is Destination.NORMAL_DIRECTORY
    view = new_view("card", base, other)
    assert goes() is goes(other) is Destination.NORMAL_DIRECTORY
    commit(catalog, c.SetProcessingBase(base=base.id))
    assert goes() is goes(other) is Destination.STAGING_MANAGED_BY_VBC
    commit(catalog, c.SetProcessingBase(base=None))
    assert goes() is Destination.NORMAL_DIRECTORY
    commit(catalog, c.CoverSegment(view=view.id, tokens=token_range(0, 2), segment=segment("[5]", 3)))
    assert goes() is Destination.STAGING_MANAGED_BY_VBC
    commit(catalog, c.MarkBuilt(view=view.id))
    assert goes() is Destination.NORMAL_DIRECTORY
    with catalog.reading() as connection:
        assert relation_tasks.destination_of(connection, base, Arrival.REPAIR) is Destination.STAGING_MANAGED_BY_VBC
    exclusively(catalog, c.DropRelation(relation=view.id))
    with catalog.reading() as connection:
        assert relation_tasks.view_stages(connection, base.id) == {}
