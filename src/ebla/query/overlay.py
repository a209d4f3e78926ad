"""Level 0 over a path: which older rows it hides.

Small runs are merged into a few layers in memory. A run of more than `LAYER_ROWS_MAX` rows is sorted as the path is,
and stays in its file: its rows come as a stream, as those of level 1 do, and whether it has a row is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ebla.base.ids import NodeId, RelationId, RunId, TabletId
from ebla.model.relation import DELETED, SPANS_TABLETS, Column, Kind, Run
from ebla.model.snapshot import BEGINNING, Snapshot
from ebla.predicates.access import AccessPath, PathColumn
from ebla.query.run_keys import RunKeys, SortedRuns, Spot, UnsortedRuns, WantedKey
from ebla.storage import runs as rf
from ebla.storage.duck import Duck
from ebla.storage.files import Root
from ebla.storage.layers import LAYER_ROWS_MAX, Key, Layer, key_of
from ebla.storage.store import Store, tokens_of
from ebla.tables.level0 import in_memory
from ebla.values import token as tokens

FILES_MAX = 1_024
TOKENS_MAX = 8_000_000
"""The most rows of level 0 in files of an index that are found by tokens, with 8 bytes in memory for each."""
LEVEL1 = -1
IS_DELETED = Column(name=DELETED, physical=DELETED, type="boolean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Level 0 of a path: the runs that stay in their files, and whether rows can be sought with the others merged."""

    files: frozenset[RunId]
    seekable: bool
    level0_rows: int
    level1_rows: int


Divisions = dict[tuple[RelationId, tuple[PathColumn, ...]], Division]
"""By relation and order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a path's rows come from."""

    snapshot: Snapshot
    roots: Mapping[NodeId, Root]
    store: Store
    cache: rf.LevelZeroCache
    lookups: Duck
    level0_rows_max: int
    """The most rows of level 0 that are merged in memory."""
    divisions: Divisions = field(default_factory=dict)
    """What is known of level 0 of this snapshot and of others of the same version."""


class Place(NamedTuple):
    """Where a row lies: in a layer, or in a row group of a run, and its number there."""

    part: int
    """The number of the part of level 0, or `LEVEL1`."""
    run: Run | None
    """`None` in a layer."""
    group: int
    at: int


def division(source: Source, path: AccessPath) -> Division:
    found = source.divisions.get((path.relation.id, path.key))
    if found is None:
        found = source.divisions[path.relation.id, path.key] = _divided(source, path)
    return found


def _divided(source: Source, path: AccessPath) -> Division:
    level0 = source.snapshot.level0
    kept, _ = in_memory([run for run in level0 if run.rows <= LAYER_ROWS_MAX], source.level0_rows_max)
    merged = {run.id for run in kept}
    large = [run for run in level0 if run.id not in merged]
    files = [run for run in large if _is_sorted(source, path, run)]
    in_layers = sum(run.rows for run in level0) - sum(run.rows for run in files)
    by_token = 0 if path.identity == path.key else sum(run.rows for run in files)
    return Division(
        files=frozenset(run.id for run in files),
        seekable=in_layers <= source.level0_rows_max and len(files) <= FILES_MAX and by_token <= TOKENS_MAX,
        level0_rows=sum(run.rows for run in level0),
        level1_rows=sum(run.rows for run in source.snapshot.level1),
    )


def _is_sorted(source: Source, path: AccessPath, run: Run) -> bool:
    """Whether the run's file has the order of the path."""
    relation = path.relation
    if any(column.descending != (column.path in relation.descending) for column in path.key):
        return False
    if source.store.footer(source.roots, run).is_sorted:
        return True
    return not relation.descending and not (relation.kind is Kind.INDEX and run.tombstones)


