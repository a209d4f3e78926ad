"""A view comes to be: its query is checked, its columns and key are found, its relation is made, its rows are built."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlalchemy import Connection
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ebla.catalog import changes as c
from ebla.catalog import reads
from ebla.errors import DuplicateNameError, UnknownNameError, UsageError
from ebla.ids import Version
from ebla.sql.refs import rewrite
from ebla.sql.statements import Query
from ebla.storage import types
from ebla.storage.model import HIDDEN_KEY, Column, Kind, Relation
from ebla.tables import ddl, scans
from ebla.tables.context import Context
from ebla.views import definition
from ebla.views.guard import dropping
from ebla.views.keys import view_key
from ebla.views.nodes import NotUnderstood, Shape
from ebla.views.plan import EpochPlan, FullRefresh, plan
from ebla.views.shape import keys_of, understood

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOCKS = ("current_timestamp", "current_date", "now", "localtimestamp", "current_time", "curdate", "current_timezone",
          "unix_timestamp", "current_user", "user", "session_user", "input_file_name")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A query that can be a view: its inputs, its columns, and how it is maintained."""

    relations: Mapping[str, Relation]
    columns: tuple[Column, ...]
    shape: Shape | None
    blocked: str | None
    """Why the query's changes cannot be followed at all, if they cannot."""

    def plans(self) -> dict[str, EpochPlan]:
        """What an epoch does after a change of each input alone."""
        if self.shape is None:
            return {n: FullRefresh(reason=self.blocked or "") for n in self.relations}
        return {n: plan(self.shape, [n], keys_of(self.relations)) for n in self.relations}


def check(
    context: Context,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
) -> Checked:
    """Analyse a view's query with Spark and follow its values. Changes nothing."""
    _refuse_changing_functions(query)
    with context.catalog.reading() as connection:
        relations = _inputs(connection, query)
        snapshots = {n: reads.snapshot(connection, r) for n, r in relations.items()}
    frames = {n: scans.frame_of(context, s) for n, s in snapshots.items()}
    frame = _analysed(context, query, frames)
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise UsageError(
            "expected a deterministic query, found one whose result changes by itself (rand, uuid, …); "
            "a view must be the same whenever it is computed"
        )
    shape, blocked = None, None
    try:
        shape = understood(query, relations)
        _compare(shape, frame)
    except NotUnderstood as reason:
        shape, blocked = None, str(reason)
    return Checked(
        relations=relations,
        columns=_columns(frame, shape, relations, names, primary_key),
        shape=shape,
        blocked=blocked,
    )


def _inputs(connection: Connection, query: Query) -> dict[str, Relation]:
    found: dict[str, Relation] = {}
    for ref in query.refs:
        if len(ref.parts) > 1:
            raise UsageError(f"{'.'.join(ref.parts)}: expected a table or a view as input, found a system table")
        if ref.version is not None or ref.timestamp is not None:
            raise UsageError(f"{ref.name}: expected the present of an input, found a version of it")
        found[ref.name.lower()] = reads.relation(connection, ref.name)
    return found


def _refuse_changing_functions(query: Query) -> None:
    try:
        tree = sqlglot.parse_one(query.text, dialect="spark")
    except SqlglotError:
        return  # Spark has the last word on what parses
    for call in tree.find_all(exp.Func):
        name = call.sql_name().lower() if not isinstance(call, exp.Anonymous) else call.name.lower()
        if name in CLOCKS or isinstance(call, exp.CurrentTimestamp | exp.CurrentDate):
            raise UsageError(
                f"{name}: expected a deterministic query, found a function of the clock or the session; "
                "a view must be the same whenever it is computed"
            )


def _analysed(context: Context, query: Query, frames: Mapping[str, DataFrame]) -> DataFrame:
    mark = time.monotonic_ns()
    names = {n: f"ebla_check_{mark}_{i}" for i, n in enumerate(frames)}
    try:
        for n, frame in frames.items():
            frame.createOrReplaceTempView(names[n])
        text = rewrite(query, lambda ref: names[ref.name.lower()])
        try:
            return context.spark.sql(text)
        except Exception as error:
            from ebla.execute import in_users_words

            better = in_users_words(error, query.text, dict.fromkeys(names.values(), ""))
            if better is None:
                raise
            raise better from error
    finally:
        for name in names.values():
            context.spark.catalog.dropTempView(name)


def _compare(shape: Shape, frame: DataFrame) -> None:
    """Spark and the tree must agree on the width and on whether rows are aggregated: else nothing is followed."""
    if len(shape.outputs) != len(frame.columns):
        raise NotUnderstood("the query's columns")
    plan_text = str(frame._jdf.queryExecution().analyzed().toString())
    if "Generate " in plan_text:
        raise NotUnderstood("a generator such as explode")


