"""A warehouse from a backup: `ebla.restore("backups/shop", "./warehouse")`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ebla.base import settings
from ebla.catalog.store import is_postgres
from ebla.tables.backup import Backup
from ebla.tables.restore import restore as restored


def restore(
    place: str,
    url: str,
    *,
    roots: Mapping[str, str] | None = None,
    progress: Callable[[str, float], None] = lambda what, part: None,
) -> Backup:
    """Make a warehouse of the backup in a directory: in an empty directory, or with its catalog at an address.

    `roots` says where each node keeps its files. In a directory they lie below it by default; with an address there
    is no default.
    """
    url = os.fspath(url)
    where = url if is_postgres(url) else str(Path(url).absolute())
    return restored(os.fspath(place), where, roots or {}, mask=settings.load().file_mask, progress=progress)
