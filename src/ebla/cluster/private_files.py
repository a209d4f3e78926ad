"""Files with secrets, which other users of the machine must not read or change."""

from __future__ import annotations

import stat
from pathlib import Path

OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
BUT_READ_BY_GROUP = OF_OTHERS & ~stat.S_IRGRP


def exposed(file: Path, why: str) -> str | None:
    """What is wrong with the rights of a file; `None` for one that is not there.

    The group may read what belongs to root: so a service gets a key that it cannot change.
    """
    try:
        found = file.stat()
    except OSError:
        return None
    mode = stat.S_IMODE(found.st_mode)
    if not mode & (OF_OTHERS if found.st_uid else BUT_READ_BY_GROUP):
        return None
    return (
        f"expected a file that no other user reads, as {why}, found {file} of mode {mode:o}; chmod 600 {file}, "
        "or say insecure"
    )
