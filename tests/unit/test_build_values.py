"""Segments, throttle, staging, permission states, progress, moves: arithmetic and tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebla.base.ids import NodeId, RelationId, TaskId, Version
from ebla.build.state import State
from ebla.model import changes as c
from ebla.model import segments, task_moves
from ebla.model.lifecycle import index as states
from ebla.model.lifecycle import task as tasks
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.task import TaskState, is_open
from ebla.model.progress import BuildFigures, Phase, progress, waiting_for
from ebla.model.segments import Segment, Segments, advance, applies, cover, position
from ebla.model.staging import Arrival, Destination, ViewStage, destination
from ebla.model.tablets import token_range
from ebla.model.task_maps import in_map
from ebla.model.tasks import Build, Replica, Task, TaskKind, held
from ebla.model.throttle import MINUTE_US, Throttle

# ---- tasks ----------------------------------------------------------------------------------------------


def test_a_pause_keeps_the_rate_and_a_rate_of_0_has_none_behind_it():
    build = Build(view=RelationId(1), base=RelationId(2), rows_per_minute=600)
    paused = held(build, True)
    assert (paused.paused, paused.rate, paused.rows_per_minute) == (True, 0, 600)
    assert held(paused, False) == build
    assert held(held(replace(build, rows_per_minute=0), True), False).rate is None


def test_a_task_knows_its_kind():
    with pytest.raises(ValueError, match="expected a view for build_range and none for process_staging"):
        replace(task("t"), view=None)


def test_no_way_leads_back_from_aborted_and_gone():
    reached = {(step.before, step.after) for step in tasks.LIFE.steps}
    assert [after for before, after in reached if before is TaskState.ABORTED] == [TaskState.GONE]
    assert not [after for before, after in reached if before is TaskState.GONE]
    assert [s for s in TaskState if tasks.RIGHTS[s].stored and not is_open(s)] == [TaskState.ABORTED]
    assert not tasks.RIGHTS[TaskState.GONE].stored


# ---- segments -------------------------------------------------------------------------------------------


def seg(up_to: int | None, since: int, rows: int = 1) -> Segment[int]:
    return Segment(up_to=up_to, since=Version(since), rows=rows)


COVERED: Segments[int] = (seg(3, 5), seg(6, 8))


def test_the_position_is_where_the_next_chunk_begins():
    assert position(()) is None
    assert position(COVERED) == 6
    with pytest.raises(ValueError, match="found one at its end"):
        position((seg(None, 5),))


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [(2, 6, True), (2, 5, False), (3, 6, True), (4, 6, False), (4, 9, True), (6, 9, True), (7, 9, False)],
)
def test_a_change_is_applied_inside_segments_that_are_older(key: int, version: int, expected: bool):
    assert applies(COVERED, key, Version(version)) == expected


def test_an_epoch_merges_older_segments_and_leaves_newer_ones():
    assert advance(COVERED, Version(7)) == (seg(3, 7), seg(6, 8))
    assert advance(COVERED, Version(8)) == (seg(6, 8, rows=2),)
    assert advance(COVERED, Version(9)) == (seg(6, 9, rows=2),)
    assert advance(COVERED, Version(1)) == COVERED
    assert segments.rows(COVERED) == 2


def test_every_chunk_advances():
    assert cover(COVERED, seg(7, 8)) == (seg(3, 5), seg(7, 8, rows=2))
    assert cover((), seg(None, 1)) == (seg(None, 1),)
    for stuck in (seg(6, 9), seg(1, 9)):
        with pytest.raises(ValueError, match="expected a chunk that ends behind 6"):
            cover(COVERED, stuck)
    with pytest.raises(ValueError, match="found one at its end"):
        cover((seg(None, 1),), seg(None, 2))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
def test_chunks_and_epochs_in_any_order_show_what_they_say(steps: list[tuple[bool, int]]):
    """A base whose key k has the value of its last change; the view is kept by chunks and epochs alone."""
    covered: Segments[int] = ()
    changed: dict[int, list[int]] = {k: [0] for k in range(10)}
    view: dict[int, int] = {}
    version = 0

    def at(key: int, when: int) -> int:
        return max(v for v in changed[key] if v <= when)

    for is_change, number in steps:
        if is_change:
            version += 1
            changed[number].append(version)
        elif number < 5 and not segments.is_covered(covered):
            start = -1 if (known := position(covered)) is None else known
            end = min(start + 1 + number, 9)
            view |= {k: at(k, version) for k in range(start + 1, end + 1)}
            covered = cover(covered, seg(None if end == 9 else end, version))
        else:
            epoch = max(0, version - number % 3)
            view |= {k: at(k, epoch) for k in range(10) if applies(covered, k, Version(at(k, epoch)))}
            covered = advance(covered, Version(epoch))
        for key in range(10):
            segment = segments.covering(covered, key)
            assert view.get(key) == (None if segment is None else at(key, segment.since))


# ---- throttle -------------------------------------------------------------------------------------------


def test_n_rows_at_r_a_minute_take_n_over_r_minutes():
    throttle, now = Throttle(rows_per_minute=100), 0
    for rows in (30, 50, 20, 1):
        throttle = throttle.spent(rows, now)
        now += throttle.wait_us(now) or 0
    assert now == 101 * MINUTE_US // 100


def test_a_rate_is_altered_while_something_is_owed():
    throttle = Throttle(rows_per_minute=60).spent(60, 0)
    half = throttle.altered(30, MINUTE_US // 2)
    assert half.wait_us(MINUTE_US // 2) == MINUTE_US
    assert throttle.altered(0, 0).wait_us(0) is None
    assert throttle.altered(0, 0).altered(60, 10 * MINUTE_US).wait_us(10 * MINUTE_US) == MINUTE_US
    assert throttle.altered(None, 0).wait_us(0) == 0


def test_there_is_no_credit_and_no_payment_by_a_clock_that_goes_back():
    throttle = Throttle(rows_per_minute=60).spent(60, 10 * MINUTE_US)
    assert throttle.wait_us(10 * MINUTE_US) == MINUTE_US
    assert throttle.wait_us(9 * MINUTE_US) == MINUTE_US


def test_a_slow_rate_makes_small_chunks():
    assert Throttle(rows_per_minute=None).rows_now(1000) == 1000
    assert Throttle(rows_per_minute=3000).rows_now(1000) == 100
    assert Throttle(rows_per_minute=1).rows_now(1000) == 1
    with pytest.raises(ValueError, match="expected rows per minute from 0, found -1"):
        Throttle(rows_per_minute=-1)


# ---- staging --------------------------------------------------------------------------------------------

NEW, STARTED, BUILT = ViewStage.NOT_STARTED, ViewStage.STARTED, ViewStage.BUILT


@pytest.mark.parametrize(
    ("views", "staged_for"),
    [
        ((), set()),
        ((NEW,), set()),
        ((STARTED,), set(Arrival)),
        ((NEW, STARTED, BUILT), set(Arrival)),
        ((BUILT,), {Arrival.REPAIR}),
        ((NEW, BUILT), {Arrival.REPAIR}),
    ],
)
def test_where_a_run_goes(views: tuple[ViewStage, ...], staged_for: set[Arrival]):
    for arrival, coordinated in itertools.product(Arrival, (True, False)):
        staging = Destination.STAGING_MANAGED_BY_VBC if coordinated else Destination.STAGING_DIRECTLY_TO_GENERATOR
        expected = staging if arrival in staged_for else Destination.NORMAL_DIRECTORY
        assert destination(views, arrival, coordinated=coordinated) == expected


# ---- permission states ----------------------------------------------------------------------------------


def test_writers_of_neighbouring_states_fit_together():
    """A writer that adds an entry needs every other writer at work to remove it with its row."""

    def may_meet(one: Permission, other: Permission) -> bool:
        pairs = ((one, other), (other, one))
        return all(states.writer_deletes(here) or not states.writer_inserts(there) for here, there in pairs)

    for before, after, *_ in states.STEPS:
        assert before is not None
        assert after is not None
        assert may_meet(before, after), (before, after)
    assert not may_meet(Permission.ABSENT, Permission.WRITE_AND_DELETE)
    assert not may_meet(Permission.READ_WRITE_AND_DELETE, Permission.ABSENT)


def test_forward_and_back_are_the_transitions():
    forward = {(s, after) for s in Permission if (after := states.forward(s)) is not None}
    back = {(s, after) for s in Permission if (after := states.back(s)) is not None}
    assert forward | back == {(step.before, step.after) for step in states.STEPS}
    assert not forward & back


def test_both_ways_end():
    state: Permission | None = Permission.ABSENT
    walked = []
    while state is not None:
        walked.append(state)
        state = states.forward(state)
    assert walked[-1] is Permission.READ_WRITE_AND_DELETE
    for state in Permission:
        steps = 0
        while (after := states.back(state)) is not None:
            state, steps = after, steps + 1
        assert state is Permission.ABSENT
        assert steps <= 3


def test_nobody_reads_what_somebody_may_not_keep():
    for state in Permission:
        if states.may_read(state):
            assert states.writer_inserts(state)
        if states.writer_inserts(state):
            assert states.writer_deletes(state)
        if states.backfill_level(state) is not None:
            assert states.writer_inserts(state)
            assert states.begins_empty(state)
            assert not states.may_compact(state)


# ---- progress -------------------------------------------------------------------------------------------

SCANNING = BuildFigures(
    tablets=4,
    tablets_covered=1,
    rows_read=250,
    rows_expected=1000,
    applied=False,
    built=False,
    started_us=0,
    now_us=10_000_000,
)


def test_a_scan_shows_rows_rate_and_time_left():
    shown = progress(SCANNING)
    assert (shown.phase, shown.percent, shown.tablets) == (Phase.SCANNING, 24.8, "1/4")
    assert (shown.rows_per_s, shown.eta_s, shown.detail) == (25.0, 30.0, "3 tablets left")


def test_the_phases_follow_each_other_and_only_readable_is_100():
    seen = [
        progress(replace(SCANNING, started_us=None, tablets_covered=0, rows_read=0)),
        progress(replace(SCANNING, waiting_for="transaction 7")),
        progress(SCANNING),
        progress(replace(SCANNING, rows_read=2000)),
        progress(replace(SCANNING, rows_read=1000, tablets_covered=4)),
        progress(replace(SCANNING, rows_read=1000, tablets_covered=4, applied=True)),
        progress(replace(SCANNING, rows_read=900, tablets_covered=4, applied=True, built=True)),
    ]
    assert [p.phase for p in seen] == [
        Phase.WAITING,
        Phase.WAITING,
        Phase.SCANNING,
        Phase.SCANNING,
        Phase.CATCHING_UP,
        Phase.VALIDATING,
        Phase.READABLE,
    ]
    assert [p.percent == 100 for p in seen] == [False] * 6 + [True]
    assert (seen[0].detail, seen[1].detail) == ("a worker", "transaction 7")


@given(st.integers(0, 4), st.integers(0, 3000), st.one_of(st.none(), st.integers(0, 1000)), st.booleans())
def test_the_percentage_never_falls_and_is_100_exactly_when_readable(
    tablets: int, rows: int, expected: int | None, built: bool
):
    before = progress(SCANNING)
    now = replace(SCANNING, tablets_covered=tablets, rows_read=rows, rows_expected=expected, built=built)
    shown = progress(now, before)
    assert shown.percent >= before.percent
    assert (shown.percent == 100) == built


def test_an_empty_base_and_a_partial_index_reach_100_too():
    empty = replace(SCANNING, tablets_covered=4, rows_read=0, rows_expected=0, built=True)
    assert (progress(empty).percent, progress(empty).eta_s) == (100, 0)


def test_what_is_waited_for_is_said():
    nothing = {"paused": False, "other_base": None, "roots_down": (), "transactions": ()}
    assert waiting_for(**nothing) is None  # type: ignore[arg-type]
    assert waiting_for(paused=True, other_base="x", roots_down=["a"], transactions=[]) == "RESUME: it is paused"
    assert waiting_for(paused=False, other_base="x", roots_down=["storage root /b of node b"], transactions=[]) == (
        "storage root /b of node b: expected to reach it, found it missing"
    )
    assert waiting_for(paused=False, other_base="orders", roots_down=[], transactions=[]) == "the build on orders"
    assert waiting_for(paused=False, other_base=None, roots_down=[], transactions=["transaction 7"]) == "transaction 7"


# ---- moves ----------------------------------------------------------------------------------------------

HERE, THERE = Replica(NodeId("a"), 0), Replica(NodeId("b"), 1)
BASE, VIEW = RelationId(1), RelationId(11)


def task(
    id: str,
    *,
    tablet: int = 0,
    tablets: int = 4,
    replica: Replica = HERE,
    view: RelationId = VIEW,
    aborted: bool = False,
) -> Task:
    return Task(
        id=TaskId(id),
        kind=TaskKind.BUILD_RANGE,
        base=BASE,
        view=view,
        tokens=token_range(tablet, tablets),
        replica=replica,
        aborted=aborted,
        created=Version(3),
    )


def new_ids() -> Callable[[], TaskId]:
    numbers = itertools.count()
    return lambda: TaskId(f"new{next(numbers)}")


def again(old: Task) -> TaskId:
    return TaskId(f"{old.id}'")


def ids(*names: str) -> frozenset[TaskId]:
    return frozenset(map(TaskId, names))


def test_c3_only_the_tablet_that_moves_is_touched():
    tasks = [task("t0"), task("t1", tablet=1, aborted=True), task("t2", replica=THERE)]
    zero = token_range(0, 4)
    assert task_moves.leave(tasks, zero, HERE) == (c.AbortTasks(tasks=ids("t0")),)
    assert task_moves.stay(tasks, zero, HERE, again) == ()
    assert task_moves.leave(tasks, token_range(3, 4), HERE) == ()


def test_c1_a_task_moves_with_its_tablet_or_goes_on_where_it_was():
    tasks = [task("old", aborted=True), task("meanwhile", view=RelationId(12))]
    arrived = task_moves.arrive(tasks, token_range(0, 4), HERE, THERE, again)
    assert arrived == (
        c.RemoveTasks(tasks=ids("old", "meanwhile")),
        c.CreateTasks(tasks=(task("old'", replica=THERE), task("meanwhile'", replica=THERE, view=RelationId(12)))),
    )
    stayed = task_moves.stay(tasks, token_range(0, 4), HERE, again)
    assert stayed == (c.RemoveTasks(tasks=ids("old")), c.CreateTasks(tasks=(task("old'"),)))


def test_c4_a_split_and_a_merge_leave_one_task_for_each_tablet_and_view():
    new = new_ids()
    old = [task("a", tablet=1, aborted=True), task("b", tablet=2)]
    split = in_map(old, [[HERE]] * 8, lambda _, __: new())
    assert [(t.tokens, t.aborted) for t in split] == [(token_range(t, 8), False) for t in (2, 3, 4, 5)]
    old = [task("a", tablet=2), task("b", tablet=3), task("c", tablet=3, view=RelationId(12))]
    merged = in_map(old, [[HERE]] * 2, lambda _, __: new())
    assert [(t.tokens, t.view) for t in merged] == [(token_range(1, 2), VIEW), (token_range(1, 2), 12)]


def test_c4_a_task_goes_on_where_its_tablet_lies():
    new = new_ids()
    old = [task("a", tablet=2), task("b", tablet=3, replica=THERE)]
    elsewhere = Replica(HERE.host, 3)
    for placement, expected in (([HERE, THERE], HERE), ([THERE, elsewhere], elsewhere), ([THERE], THERE)):
        (merged,) = in_map(old, [[HERE], placement], lambda _, __: new())
        assert merged.replica == expected


# ---- state ----------------------------------------------------------------------------------------------


def test_a_state_kept_task_by_task_equals_one_that_is_loaded():
    tasks = [task(f"t{n}", tablet=n % 3, view=RelationId(11 + n % 2)) for n in range(8)]
    state = State.of(tasks)
    for one in tasks[:3]:
        state.remove(one.id)
    state.remove(TaskId("unknown"))
    state.put(replace(tasks[3], aborted=True))
    assert state == State.of([*tasks[4:], replace(tasks[3], aborted=True)])
    for left in list(state.tasks):
        state.remove(left)
    assert state == State()
