"""Many building tasks, and a coordinator in the middle of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from ebla.base.ids import NodeId, RelationId, TaskId, Term, Version
from ebla.build.coordinator import Coordinator, WorkerAnswer
from ebla.build.state import State
from ebla.model import changes as c
from ebla.model.tablets import token_range
from ebla.model.tasks import Build, Replica, Task, TaskKind


class Load:
    """Ten bases of ten views each, on 20 nodes with 8 shards. Each decision hears from every shard."""

    def __init__(self, tasks: int, *, bases: int = 10, views: int = 10, hosts: int = 20, shards: int = 8) -> None:
        made: list[Task] = []
        builds = {}
        per_view = tasks // (bases * views)
        for base in range(bases):
            for view in range(views):
                relation = RelationId(1000 + base * views + view)
                builds[relation] = Build(view=relation, base=RelationId(base))
                for tablet in range(per_view):
                    replica = Replica(NodeId(f"h{tablet % hosts}"), tablet // hosts % shards)
                    made.append(
                        Task(
                            id=TaskId(f"t{len(made)}"),
                            kind=TaskKind.BUILD_RANGE,
                            base=RelationId(base),
                            view=relation,
                            tokens=token_range(tablet, 1024),
                            replica=replica,
                            created=Version(1 + base),
                        )
                    )
        begun = time.perf_counter()
        self.state = State.of(made, builds=builds, alive=[NodeId(f"h{n}") for n in range(hosts)])
        self.load_s = time.perf_counter() - begun
        self.coordinator = Coordinator("leader", Term(1))
        self.now_us = 0
        self.answers: list[WorkerAnswer] = []

    def decide_s(self, clock: Callable[[], float] = time.perf_counter) -> float:
        """Seconds of one decision; what it decides is done, except that no task leaves the state's hundred thousand."""
        self.now_us += 50_000
        begun = clock()
        decision = self.coordinator.step(self.state, self.answers, self.now_us)
        took = clock() - begun
        self.answers = [WorkerAnswer(replica=call.replica, finished=frozenset(call.ids[:5])) for call in decision.calls]
        for update in decision.updates:
            if isinstance(update, c.SetProcessingBase):
                self.state.processing = update.base
        return took
