"""What keeps a build from going on, for the statements that wait for it in this process.

Theory of operation. An error that may pass is noted in the catalog, where users see it, and the build is tried again. A
statement that waits for the build fails with the error itself, when the error will not pass or has not passed after
several tries.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from ebla.base.ids import RelationId
from ebla.catalog.store import Catalog
from ebla.errors import EblaError
from ebla.tables import troubles

log = logging.getLogger("ebla.build")

PATIENCE = 4
"""After this many failures in a row, the statements that wait for a build fail. The build goes on being tried."""


def note(catalog: Catalog, holder: str, relation: RelationId, error: Exception) -> bool:
    """Note in the catalog what keeps a build from going on; whether the statements that wait for it fail."""
    try:
        trouble = troubles.note_build(catalog, holder, relation, error)
    except EblaError as other:
        log.warning("relation=%d expected to note a trouble, found reason=%s", relation, other)
        return True
    return trouble is None or trouble.final or trouble.attempts >= PATIENCE


class Failures:
    """Errors of builds since a statement began to wait for them. Safe to use from several threads."""

    def __init__(self, noted: Callable[[], None]) -> None:
        self._noted = noted
        """Called when there is one more."""
        self._lock = threading.Lock()
        self._errors: dict[RelationId, list[Exception]] = {}

    def note(self, relation: RelationId, error: Exception) -> None:
        with self._lock:
            self._errors.setdefault(relation, []).append(error)
        self._noted()

    def of(self, relations: Collection[RelationId]) -> dict[RelationId, list[Exception]]:
        with self._lock:
            return {one: self._errors[one] for one in relations if one in self._errors}

    def forget(self, relations: Collection[RelationId]) -> None:
        with self._lock:
            for one in relations:
                self._errors.pop(one, None)
