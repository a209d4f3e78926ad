"""Copies of runs: on which nodes they have to be, and which are missing.

The manifest has a row for each copy of a run, written by the commit behind the file. So what is missing is known from
the manifest and the replicas of tablets alone: a run belongs on each replica of each tablet that it has rows of. Which
replicas a tablet has for readers and writers while it moves says its stage (`ebla.model.lifecycle.tablet`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from ebla.base.ids import NodeId, TabletId
from ebla.model.relation import SPANS_TABLETS, Relation, Run
from ebla.model.tablets import spread_over, tablets_over


class CopyShortage(NamedTuple):
    """A tablet of which a run has too few copies."""

    tablet: TabletId
    nodes: tuple[NodeId, ...]
    least: int
    copies: int


def tablets_with_rows(relation: Relation, run: Run) -> Collection[TabletId]:
    """The tablets that a run may have rows of."""
    if run.tablet != SPANS_TABLETS:
        return (run.tablet,)
    over = tablets_over(run.tokens, relation.tablets)
    if run.spread is None:
        return over
    # A map with more tablets than the spread was made with has some beyond the first and the last token.
    return [tablet for tablet in spread_over(run.spread, relation.tablets) if over[0] <= tablet <= over[-1]]


def too_few(relation: Relation, run: Run) -> CopyShortage | None:
    """The first tablet of a run that has it on fewer of its replicas than a commit needs."""
    for tablet in tablets_with_rows(relation, run):
        for nodes in relation.required(tablet):
            if (lack := too_few_of(relation, run, tablet, nodes)) is not None:
                return lack
    return None


def too_few_of(relation: Relation, run: Run, tablet: TabletId, nodes: tuple[NodeId, ...]) -> CopyShortage | None:
    """Whether fewer nodes of a tablet have a run than a commit needs."""
    least, copies = min(relation.min_copies, len(nodes)), len(frozenset(run.nodes).intersection(nodes))
    return CopyShortage(tablet, nodes, least, copies) if copies < least else None


def missing(relation: Relation, run: Run) -> dict[NodeId, TabletId]:
    """The nodes that lack a copy of a run to read, each with the first of its tablets that has rows of it."""
    return _without(run, relation.reads_from, tablets_with_rows(relation, run))


def wanted(relation: Relation, run: Run) -> dict[NodeId, TabletId]:
    """The same with the nodes that tablets come to: those at which a copy may be added."""
    return _without(run, relation.writes_to, tablets_with_rows(relation, run))


def _without(
    run: Run, nodes_of: Callable[[TabletId], tuple[NodeId, ...]], tablets: Collection[TabletId]
) -> dict[NodeId, TabletId]:
    found: dict[NodeId, TabletId] = {}
    for tablet in tablets:
        for node in nodes_of(tablet):
            if node not in run.nodes:
                found.setdefault(node, tablet)
    return found


def readable(relation: Relation, run: Run) -> Run:
    """A run with the copies alone that the stages of its tablets let readers use; all, where that would be none."""
    read = {node for tablet in tablets_with_rows(relation, run) for node in relation.reads_from(tablet)}
    nodes = tuple(node for node in run.nodes if node in read)
    return replace(run, nodes=nodes) if nodes and nodes != run.nodes else run
