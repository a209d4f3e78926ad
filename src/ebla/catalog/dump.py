"""The rows of a whole catalog as text, and a catalog that is filled with them.

A dump has one file for each table: a line with the names of the columns, then one JSON array for each row. Integers,
texts and booleans are all that catalogs hold, so a dump of SQLite fills PostgreSQL, and the other way round. Pins and
the rows of processes are left out: the processes that renew them know nothing of the new catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Table, delete, insert, select

from ebla.base.ids import NodeId
from ebla.base.rights import make_file
from ebla.catalog import job_tables, migrations
from ebla.catalog import schema as s
from ebla.errors import CatalogError
from ebla.model.lifecycle.node import NodeState

LEFT_OUT = (s.pins, s.processes)
ROWS_AT_ONCE = 1000


def schema_number() -> int:
    """The newest migration that this release knows; a dump has the tables of one."""
    return migrations.MIGRATIONS[-1].number


def write(connection: Connection, folder: Path, mask: int) -> None:
    """Write all rows as they are in one read of the catalog; `mask`: the rights that the files do not give."""
    for table in _tables():
        names = [column.name for column in table.columns]
        file = folder / _file(table)
        make_file(file, mask, new=True)
        with file.open("w", encoding="utf-8") as out:
            out.write(json.dumps(names) + "\n")
            found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(select(table))
            for row in found:
                out.write(json.dumps(list(row)) + "\n")


def fill(connection: Connection, folder: Path, roots: Mapping[NodeId, str]) -> None:
    """Replace what an empty catalog holds by the rows of a dump; nodes keep their files under other roots."""
    for table in reversed(s.metadata.sorted_tables):
        connection.execute(delete(table))
    for table in _tables():
        rows = _rows(folder / _file(table))
        if table is s.topology:
            rows = _placed(rows, roots)
        while some := list(islice(rows, ROWS_AT_ONCE)):
            connection.execute(insert(table), some)


class DumpedNode(NamedTuple):
    """A node in a dump."""

    id: NodeId
    name: str
    root: str
    """Where its files were."""


def nodes(folder: Path) -> list[DumpedNode]:
    """The nodes whose files a dump names."""
    hosts = {str(row["host_id"]) for row in _rows(folder / _file(s.runs))}
    return [
        DumpedNode(NodeId(str(row["host_id"])), str(row["name"] or row["host_id"]), str(row["storage_root"]))
        for row in _rows(folder / _file(s.topology))
        if row["host_id"] in hosts or row["node_state"] != NodeState.LEFT
    ]


def table_names(folder: Path) -> job_tables.Names:
    """The names that tables of jobs had in the database: the rows of a dump fill a catalog that has the same."""
    return job_tables.named({str(row["key"]): str(row["value"]) for row in _rows(folder / _file(s.meta))})


def copies(folder: Path) -> Iterator[tuple[NodeId, str, int]]:
    """Every copy of a file that a dump names: its node, path and bytes."""
    for row in _rows(folder / _file(s.runs)):
        yield NodeId(str(row["host_id"])), str(row["path"]), int(str(row["bytes"]))


def _tables() -> list[Table]:
    """In an order in which no row names another one that comes later."""
    return [table for table in s.metadata.sorted_tables if table not in LEFT_OUT]


def _file(table: Table) -> str:
    return f"{table.name}.jsonl"


def _rows(file: Path) -> Iterator[dict[str, object]]:
    try:
        with file.open(encoding="utf-8") as lines:
            names = json.loads(next(lines))
            for line in lines:
                yield dict(zip(names, json.loads(line), strict=True))
    except (OSError, ValueError, StopIteration) as error:
        raise CatalogError(
            f"{file}: expected the rows of a table of the catalog, found: {error!r}; use another backup"
        ) from error


def _placed(rows: Iterator[dict[str, object]], roots: Mapping[NodeId, str]) -> Iterator[dict[str, object]]:
    for row in rows:
        host = NodeId(str(row["host_id"]))
        yield row | {"storage_root": roots.get(host, row["storage_root"])}
