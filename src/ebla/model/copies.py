"""Copies of runs: on which nodes they have to be, and which are missing.

The manifest has a row for each copy of a run, written by the commit behind the file. So what is missing is known from
the manifest and the replicas of tablets alone: a run belongs on each replica of each tablet that it has rows of.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ebla.base.ids import NodeId, TabletId
from ebla.model.relation import SPANS_TABLETS, Relation, Run
from ebla.model.tablets import spread_over, tablets_over


class TooFew(NamedTuple):
    """A tablet of which a run has too few copies."""

    tablet: TabletId
    least: int
    copies: int


def tablets_with_rows(relation: Relation, run: Run) -> Collection[TabletId]:
    """The tablets that a run may have rows of."""
    if run.tablet != SPANS_TABLETS:
        return (run.tablet,)
    if run.spread is not None:
        return spread_over(run.spread, relation.tablets)
    return tablets_over(run.tokens, relation.tablets)


def too_few(relation: Relation, run: Run) -> TooFew | None:
    """The first tablet of a run that has it on fewer of its replicas than a commit needs."""
    written = frozenset(run.nodes)
    for tablet in tablets_with_rows(relation, run):
        replicas = relation.placement[tablet]
        least = min(relation.min_copies, len(replicas))
        copies = len(written.intersection(replicas))
        if copies < least:
            return TooFew(tablet, least, copies)
    return None


def missing(relation: Relation, run: Run) -> dict[NodeId, TabletId]:
    """The nodes that lack a copy of a run, each with the first of its tablets that has rows of it."""
    found: dict[NodeId, TabletId] = {}
    for tablet in tablets_with_rows(relation, run):
        for node in relation.placement[tablet]:
            if node not in run.nodes:
                found.setdefault(node, tablet)
    return found
