"""Which relation reads which, as the catalog keeps it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import delete, update

from ebla.catalog import relations
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import Kind, Relation
from support.catalogs import create, dump, exclusively, new_relation, relation

IN_MEMORY = True


def create_view(catalog: Catalog, name: str, *inputs: Relation) -> Relation:
    made = replace(new_relation(name, kind=Kind.VIEW), reads=tuple(one.id for one in inputs))
    exclusively(catalog, made)
    return relation(catalog, name)


def test_dependencies_come_and_go_with_their_reader(catalog: Catalog):
    base, other = create(catalog, "orders"), create(catalog, "customers")
    first = create_view(catalog, "first", base, other, base)
    second = create_view(catalog, "second", base, first)
    with catalog.reading() as connection:
        assert {k: sorted(v) for k, v in relations.inputs(connection).items()} == {
            first.id: [base.id, other.id],
            second.id: [base.id, first.id],
        }
        assert relations.inputs(connection, [second.id, base.id]).keys() == {second.id}
        assert relations.readers(connection, base.id) == {first.id, second.id}
        assert relations.readers(connection, second.id) == set()
    exclusively(catalog, c.DropRelation(relation=first.id))
    with catalog.reading() as connection:
        assert relations.readers(connection, base.id) == {second.id}
        assert relations.readers(connection, other.id) == set()


@pytest.mark.database
def test_a_catalog_of_the_release_before_gets_its_dependencies(catalog: Catalog):
    """There, views had their inputs among their options, and there were no scopes."""
    base, other = create(catalog, "orders"), create(catalog, "customers")
    view, damaged = create_view(catalog, "card", base, other), create_view(catalog, "torn", base)
    exclusively(catalog, c.DropRelation(relation=create_view(catalog, "gone", base).id))
    with catalog.writing() as connection:
        for table in (s.dependencies, s.guards):
            table.drop(connection)
        connection.execute(delete(s.migrations).where(s.migrations.c.number >= 10))
        for one, options in ((view, json.dumps({"inputs": [base.id, other.id]})), (damaged, "torn {")):
            connection.execute(update(s.relations).where(s.relations.c.relation_id == one.id).values(options=options))
    again = Catalog.open(catalog.where, create=False, clock=catalog.clock)
    with again.reading() as connection:
        assert {k: sorted(v) for k, v in relations.inputs(connection).items()} == {view.id: [base.id, other.id]}
    before = dump(again)
    exclusively(again, c.SetRelationComment(relation=base.id, comment="new"))
    again.close()
    once_more = Catalog.open(catalog.where, create=False)
    assert dump(once_more)["dependencies"] == before["dependencies"]
    once_more.close()
