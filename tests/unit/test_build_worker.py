"""What a worker does with calls, the engine's reports and what it sees in the catalog."""

from __future__ import annotations

from dataclasses import replace

from ebla.base.ids import NodeId, RelationId, TaskId, Term
from ebla.build.state import State
from ebla.build.worker import Answer, Refuse, Reply, Start, Stop, Worker
from ebla.model.tablets import token_range
from ebla.model.tasks import Build, Replica, Task, TaskKind

HOST = NodeId("a")
BASE, VIEW = RelationId(1), RelationId(11)


def task(id: str, *, base: RelationId = BASE, tablet: int = 0, host: NodeId = HOST, staging: bool = False) -> Task:
    return Task(
        id=TaskId(id),
        kind=TaskKind.PROCESS_STAGING if staging else TaskKind.BUILD_RANGE,
        base=base,
        view=None if staging else VIEW,
        tokens=token_range(tablet, 64),
        replica=Replica(host, 0),
    )


T0, T1, T2 = (task(f"t{n}", tablet=n) for n in range(3))
STATE = State.of([T0, T1, T2], builds={VIEW: Build(view=VIEW, base=BASE)})


def reply(call: int, *finished: Task, **failed: str) -> Reply:
    errors = {TaskId(name): error for name, error in failed.items()}
    return Reply(call=call, answer=Answer(finished=frozenset(t.id for t in finished), failed=errors))


def called(worker: Worker, call: int, *tasks: Task, term: int = 1, state: State = STATE):
    return worker.called(call, Term(term), 0, [t.id for t in tasks], state)


def test_a_call_starts_a_batch_and_is_answered_task_by_task():
    worker = Worker(HOST)
    assert called(worker, 1, T0, T1) == [Start(shard=0, tasks=(T0, T1))]
    assert worker.running(0) == (T0.id, T1.id)
    assert worker.finished(0, [T0.id]) == [reply(1, T0)]
    assert called(worker, 2, T1) == []
    assert worker.finished(0, [T1.id]) == [reply(2, T1)]
    assert worker.running(0) == worker.running(7) == ()


def test_a_repeated_call_attaches_to_the_batch_that_runs():
    worker = Worker(HOST)
    called(worker, 1, T0)
    assert called(worker, 2, T0) == []
    assert called(worker, 3, T2) == []  # of the next batch: it waits until this one ends
    assert worker.finished(0, [T0.id]) == [reply(1, T0), reply(2, T0), reply(3)]


def test_finished_tasks_are_answered_from_memory_until_the_catalog_forgets_them():
    worker = Worker(HOST)
    called(worker, 1, T0, T1)
    worker.finished(0, [T0.id])
    assert called(worker, 2, T0, T1, term=2) == [reply(2, T0)]
    worker.finished(0, [T1.id])
    assert worker.observed(State.of([T1])) == []
    assert called(worker, 3, T0, T1, term=2, state=State.of([T1])) == [reply(3, T1)]


def test_a_restart_forgets_and_the_work_starts_again():
    worker = Worker(HOST)
    called(worker, 1, T0)
    worker.finished(0, [T0.id])
    assert called(Worker(HOST), 2, T0) == [Start(shard=0, tasks=(T0,))]


def test_an_old_term_is_refused_and_a_newer_one_attaches():
    worker = Worker(HOST)
    called(worker, 1, T0, term=4)
    assert called(worker, 2, T1, term=3) == [Refuse(call=2, term=Term(4))]
    assert called(worker, 3, T0, term=5) == []
    assert called(worker, 4, T0, term=4) == [Refuse(call=4, term=Term(5))]


def test_aborted_dropped_and_paused_tasks_are_stopped():
    for state in (
        State.of([replace(T0, aborted=True), T1]),
        State.of([T1]),
        State.of([T0, T1], held=[VIEW]),
        State.of([T0, T1], builds={VIEW: Build(view=VIEW, base=BASE, rows_per_minute=0)}),
    ):
        worker = Worker(HOST)
        called(worker, 1, T0)
        assert worker.observed(state) == [Stop(shard=0, ids=(T0.id,)), reply(1)]
        assert worker.finished(0, [T0.id]) == []  # too late
        assert called(worker, 2, T0, state=state) == [reply(2)]


def test_what_is_too_much_for_a_concurrency_is_stopped():
    worker = Worker(HOST)
    called(worker, 1, T0, T1)
    state = State.of([T0, T1], builds={VIEW: Build(view=VIEW, base=BASE, concurrency=1)})
    assert worker.observed(state) == [Stop(shard=0, ids=(T1.id,))]
    assert worker.observed(state) == []
    assert worker.finished(0, [T0.id]) == [reply(1, T0)]
    assert called(worker, 2, T1, state=state) == [Start(shard=0, tasks=(T1,))]


def test_what_was_stopped_does_not_stop_the_others():
    worker = Worker(HOST)
    called(worker, 1, T0, T1)
    assert worker.observed(State.of([T1])) == [Stop(shard=0, ids=(T0.id,))]
    assert worker.finished(0, [T1.id]) == [reply(1, T1)]


def test_a_failure_is_told_once_and_asking_again_tries_again():
    worker = Worker(HOST)
    called(worker, 1, T0, T1)
    assert worker.failed(0, {T0.id: "no space"}) == [reply(1, t0="no space")]
    assert called(worker, 2, T0) == []  # the rest of the batch still runs
    assert worker.finished(0, [T1.id]) == [reply(2)]
    assert called(worker, 3, T0) == [Start(shard=0, tasks=(T0,))]


def test_a_batch_is_of_one_base_and_kind_and_of_this_shard():
    other, staging, elsewhere = task("o", base=RelationId(2)), task("s", staging=True), task("e", host=NodeId("b"))
    state = State.of([T0, other, staging, elsewhere])
    worker = Worker(HOST)
    unknown = replace(T1, id=TaskId("unknown"))
    assert called(worker, 1, elsewhere, T0, other, staging, unknown, state=state) == [Start(shard=0, tasks=(T0,))]
    assert called(Worker(HOST), 1, elsewhere, unknown, state=state) == [reply(1)]


def test_a_task_that_gives_way_leaves_the_shard_and_says_for_how_long():
    worker = Worker(HOST)
    called(worker, 1, T0)
    answer = Answer(finished=frozenset(), waits_us={T0.id: 700})
    assert worker.gave_way(0, {T0.id: 700}) == [Reply(call=1, answer=answer)]
    assert worker.running(0) == ()
    assert called(worker, 2, T0) == [Start(shard=0, tasks=(T0,))]  # asked again, it goes on


def test_what_another_process_will_do_is_let_go():
    worker = Worker(HOST)
    called(worker, 1, T0, T1)
    assert worker.let_go() == [Stop(shard=0, ids=(T0.id, T1.id)), reply(1)]
    assert worker.running(0) == ()
    assert worker.let_go() == []
