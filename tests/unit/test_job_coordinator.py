"""What the job coordinator decides, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.model.jobs import (
    COORDINATOR,
    Command,
    CommandStatus,
    CommandType,
    Jobs,
    Orders,
    Runner,
    RunnerId,
    Running,
)
from ebla.node.job_coordinator import decide

S = 1_000_000
NOW = 1_000 * S
A, B, C = (RunnerId(name) for name in "ABC")


def runner(id: RunnerId, *, lease_s: float = 10, permanent: bool = True) -> Runner:
    return Runner(id=id, identity="", permanent=permanent, updated_at=NOW, expires_at=NOW + int(lease_s * S))


def runs(runner: RunnerId, job: str, at: int = NOW - 100 * S) -> Running:
    return Running(runner=runner, job=job, settings="{}", started_at=at)


def command(
    runner: RunnerId,
    job: str,
    *,
    number: int = 1,
    type: CommandType = CommandType.START,
    status: CommandStatus = CommandStatus.CREATED,
    at: int = NOW - 1 * S,
) -> Command:
    return Command(runner=runner, number=number, type=type, job=job, settings="{}", created_at=at, status=status)


def wanted(*jobs: str) -> dict[str, str]:
    return dict.fromkeys(jobs, "{}")


def ordered(state: Jobs, jobs: dict[str, str], **more: object) -> Orders:
    return decide(state, jobs, NOW, timeout_us=30 * S, **more)  # type: ignore[arg-type]


def told(orders: Orders) -> list[tuple[str, str, str]]:
    return [(one.type.value, one.runner, one.job) for one in orders.new]


def test_a_missing_job_is_started_and_a_surplus_one_stopped():
    state = Jobs(runners=[runner(A)], running=[runs(A, "old")])
    orders = ordered(state, wanted("new"))
    assert told(orders) == [("STOP", A, "old"), ("START", A, "new")]
    assert [one.number for one in orders.new] == [1, 2]


def test_what_runs_as_it_should_needs_no_order():
    state = Jobs(runners=[runner(A)], running=[runs(A, "x"), runs(A, COORDINATOR)])
    assert not ordered(state, wanted("x"))


def test_without_a_runner_nothing_can_be_ordered():
    assert not ordered(Jobs(), wanted("x"))


@pytest.mark.parametrize("status", [CommandStatus.CREATED, CommandStatus.TAKEN])
@pytest.mark.parametrize("type_", list(CommandType))
def test_no_command_is_given_beside_one_that_is_not_answered(status: CommandStatus, type_: CommandType):
    running = [runs(A, "x")] if type_ is CommandType.STOP else []
    state = Jobs(runners=[runner(A), runner(B)], running=running, commands=[command(A, "x", type=type_, status=status)])
    assert not ordered(state, wanted("x") if type_ is CommandType.START else wanted())
    assert not ordered(state, wanted("x")), "it starts elsewhere when it has stopped"


def test_jobs_are_spread_over_the_runners():
    state = Jobs(runners=[runner(A), runner(B)], running=[runs(A, "w")], commands=[command(A, "v")])
    assert told(ordered(state, wanted("v", "w", "x", "y", "z"))) == [
        ("START", B, "x"), ("START", B, "y"), ("START", A, "z"),
    ]  # fmt: skip


def test_jobs_go_to_processes_that_are_there_to_maintain():
    state = Jobs(runners=[runner(A, permanent=False), runner(B)], running=[runs(B, "w")])
    assert told(ordered(state, wanted("w", "x"))) == [("START", B, "x")]


@pytest.mark.parametrize("how", ["lease", "process"])
def test_a_dead_runner_goes_and_its_jobs_start_elsewhere(how: str):
    dead = runner(A, lease_s=0 if how == "lease" else 10)
    state = Jobs(runners=[dead, runner(B)], running=[runs(A, "x"), runs(A, COORDINATOR)], commands=[command(A, "y")])
    orders = ordered(state, wanted("x", "y"), is_gone=lambda one: how == "process" and one == A)
    assert orders.dead == (A,)
    assert told(orders) == [("START", B, "x"), ("START", B, "y")]


def test_rows_of_a_runner_without_a_row_go():
    orders = ordered(Jobs(runners=[runner(B)], running=[runs(A, "x")], commands=[command(C, "x")]), wanted("x"))
    assert orders.dead == (A, C)
    assert told(orders) == [("START", B, "x")]


def test_of_two_runs_of_a_job_the_newer_one_stops():
    state = Jobs(runners=[runner(A), runner(B)], running=[runs(A, "x", NOW - 1), runs(B, "x", NOW - 2)])
    assert told(ordered(state, wanted("x"))) == [("STOP", A, "x")]


def test_a_start_that_failed_is_tried_after_a_while_and_elsewhere():
    failed = command(A, "x", number=7, status=CommandStatus.ERROR, at=NOW - S // 2)
    state = Jobs(runners=[runner(A), runner(B)], commands=[failed])
    assert not ordered(state, wanted("x"))
    state = Jobs(runners=[runner(A), runner(B)], commands=[replace(failed, created_at=NOW - 2 * S)])
    assert told(ordered(state, wanted("x"))) == [("START", B, "x")]
    alone = Jobs(runners=[runner(A)], commands=[replace(failed, created_at=NOW - 2 * S)])
    assert [one.number for one in ordered(alone, wanted("x")).new] == [8]


def test_a_command_that_is_not_taken_in_time_ends_and_another_runner_gets_the_job():
    late = command(A, "x", at=NOW - 31 * S)
    orders = ordered(Jobs(runners=[runner(A), runner(B)], commands=[late]), wanted("x"))
    assert orders.late == (late,)
    assert told(orders) == [("START", B, "x")]
    taken = replace(late, status=CommandStatus.TAKEN)
    assert not ordered(Jobs(runners=[runner(A), runner(B)], commands=[taken]), wanted("x"))
