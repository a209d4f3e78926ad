"""Named places where a test may stop the process, raise, or wait.

Production code calls `hit("catalog.commit.applied")`; nothing happens unless the environment variable
`EBLA_FAILPOINTS` names it, as in `catalog.commit.applied=exit` or `write.files_written=exit@3` (the third time).
`exit` is `os._exit(77)`, `kill` is SIGKILL: the nearest things to a power cut that a process can do to itself.
"""

from __future__ import annotations

import os
import signal
import threading

EXIT_CODE = 77

_counts: dict[str, int] = {}
_lock = threading.Lock()


def _configured() -> dict[str, tuple[str, int]]:
    plan: dict[str, tuple[str, int]] = {}
    for item in filter(None, os.environ.get("EBLA_FAILPOINTS", "").split(",")):
        name, _, action = item.partition("=")
        verb, _, nth = action.partition("@")
        plan[name.strip()] = (verb.strip(), int(nth or 1))
    return plan


_plan = _configured()


def hit(name: str) -> None:
    if not _plan or name not in _plan:
        return
    verb, nth = _plan[name]
    with _lock:
        _counts[name] = _counts.get(name, 0) + 1
        due = _counts[name] == nth
    if not due:
        return
    if verb == "exit":
        os._exit(EXIT_CODE)
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"failpoint {name}")
