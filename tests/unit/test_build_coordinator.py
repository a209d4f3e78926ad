"""The coordinator's decisions as values: no clock, no catalog, no network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, TaskId, Term, Version
from ebla.build.coordinator import (
    Call,
    CallFailed,
    Coordinator,
    CoordinatorStep,
    Event,
    Limits,
    TermRefused,
    WorkerAnswer,
)
from ebla.build.state import Span, State
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.tablets import token_range
from ebla.model.tasks import LEASE, Build, Replica, Task, TaskKind

MS = 1_000
A0, A1, B0 = Replica(NodeId("a"), 0), Replica(NodeId("a"), 1), Replica(NodeId("b"), 0)
BASE, OTHER = RelationId(1), RelationId(2)
VIEW, SECOND = RelationId(11), RelationId(12)
TERM = Term(5)


def task(
    id: str,
    *,
    base: RelationId = BASE,
    view: RelationId | None = VIEW,
    tablet: int = 0,
    replica: Replica = A0,
    created: int = 1,
    aborted: bool = False,
) -> Task:
    return Task(
        id=TaskId(id),
        kind=TaskKind.PROCESS_STAGING if view is None else TaskKind.BUILD_RANGE,
        base=base,
        view=view,
        tokens=token_range(tablet, 64),
        replica=replica,
        created=Version(created),
        aborted=aborted,
    )


def ids(*names: str) -> frozenset[TaskId]:
    return frozenset(map(TaskId, names))


class Bench:
    """A coordinator, and a state that follows what it decides."""

    def __init__(self, *tasks: Task, alive: Iterable[str] = ("a", "b"), limits: Limits | None = None) -> None:
        views = {t.view: Build(view=t.view, base=t.base) for t in tasks if t.view is not None}
        self.state = State.of(tasks, builds=views, alive=map(NodeId, alive))
        self.coordinator = Coordinator("me", TERM, limits)
        self.now = 0

    def step(self, *events: Event, ms: int = 0, obey: bool = True) -> CoordinatorStep:
        self.now += ms * MS
        decision = self.coordinator.step(self.state, events, self.now)
        for update in decision.updates if obey else ():
            match update:
                case c.SetProcessingBase(base=base):
                    self.state.processing = base
                case c.FinishTasks(tasks=tasks):
                    for one in tasks:
                        self.state.remove(one)
                case c.MarkBuilt(view=view):
                    self.state.builds = {v: b for v, b in self.state.builds.items() if v != view}
                case _:
                    raise AssertionError(update)
        return decision

    def soon(self) -> tuple[Call, ...]:
        """The next calls."""
        return next((calls for _ in range(20) if (calls := self.step(ms=50).calls)), ())

    def begun(self) -> tuple[Call, ...]:
        """The first calls, which come when the catalog says whose turn it is."""
        assert self.step().calls == ()
        return self.step().calls


def call(replica: Replica, *names: str) -> Call:
    return Call(replica=replica, term=TERM, ids=tuple(map(TaskId, names)))


def answer(replica: Replica, *names: str, failed: Iterable[str] = ()) -> WorkerAnswer:
    return WorkerAnswer(replica=replica, finished=ids(*names), failed=dict.fromkeys(map(TaskId, failed), "why"))


def gives_way(replica: Replica, **waits_ms: int) -> WorkerAnswer:
    waits_us = {TaskId(name): ms * MS for name, ms in waits_ms.items()}
    return WorkerAnswer(replica=replica, finished=frozenset(), waits_us=waits_us)


# ---- batches --------------------------------------------------------------------------------------------


def test_nothing_to_do():
    decision = Bench().step()
    assert (decision.updates, decision.calls, decision.commit()) == ((), (), None)


def test_the_turn_is_in_the_catalog_before_the_first_call():
    bench = Bench(task("t"))
    first = bench.step(obey=False)
    assert first.updates == (c.SetProcessingBase(base=BASE),)
    assert first.requires == (c.TermIs(lease=LEASE, holder="me", term=TERM),)
    assert first.calls == ()
    assert bench.step(obey=False).calls == ()
    bench.step()
    assert bench.step().calls == (call(A0, "t"),)


def test_one_batch_for_each_shard_holds_all_views_of_the_base():
    bench = Bench(
        task("v0"), task("s0", view=SECOND), task("v1", tablet=1, replica=A1), task("v2", tablet=2, replica=B0)
    )
    assert bench.begun() == (call(A0, "v0", "s0"), call(A1, "v1"), call(B0, "v2"))
    assert bench.step(ms=500).calls == ()


def test_a_batch_holds_tablets_up_to_the_limit_and_one_kind():
    tasks = [task(f"t{n}", tablet=n) for n in range(3)] + [task("staging", view=None, created=2)]
    bench = Bench(*tasks, limits=Limits(tablets_max=2))
    assert bench.begun() == (call(A0, "t0", "t1"),)
    assert bench.step(answer(A0, "t0", "t1")).calls == (call(A0, "t2"),)
    assert bench.step(answer(A0, "t2")).calls == (call(A0, "staging"),)


def test_a_tablet_is_not_cut_even_if_it_has_too_many_tasks():
    tasks = [task(f"t{n}", view=RelationId(20 + n)) for n in range(4)] + [task("next", tablet=1)]
    bench = Bench(*tasks, limits=Limits(tasks_max=3))
    assert bench.begun() == (call(A0, "t0", "t1", "t2", "t3"),)


def test_what_is_left_of_a_batch_is_asked_for_again_and_a_new_view_waits_for_the_next():
    bench = Bench(task("t0"), task("t1", tablet=1))
    bench.begun()
    bench.state.put(task("new", view=SECOND, created=9))
    assert bench.step(answer(A0, "t0")).calls == (call(A0, "t1"),)
    assert bench.step(answer(A0, "t1")).calls == (call(A0, "new"),)


# ---- indexes --------------------------------------------------------------------------------------------


def index_state(*, held: bool = False, unchecked: bool = False) -> State:
    found = c.IndexIs(index=VIEW, state=Permission.BACKFILLING, since=Version(7), read_version=Version(7))
    return State.of(
        (),
        builds={VIEW: Build(view=VIEW, base=BASE)},
        spans={VIEW: Span(oldest=Version(7), newest=Version(9))},
        applied={VIEW: None},
        unmoved={VIEW: found},
        walking=[VIEW],
        held=[VIEW] if held else [],
        unchecked=[VIEW] if unchecked else [],
        names={VIEW: "by_total"},
    )


def test_reasons_name_relations_as_people_do():
    assert Coordinator("me", TERM).step(index_state(), (), 0).reason == "by_total is built"


def test_an_index_becomes_readable_in_the_commit_that_marks_it_built():
    """Covered, whatever versions its chunks were read at, and checked; by a leader whose term holds."""
    state = index_state()
    decision = Coordinator("me", TERM).step(state, (), 0)
    assert decision.updates == (
        c.SetIndexState(index=VIEW, state=Permission.READ_WRITE_AND_DELETE),
        c.MarkBuilt(view=VIEW),
    )
    assert set(decision.requires) == {
        c.TermIs(lease=LEASE, holder="me", term=TERM),
        c.NothingLeftToBuild(view=VIEW),
        state.unmoved[VIEW],
    }
    made = decision.commit()
    assert made is not None
    assert made.exclusive, "writers have to know"


@pytest.mark.parametrize("why", ["held", "unchecked"])
def test_an_index_that_goes_or_was_not_checked_is_not_readable(why: str):
    assert Coordinator("me", TERM).step(index_state(**{why: True}), (), 0).updates == ()


# ---- finished -------------------------------------------------------------------------------------------


def test_finished_ids_are_gathered_and_removed_in_one_commit():
    bench = Bench(task("t0"), task("t1", tablet=1, replica=B0))
    bench.begun()
    first = bench.step(answer(A0, "t0"))
    assert (first.updates, first.wake_us) == ((), 200 * MS)
    assert bench.step(answer(B0, "t1"), ms=150).updates == ()
    decision = bench.step(ms=50, obey=False)
    assert decision.updates == (c.FinishTasks(tasks=ids("t0", "t1")),)
    assert decision.reason == "2 building tasks finished"
    # The commit was lost: they are removed again, until the state shows that they are gone.
    assert bench.step(ms=100, obey=False).updates == ()
    assert bench.step(ms=100).updates == (c.FinishTasks(tasks=ids("t0", "t1")),)
    assert bench.step(ms=1_000).updates == (c.SetProcessingBase(base=None),)


def test_answers_that_come_twice_late_or_for_tasks_that_are_gone_do_nothing():
    bench = Bench(task("t0"), task("t1", tablet=1))
    bench.begun()
    bench.step(answer(A0, "t0", "t1"))
    bench.step(ms=200)
    assert not bench.state.tasks
    decision = bench.step(answer(A0, "t0"), answer(A0, "unknown"), answer(B0, "t1"), ms=500)
    assert decision.updates == (c.SetProcessingBase(base=None),)


def test_an_aborted_task_is_not_removed_as_finished():
    bench = Bench(task("t0"), task("t1", tablet=1))
    bench.begun()
    bench.step(answer(A0, "t0", "t1"))
    bench.state.put(replace(bench.state.tasks[TaskId("t0")], aborted=True))
    assert bench.step(ms=200).updates == (c.FinishTasks(tasks=ids("t1")),)


def test_b5_a_new_leader_asks_again_for_what_the_last_one_lost():
    bench = Bench(task("t0"))
    bench.begun()
    bench.step(answer(A0, "t0"))
    bench.coordinator = Coordinator("another", Term(6))
    (again,) = bench.step().calls
    assert (again.term, again.ids) == (6, ("t0",))


# ---- lost calls and errors ------------------------------------------------------------------------------


def test_a_call_that_nobody_answers_is_repeated():
    bench = Bench(task("t0"), limits=Limits(answer_us=3_000 * MS))
    first = bench.begun()
    assert bench.step(ms=2_999).calls == ()
    assert bench.step(ms=1).calls == first
    assert bench.step(ms=2_999).calls == ()


def test_a_failing_call_waits_longer_each_time_up_to_a_cap():
    bench = Bench(task("t0"), limits=Limits(backoff_us=100 * MS, backoff_us_max=300 * MS))
    bench.begun()
    for wait in (100, 200, 300, 300):
        assert bench.step(CallFailed(replica=A0, error="down")).calls == ()
        assert bench.step(ms=wait - 1).calls == ()
        bench.step(ms=1)  # its base has the turn again
        assert bench.step().calls == (call(A0, "t0"),)
    bench.step(answer(A0))
    bench.step(ms=100)
    bench.step()
    bench.step(CallFailed(replica=A0, error="down"))
    bench.step(ms=100)
    assert bench.step().calls == (call(A0, "t0"),)


def test_a_failing_task_does_not_hold_up_the_others_of_its_batch():
    bench = Bench(task("good"), task("bad", view=SECOND))
    bench.begun()
    assert bench.step(answer(A0, failed=["bad"])).calls == (call(A0, "good"),)
    assert bench.step(answer(A0, "good")).calls == ()
    assert bench.soon() == (call(A0, "bad"),)


def test_an_empty_answer_is_no_reason_to_ask_at_once():
    bench = Bench(task("t0"))
    bench.begun()
    assert bench.step(answer(A0)).calls == ()
    bench.step(ms=200)
    assert bench.step().calls == (call(A0, "t0"),)


# ---- terms ----------------------------------------------------------------------------------------------


def test_b6_an_older_leader_resigns():
    bench = Bench(task("t0"))
    bench.begun()
    assert not bench.step(TermRefused(term=TERM)).resigned
    assert bench.step(TermRefused(term=Term(6))).resigned
    decision = bench.step(answer(A0, "t0"), ms=1_000)
    assert (decision.resigned, decision.updates, decision.calls) == (True, (), ())


# ---- whose turn it is -----------------------------------------------------------------------------------


def test_the_oldest_base_has_its_turn_and_then_the_next():
    bench = Bench(task("old", base=OTHER, view=SECOND, created=1), task("young", created=2))
    assert bench.begun() == (call(A0, "old"),)
    bench.step(answer(A0, "old"))
    bench.step(ms=200)
    assert bench.step().updates == (c.SetProcessingBase(base=BASE),)
    assert bench.step().calls == (call(A0, "young"),)


def test_new_views_of_a_base_do_not_keep_others_waiting():
    bench = Bench(task("first", created=1), task("other", base=OTHER, view=SECOND, created=2, replica=B0))
    bench.begun()
    bench.state.put(task("later", tablet=1, created=3))
    # While `first` is not removed the turn is its base's, so `later` begins; it may end, and then the turn changes.
    assert bench.step(answer(A0, "first")).calls == (call(A0, "later"),)
    bench.state.put(task("last", tablet=2, created=4))
    assert bench.soon() == ()
    assert bench.step(answer(A0, "later")).updates == (c.SetProcessingBase(base=OTHER),)
    assert bench.soon() == (call(B0, "other"),)


def test_a_base_on_dead_nodes_is_passed_over_and_comes_back():
    bench = Bench(task("dead", created=1), task("fine", base=OTHER, view=SECOND, replica=B0, created=2), alive=["b"])
    assert bench.begun() == (call(B0, "fine"),)
    bench.state.alive = frozenset(map(NodeId, "ab"))
    assert bench.step(answer(B0, "fine")).updates == (c.SetProcessingBase(base=BASE),)
    assert bench.soon() == (call(A0, "dead"),)


def test_a_node_that_dies_while_it_works_is_asked_again_when_it_is_back():
    bench = Bench(task("t0"), task("t1", tablet=1, replica=B0))
    bench.begun()
    bench.state.alive = frozenset([NodeId("b")])
    assert bench.step(ms=20_000).calls == (call(B0, "t1"),)
    bench.state.alive = frozenset(map(NodeId, "ab"))
    assert bench.step().calls == (call(A0, "t0"),)


def test_a_base_that_fails_yields_its_turn():
    bench = Bench(task("bad", created=1), task("fine", base=OTHER, view=SECOND, replica=B0, created=2))
    bench.begun()
    assert bench.step(CallFailed(replica=A0, error="down")).updates == (c.SetProcessingBase(base=OTHER),)
    assert bench.step().calls == (call(B0, "fine"),)


@pytest.mark.parametrize("held", [True, False])
def test_paused_builds_and_indexes_that_are_not_ready_get_no_calls(held: bool):
    bench = Bench(task("paused"), task("fine", view=SECOND))
    if held:
        bench.state.held = frozenset([VIEW])
    else:
        bench.state.builds = {**bench.state.builds, VIEW: Build(view=VIEW, base=BASE, rows_per_minute=0)}
    assert bench.begun() == (call(A0, "fine"),)
    bench.step(answer(A0, "fine"))
    bench.step(ms=200)
    assert bench.step().calls == ()
    bench.state.held, bench.state.builds = frozenset(), {VIEW: Build(view=VIEW, base=BASE)}
    bench.step()
    assert bench.step().calls == (call(A0, "paused"),)


def altered(bench: Bench, concurrency: int | None) -> None:
    bench.state.builds = {**bench.state.builds, VIEW: Build(view=VIEW, base=BASE, concurrency=concurrency)}


def test_no_more_tablets_of_a_view_are_in_flight_than_it_may_have():
    tasks = [task(f"v{n}", tablet=n, replica=A0 if n < 3 else B0) for n in range(5)]
    bench = Bench(*tasks, task("s0", view=SECOND), task("s1", view=SECOND, tablet=1))
    altered(bench, 2)
    assert bench.begun() == (call(A0, "v0", "s0", "v1", "s1"),)  # none is left for the other node
    assert bench.step(answer(A0, "v0")).calls == (call(A0, "s0", "v1", "s1"), call(B0, "v3"))
    assert bench.step(answer(B0, "v3")).calls == (call(B0, "v4"),)
    altered(bench, None)
    assert bench.soon() == ()  # a batch is asked for as a whole
    assert bench.step(answer(A0, "s0", "v1", "s1")).calls == (call(A0, "v2"),)


def test_a_concurrency_that_is_lowered_holds_at_once():
    bench = Bench(*[task(f"v{n}", tablet=n) for n in range(3)], task("v3", tablet=3, replica=B0))
    assert bench.begun() == (call(A0, "v0", "v1", "v2"), call(B0, "v3"))
    altered(bench, 1)
    assert bench.step(ms=10).calls == ()
    assert bench.step(answer(A0, "v0")).calls == (call(A0, "v1"),)
    assert bench.step(answer(B0, "v3")).calls == ()  # late, and true
    assert bench.step(answer(A0, "v1")).calls == (call(A0, "v2"),)


# ---- drops and built ------------------------------------------------------------------------------------


def test_b7_a_dropped_view_leaves_its_batch_and_the_other_goes_on():
    bench = Bench(task("v"), task("s", view=SECOND))
    bench.begun()
    bench.state.remove(TaskId("v"))
    assert bench.step(answer(A0)).calls == ()
    bench.step(ms=200)
    assert bench.step().calls == (call(A0, "s"),)
    bench.state.remove(TaskId("s"))
    assert bench.step().updates == (c.SetProcessingBase(base=None),)


@pytest.mark.parametrize(
    ("applied", "span", "built"),
    [
        (7, (7, 7), True),
        (7, (7, 8), False),
        (7, (6, 7), False),
        (9, (7, 8), False),
        (0, None, False),
        (None, (3, 3), True),
        (None, None, False),
    ],
)
def test_a_view_is_built_when_all_of_it_is_at_its_version(
    applied: int | None, span: tuple[int, int] | None, built: bool
):
    bench = Bench()
    bench.state.builds = {VIEW: Build(view=VIEW, base=BASE)}
    bench.state.applied = {VIEW: None if applied is None else Version(applied)}
    unmoved = c.ProgressIs(name="view/11", value="as it was read")
    bench.state.unmoved = {} if applied is None else {VIEW: unmoved}
    bench.state.spans = {} if span is None else {VIEW: Span(Version(span[0]), Version(span[1]))}
    decision = bench.step(obey=False)
    assert decision.updates == ((c.MarkBuilt(view=VIEW),) if built else ())
    assert (c.NothingLeftToBuild(view=VIEW) in decision.requires) == built
    assert (unmoved in decision.requires) == (built and applied is not None)
    bench.state.put(task("left", aborted=True))
    assert bench.step(obey=False).updates == ()


# ---- rates ----------------------------------------------------------------------------------------------


def test_a_base_that_waits_by_its_rate_gives_way_and_gets_its_turn_back():
    bench = Bench(task("slow"), task("quick", base=OTHER, view=SECOND, created=2))
    assert bench.begun() == (call(A0, "slow"),)
    assert bench.step(gives_way(A0, slow=1_000)).updates == (c.SetProcessingBase(base=OTHER),)
    assert bench.step().calls == (call(A0, "quick"),)
    bench.state.put(task("more", base=OTHER, view=SECOND, tablet=1, created=3))
    assert bench.step(ms=1_000).updates == ()  # what is in flight for the other base ends first
    assert bench.step(answer(A0, "quick")).updates == (c.SetProcessingBase(base=BASE),)
    assert bench.step().calls == (call(A0, "slow"),)


def test_a_base_that_waits_by_its_rate_keeps_its_turn_while_no_other_can_be_done():
    bench = Bench(task("slow"))
    bench.begun()
    waiting = bench.step(gives_way(A0, slow=700))
    assert (waiting.updates, waiting.calls, waiting.wake_us) == ((), (), 700 * MS)
    assert bench.step(ms=699).calls == ()
    assert bench.step(ms=1).calls == (call(A0, "slow"),)


def test_with_another_rate_a_task_need_not_wait():
    bench = Bench(task("slow"))
    bench.begun()
    bench.step(gives_way(A0, slow=60_000))
    assert bench.step(ms=100).calls == ()
    bench.state.builds = {VIEW: replace(bench.state.builds[VIEW], rows_per_minute=600)}
    assert bench.step(ms=100).calls == (call(A0, "slow"),)


def test_a_build_that_is_paused_or_failed_gives_way():
    bench = Bench(task("slow"), task("quick", base=OTHER, view=SECOND, created=2))
    bench.begun()
    bench.state.builds = {**bench.state.builds, VIEW: replace(bench.state.builds[VIEW], on_hold=True)}
    assert bench.step().updates == (c.SetProcessingBase(base=OTHER),)
    bench = Bench(task("slow"), task("quick", base=OTHER, view=SECOND, created=2))
    bench.begun()
    assert bench.step(answer(A0, failed=["slow"])).updates == (c.SetProcessingBase(base=OTHER),)
