"""One attempt of one epoch: which way it takes, the rows it writes, and the commit that moves rows and position.

Small changes go through the driver: lookups by DuckDB, one Spark job for the view's own query on the rows that matter.
Large ones stay on Spark (`ebla.views.epoch.frames`). What cannot be followed, or costs more than it saves, recomputes
the view and replaces it in one commit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa

from ebla.algebra.driving import adding
from ebla.algebra.merge import Call, Merged, Role, merge
from ebla.algebra.plan import Difference, FullRefresh, Incremental, Merge, Term, by_scope, of_groups, plan
from ebla.algebra.shape import keys_of
from ebla.base.failpoint import hit
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.errors import DuplicateKeyError, SqlError, TypeMismatchError
from ebla.model import changes as c
from ebla.model.relation import HIDDEN_KEY, Kind, Relation, under_names
from ebla.relations import views as definition
from ebla.relations.shapes import shape_of, used_columns
from ebla.relations.views import View
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.storage import runs as rf
from ebla.storage.rows import TooWide, difference, distinct, numbered, stored_rows, without_keys
from ebla.tables import batch as b
from ebla.tables import scans
from ebla.tables.value_lookup import rows_by
from ebla.tables.writes import Work
from ebla.values.columns import from_plain, plain_rows
from ebla.views.epoch.cost import Estimate, Way, estimate
from ebla.views.epoch.culprit import culprit, culprit_anywhere
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.frames import Wide
from ebla.views.epoch.growth import Growth, OnePiece
from ebla.views.epoch.inputs import Inputs, Round, arrow_schema
from ebla.views.epoch.key_changes import told_by_key
from ebla.views.epoch.narrow import Bounds, bound, narrowed_to, sides
from ebla.views.epoch.sums import added

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_BUILD = "first build"
KEPT_ROWS_MAX = 50_000
"""A view of at most this many rows is refreshed by difference, so that what reads it sees only what changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The versions that an epoch brings a view's inputs to."""

    stream: Version
    batch: Mapping[str, Version] = field(default_factory=dict)
    """Inputs (names in lower case) that are read at a version of their own."""

    def versions(self, relations: Mapping[str, Relation], newest: Version) -> dict[str, Version]:
        """Of all inputs. A view among them is read as it is now: its epoch came first."""
        return {n: self.batch.get(n, self.stream if r.kind is Kind.TABLE else newest) for n, r in relations.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What an epoch did."""

    view: str
    applied_version: Version
    plan: str
    reason: str | None = None
    gained: int = 0
    lost: int = 0
    seconds: float = 0.0
    error: Exception | None = field(default=None, compare=False)
    """What kept it from being done: a row (the plan is `failed`), or something that may pass (`waiting`)."""


class Run:
    """One attempt of one epoch. `building`: what it builds of a view that is not built."""

    def __init__(
        self,
        view: View,
        relations: Mapping[str, Relation],
        target: Target,
        work: Work,
        round_: Round,
        started: float,
        building: OnePiece | Growth | None = None,
    ) -> None:
        self.context = round_.context
        self.view = view
        self.work = work
        self.started = started
        self.building = building
        self.growth = building if isinstance(building, Growth) else None
        self.stands = view.position
        """Where the rows stand that are there; `None`: there are none."""
        if building is not None:
            self.stands = view.reached if self.growth is not None and self.growth.begun else None
        read = {} if self.stands is None else {n: Version(v) for n, v in self.stands.read.items()}
        adds = self.growth is not None and bool(self.growth.parts) and self.stands is not None
        self.until = target.stream
        with self.context.catalog.reading() as connection:
            if adds:
                # Nothing but the base's rows of the chunk is new. What was read then is as it is at the target.
                assert self.stands is not None
                self.until = max(target.stream, self.stands.applied_version)
                versions = {n: max(target.stream, read[n]) for n in relations}
            else:
                versions = target.versions(relations, reads.current_version(connection))
            now = {n: round_.snapshot(connection, r, versions[n]) for n, r in relations.items()}
            self.mine = reads.snapshot(connection, view.relation)
            self.shape, self.blocked = shape_of(view, relations)
            self.inputs = Inputs(
                round=round_,
                relations=relations,
                before={n: versions[n] if adds else read.get(n) for n in relations},
                now=now,
                used=used_columns(self.shape, relations),
                rows_max=self.context.settings.batch_rows_max,
                region=None if self.growth is None else self.growth.region(),
            )
            self.inputs.read_ahead(connection)
        self.evaluation = Evaluation(view, self.inputs)

    def run(self) -> Epoch:
        if self.stands is None or not self.stands.built:
            return self._recompute(FIRST_BUILD, "build")
        try:
            written = {n: self.inputs.written(n) for n in self.inputs.relations}
        except TooWide as reason:
            return self._recompute(str(reason))
        if not any(written.values()):
            return self._nothing()
        sizes = {n: self.inputs.size(n) for n in self.inputs.relations}
        guess = estimate(written, sizes, rows_max=self.inputs.rows_max, view_rows=self.mine.rows_at_most)
        changed = [n for n, rows in written.items() if rows]
        if self.growth is not None and self.growth.parts and sum(written.values()) > self.inputs.rows_max:
            return self._chunk(changed, guess)
        if guess.way is Way.RECOMPUTE:
            return self._recompute(guess.reason)
        if guess.way is Way.NARROW:
            try:
                return self._narrow()
            except TooWide as reason:
                return self._wide(changed, str(reason))
        return self._wide(changed, guess.reason)

    def anew(self, reason: str) -> Epoch:
        """Compute the view as its query says, whatever its rows are."""
        return self._recompute(reason)

    # ---- small changes ----------------------------------------------------------------------------------

    def _narrow(self) -> Epoch:
        told = self._told_by_keys()
        if told is not None:
            return self._incremental(told)
        moved = self.inputs.moved()
        if not moved:
            return self._nothing()
        if self.shape is None:
            return self._recompute(self.blocked or "")
        made = plan(self.shape, moved, keys_of(self.inputs.relations), merges=self.view.roles is not None)
        match made:
            case FullRefresh(reason=reason):
                return self._recompute(reason)
            case Incremental():
                return self._incremental(made)
            case Difference(terms=terms):
                return self._difference(terms)
            case Merge(terms=terms):
                return self._merge(terms)
            case _:
                assert_never(made)

    def _told_by_keys(self) -> Incremental | None:
        """The plan, if it needs no more than keys of what changed in some input, and to read more would be dear.

        Only where the query is computed here: a change that turns out to be none must start no Spark job.
        """
        if self.shape is None or self.growth is not None or not self.evaluation.is_direct:
            return None
        written = [n for n in self.inputs.relations if self.inputs.written(n)]
        keys = keys_of(self.inputs.relations)
        made = plan(self.shape, written, keys, merges=self.view.roles is not None)
        if not isinstance(made, Incremental) or made.whole:
            return None
        told = [n for n in written if told_by_key(made, n, keys[n]) and self.inputs.tell_by_keys(n)]
        return made if told else None

    def _incremental(self, made: Incremental) -> Epoch:
        bounds = bound(made, self.inputs, rows_max=self.inputs.rows_max)
        if bounds.values.num_rows == 0:
            return self._nothing()
        return self._replace_scope(bounds, whole=bool(made.whole))

    def _replace_scope(self, bounds: Bounds, *, whole: bool) -> Epoch:
        with self._finding_culprits(bounds.leaves):
            new = self.evaluation.in_scope(bounds, whole=whole)
        relation = self.view.relation
        key = [k.name for k in relation.key]
        if not relation.keyless and set(key) == set(bounds.scope):
            # Each affected key has one row or none, so only those without one are looked for among the stored rows.
            named = bounds.values.rename_columns(list(bounds.scope)).select(key)
            gone = without_keys(named, new, key).rename_columns([f"c{i}" for i in range(len(key))])
            doomed = rows_by(self.context, self.mine, key, gone, key) if gone.num_rows else named.slice(0, 0)
            if new.num_rows == 0 and doomed.num_rows == 0:
                return self._nothing()
            return self._write(new, doomed, "incremental", None)
        most = self.inputs.read_max
        old = rows_by(self.context, self.mine, bounds.scope, bounds.values, self._stored_names(), most=most)
        return self._exchange(new, old, "incremental", None)

    def _difference(self, terms: Sequence[Term]) -> Epoch:
        found = self._differing(terms)
        shown = self.evaluation.names
        empty = _empty_like(self.view)
        gained, lost = difference(
            pa.concat_tables([empty, *(rows for sign, rows in found if sign > 0)]),
            pa.concat_tables([empty, *(rows for sign, rows in found if sign < 0)]),
        )
        if gained.num_rows == 0 and lost.num_rows == 0:
            return self._nothing()
        if not self.view.relation.keyless:
            key = [k.name for k in self.view.relation.key]
            return self._write(gained, without_keys(lost, gained, key), "incremental", None)
        stored = lost
        if lost.num_rows:
            values = distinct(lost).rename_columns([f"c{i}" for i in range(lost.num_columns)])
            most = self.inputs.read_max
            old = rows_by(self.context, self.mine, shown, values, self._stored_names(), most=most)
            stored = stored_rows(old, lost, shown)
            if stored.num_rows != lost.num_rows:
                raise TooWide(f"{lost.num_rows - stored.num_rows} rows to delete are not there")
        return self._write(gained, stored, "incremental", None)

    def _differing(self, terms: Sequence[Term]) -> list[tuple[int, pa.Table]]:
        moved = [n for term in terms for n in term.moved]
        found = [s for term in terms for s in sides(term, moved, self.inputs, rows_max=self.inputs.rows_max)]
        new = next((side.leaves for side in found if side.sign > 0), {})
        with self._finding_culprits(new):
            return self.evaluation.differing(found)

    def _merge(self, terms: Sequence[Term]) -> Epoch:
        roles = self.view.roles
        assert roles is not None
        try:
            found = self._differing(terms)
        except (SqlError, TypeMismatchError) as error:
            return self._recompute("an expression fails on the change alone", failed=error)
        came, went = (
            pa.concat_tables([_empty_like(self.view), *(rows for sign, rows in found if sign == side)])
            for side in (1, -1)
        )
        return self._merged(roles, came, went, steps=len(terms))

    def _merged(self, roles: Sequence[Role], came: pa.Table, went: pa.Table, *, steps: int) -> Epoch:
        by = [r.column for r in roles if r.call is Call.GROUP]
        old = self._groups(by, pa.concat_tables([came, went]))
        plain = self._added(roles, old, came, went)
        if plain is not None:
            gained, gone = plain
            return (
                self._write(gained, gone, "incremental", None) if gained.num_rows or gone.num_rows else self._nothing()
            )
        done = merge(roles, plain_rows(old), plain_rows(came), plain_rows(went), steps=steps)
        if done.stale:
            return self._regroup(by, done)
        # The one row of a global aggregate keeps its id, so that it is replaced.
        ids = {n: old[n][0].as_py() for n in HIDDEN_KEY} if self.view.relation.keyless else {}
        gained = from_plain([{**row, **ids} for row in done.rows], old.schema)
        gone = from_plain([dict(row) for row in done.gone], old.schema)
        if gained.num_rows == 0 and gone.num_rows == 0:
            return self._nothing()
        return self._write(gained, gone, "incremental", None)

    def _added(
        self, roles: Sequence[Role], old: pa.Table, came: pa.Table, went: pa.Table
    ) -> tuple[pa.Table, pa.Table] | None:
        cursor = self.context.duck()
        try:
            return added(cursor, roles, old, came, went)
        finally:
            cursor.close()

    def _groups(self, by: Sequence[str], rows: pa.Table) -> pa.Table:
        """The stored groups of these rows; the one row of a view without groups."""
        relation, names = self.view.relation, self._stored_names()
        if not by:
            found = scans.frame_of(self.context, self.mine, hidden=True).toArrow()
            return rf.align(found, under_names(relation.columns))
        values = distinct(rows.select(list(by))).rename_columns([f"c{i}" for i in range(len(by))])
        return rows_by(self.context, self.mine, by, values, names)

    def _group_values(self, by: Sequence[str], groups: Sequence[tuple[Any, ...]]) -> pa.Table:
        kinds = arrow_schema(self.view.relation, by)
        rows = [dict(zip(by, group, strict=True)) for group in dict.fromkeys(groups)]
        return numbered(from_plain(rows, kinds))

    def _regroup(self, by: Sequence[str], done: Merged) -> Epoch:
        """Compute again the groups that sums and counts cannot tell, together with those that changed."""
        if not by:
            return self._recompute("the smallest or largest value left")
        assert self.shape is not None
        groups = [tuple(row[c] for c in by) for row in (*done.rows, *done.gone)] + done.stale
        values = self._group_values(by, groups)
        made = of_groups(self.shape, by)
        if made is None or len(made.whole):
            return self._recompute("the smallest or largest value of a group left")
        return self._replace_scope(narrowed_to(made, values, self.inputs, rows_max=self.inputs.rows_max), whole=False)

    # ---- large changes ----------------------------------------------------------------------------------

    def _wide(self, changed: Sequence[str], reason: str) -> Epoch:
        """The same plan on Spark alone, if the view has a key and a scope that it shows."""
        if self.shape is None or self.view.relation.keyless:
            return self._recompute(self.blocked or reason)
        made = by_scope(self.shape, changed, keys_of(self.inputs.relations))
        if made is None:
            return self._recompute(reason)
        wide = Wide(self.view, self.inputs, self.evaluation, self.mine, made)
        try:
            with self._finding_culprits():
                rows = self.work.put_more(wide.rows())
            hit("epoch.slice_written")
        except TooWide as why:
            return self._recompute(str(why))
        gone = sum(run.tombstones for run in self.work.runs)
        return self._commit("incremental", reason, rows - gone, gone)

    # ---- many rows of the base that the view sees for the first time ------------------------------------

    def _chunk(self, changed: Sequence[str], guess: Estimate) -> Epoch:
        """A chunk that is too large for the driver, by what it adds if that can be told, else as any large change."""
        added, roles = self._added_alone(), self.view.roles
        if added is not None and roles is None:
            return self._append(added)
        if added is not None and roles is not None:
            try:
                with self._finding_culprits():
                    came = self.evaluation.collected(added)
                return self._merged(roles, came, _empty_like(self.view), steps=1)
            except (SqlError, TypeMismatchError) as error:
                return self._recompute("an expression fails on the chunk alone", failed=error)
            except TooWide:
                pass  # so many groups are better found by Spark
        if guess.way is Way.RECOMPUTE:
            return self._recompute(guess.reason)
        return self._wide(changed, guess.reason)

    def _added_alone(self) -> DataFrame | None:
        """The query over the chunk's rows alone, if what it gives is what the chunk adds: rows, or parts of sums."""
        region = self.inputs.region
        if self.shape is None or region is None:
            return None
        found = adding(self.shape, region.table, merges=self.view.roles is not None)
        rows = self.inputs.added(region.table)
        if found is None or rows is None:
            return None
        leaf, others = found
        visible = [sscan.quoted(col.name) for col in self.inputs.relations[region.table].visible]
        return self.evaluation.frame({leaf.number: rows.select(*visible)}, unread=others)

    def _append(self, added: DataFrame) -> Epoch:
        """Rows that nothing is looked up for: no other row has their key."""
        with self._finding_culprits():
            fitted = swrite.fitted(added, self.view.relation, hidden=True)
            self.work.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
        return self._commit("incremental", None, sum(r.rows for r in self.work.runs), 0)

    # ---- everything -------------------------------------------------------------------------------------

    def _nothing(self) -> Epoch:
        return self._commit("unchanged", None, 0, 0)

    def _recompute(self, reason: str, how: str = "full refresh", *, failed: Exception | None = None) -> Epoch:
        """Compute the view anew. `failed`: what stopped an attempt to follow the change, and may know the row."""
        try:
            with self._finding_culprits(known=failed):
                return self._anew(reason, how)
        except (SqlError, TypeMismatchError) as error:
            if failed is None:
                raise
            raise failed from error

    def _anew(self, reason: str, how: str) -> Epoch:
        relation = self.view.relation
        if self.mine.rows_at_most <= KEPT_ROWS_MAX and self.stands is not None and self.stands.built:
            frame = self.evaluation.frame({})
            with swrite.translated(relation.name):
                found = frame.limit(KEPT_ROWS_MAX * 2).toArrow()
            if found.num_rows < KEPT_ROWS_MAX * 2:
                new = rf.align(found, under_names(self.view.columns))
                old = scans.frame_of(self.context, self.mine, hidden=True).toArrow()
                old = rf.align(old, under_names(relation.columns))
                return self._exchange(new, old, how, reason)
        fitted = swrite.fitted(self.evaluation.frame({}), relation, hidden=True)
        self.work.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
        gained = sum(r.rows for r in self.work.runs)
        return self._commit(how, reason, gained, self.mine.rows_at_most, replace_all=True)

    @contextlib.contextmanager
    def _finding_culprits(
        self, leaves: Mapping[int, pa.Table] | None = None, known: Exception | None = None
    ) -> Iterator[None]:
        """Where an expression fails, say for which row of an input that changed, if one alone makes it fail.

        Looks among the rows of the leaves; without them among all rows, unless the failure is `known` already.
        """
        try:
            yield
        except (SqlError, TypeMismatchError) as error:
            if leaves is not None:
                found = culprit(self.view, self.inputs, self.evaluation, leaves)
            elif known is None:
                found = culprit_anywhere(self.view, self.inputs, self.evaluation, self._written())
            else:
                found = None
            if found is None:
                raise
            raise error.found_at(found) from error

    def _written(self) -> set[str]:
        """Inputs that may have changed."""

        def may_have(name: str) -> bool:
            try:
                return self.inputs.written(name) > 0
            except TooWide:
                return True

        return {n for n in self.inputs.relations if may_have(n)}

    # ---- rows -------------------------------------------------------------------------------------------

    def _stored_names(self) -> list[str]:
        return [col.name for col in self.view.relation.columns]

    def _exchange(self, new: pa.Table, old: pa.Table, how: str, reason: str | None) -> Epoch:
        """Write the difference between the rows that should be there and those that are."""
        shown = self.evaluation.names
        gained, lost = difference(new, old.select(shown))
        if self.view.relation.keyless:
            doomed = stored_rows(old, lost, shown)
        else:
            doomed = without_keys(lost, gained, [k.name for k in self.view.relation.key])
        if gained.num_rows == 0 and doomed.num_rows == 0:
            return self._commit("unchanged" if reason is None else how, reason, 0, 0)
        return self._write(gained, doomed, how, reason)

    def _write(self, gained: pa.Table, doomed: pa.Table, how: str, reason: str | None) -> Epoch:
        relation = self.view.relation
        physical = {col.name: col.physical for col in relation.columns}
        up = rf.align(gained.rename_columns([physical[n] for n in gained.schema.names]), relation.columns)
        down = rf.align(doomed.rename_columns([physical[n] for n in doomed.schema.names]), relation.columns)
        kinds = pa.chunked_array([pa.array([b.UPSERT] * up.num_rows + [b.DELETE] * down.num_rows, pa.string())])
        self.work.put(b.ArrowBatch(table=pa.concat_tables([up, down]), kinds=kinds, ordered=False))
        return self._commit(how, reason, up.num_rows, down.num_rows)

    # ---- the end ----------------------------------------------------------------------------------------

    def _commit(self, how: str, reason: str | None, gained: int, lost: int, *, replace_all: bool = False) -> Epoch:
        view, relation = self.view, self.view.relation
        seconds = round(time.perf_counter() - self.started, 4)
        if self.growth is not None:
            how, reason = "build", reason or how
            if self.growth.parts:
                hit("build.chunk_written")
        position = definition.advanced(
            view.reached,
            applied_version=self.until,
            read={n: int(now.version) for n, now in self.inputs.now.items()},
            plan=how,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
        )
        try:
            self.work.write_indexes(emptied=replace_all)
        except DuplicateKeyError as error:
            raise SqlError(str(error)) from error  # of the view's rows, like an expression that fails
        updates: list[c.Update] = [c.TruncateRelation(relation=relation.id)] if replace_all else []
        if self.work.runs:
            updates.append(c.AddRuns(runs=tuple(self.work.runs), level1_if_empty=self.work.bulk))
        updates += self.work.index_updates()
        updates += definition.moved(view, position)
        updates.append(c.EndTransaction(transaction=self.work.transaction.id))
        requires: list[c.Requirement] = [
            *self.work.requirements(),
            c.ProgressIs(name=view.progress_name, value=view.stored),
        ]
        if self.building is not None:
            requires += self.building.requires()
            updates += self.building.updates(self.until)
        self._before_commit()
        self.work.commit_decision(
            c.Decision(
                reason=f"{self._said(how)}, +{gained} -{lost}",
                relation=relation.id,
                transaction=self.work.transaction.id,
                requires=tuple(requires),
                updates=tuple(updates),
            )
        )
        self._committed()
        return Epoch(
            view=relation.name,
            applied_version=self.until,
            plan=how,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
        )

    def _said(self, how: str) -> str:
        """What the commit is, for the history."""
        name = self.view.relation.name
        if self.growth is None:
            return f"epoch of {name} to version {self.until}: {how}"
        if not self.growth.parts:
            return f"epoch of {name}, being built, to version {self.until}"
        tablets = "1 tablet" if len(self.growth.parts) == 1 else f"{len(self.growth.parts)} tablets"
        return f"build of {name}: {tablets}, {self.growth.rows_read} rows read"

    def _before_commit(self) -> None:
        if self.growth is None:
            hit("epoch.before_commit")
        elif self.growth.parts:
            hit("build.before_chunk_commit")
        else:
            hit("build.before_epoch_commit")

    def _committed(self) -> None:
        if self.growth is None:
            hit("epoch.committed")
        elif self.growth.parts:
            hit("build.chunk_committed")
        else:
            hit("build.epoch_committed")


def _empty_like(view: View) -> pa.Table:
    return arrow_schema(view.relation, [col.name for col in view.columns]).empty_table()
