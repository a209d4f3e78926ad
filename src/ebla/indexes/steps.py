"""Which step the indexes of one base take next: decided from values, without reading anything.

Removals come first, since a name may be waited for. Then indexes that are at the beginning catch up with those that
are about to be filled, so that one scan feeds them all. Those that are filled become readable one by one: one that
fails does not hold up another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebla.build.states import Permission, back, forward
from ebla.ids import RelationId, TabletId, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One index of the base, as the catalog has it."""

    index: RelationId
    state: Permission
    since: Version
    left: frozenset[TabletId] = frozenset()
    """Tablets of the base that are not read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Behind a barrier (no transaction is open that began before `since`) these indexes take their next state."""

    indexes: tuple[RelationId, ...]
    to: Permission
    since: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Read these tablets of the base once, for all of these indexes that have not read them."""

    indexes: tuple[RelationId, ...]
    tablets: tuple[TabletId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """All of it is there: check it, and let it be read."""

    index: RelationId


Step = Advance | Fill | Finish

_ORDER = (
    Permission.REMOVING_DELETES,
    Permission.REMOVING_WRITES,
    Permission.DELETE_ONLY,
    Permission.WRITE_AND_DELETE,
)


def next_step(indexes: Sequence[Standing], *, tablets_max: int) -> Step | None:
    """The next step, or `None` where all are readable, or wait to be asked for."""
    for state in _ORDER:
        here = [one for one in indexes if one.state is state]
        to = forward(state) or back(state)
        if here and to is not None:
            return Advance(indexes=tuple(one.index for one in here), to=to, since=max(one.since for one in here))
    filling = [one for one in indexes if one.state is Permission.BACKFILLING]
    unread = sorted({tablet for one in filling for tablet in one.left})
    # What is complete need not wait for what is not.
    for one in filling:
        if not one.left:
            return Finish(index=one.index)
    if not unread:
        return None
    tablets = tuple(unread[:tablets_max])
    return Fill(indexes=tuple(one.index for one in filling if one.left & set(tablets)), tablets=tablets)
