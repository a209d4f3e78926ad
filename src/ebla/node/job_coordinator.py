"""What the job coordinator decides: a function of the catalog's state, the jobs that should run, and a time.

Theory of operation. A runner whose lease ran out, or whose process has ended, is dead: it goes with its jobs and its
commands. A job that should run, and neither runs nor was ordered to, is started on one runner; one that runs and should
not, or runs twice, is stopped. A job with an unanswered command gets no other one: so there is no command twice, and a
job moves only behind the end of its last run. The decision is taken and written under the commit lock by the holder of
the lease `sys$coordinator`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ebla.base.backoff import Backoff
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
    Wanted,
)

RETRY_S = Backoff(1.0, 30.0)
"""After how long a job is started again whose start has failed."""


def decide(
    state: Jobs,
    wanted: Wanted,
    now_us: int,
    *,
    timeout_us: int,
    is_gone: Callable[[str], bool] = lambda runner: False,
) -> Orders:
    """`timeout_us`: how long a command may wait to be taken. `is_gone`: whether a runner's process has ended, where
    that can be known before its lease ends."""
    dead = tuple(one.id for one in state.runners if one.expires_at <= now_us or is_gone(one.id))
    living = {one.id: one for one in state.runners if one.id not in dead}
    named = {one.runner for one in state.running} | {one.runner for one in state.commands}
    unknown = named - living.keys() - set(dead)
    commands = [one for one in state.commands if one.runner in living]
    late = tuple(
        one for one in commands if one.status is CommandStatus.CREATED and one.created_at + timeout_us <= now_us
    )
    unanswered = [one for one in commands if one.status.is_open and one not in late]
    running = [one for one in state.running if one.runner in living and one.job != COORDINATOR]
    settled = [one for one in running if one.job not in {command.job for command in unanswered}]
    stops = [(CommandType.STOP, one.runner, one.job, one.settings) for one in surplus(settled, wanted)]
    idle = wanted.keys() - {one.job for one in running} - {one.job for one in unanswered}
    tried = [one for one in commands if one.type is CommandType.START]
    missing = sorted(job for job in idle if retry_at(job, tried) <= now_us)
    load = Counter([one.runner for one in running])
    load.update(one.runner for one in unanswered if one.type is CommandType.START)
    starts = []
    for job in missing if living else ():
        runner = place(job, living.values(), load, tried)
        load[runner] += 1
        starts.append((CommandType.START, runner, job, wanted[job]))
    last = Counter[RunnerId]()
    for one in commands:
        last[one.runner] = max(last[one.runner], one.number)
    return Orders(dead=(*dead, *sorted(unknown)), late=late, new=tuple(_numbered([*stops, *starts], last, now_us)))


def surplus(running: Iterable[Running], wanted: Wanted) -> list[Running]:
    """What runs and should not: jobs that are not wanted, and all but the oldest run of one."""
    kept, found = set[str](), list[Running]()
    for one in sorted(running, key=lambda one: (one.started_at, one.runner)):
        if one.job not in wanted or one.job in kept:
            found.append(one)
        kept.add(one.job)
    return found


def retry_at(job: str, starts: Iterable[Command]) -> int:
    """When a job may be started: at once, or a while after the last of its starts that failed in a row."""
    failures, last = 0, 0
    for one in sorted((one for one in starts if one.job == job), key=lambda one: one.created_at):
        failures = failures + 1 if one.status is CommandStatus.ERROR else 0
        last = one.created_at
    return last + int(RETRY_S.after(failures) * 1e6) if failures else 0


def place(job: str, living: Iterable[Runner], load: Counter[RunnerId], starts: Iterable[Command]) -> RunnerId:
    """Where to start a job: where its start has not failed, in a process that maintains for good, with few jobs."""
    failed = Counter(one.runner for one in starts if one.job == job and one.status is not CommandStatus.SUCCESS)
    best = min(living, key=lambda one: (failed[one.id], not one.permanent, load[one.id], one.id))
    return best.id


def _numbered(
    orders: Iterable[tuple[CommandType, RunnerId, str, str]], last: Counter[RunnerId], now_us: int
) -> Iterable[Command]:
    for type_, runner, job, settings in orders:
        last[runner] += 1
        yield Command(
            runner=runner, number=last[runner], type=type_, job=job, settings=settings, created_at=now_us
        )  # fmt: skip
