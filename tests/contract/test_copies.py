"""Copies of runs in the manifest: how many a commit needs, and those that are added later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RunId
from ebla.catalog import layouts, manifest
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import copies
from ebla.model.relation import Relation
from ebla.model.tablets import spread_of
from support.catalogs import (
    NODE,
    add,
    commit,
    create,
    create_index,
    dump,
    exclusively,
    new_relation,
    put_nodes,
    relation,
    run,
    snapshot,
)

B, C, D = map(NodeId, "bcd")
THREE = (NODE, B, C)


@pytest.fixture
def target(catalog: Catalog) -> Relation:
    put_nodes(catalog, B, C, D)
    return create(catalog, "orders", nodes=THREE)


def nodes_of(catalog: Catalog, target: Relation, name: str) -> set[NodeId]:
    found = snapshot(catalog, target)
    return {node for one in (*found.level0, *found.level1) if one.id == name for node in one.nodes}


def test_a_majority_of_the_replicas_is_enough(catalog: Catalog, target: Relation):
    assert target.min_copies == 2
    add(catalog, run(target.id, nodes=(NODE, C)), run(target.id, tablet=1, nodes=THREE))
    before = dump(catalog)
    with pytest.raises(ConflictError, match=r"at least 2 of the nodes node1, b, c of tablet 0, found 1 there"):
        add(catalog, run(target.id, nodes=(NODE,)))
    with pytest.raises(ConflictError, match=r"of tablet 1, found 1 there; its replicas moved during the write: retry"):
        add(catalog, run(target.id, tablet=1, nodes=(NODE, D)))  # what others have does not count
    assert dump(catalog) == before


def test_the_entries_of_an_index_are_counted_once_on_whichever_nodes_they_lie(catalog: Catalog):
    put_nodes(catalog, B, C)
    orders = create(catalog, "orders", tablets=2, nodes=(NODE, B))
    index = create_index(catalog, orders)
    moved = c.SetPlacement(relation=index, placement=((NODE, B), (B, C)))
    exclusively(catalog, moved)
    add(catalog, run(index, tablet=0, nodes=(NODE, B), rows=10), run(index, tablet=1, nodes=(B, C), rows=3))
    add(catalog, run(index, tablet=1, nodes=(C, B), rows=4))
    with catalog.reading() as connection:
        assert manifest.live(connection, relation(catalog, "by_total")) == (17, 1700)


def test_a_table_says_how_many_are_enough(catalog: Catalog):
    put_nodes(catalog, B, C)
    for least, nodes in ((1, (C,)), (3, THREE)):
        made = replace(new_relation(f"t{least}", nodes=THREE), options={"min_copies": least})
        exclusively(catalog, made)
        found = relation(catalog, f"t{least}")
        with catalog.reading() as connection:
            assert layouts.layouts(connection)[found.id].min_copies == found.min_copies == least
        add(catalog, run(found.id, nodes=nodes))
        with pytest.raises(ConflictError):
            add(catalog, run(found.id, nodes=(D, *nodes[1:])))


def test_replicas_that_moved_during_a_write_make_it_start_over_only_where_copies_lack(
    catalog: Catalog, target: Relation
):
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE, B, D), (NODE, B, C))))
    add(catalog, run(target.id, nodes=THREE))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE, D, C), (B, D, C))))
    add(catalog, run(target.id, tablet=0, nodes=THREE))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE, D, C), (D, C, NodeId("e")))))
    with pytest.raises(ConflictError, match=r"of tablet 1, found 1 there"):
        add(catalog, run(target.id, tablet=1, nodes=THREE))


def test_a_run_needs_copies_for_the_tablets_that_it_has_rows_of(catalog: Catalog, target: Relation):
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE,), (B,))))
    only_first = replace(run(target.id, id="first", nodes=(NODE,)), spread=spread_of([0], 2))
    with pytest.raises(ConflictError, match="of tablet 1"):
        add(catalog, replace(only_first, spread=None))
    add(catalog, only_first)
    now = relation(catalog, "orders")
    (kept,) = snapshot(catalog, now).level0
    assert copies.missing(now, kept) == {}
    assert copies.missing(now, replace(kept, spread=None)) == {B: 1}


def test_copies_are_added_where_they_belong_and_once(catalog: Catalog, target: Relation):
    add(catalog, run(target.id, id="one", nodes=(NODE, B)))
    with catalog.reading() as connection:
        (lacking,) = manifest.with_few_copies(connection, target)
    assert copies.missing(target, lacking) == {C: 0}
    wanted = ((RunId("one"), C), (RunId("one"), B), (RunId("one"), D), (RunId("gone"), C))
    commit(catalog, c.AddCopies(relation=target.id, copies=wanted))
    commit(catalog, c.AddCopies(relation=target.id, copies=wanted))
    assert nodes_of(catalog, target, "one") == {NODE, B, C}
    commit(catalog, c.EndRuns(relation=target.id, runs=frozenset({RunId("one")})))
    exclusively(catalog, c.SetHorizon(relation=target.id, horizon=catalog.version()))
    commit(catalog, c.AddCopies(relation=target.id, copies=wanted))
    with catalog.reading() as connection:
        assert manifest.with_few_copies(connection, target) == []


def test_what_other_nodes_have_makes_no_replica_complete(catalog: Catalog, target: Relation):
    """A run of each tablet, folded, with a copy where the tablet was before."""
    ids = [RunId(f"run{tablet}") for tablet in range(2)]
    for tablet, name in enumerate(ids):
        add(catalog, replace(run(target.id, id=name, tablet=tablet, nodes=THREE), level=1))
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE, B, D), (NODE, B, C))))
    now = relation(catalog, "orders")
    with catalog.reading() as connection:
        assert [one.id for one in manifest.with_few_copies(connection, now)] == [ids[0]]
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE, B, C), (NODE, B, D))))
    with catalog.reading() as connection:
        assert [one.id for one in manifest.with_few_copies(connection, now)] == [ids[1]]


def test_a_copy_of_a_relation_that_is_gone_is_not_added(catalog: Catalog, target: Relation):
    add(catalog, run(target.id, id="one", nodes=(NODE, B)))
    exclusively(catalog, c.DropRelation(relation=target.id))
    before = dump(catalog, without=["counters", "history"])
    commit(catalog, c.AddCopies(relation=target.id, copies=((RunId("one"), C),)))
    assert dump(catalog, without=["counters", "history"]) == before
