"""Epochs on request, each at its turn.

Within a process a handler's epochs are strictly sequential (a lock of the handler), and a view is worked on by one
thread at a time (a lock of the view). A chunk of a refresh after a dictionary's change holds only its view: the
handler's epochs leave that view out meanwhile, and those that read it, and come to it between this chunk and the next.
Between processes, a lease says which one runs a handler's epochs and refreshes in the background
(`ebla.catalog.leadership`), and an epoch waits for one of another process that has begun on a view of its own. The
commit decides: it requires the position that the epoch started from, and the one that loses tries again.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ebla.base.failpoint import hit
from ebla.catalog import reads
from ebla.errors import ConflictError, UnknownNameError
from ebla.model.handlers import DICTIONARY, Handler, behind_busy, tuning
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.tables.context import Context
from ebla.views.epoch import maintain
from ebla.views.epoch.apply import apply_epoch
from ebla.views.epoch.attempt import Epoch, Target, ViewInputs
from ebla.views.epoch.growth import Piece
from ebla.views.handlers import dictionary, dictionary_views
from ebla.views.handlers.other_epochs import wait_for_others
from ebla.views.handlers.owned_views import (
    chosen_views,
    dictionaries_of,
    held_versions,
    relations_of,
    views_with_handlers,
    with_their_inputs,
    without_rows,
)
from ebla.views.handlers.refreshes import Refreshes, RefreshResult

HANDLER = "handler/"
"""What the names begin with of the lease of a handler, and of the service that runs its epochs."""
ATTEMPTS = 5
"""How often work is begun again, at least, that another process was faster with."""
LOOK_S = 0.5
"""How often a refresh that waits is looked at: its rate may have been altered."""


class Locks:
    """A lock for every name that is asked for."""

    def __init__(self) -> None:
        self._all = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def of(self, name: str) -> threading.Lock:
        with self._all:
            return self._locks.setdefault(name, threading.Lock())

    @contextlib.contextmanager
    def holding(self, names: Collection[str]) -> Iterator[None]:
        """Hold the locks of all names, taken in one order by all threads, so that none wait in a circle."""
        with contextlib.ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self.of(name))
            yield

    @contextlib.contextmanager
    def holding_free(self, names: Collection[str]) -> Iterator[set[str]]:
        """Hold the locks that no other thread holds, and give their names."""
        taken = {name for name in sorted(names) if self.of(name).acquire(blocking=False)}
        try:
            yield taken
        finally:
            for name in taken:
                self.of(name).release()


class Epochs:
    """Every way to bring views up to date. `on_epoch` is called with each epoch that ended."""

    def __init__(self, context: Context, on_epoch: Callable[[Epoch], None] = lambda done: None) -> None:
        self._context = context
        self._on_epoch = on_epoch
        self._handlers = Locks()
        self._views = Locks()
        self._left_out: set[str] = set()
        """Views that an epoch left out because a chunk was at work on them."""
        self._left_out_lock = threading.Lock()
        self._refreshes = Refreshes(context, self._views.of, self._refreshed)
        self.stopping = threading.Event()
        """Set when this process ends: nothing that waits goes on."""

    # ---- ordinary epochs --------------------------------------------------------------------------------

    def of_handler(self, name: str) -> list[Epoch]:
        """One epoch of a handler's views, to one base version; dictionaries stay at their versions."""
        with self._handlers.of(name.lower()):
            with self._context.catalog.reading() as connection:
                mine = relations_of(connection, name)
                built = mine.keys() - {r.name.lower() for r in mine.values() if r.id in reads.built_online(connection)}
            with self._views.holding_free(mine) as free:
                wait_for_others(
                    self._context.catalog, self._context.holder, self._context.settings, [mine[n].id for n in built]
                )
                with self._left_out_lock:
                    self._left_out |= mine.keys() - free
                    self._left_out -= free
                # Only now: what is read before a view's lock is held may be old.
                with self._context.catalog.reading() as connection:
                    views = views_with_handlers(connection)
                    busy = (mine.keys() - free) | without_rows(views, mine)
                    waiting = behind_busy({n: views[n][0].inputs for n in mine if n in views}, busy)
                    newest = reads.current_version(connection)
                    targets = {
                        n: Target(stream=newest, batch=held_versions(connection, *views[n], newest))
                        for n in mine.keys() - waiting
                        if n in views
                    }
                    loaded = with_their_inputs(connection, views, targets)
                hit("handler.before_epoch")
                return self._refresh(targets, views, loaded=loaded)

    # ---- on request -------------------------------------------------------------------------------------

    def flush(self, *names: str) -> list[Epoch]:
        """Bring these views and those that they read, or all, up to everything committed before, dictionaries too.

        Views of a handler that should not run come only by name.
        """
        return self._now(names, lambda view: True)

    def build(self, piece: Piece) -> list[Epoch]:
        """Build a view in one piece, or a chunk of one that grows, behind epochs of the views that it reads."""
        with self._context.catalog.reading() as connection:
            views = views_with_handlers(connection)
        if piece.view not in views:
            raise UnknownNameError(f"view {piece.view}: expected to be there, found dropped")
        if not piece.stretches or any(n in views for n in views[piece.view][0].inputs):
            return self._now([piece.view], lambda view: True, build=piece)
        with self._views.of(piece.view):
            with self._context.catalog.reading() as connection:
                newest = reads.current_version(connection)
            return self._refresh({piece.view: Target(stream=newest)}, views, retry=[piece.view], build=piece)

    def repair(self, name: str) -> list[Epoch]:
        """Bring a view up to date, then compute it anew at the same versions."""
        self.flush(name)
        with self._views.of(name.lower()):
            with self._context.catalog.reading() as connection:
                view = definition.load(connection, name)
            position = view.position
            if position is None:
                return []
            done = apply_epoch(self._context, name, Target.of_position(position), repair=True)
        self._on_epoch(done)
        return [done]

    def catch_up(self, name: str) -> list[Epoch]:
        """Bring what is covered of a view that is being built to the newest version."""
        with self._views.of(name.lower()):
            with self._context.catalog.reading() as connection:
                views = views_with_handlers(connection)
                newest = reads.current_version(connection)
            if name.lower() not in views:
                return []
            done = self._refresh({name.lower(): Target(stream=newest)}, views, at_once=True)
        for one in done:
            if one.waits and one.error is not None:
                raise one.error
        return done

    def _now(self, names: Sequence[str], wanted: Callable[[View], bool], *, build: Piece | None = None) -> list[Epoch]:
        asked = {n.lower() for n in names}
        deadline = time.monotonic() + self._context.settings.leader_lease_s
        for attempt in itertools.count(1):
            with self._context.catalog.reading() as connection:
                chosen = chosen_views(connection, asked)
            try:
                handlers = {handler.name.lower() for _, handler in chosen.values()}
                with self._views.holding(chosen), self._handlers.holding(handlers):
                    wait_for_others(
                        self._context.catalog,
                        self._context.holder,
                        self._context.settings,
                        [view for view, _ in chosen.values() if view is not None],
                    )
                    return self._to_newest(chosen, wanted, asked, build)
            except ConflictError:
                if attempt >= ATTEMPTS and time.monotonic() > deadline:
                    raise
            finally:
                self._on_free()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _to_newest(
        self, chosen: Collection[str], wanted: Callable[[View], bool], asked: set[str], build: Piece | None
    ) -> list[Epoch]:
        with self._context.catalog.reading() as connection:
            views = views_with_handlers(connection)
            newest = reads.current_version(connection)
            batch = dictionaries_of(connection, views)
            loaded = with_their_inputs(connection, views, [n for n in chosen if n in views])
        built = None if build is None else build.view
        # A view among the inputs is read as its own epoch, which comes first, leaves it.
        targets = {
            n: Target(stream=newest, batch={i: newest for i in batch.get(n, ()) if i not in views})
            for n in chosen
            if n in views and wanted(views[n][0]) and (n == built or not views[n][0].building)
        }
        return self._refresh(targets, views, retry=asked, build=build, at_once=True, loaded=loaded)

    def _refresh(
        self,
        targets: Mapping[str, Target],
        views: Mapping[str, tuple[View, Handler]],
        retry: Collection[str] = (),
        build: Piece | None = None,
        *,
        at_once: bool = False,
        loaded: Sequence[ViewInputs] | None = None,
    ) -> list[Epoch]:
        """Epochs in order; handlers that set their own limits get them. `loaded`: what was read behind their locks."""
        if not targets:
            return []
        limits = {n: tuning(views[n][1], self._context.settings).batch_rows_max for n in views if n in targets}
        done: list[Epoch] = []
        if len(set(limits.values())) == 1:
            context = self._context.tuned(batch_rows_max=next(iter(limits.values())))
            done = maintain.refresh(context, targets, loaded=loaded, retry=retry, build=build, at_once=at_once)
        else:
            for name, limit in limits.items():  # `views` are in the order of their inputs
                context = self._context.tuned(batch_rows_max=limit)
                done += maintain.refresh(context, {name: targets[name]}, retry=retry, build=build, at_once=at_once)
        for one in done:
            self._on_epoch(one)
        return done

    # ---- dictionaries -----------------------------------------------------------------------------------

    def gather(self) -> int:
        """Log what dictionaries changed. Another process may do the same: its commit counts, and ours starts over."""
        with self._handlers.of(DICTIONARY):
            for attempt in range(ATTEMPTS):
                try:
                    return dictionary.gather(self._context)
                except ConflictError:
                    if attempt == ATTEMPTS - 1:
                        raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def of_dictionaries(self, handlers: Collection[str]) -> list[Epoch]:
        """Gather, then refresh the views of these handlers that are concerned, to the end and at their pace.

        What is paused is left where it is.
        """
        self.gather()
        done: list[Epoch] = []
        failed: dict[str, Exception] = {}
        while not self.stopping.is_set():
            step = self.refresh(handlers, handlers, without=failed)
            done += step.done
            for name, error in step.failed.items():
                if not isinstance(error, ConflictError):
                    failed[name] = error
            if step.wait_s is None or self.stopping.wait(min(step.wait_s, LOOK_S)):
                break
        for error in failed.values():
            raise error
        return done

    def refresh(
        self, begin: Collection[str], go_on: Collection[str], *, without: Collection[str] = ()
    ) -> RefreshResult:
        """One chunk of each refresh that is due: of those that begin with gathered changes, and those that go on."""
        with self._handlers.of(DICTIONARY):
            step = self._refreshes.advance(begin, go_on, without=without, stopping=self.stopping.is_set)
        for finished in step.done:
            self._on_epoch(finished)
        return step

    def refreshing(self, handlers: Collection[str]) -> set[str]:
        """The handlers that have a view whose refresh goes on."""
        with self._context.catalog.reading() as connection:
            found = dictionary_views.running(connection, handlers)
        return {one.handler.name for one in found if not one.refresh.paused or one.again}

    def _on_free(self) -> None:
        """Epochs that left views out have something to do, whether or not there was a commit."""
        self._context.services.wake_group(HANDLER)

    def _refreshed(self, view: View, handler: Handler) -> None:
        """A view is free behind a chunk: an epoch that had to leave it out comes before the next one."""
        self._on_free()
        name = view.relation.name.lower()
        with self._left_out_lock:
            left_out = name in self._left_out
            self._left_out.discard(name)
        if left_out and not self.stopping.is_set():
            self.of_handler(handler.name)
