"""Statements about handlers, carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, assert_never

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model.handlers import DEFAULT, DICTIONARY, Handler, Input, by_name, is_reserved, with_settings
from ebla.model.scopes import HANDLERS
from ebla.relations import handlers as stored
from ebla.relations import jobs
from ebla.spark.result import Result, named_like
from ebla.sql import statements as st
from ebla.validate import Issue, require_handler, warehouse

if TYPE_CHECKING:
    from ebla.api.database import Database


def run(database: Database, statement: st.HandlerStatement) -> Result:
    context = database.context
    catalog, node = context.catalog, context.node
    match statement:
        case st.CreateHandler():
            warned = create(catalog, node, statement)
            if warned is not None and not statement.asynchronous:
                database.statements.operations.views.arrivals.flush(*statement.views)
            if warned:
                database.wake()
                table = pa.table({"warning": [i.message for i in warned], "hint": [i.hint for i in warned]})
                return Result(table=table, spark=lambda: context.spark)
        case st.DropHandler(name=name, if_exists=if_exists):
            drop(catalog, node, name, if_exists=if_exists)
        case st.AlterHandler(name=name, options=options):
            alter(catalog, node, name, options)
        case st.ShowHandlers(like=like):
            with catalog.reading() as connection:
                return Result(table=named_like(stored.table(connection), like), spark=lambda: context.spark)
        case st.ShowJobs(what=what, like=like):
            with catalog.reading() as connection:
                return Result(
                    table=named_like(_jobs(connection, what, catalog.clock()), like),
                    spark=lambda: context.spark,
                )
        case _:
            assert_never(statement)
    database.wake()
    return Result(table=pa.table({}), spark=lambda: context.spark)


def _jobs(connection: Connection, what: Literal["jobs", "runners", "commands"], now: int) -> pa.Table:
    match what:
        case "jobs":
            return jobs.jobs_table(connection, now)
        case "runners":
            return jobs.runners_table(connection, now)
        case "commands":
            return jobs.commands_table(connection)


def create(catalog: Catalog, node: NodeId, statement: st.CreateHandler) -> tuple[Issue, ...] | None:
    """Make a handler; returns the warnings about it, `None` if there is one already."""
    warned: tuple[Issue, ...] = ()

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        present = stored.handlers(connection)
        if statement.if_not_exists and not is_reserved(statement.name) and by_name(present, statement.name):
            return None
        nonlocal warned
        warned = require_handler(statement, warehouse.read(connection, handlers=stored.by_names(connection)))
        made = Handler(
            name=statement.name,
            views=tuple(reads.relation(connection, v).id for v in statement.views),
            inputs=tuple(
                Input(relation=reads.relation(connection, i.name).id, batch=i.batch, changefeed=i.changefeed)
                for i in statement.inputs
            ),
            consumer=statement.consumer,
        )
        updates = [stored.put(with_settings(made, statement.options))]
        if made.batch and by_name(present, DICTIONARY) is None:
            updates.append(stored.put(Handler(name=DICTIONARY)))
        return c.Decision(reason=f"create handler {statement.name}", updates=tuple(updates))

    return None if catalog.decide(decide, node=node) is None else warned


def drop(catalog: Catalog, node: NodeId, name: str, *, if_exists: bool = False) -> bool:
    def decide(connection: Connection, at: Version) -> c.Decision | None:
        if is_reserved(name):
            raise UsageError(f"handler {name}: expected one that was created, found one of the system's own")
        found = by_name(stored.handlers(connection), name)
        if found is None:
            if if_exists:
                return None
            raise _unknown(connection, name)
        gone = c.RemoveHandler(name=found.name)
        return c.Decision(reason=f"drop handler {found.name}", updates=(gone,), guards=frozenset({HANDLERS}))

    return catalog.decide(decide, node=node) is not None


def alter(catalog: Catalog, node: NodeId, name: str, options: Mapping[str, object]) -> None:
    """Change settings. `default` and `sys$dictionary` have a row only once a statement has changed them."""

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        found = by_name(stored.handlers(connection), name)
        if found is None and name.lower() in (DEFAULT, DICTIONARY):
            found = Handler(name=name.lower())
        if found is None:
            raise _unknown(connection, name)
        changed = with_settings(found, options)
        reason = f"alter handler {found.name}: {', '.join(options)}"
        return c.Decision(reason=reason, updates=(stored.put(changed),), guards=frozenset({HANDLERS}))

    catalog.decide(decide, node=node)


def _unknown(connection: Connection, name: str) -> UnknownNameError:
    names = [h.name for h in stored.handlers(connection) if not is_reserved(h.name)]
    have = f"handlers are {', '.join(names)}" if names else f"there is only {DEFAULT}"
    return UnknownNameError(f"handler {name}: expected a handler of this name, found none; {have}")
