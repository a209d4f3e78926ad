"""Views kept exact: one epoch brings one view from the versions it has read to newer ones.

The epoch computes which rows the view gains and loses (`ebla.views.epoch`), writes them as one level 0 run, and commits
them together with the new position: rows and position move together or not at all. A change that touches too much, or
that cannot be followed, recomputes the view and replaces it in one commit.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import func, select

from ebla.catalog import changes as c
from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.errors import SqlError, TypeMismatchError
from ebla.failpoint import hit
from ebla.ids import Version
from ebla.spark import scan as sscan
from ebla.spark import write as swrite
from ebla.sql.refs import rewrite
from ebla.storage import runs as rf
from ebla.storage import types
from ebla.storage.model import DELETED, FOREVER, Column, Kind, Relation
from ebla.storage.snapshot import Snapshot
from ebla.tables import batch as b
from ebla.tables import scans
from ebla.tables.context import Context
from ebla.tables.writes import Work
from ebla.views import definition
from ebla.views.definition import Position, View
from ebla.views.epoch import Bounds, TooWide, bound
from ebla.views.lookup import rows_by
from ebla.views.nodes import NotUnderstood, Shape
from ebla.views.plan import FullRefresh, Incremental, plan
from ebla.views.shape import keys_of, understood

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection

KEPT_ROWS_MAX = 50_000
"""A view of at most this many rows is refreshed by difference, so that what reads it sees only what changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The versions that an epoch brings a view's inputs to."""

    stream: Version
    batch: Mapping[str, Version] = field(default_factory=dict)
    """Inputs (names in lower case) that are read at a version of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast an epoch may go: so many view rows at a time, so many a second. Without one, at full speed."""

    rows_per_scan: int = 100_000
    rows_per_s: float | None = None


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


