"""Statements about indexes, carried out; and the thread that carries on what was begun."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ebla.build.states import Permission
from ebla.catalog import indexing
from ebla.errors import EblaError
from ebla.ids import RelationId
from ebla.indexes import create, definition, drive, table
from ebla.result import Result
from ebla.sql import statements as st

if TYPE_CHECKING:
    from ebla.database import Database

log = logging.getLogger("ebla.indexes")


class Indexes:
    """The indexes of one open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context = database.context
        self._lock = threading.Lock()
        self._walking: dict[RelationId, threading.Lock] = {}
        """One walks with the indexes of a base here; other processes are kept apart by the catalog."""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

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
            case st.ShowIndexes():
                with self._context.catalog.reading() as connection:
                    return Result(table=table.table(connection), spark=lambda: self._context.spark)
            case _:
                assert_never(statement)

    def _create(self, statement: st.CreateIndex) -> None:
        index = create.create_index(self._context, statement)
        if index is None or index.state is Permission.ABSENT:
            return
        if statement.asynchronous:
            self.carry_on()
            return
        self._walk(index.base.id, [index])

    def _walk_of(self, base: RelationId) -> threading.Lock:
        with self._lock:
            return self._walking.setdefault(base, threading.Lock())

    def _walk(self, base: RelationId, indexes: list[definition.Index]) -> None:
        """Step until these indexes are readable; raise the first one's error if they are not."""
        with self._walk_of(base):
            failures = drive.run(self._context, base)
        for index in indexes:
            if index.id in failures:
                raise failures[index.id]
            with self._context.catalog.reading() as connection:
                if indexing.of_index(connection, index.id) is None:
                    raise drive.why_gone(connection, index.id, index.name)

    def _drop(self, name: str, *, if_exists: bool) -> None:
        with self._context.catalog.reading() as connection:
            index = definition.find(connection, name) if if_exists else definition.load(connection, name)
        if index is None:
            return
        create.begin_removal(self._context, index.id, f"drop index {index.name}")
        with self._walk_of(index.base.id):
            drive.run(self._context, index.base.id)

    def _build(self, name: str) -> Result:
        found = create.ask_for_deferred(self._context, name)
        if found:
            self._walk(found[0].base.id, found)
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

    # ---- in the background ------------------------------------------------------------------------------

    def carry_on(self) -> None:
        """Walk on with whatever is unfinished, here in the background. Nothing starts if nothing is."""
        with self._context.catalog.reading() as connection:
            if not drive.unfinished(connection):
                return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="ebla-indexes", daemon=True)
                self._thread.start()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            with self._context.catalog.reading() as connection:
                bases = drive.unfinished(connection)
            if not bases:
                return
            for base in bases:
                try:
                    with self._walk_of(base):
                        more = True
                        while more and not self._stopping.is_set():
                            more = drive.step(self._context, base)
                except EblaError as error:
                    log.warning("relation=%d indexes wait reason=%s", base, error)
                    self._stopping.wait(1.0)
                except Exception:
                    if not self._stopping.is_set():
                        log.exception("relation=%d indexes wait", base)
                    self._stopping.wait(1.0)

    def wait(self) -> None:
        """Return when the background has nothing more to do."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
