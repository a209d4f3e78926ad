"""What the tablet maps of all relations add up to: bytes of nodes, replicas of shards, and which maps need a look.

Between two steps of the topology the maps seldom change: a transition goes through its stages, a node says what it has
seen. So the sums of the last maps are kept. Of other maps those are counted that are not the same objects as before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from ebla.base.ids import NodeId, RelationId
from ebla.model.tasks import Replica
from ebla.model.topology import Layout

HOST = itemgetter(0)

Layouts = Mapping[RelationId, Layout]


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The sums of some maps, without transitions."""

    layouts: Layouts
    bytes: Mapping[NodeId, int]
    replicas: Counter[Replica]
    odd: frozenset[RelationId]
    """The relations of which a tablet has more or fewer replicas than it should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """The relations of which two replicas of a tablet are in one rack."""

    layouts: Layouts
    racks: Mapping[NodeId, int]
    relations: frozenset[RelationId]


class _Kept:
    """The last of each. Two threads that count at once count the same; one of the two stays."""

    census: Census | None = None
    crowding: Crowding | None = None


def of(layouts: Layouts) -> Census:
    kept = _Kept.census
    if kept is None or kept.layouts is not layouts:
        kept = _Kept.census = _count(layouts, kept)
    return kept


def crowded(layouts: Layouts, racks: Mapping[NodeId, int]) -> frozenset[RelationId]:
    """The relations of which two replicas of a tablet are in one rack; `racks`: the number of each node's."""
    kept = _Kept.crowding
    if kept is not None and kept.layouts is layouts and kept.racks == racks:
        return kept.relations
    before = kept if kept is not None and kept.racks == racks else None
    gone, new = _difference({} if before is None else before.layouts, layouts)
    stay = frozenset() if before is None else before.relations.difference(one.relation for one in gone)
    found = stay.union(one.relation for one in new if _is_crowded(one, racks))
    _Kept.crowding = Crowding(layouts=layouts, racks=dict(racks), relations=found)
    return found


def _is_crowded(layout: Layout, racks: Mapping[NodeId, int]) -> bool:
    rack_of = racks.get
    return any(len(set(map(rack_of, map(HOST, replicas)))) < len(replicas) for replicas in layout.replicas)


def _difference(before: Layouts, after: Layouts) -> tuple[list[Layout], list[Layout]]:
    """The maps that are gone, and those that are new; a map that has changed is both."""
    gone = [one for relation, one in before.items() if after.get(relation) is not one]
    new = [one for relation, one in after.items() if before.get(relation) is not one]
    return gone, new


def _count(layouts: Layouts, before: Census | None) -> Census:
    """The sums of maps: those of the last ones, with what has changed since, where most have not."""
    gone, new = _difference({} if before is None else before.layouts, layouts)
    if before is None or len(gone) > len(layouts) // 2:
        before = Census(layouts={}, bytes={}, replicas=Counter(), odd=frozenset())
        gone, new = [], list(layouts.values())
    held, replicas = defaultdict(int, before.bytes), before.replicas.copy()
    for layout in new:
        replicas.update(chain.from_iterable(layout.replicas))
        for size, of_tablet in zip(layout.bytes, layout.replicas, strict=True):
            for host, _ in of_tablet:  # the innermost of 100,000 tablets: no call in it
                held[host] += size or 1
    for layout in gone:
        replicas.subtract(chain.from_iterable(layout.replicas))
        for size, of_tablet in zip(layout.bytes, layout.replicas, strict=True):
            for host, _ in of_tablet:
                held[host] -= size or 1
    odd = before.odd.difference(one.relation for one in gone)
    odd = odd.union(one.relation for one in new if set(map(len, one.replicas)) - {one.replication})
    return Census(layouts=layouts, bytes=held, replicas=replicas, odd=odd)