@dataclass(kw_only=True)
class Inputs:
    """The inputs of one epoch: each relation, read before and now."""

    context: Context
    relations: Mapping[str, Relation]
    before: Mapping[str, Version | None]
    now: Mapping[str, Snapshot]
    used: Mapping[str, frozenset[str]]
    rows_max: int
    _changed: dict[str, pa.Table] = field(default_factory=dict)

    def columns(self, table: str) -> list[str]:
        """The columns of an input that the view uses, and its key: whole rows as far as the view is concerned."""
        relation = self.relations[table]
        used = self.used.get(table, frozenset())
        key = {k.name.lower() for k in relation.key}
        return [col.name for col in relation.columns if col.name.lower() in used | key]

    def moved(self) -> list[str]:
        """Inputs with a change in a column that the view uses."""
        return [t for t in self.relations if self.changed(t).num_rows]

    def changed(self, table: str) -> pa.Table:
        if table not in self._changed:
            self._changed[table] = self._find_changed(table)
        return self._changed[table]

    def _find_changed(self, table: str) -> pa.Table:
        relation, since, now = self.relations[table], self.before[table], self.now[table]
        names = self.columns(table)
        schema = pa.schema([pa.field(n, types.to_arrow(_column(relation, n).type)) for n in names])
        if since is None:
            raise TooWide("the view is not built yet")
        with self.context.catalog.reading() as connection:
            if since < relation.horizon:
                raise TooWide(f"the changes of {table} since version {since} were vacuumed")
            runs = reads.writes_between(connection, relation, since, now.version)
            truncated = reads.truncated_between(connection, relation, since, now.version)
            old = reads.snapshot(connection, relation, since)
        if truncated:
            raise TooWide(f"{table} was truncated")
        if not runs:
            return schema.empty_table()
        if sum(r.rows for r in runs) > self.rows_max:
            raise TooWide(f"{sum(r.rows for r in runs)} changed rows of {table}")
        latest = rf.mutations(relation, runs, self.context.roots(), self.context.cache)
        keys = latest.select([k.physical for k in relation.key])
        numbered = keys.rename_columns([f"c{i}" for i in range(keys.num_columns)])
        was = rows_by(self.context, old, [k.name for k in relation.key], numbered, names)
        alive = latest.filter(pc.invert(pc.fill_null(latest[DELETED], False)))
        physical = [_column(relation, n).physical for n in names]
        is_now = alive.select(physical).rename_columns(names).cast(schema)
        gained, lost = difference(is_now, was)
        return pa.concat_tables([gained, lost])

    def lookup(self, table: str, by: Sequence[str], values: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        wanted = self.columns(table) if columns is None else list(columns)
        found = rows_by(self.context, self.now[table], by, values, wanted)
        if found.num_rows > 4 * self.rows_max:
            raise TooWide(f"{found.num_rows} rows of {table} to read")
        return found


def _column(relation: Relation, name: str) -> Column:
    found = relation.column(name)
    assert found is not None
    return found


def difference(new: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows that are in one bag and not in the other: gained, lost. Each row as often as it is missing."""
    names = new.schema.names
    if new.num_rows == 0 or old.num_rows == 0:
        return new, old
    if any(pa.types.is_nested(f.type) for f in new.schema):
        return _difference_by_value(new, old)
    sides = pa.concat_tables([new, old.select(names).cast(new.schema)])
    weight = pa.array([1] * new.num_rows + [-1] * old.num_rows, pa.int64())
    summed = sides.append_column("_weight", weight).group_by(names, use_threads=False).aggregate([("_weight", "sum")])
    net = summed["_weight_sum"].to_numpy()
    rows = summed.select(names)

    def times(count: pa.Array) -> pa.Table:
        repeated = [i for i, n in enumerate(count) for _ in range(int(n)) if n > 0]
        return rows.take(pa.array(repeated, pa.int64()))

    return times(net), times(-net)


def _difference_by_value(new: pa.Table, old: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same for columns that Arrow cannot group by, on the rows as Python values."""
    remaining: dict[str, list[int]] = {}
    for i, row in enumerate(old.select(new.schema.names).to_pylist()):
        remaining.setdefault(repr(row), []).append(i)
    gained = []
    for i, row in enumerate(new.to_pylist()):
        places = remaining.get(repr(row))
        if places:
            places.pop()
        else:
            gained.append(i)
    lost = sorted(i for places in remaining.values() for i in places)
    return new.take(pa.array(gained, pa.int64())), old.take(pa.array(lost, pa.int64()))


# ---- the epoch ------------------------------------------------------------------------------------------


def apply_epoch(context: Context, name: str, target: Target | None = None, pace: Pace | None = None) -> Epoch:
    """Bring a view up to the newest version of its inputs, or to those of the target."""
    started = time.perf_counter()
    with context.catalog.reading() as connection:
        view = definition.load(connection, name)
        target = target or Target(stream=reads.current_version(connection))
        relations = {n: reads.relation(connection, n) for n in view.inputs}
        if not _anything_new(connection, view, relations, target):
            return Epoch(view=view.relation.name, applied_version=_applied(view), plan="nothing to do")
    transaction = tx.begin(
        context.catalog,
        view.relation,
        node=context.node,
        holder=context.holder,
        reason=f"epoch of {name}",
        lease_us=context.lease_us,
    )
    work = Work(context, view.relation, transaction)
    try:
        with context.kept_alive(transaction.id):
            done = _Run(context, view, relations, target, work, started).run()
    except BaseException:
        work.roll_back()
        raise
    return done


def _applied(view: View) -> Version:
    return Version(0) if view.position is None else view.position.applied_version


def _anything_new(connection: Connection, view: View, relations: Mapping[str, Relation], target: Target) -> bool:
    """Whether an input has a commit that the view has not read. The history knows, even of runs that are vacuumed."""
    if view.position is None or view.position.status != "ready":
        return True
    for name, relation in relations.items():
        seen = view.position.read.get(name, 0)
        until = target.batch.get(name, target.stream if relation.kind is Kind.TABLE else FOREVER)
        if seen >= until:
            continue
        newest = select(func.max(s.history.c.version)).where(
            s.history.c.relation_id == relation.id, s.history.c.version <= until
        )
        if (connection.execute(newest).scalar() or 0) > seen:
            return True
    return False


class _Run:
    """One attempt of one epoch."""

    def __init__(
        self,
        context: Context,
        view: View,
        relations: Mapping[str, Relation],
        target: Target,
        work: Work,
        started: float,
    ) -> None:
        self.context = context
        self.view = view
        self.work = work
        self.until = target.stream
        self.started = started
        with context.catalog.reading() as connection:
            # Tables are read at the epoch's version; a view among the inputs as it is now: its own epoch came first.
            newest = reads.current_version(connection)
            versions = {
                n: target.batch.get(n, target.stream if r.kind is Kind.TABLE else newest) for n, r in relations.items()
            }
            now = {n: reads.snapshot(connection, r, versions[n]) for n, r in relations.items()}
            self.mine = reads.snapshot(connection, view.relation)
        before = {
            n: None if view.position is None else Version(view.position.read[n]) if n in view.position.read else None
            for n in relations
        }
        self.shape: Shape | None = None
        self.blocked: str | None = None
        try:
            self.shape = understood(view.query, relations)
        except NotUnderstood as reason:
            self.blocked = str(reason)
        everything = {n: frozenset(col.name.lower() for col in r.columns) for n, r in relations.items()}
        self.inputs = Inputs(
            context=context,
            relations=relations,
            before=before,
            now=now,
            used=everything if self.shape is None else self.shape.used,
            rows_max=context.settings.batch_rows_max,
        )

    def run(self) -> Epoch:
        try:
            if self.view.position is None:
                return self._recompute("first build")
            if self.shape is None:
                return self._recompute(self.blocked or "") if self.inputs.moved() else self._nothing()
            moved = self.inputs.moved()
            if not moved:
                return self._nothing()
            made = plan(self.shape, moved, keys_of(self.inputs.relations))
            if isinstance(made, FullRefresh):
                return self._recompute(made.reason)
            return self._incremental(made)
        except TooWide as reason:
            return self._recompute(str(reason))

    # ---- three ways -------------------------------------------------------------------------------------

    def _nothing(self) -> Epoch:
        return self._commit("unchanged", None, 0, 0)

    def _incremental(self, made: Incremental) -> Epoch:
        bounds = bound(made, self.inputs, rows_max=self.context.settings.batch_rows_max)
        if bounds.values.num_rows == 0:
            return self._nothing()
        names = [col.name for col in self.view.relation.visible]
        old = rows_by(self.context, self.mine, bounds.scope, bounds.values, self._stored_names())
        new = self._evaluate(bounds, names)
        return self._exchange(new, old, "incremental", None)

    def _recompute(self, reason: str) -> Epoch:
        relation = self.view.relation
        if self.mine.rows_at_most <= KEPT_ROWS_MAX and self.view.position is not None:
            frame = self._frame({})
            with swrite.translated(relation.name):
                new = rf.align(frame.limit(KEPT_ROWS_MAX * 2).toArrow(), relation.visible)
            if new.num_rows < KEPT_ROWS_MAX * 2:
                old = scans.frame_of(self.context, self.mine, hidden=True).toArrow()
                old = rf.align(old, relation.columns)
                return self._exchange(new, old, "full refresh", reason)
        fitted = swrite.fitted(self._frame({}), relation)
        self.work.put(b.FrameBatch(frame=fitted, kind=b.UPSERT, plain=True, rows=None))
        gained = sum(r.rows for r in self.work.runs)
        return self._commit("full refresh", reason, gained, self.mine.rows_at_most, replace_all=True)

    # ---- rows -------------------------------------------------------------------------------------------

    def _stored_names(self) -> list[str]:
        return [col.name for col in self.view.relation.columns]

    def _evaluate(self, bounds: Bounds, names: Sequence[str]) -> pa.Table:
        """The query on the narrowed inputs, only rows in scope."""
        from pyspark.sql import functions as F

        frame = self._frame(bounds.leaves)
        marked = bounds.values.rename_columns([f"_ebla_v{i}" for i in range(bounds.values.num_columns)])
        wanted = F.broadcast(self.context.spark.createDataFrame(marked))
        on = " AND ".join(f"{sscan.quoted(n)} <=> _ebla_v{i}" for i, n in enumerate(bounds.scope))
        with swrite.translated(self.view.relation.name):
            found = frame.join(wanted, F.expr(on), "left_semi").toArrow()
        return rf.align(found.rename_columns(list(names)), self.view.relation.visible)

    def _frame(self, leaves: Mapping[int, pa.Table]) -> DataFrame:
        """The view's query, some mentions of inputs replaced by the rows that matter."""
        spark = self.context.spark
        names: dict[tuple[int, int], str] = {}
        frames: dict[str, DataFrame] = {}
        for number, ref in enumerate(self.view.query.refs):
            table = ref.name.lower()
            name = f"ebla_{self.work.transaction.id}_{number}_{time.monotonic_ns()}"
            names[ref.start, ref.end] = name
            rows = leaves.get(number)
            if rows is None:
                frames[name] = scans.frame_of(self.context, self.inputs.now[table])
            else:
                relation = self.inputs.relations[table]
                shown = [n for n in rows.schema.names if not _column(relation, n).hidden]
                schema = sscan.struct([replace(_column(relation, n), physical=n) for n in shown])
                frames[name] = sscan.local(spark, rows.select(shown), schema)
        try:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            text = rewrite(self.view.query, lambda ref: names[ref.start, ref.end])
            with swrite.translated(self.view.relation.name):
                result = spark.sql(text)
            return result.toDF(*[col.name for col in self.view.relation.visible])
        finally:
            for name in frames:
                spark.catalog.dropTempView(name)

    def _exchange(self, new: pa.Table, old: pa.Table, how: str, reason: str | None) -> Epoch:
        """Write the difference between the rows that should be there and those that are."""
        relation = self.view.relation
        shown = [col.name for col in relation.visible]
        fresh = new.rename_columns(shown)
        if relation.keyless:
            gained, lost = difference(fresh, old.select(shown))
            doomed = _rows_to_delete(old, lost, shown)
        else:
            gained, lost = difference(fresh, old.select(shown))
            doomed = _without_keys(lost, gained, [k.name for k in relation.key])
        if gained.num_rows == 0 and doomed.num_rows == 0:
            return self._commit("unchanged" if reason is None else how, reason, 0, 0)
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
        position = definition.advanced(
            view.position,
            applied_version=self.until,
            read={n: int(now.version) for n, now in self.inputs.now.items()},
            plan=how,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
        )
        updates: list[c.Update] = [c.TruncateRelation(relation=relation.id)] if replace_all else []
        if self.work.runs:
            updates.append(c.AddRuns(runs=tuple(self.work.runs), level1_if_empty=self.work.bulk))
        updates.append(c.SetProgress(name=view.progress_name, value=position.text()))
        updates.append(c.EndTransaction(transaction=self.work.transaction.id))
        hit("epoch.before_commit")
        self.context.catalog.commit(
            c.Decision(
                reason=f"epoch of {relation.name} to version {self.until}: {how}, +{gained} -{lost}",
                relation=relation.id,
                transaction=self.work.transaction.id,
                requires=(*self.work.requirements(), c.ProgressIs(name=view.progress_name, value=view.stored)),
                updates=tuple(updates),
            ),
            node=self.context.node,
        )
        self.work.forget_scratch()
        return Epoch(
            view=relation.name,
            applied_version=self.until,
            plan=how,
            reason=reason,
            gained=gained,
            lost=lost,
            seconds=seconds,
        )


def _without_keys(lost: pa.Table, gained: pa.Table, key: list[str]) -> pa.Table:
    """Lost rows whose key has no new row: the others are replaced, not deleted."""
    if lost.num_rows == 0 or gained.num_rows == 0:
        return lost
    both = pa.concat_tables([lost.select(key), gained.select(key)])
    place = pa.array(range(both.num_rows), pa.int64())
    newest = both.append_column("_at", place).group_by(key, use_threads=False).aggregate([("_at", "max")])["_at_max"]
    return lost.take(newest.filter(pc.less(newest, lost.num_rows)))


def _rows_to_delete(old: pa.Table, lost: pa.Table, shown: Sequence[str]) -> pa.Table:
    """Stored rows, with their hidden ids, that make up the lost bag."""
    due: dict[str, int] = {}
    for row in lost.to_pylist():
        due[repr(row)] = due.get(repr(row), 0) + 1
    chosen = []
    for i, row in enumerate(old.select(list(shown)).to_pylist()):
        text = repr(row)
        if due.get(text, 0) > 0:
            due[text] -= 1
            chosen.append(i)
    return old.take(pa.array(chosen, pa.int64()))


def refresh_all(context: Context, names: Sequence[str] | None = None) -> list[Epoch]:
    """One epoch for every view, or for some and those they read, each behind its inputs, all to one base version."""
    with context.catalog.reading() as connection:
        target = Target(stream=reads.current_version(connection))
        views = definition.all_views(connection)
    wanted = {v.relation.name.lower() for v in views} if names is None else _with_inputs(views, names)
    return refresh(context, dict.fromkeys(wanted, target), retry={n.lower() for n in names or ()})


def refresh(
    context: Context, targets: Mapping[str, Target], *, retry: Container[str] = (), pace: Pace | None = None
) -> list[Epoch]:
    """One epoch for each of these views (names in lower case), each behind the views that it reads.

    A view that failed waits for somebody who mends its rows and asks for it by name (`retry`).
    """
    with context.catalog.reading() as connection:
        views = [v for v in definition.all_views(connection) if v.relation.name.lower() in targets]
    done = []
    for view in views:
        name = view.relation.name.lower()
        if view.position is not None and view.position.status == "failed" and name not in retry:
            continue
        done.append(_apply_or_fail(context, view, targets[name], pace))
    return done


def _with_inputs(views: Sequence[View], names: Sequence[str]) -> set[str]:
    by_name = {v.relation.name.lower(): v for v in views}
    wanted: set[str] = set()
    pending = [n.lower() for n in names]
    while pending:
        name = pending.pop()
        if name in by_name and name not in wanted:
            wanted.add(name)
            pending += by_name[name].inputs
    return wanted


def _apply_or_fail(context: Context, view: View, target: Target, pace: Pace | None) -> Epoch:
    """An epoch whose expressions fail stops its view and no other; what went wrong is kept with the view."""
    try:
        return apply_epoch(context, view.relation.name, target, pace)
    except (SqlError, TypeMismatchError) as error:
        position = (view.position or Position(applied_version=Version(0), read={})).failed(str(error))
        context.catalog.commit(
            c.Decision(
                reason=f"epoch of {view.relation.name} failed",
                relation=view.relation.id,
                requires=(c.ProgressIs(name=view.progress_name, value=view.stored),),
                updates=(c.SetProgress(name=view.progress_name, value=position.text()),),
            ),
            node=context.node,
        )
        return Epoch(
            view=view.relation.name, applied_version=position.applied_version, plan="failed", reason=str(error)
        )