class Overlay:
    """The parts of level 0, oldest first, each a layer or a run in its file."""

    def __init__(self, source: Source, path: AccessPath, files: frozenset[RunId]) -> None:
        self._source = source
        self._path = path
        self.parts = source.store.layers(source.roots, path, source.snapshot, source.cache, files)
        self.files = [(number, part) for number, part in enumerate(self.parts) if isinstance(part, Run)]
        self.numbers = {run.id: number for number, run in self.files}
        self._newer_runs: dict[tuple[int, TabletId], Sequence[Run]] = {}
        self._floats = any(column.type in ("float", "double") for column in path.relation.identity)
        self._places: list[list[Mapping[Key, int]]] = [[]]
        """For each part and the end, where the layers from there on have rows."""
        for part in reversed(self.parts):
            behind = self._places[-1]
            self._places.append([part.places, *behind] if isinstance(part, Layer) else behind)
        self._places.reverse()

    def layer(self, number: int) -> Layer:
        found = self.parts[number]
        assert isinstance(found, Layer)
        return found

    @property
    def layers(self) -> list[Layer]:
        return [part for part in self.parts if isinstance(part, Layer)]

    def has_layers(self, since: int = 0) -> bool:
        return bool(self._places[since])

    def hides(self, name: Key, since: int = 0) -> bool:
        """Whether a layer from number `since` on has written the row of this name."""
        for places in self._places[since]:  # noqa: SIM110 - `any` takes twice as long, and this is asked of every row
            if name in places:
                return True
        return False

    # ---- files ------------------------------------------------------------------------------------------

    @cached_property
    def has_tombstones(self) -> bool:
        """Whether a run in a file has."""
        return any(run.tombstones for _, run in self.files)

    @cached_property
    def files_count(self) -> bool:
        """Whether all rows count of all runs in files: none is folded in some tablets and not in others."""
        return self._source.snapshot.uniform_cutoff or all(run.tablet != SPANS_TABLETS for _, run in self.files)

    def replaced(self, places: Sequence[Place], names: Sequence[Key], *, by_tombstones: bool = False) -> list[bool]:
        """Of rows, whether a newer run that is in its file has written them, or their own is folded already.

        With `by_tombstones`, only runs are asked that have some.
        """
        tablets = [SPANS_TABLETS if place.run is None else place.run.tablet for place in places]
        found: list[int] | None = None
        if SPANS_TABLETS in tablets:
            of_names = tokens_of(self._path.relation, names)
            tablets, found = self._tablets(of_names), of_names.tolist()
        gone = [False] * len(places)
        if not self.files_count:
            for number, (place, tablet) in enumerate(zip(places, tablets, strict=True)):
                gone[number] = place.part != LEVEL1 and place.run is not None and not self._counts(place.run, tablet)
        newer = [self._newer(place.part, tablet) for place, tablet in zip(places, tablets, strict=True)]
        if by_tombstones:
            newer = [[run for run in runs if run.tombstones] for runs in newer]
        asked = [number for number, runs in enumerate(newer) if runs and not gone[number]]
        of_asked = None if found is None else [found[n] for n in asked]
        spots = self._found([names[n] for n in asked], [newer[n] for n in asked], of_asked)
        for number, spot in zip(asked, spots, strict=True):
            gone[number] = spot is not None
        return gone

    def _found(
        self, names: Sequence[Key], runs: Sequence[Sequence[Run]], found: Sequence[int] | None
    ) -> list[Spot | None]:
        """Where rows lie, each in the first of some files that has it. `found`: their tokens, if these are known."""
        if not names:
            return []
        keys = list(map(key_of, names)) if self._floats else names
        if self._path.identity == self._path.key:
            found = [0] * len(names)
        elif found is None:
            found = tokens_of(self._path.relation, names).tolist()
        return self._keys.find(list(map(WantedKey, keys, found, runs)))

    def newest(self, names: Sequence[Key]) -> list[tuple[Place | None, TabletId]]:
        """The place of the newest mutation of each row, if level 0 has one, and the tablet of the row."""
        keys = [key_of(name) for name in names]
        found = tokens_of(self._path.relation, names)
        tablets = self._tablets(found)
        in_layers = [self._in_layers(key) for key in keys]
        if not self.files:
            return list(zip(in_layers, tablets, strict=True))
        parts = [LEVEL1 if place is None else place.part for place in in_layers]
        runs = [self._newer(part, tablet) for part, tablet in zip(parts, tablets, strict=True)]
        spots = self._keys.find(list(map(WantedKey, keys, found.tolist(), runs)))
        return [
            (self._place(spot) or place, tablet) for spot, place, tablet in zip(spots, in_layers, tablets, strict=True)
        ]

    def is_dead(self, place: Place) -> bool:
        """Whether a mutation is a tombstone."""
        if place.run is None:
            dead = self.layer(place.part).dead
            return dead is not None and bool(dead[place.at])
        columns = self._source.store.columns(self._source.roots, place.run, place.group, [IS_DELETED])
        return place.run.tombstones > 0 and bool(columns[DELETED][place.at].as_py())

    def _place(self, spot: Spot | None) -> Place | None:
        return None if spot is None else Place(self.numbers[spot[0].id], *spot)

    def _in_layers(self, key: Key) -> Place | None:
        for number in range(len(self.parts) - 1, -1, -1):
            part = self.parts[number]
            if isinstance(part, Layer) and (at := part.places.get(key)) is not None:
                return Place(number, None, 0, at)
        return None

    def _tablets(self, found: npt.NDArray[np.int64]) -> list[TabletId]:
        return [TabletId(t) for t in tokens.tablets_of(found, self._path.relation.tablets).tolist()]

    def _newer(self, part: int, tablet: TabletId) -> Sequence[Run]:
        """The files, newest first, that are newer than a part and can have a row of a tablet."""
        found = self._newer_runs.get((part, tablet))
        if found is None:
            here = [*self._files_of.get(tablet, ()), *self._files_of.get(SPANS_TABLETS, ())]
            counting = sorted((one for one in here if one[0] > part and self._counts(one[1], tablet)), reverse=True)
            found = self._newer_runs[part, tablet] = [run for _, run in counting]
        return found

    @cached_property
    def _files_of(self) -> dict[TabletId, list[tuple[int, Run]]]:
        found: dict[TabletId, list[tuple[int, Run]]] = {}
        for number, run in self.files:
            found.setdefault(run.tablet, []).append((number, run))
        return found

    def _counts(self, run: Run, tablet: TabletId) -> bool:
        """Whether rows that the run has of a tablet are not folded there."""
        cutoff = self._source.snapshot.cutoffs.get(tablet, BEGINNING)
        return run.tablet in (SPANS_TABLETS, tablet) and run.begin_version > cutoff

    @cached_property
    def _keys(self) -> RunKeys:
        store, roots, path = self._source.store, self._source.roots, self._path
        columns = {column.physical: column for column in path.relation.columns}
        key: list[Column] = [columns[column.path] for column in path.identity]
        if path.identity == path.key:
            return SortedRuns(store, roots, key, [column.descending for column in path.key])
        return UnsortedRuns(store, roots, key)
