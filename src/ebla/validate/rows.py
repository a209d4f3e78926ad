"""Names in statements that read and change rows."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from ebla.base.issue import Code
from ebla.errors import EblaError
from ebla.sql import dml
from ebla.sql import statements as st
from ebla.sql.query import Query, shared
from ebla.validate.facts import RelationFacts
from ebla.validate.queries import QueryStep
from ebla.validate.walk import Walk


def read(walk: Walk, query: Query, wanted: tuple[str, int] | None = None) -> None:
    """What a plain query names must be there, too."""
    # An INSERT's or EXPLAIN's query is the rest of the statement.
    begin = max(walk.item.source.text.rfind(query.text), 0)
    if walk.mentions(query.refs, begin):
        inputs = walk.world.inputs()
        walk.queries.append(QueryStep(item=walk.item, text=query.text, begin=begin, inputs=inputs, wanted=wanted))


def insert(walk: Walk, made: st.Insert) -> None:
    table = walk.writable(made.table)
    if table is None or table.columns is None:
        read(walk, made.source)
        return
    before = len(walk.issues)
    for name in made.columns or ():
        walk.has_column(table, name)
    width = len(table.columns if made.columns is None else made.columns)
    if made.width is not None and made.width != width and len(walk.issues) == before:
        message = f"expected {width} values for {table.name}, found {made.width} in each row of VALUES"
        at = max(walk.item.source.text.rfind(made.source.text), 0)
        walk.report(Code.COLUMN_COUNT, at, message, "give a value for each column, or list them")
    read(walk, made.source, (table.name, width) if made.width is None else None)


def change(walk: Walk, made: st.Update | st.Delete | st.Merge) -> None:
    """The table, what the statement reads besides, and the columns that it names."""
    table = walk.writable(made.table)
    if table is None:
        return
    text = walk.item.source.text
    query = _made(made, table)
    refs = [] if query is None else [ref for ref in query.refs if not ref.target]
    placed = [] if query is None else [replace(r, start=shared(text, query.text, r.start) or 0) for r in refs]
    if walk.mentions(placed, 0):
        inputs = walk.world.inputs()
        walk.queries.append(QueryStep(item=walk.item, text=text, begin=0, inputs=inputs, target=table))


def _made(made: st.Update | st.Delete | st.Merge, table: RelationFacts) -> Query | None:
    """The query that carries the statement out, which names all that it reads; `None` if its columns are wrong."""
    if table.columns is None:
        return None
    columns, key = list(table.columns), list(table.key)
    try:
        match made:
            case st.Update():
                return dml.update_query(made, columns, key)
            case st.Delete():
                return dml.delete_query(made, columns, key)
            case st.Merge():
                return dml.merge_query(made, columns, key)
            case _:
                assert_never(made)
    except EblaError:
        return None
