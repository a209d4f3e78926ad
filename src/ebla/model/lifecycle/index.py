"""The life of an index: who may read it, who maintains it, what a backfill may write.

Theory of operation. An index is maintained by the writers of its table, in the commit of the row itself. Writers do
not all learn of a new index at the same moment, so it is created in steps that each differ from the last by one
permission. Between two steps lies a *barrier*: the coordinator waits until no transaction is open that began before
the last step, and aborts those that stay (`ebla.model.index_steps`). So at any moment writers are in two neighbouring
states at most, and these must fit together:

- `DELETE_ONLY`: writers remove the entries of the rows that they write and add none. Nothing is there to be removed
  but what a writer one step ahead has added; without this step, a writer that does not know of the index would leave
  that entry behind when it deletes the row, and the index would show a row that is gone.
- `WRITE_AND_DELETE`: writers add entries too. From here on no change is missed. Once no transaction from before this
  step is open, the safe time `t_read` can be chosen: every later change is in the index, every earlier one in the
  snapshot.
- `BACKFILLING`: the table is read at `t_read` and written into level 1, below all that writers write. So an entry of
  the backfill never hides a newer one, and a tombstone of a writer hides what the backfill brings. Until it ends,
  nothing may fold level 0 into level 1: the tombstones must stay. All that writers wrote before `t_read` goes in the
  commit that chooses it. The snapshot has its effect, and a tombstone from before would hide an entry of the backfill:
  a writer in `DELETE_ONLY` says of every row that it writes that there is no entry.
- `READ_WRITE_AND_DELETE`: complete. Queries may use it.

Removal goes back the same way: first no query reads, then no writer adds, then no writer removes, and then it goes. A
build that fails (a duplicate in a unique index) does the same from `BACKFILLING`, and touches no other index.
`REMOVING_WRITES` permits what `WRITE_AND_DELETE` does, `REMOVING_DELETES` what `DELETE_ONLY` does; they differ in where
they lead. An index that was created with `build = 'deferred'` is `ABSENT` until `BUILD INDEXES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from ebla.model.lifecycle.steps import Actor, Lifecycle, Step


class Permission(StrEnum):
    ABSENT = "absent"
    DELETE_ONLY = "delete_only"
    WRITE_AND_DELETE = "write_and_delete"
    BACKFILLING = "backfilling"
    READ_WRITE_AND_DELETE = "read_write_and_delete"
    REMOVING_WRITES = "removing_writes"
    REMOVING_DELETES = "removing_deletes"


class Rights(NamedTuple):
    """What is permitted in a state."""

    queries_read: bool
    """Queries may use the index."""
    writers_remove: bool
    """A writer removes the entry of a row that it changes or deletes."""
    writers_add: bool
    """A writer adds the entry of a row that it writes."""
    backfill_level: int | None
    """The level into which the backfill writes; `None`: it may not write at all."""


P = Permission

RIGHTS: Mapping[Permission, Rights] = {
    P.ABSENT: Rights(queries_read=False, writers_remove=False, writers_add=False, backfill_level=None),
    P.DELETE_ONLY: Rights(queries_read=False, writers_remove=True, writers_add=False, backfill_level=None),
    P.WRITE_AND_DELETE: Rights(queries_read=False, writers_remove=True, writers_add=True, backfill_level=None),
    P.BACKFILLING: Rights(queries_read=False, writers_remove=True, writers_add=True, backfill_level=1),
    P.READ_WRITE_AND_DELETE: Rights(queries_read=True, writers_remove=True, writers_add=True, backfill_level=None),
    P.REMOVING_WRITES: Rights(queries_read=False, writers_remove=True, writers_add=True, backfill_level=None),
    P.REMOVING_DELETES: Rights(queries_read=False, writers_remove=True, writers_add=False, backfill_level=None),
}

STEPS = (
    Step(P.ABSENT, P.DELETE_ONLY, Actor.STATEMENT, "CREATE INDEX or BUILD INDEXES", "creates the tasks"),
    Step(P.DELETE_ONLY, P.WRITE_AND_DELETE, Actor.COORDINATOR, "barrier", "nothing else"),
    Step(P.WRITE_AND_DELETE, P.BACKFILLING, Actor.COORDINATOR, "barrier", "chooses t_read and ends all older entries"),
    Step(P.BACKFILLING, P.READ_WRITE_AND_DELETE, Actor.COORDINATOR, "all is read and checked", "ends the build"),
    Step(P.READ_WRITE_AND_DELETE, P.REMOVING_WRITES, Actor.STATEMENT, "DROP INDEX", "no query reads it"),
    Step(P.BACKFILLING, P.REMOVING_WRITES, Actor.PROCESS, "violation, CANCEL or DROP INDEX", "stops the build"),
    Step(P.WRITE_AND_DELETE, P.REMOVING_WRITES, Actor.STATEMENT, "CANCEL or DROP INDEX", "stops the build"),
    Step(P.DELETE_ONLY, P.REMOVING_DELETES, Actor.STATEMENT, "CANCEL or DROP INDEX", "stops the build"),
    Step(P.REMOVING_WRITES, P.REMOVING_DELETES, Actor.COORDINATOR, "barrier", "nothing else"),
    Step(P.REMOVING_DELETES, P.ABSENT, Actor.COORDINATOR, "barrier", "drops the relation with its entries and tasks"),
)

LIFE = Lifecycle("index", STEPS, nothing=P.ABSENT)

_REMOVAL = (P.REMOVING_WRITES, P.REMOVING_DELETES, P.ABSENT)


def may_read(state: Permission) -> bool:
    return RIGHTS[state].queries_read


def writer_deletes(state: Permission) -> bool:
    return RIGHTS[state].writers_remove


def writer_inserts(state: Permission) -> bool:
    return RIGHTS[state].writers_add


def backfill_level(state: Permission) -> int | None:
    return RIGHTS[state].backfill_level


def begins_empty(state: Permission) -> bool:
    """Whether all entries that were written so far go when the state begins: level 0 then starts at `t_read`."""
    return backfill_level(state) is not None


def may_compact(state: Permission) -> bool:
    """Whether level 0 may be folded. Not before the backfill has ended: tombstones must stay above what it brings."""
    return may_read(state)


def forward(state: Permission) -> Permission | None:
    """The next state of a build; `None` where it has ended or is being removed."""
    return next((step.after for step in LIFE.from_(state) if step.after not in _REMOVAL), None)


def back(state: Permission) -> Permission | None:
    """The next state of a removal; `None` where there is nothing left."""
    return next((step.after for step in LIFE.from_(state) if step.after in _REMOVAL), None)
