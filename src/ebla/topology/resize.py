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

Tablets that become one must lie on the same nodes first. While balancing is off they are not brought there for their
sizes, so such a merge is not decided, and one that was is revoked: it would wait for as long as balancing is off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ebla.base.ids import RelationId
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.scopes import TOPOLOGY, of_relation
from ebla.model.tablets import TABLETS_MAX
from ebla.model.topology import (
    Layout,
    Outcome,
    Request,
    RequestKind,
    RequestState,
    Resize,
    ResizeType,
    Topology,
)

MERGE_BELOW = 0.375
"""Part of the target under which tablets become one: three quarters of half of it."""


RESIZE = RequestKind.RESIZE


# ---- the coordinator's step -----------------------------------------------------------------------------


def step(topology: Topology, target: int) -> c.Decision | None:
    """The next decision on any resize, or on a request for one; `None`: nothing is to be done before something
    changes."""
    for request in topology.requests:
        if request.kind is RESIZE and (found := _answer(topology, request, target)) is not None:
            return found
    match next_step(topology, target):
        case Decide(relation=relation, resize=resize, reason=reason):
            name = topology.layouts[relation].name
            return _decision(f"{name}: {resize.type} ({reason})", t.SetResize(relation=relation, resize=resize))
        case Finalize(relation=relation, tablets=tablets, number=number):
            name = topology.layouts[relation].name
            resized = c.SetTabletMap(relation=relation, tablets=tablets)
            return _decision(f"{name}: {tablets} tablets, by resize {number}", resized)
    return None


def _answer(topology: Topology, request: Request, target: int) -> c.Decision | None:
    """The next step of a request for a number of tablets."""
    layout = topology.layouts.get(request.relation) if request.relation is not None else None
    tablets = int(str(request.parameters["tablets"]))
    if layout is None:
        gone = f"expected relation {request.relation} to be there, found it dropped"
        return _decision("end a resize", _failure(request, Outcome.WENT_BACK, gone))
    if request.state is RequestState.QUEUED:
        asked = ask(layout, tablets, request.id, target)
        if isinstance(asked, str):
            return _decision(f"refuse a resize of {layout.name}", _failure(request, Outcome.REFUSED, asked))
        begun = (t.BeginRequest(request=request.id), t.SetResize(relation=layout.relation, resize=asked))
        return _decision(f"{layout.name}: {tablets} tablets were asked for", *begun)
    if layout.resize.request != request.id:
        other = f"{layout.name}: expected {tablets} tablets to be wanted, found another request in its place"
        return _decision("end a resize", _failure(request, Outcome.WENT_BACK, other))
    if layout.tablets != tablets:
        return None
    settled = replace(layout.resize, type=ResizeType.NONE, request=None)
    result = f"{layout.name} has {tablets} tablets"
    done = t.EndRequest(request=request.id, state=RequestState.DONE, result=result)
    return _decision(result, t.SetResize(relation=layout.relation, resize=settled), done)


def _failure(request: Request, code: Outcome, message: str) -> t.EndRequest:
    return t.EndRequest(request=request.id, state=RequestState.FAILED, code=code, message=message)


def _decision(reason: str, *updates: c.Update) -> c.Decision:
    """Guarded by the relations that it resizes: a resize of one that is dropped meanwhile would never end."""
    resized = {of_relation(one.relation) for one in updates if isinstance(one, t.SetResize | c.SetTabletMap)}
    return c.Decision(reason=reason, updates=updates, guards=frozenset({TOPOLOGY, *resized}))


# ---- what is decided ------------------------------------------------------------------------------------


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
        if (
            layout.resize.type is not ResizeType.NONE
            and layout.relation not in moving
            and layout.is_cut(topology.alive)
        ):
            after = tablets_after(layout.tablets, layout.resize.type)
            return Finalize(relation=layout.relation, tablets=after, number=layout.resize.number)
    for layout in topology.layouts.values():
        found = decide(layout, target, balancing=topology.balancing)
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


def decide(layout: Layout, target: int, *, balancing: bool = True) -> Decide | None:
    """Another decision for a relation, or none if the last one stands."""
    now = layout.resize
    if now.request is not None:
        wanted, why = _towards(layout.tablets, now.tablets), f"{now.tablets} tablets were asked for"
    else:
        wanted, why = _by_size(layout, target)
        if wanted is ResizeType.MERGE and not balancing and not layout.is_paired:
            wanted, why = ResizeType.NONE, "balancing is off: tablets that become one are not brought together"
    if wanted is now.type:
        return None  # a request that has come to its number ends with its own answer
    least = now.tablets or layout.tablets
    if wanted is ResizeType.NONE:
        revoked = replace(now, type=wanted, tablets=least)
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


def refusal(topology: Topology, relation: RelationId, name: str, tablets: int, target: int) -> str | None:
    """Why a number of tablets cannot be asked for; `None`: it can."""
    layout = topology.layouts.get(relation)
    if layout is None:
        return f"{name}: expected a table or a view, found an index, whose tablets are those of its base"
    before = next((one for one in topology.requests if one.kind is RESIZE and one.relation == relation), None)
    if before is not None:
        return f"{name}: expected no resize of it that has not ended, found request {before.id}; wait for it"
    asked = ask(layout, tablets, 0, target)
    return f"{name}: {asked}" if isinstance(asked, str) else None


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
