"""One attempt of one epoch: what it is given, how it writes rows, and the commit that moves rows and position."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.base.ids import Version
from ebla.errors import DuplicateKeyError, SqlError
from ebla.model import changes as c
from ebla.model.plans import Plan
from ebla.model.refresh import Refresh
from ebla.model.relation import Kind, Relation
from ebla.relations import views as definition
from ebla.relations.views import Position, View
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.tables import batch as b
from ebla.tables.commit import Commit
from ebla.tables.read_access import ReadAccess
from ebla.tables.sink import Sink
from ebla.views.epoch.round import Round
from ebla.views.epoch.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ViewInputs = tuple[View, Mapping[str, Relation]]
"""A view and its inputs, as the round read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The versions that an epoch brings a view's inputs to."""

    stream: Version
    batch: Mapping[str, Version] = field(default_factory=dict)
    """Inputs (names in lower case) that are read at a version of their own."""

    @classmethod
    def of_position(cls, position: Position) -> Target:
        """The versions at which a view stands."""
        return cls(stream=position.applied_version, batch={n: Version(v) for n, v in position.read.items()})

    def versions(self, relations: Mapping[str, Relation], newest: Version) -> dict[str, Version]:
        """Of all inputs. A view among them is read as it is now: its epoch came first."""
        return {n: self.batch.get(n, self.stream if r.kind is Kind.TABLE else newest) for n, r in relations.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What an epoch did."""

    view: str
    applied_version: Version
    plan: Plan
    reason: str | None = None
    gained: int = 0
    lost: int = 0
    seconds: float = 0.0
    error: Exception | None = field(default=None, compare=False)
    """What kept it from being done: a row (the plan is `failed`), or something that may pass (`waiting`)."""

    @property
    def stopped(self) -> bool:
        """Whether a row or the text of the query is to blame."""
        return self.plan is Plan.FAILED

    @property
    def waits(self) -> bool:
        """Whether it is tried again after a pause."""
        return self.plan is Plan.WAITING

    @property
    def idle(self) -> bool:
        """Whether it found nothing to read."""
        return self.plan is Plan.NOTHING

    @classmethod
    def without_rows(cls, view: View, plan: Plan = Plan.NOTHING, error: Exception | None = None) -> Epoch:
        """An epoch that left the view where it was: there was nothing to do, or an error."""
        stands = Version(0) if view.position is None else view.position.applied_version
        reason = None if error is None else str(error) or type(error).__name__
        return cls(view=view.relation.name, applied_version=stands, plan=plan, reason=reason, error=error)

    def position(self, before: Position | None, read: Mapping[str, int], refresh: Refresh | None = None) -> Position:
        """Where the view stands when the epoch is committed."""
        return definition.advanced(
            before,
            applied_version=self.applied_version,
            read=read,
            plan=self.plan,
            reason=self.reason,
            gained=self.gained,
            lost=self.lost,
            seconds=self.seconds,
            refresh=refresh,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The view and its inputs as they were found, where they are brought to, and the transaction."""

    view: View
    relations: Mapping[str, Relation]
    target: Target
    sink: Sink
    round: Round
    """Shared with the views that are refreshed together."""
    started: float
    """When the epoch began, by the performance counter."""

    @property
    def context(self) -> ReadAccess:
        return self.round.context

    # ---- rows -------------------------------------------------------------------------------------------

    def put(self, rows: Rows) -> None:
        """Write rows and tombstones that are on the driver."""
        if rows.is_empty:
            return
        relation = self.view.relation
        physical = {col.name: col.physical for col in relation.columns}
        up, down = (
            rf.align(table.rename_columns([physical[n] for n in table.schema.names]), relation.columns)
            for table in (rows.gained, rows.doomed)
        )
        kinds = pa.chunked_array([pa.array([b.UPSERT] * up.num_rows + [b.DELETE] * down.num_rows, pa.string())])
        self.sink.put(b.ArrowBatch(table=pa.concat_tables([up, down]), kinds=kinds, ordered=False))

    def put_new(self, frame: DataFrame) -> int:
        """Write rows that Spark computes, whose keys no other row of the view has; how many."""
        fitted = swrite.fitted(frame, self.view.relation, hidden=True)
        self.sink.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
        return self.sink.rows

    @property
    def tombstones(self) -> int:
        return sum(run.tombstones for run in self.sink.runs)

    # ---- the end ----------------------------------------------------------------------------------------

    def epoch(self, until: Version, plan: Plan, reason: str | None, gained: int, lost: int) -> Epoch:
        return Epoch(
            view=self.view.relation.name,
            applied_version=until,
            plan=plan,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=round(time.perf_counter() - self.started, 4),
        )

    def decision(
        self,
        position: Position,
        reason: str,
        *,
        emptied: bool = False,
        requires: Sequence[c.Requirement] = (),
        updates: Sequence[c.Update] = (),
        is_chunk: bool = False,
    ) -> c.Decision:
        """Write entries of indexes; the commit of all that was written, with the position. `emptied`: no old row stays.

        It requires that the view stands where the epoch found it: of two epochs that overlap one is refused.
        """
        view, commit = self.view, Commit(self.sink, emptied=emptied)
        try:
            commit.follow()
        except DuplicateKeyError as error:
            raise SqlError(str(error)) from error  # of the view's rows, like an expression that fails
        return commit.decision(
            reason,
            requires=(definition.unmoved(view), *requires),
            updates=(*updates, *definition.moved(view, position)),
            work=c.WorkKind.CHUNK if is_chunk else None,
        )

    def commit(self, decision: c.Decision) -> None:
        self.sink.transaction.commit(decision)
