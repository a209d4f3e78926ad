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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import RelationId, Version
from ebla.catalog import reads
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import is_gone
from ebla.errors import ConflictError, UnknownNameError
from ebla.model.handlers import DICTIONARY, Handler, behind_busy, held, owners, tuning, with_inputs
from ebla.relations import handlers as stored
from ebla.relations import views as definition
from ebla.relations.readers import among
from ebla.relations.views import View
from ebla.tables.context import Context
from ebla.views.epoch import maintain
from ebla.views.epoch.apply import ViewInputs, apply_epoch
from ebla.views.epoch.attempt import Epoch, Target
from ebla.views.epoch.growth import Piece
from ebla.views.handlers import dictionary
from ebla.views.handlers.refreshes import Refreshes, RefreshResult

HANDLER = "handler/"
"""What the names begin with of the lease of a handler, and of the service that runs its epochs."""
ATTEMPTS = 5
"""How often work is begun again, at least, that another process was faster with."""
LOOK_AGAIN_S = 0.02
"""How often an epoch looks whether those of other processes have ended."""
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
        """All of them, in one order for all threads, so that none wait in a circle."""
        with contextlib.ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self.of(name))
            yield

    @contextlib.contextmanager
    def holding_free(self, names: Collection[str]) -> Iterator[set[str]]:
        """Those that no thread holds."""
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
                owned = stored.owned(connection)
                mine = {r.name.lower(): r for r, h in owned if h.name.lower() == name.lower()}
                built = mine.keys() - {r.name.lower() for r in mine.values() if r.id in reads.built_online(connection)}
            with self._views.holding_free(mine) as free:
                self._wait_for_others(mine[n].id for n in built)
                with self._left_out_lock:
                    self._left_out |= mine.keys() - free
                    self._left_out -= free
                # Only now: what is read before a view's lock is held may be old.
                with self._context.catalog.reading() as connection:
                    views = _views(connection)
                    busy = (mine.keys() - free) | _without_rows(views, mine)
                    waiting = behind_busy({n: views[n][0].inputs for n in mine if n in views}, busy)
                    newest = reads.current_version(connection)
                    targets = {
                        n: Target(stream=newest, batch=_held(connection, *views[n], newest))
                        for n in mine.keys() - waiting
                        if n in views
                    }
                    loaded = _with_inputs(connection, views, targets)
                hit("handler.before_epoch")
                return self._refresh(targets, views, loaded=loaded)

    def _wait_for_others(self, views: Iterable[RelationId]) -> None:
        """Let other processes end the epochs that they have begun on these views: then there may be nothing to do.

        Not for long: a process that is slower than a lease is not waited for, and one that is gone not at all. Nor is
        one that builds a view: its chunks may take long, and the other views are not to wait for them.
        """
        catalog, holder = self._context.catalog, self._context.holder
        ids = list(views)
        deadline = time.monotonic() + self._context.settings.leader_lease_s
        while time.monotonic() < deadline:
            with catalog.reading() as connection:
                others = tx.epochs_elsewhere(connection, ids, holder, catalog.clock())
            if all(map(is_gone, others)):
                return
            time.sleep(LOOK_AGAIN_S)

    # ---- on request -------------------------------------------------------------------------------------

    def flush(self, *names: str) -> list[Epoch]:
        """Bring these views and those that they read, or all, up to everything committed before, dictionaries too.

        Views of a handler that should not run come only by name.
        """
        return self._now(names, lambda view: True)

    def build(self, piece: Piece) -> list[Epoch]:
        """Build a view in one piece, or a chunk of one that grows, behind epochs of the views that it reads."""
        with self._context.catalog.reading() as connection:
            views = _views(connection)
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
            target = Target(stream=position.applied_version, batch={n: Version(v) for n, v in position.read.items()})
            done = apply_epoch(self._context, name, target, repair=True)
        self._on_epoch(done)
        return [done]

    def catch_up(self, name: str) -> list[Epoch]:
        """Bring what is covered of a view that is being built to the newest version."""
        with self._views.of(name.lower()):
            with self._context.catalog.reading() as connection:
                views = _views(connection)
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
            chosen = self._chosen(asked)
            try:
                handlers = {handler.name.lower() for _, handler in chosen.values()}
                with self._views.holding(chosen), self._handlers.holding(handlers):
                    self._wait_for_others(view for view, _ in chosen.values() if view is not None)
                    return self._to_newest(chosen, wanted, asked, build)
            except ConflictError:
                if attempt >= ATTEMPTS and time.monotonic() > deadline:
                    raise
            finally:
                self._on_free()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _chosen(self, asked: set[str]) -> dict[str, tuple[RelationId | None, Handler]]:
        """The views that a request is about: which one is waited for (`None`: it is being built), and its handler."""
        with self._context.catalog.reading() as connection:
            owned = {relation.name.lower(): (relation, handler) for relation, handler in stored.owned(connection)}
            inputs = {n: definition.inputs_of_relation(relation) for n, (relation, _) in owned.items()}
            wanted = with_inputs(inputs, asked or inputs)
            off = {n for n in wanted if n not in asked and not owned[n][1].should_run}
            views = definition.all_views(connection) if off else []
            left_out = off & {view.relation.name.lower() for view in views if _built(view)}
            online = reads.built_online(connection)
        return {
            n: (None if owned[n][0].id in online else owned[n][0].id, owned[n][1]) for n in wanted if n not in left_out
        }

    def _to_newest(
        self, chosen: Collection[str], wanted: Callable[[View], bool], asked: set[str], build: Piece | None
    ) -> list[Epoch]:
        with self._context.catalog.reading() as connection:
            views = _views(connection)
            newest = reads.current_version(connection)
            batch = {v.relation.name.lower(): inputs for v, _, inputs in among(connection, views.values())}
            loaded = _with_inputs(connection, views, [n for n in chosen if n in views])
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
        """Those of some handlers that have a view whose refresh goes on."""
        with self._context.catalog.reading() as connection:
            found = dictionary.running(connection, handlers)
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


def _views(connection: Connection) -> dict[str, tuple[View, Handler]]:
    """Every view with its handler, by name in lower case, each behind the views that it reads."""
    views = definition.all_views(connection)
    handler_of = owners([v.relation.id for v in views], stored.handlers(connection))
    return {v.relation.name.lower(): (v, handler_of[v.relation.id]) for v in views}


def _with_inputs(
    connection: Connection, views: Mapping[str, tuple[View, Handler]], names: Collection[str]
) -> list[ViewInputs]:
    """Some views with their inputs, in the order of `views`."""
    chosen = [view for name, (view, _) in views.items() if name in names]
    return [(view, {n: reads.relation(connection, n) for n in view.inputs}) for view in chosen]


def _built(view: View) -> bool:
    return view.position is not None and view.position.built


def _without_rows(views: Mapping[str, tuple[View, Handler]], mine: Collection[str]) -> set[str]:
    """Views that nothing can be computed from: not built, and not about to be in an epoch of `mine`."""
    return {n for n, (v, _) in views.items() if not _built(v) and (n not in mine or v.position is not None)}


def _held(connection: Connection, view: View, handler: Handler, newest: Version) -> dict[str, Version]:
    if not handler.batch:
        return {}
    ids = {n: reads.relation(connection, n).id for n in view.inputs}
    mine = {n: i for n, i in ids.items() if i in handler.batch}
    return held(dictionary.batch_inputs(connection, view, mine, dictionary.Position()), newest)
