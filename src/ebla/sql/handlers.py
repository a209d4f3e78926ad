"""Statements about handlers: which views are kept together, and how their inputs are followed."""

from __future__ import annotations

from ebla.sql import ddl
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind
from ebla.sql.statements import AlterHandler, CreateHandler, DropHandler, HandlerInput, Statement


def create_handler(cursor: Cursor) -> Statement:
    """`[ASYNC] HANDLER [IF NOT EXISTS] h [CONSUMER c] [PROCESS v, …,] [INPUT t [CHANGEFEED f] AS STREAM|BATCH, …]`.

    Commas between the parts are optional. `WITH (…)` at the end holds settings.
    """
    asynchronous = cursor.accept("ASYNC")
    cursor.expect("HANDLER")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name_at = cursor.peek().start
    name = cursor.name("the name of a handler")
    consumer: str | None = None
    views: list[str] = []
    places: list[int] = []
    inputs: list[HandlerInput] = []
    options: dict[str, object] = {}
    while cursor.peek().kind is not Kind.END:
        if cursor.accept(","):
            continue
        if consumer is None and cursor.accept("CONSUMER"):
            consumer = cursor.name("the name of a consumer")
        elif cursor.sees("PROCESS") and cursor.sees_name(1):
            cursor.at += 1
            _views(cursor, views, places)
        elif cursor.sees("INPUT") and cursor.sees_name(1):
            cursor.at += 1
            inputs.append(_input(cursor))
        elif cursor.sees("WITH"):
            options = ddl.options(cursor)
        else:
            cursor.fail("CONSUMER, PROCESS, INPUT, WITH (…) or the end of the statement")
    return CreateHandler(
        name=name,
        views=tuple(views),
        inputs=tuple(inputs),
        consumer=consumer,
        if_not_exists=if_not_exists,
        asynchronous=asynchronous,
        options=options,
        name_at=name_at,
        view_places=tuple(places),
        source=cursor.source,
    )


def _views(cursor: Cursor, views: list[str], places: list[int]) -> None:
    while True:
        places.append(cursor.peek().start)
        views.append(ddl.table_name(cursor))
        # A comma may lead to another view or to the next part.
        if not cursor.sees(",") or (cursor.peek(1).key in ("INPUT", "PROCESS", "CONSUMER") and cursor.sees_name(2)):
            return
        cursor.at += 1


def _input(cursor: Cursor) -> HandlerInput:
    first = cursor.peek()
    name = ddl.table_name(cursor)
    changefeed = cursor.name("the name of a changefeed") if cursor.accept("CHANGEFEED") else None
    cursor.expect("AS")
    if not cursor.sees("STREAM") and not cursor.sees("BATCH"):
        cursor.fail("STREAM or BATCH")
    batch = cursor.next().key == "BATCH"
    return HandlerInput(name=name, batch=batch, changefeed=changefeed, at=first.start, end=first.end)


def drop_handler(cursor: Cursor) -> Statement:
    cursor.expect("HANDLER")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropHandler(name=cursor.name("the name of a handler"), if_exists=if_exists)


def alter_handler(cursor: Cursor) -> Statement:
    """`ALTER HANDLER h SET (epoch_period_s = 5, …)`"""
    cursor.expect("HANDLER")
    name = cursor.name("the name of a handler")
    cursor.expect("SET")
    return AlterHandler(name=name, options=ddl.assignments(cursor))
