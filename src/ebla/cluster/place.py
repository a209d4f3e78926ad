"""Which process is the node of a storage root, and where it serves: seen from outside, without what a node needs."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ebla.base.system_processes import is_there
from ebla.errors import NodeConflictError

FILE = "ebla-node.json"
"""In the storage root: which process is the node, and where it serves."""
STOP_S = 15.0
"""How long a node takes to stop at most."""
MORE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What `FILE` says."""

    name: str
    pid: int
    address: str
    started_at: float

    @classmethod
    def read(cls, root: Path) -> Place | None:
        try:
            return cls(**json.loads((root / FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def is_running(self) -> bool:
        """Whether its process is there, and is a node."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return is_there(self.pid) if not Path("/proc/self").exists() else False
        return b"ebla" in command and b"node" in command

    def write(self, root: Path) -> None:
        part = root / f".{FILE}-{os.getpid()}"
        part.write_text(json.dumps(asdict(self)))
        part.replace(root / FILE)


def status(root: Path) -> dict[str, object]:
    """Whether the node of a storage root runs on this machine, and whether it serves."""
    import httpx

    place = Place.read(root)
    if place is None or not place.is_running:
        return {"root": str(root), "state": "stopped", "name": None if place is None else place.name}
    ready, reason = False, None
    try:
        answer = httpx.get(f"{place.address}/health/ready", timeout=5.0, verify=False)  # the certificate of its own
        ready, reason = answer.status_code == httpx.codes.OK, answer.json().get("reason")
    except (httpx.HTTPError, ValueError) as error:
        reason = str(error)
    state = "ready" if ready else "unready"
    return {"root": str(root), "state": state, "reason": reason, **asdict(place)}


def stop(root: Path) -> dict[str, object]:
    """Ask the node of a storage root to stop, and wait until it has."""
    place = Place.read(root)
    if place is None or not place.is_running:
        return {"root": str(root), "state": "stopped", "pid": None}
    os.kill(place.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S + MORE_S
    while time.monotonic() < until:
        if not is_there(place.pid):
            return {"root": str(root), "state": "stopped", "pid": place.pid}
        time.sleep(0.05)
    raise NodeConflictError(f"node {place.name}: expected process {place.pid} to end in {STOP_S:.0f} s, found it")
