"""The work of `ebla cluster …`: what is shown, and what is asked for and waited for.

Each command is a statement. Where the warehouse is opened here, what lists reads the catalog instead: then it needs no
storage root, and is no process of the cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ebla.cli import output, progress, remote
from ebla.cli.options import Options, open_database
from ebla.cli.output import Sheet
from ebla.errors import UsageError
from ebla.sql.lex import name_text, quote_string

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

    from ebla.model.topology import Topology


class Listing(NamedTuple):
    """Rows of the topology: as a statement, and read from the catalog."""

    statement: str
    read: Callable[[Connection, Topology], pa.Table]
    only: str | None = None
    """The relation whose rows are shown, where the statement has those of all."""


def show(options: Options, what: Listing) -> None:
    output.show(
        _asked(options, what) if remote.is_remote(options.place) else _read(options, what), as_json=options.json
    )


def _asked(options: Options, what: Listing) -> Sheet:
    with open_database(options, create=False) as database:
        found = Sheet.of(database.sql(what.statement))
    if what.only is None:
        return found
    rows = [row for row in found.rows if str(row[0]).lower() == what.only.lower()]
    return Sheet(columns=found.columns, rows=rows)


def _read(options: Options, what: Listing) -> Sheet:
    from ebla.catalog.store import Catalog
    from ebla.topology import loader

    with contextlib.closing(Catalog.open(options.place, create=False)) as catalog, catalog.reading() as connection:
        table = what.read(connection, loader.load(connection, catalog.clock()))
    return Sheet(columns=table.column_names, rows=[tuple(row.values()) for row in table.to_pylist()])


def nodes() -> Listing:
    def read(connection: Connection, state: Topology) -> pa.Table:
        from ebla.api.statements import cluster

        return cluster.nodes(connection, state)

    return Listing("SHOW NODES", read)


def requests() -> Listing:
    def read(connection: Connection, state: Topology) -> pa.Table:
        from ebla.api.statements import cluster

        return cluster.requests_of(connection, state)

    return Listing("SHOW REQUESTS", read)


def transitions() -> Listing:
    def read(connection: Connection, state: Topology) -> pa.Table:
        from ebla.api.statements import tablets

        return tablets.transitions(state)

    return Listing("SHOW TRANSITIONS", read)


def tablets(relation: str | None) -> Listing:
    def read(connection: Connection, state: Topology) -> pa.Table:
        from ebla.api.statements import tablets

        return tablets.tablets_of(connection, state, relation)

    return Listing("SHOW TABLETS" if relation is None else f"SHOW TABLETS OF {name_text(relation)}", read)


def replication(relation: str | None) -> Listing:
    def read(connection: Connection, state: Topology) -> pa.Table:
        from ebla.catalog import reads
        from ebla.relations import copies

        only = None if relation is None else reads.relation(connection, relation).name
        found = copies.summary(connection)
        return found if only is None else found.filter([name == only for name in found["name"].to_pylist()])

    return Listing("SHOW REPLICATION", read, relation)


# ---- requests -------------------------------------------------------------------------------------------


def decommission(node: str) -> str:
    return f"ALTER CLUSTER DECOMMISSION NODE {quote_string(node)}"


def remove(node: str, ignored: Sequence[str]) -> str:
    ignores = f" IGNORE NODES ({', '.join(map(quote_string, ignored))})" if ignored else ""
    return f"ALTER CLUSTER REMOVE NODE {quote_string(node)}{ignores}"


def rebuild(node: str, source: str | None) -> str:
    from_where = "" if source is None else f" FROM {quote_string(source)}"
    return f"ALTER CLUSTER REBUILD NODE {quote_string(node)}{from_where}"


def move(relation: str, tablet: int, source: str, target: str) -> str:
    ends = f"FROM {quote_string(source)} TO {quote_string(target)}"
    return f"MOVE TABLET {tablet} OF {name_text(relation)} {ends}"


def set_replication(relation: str | None, copies: int) -> str:
    if relation is None:
        raise UsageError("--set: expected a RELATION whose copies to set, found none")
    return f"ALTER TABLE {name_text(relation)} SET (replication = {copies})"


def ask(options: Options, statement: str, *, wait: bool = False) -> None:
    """Ask for something and, unless it is left to other processes, show how far it is until it has ended."""
    with open_database(options, create=False) as database, progress.progress_line(database, "asking"):
        sheet = Sheet.of(database.sql(statement))
        if wait:
            sheet = Sheet.of(database.sql(f"WAIT FOR REQUEST {sheet.rows[0][0]}"))
    output.show(sheet, as_json=options.json)


def balance(options: Options, state: str) -> None:
    if state.lower() not in ("on", "off"):
        raise UsageError(f"balancing: expected on or off, found {state!r}")
    ask(options, f"ALTER CLUSTER SET balancing = {state}")
