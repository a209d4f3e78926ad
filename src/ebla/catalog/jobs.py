"""Runners, what they run, and the commands to them.

The rows are no decisions of a version: they are written in database transactions of their own. The counter `jobs`
advances with each change but for a runner's heartbeat, so that a process whose counter stands still need not look.

All that is written here may be written twice: it is repeated where the database's answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ebla.catalog import memory, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import State
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

if TYPE_CHECKING:
    from ebla.model import changes as c

COUNTER = "jobs"

COMMANDS_KEPT = 50
"""How many answered commands of a runner are kept."""

LATE = "expected to be taken in time, found no runner that did"


def changed(state: State) -> int:
    """A number that grows with every change here."""
    return memory.counters(state)[COUNTER]


def read(state: State) -> Jobs:
    return Jobs(
        runners=[_runner(row) for row in rows.find(state, s.mv_runners, "runner_id")],
        running=[_running(row) for row in rows.find(state, s.mv_runner_jobs, "runner_id", "job_name")],
        commands=[_command(row) for row in rows.find(state, s.mv_commands, "runner_id", "command_no")],
    )


def _runner(row: Any) -> Runner:
    return Runner(
        id=RunnerId(row.runner_id),
        identity=row.runner_identity,
        permanent=bool(row.permanent),
        updated_at=row.updated_at,
        expires_at=row.expires_at,
    )


def _running(row: Any) -> Running:
    return Running(
        runner=RunnerId(row.runner_id), job=row.job_name, settings=row.job_settings, started_at=row.started_at
    )


def _command(row: Any) -> Command:
    return Command(
        runner=RunnerId(row.runner_id),
        number=row.command_no,
        type=CommandType(row.command_type),
        job=row.job_name,
        settings=row.job_settings,
        created_at=row.created_at,
        status=CommandStatus(row.command_status),
        diag=row.command_diag,
    )


# ---- runners --------------------------------------------------------------------------------------------


def register(state: State, runner: Runner) -> None:
    rows.write(
        state,
        rows.put(
            s.mv_runners,
            runner_id=runner.id,
            runner_identity=runner.identity,
            permanent=runner.permanent,
            updated_at=runner.updated_at,
            expires_at=runner.expires_at,
        ),
    )
    memory.advance(state, COUNTER)


def renew(state: State, runner: RunnerId, now: int, lease_us: int) -> bool:
    """Say that a runner lives; whether it is registered still."""
    values = {"updated_at": now, "expires_at": now + lease_us}
    return rows.write(state, rows.update(s.mv_runners, values, runner_id=runner)) == 1


def remove(state: State, *runners: RunnerId) -> None:
    """Take runners away, with their jobs and commands."""
    for table in (s.mv_runners, s.mv_runner_jobs, s.mv_commands):
        rows.write(state, rows.delete(table, runner_id=frozenset(runners)))
    memory.advance(state, COUNTER)


# ---- the coordinator ------------------------------------------------------------------------------------


def order(
    connection: Connection, runner: RunnerId, term: c.TermIs, now: int, decide: Callable[[Jobs], Orders]
) -> Orders:
    """Decide on the state as it is, as the coordinator of a term, and write what was decided."""
    from ebla.catalog import sessions  # commits need it, and what it imports; reads do not

    sessions.require_session(connection, term, now)
    state = read(connection)
    orders = decide(state)
    if not orders:
        return orders
    if orders.dead:
        remove(connection, *orders.dead)
    for one in orders.late:
        _finish(connection, one, CommandStatus.ERROR, LATE, expected=CommandStatus.CREATED)
    if orders.new:
        rows.write(connection, rows.insert(s.mv_commands, [_row(one) for one in orders.new]))
    for runner_id in {one.runner for one in orders.new}:
        _trim(connection, [one for one in state.commands if one.runner == runner_id])
    _coordinate(connection, runner, state, now)
    memory.advance(connection, COUNTER)
    return orders


def _coordinate(connection: Connection, runner: RunnerId, state: Jobs, now: int) -> None:
    """Say which runner coordinates."""
    if [one.runner for one in state.running if one.job == COORDINATOR] != [runner]:
        rows.write(connection, rows.delete(s.mv_runner_jobs, job_name=COORDINATOR))
        rows.write(connection, rows.insert(s.mv_runner_jobs, [_running_row(runner, COORDINATOR, "{}", now)]))


def _trim(state: State, commands: list[Command]) -> None:
    answered = [one.number for one in commands if not one.status.is_open]
    if len(answered) > COMMANDS_KEPT:
        old = frozenset(answered[:-COMMANDS_KEPT])
        rows.write(state, rows.delete(s.mv_commands, runner_id=commands[0].runner, command_no=old))


def _row(command: Command) -> Mapping[str, object]:
    return {
        "runner_id": command.runner,
        "command_no": command.number,
        "created_at": command.created_at,
        "command_type": command.type.value,
        "job_name": command.job,
        "job_settings": command.settings,
        "command_status": command.status.value,
        "command_diag": command.diag,
    }


def _running_row(runner: RunnerId, job: str, settings: str, now: int) -> Mapping[str, object]:
    return {"runner_id": runner, "job_name": job, "job_settings": settings, "started_at": now}


# ---- a runner's commands --------------------------------------------------------------------------------


def take(state: State, runner: RunnerId) -> list[Command]:
    """The commands that a runner has to carry out, in their order: new ones are taken, and those that it took before
    and did not answer are among them."""
    status = {"command_status": CommandStatus.TAKEN.value}
    mine = {"runner_id": runner, "command_status": CommandStatus.CREATED.value}
    if rows.write(state, rows.update(s.mv_commands, status, **mine)):
        memory.advance(state, COUNTER)
    return [_command(row) for row in rows.find(state, s.mv_commands, "command_no", runner_id=runner, **status)]


def answer(state: State, command: Command, now: int, diag: str | None = None) -> bool:
    """End a command that was taken, and say what its runner runs since; whether it was still to be answered."""
    status = CommandStatus.SUCCESS if diag is None else CommandStatus.ERROR
    if not _finish(state, command, status, diag, expected=CommandStatus.TAKEN):
        return False
    mine = {"runner_id": command.runner, "job_name": command.job}
    if diag is None:
        rows.write(state, rows.delete(s.mv_runner_jobs, **mine))
        if command.type is CommandType.START:
            new = _running_row(command.runner, command.job, command.settings, now)
            rows.write(state, rows.insert(s.mv_runner_jobs, [new]))
    memory.advance(state, COUNTER)
    return True


def _finish(state: State, command: Command, status: CommandStatus, diag: str | None, *, expected: CommandStatus) -> int:
    which = {"runner_id": command.runner, "command_no": command.number, "command_status": expected.value}
    return rows.write(
        state, rows.update(s.mv_commands, {"command_status": status.value, "command_diag": diag}, **which)
    )  # fmt: skip
