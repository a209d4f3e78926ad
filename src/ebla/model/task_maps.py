"""Building tasks under another tablet map.

How far a tablet is covered belongs to view and tokens, not to the task, so nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ebla.base.ids import NodeId, RelationId, TabletId, TaskId
from ebla.model.tablets import tablets_over, token_range
from ebla.model.tasks import Replica, Task, TaskKind

NewId = Callable[[Task, TabletId], TaskId]
"""The id of the task that takes the place of a task in a tablet."""


def in_map(tasks: Iterable[Task], placement: Sequence[Sequence[Replica]], new_id: NewId) -> list[Task]:
    """Tasks in a map of tablets that lie on these replicas. A tablet that was split has a task for each part; of
    several that have become one, the tasks of one view become one. A task stays on its node where the tablet does."""
    tablets = len(placement)
    found: dict[tuple[RelationId | None, TaskKind, TabletId], Task] = {}
    for task in tasks:
        for tablet in tablets_over(task.tokens, tablets):
            place = (task.view, task.kind, tablet)
            if place not in found:
                replica = _replica(task, placement[tablet])
                found[place] = task.again(new_id(task, tablet), tokens=token_range(tablet, tablets), replica=replica)
    return list(found.values())


def _replica(task: Task, replicas: Sequence[Replica]) -> Replica:
    """The one on the node that has the task, or else the preferred reader's."""
    on_node: dict[NodeId, Replica] = {replica.host: replica for replica in replicas}
    return on_node.get(task.replica.host, replicas[0] if replicas else task.replica)
