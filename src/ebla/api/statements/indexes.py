"""Statements about indexes, carried out. Building them is the builder's (`ebla.build.builder`)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ebla.api.statements import answers
from ebla.catalog import reads
from ebla.errors import CatalogUnavailableError, EblaError
from ebla.indexes import create, index_build, removal
from ebla.model.lifecycle.index import LIFE, RIGHTS, Permission
from ebla.model.relation import Kind
from ebla.relations import failed_builds as failed
from ebla.relations import index_table as table
from ebla.relations import indexes as definition
from ebla.relations.guard import require_kind
from ebla.relations.indexes import Index
from ebla.spark.result import Result, named_like
from ebla.sql import statements as st

if TYPE_CHECKING:
    from ebla.api.database import Database

_GOING = (Permission.REMOVING_WRITES, Permission.REMOVING_DELETES)


class Indexes:
    """The indexes of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context

    def run(self, statement: st.IndexStatement) -> Result:
        match statement:
            case st.CreateIndex():
                self._create(statement)
                return Result(table=pa.table({}))
            case st.DropIndex(name=name, if_exists=if_exists):
                self._drop(name, if_exists=if_exists)
                return Result(table=pa.table({}))
            case st.BuildIndexes(table=name):
                return self._build(name)
            case st.ShowIndexes(like=like):
                with self._context.catalog.reading() as connection:
                    return Result(table=named_like(table.table(connection), like), spark=lambda: self._context.spark)
            case st.ExplainIndex(name=name):
                with self._context.catalog.reading() as connection:
                    return explain(definition.load(connection, name))
            case _:
                assert_never(statement)

    def _create(self, statement: st.CreateIndex) -> None:
        context = self._context
        index = create.create_index(context.catalog, context.sessions, context.node, statement)
        if index is None or index.state is Permission.ABSENT:
            return
        if statement.asynchronous:
            self._database.wake()
            return
        try:
            self._database.waits.indexes.wait([index])
        except EblaError as error:
            # An index that cannot be built is not left behind half made; one that is tried again keeps what it has.
            if not error.goes_on and not isinstance(error, CatalogUnavailableError):
                with contextlib.suppress(EblaError):
                    self._remove(index, f"index {index.name} cannot be built: {type(error).__name__}: {error}")
                    failed.dismiss(self._context.catalog, index.name)  # the statement says why
            raise
        except KeyboardInterrupt:
            # What a statement that is cancelled had begun is gone, as if it had never been run.
            with contextlib.suppress(EblaError):
                self._remove(index, f"create index {index.name} was cancelled")
            raise
        finally:
            self._database.wake()

    def _drop(self, name: str, *, if_exists: bool) -> None:
        if failed.dismiss(self._context.catalog, name):
            return
        with self._context.catalog.reading() as connection:
            relation = reads.find_relation(connection, name)
            if relation is not None:
                require_kind(relation, Kind.INDEX, "DROP")
            index = definition.find(connection, name) if if_exists else definition.load(connection, name)
        if index is not None:
            self._remove(index, f"drop index {index.name}")
            failed.dismiss(self._context.catalog, name)  # it failed meanwhile

    def _remove(self, index: Index, reason: str) -> None:
        removal.begin_removal(self._context.catalog, self._context.node, index.id, reason)
        self._database.waits.indexes.wait_gone(index.id)

    def _build(self, name: str) -> Result:
        found = [
            index
            for index in index_build.ask_for_deferred(self._context.catalog, self._context.node, name)
            if index.state not in _GOING
        ]
        self._database.waits.indexes.wait(found)
        with self._context.catalog.reading() as connection:
            ids = {index.id for index in found}
            states = [(i.name, i.state.value) for i in definition.all_indexes(connection) if i.id in ids]
        return Result(
            table=pa.table(
                {
                    "index": pa.array([name for name, _ in states], pa.string()),
                    "state": pa.array([state for _, state in states], pa.string()),
                }
            )
        )


def explain(index: Index) -> Result:
    """The state of an index, what it permits, and which steps lead on from it."""
    rights = RIGHTS[index.state]
    queries = "queries read it" if rights.queries_read else "queries do not read it"
    rows = [word for word, is_so in (("add", rights.writers_add), ("remove", rights.writers_remove)) if is_so]
    writers = f"writers {' and '.join(rows)} entries" if rows else "writers leave it alone"
    lines = [
        f"index {index.name} of {index.base.name} ({', '.join(item.said for item in index.items)})",
        f"  state: {index.state}; {queries}; {writers}",
        *(f"    {way}" for way in LIFE.ways(index.state)),
    ]
    value = {"index": index.name, "relation": index.base.name, "rights": rights._asdict()}
    return answers.explained(lines, value | {"state": LIFE.value(index.state)}, LIFE.diagram())
