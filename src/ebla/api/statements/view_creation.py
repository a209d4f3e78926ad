"""`CREATE MATERIALIZED VIEW`, carried out: what cannot be built is not left behind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ebla.api.statements.arrivals import Arrivals
from ebla.base.ids import NodeId, RelationId
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import CatalogUnavailableError, EblaError
from ebla.relations.views import REPLACEMENT
from ebla.sql import statements as st
from ebla.views import create
from ebla.views.drop import drop_view

if TYPE_CHECKING:
    from ebla.api.database import Database


def create_view(database: Database, arrivals: Arrivals, statement: st.CreateView) -> None:
    """Create a view, and wait until it is built unless the statement is asynchronous."""
    made = create.create_view(
        database.context,
        statement.name,
        statement.query,
        names=statement.columns,
        primary_key=statement.primary_key,
        if_not_exists=statement.if_not_exists,
        or_replace=statement.or_replace,
        options=statement.options,
    )
    if made is None or statement.asynchronous:
        database.wake()
        return
    try:
        arrivals.built(statement.name)
    except EblaError as error:
        # A view that cannot be built is not left behind half made; one that is tried again keeps what it has.
        if not error.goes_on and not isinstance(error, CatalogUnavailableError):
            _abandon(database.context.catalog, database.context.node, made, statement)
        raise
    except KeyboardInterrupt:
        # What a statement that is cancelled had begun is gone, as if it had never been run.
        with contextlib.suppress(EblaError):
            _abandon(database.context.catalog, database.context.node, made, statement)
        raise
    finally:
        database.wake()


def _abandon(catalog: Catalog, node: NodeId, made: RelationId, statement: st.CreateView) -> None:
    """Drop what a statement has begun to build. A view that it was to replace stays, or has been replaced."""
    with catalog.reading() as connection:
        left = reads.relation_by_id(connection, made)
    if left is not None and (not statement.or_replace or left.name.startswith(REPLACEMENT)):
        drop_view(catalog, node, left.name, if_exists=True)
