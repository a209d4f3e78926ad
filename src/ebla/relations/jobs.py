"""Jobs, runners and commands as users see them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ebla.catalog import jobs, reads
from ebla.model.handlers import DICTIONARY, by_name, owners
from ebla.model.jobs import COORDINATOR, Command, CommandStatus, CommandType, Jobs
from ebla.model.relation import Kind
from ebla.relations import handlers as stored

if TYPE_CHECKING:
    import pyarrow as pa

JOBS = {
    "name": "string",
    "should_run": "boolean",
    "state": "string",
    "runner": "string",
    "identity": "string",
    "started_at": "timestamp",
    "error": "string",
}
RUNNERS = {
    "name": "string",
    "identity": "string",
    "permanent": "boolean",
    "alive": "boolean",
    "jobs": "string",
    "updated_at": "timestamp",
}
COMMANDS = {
    "runner": "string",
    "number": "bigint",
    "type": "string",
    "job": "string",
    "status": "string",
    "diag": "string",
    "created_at": "timestamp",
}


def wanted(connection: Connection) -> dict[str, bool]:
    """Every job there may be, and whether it should run: a handler that has a view, and those of the system."""
    handlers = stored.handlers(connection)
    found = {h.name: h.should_run for h in owners(reads.relation_ids(connection, Kind.VIEW), handlers).values()}
    dictionary = by_name(handlers, DICTIONARY)
    if dictionary is not None:
        found[DICTIONARY] = dictionary.should_run and any(h.batch and found.get(h.name) for h in handlers)
    return found | {COORDINATOR: True}


def _time(microseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(microseconds / 1e6, dt.UTC)


def jobs_table(connection: Connection, now: int) -> pa.Table:
    from ebla.values.types import table_of

    state, should = jobs.read(connection), wanted(connection)
    runners = {one.id: one for one in state.runners}
    running = {one.job: one for one in state.running}
    rows = []
    for name in sorted(should.keys() | running.keys()):
        run, last = running.get(name), _last(state, name)
        failed = last is not None and last.status is CommandStatus.ERROR
        rows.append(
            {
                "name": name,
                "should_run": should.get(name, False),
                "state": _state(is_running=run is not None, last=last, should_run=should.get(name, False)),
                "runner": None if run is None else run.runner,
                "identity": None if run is None or run.runner not in runners else runners[run.runner].identity,
                "started_at": None if run is None else _time(run.started_at),
                "error": last.diag if failed and last is not None else None,
            }
        )
    return table_of(JOBS, rows)


def _last(state: Jobs, job: str) -> Command | None:
    return max((one for one in state.commands if one.job == job), key=lambda one: one.created_at, default=None)


def _state(*, is_running: bool, last: Command | None, should_run: bool) -> str:
    """`starting`, `running`, `stopping`, `stopped`, or `waiting` for a process that can run it."""
    if last is not None and last.status.is_open:
        return "starting" if last.type is CommandType.START else "stopping"
    if is_running:
        return "running"
    return "waiting" if should_run else "stopped"


def runners_table(connection: Connection, now: int) -> pa.Table:
    from ebla.values.types import table_of

    state = jobs.read(connection)
    rows = [
        {
            "name": one.id,
            "identity": one.identity,
            "permanent": one.permanent,
            "alive": one.expires_at > now,
            "jobs": ", ".join(sorted(run.job for run in state.running if run.runner == one.id)),
            "updated_at": _time(one.updated_at),
        }
        for one in state.runners
    ]
    return table_of(RUNNERS, rows)


def commands_table(connection: Connection) -> pa.Table:
    from ebla.values.types import table_of

    rows = [
        {
            "runner": one.runner,
            "number": one.number,
            "type": one.type.value,
            "job": one.job,
            "status": one.status.value,
            "diag": one.diag,
            "created_at": _time(one.created_at),
        }
        for one in sorted(jobs.read(connection).commands, key=lambda one: (one.created_at, one.runner, one.number))
    ]
    return table_of(COMMANDS, rows)
