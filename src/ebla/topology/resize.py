"""When the tablets of a relation are split or become one.

Theory of operation. The average bytes of a relation's tablets decide. Above the target each tablet is split; well below
half of it, each two become one. A resize is decided, then replicas cut their runs for it and report its number, then it
is finalized: one commit that gives the relation its next tablet map, while none of its tablets is in transition.

Until then it can be revoked. It is, when it would be undone: when the opposite would be decided after it. Between the
two bounds lies a gap, so that a relation whose size goes a little up and down is left alone: it is split above the
target, which leaves half of the target, and tablets become one below three eighths of it, which leaves three quarters.

The number of tablets that a relation was created with, or that was asked for since, is the least that it has. So small
relations keep their tablets, and what was asked for is not undone. A request goes to its number by doubling or halving
and is not decided by sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ebla.base.ids import RelationId
from ebla.model.tablets import TABLETS_MAX
from ebla.model.topology import Layout, Resize, ResizeType, Topology

MERGE_BELOW = 0.375
"""Part of the target under which tablets become one: three quarters of half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """Store another decision: to split, to merge, or, with `none`, that the last one is revoked or fulfilled."""

    relation: RelationId
    resize: Resize
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalize:
    """Give the relation its next tablet map."""

    relation: RelationId
    tablets: int
    number: int
    """Of the resize that is finalized."""


def next_step(topology: Topology, target: int) -> Decide | Finalize | None:
    """What to do next for any relation; finalization first, since tablets begin no transitions until then."""
    moving = {relation for relation, _ in topology.transitions}
    for layout in topology.layouts.values():
        if layout.resize.type is not ResizeType.NONE and layout.relation not in moving and layout.is_cut:
            after = tablets_after(layout.tablets, layout.resize.type)
            return Finalize(relation=layout.relation, tablets=after, number=layout.resize.number)
    for layout in topology.layouts.values():
        found = decide(layout, target)
        if found is not None:
            return found
    return None


def tablets_after(tablets: int, resize: ResizeType) -> int:
    match resize:
        case ResizeType.SPLIT:
            return tablets * 2
        case ResizeType.MERGE:
            return tablets // 2
        case ResizeType.NONE:
            return tablets


def decide(layout: Layout, target: int) -> Decide | None:
    """Another decision for a relation, or none if the last one stands."""
    now = layout.resize
    if now.request is not None:
        wanted, why = _towards(layout.tablets, now.tablets), f"{now.tablets} tablets were asked for"
    else:
        wanted, why = _by_size(layout, target)
    if wanted is now.type and not (wanted is ResizeType.NONE and now.request is not None):
        return None
    least = now.tablets or layout.tablets
    if wanted is ResizeType.NONE:
        revoked = replace(now, type=wanted, tablets=least, request=None)
        return Decide(relation=layout.relation, resize=revoked, reason=why)
    new = replace(now, type=wanted, number=now.number + 1, tablets=least)
    return Decide(relation=layout.relation, resize=new, reason=why)


def _towards(tablets: int, asked: int) -> ResizeType:
    if tablets == asked:
        return ResizeType.NONE
    return ResizeType.SPLIT if tablets < asked else ResizeType.MERGE


def _by_size(layout: Layout, target: int) -> tuple[ResizeType, str]:
    average = sum(layout.bytes) / layout.tablets
    why = f"tablets of {average:,.0f} bytes on average, with a target of {target:,}"
    splits = average > target and layout.tablets < TABLETS_MAX
    merges = average < MERGE_BELOW * target and layout.tablets > (layout.resize.tablets or layout.tablets)
    match layout.resize.type:
        case ResizeType.SPLIT if average / 2 >= MERGE_BELOW * target or layout.tablets * 2 <= layout.resize.tablets:
            return ResizeType.SPLIT, why
        case ResizeType.MERGE if average * 2 <= target:
            return ResizeType.MERGE, why
    if splits:
        return ResizeType.SPLIT, why
    return (ResizeType.MERGE if merges else ResizeType.NONE), why


def ask(layout: Layout, tablets: int, request: int, target: int) -> Resize | str:
    """What a request for a number of tablets makes of a relation's resize, or why it is refused."""
    if tablets < 1 or tablets > TABLETS_MAX or tablets & (tablets - 1):
        return f"expected a power of two from 1 to {TABLETS_MAX} tablets, found {tablets}"
    total = sum(layout.bytes)
    if tablets < layout.tablets and total / tablets > target:
        return (
            f"expected tablets of {target:,} bytes at most on average, found {total:,} bytes for {tablets} tablets, "
            f"which would be split again; ask for {_enough(total, target)} or more, or raise tablet_bytes_target"
        )
    return replace(layout.resize, type=ResizeType.NONE, tablets=tablets, request=request)


def _enough(total: int, target: int) -> int:
    """The fewest tablets that the bytes fit in."""
    tablets = 1
    while tablets < TABLETS_MAX and total > tablets * target:
        tablets *= 2
    return tablets
