"""What a part of a check of a view reads: the view and its inputs at the versions that the view names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebla.algebra.build_method import DrivenBuild
from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.relations import views as definition
from ebla.relations.guard import require_built
from ebla.relations.shapes import build_method
from ebla.relations.views import Position, View
from ebla.tables import scans
from ebla.tables.parts import Part

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRead:
    """A view and all that a part of it is made of, at the versions that it names."""

    view: View
    position: Position
    relations: Mapping[str, Relation]
    now: Mapping[str, Snapshot]
    mine: Snapshot
    how: DrivenBuild | None
    """By whose key it is cut; `None`: by its own."""
    base: Snapshot | None
    """The part of the base."""
    refreshed: PartRead | None = None
    """The same with dictionaries as a refresh leaves them: what is behind its position is to be compared with that."""


def load(connection: Connection, name: str) -> tuple[View, Position]:
    view = definition.load(connection, name)
    require_built(connection, view.relation)
    assert view.position is not None
    return view, view.position


@contextmanager
def part_read(catalog: Catalog, pins: scans.Pins, name: str, part: Part) -> Iterator[PartRead]:
    """What a part reads, kept from vacuum. An epoch that moves the view before it is pinned costs another look."""
    while True:
        with catalog.reading() as connection:
            view, position = load(connection, name)
            newest = reads.current_version(connection)
        to = {} if position.refresh is None else position.refresh.to
        versions = sorted({*position.read.values(), *to.values(), newest})
        holds = [pins.hold(Version(v), f"check of {name}") for v in versions]
        try:
            with catalog.reading() as connection:
                seen = _read(connection, name, part)
            if seen.view.stored == view.stored:
                yield seen
                return
        finally:
            for hold in holds:
                hold.release()


def _read(connection: Connection, name: str, part: Part) -> PartRead:
    view, position = load(connection, name)
    seen = _read_at(connection, view, position, part, position.read)
    if position.refresh is None:
        return seen
    read = {**position.read, **position.refresh.to}
    return replace(seen, refreshed=_read_at(connection, view, position, part, read))


def _read_at(connection: Connection, view: View, position: Position, part: Part, read: Mapping[str, int]) -> PartRead:
    relations = {n: reads.relation(connection, n) for n in view.inputs}
    how = build_method(view, relations)
    driven = how if isinstance(how, DrivenBuild) else None
    own = driven is None or list(driven.scope) == [k.name for k in view.relation.key]
    base = None
    if driven is not None and part.count > 1:
        relation = relations[driven.base]
        at = Version(read[driven.base])
        base = reads.snapshot(connection, relation, at, part.tokens)
    tokens = part.tokens if own and not view.relation.keyless else None
    return PartRead(
        view=view,
        position=position,
        relations=relations,
        now={n: reads.snapshot(connection, r, Version(read[n])) for n, r in relations.items()},
        mine=reads.snapshot(connection, view.relation, None, tokens),
        how=driven,
        base=base,
    )
