"""Handlers and the log of dictionary changes, as the catalog keeps them."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from ebla.base.ids import RelationId, Version
from ebla.catalog import memory, migrations, reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError
from ebla.model import changes as c
from support.catalogs import add, commit, create, exclusively, run

IN_MEMORY = True


def handlers(catalog: Catalog) -> list[tuple[str, str, bool]]:
    with catalog.reading() as connection:
        return reads.handler_rows(connection)


def changed(catalog: Catalog, relation: RelationId, since: int, until: int) -> list[list[str]]:
    with catalog.reading() as connection:
        return sorted(reads.dictionary_changes(connection, relation, since, until))


def change(relation: int, version: int, *columns: str, key: str = "[1]") -> c.DictionaryChange:
    return c.DictionaryChange(relation=RelationId(relation), version=Version(version), key=key, columns=columns)


def test_a_handler_is_put_replaced_and_removed(catalog: Catalog):
    exclusively(catalog, c.PutHandler(name="shop", settings="{}", should_run=True))
    exclusively(catalog, c.PutHandler(name="other", settings='{"a": 1}', should_run=True))
    exclusively(catalog, c.PutHandler(name="shop", settings='{"b": 2}', should_run=False))
    assert handlers(catalog) == [("other", '{"a": 1}', True), ("shop", '{"b": 2}', False)]
    exclusively(catalog, c.RemoveHandler(name="shop"))
    assert handlers(catalog) == [("other", '{"a": 1}', True)]


def test_of_two_changes_of_handlers_that_read_the_same_state_one_is_refused(catalog: Catalog):
    with catalog.reading() as connection:
        at = Version(memory.counters(connection)["exclusive_version"])
    exclusively(catalog, c.PutHandler(name="shop", settings="{}", should_run=True))
    late = c.Decision(
        reason="late",
        requires=(c.ExclusiveVersionIs(version=at),),
        updates=(c.PutHandler(name="shop", settings="late", should_run=True),),
    )
    with pytest.raises(ConflictError):
        catalog.commit(late)
    assert handlers(catalog) == [("shop", "{}", True)]


def test_logged_changes_are_read_by_version_and_forgotten_by_version(catalog: Catalog):
    commit(
        catalog,
        c.LogDictionaryChanges(
            changes=(
                change(1, 5, "name"),
                change(1, 5, "name", key="[2]"),
                change(1, 7, "*", key="null"),
                change(2, 6, "rate"),
            )
        ),
    )
    assert changed(catalog, RelationId(1), 0, 9) == [["*"], ["name"]]
    assert changed(catalog, RelationId(1), 5, 9) == [["*"]]
    assert changed(catalog, RelationId(1), 4, 6) == [["name"]]
    assert changed(catalog, RelationId(2), 6, 9) == []
    commit(catalog, c.ForgetDictionaryChanges(relation=RelationId(1), version=Version(5)))
    assert changed(catalog, RelationId(1), 0, 9) == [["*"]]
    assert changed(catalog, RelationId(2), 0, 9) == [["rate"]]


def test_the_log_and_the_position_move_together(catalog: Catalog):
    decision = c.Decision(
        reason="gather",
        requires=(c.ProgressIs(name="sys$dictionary", value="old"),),
        updates=(
            c.LogDictionaryChanges(changes=(change(1, 5, "name"),)),
            c.SetProgress(name="sys$dictionary", value="new"),
        ),
    )
    with pytest.raises(ConflictError):
        catalog.commit(decision)
    with catalog.reading() as connection:
        assert reads.progress(connection, "sys$dictionary") is None
    assert changed(catalog, RelationId(1), 0, 9) == []


def test_the_first_write_after_a_version(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "other")
    first = add(catalog, run(target.id))
    add(catalog, run(other.id))
    cut = commit(catalog, c.TruncateRelation(relation=target.id)).version
    last = add(catalog, run(target.id))

    def after(version: int) -> Version | None:
        with catalog.reading() as connection:
            return reads.first_write_after(connection, target.id, version)

    assert [after(0), after(first), after(cut), after(last)] == [first, cut, last, None]


@pytest.mark.database
def test_a_catalog_of_the_release_before_gets_the_tables(catalog: Catalog):
    with catalog.writing() as connection:
        for table in (s.mv_handlers, s.mv_dictionary_changes):
            table.drop(connection)
        connection.execute(s.migrations.delete().where(s.migrations.c.number >= 2))
    again = Catalog.open(catalog.where, create=False)
    exclusively(again, c.PutHandler(name="shop", settings="{}", should_run=True))
    with again.reading() as connection:
        assert max(connection.execute(select(s.migrations.c.number)).scalars()) == migrations.MIGRATIONS[-1].number
    again.close()
    assert handlers(catalog) == [("shop", "{}", True)]
