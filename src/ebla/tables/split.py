"""Runs prepared for a split: cut for the tablets that are coming, or folded."""

from __future__ import annotations

from collections.abc import Collection

from ebla.base.ids import TabletId
from ebla.catalog import resizes
from ebla.model.relation import Relation, Run
from ebla.model.snapshot import Snapshot
from ebla.tables.compaction import compact
from ebla.tables.context import Context
from ebla.tables.cutting import crossing, cut_runs


def cut_for_split(context: Context, relation: Relation, tablets_now: Collection[TabletId]) -> int:
    """Cut the level 1 runs that some tablets of a relation or an index have and that cross the tablets that are coming;
    how many there were."""
    with context.catalog.reading() as connection:
        tablets = resizes.coming_tablets(connection, relation.id)
    if tablets is None:
        return 0

    def choose(snapshot: Snapshot) -> list[Run]:
        return crossing((run for run in snapshot.level1 if run.tablet in tablets_now), tablets)

    return cut_runs(context, relation.name, tablets, choose)


class Cutting:
    """What prepares runs for a resize, in one process."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def cut(self, relation: Relation, tablets: Collection[TabletId]) -> int:
        return cut_for_split(self._context, relation, tablets)

    def fold(self, relation: Relation) -> int:
        return compact(self._context, relation.name).folded_runs
