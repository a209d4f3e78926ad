"""Epochs in the background of an embedded process.

Level-triggered: a write wakes the handler, but what it does follows from the catalog. It runs only where Spark runs
already: a process that writes without Spark leaves the epochs to those that have it. Epochs are strictly sequential.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ebla.errors import ConflictError, EblaError
from ebla.tables.context import Context
from ebla.views import maintain

log = logging.getLogger("ebla.handler")

BACKOFF_S_MAX = 30.0


class Handler:
    def __init__(self, context: Context, lock: threading.RLock, on_epoch: Callable[[str], None]) -> None:
        self._context = context
        self._lock = lock
        self._on_epoch = on_epoch
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        if not self._context.settings.auto_refresh or not self._context.has_spark:
            return
        with self._changed:
            self._woken = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ebla-handler", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _loop(self) -> None:
        pause_s = self._context.settings.epoch_period_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._woken or self._stopping)
                # Gather what comes within one period into one epoch.
                self._changed.wait_for(lambda: self._stopping, pause_s)
                if self._stopping:
                    return
                self._woken = False
            pause_s = self._epoch(pause_s)

    def _epoch(self, pause_s: float) -> float:
        """One epoch of all views; how long to wait before the next."""
        period_s = self._context.settings.epoch_period_s
        try:
            with self._lock:
                done = maintain.refresh_all(self._context)
        except ConflictError:
            self._again()  # another process's epoch came first
            return period_s
        except EblaError as error:
            log.warning("epoch failed reason=%s", error)
        except Exception:
            if not self._stopping:
                log.exception("epoch failed")
        else:
            for one in done:
                if one.plan not in ("nothing to do", "unchanged"):
                    log.info("view=%s epoch=%s version=%d +%d -%d", one.view, one.plan, one.applied_version,
                             one.gained, one.lost)  # fmt: skip
                    self._on_epoch(one.view)
            return period_s
        self._again()
        return min(BACKOFF_S_MAX, max(period_s, 0.1) * 2 if pause_s <= period_s else pause_s * 2)

    def _again(self) -> None:
        with self._changed:
            self._woken = True

    def stop(self) -> None:
        """Finish the epoch that is running, begin no other."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