def _columns(
    frame: DataFrame,
    shape: Shape | None,
    relations: Mapping[str, Relation],
    names: Sequence[str],
    primary_key: Sequence[str],
) -> tuple[Column, ...]:
    shown = list(names) or list(frame.columns)
    if len(shown) != len(frame.columns):
        raise UsageError(f"expected {len(frame.columns)} column names, found {len(shown)}")
    seen: set[str] = set()
    for name in shown:
        ddl.check_name(name, "column")
        if name.lower() in seen:
            raise DuplicateNameError(f"expected each output column once, found {name} twice; give it another alias")
        seen.add(name.lower())
    implied: tuple[str, ...] = ()
    if shape is not None:
        outputs = [n for n, _ in shape.outputs]
        places = [outputs.index(k) for k in view_key(shape, keys_of(relations))]
        implied = tuple(shown[p] for p in places)
    key = _declared(primary_key, implied, shown) if primary_key else implied
    kinds = [types.from_spark(f.dataType) for f in frame.schema.fields]
    if any(not types.is_key_type(kinds[shown.index(k)]) for k in key):
        key = ()
    made = [
        Column(
            name=name,
            physical=name,
            type=kind,
            nullable=True,
            key_position=key.index(name) if name in key else None,
        )
        for name, kind in zip(shown, kinds, strict=True)
    ]
    if not key:
        made += [
            Column(name=n, physical=n, type="bigint", nullable=False, key_position=i, hidden=True)
            for i, n in enumerate(HIDDEN_KEY)
        ]
    return tuple(made)


def _declared(primary_key: Sequence[str], implied: Sequence[str], shown: Sequence[str]) -> tuple[str, ...]:
    spelled = {n.lower(): n for n in shown}
    unknown = [k for k in primary_key if k.lower() not in spelled]
    if unknown:
        raise UnknownNameError(f"PRIMARY KEY: expected columns of the view, found {unknown[0]}")
    declared = tuple(spelled[k.lower()] for k in primary_key)
    if not implied or not set(implied) <= set(declared):
        have = f"it implies ({', '.join(implied)})" if implied else "it implies none"
        raise UsageError(f"PRIMARY KEY ({', '.join(declared)}): expected a key that the query implies; {have}")
    return declared


def create_view(
    context: Context,
    name: str,
    query: Query,
    *,
    names: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    if_not_exists: bool = False,
    options: Mapping[str, object] | None = None,
) -> bool:
    """Make a view's relation. Its rows come with its first epoch."""
    ddl.check_name(name, "view")
    given = {k.lower(): v for k, v in (options or {}).items()}
    refresh = given.pop("refresh", "auto")
    if refresh not in ("auto", "incremental"):
        raise UsageError(f"refresh: expected 'auto' or 'incremental', found {refresh!r}")
    tablets, replication, _ = ddl.storage_options(context, given)
    with context.catalog.reading() as connection:
        if if_not_exists and reads.find_relation(connection, name) is not None:
            return False
    checked = check(context, query, names=names, primary_key=primary_key)
    whole = [(n, p.reason) for n, p in checked.plans().items() if isinstance(p, FullRefresh)]
    if refresh == "incremental" and whole:
        raise UsageError(
            f"{name}: expected a query that can be maintained incrementally, found that a change of {whole[0][0]} "
            f"needs a full refresh ({whole[0][1]}); leave out refresh = 'incremental' to allow it"
        )

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        if found is not None:
            if if_not_exists:
                return None
            raise DuplicateNameError(f"view {name}: expected a free name, found a {found.kind} of that name")
        inputs = [reads.relation(connection, n).id for n in checked.relations]
        nodes = list(reads.nodes(connection).values())
        made = c.CreateRelation(
            name=name,
            kind=Kind.VIEW,
            tablets=tablets,
            replication=replication,
            columns=checked.columns,
            placement=ddl.place(nodes, tablets, replication),
            comment=None,
            options=definition.options(query.text, inputs, {"refresh": refresh}),
        )
        return c.Decision(reason=f"create materialized view {name}", updates=(made,))

    return context.catalog.decide(decide, node=context.node) is not None


def drop_view(context: Context, name: str, *, if_exists: bool = False, cascade: bool = False) -> bool:
    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = reads.find_relation(connection, name)
        if found is None and if_exists:
            return None
        view = definition.load(connection, name)
        updates, more = dropping(connection, view.relation, cascade=cascade)
        return c.Decision(
            reason=f"drop materialized view {view.relation.name}{more}",
            relation=view.relation.id,
            updates=updates,
        )

    return context.catalog.decide(decide, node=context.node) is not None
