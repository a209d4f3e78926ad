"""Which step the indexes of one base take next: decided from values, without reading anything.

Between two states lies the barrier (`ebla.model.barrier`): no transaction of the base is open that began before the
state did. It is looked at again and again and never waited in: what stands in the way is given until the grace period
is over, counted from the commit that began the state, and is aborted then. So the next leader goes on with the same
deadline.

Removals come first, since a name may be waited for; one that must wait does not hold up the others. Indexes of one
state go on together, so that one scan feeds them all. How they are filled is the coordinator's business, and becoming
readable, too; what those two must wait for is said here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ebla.base.ids import RelationId, TransactionId, Version
from ebla.model.barrier import is_over
from ebla.model.changes import IndexIs
from ebla.model.lifecycle.index import Permission, back, forward


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStanding:
    """One index that is on its way somewhere, as the catalog has it."""

    index: RelationId
    base: RelationId
    state: Permission
    since: Version
    read_version: Version | None = None
    began_us: int = 0
    """When the state was committed."""
    blockers: tuple[TransactionId, ...] = ()
    """Open transactions of the base that began before the state did."""

    @property
    def unmoved(self) -> IndexIs:
        """What holds as long as no step has moved it."""
        return IndexIs(index=self.index, state=self.state, since=self.since, read_version=self.read_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The indexes that take their next state, and the transactions that are aborted first."""

    indexes: tuple[RelationId, ...]
    to: Permission
    abort: tuple[TransactionId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No index can take a step before a time, unless the transactions in the way end."""

    until_us: int
    blockers: tuple[TransactionId, ...]


_ORDER = (
    Permission.REMOVING_DELETES,
    Permission.REMOVING_WRITES,
    Permission.DELETE_ONLY,
    Permission.WRITE_AND_DELETE,
)
_COMING = (Permission.DELETE_ONLY, Permission.WRITE_AND_DELETE)


def next_step(indexes: Sequence[IndexStanding], *, now_us: int, grace_us: int) -> Advance | Wait | None:
    """The next step of the indexes of one base; `None` where all are readable, or are filled."""
    wait: Wait | None = None
    for state in _ORDER:
        here = [one for one in indexes if one.state is state]
        to = forward(state) or back(state)
        if not here or to is None:
            continue
        blockers = tuple(sorted({blocker for one in here for blocker in one.blockers}))
        began_us = max(one.began_us for one in here)
        if not blockers or is_over(began_us, now_us, grace_us):
            return Advance(indexes=tuple(one.index for one in here), to=to, abort=blockers)
        deadline = began_us + grace_us
        if wait is None or deadline < wait.until_us:
            wait = Wait(until_us=deadline, blockers=blockers)
    return wait


def not_yet(
    indexes: Collection[IndexStanding],
    unread: Mapping[RelationId, RelationId],
    has_tasks: Collection[RelationId | None],
) -> set[RelationId]:
    """Whose tasks cannot begin: an index that is not to be filled yet, or that others of its base are about to join.

    So is a view of which nothing was read (`unread`: with its base) while an index of the same base is about to come:
    one scan feeds them all. But not while that one waits for a transaction.
    """
    held = {one.index for one in indexes if one.state is not Permission.BACKFILLING}
    coming = {one.base for one in indexes if one.state in _COMING}
    held |= {one.index for one in indexes if one.base in coming and one.index in has_tasks}
    soon = {one.base for one in indexes if one.state in _COMING and not one.blockers}
    return held | {relation for relation, base in unread.items() if base in soon}


def version_to_read(indexes: Collection[IndexStanding], base: RelationId) -> Version | None:
    """The version of a base that its indexes are filled from, if any is.

    The newest of theirs: for an index a newer version is as good, since what changed between the two is in its level 0
    as well. So indexes that began at different times share a scan.
    """
    versions = [
        one.read_version
        for one in indexes
        if one.base == base and one.state is Permission.BACKFILLING and one.read_version is not None
    ]
    return max(versions, default=None)


def version_to_keep(indexes: Collection[IndexStanding], base: RelationId) -> Version | None:
    """The oldest version of a base that a worker may still read for its indexes: a chunk may have begun with it."""
    filled = [one for one in indexes if one.base == base and one.state is Permission.BACKFILLING]
    return min((one.read_version for one in filled if one.read_version is not None), default=None)
