"""One epoch of a view that is being built in chunks: what is covered is brought to one version, the rest is left alone.

The segments that are older than the epoch's version stand at different versions. For each of these versions the epoch
finds the keys of the base that changes since then affect, keeps those that lie in a segment of that version, and
computes their rows anew. Versions between which no input was written are one. Where a change is too large to be
followed that way, or its history is gone, everything that is covered is computed anew and compared by key on Spark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.algebra.driving import Driving
from ebla.algebra.plan import of_scope
from ebla.base.failpoint import hit
from ebla.base.ids import TabletId, Version
from ebla.catalog import building, reads
from ebla.model import changes as c
from ebla.model import segments as sg
from ebla.model.chunks import Part, position_of
from ebla.model.relation import Relation
from ebla.model.segments import Segments
from ebla.relations import views as definition
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import View
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage.rows import TooWide, difference, without_keys
from ebla.tables import batch as b
from ebla.tables import scans
from ebla.tables.chunk_scan import within
from ebla.tables.value_lookup import rows_by
from ebla.tables.writes import Work
from ebla.values import token, types
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.frames import with_tombstones
from ebla.views.epoch.inputs import Inputs, Round
from ebla.views.epoch.narrow import affected, narrowed_to
from ebla.views.epoch.region import ranges_of
from ebla.views.epoch.run import Epoch

if TYPE_CHECKING:
    from sqlalchemy import Connection

Covered = Mapping[TabletId, Segments[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is covered of a view, and whether an epoch has anything to do with it."""

    covered: Covered
    complete: bool
    """Whether every tablet is covered to its end."""
    since: tuple[Version, ...]
    """The versions at which segments stand, each as the newest of those that no write of an input tells apart."""
    level: bool
    """Whether all of them stand where epochs have brought the view."""
    written: bool
    """Whether an input was written behind one of them."""

    @property
    def due(self) -> bool:
        """Changes are applied as they come; without any, versions are brought together once everything is covered."""
        return bool(self.since) and (self.written or (self.complete and not self.level))


def standing(
    connection: Connection, view: View, base: Relation, relations: Mapping[str, Relation], until: Version
) -> Standing:
    covered = building.segments(connection, view.relation.id)
    versions = sorted({s.since for segments in covered.values() for s in segments})
    since: list[Version] = []
    for version in versions:
        if since and not written_between(connection, relations, since[-1], version):
            since.pop()
        since.append(version)
    complete = all(sg.is_covered(covered.get(TabletId(t), ())) for t in range(base.tablets))
    applied = None if view.reached is None else view.reached.applied_version
    return Standing(
        covered=covered,
        complete=complete,
        since=tuple(since),
        level=versions == [applied],
        written=bool(since) and written_between(connection, relations, since[0], until),
    )


def written_between(connection: Connection, relations: Mapping[str, Relation], since: Version, until: Version) -> bool:
    return any(
        first is not None and first <= until
        for first in (reads.first_write_after(connection, r.id, since) for r in relations.values())
    )


