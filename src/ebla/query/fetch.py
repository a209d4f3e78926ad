"""Whole rows by key, for paths that do not have all columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ebla.base.ids import TabletId
from ebla.errors import CorruptRunError
from ebla.model.relation import Column, Run
from ebla.predicates.access import AccessPath
from ebla.query.overlay import LEVEL1, Place, Source
from ebla.query.plan import FittedPath
from ebla.query.run_keys import SortedRuns, WantedKey
from ebla.query.streams import Seek
from ebla.storage import runs as rf
from ebla.storage.layers import Key


def by_key(path: AccessPath) -> FittedPath:
    """The path as a way to single rows."""
    return FittedPath(
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
    return seek.taken([place for place in places if place is not None], wanted)


def _places(seek: Seek, keys: Sequence[Key]) -> list[Place | None]:
    """Where the row of each key is now; `None` if there is none."""
    if not keys:
        return []
    newest = seek.overlay.newest(keys)
    runs: dict[TabletId, list[Run]] = {}
    for run in seek.snapshot.level1:
        runs.setdefault(run.tablet, []).append(run)
    left = [(number, tablet) for number, (place, tablet) in enumerate(newest) if place is None]
    below = SortedRuns(seek.store, seek.roots, seek.key, seek.directions)
    spots = below.find([WantedKey(keys[number], 0, runs.get(tablet, ())) for number, tablet in left])
    found = [None if place is None or seek.overlay.is_dead(place) else place for place, _ in newest]
    for (number, _), spot in zip(left, spots, strict=True):
        found[number] = None if spot is None else Place(LEVEL1, *spot)
    return found
