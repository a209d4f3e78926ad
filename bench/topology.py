"""The decisions of the topology on model state: no data, no catalog. What is done with files is in `bench.moves`."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.measure import ROOT, Result, median, seconds
from ebla.base.ids import NodeId, RelationId, TabletId
from ebla.model.tasks import Replica
from ebla.model.topology import Layout, TransitionKind
from ebla.topology import coordinator
from ebla.topology.balancer import Limits, Move, plan

sys.path.insert(0, str(Path(ROOT).parent / "tests"))

from support.topologies import begun, bytes_of, layout, member, settle, topology

GIB = 2**30


def run(scale: float = 1.0) -> list[Result]:
    return [*deciding(), *balancing(scale)]


def deciding() -> list[Result]:
    """1,000 nodes and as many tables of 100 tablets with three copies, a tablet of each in transition.

    It is measured at one size: with fewer tables nodes would be empty, and the step would plan moves to them.
    """
    nodes, tables, tablets = 1000, 1000, 100
    members = [member(f"n{number}", rack=f"r{number % 10}", shards=8) for number in range(nodes)]
    layouts = [
        layout(
            [[f"n{(table * 7 + tablet * 3 + copy) % nodes}" for copy in range(3)] for tablet in range(tablets)],
            relation=table + 1,
            sizes=GIB,
        )
        for table in range(tables)
    ]
    moving = [
        begun(
            Move(
                tablet=(one.relation, TabletId(0)),
                kind=TransitionKind.MIGRATION,
                leaving=one.replicas[0][0],
                pending=Replica(NodeId(f"n{(one.relation * 11) % nodes}"), 0),
                reason="bench",
            )
        )
        for one in layouts
    ]
    state = topology(members, *layouts, transitions=moving)
    first = seconds(lambda: coordinator.step(state))
    took = median(lambda: coordinator.step(state), times=20, warm=2)
    changed = [replace(state, layouts=_with_a_change(state.layouts, layouts[n])) for n in range(20)]
    after = statistics.median(seconds(lambda s=one: coordinator.step(s)) for one in changed)  # type: ignore[misc]
    return [
        Result(
            work="a step of the coordinator: 1,000 nodes, 100,000 tablets, 1,000 transitions",
            figure=took * 1000,
            bar=100,
            unit="ms",
            detail="median of 20; nothing is due, so that everything is looked at",
        ),
        Result(
            work="the same when a tablet of one table has moved since the step before",
            figure=after * 1000,
            bar=100,
            unit="ms",
            detail=f"median of {len(changed)}; the first step of a new leader, once: {first * 1000:.0f} ms",
        ),
    ]


def _with_a_change(layouts: Mapping[RelationId, Layout], one: Layout) -> dict[RelationId, Layout]:
    """The maps of another moment: the last tablet of a table has another replica."""
    *same, last = one.replicas
    moved = (*same, (Replica(NodeId("n1"), 1), *last[1:]))
    return {**layouts, one.relation: replace(one, replicas=moved)}


def balancing(scale: float) -> list[Result]:
    """100 nodes in three racks with three copies of each tablet, of 3 to 6 GiB; the 101st node is empty."""
    nodes, tablets = 100, int(100_000 * scale)
    rolled = random.Random(1)
    members = [member(f"n{number}", rack=f"r{number % 3}", shards=8) for number in range(nodes + 1)]
    racks = [[one.id for one in members[rack:nodes:3]] for rack in range(3)]
    placed = [[(rack[tablet % len(rack)], tablet // nodes % 8) for rack in racks] for tablet in range(tablets)]
    sizes = [rolled.randint(3 * GIB, 6 * GIB) for _ in range(tablets)]
    state = topology(members, layout(placed, sizes=sizes))
    took = median(lambda: plan(state), times=5, warm=1)
    after, made = settle(state, Limits(streams_per_shard=tablets))
    held = bytes_of(after).values()
    mean = sum(held) / len(held)
    farthest = max(max(held) - mean, mean - min(held)) / mean
    return [
        Result(
            work="a plan of the balancer: 100 nodes, 100,000 tablets, one empty node added",
            figure=took,
            bar=2,
            unit="s",
            detail=f"median of 5; {len(plan(state).moves)} moves begin, {len(made)} until nothing is left to do",
        ),
        Result(
            work="the same after convergence: bytes of the node farthest from the mean",
            figure=farthest * 100,
            bar=5,
            unit="%",
            detail=f"{mean / GIB:,.0f} GiB per node",
        ),
    ]
