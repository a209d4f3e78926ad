"""A view compared with its query at the versions that it names, part by part.

A view that is driven by its base is cut by the base's key: a part runs the query over some tablets of the base. Any
other is cut by its own key, or without one by all its columns: a part runs the query over all its inputs and keeps some
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.algebra.driving import Driving
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.relation import HIDDEN_KEY, Column, Relation
from ebla.model.snapshot import Snapshot
from ebla.relations import views as definition
from ebla.relations.guard import require_built
from ebla.relations.shapes import how_built, shape_of, used_columns
from ebla.relations.views import Position, View
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark import write as swrite
from ebla.tables import compare, scans
from ebla.tables import parts as pt
from ebla.tables.chunk_scan import within
from ebla.tables.compare import Compared
from ebla.tables.context import Context
from ebla.tables.parts import Pace, Part
from ebla.views.epoch.evaluate import Evaluation
from ebla.views.epoch.inputs import unchanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A view and all that a part of it is made of, at the versions that it names."""

    view: View
    position: Position
    relations: Mapping[str, Relation]
    now: Mapping[str, Snapshot]
    mine: Snapshot
    how: Driving | None
    """By whose key it is cut; `None`: by its own."""
    base: Snapshot | None
    """The part of the base."""
    refreshed: _Seen | None = None
    """The same with dictionaries as a refresh leaves them: what is behind its position is to be compared with that."""


def check(context: Context, pins: scans.Pins, name: str, percent: float | None, pace: Pace) -> Compared:
    """Missing, spurious and different rows; of a view without a key, missing and spurious ones."""
    with context.catalog.reading() as connection:
        view, _ = _load(connection, name)
        rows = reads.snapshot(connection, view.relation).rows_at_most
    wrong: Counter[str] = Counter()
    for part in pt.parts(context, f"checking view {view.relation.name}", rows, pace):
        with _seen(context, pins, name, part) as seen, pt.stoppable(context.spark):
            wrong.update(_compared(context, seen, part, percent))
    return Compared.of("view", seen.view.relation.name, seen.position.applied_version, wrong, percent)


def _load(connection: Connection, name: str) -> tuple[View, Position]:
    view = definition.load(connection, name)
    require_built(connection, view.relation)
    assert view.position is not None
    return view, view.position


@contextmanager
def _seen(context: Context, pins: scans.Pins, name: str, part: Part) -> Iterator[_Seen]:
    """What a part reads, kept from vacuum. An epoch that moves the view before it is pinned costs another look."""
    while True:
        with context.catalog.reading() as connection:
            view, position = _load(connection, name)
            newest = reads.current_version(connection)
        to = {} if position.refresh is None else position.refresh.to
        versions = sorted({*position.read.values(), *to.values(), newest})
        holds = [pins.hold(Version(v), f"check of {name}") for v in versions]
        try:
            with context.catalog.reading() as connection:
                seen = _read(connection, name, part)
            if seen.view.stored == view.stored:
                yield seen
                return
        finally:
            for hold in holds:
                hold.release()


def _read(connection: Connection, name: str, part: Part) -> _Seen:
    view, position = _load(connection, name)
    seen = _read_at(connection, view, position, part, position.read)
    if position.refresh is None:
        return seen
    read = {**position.read, **position.refresh.to}
    return replace(seen, refreshed=_read_at(connection, view, position, part, read))


def _read_at(connection: Connection, view: View, position: Position, part: Part, read: Mapping[str, int]) -> _Seen:
    relations = {n: reads.relation(connection, n) for n in view.inputs}
    how = how_built(view, relations)
    driven = how if isinstance(how, Driving) else None
    own = driven is None or list(driven.scope) == [k.name for k in view.relation.key]
    base = None
    if driven is not None and part.count > 1:
        relation = relations[driven.base]
        at = Version(read[driven.base])
        base = reads.snapshot(connection, relation, at, part.tablets(relation.tablets))
    tablets = part.tablets(view.relation.tablets) if own and not view.relation.keyless else None
    return _Seen(
        view=view,
        position=position,
        relations=relations,
        now={n: reads.snapshot(connection, r, Version(read[n])) for n, r in relations.items()},
        mine=reads.snapshot(connection, view.relation, None, tablets),
        how=driven,
        base=base,
    )


def _compared(context: Context, seen: _Seen, part: Part, percent: float | None) -> Mapping[str, int]:
    relation = seen.view.relation
    columns = [c for c in relation.columns if c.name not in HIDDEN_KEY]
    of = columns if relation.keyless else relation.key
    hashed = ", ".join(f"CAST({sscan.quoted(c.physical)} AS STRING)" for c in of)
    inside = part.within(_token(seen, columns))
    with swrite.translated(relation.name):
        should = swrite.fitted(_named(context, seen, part), relation, hidden=True)
        found = scans.frame_of(context, seen.mine, hidden=True).selectExpr(
            *sscan.renamed([(c.name, c.physical) for c in relation.columns])
        )
        should, found = (
            compare.sampled(ssession.rebind(side, context.writer).filter(inside), hashed, percent).select(
                *[sscan.quoted(c.physical) for c in columns]
            )
            for side in (should, found)
        )
        if relation.keyless:
            return compare.counted_bags(should, found, columns)
        key = [k.physical for k in relation.key]
        return compare.counted(compare.differences(should, found, columns, key, near=True))


def _token(seen: _Seen, columns: list[Column]) -> str:
    """The long by which the view is cut, from its physical columns."""
    relation = seen.view.relation
    if seen.how is not None:
        named = {c.name: c for c in relation.columns}
        return sscan.token_sql([named[n] for n in seen.how.scope])
    if relation.keyless:
        return f"xxhash64({', '.join(f'CAST({sscan.quoted(c.physical)} AS STRING)' for c in columns)})"
    return sscan.token_sql(relation.placed_by)


def _named(context: Context, seen: _Seen, part: Part) -> DataFrame:
    """The view's query at the versions that the view names: of a view with a refresh, those of each part of it."""
    refresh = seen.position.refresh
    if refresh is None or seen.refreshed is None:
        return _query(context, seen, part)
    behind, ahead = refresh.spans()
    new = _query(context, seen.refreshed, part).filter(within(refresh.by, behind))
    return new.unionAll(_query(context, seen, part).filter(within(refresh.by, ahead)))


def _query(context: Context, seen: _Seen, part: Part) -> DataFrame:
    """The view's query, over a part of its base where that is enough."""
    shape, _ = shape_of(seen.view, seen.relations)
    evaluation = Evaluation(
        seen.view, unchanged(context, seen.relations, seen.now, used_columns(shape, seen.relations))
    )
    if seen.how is None or seen.base is None:
        return evaluation.frame({})
    key = ", ".join(sscan.quoted(k.name) for k in seen.base.relation.key)
    rows = scans.frame_of(context, seen.base).filter(part.within(f"xxhash64({key})"))
    return evaluation.frame({seen.how.leaf: rows})
