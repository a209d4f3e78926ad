"""The copies of a tablet's runs while it moves: which its new replicas lack, and which no replica needs any more.

Entries of an index lie where the rows of its base lie, so the runs of the indexes count as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from ebla.base.ids import NodeId, TabletId
from ebla.catalog import index_states, rows
from ebla.catalog import schema as s
from ebla.catalog.reads import merge_replicas, relation_by_id
from ebla.catalog.rows import Change, State
from ebla.errors import ConflictError
from ebla.model.copies import tablets_with_rows, too_few_of
from ebla.model.lifecycle.tablet import Replicas
from ebla.model.relation import Relation, Run
from ebla.model.tablets import token_range
from ebla.model.topology import Tablet


def runs_of(state: State, relation: Relation, tablet: TabletId) -> list[Run]:
    """The runs that have rows of a tablet, ended ones too, with all their copies."""
    tokens = token_range(tablet, relation.tablets)
    found = rows.find(state, s.runs, relation_id=relation.id, fork=rows.Overlapping((tokens,)))
    return [run for run in merge_replicas(found, relation.tablets) if tablet in tablets_with_rows(relation, run)]


def missing_copies(state: State, place: Tablet) -> list[tuple[Relation, Run, NodeId]]:
    """The copies that the new replicas of a tablet lack, of its relation and of the relation's indexes."""
    number, tablet = place
    relation = relation_by_id(state, number)
    if relation is None or tablet not in relation.moves:
        return []
    return [
        (one, run, node)
        for one in with_indexes(state, relation)
        for run in runs_of(state, one, tablet)
        for node in one.replicas(tablet, Replicas.NEW)
        if node not in run.nodes
    ]


def with_indexes(state: State, relation: Relation) -> Iterator[Relation]:
    """A relation and the indexes on it."""
    yield relation
    for one in index_states.of_base(state, relation.id):
        index = relation_by_id(state, one.index)
        if index is not None:
            yield index


def refuse_incomplete(state: State, relation: Relation, tablet: TabletId) -> None:
    """Readers of the new replicas find every run: the one that comes has all, and enough of the others have each."""
    pending = relation.moves[tablet].pending
    for one in with_indexes(state, relation):
        nodes = one.replicas(tablet, Replicas.NEW)
        for run in runs_of(state, one, tablet):
            lack = too_few_of(one, run, tablet, nodes)
            if (pending is not None and pending not in run.nodes) or lack is not None:
                raise ConflictError(
                    f"tablet {tablet} of {one.name}: expected run {run.id} on its new replicas {', '.join(nodes)}, "
                    f"found it on {', '.join(run.nodes)}; copy it first"
                )


def without_copies(
    state: State, relation: Relation, tablet: TabletId, after: tuple[NodeId, ...], node: NodeId | None
) -> list[Change]:
    """Without the copies on a node that no tablet of it needs any more. Their files are swept."""
    if node is None or node in after:
        return []
    kept = {one for one in map(TabletId, range(relation.tablets)) if one != tablet}
    kept = {one for one in kept if node in relation.replicas(one, Replicas.BOTH)}
    gone = frozenset(
        run.id
        for run in runs_of(state, relation, tablet)
        if node in run.nodes and not kept.intersection(tablets_with_rows(relation, run))
    )
    return [rows.delete(s.runs, relation_id=relation.id, run_id=gone, host_id=node)] if gone else []
