"""A decision is carried out: what it requires is checked, and its updates are written at the next version.

A requirement or an update is a value of `ebla.model.changes`. Each family of them has a module with its rules, which
are functions of a state (`ebla.catalog.rows`) and write nothing.
"""

from __future__ import annotations

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import guards, memory, rows
from ebla.catalog.requirements import require, require_all
from ebla.catalog.rows import State
from ebla.catalog.updates import changes
from ebla.model import changes as c


def carry_out(state: State, decision: c.Decision, now: int) -> tuple[Version, RelationId | None]:
    """Make a decision true at the next version, or raise; the caller ends the transaction, or undoes it.

    Returns the version, and the relation that the decision creates.
    """
    version = Version(memory.advance(state, "version"))
    require_all(state, decision, now)
    hit("catalog.commit.checked")
    created = None
    if not all(isinstance(update, c.ROWS_ONLY) for update in decision.updates):
        memory.reshape(state)
    for update in decision.updates:
        if isinstance(update, c.CreateRelation):
            created = update.number or RelationId(memory.advance(state, "relation"))
        for change in changes(state, update, version, now, created):
            if not rows.write(state, change) and isinstance(update, c.EndTransaction):
                require(state, c.TransactionOpen(transaction=update.transaction), now)  # says what it is instead
        hit("catalog.commit.applied")
    if decision.exclusive:
        for change in guards.changes(state, decision, version):
            rows.write(state, change)
        memory.put(state, "exclusive_version", version)
    return version, created
