"""Exclusive decisions in different scopes do not conflict, and those in one scope do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ebla.base.ids import TabletId, Version
from ebla.catalog import memory, rows
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Kind, Relation
from ebla.model.scopes import DROPPED, HANDLERS, SCHEMA, TOPOLOGY, Scope, around, of_relation, of_tablet
from ebla.model.topology_changes import AddNode
from support.catalogs import COLUMNS, create, create_index, dump, exclusively, member, new_relation

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


def test_a_step_of_a_tablet_meets_steps_of_it_and_of_its_relation(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    first, second = (of_tablet(target.id, TabletId(t)) for t in (1, 2))
    at = read(catalog)
    catalog.commit(step(at, first, moves=(first,)))
    exclusively(catalog, c.SetColumns(relation=other.id, columns=COLUMNS))
    catalog.commit(step(at, second, moves=(second,)))
    with pytest.raises(ConflictError, match=f"relation/{target.id}/tablet/1: expected version {at}"):
        catalog.commit(step(at, first))
    at = read(catalog)
    exclusively(catalog, c.SetColumns(relation=target.id, columns=COLUMNS))
    with pytest.raises(ConflictError):
        catalog.commit(step(at, second))
    assert around(first) == {first, of_relation(target.id), DROPPED, Scope("everything")}


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
