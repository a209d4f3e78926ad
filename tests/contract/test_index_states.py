"""What the catalog does with the states of indexes: each step once, in order, and what goes with it."""

from __future__ import annotations

import pytest

from ebla.base.ids import RelationId
from ebla.catalog import index_states
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.index import LIFE, Permission
from ebla.model.relation import Kind
from support.catalogs import add, commit, create, create_index, dump, exclusively, new_relation, relation, run, visible

IN_MEMORY = True
FORWARD = (Permission.WRITE_AND_DELETE, Permission.BACKFILLING, Permission.READ_WRITE_AND_DELETE)


def state(catalog: Catalog, index: RelationId) -> index_states.IndexState | None:
    with catalog.reading() as connection:
        return index_states.of_index(connection, index)


def walk(catalog: Catalog, index: RelationId, *states: Permission) -> None:
    for one in states:
        exclusively(catalog, c.SetIndexState(index=index, state=one))


def test_only_steps_that_there_are(catalog: Catalog):
    base = create(catalog, "orders")
    for number, wrong in enumerate(Permission):
        if LIFE.allows(Permission.DELETE_ONLY, wrong):
            continue
        index = create_index(catalog, base, f"i{number}")
        before = dump(catalog)
        with pytest.raises(ConflictError, match=f"expected a state before {wrong}, found delete_only"):
            exclusively(catalog, c.SetIndexState(index=index, state=wrong))
        assert dump(catalog) == before


def test_filling_begins_empty_at_its_own_version(catalog: Catalog):
    base = create(catalog, "orders")
    index = create_index(catalog, base)
    walk(catalog, index, Permission.WRITE_AND_DELETE)
    add(catalog, run(index, id="early"))
    walk(catalog, index, Permission.BACKFILLING)
    found = state(catalog, index)
    assert found is not None
    assert found.read_version == found.since == catalog.version()
    assert visible(catalog, relation(catalog, "by_total")) == set()
    add(catalog, run(index, id="late"))
    walk(catalog, index, Permission.READ_WRITE_AND_DELETE)
    assert visible(catalog, relation(catalog, "by_total")) == {"late"}


def test_an_emptied_base_empties_its_indexes_and_moves_what_is_read(catalog: Catalog):
    base = create(catalog, "orders")
    filling, ready = create_index(catalog, base, "filling"), create_index(catalog, base, "ready")
    walk(catalog, filling, *FORWARD[:2])
    walk(catalog, ready, *FORWARD)
    before = state(catalog, ready)
    add(catalog, run(base.id, id="rows"), run(filling, id="some"), run(ready, id="all"))
    commit(catalog, c.TruncateRelation(relation=base.id))
    for name in ("orders", "filling", "ready"):
        assert visible(catalog, relation(catalog, name)) == set()
    found = state(catalog, filling)
    assert found is not None
    assert found.read_version == catalog.version()
    assert state(catalog, ready) == before


def test_a_dropped_base_takes_its_indexes_along(catalog: Catalog):
    base = create(catalog, "orders")
    index = create_index(catalog, base)
    commit(catalog, c.DropRelation(relation=base.id))
    assert state(catalog, index) is None
    with catalog.reading() as connection:
        assert index_states.all_states(connection) == []
    create_index(catalog, create(catalog, "orders"))  # both names are free


def test_the_last_step_removes_the_relation(catalog: Catalog):
    base = create(catalog, "orders")
    index = create_index(catalog, base)
    walk(catalog, index, Permission.REMOVING_DELETES, Permission.ABSENT)
    assert state(catalog, index) is None
    create_index(catalog, base)


def test_a_deferred_index_is_absent_until_it_is_asked_for(catalog: Catalog):
    base = create(catalog, "orders")
    made = exclusively(catalog, new_relation("late", kind=Kind.INDEX), c.CreateIndex(base=base.id, deferred=True))
    assert made.relation is not None
    found = state(catalog, made.relation)
    assert found is not None
    assert found.state is Permission.ABSENT
    commit(catalog, c.SetProgress(name="x", value="1"))
    walk(catalog, made.relation, Permission.DELETE_ONLY, *FORWARD)
