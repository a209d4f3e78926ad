"""One epoch of a view with a refresh: every part at its own versions of the dictionaries, all of them one commit.

A chunk of the refresh is such an epoch, in which streams stay where they are (`ebla.model.refresh`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from ebla.base.failpoint import hit
from ebla.catalog import reads
from ebla.errors import ConflictError, DuplicateKeyError, SqlError, UsageError
from ebla.model import changes as c
from ebla.model.refresh import Moved, Refresh, moved
from ebla.model.relation import Relation
from ebla.relations import views as definition
from ebla.relations.views import View
from ebla.storage import runs as rf
from ebla.storage.rows import TooWide
from ebla.tables import batch as b
from ebla.tables.writes import Work
from ebla.views.epoch.inputs import Round
from ebla.views.epoch.ranges import Cut, Ranges, ahead
from ebla.views.epoch.run import Epoch, Target

REFRESH = "refresh"
"""The plan of an epoch that is a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What a refresh does next: come from a position about `rows_max` rows further."""

    up_to: int | None
    """Where it is."""
    to: Mapping[str, int]
    """The versions of dictionaries that it goes to."""
    rows_max: int


class RefreshEpoch:
    """One attempt. `chunk`: the refresh goes on with it."""

    def __init__(
        self,
        view: View,
        relations: Mapping[str, Relation],
        target: Target,
        work: Work,
        round_: Round,
        started: float,
        chunk: Chunk | None,
    ) -> None:
        assert view.position is not None
        assert view.position.refresh is not None
        self._context = round_.context
        self._view = view
        self._position = view.position
        self._refresh = view.position.refresh
        self._work = work
        self._started = started
        self._chunk = chunk
        self._until = target.stream
        planned = None if chunk is None else (chunk.up_to, dict(chunk.to))
        stands = (self._refresh.up_to, dict(self._refresh.to))
        if planned is not None and planned != stands:
            raise ConflictError(
                f"refresh of {view.relation.name}: expected it at {planned}, found it at {stands}; "
                "another process came first: read again"
            )
        self._ranges = Ranges(view, relations, self._refresh.by, round_)
        with self._context.catalog.reading() as connection:
            newest = reads.current_version(connection)
        self._target = target.versions(relations, newest)

    def run(self) -> Epoch:
        read, cut = self._position.read, None
        if self._chunk is not None:
            cut = self._ranges.cut(ahead(read, self._refresh, self._target), self._refresh, self._chunk.rows_max)
        todo = moved(read, self._refresh, self._target, None if cut is None else cut.up_to)
        if cut is None or cut.exact:
            try:
                return self._followed(todo, cut)
            except TooWide:
                pass
        rows = sum(self._ranges.written(part, self._work) for part in todo.parts)
        gone = sum(run.tombstones for run in self._work.runs)
        return self._commit(todo, cut, rows - gone, gone, rows)

    def _followed(self, todo: Moved, cut: Cut | None) -> Epoch:
        found = [self._ranges.followed(part) for part in todo.parts]
        if not found:
            return self._commit(todo, cut, 0, 0, 0)
        gained, doomed = (
            pa.concat_tables(tables) for tables in zip(*((f.gained, f.doomed) for f in found), strict=True)
        )
        if gained.num_rows or doomed.num_rows:
            relation = self._view.relation
            physical = [col.physical for col in relation.columns]
            up = rf.align(gained.rename_columns(physical), relation.columns)
            down = rf.align(doomed.rename_columns(physical), relation.columns)
            kinds = pa.chunked_array([pa.array([b.UPSERT] * up.num_rows + [b.DELETE] * down.num_rows, pa.string())])
            self._work.put(b.ArrowBatch(table=pa.concat_tables([up, down]), kinds=kinds, ordered=False))
        return self._commit(todo, cut, gained.num_rows, doomed.num_rows, sum(f.rows for f in found))

    def _commit(self, todo: Moved, cut: Cut | None, gained: int, lost: int, rows: int) -> Epoch:
        view, relation, work = self._view, self._view.relation, self._work
        plan, reason = "incremental", None
        refresh = todo.refresh
        if cut is not None:
            plan = REFRESH
            reason = ", ".join(f"{n} to version {v}" for n, v in sorted(self._refresh.to.items()))
            refresh = None if refresh is None else self._refresh.advanced(cut.up_to, rows, cut.values)
        seconds = round(time.perf_counter() - self._started, 4)
        position = definition.advanced(
            self._position,
            applied_version=self._until,
            read={n: int(v) for n, v in todo.read.items()},
            plan=plan,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
            refresh=refresh,
        )
        if cut is not None:
            position = position.still_failed(self._position)
        try:
            work.write_indexes()
        except DuplicateKeyError as error:
            raise SqlError(str(error)) from error  # of the view's rows, like an expression that fails
        updates: list[c.Update] = []
        if work.runs:
            updates.append(c.AddRuns(runs=tuple(work.runs), level1_if_empty=work.bulk))
        updates += work.index_updates()
        updates += definition.moved(view, position)
        updates.append(c.EndTransaction(transaction=work.transaction.id))
        if cut is None:
            hit("epoch.before_commit")
        else:
            hit("refresh.before_commit")
        work.commit_decision(
            c.Decision(
                reason=f"{self._said(cut, todo)}, +{gained} -{lost}",
                relation=relation.id,
                transaction=work.transaction.id,
                requires=(*work.requirements(), c.ProgressIs(name=view.progress_name, value=view.stored)),
                updates=tuple(updates),
            )
        )
        if cut is None:
            hit("epoch.committed")
        else:
            hit("refresh.committed")
        return Epoch(
            view=relation.name,
            applied_version=self._until,
            plan=plan,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
        )

    def _said(self, cut: Cut | None, todo: Moved) -> str:
        """What the commit is, for the history."""
        name = self._view.relation.name
        if cut is None:
            return f"epoch of {name} to version {self._until}: incremental"
        return f"refresh of {name}: {'the last chunk' if todo.refresh is None else f'a chunk up to {cut.up_to}'}"


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
    """`CANCEL BUILD`: the refresh stays where it is, until a dictionary changes again or somebody asks for it."""
    assert view.position is not None
    assert view.position.refresh is not None
    return _altered(view, replace(view.position.refresh, cancelled=True, on_hold=False), "cancel")


def _altered(view: View, refresh: Refresh, said: str) -> c.Decision:
    assert view.position is not None
    return c.Decision(
        # Not a commit of the view: its rows stay as they are.
        reason=f"refresh of {view.relation.name}: {said}",
        requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
        updates=definition.moved(view, replace(view.position, refresh=refresh)),
    )
