"""Views and indexes whose tasks are done are settled: brought to one version, and checked.

Theory of operation. Chunks of different versions are brought to one by an epoch; then a sample of the rows is compared
with the query, or an index with its base. Each relation has a service of its own for this, which works when the loop
finds that there is something to do and tells the loop when it has ended. What was checked is remembered by this process
alone: another leader checks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId
from ebla.base.services import Scheduler
from ebla.build import trouble
from ebla.build.state import State
from ebla.catalog import troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity
from ebla.errors import ConflictError, DuplicateKeyError, UnknownNameError

log = logging.getLogger("ebla.build")

POLL_S = 0.02
"""How soon the loop verifies a relation again after an epoch kept it from doing so."""


class Settler(Protocol):
    """What settling does to a relation."""

    def catch_up(self, relation: RelationId) -> None:
        """Bring all segments to one version."""
        ...

    def verify(self, relation: RelationId) -> bool:
        """Raise if the relation is not what it should be; False: it cannot be compared now."""
        ...


class Settlement:
    """The relations that one process settles."""

    def __init__(
        self,
        catalog: Catalog,
        services: Scheduler,
        holder: str,
        settler: Settler,
        ended: Callable[[], None],
        wrong: Callable[[RelationId, Exception], None],
    ) -> None:
        self.checked: set[RelationId] = set()
        self._catalog = catalog
        self._scheduler = services
        self._holder = holder
        self._settler = settler
        self._ended = ended
        self._wrong = wrong
        self._services: dict[RelationId, _Settle] = {}

    def begin_round(self) -> None:
        """Let relations whose step has ended begin again: the round reads its state after this, with their troubles."""
        for one in self._services.values():
            if one.ended:
                one.busy = one.ended = False

    def look(self, state: State, now_us: int) -> None:
        """Have those settled whose tasks are done."""
        for view in [v for v in self._services if v not in state.builds]:
            self._scheduler.drop(self._services.pop(view).name)
        for view in state.builds:
            if view in state.open_of or view in state.held or view not in state.spans:
                continue
            if state.retry_us.get(view, 0) > now_us:
                continue
            level = state.is_level(view)
            if not level or view in state.unchecked:
                self._begin(view, level=level)

    def _begin(self, view: RelationId, *, level: bool) -> None:
        one = self._services.get(view)
        if one is None:
            one = self._services[view] = _Settle(view, self._settle, self._ended)
            self._scheduler.add(one)
        if not one.busy:  # else the loop looks again when it has ended
            one.busy, one.level = True, level
            self._scheduler.wake(one.name)

    def forget(self) -> None:
        """Forget all: there is nothing to build."""
        self.checked.clear()
        while self._services:
            self._scheduler.drop(self._services.popitem()[1].name)

    def _settle(self, view: RelationId, level: bool) -> bool:
        """Whether it is settled, as far as this step goes; False: an epoch is in the way."""
        try:
            if level:
                hit("build.before_check")
                if not self._settler.verify(view):
                    return False
                self.checked.add(view)
            else:
                hit("build.before_catching_up")
                self._settler.catch_up(view)
            troubles.clear(self._catalog, view, Activity.BUILD)
        except (ConflictError, UnknownNameError):
            pass  # another epoch came first, or it was dropped: look again
        except Exception as error:
            self._unsettled(view, error)
        return True

    def _unsettled(self, view: RelationId, error: Exception) -> None:
        rows = isinstance(error, DuplicateKeyError)  # they are to blame, and nothing is wrong with the build
        log.log(logging.INFO if rows else logging.WARNING, "relation=%d cannot be settled reason=%s", view, error)
        log.debug("relation=%d", view, exc_info=error)
        if trouble.note(self._catalog, self._holder, view, error):
            self._wrong(view, error)


class _Settle:
    """The service that settles one relation."""

    wanted = True

    def __init__(self, view: RelationId, settle: Callable[[RelationId, bool], bool], ended: Callable[[], None]) -> None:
        self.name = f"settle/{view}"
        self.busy = False
        """Whether the step was asked for, and no round has begun since it ended."""
        self.ended = False
        self.level = False
        """Whether all segments are of one version, so that it can be checked."""
        self._view = view
        self._settle = settle
        self._ended = ended
        self._waits = False

    def step(self, now_s: float) -> float | None:
        self._waits = not self._waits and not self._settle(self._view, self.level)
        if self._waits:
            return now_s + POLL_S
        self.ended = True
        self._ended()
        return None

    def stop(self) -> None:
        """A relation that is not settled is settled by the next leader."""
