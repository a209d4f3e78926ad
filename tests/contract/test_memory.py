"""What a process remembers of the catalog is what the catalog holds, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from sqlalchemy import update

from ebla.base.ids import Version
from ebla.catalog import memory, reads, topology
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, UnknownNameError
from ebla.model import changes as c
from ebla.model.relation import Relation
from support.catalogs import NODE, add, commit, create, exclusively, new_relation, run, statements


def test_a_relation_is_read_once_until_the_shape_changes(catalog: Catalog):
    create(catalog, "orders")

    def read() -> Relation:
        return catalog.read(lambda connection: reads.relation(connection, "orders"))

    first = read()
    with statements(catalog) as sent:
        assert read() is first
        assert len(sent) == 1, "the counters, which say that nothing has changed"
    add(catalog, run(first.id))  # rows are not shape
    with statements(catalog) as sent:
        assert read() is first
        assert len(sent) == 1
    exclusively(catalog, c.RenameRelation(relation=first.id, name="sales"))
    with pytest.raises(UnknownNameError):
        read()


def test_another_process_sees_a_change_of_shape_at_once(catalog: Catalog):
    target = create(catalog, "orders")
    other = Catalog.open(catalog.where, create=False)
    try:
        find: Callable[..., object] = lambda connection: reads.find_relation(connection, "orders")  # noqa: E731
        assert other.read(find) == catalog.read(find)
        exclusively(catalog, c.SetRelationComment(relation=target.id, comment="new"))
        assert other.read(find) == catalog.read(find)
        assert reads_comment(other) == "new"
        exclusively(other, c.DropRelation(relation=target.id))
        assert catalog.read(find) is None
    finally:
        other.close()


def reads_comment(catalog: Catalog) -> str | None:
    return catalog.read(lambda connection: reads.relation(connection, "orders")).comment


def test_what_was_read_in_a_transaction_that_is_undone_is_forgotten(catalog: Catalog):
    target = create(catalog, "orders")

    def undone() -> None:
        with catalog.writing() as connection:
            memory.reshape(connection)
            connection.execute(update(s.relations).values(comment="never"))
            assert reads.relation(connection, "orders").comment == "never"
            raise ConflictError("undone")

    with pytest.raises(ConflictError, match="undone"):
        undone()
    exclusively(catalog, c.SetRelationComment(relation=target.id, comment="true"))  # the same value of the counter
    assert reads_comment(catalog) == "true"


def test_a_reader_with_an_older_snapshot_keeps_it(catalog: Catalog):
    target = create(catalog, "orders")
    with catalog.reading() as connection:
        before = memory.counters(connection)["shape"]
        exclusively(catalog, c.SetRelationComment(relation=target.id, comment="new"))
        assert reads_comment(catalog) == "new"
        assert reads.relation(connection, "orders").comment is None
        assert memory.counters(connection)["shape"] == before
    assert reads_comment(catalog) == "new"


def test_a_connection_that_the_catalog_did_not_begin_remembers_nothing(catalog: Catalog):
    create(catalog, "orders")
    reads_comment(catalog)
    with catalog.engine.connect() as connection:
        connection.execute(update(s.relations).values(comment="by hand"))
        assert reads.relation(connection, "orders").comment == "by hand"


def test_every_kind_of_update_is_one_of_rows_or_changes_the_shape(catalog: Catalog):
    """What is remembered is read from tables that no update of rows writes."""
    assert set(c.ROWS_ONLY) < set(get_args(c.Update))
    remembered = {"relations", "columns", "tablets", "topology", "mv_handlers", "index_states", "view_builds"}
    target = create(catalog, "orders")
    with statements(catalog) as sent:
        commit(
            catalog,
            c.AddRuns(runs=(run(target.id),)),
            c.SetProgress(name="p", value="1"),
            c.OpenSession(session="s", purpose="test"),
            c.CloseSession(session="s"),
            c.SetProcessingBase(base=target.id),
        )
    written = {word for text in sent if not text.startswith("SELECT") for word in text.replace("ebla.", "").split()}
    assert not written & remembered
    with catalog.reading() as connection:
        shape = memory.counters(connection)["shape"]
    exclusively(catalog, new_relation("others"))
    with catalog.reading() as connection:
        assert memory.counters(connection)["shape"] > shape


def test_a_small_write_needs_ten_statements(catalog: Catalog):
    target = create(catalog, "orders")

    def write() -> Version:
        relation, transaction, _ = tx.begin_on(
            catalog, "orders", reads_nodes, node=NODE, holder="me", reason="write", lease_us=10**9
        )
        requires = (
            c.TransactionOpen(transaction=transaction.id),
            c.SchemaWithinOne(relation=relation.id, schema_version=relation.schema_version),
            c.IndexesFollow(base=relation.id, planned={}),
        )
        updates = (c.AddRuns(runs=(run(target.id),)), c.EndTransaction(transaction=transaction.id))
        return catalog.commit(c.Decision(reason="write", requires=requires, updates=updates)).version

    write()
    with statements(catalog) as sent:
        write()
    assert len(sent) <= 10, sent


def reads_nodes(connection: object, relation: object) -> object:
    return topology.members(connection)  # type: ignore[arg-type]
