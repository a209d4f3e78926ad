"""Whole rows by key, for paths that do not have all columns."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import pyarrow as pa

from ebla.base.ids import TabletId
from ebla.errors import CorruptRunError
from ebla.model.relation import Column, Run
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath
from ebla.query.plan import Edge, Fitted, Interval
from ebla.query.streams import Place, Seek, Source
from ebla.storage import runs as rf
from ebla.storage.layers import Key, key_of
from ebla.storage.store import tablets_of_keys


def by_key(path: AccessPath) -> Fitted:
    """The path as a way to single rows."""
    return Fitted(
        path=path,
        backwards=False,
        fixed=len(path.key),
        narrowed=False,
        intervals=(),
        filters=(),
        late=(),
        sorted=0,
        exact=True,
        covering=True,
    )


def fetch(source: Source, base: AccessPath, keys: Sequence[Key], wanted: Sequence[Column]) -> pa.Table:
    """The rows that have these keys, in that order.

    An index names only keys that are there at its version, so one that is missing is damage, not an empty answer.
    """
    seek = Seek(source, by_key(base), ())
    places = _places(seek, keys)
    missing = [key for key, place in zip(keys, places, strict=True) if place is None]
    if missing:
        relation = base.relation
        raise CorruptRunError(
            f"{relation.name}: expected a row with {rf.show_key(relation, missing[0])}, which an index names, "
            "found none; check the index"
        )
    found = [place for place in places if place is not None]
    groups = {(place.run.id, place.group): (place.run, place.group) for place in found if place.run is not None}
    source.store.warm(source.roots, list(groups.values()), wanted)
    return seek.taken(found, wanted)


def _places(seek: Seek, keys: Sequence[Key]) -> list[Place | None]:
    tablets = tablets_of_keys(seek.path.relation, keys) if keys else []
    runs: dict[TabletId, list[Run]] = {}
    for run in seek.source.snapshot.level1:
        runs.setdefault(run.tablet, []).append(run)
    found: list[Place | None] = []
    open_keys: list[tuple[int, Key, list[tuple[Run, int]]]] = []
    for number, (key, tablet) in enumerate(zip(keys, tablets, strict=True)):
        hit = _in_layers(seek, key)
        found.append(hit if isinstance(hit, Place) else None)
        if hit is None:
            open_keys.append((number, key, _candidates(seek, key, runs.get(tablet, []))))
    groups = {(run.id, group): (run, group) for _, _, candidates in open_keys for run, group in candidates}
    seek.source.store.warm(seek.source.roots, list(groups.values()), seek.key)
    for number, key, candidates in open_keys:
        found[number] = next((p for c in candidates if (p := _in_group(seek, key, *c)) is not None), None)
    return found


def _in_layers(seek: Seek, key: Key) -> Place | bool | None:
    """The newest mutation of the key: its place, `True` for a tombstone, `None` if there is none."""
    layers = seek.overlay.layers
    named = key_of(key)
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        at = layer.places.get(named)
        if at is not None:
            return True if layer.dead is not None and layer.dead[at] else Place(None, number, at)
    return None


def _candidates(seek: Seek, key: Key, runs: Sequence[Run]) -> list[tuple[Run, int]]:
    edge = Edge(_ranks(seek, key))
    interval = Interval(edge, edge)
    columns = list(zip(seek.key, seek.directions, strict=True))
    return [
        (run, group)
        for run in runs
        for group, span in enumerate(seek.source.store.footer(seek.source.roots, run).spans(columns))
        if interval.may_hold(*span)
    ]


def _ranks(seek: Seek, key: Key) -> v.Ranks:
    return tuple(v.ranker(down)(value) for value, down in zip(key, seek.directions, strict=True))


def _in_group(seek: Seek, key: Key, run: Run, group: int) -> Place | None:
    columns = seek.source.store.columns(seek.source.roots, run, group, seek.key)
    arrays = [v.plain(columns[c.physical]) for c in seek.key]
    rankers = [v.ranker(down) for down in seek.directions]
    wanted = _ranks(seek, key)

    def ranks(at: int) -> v.Ranks:
        return tuple(ranker(array[at].as_py()) for ranker, array in zip(rankers, arrays, strict=True))

    count = len(arrays[0])
    at = bisect.bisect_left(range(count), wanted, key=ranks)
    return Place(run, group, at) if at < count and ranks(at) == wanted else None
