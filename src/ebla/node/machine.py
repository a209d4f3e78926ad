"""The machine of a process: its load, and how full the disks of the process's nodes are."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable

from ebla.base.ids import NodeId
from ebla.catalog.processes import Disk, Machine
from ebla.storage.roots import Roots


def look(roots: Roots, nodes: Iterable[NodeId]) -> Machine:
    """The machine as it is now; `nodes` live with this process. It takes microseconds.

    A root in an object store has no disk, and one whose disk is gone says nothing.
    """
    disks: dict[NodeId, Disk] = {}
    for node in nodes:
        root = roots.own(node)
        if root is not None and root.local:
            with contextlib.suppress(OSError):
                found = shutil.disk_usage(root.base)
                disks[node] = Disk(free=found.free, total=found.total)
    return Machine(load_1m=_load(), cores=os.cpu_count(), disks=disks)


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # the system does not tell
        return None
