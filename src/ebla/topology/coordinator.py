"""What the topology does next: one step, decided from one state.

Theory of operation. The coordinator is a pure function: a `Topology` in, one decision out. The leader commits it under
its term, guarded by what it was made from (`ebla.topology.service`). Nothing is kept between two steps, so any leader
goes on where the last one ended, and a step that was lost is decided again.
"""

from __future__ import annotations

from ebla.base.settings import TABLET_BYTES
from ebla.model import changes as c
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import Topology
from ebla.model.topology_changes import PublishGenerations
from ebla.topology import requests, resize


def step(topology: Topology, tablet_bytes_target: int = TABLET_BYTES) -> c.Decision | None:
    """The next decision; `None`: nothing is to be done before something changes."""
    return requests.next_step(topology) or resize.step(topology, tablet_bytes_target) or _published(topology)


def _published(topology: Topology) -> c.Decision | None:
    """Generations of change streams are published when nothing else is to be done, and nothing waits for it."""
    if not topology.unpublished:
        return None
    reason = f"publish {len(topology.unpublished)} generations of change streams"
    return c.Decision(reason=reason, updates=(PublishGenerations(),), guards=frozenset({TOPOLOGY}))
