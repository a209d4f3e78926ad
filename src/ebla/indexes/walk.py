"""Indexes go from state to state: a part of every round of the one who leads building.

Theory of operation. Level-triggered: each call reads where the indexes of every base stand and who is in their way,
takes the steps that are due (`ebla.model.index_steps`), and remembers nothing. A step is one guarded commit, under the
leader's term. So after a crash the next leader goes on. Filling is not done here: tasks of an index may
begin once it is `backfilling`, and the coordinator has workers do them like those of views.

While an index is filled, the version that it is filled from is kept from vacuum, in the name of its base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.base.settings import Settings
from ebla.catalog import index_states, reads
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.index_steps import Advance, IndexStanding, Wait, next_step, version_to_keep
from ebla.model.lifecycle.index import Permission
from ebla.relations.tasks import standings
from ebla.tables.write_access import WriteAccess

POLL_US = 20_000
"""Transactions that are in the way are looked at this often: their end wakes no thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkResult:
    moved: bool
    """Whether there may be more to do at once."""
    wait_us: int | None
    """When to look again at the latest, from now; `None`: only the usual events matter."""


def step(context: WriteAccess, requires: Sequence[c.Requirement] = ()) -> WalkResult:
    """Take the next step of every base that has indexes on their way. Each commit requires what the caller says."""
    tx.reap(context.catalog)
    with context.catalog.reading() as connection:
        now = context.catalog.clock()
        standing = standings(connection)
    grace_us = int(context.settings.barrier_grace_s * 1e6)
    moved, wait_us = False, None
    for base in sorted({one.base for one in standing}):
        here = [one for one in standing if one.base == base]
        found = next_step(here, now_us=now, grace_us=grace_us)
        match found:
            case None:
                pass
            case Wait():
                wait_us = POLL_US
            case Advance():
                moved = _advance(context, base, here, found, requires) or moved
            case _:
                assert_never(found)
        oldest = version_to_keep(here, base)
        if oldest is not None:
            keep(context.catalog, context.settings, base, oldest)
    return WalkResult(moved=moved, wait_us=wait_us)


def _advance(
    context: WriteAccess,
    base: RelationId,
    here: Sequence[IndexStanding],
    todo: Advance,
    requires: Sequence[c.Requirement],
) -> bool:
    """Whether the step was taken; another may have come first."""
    for transaction in todo.abort:
        tx.abort(context.catalog, transaction)
    hit("index.barrier_passed")
    going = [one for one in here if one.index in todo.indexes]
    with context.catalog.reading() as connection:
        names = ", ".join(_names(connection, todo.indexes))
        messages = {one.index: one.message for one in index_states.of_base(connection, base)}
    if todo.to is Permission.BACKFILLING and version_to_keep(here, base) is None:
        # Before the commit, so that there is no moment in which what it reads is not kept.
        keep(context.catalog, context.settings, base, context.catalog.version())
    decision = c.Decision(
        reason=f"index {names}: {going[0].state} -> {todo.to}",
        relation=base,
        requires=(*requires, *(one.unmoved for one in going)),
        updates=tuple(
            c.SetIndexState(index=one.index, state=todo.to, message=messages.get(one.index)) for one in going
        ),
        exclusive=True,
        work=c.WorkKind.BUILD,
    )
    try:
        context.catalog.commit(decision, node=context.node)
    except ConflictError as conflict:
        if not conflict.retryable:
            raise
        return True  # another process has moved it: look again
    hit("index.advanced")
    let_go(context.catalog, base)
    return True


def _names(connection: Connection, indexes: Sequence[RelationId]) -> list[str]:
    found = [reads.relation_by_id(connection, index) for index in indexes]
    return [one.name for one in found if one is not None]


def readable(catalog: Catalog, base: RelationId) -> None:
    """An index of the base can be read."""
    hit("index.readable")
    let_go(catalog, base)


# ---- what is read, is kept ------------------------------------------------------------------------------


def _holder(base: RelationId) -> str:
    return f"indexes of relation {base}"


def keep(catalog: Catalog, settings: Settings, base: RelationId, version: Version) -> None:
    """Keep a version from vacuum in the name of the base's indexes; prolonged in good time."""
    lease_us = int(settings.pin_lease_s * 1e6)
    enough = catalog.clock() + lease_us // 2
    with catalog.reading() as connection:
        if tx.holds(connection, _holder(base), version, until=enough):
            return
    tx.hold(catalog, version, holder=_holder(base), reason="fill indexes", lease_us=lease_us)


def let_go(catalog: Catalog, base: RelationId) -> None:
    """What was kept for filling is not needed once nothing is filled any more."""
    with catalog.reading() as connection:
        filling = any(one.state is Permission.BACKFILLING for one in index_states.of_base(connection, base))
        held = tx.holds(connection, _holder(base))
    if held and not filling:
        tx.let_go(catalog, _holder(base))
