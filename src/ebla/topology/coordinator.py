"""What the topology does next: one step, decided from one state.

Theory of operation. The coordinator is a pure function: a `Topology` in, one decision out. The leader commits it under
its term, guarded by what it was made from (`ebla.topology.service`). Nothing is kept between two steps, so any leader
goes on where the last one ended, and a step that was lost is decided again.
"""

from __future__ import annotations

from ebla.base.settings import TABLET_BYTES
from ebla.model import changes as c
from ebla.model.topology import Topology
from ebla.topology import requests, resize


def step(topology: Topology, tablet_bytes_target: int = TABLET_BYTES) -> c.Decision | None:
    """The next decision; `None`: nothing is to be done before something changes."""
    return requests.next_step(topology) or resize.step(topology, tablet_bytes_target)
