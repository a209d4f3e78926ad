"""Runners, their jobs and commands in every store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ebla.catalog import jobs, transactions
from ebla.catalog.store import Catalog
from ebla.errors import StaleTermError
from ebla.model import changes as c
from ebla.model.jobs import COORDINATOR, Command, CommandStatus, CommandType, Jobs, Orders, Runner, RunnerId
from support.catalogs import SECOND_US

A, B = RunnerId("A"), RunnerId("B")


def runner(catalog: Catalog, id: RunnerId) -> Runner:
    now = catalog.clock()
    return Runner(id=id, identity="node=n1", permanent=True, updated_at=now, expires_at=now + SECOND_US)


def start(catalog: Catalog, runner: RunnerId, number: int, job: str = "x") -> Command:
    return Command(
        runner=runner, number=number, type=CommandType.START, job=job, settings="{}", created_at=catalog.clock()
    )


def coordinates(catalog: Catalog, holder: str = "A") -> c.TermIs:
    lease = transactions.lead(catalog, COORDINATOR, holder, SECOND_US)
    assert lease is not None
    return c.TermIs(lease=COORDINATOR, holder=holder, term=lease.term)


def order(catalog: Catalog, term: c.TermIs, decide: Callable[[Jobs], Orders], by: RunnerId = A) -> Orders:
    return catalog.change(lambda connection: jobs.order(connection, by, term, catalog.clock(), decide))


@pytest.fixture
def prepared(catalog: Catalog) -> Catalog:
    for one in (runner(catalog, A), runner(catalog, B)):
        catalog.change(partial(jobs.register, runner=one))
    return catalog


def test_what_is_written_reads_back(prepared: Catalog):
    new = start(prepared, A, 1)
    order(prepared, coordinates(prepared), lambda state: Orders(new=(new,)))
    found = prepared.read(jobs.read)
    assert [one.id for one in found.runners] == [A, B]
    assert list(found.commands) == [new]
    assert [(one.runner, one.job) for one in found.running] == [(A, COORDINATOR)]


def test_a_command_is_taken_answered_once_and_the_job_runs(prepared: Catalog):
    order(
        prepared, coordinates(prepared), lambda state: Orders(new=(start(prepared, A, 1), start(prepared, B, 1, "y")))
    )
    taken = prepared.change(lambda state: jobs.take(state, A))
    assert [(one.number, one.status) for one in taken] == [(1, CommandStatus.TAKEN)]
    assert prepared.change(lambda state: jobs.take(state, A)) == taken, "it was not answered"
    assert prepared.change(lambda state: jobs.answer(state, taken[0], 5))
    assert not prepared.change(lambda state: jobs.answer(state, taken[0], 6, "late"))
    found = prepared.read(jobs.read)
    assert [(one.job, one.started_at) for one in found.running if one.job == "x"] == [("x", 5)]
    assert {one.runner: (one.status, one.diag) for one in found.commands} == {
        A: (CommandStatus.SUCCESS, None),
        B: (CommandStatus.CREATED, None),
    }


def test_a_failure_keeps_its_traceback_and_a_stop_ends_the_job(prepared: Catalog):
    term = coordinates(prepared)
    order(prepared, term, lambda state: Orders(new=(start(prepared, A, 1), start(prepared, A, 2, "y"))))
    first, second = prepared.change(lambda state: jobs.take(state, A))
    prepared.change(lambda state: jobs.answer(state, first, 5, "Traceback"))
    prepared.change(lambda state: jobs.answer(state, second, 5))
    stop = Command(runner=A, number=3, type=CommandType.STOP, job="y", settings="{}", created_at=prepared.clock())
    order(prepared, term, lambda state: Orders(new=(stop,)))
    [taken] = prepared.change(lambda state: jobs.take(state, A))
    prepared.change(lambda state: jobs.answer(state, taken, 9))
    found = prepared.read(jobs.read)
    assert [(one.status, one.diag) for one in found.commands] == [
        (CommandStatus.ERROR, "Traceback"), (CommandStatus.SUCCESS, None), (CommandStatus.SUCCESS, None),
    ]  # fmt: skip
    assert [one.job for one in found.running] == [COORDINATOR]


def test_a_dead_runner_goes_with_all_that_is_its_own_and_renews_nothing(prepared: Catalog):
    term = coordinates(prepared)
    order(prepared, term, lambda state: Orders(new=(start(prepared, B, 1), start(prepared, B, 2, "y"))))
    first, _ = prepared.change(lambda state: jobs.take(state, B))
    prepared.change(lambda state: jobs.answer(state, first, 5))
    order(prepared, term, lambda state: Orders(dead=(B,)))
    found = prepared.read(jobs.read)
    assert ([one.id for one in found.runners], list(found.commands)) == ([A], [])
    assert [one.job for one in found.running] == [COORDINATOR]
    assert not prepared.change(lambda state: jobs.renew(state, B, 5, 5))
    assert prepared.change(lambda state: jobs.renew(state, A, 5, 5))


def test_a_coordinator_whose_term_is_over_orders_nothing(prepared: Catalog):
    old = coordinates(prepared)
    lease = transactions.lead(prepared, COORDINATOR, "B", SECOND_US, is_gone=lambda holder: True)
    assert lease is not None
    with pytest.raises(StaleTermError, match=r"sys\$coordinator: expected term 1 of A, found term 2 of B"):
        order(prepared, old, lambda state: Orders(new=(start(prepared, A, 1),)))
    assert not prepared.read(jobs.read).commands


def test_the_counter_moves_with_each_change_but_not_with_a_heartbeat(prepared: Catalog):
    def counted(change: Callable[[], object]) -> bool:
        before = prepared.read(jobs.changed)
        change()
        return prepared.read(jobs.changed) > before

    term = coordinates(prepared)
    assert counted(lambda: order(prepared, term, lambda state: Orders(new=(start(prepared, A, 1),))))
    assert counted(lambda: prepared.change(lambda state: jobs.take(state, A)))
    assert not counted(lambda: prepared.change(lambda state: jobs.renew(state, A, 5, 5)))
    assert not counted(lambda: prepared.change(lambda state: jobs.take(state, A)))
    assert not counted(lambda: order(prepared, term, lambda state: Orders()))
    assert counted(lambda: prepared.change(lambda state: jobs.remove(state, A)))


def test_answered_commands_are_kept_for_a_while(prepared: Catalog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "COMMANDS_KEPT", 2)
    term = coordinates(prepared)
    for number in range(1, 6):
        new = Orders(new=(start(prepared, A, number),))
        order(prepared, term, lambda state, new=new: new)  # type: ignore[misc]
        [taken] = prepared.change(lambda state: jobs.take(state, A))
        prepared.change(partial(jobs.answer, command=taken, now=5, diag="failed"))
    assert [one.number for one in prepared.read(jobs.read).commands] == [3, 4, 5]
