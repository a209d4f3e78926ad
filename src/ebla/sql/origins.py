"""Where a view's query was written."""

from __future__ import annotations

from ebla.sql.lex import StatementText
from ebla.sql.parse import parse
from ebla.sql.query import Query
from ebla.sql.statements import CreateView, ExplainView


def statement_of(query: Query) -> tuple[StatementText, CreateView]:
    """The statement that a query was found in, so that issues point into it; or one made of the query alone."""
    if query.source is not None:
        found = parse(query.source)
        made = found.create if isinstance(found, ExplainView) else found
        if isinstance(made, CreateView) and made.query == query:
            return query.source, made
    return StatementText(text=query.text), CreateView(name="", query=query)
