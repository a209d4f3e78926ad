"""The permission states of an index: who may read it, who maintains it, what a backfill may write.

Theory of operation. An index is maintained by the writers of its table, in the commit of the row itself. Writers do
not all learn of a new index at the same moment, so it comes to be in steps that each differ from the last by one
permission. Between two steps lies a *barrier*: the coordinator waits until no transaction is open that began before
the last step, and aborts those that stay. So at any moment writers are in two neighbouring states at most, and these
must fit together:

- `DELETE_ONLY`: writers remove the entries of the rows that they write and add none. Nothing is there to be removed
  but what a writer one step ahead has added; without this step, a writer that knows nothing of the index would leave
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

Removal walks back the same way: first nobody reads, then nobody adds, then nobody removes, and then it goes. A build
that fails (a duplicate in a unique index) does the same from `BACKFILLING`, and touches no other index.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never


class Permission(StrEnum):
    ABSENT = "absent"
    DELETE_ONLY = "delete_only"
    WRITE_AND_DELETE = "write_and_delete"
    BACKFILLING = "backfilling"
    READ_WRITE_AND_DELETE = "read_write_and_delete"
    REMOVING_WRITES = "removing_writes"
    REMOVING_DELETES = "removing_deletes"


TRANSITIONS: Mapping[tuple[Permission, Permission], str] = {
    (Permission.ABSENT, Permission.DELETE_ONLY): "CREATE INDEX",
    (Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE): "barrier",
    (Permission.WRITE_AND_DELETE, Permission.BACKFILLING): "barrier; t_read is chosen",
    (Permission.BACKFILLING, Permission.READ_WRITE_AND_DELETE): "all tablets are read, the check found nothing",
    (Permission.READ_WRITE_AND_DELETE, Permission.REMOVING_WRITES): "DROP INDEX",
    (Permission.BACKFILLING, Permission.REMOVING_WRITES): "violation, CANCEL or DROP INDEX",
    (Permission.WRITE_AND_DELETE, Permission.REMOVING_WRITES): "CANCEL or DROP INDEX",
    (Permission.DELETE_ONLY, Permission.REMOVING_DELETES): "CANCEL or DROP INDEX",
    (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES): "barrier",
    (Permission.REMOVING_DELETES, Permission.ABSENT): "barrier; all that was built is removed",
}
"""Every step that there is. `REMOVING_WRITES` permits what `WRITE_AND_DELETE` does, `REMOVING_DELETES` what
`DELETE_ONLY` does; they differ in where they lead."""


def may_read(state: Permission) -> bool:
    """Whether a query may use the index."""
    match state:
        case Permission.READ_WRITE_AND_DELETE:
            return True
        case (
            Permission.ABSENT
            | Permission.DELETE_ONLY
            | Permission.WRITE_AND_DELETE
            | Permission.BACKFILLING
            | Permission.REMOVING_WRITES
            | Permission.REMOVING_DELETES
        ):
            return False
        case _:
            assert_never(state)


def writer_deletes(state: Permission) -> bool:
    """Whether a writer removes the entry of a row that it changes or deletes."""
    match state:
        case (
            Permission.DELETE_ONLY
            | Permission.WRITE_AND_DELETE
            | Permission.BACKFILLING
            | Permission.READ_WRITE_AND_DELETE
            | Permission.REMOVING_WRITES
            | Permission.REMOVING_DELETES
        ):
            return True
        case Permission.ABSENT:
            return False
        case _:
            assert_never(state)


def writer_inserts(state: Permission) -> bool:
    """Whether a writer adds the entry of a row that it writes."""
    match state:
        case (
            Permission.WRITE_AND_DELETE
            | Permission.BACKFILLING
            | Permission.READ_WRITE_AND_DELETE
            | Permission.REMOVING_WRITES
        ):
            return True
        case Permission.ABSENT | Permission.DELETE_ONLY | Permission.REMOVING_DELETES:
            return False
        case _:
            assert_never(state)


def backfill_level(state: Permission) -> int | None:
    """The level into which a backfill may write; `None`: it may not write at all."""
    match state:
        case Permission.BACKFILLING:
            return 1
        case (
            Permission.ABSENT
            | Permission.DELETE_ONLY
            | Permission.WRITE_AND_DELETE
            | Permission.READ_WRITE_AND_DELETE
            | Permission.REMOVING_WRITES
            | Permission.REMOVING_DELETES
        ):
            return None
        case _:
            assert_never(state)


def begins_empty(state: Permission) -> bool:
    """Whether all entries that were written so far go when the state begins: level 0 then starts at `t_read`."""
    return backfill_level(state) is not None


def may_compact(state: Permission) -> bool:
    """Whether level 0 may be folded. Not before the backfill has ended: tombstones must stay above what it brings."""
    return may_read(state)


def forward(state: Permission) -> Permission | None:
    """The next step of a build; `None` where it has ended or is being removed."""
    match state:
        case Permission.ABSENT:
            return Permission.DELETE_ONLY
        case Permission.DELETE_ONLY:
            return Permission.WRITE_AND_DELETE
        case Permission.WRITE_AND_DELETE:
            return Permission.BACKFILLING
        case Permission.BACKFILLING:
            return Permission.READ_WRITE_AND_DELETE
        case Permission.READ_WRITE_AND_DELETE | Permission.REMOVING_WRITES | Permission.REMOVING_DELETES:
            return None
        case _:
            assert_never(state)


def back(state: Permission) -> Permission | None:
    """The next step of a removal; `None` where there is nothing left."""
    match state:
        case Permission.READ_WRITE_AND_DELETE | Permission.BACKFILLING | Permission.WRITE_AND_DELETE:
            return Permission.REMOVING_WRITES
        case Permission.DELETE_ONLY | Permission.REMOVING_WRITES:
            return Permission.REMOVING_DELETES
        case Permission.REMOVING_DELETES:
            return Permission.ABSENT
        case Permission.ABSENT:
            return None
        case _:
            assert_never(state)


def may_meet(one: Permission, other: Permission) -> bool:
    """Whether writers of both states may be at work at once and still leave a correct index.

    Whoever adds an entry needs everybody else to remove it with its row.
    """
    return (writer_deletes(one) or not writer_inserts(other)) and (writer_deletes(other) or not writer_inserts(one))
