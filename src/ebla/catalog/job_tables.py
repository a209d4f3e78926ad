"""The names that the tables of jobs have in the database.

Theory of operation. The process that creates a catalog may choose them. The catalog keeps what was chosen beside its
format (`meta`), and every process that opens it follows. Statements are built of `ebla.catalog.schema`, where these
tables have the names that `system.…` shows. Where others were chosen, the engine has an identifier preparer of its own:
SQLAlchemy asks it for each identifier that it writes into a statement, and for no value. So a table has its name in the
database wherever it is named, and a catalog with the usual names does nothing for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, Table, insert, text

from ebla.catalog import schema as s
from ebla.errors import CatalogError, UsageError

TABLES: Mapping[str, Table] = {
    "handlers_table": s.mv_handlers,
    "runners_table": s.mv_runners,
    "runner_jobs_table": s.mv_runner_jobs,
    "commands_table": s.mv_commands,
}
"""What a setting names."""

RESERVED = ("pg_", "sqlite_")
"""Databases look for such names among their own first, or refuse them."""

Names = Mapping[str, str]
"""Settings and the names that they give. One that is left out is said by the catalog."""


def mistakes(chosen: Names) -> list[str]:
    """What is wrong with names, each of which is one of a table."""
    taken = set[str]()
    for table in s.metadata.sorted_tables:  # in PostgreSQL indexes and sequences have names among those of tables
        taken |= {table.name, f"{table.name}_pkey", *(str(index.name) for index in table.indexes)}
        taken |= {f"{table.name}_{column.name}_seq" for column in table.primary_key}
    found = list[str]()
    seen = dict[str, str]()
    for setting, name in chosen.items():
        other = seen.setdefault(name, setting)
        if other != setting:
            found.append(f"{setting}: expected another name than that of {other}, found {name}")
        if name != TABLES[setting].name and (name in taken or name.startswith(RESERVED)):
            found.append(f"{setting}: expected a name that no other table of the database has, found {name}")
    return found


def check(chosen: Names) -> None:
    if wrong := mistakes(chosen):
        raise UsageError("; ".join(f"setting {one}" for one in wrong))


def name_tables(connection: Connection, chosen: Names) -> None:
    """Give the tables of a new catalog their names, in the transaction that makes them."""
    others = {setting: name for setting, name in chosen.items() if name != TABLES[setting].name}
    if not others:
        return
    quote = connection.dialect.identifier_preparer.quote
    for setting, name in others.items():
        connection.execute(text(f"ALTER TABLE {TABLES[setting].name} RENAME TO {quote(name)}"))
    connection.execute(insert(s.meta), {"key": s.JOB_TABLES, "value": json.dumps(others, sort_keys=True)})


def named(meta: Mapping[str, str]) -> Names:
    """The names of all of these tables, by what a catalog keeps in `meta`."""
    return {**{setting: table.name for setting, table in TABLES.items()}, **json.loads(meta.get(s.JOB_TABLES, "{}"))}


def require(found: Names, chosen: Names, where: str) -> None:
    """Refuse a process that means other tables than the catalog's: it would not see the jobs of the others."""
    for setting, name in chosen.items():
        if found[setting] != name:
            raise CatalogError(
                f"{where}: expected {setting} = {found[setting]}, with which the catalog was created, found {name}; "
                "leave the setting out or correct it, or give the address of another catalog"
            )


def use(engine: Engine, names: Names) -> None:
    """Have every statement of an engine name these tables as the database does."""
    others = {table.name: names[setting] for setting, table in TABLES.items() if names[setting] != table.name}
    usual: Any = type(engine.dialect.identifier_preparer)
    if not others or hasattr(usual, s.JOB_TABLES):
        return

    class Preparer(usual):  # type: ignore[misc]
        job_tables = others  # `schema.name_of` looks for it

        def quote(self, ident: str, *arguments: Any, **options: Any) -> Any:
            return super().quote(others.get(ident, ident), *arguments, **options)

    engine.dialect.identifier_preparer = Preparer(engine.dialect)
    engine.clear_compiled_cache()
