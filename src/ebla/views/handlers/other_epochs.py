"""Epochs that other processes have begun."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ebla.base.ids import RelationId
from ebla.base.settings import Settings
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import is_gone
from ebla.catalog.store import Catalog

LOOK_AGAIN_S = 0.02
"""How often an epoch looks whether those of other processes have ended."""


def wait_for_others(catalog: Catalog, holder: str, settings: Settings, views: Iterable[RelationId]) -> None:
    """Let other processes end the epochs that they have begun on these views: then there may be nothing to do.

    Not for long: a process that is slower than a lease is not waited for, and one that is gone not at all. Nor is
    one that builds a view: its chunks may take long, and the other views are not to wait for them.
    """
    ids = list(views)
    deadline = time.monotonic() + settings.leader_lease_s
    while time.monotonic() < deadline:
        with catalog.reading() as connection:
            others = tx.epochs_elsewhere(connection, ids, holder, catalog.clock())
        if all(map(is_gone, others)):
            return
        time.sleep(LOOK_AGAIN_S)
