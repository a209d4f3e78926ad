"""One epoch of a view with a refresh: every part at its own versions of the dictionaries, all of them one commit.

A chunk of the refresh is such an epoch, in which streams stay where they are (`ebla.model.refresh`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ebla.base.failpoint import hit
from ebla.catalog import reads
from ebla.errors import ConflictError, UsageError
from ebla.model import changes as c
from ebla.model.plans import Plan
from ebla.model.refresh import Refresh, RefreshOutcome, ahead, moved
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.storage.rows import TooLarge
from ebla.views.epoch.attempt import Attempt, Epoch
from ebla.views.epoch.ranges import Cut, Ranges
from ebla.views.epoch.rows import together


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshStep:
    """What a refresh does next: come from a position about `rows_max` rows further."""

    up_to: int | None
    """Where it is."""
    to: Mapping[str, int]
    """The versions of dictionaries that it goes to."""
    rows_max: int


class RefreshEpoch:
    """One attempt. `chunk`: the refresh goes on with it."""

    def __init__(self, attempt: Attempt, chunk: RefreshStep | None) -> None:
        view = attempt.view
        assert view.position is not None
        assert view.position.refresh is not None
        self._attempt = attempt
        self._position = view.position
        self._refresh = view.position.refresh
        self._chunk = chunk
        planned = None if chunk is None else (chunk.up_to, dict(chunk.to))
        stands = (self._refresh.up_to, dict(self._refresh.to))
        if planned is not None and planned != stands:
            raise ConflictError(
                f"refresh of {view.relation.name}: expected it at {planned}, found it at {stands}; "
                "another process came first: read again"
            )
        self._ranges = Ranges(view, attempt.relations, self._refresh.by, attempt.round)
        with attempt.context.catalog.reading() as connection:
            newest = reads.current_version(connection)
        self._target = attempt.target.versions(attempt.relations, newest)

    def run(self) -> Epoch:
        read, cut = self._position.read, None
        if self._chunk is not None:
            cut = self._ranges.cut(ahead(read, self._refresh, self._target), self._refresh, self._chunk.rows_max)
        todo = moved(read, self._refresh, self._target, None if cut is None else cut.up_to)
        attempt = self._attempt
        if cut is None or cut.exact:
            try:
                rows = together(attempt.view, [self._ranges.followed(move) for move in todo.moves])
            except TooLarge:
                pass
            else:
                attempt.put(rows)
                return self._commit(todo, cut, rows.gained.num_rows, rows.doomed.num_rows, rows.compared)
        frames = [frame for move in todo.moves if (frame := self._ranges.frame(move)) is not None]
        count = sum(attempt.sink.put_more(frame) for frame in frames)
        return self._commit(todo, cut, count - attempt.tombstones, attempt.tombstones, count)

    def _commit(self, todo: RefreshOutcome, cut: Cut | None, gained: int, lost: int, rows: int) -> Epoch:
        attempt, name, until = self._attempt, self._attempt.view.relation.name, self._attempt.target.stream
        if cut is None:
            epoch = attempt.epoch(until, Plan.INCREMENTAL, None, gained, lost)
            position = epoch.position(self._position, todo.read, todo.refresh)
            decision = attempt.decision(position, f"epoch of {name} to version {until}: incremental, +{gained} -{lost}")
            hit("epoch.before_commit")
            attempt.commit(decision)
            hit("epoch.committed")
            return epoch
        reason = ", ".join(f"{n} to version {v}" for n, v in sorted(self._refresh.to.items()))
        refresh = None if todo.refresh is None else self._refresh.advanced(cut.up_to, rows, cut.values)
        epoch = attempt.epoch(until, Plan.REFRESH, reason, gained, lost)
        position = epoch.position(self._position, todo.read, refresh).still_failed(self._position)
        chunk = "the last chunk" if refresh is None else f"a chunk up to {cut.up_to}"
        decision = attempt.decision(position, f"refresh of {name}: {chunk}, +{gained} -{lost}")
        hit("refresh.before_commit")
        attempt.commit(decision)
        hit("refresh.committed")
        return epoch


# ---- statements about a refresh -------------------------------------------------------------------------


def alteration(view: View, given: Mapping[str, int | None], on_hold: bool | None) -> c.Decision:
    """`ALTER … SET (…) | PAUSE | RESUME`. NULL returns to what the handler says."""
    assert view.position is not None
    assert view.position.refresh is not None
    if "concurrency" in given:
        raise UsageError(
            f"view {view.relation.name}: expected rows_per_minute or chunk_rows, found concurrency; "
            "a refresh does one chunk after the other"
        )
    refresh = view.position.refresh
    refresh = replace(
        refresh,
        rows_per_minute=given.get("rows_per_minute", refresh.rows_per_minute),
        chunk_rows=given.get("chunk_rows", refresh.chunk_rows),
    )
    if on_hold is not None:
        refresh = replace(refresh, on_hold=on_hold)
    if on_hold is False:
        rate = None if refresh.rows_per_minute == 0 else refresh.rows_per_minute
        refresh = replace(refresh, cancelled=False, rows_per_minute=rate)
    said = ", ".join(f"{k} = {'NULL' if v is None else v}" for k, v in given.items())
    return _altered(view, refresh, said or ("pause" if on_hold else "resume"))


def cancellation(view: View) -> c.Decision:
    """`CANCEL BUILD`: the refresh stays where it is, until a dictionary changes again or a user resumes it."""
    assert view.position is not None
    assert view.position.refresh is not None
    return _altered(view, replace(view.position.refresh, cancelled=True, on_hold=False), "cancel")


def _altered(view: View, refresh: Refresh, said: str) -> c.Decision:
    assert view.position is not None
    return c.Decision(
        # Not a commit of the view: its rows stay as they are.
        reason=f"refresh of {view.relation.name}: {said}",
        requires=(definition.unmoved(view),),
        updates=definition.moved(view, replace(view.position, refresh=refresh)),
    )
