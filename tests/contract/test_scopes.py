"""Exclusive decisions in different scopes do not conflict, and those in one scope do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from ebla.base.ids import NodeId, RelationId, TabletId, Version
from ebla.catalog import memory, rows, topology
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import Kind, Relation
from ebla.model.scopes import (
    DROPPED,
    HANDLERS,
    SCHEMA,
    TOPOLOGY,
    Scope,
    around,
    is_of_tablet,
    of_relation,
    of_tablet,
    of_tablets,
)
from ebla.model.tasks import Replica
from ebla.model.topology import TransitionKind
from ebla.model.topology_changes import AddNode
from support.catalogs import COLUMNS, NODE, create, create_index, dump, exclusively, member, new_relation, put_nodes

IN_MEMORY = True


def read(catalog: Catalog) -> Version:
    with catalog.reading() as connection:
        return Version(memory.counters(connection)["exclusive_version"])


def step(at: Version, *guards: Scope, updates: tuple[c.Update, ...] = (), moves: tuple[Scope, ...] = ()) -> c.Decision:
    """A decision that was made from some scopes, as they were at a version."""
    guard = c.ExclusiveVersionIs(version=at, scopes=frozenset(guards))
    return c.Decision(reason="test", requires=(guard,), updates=updates, exclusive=True, moves=frozenset(moves))


MOVES: dict[str, Callable[[Relation], tuple[Scope, c.Update]]] = {
    "columns": lambda r: (of_relation(r.id), c.SetColumns(relation=r.id, columns=COLUMNS)),
    "comment": lambda r: (of_relation(r.id), c.SetRelationComment(relation=r.id, comment="new")),
    "name": lambda r: (of_relation(r.id), c.RenameRelation(relation=r.id, name="other")),
    "placement": lambda r: (of_relation(r.id), c.SetPlacement(relation=r.id, placement=r.placement)),
    "drop": lambda r: (SCHEMA, c.DropRelation(relation=r.id)),
    "new relation": lambda r: (SCHEMA, new_relation("new")),
    "new reader": lambda r: (of_relation(r.id), replace(new_relation("new", kind=Kind.VIEW), reads=(r.id,))),
    "node": lambda r: (TOPOLOGY, AddNode(node=member("node2"))),
    "handler": lambda r: (HANDLERS, c.PutHandler(name="shop", settings="{}", should_run=True)),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_commit_is_in_the_way_of_its_own_scope_alone(catalog: Catalog, name: str):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    at = read(catalog)
    scope, update = MOVES[name](target)
    catalog.commit(step(at, scope, updates=(update,)))
    before = dump(catalog)
    with pytest.raises(ConflictError, match=f"{scope}: expected version {at}, found {catalog.version()}") as refused:
        catalog.commit(step(at, scope))
    assert refused.value.retryable
    with pytest.raises(ConflictError, match=f"schema and topology: expected version {at}"):
        catalog.commit(step(at))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, of_relation(other.id), scope))
    assert dump(catalog) == before
    late = c.SetRelationComment(relation=other.id, comment="unrelated")
    catalog.commit(step(at, of_relation(other.id), updates=(late,)))


def test_a_new_index_is_in_the_way_of_what_is_done_to_its_base(catalog: Catalog):
    base, at = create(catalog, "orders"), read(catalog)
    index = create_index(catalog, base)
    with pytest.raises(ConflictError, match=f"relation/{base.id}: expected version {at}"):
        catalog.commit(step(at, of_relation(base.id)))
    at = read(catalog)
    exclusively(catalog, c.SetIndexState(index=index, state=Permission.WRITE_AND_DELETE))
    catalog.commit(step(at, of_relation(base.id)))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, of_relation(index)))


def test_a_step_of_a_tablet_meets_steps_of_it_and_of_all_tablets(catalog: Catalog):
    target = create(catalog, "orders")
    first, second = (of_tablet(target.id, TabletId(t)) for t in (1, 2))
    at = read(catalog)
    catalog.commit(step(at, first, moves=(first,)))
    exclusively(catalog, c.SetColumns(relation=target.id, columns=COLUMNS))
    catalog.commit(step(at, second, moves=(second,)))
    with pytest.raises(ConflictError, match=f"relation/{target.id}/tablet/1: expected version {at}"):
        catalog.commit(step(at, first))
    at = read(catalog)
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=target.placement))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, second))
    assert around(first) == {first, of_tablets(target.id), DROPPED, Scope("everything")}


# ---- steps of tablets and statements --------------------------------------------------------------------


@pytest.fixture
def moving(catalog: Catalog) -> Relation:
    """A table with a tablet in transition."""
    put_nodes(catalog, NODES[1])
    target = create(catalog, "orders")
    exclusively(catalog, beginning(target, 0))
    return target


def beginning(target: Relation, tablet: int) -> t.BeginTransition:
    return t.BeginTransition(
        tablet=(target.id, TabletId(tablet)),
        kind=TransitionKind.MIGRATION,
        leaving=Replica(NODES[0], 0),
        pending=Replica(NODES[1], 0),
    )


def advance(target: Relation, stage: Stage, to: Stage) -> t.AdvanceTransition:
    return t.AdvanceTransition(tablet=(target.id, TabletId(0)), stage=stage, to=to)


NODES = NODE, NodeId("node2")
OLD, BOTH = Stage.ALLOW_WRITE_BOTH_READ_OLD, Stage.WRITE_BOTH_READ_OLD
STATEMENTS: dict[str, Callable[[Relation], tuple[frozenset[Scope], tuple[c.Update, ...]]]] = {
    "ALTER TABLE": lambda r: (frozenset({of_relation(r.id)}), (c.SetColumns(relation=r.id, columns=COLUMNS),)),
    "COMMENT": lambda r: (frozenset({of_relation(r.id)}), (c.SetRelationComment(relation=r.id, comment="new"),)),
    "CREATE INDEX": lambda r: (
        frozenset({SCHEMA, of_relation(r.id)}),
        (replace(new_relation("by_total", kind=Kind.INDEX), number=RelationId(77)), c.CreateIndex(base=r.id)),
    ),
    "CREATE TABLE": lambda r: (frozenset({SCHEMA, TOPOLOGY}), (new_relation("new"),)),
    "CREATE MATERIALIZED VIEW": lambda r: (
        frozenset(),
        (replace(new_relation("new", kind=Kind.VIEW), reads=(r.id,)),),
    ),
    "DROP TABLE": lambda r: (frozenset(), (c.DropRelation(relation=RelationId(r.id - 1)),)),  # the one before it
}


@pytest.mark.parametrize("is_step_first", [True, False], ids=["step first", "statement first"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_stage_of_a_tablet_and_a_statement_that_began_together_are_both_committed(
    catalog: Catalog, name: str, is_step_first: bool
):
    put_nodes(catalog, NODES[1])
    create(catalog, "customers")
    target = create(catalog, "orders")
    exclusively(catalog, beginning(target, 0))
    at = read(catalog)
    guards, updates = STATEMENTS[name](target)
    both = [
        step(at, of_tablet(target.id, TabletId(0)), TOPOLOGY, updates=(advance(target, OLD, BOTH),)),
        step(at, *guards, updates=updates),
    ]
    for one in both if is_step_first else reversed(both):
        catalog.commit(one)
    with catalog.reading() as connection:
        assert topology.transitions(connection)[target.id, TabletId(0)].stage is BOTH


@pytest.mark.parametrize(
    "update",
    [
        lambda r: c.DropRelation(relation=r.id),
        lambda r: c.SetPlacement(relation=r.id, placement=r.placement),
        lambda r: t.SetReplication(relation=r.id, replication=2),
        lambda r: beginning(r, 1),
        lambda r: advance(r, OLD, BOTH),
        lambda r: t.FailTransition(tablet=(r.id, TabletId(0)), stage=OLD, failure="the disk is full"),
        lambda r: AddNode(node=member("node3")),
    ],
    ids=["drop", "placement", "replication", "another begins", "another step", "a failure", "a node"],
)
def test_a_step_of_a_tablet_is_refused_behind_what_it_was_made_from(
    catalog: Catalog, moving: Relation, update: Callable[[Relation], c.Update]
):
    at = read(catalog)
    exclusively(catalog, update(moving))
    with pytest.raises(ConflictError, match="expected version"):
        catalog.commit(step(at, of_tablet(moving.id, TabletId(0)), TOPOLOGY, updates=(advance(moving, OLD, BOTH),)))


def test_the_end_of_a_transition_meets_what_was_made_from_where_tablets_lie(catalog: Catalog, moving: Relation):
    for stage, to in pairwise((OLD, Stage.CLEANUP_TARGET, Stage.REVERT_MIGRATION)):
        exclusively(catalog, advance(moving, stage, to))
    at = read(catalog)
    place = moving.id, TabletId(0)
    exclusively(catalog, c.SetRelationComment(relation=moving.id, comment="meanwhile"))
    end = t.EndTransition(tablet=place, stage=Stage.REVERT_MIGRATION)
    catalog.commit(step(at, of_tablet(*place), TOPOLOGY, updates=(end,)))
    with pytest.raises(ConflictError, match=f"relation/{moving.id}: expected version {at}"):
        catalog.commit(step(at, SCHEMA, of_relation(moving.id)))  # as an index is created
    with pytest.raises(ConflictError, match=f"relation/{moving.id}/tablet/0: expected version {at}"):
        catalog.commit(step(at, of_tablet(*place)))
    with catalog.reading() as connection:
        kept = {row.scope for row in rows.find(connection, s.guards)}
    assert of_tablets(moving.id) in kept
    assert not any(is_of_tablet(scope) for scope in kept), "a tablet that rests needs none of its own"


def test_a_decision_without_guards_is_in_the_way_of_all_that_it_may_have_moved(catalog: Catalog):
    target, at = create(catalog, "orders"), read(catalog)
    catalog.commit(step(at))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, of_relation(target.id)))


def test_a_commit_of_an_older_release_counts_for_every_scope(catalog: Catalog):
    target, at = create(catalog, "orders"), read(catalog)
    with catalog.writing() as connection:  # as a process does that knows of no scopes
        memory.put(connection, "exclusive_version", memory.advance(connection, "version"))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, of_relation(target.id)))
    exclusively(catalog, new_relation("behind"))  # does not hide it
    with pytest.raises(ConflictError):
        catalog.commit(step(at, of_relation(target.id)))
    exclusively(catalog, c.SetRelationComment(relation=target.id, comment="new"))
    at = read(catalog)
    exclusively(catalog, new_relation("others"))
    catalog.commit(step(at, of_relation(target.id)))


def test_a_decision_in_another_scope_is_not_made_again(catalog: Catalog):
    target = create(catalog, "orders")
    made = 0

    def comment(connection: object, at: Version) -> c.Decision:
        nonlocal made
        made += 1
        if made == 1:
            exclusively(catalog, new_relation("meanwhile"))
        update = c.SetRelationComment(relation=target.id, comment="new")
        return c.Decision(reason="test", updates=(update,), guards=frozenset({of_relation(target.id)}))

    catalog.decide(comment)
    assert made == 1
    with catalog.reading() as connection:
        assert {row.scope for row in rows.find(connection, s.guards)} >= {"schema", f"relation/{target.id}"}