class Covering:
    """One attempt of one epoch of a view that is being built."""

    def __init__(
        self,
        view: View,
        driven: Driving,
        relations: Mapping[str, Relation],
        stands: Standing,
        until: Version,
        work: Work,
        round_: Round,
        started: float,
    ) -> None:
        self._context = round_.context
        self._view = view
        self._driven = driven
        self._base = relations[driven.base]
        self._relations = relations
        self._stands = stands
        self._until = until
        self._work = work
        self._started = started
        shape, _ = shape_of(view, relations)
        assert shape is not None, "a view that is built in chunks is understood"
        self._shape = shape
        with self._context.catalog.reading() as connection:
            now = {n: reads.snapshot(connection, r, until) for n, r in relations.items()}
            self._mine = reads.snapshot(connection, view.relation)
        self._now = now
        self._round = round_

    def run(self) -> Epoch:
        older = [version for version in self._stands.since if version < self._until]
        try:
            gained, doomed = self._followed(older)
        except TooWide as reason:
            return self._anew(str(reason))
        if gained.num_rows or doomed.num_rows:
            self._put(gained, doomed)
        return self._commit(None, gained.num_rows, doomed.num_rows)

    def _inputs(self, since: Version | None) -> Inputs:
        return Inputs(
            round=self._round,
            relations=self._relations,
            before=dict.fromkeys(self._relations, since),
            now=self._now,
            used=used_columns(self._shape, self._relations),
            rows_max=self._context.settings.batch_rows_max,
        )

    # ---- changes that can be followed -------------------------------------------------------------------

    def _followed(self, older: Sequence[Version]) -> tuple[pa.Table, pa.Table]:
        """Rows that come, and rows that go."""
        relation = self._view.relation
        stored = [col.name for col in relation.columns]
        schema = pa.schema([pa.field(col.name, types.to_arrow(col.type)) for col in relation.columns])
        gained, doomed = [schema.empty_table()], [schema.empty_table()]
        before = Version(0)
        for since in older:
            found = self._of_version(before, since)
            before = since
            if found is None:
                continue
            new, values = found
            inputs = self._inputs(since)
            old = rows_by(self._context, self._mine, self._driven.scope, values, stored, most=inputs.read_max)
            came, went = difference(new, old.select(new.schema.names))
            gained.append(came.select(stored).cast(schema))
            doomed.append(without_keys(went, came, [k.name for k in relation.key]).select(stored).cast(schema))
        return pa.concat_tables(gained), pa.concat_tables(doomed)

    def _of_version(self, before: Version, since: Version) -> tuple[pa.Table, pa.Table] | None:
        """New rows of the keys that changed behind a version, in segments that stand at it; and those keys."""
        inputs = self._inputs(since)
        moved = inputs.moved()
        if not moved:
            return None
        plan = of_scope(self._shape, moved, self._driven.scope)
        if plan is None:
            raise TooWide("a change that cannot be followed to the base")
        values = self._inside(affected(plan, inputs, rows_max=inputs.rows_max), before, since)
        if values.num_rows == 0:
            return None
        bounds = narrowed_to(plan, values, inputs, rows_max=inputs.rows_max)
        return Evaluation(self._view, inputs).in_scope(bounds, whole=bool(plan.whole)), values

    def _inside(self, values: pa.Table, before: Version, since: Version) -> pa.Table:
        """Keys of the base that lie in a segment of these versions."""
        if values.num_rows == 0:
            return values
        names = values.schema.names
        keys = values.cast(
            pa.schema([pa.field(n, types.to_arrow(k.type)) for n, k in zip(names, self._base.key, strict=True)])
        )
        tokens = token.tokens(keys, names)
        tablets = token.tablets_of(tokens, self._base.tablets)
        kept = [
            self._stands_at(TabletId(int(tablet)), position_of(int(one)), before, since)
            for one, tablet in zip(tokens, tablets, strict=True)
        ]
        return keys.filter(pa.array(np.array(kept, dtype=bool)))

    def _stands_at(self, tablet: TabletId, position: str, before: Version, since: Version) -> bool:
        found = sg.covering(self._stands.covered.get(tablet, ()), position)
        return found is not None and before < found.since <= since

    def _put(self, gained: pa.Table, doomed: pa.Table) -> None:
        relation = self._view.relation
        physical = [col.physical for col in relation.columns]
        up = rf.align(gained.rename_columns(physical), relation.columns)
        down = rf.align(doomed.rename_columns(physical), relation.columns)
        kinds = pa.chunked_array([pa.array([b.UPSERT] * up.num_rows + [b.DELETE] * down.num_rows, pa.string())])
        self._work.put(b.ArrowBatch(table=pa.concat_tables([up, down]), kinds=kinds, ordered=False))

    # ---- everything that is covered ---------------------------------------------------------------------

    def _anew(self, reason: str) -> Epoch:
        """Compute all rows of the segments that are older, and write them over what is there."""
        ranges = ranges_of(self._base, self._older())
        relation, inputs = self._view.relation, self._inputs(None)
        base = scans.frame_of(self._context, self._now[self._driven.base])
        base = base.filter(within([k.name for k in self._base.key], ranges))
        found = Evaluation(self._view, inputs).frame({self._driven.leaf: base})
        stored = scans.frame_of(self._context, self._mine, hidden=True).filter(within(self._driven.scope, ranges))
        key = [k.name for k in relation.key]
        old = stored.select(*[sscan.quoted(n) for n in key])
        rows = self._work.put_more(with_tombstones(relation, old, key, found))
        gone = sum(run.tombstones for run in self._work.runs)
        return self._commit(reason, rows - gone, gone)

    def _older(self) -> list[Part]:
        parts = []
        for tablet, segments in self._stands.covered.items():
            after: str | None = None
            for segment in segments:
                if segment.since < self._until:
                    parts.append(Part(tablet=tablet, after=after, up_to=segment.up_to, rows=segment.rows))
                after = segment.up_to
        return parts

    # ---- the end ----------------------------------------------------------------------------------------

    def _commit(self, reason: str | None, gained: int, lost: int) -> Epoch:
        view, relation = self._view, self._view.relation
        seconds = round(time.perf_counter() - self._started, 4)
        position = definition.advanced(
            view.reached,
            applied_version=self._until,
            read={n: int(self._until) for n in self._relations},
            plan="build",
            reason=reason or "catching up",
            gained=gained,
            lost=lost,
            seconds=seconds,
        )
        requires: list[c.Requirement] = [
            *self._work.requirements(),
            c.ProgressIs(name=view.progress_name, value=view.stored),
        ]
        updates: list[c.Update] = [c.AddRuns(runs=tuple(self._work.runs))] if self._work.runs else []
        for tablet, seen in self._stands.covered.items():
            requires.append(c.SegmentsBegin(view=relation.id, tablet=tablet, segments=seen))
            after = sg.advance(seen, self._until)
            updates.append(c.ReplaceSegments(view=relation.id, tablet=tablet, seen=len(seen), segments=after))
        updates += definition.moved(view, position)
        updates.append(c.EndTransaction(transaction=self._work.transaction.id))
        hit("build.before_epoch_commit")
        self._work.commit_decision(
            c.Decision(
                reason=f"epoch of {relation.name}, being built, to version {self._until}: +{gained} -{lost}",
                relation=relation.id,
                transaction=self._work.transaction.id,
                requires=tuple(requires),
                updates=tuple(updates),
            )
        )
        hit("build.epoch_committed")
        return Epoch(
            view=relation.name,
            applied_version=self._until,
            plan="build",
            reason=reason or "catching up",
            gained=gained,
            lost=lost,
            seconds=seconds,
        )
