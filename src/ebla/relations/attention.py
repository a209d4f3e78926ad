"""What a relation waits for, and what needs a person: decided from values.

A warehouse looks after itself as long as one process maintains it. A person is needed where that cannot help:

- no process maintains it, while a view has been stale for a minute or a build is unfinished;
- a failure is final: a row that a view cannot compute, a value that stands twice in a unique index;
- work failed `ATTEMPTS_MAX` times in a row: a disk is full, a file is damaged, Spark cannot start.

A handler that was switched off needs no person: one switched it off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.catalog.troubles import Trouble
from ebla.model.lifecycle.index import Permission, may_read
from ebla.model.lifecycle.view import Status

STALE_S = 60.0
"""A view that has not read a write for this long is stale."""
ATTEMPTS_MAX = 5
"""After this many failures in a row the next attempt is not expected to help."""

NO_PROCESS = "a process that maintains it: ebla run"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    name: str
    handler: str
    status: Status
    age_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What needs a person: of which relation, why, and what to do."""

    subject: str
    reason: str
    hint: str


def error_of(trouble: Trouble | None) -> str | None:
    if trouble is None:
        return None
    return trouble.message if trouble.culprit is None else f"{trouble.message} ({trouble.culprit})"


def _retry(trouble: Trouble, now: int) -> str:
    wait_s = max(0, (trouble.retry_at or now) - now) / 1e6
    again = "again now" if wait_s < 1 else f"again in {wait_s:.0f} s"
    return f"attempt {trouble.attempts + 1}, {again}"


def waits_for(
    *,
    status: Status,
    age_s: float | None,
    should_run: bool,
    handler: str,
    trouble: Trouble | None,
    build: str | None,
    maintained: bool,
    now: int,
) -> str | None:
    """What a view waits for; `None` if it has all that it needs."""
    if trouble is not None and trouble.final:
        return "a change of its inputs, or FLUSH"
    if status == Status.FAILED:
        return "a change of its inputs, or FLUSH"
    if status != Status.BUILDING and not age_s and trouble is None:
        return None
    if status != Status.BUILDING and not should_run:
        return f"ALTER HANDLER {handler} SET (should_run = true)"
    if not maintained:
        return NO_PROCESS
    if trouble is not None:
        return _retry(trouble, now)
    if status == Status.BUILDING:
        return build
    return "the next epoch"


def index_waits_for(
    *, state: Permission, trouble: Trouble | None, detail: str | None, maintained: bool, now: int
) -> str | None:
    """What an index waits for; `None` if it can be read."""
    if may_read(state):
        return None
    if trouble is not None and trouble.final:
        return "a person: the build failed"
    if state in (Permission.ABSENT, Permission.REMOVING_WRITES, Permission.REMOVING_DELETES):
        return detail
    if not maintained:
        return NO_PROCESS
    return _retry(trouble, now) if trouble is not None else detail


def needs(
    *,
    views: Sequence[View],
    builds: Sequence[str],
    handlers: Mapping[str, bool],
    troubles: Sequence[Trouble],
    maintained: bool,
) -> list[Need]:
    """What needs a person, each relation once, the worst first."""
    found: dict[str, Need] = {}
    for one in troubles:
        if one.final:
            hint = "mend the row" if one.kind.value == "view" else "mend the value, then create the index again"
            found[one.name] = Need(subject=f"{one.kind.value} {one.name}", reason=f"{error_of(one)}", hint=hint)
        elif one.attempts >= ATTEMPTS_MAX:
            reason = f"{one.work.value} failed {one.attempts} times in a row: {error_of(one)}"
            found[one.name] = Need(subject=f"{one.kind.value} {one.name}", reason=reason, hint="mend the cause")
    for view in views:
        if view.status == Status.FAILED and view.name not in found:
            reason = view.error or "its epoch failed"
            found[view.name] = Need(subject=f"view {view.name}", reason=reason, hint="mend the row")
    if not maintained:
        for view in views:
            stale = (view.age_s or 0.0) >= STALE_S and handlers.get(view.handler, True)
            if stale and view.name not in found:
                reason = f"{view.age_s:.0f} s old, and no process maintains it"
                found[view.name] = Need(subject=f"view {view.name}", reason=reason, hint="start ebla run")
        for name in builds:
            if name not in found:
                reason = "not built yet, and no process builds it"
                found[name] = Need(subject=name, reason=reason, hint="start ebla run")
    return list(found.values())
