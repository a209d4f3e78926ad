"""What the shell offers on Tab besides commands and options: the names of tables and views."""

from __future__ import annotations

import contextlib
import os

import typer


def relations(context: typer.Context, incomplete: str) -> list[str]:
    """Tables and views of the warehouse that the command line names; none if it cannot be opened."""
    from ebla.catalog import reads
    from ebla.catalog.store import Catalog
    from ebla.cli.options import DEFAULT_WAREHOUSE
    from ebla.errors import EblaError
    from ebla.model.relation import Kind

    given = [one.params.get("warehouse") for one in (context, context.parent) if one is not None]
    place = next(filter(None, given), None) or os.environ.get("EBLA_WAREHOUSE") or DEFAULT_WAREHOUSE
    with contextlib.suppress(EblaError, OSError), contextlib.closing(Catalog.open(place, create=False)) as catalog:
        with catalog.reading() as connection:
            names = [name for kind in (Kind.TABLE, Kind.VIEW) for name in reads.relation_names(connection, kind)]
        return sorted(name for name in names if name.lower().startswith(incomplete.lower()))
    return []
