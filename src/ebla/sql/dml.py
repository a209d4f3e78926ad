"""Writes as queries: what rows a statement leaves, and what is to be done with each.

A builder turns a statement into a query over the table's current rows. The query's output is the table's
columns in their order, then the hidden key columns, then `_kind`:

| `_kind` | the row | what the writer does |
|---|---|---|
| `upsert` | the new row of a key that stays | replace the row of that key |
| `insert` | a row under a key that must be free | check, then add it |
| `delete` | the old row | remove the row of that key |

An UPDATE that changes keys gives an `insert` and a `delete` for each row that moves. `id = id + 1` over
1, 2, 3 therefore inserts 2, 3, 4 and deletes 1, 2, 3: the writer applies the deletes of a batch first.

User expressions stand in a scope that is the statement's own: the table under its alias, and nothing else.
Every name that a builder adds begins with `_ebla_`. Types are left to Spark and the writer, except where
old and new values, or those of several clauses, meet in one column: there the wider type would win, and a
BIGINT beside a DOUBLE would lose digits. So pass `types` (column to type) to `update_query` and
`merge_query`: values are brought to the column's type before they meet, or stop the job (see `assign`). With
`dialect` a string literal is the value that it says of its column's type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ebla.errors import SqlError
from ebla.sql.lex import quote
from ebla.sql.literals import Dialect
from ebla.sql.merge import MERGE_CARDINALITY, merge_query
from ebla.sql.query import Query
from ebla.sql.statements import Delete, Insert, Merge, Update
from ebla.sql.target import KIND, Sql, Target, as_column, comma, moves, resolved, target

__all__ = ["KIND", "MERGE_CARDINALITY", "delete_query", "insert_query", "merge_query", "only_kind", "update_query"]


def only_kind(stmt: Insert | Update | Delete | Merge, key: Sequence[str]) -> str | None:
    """The kind of all rows that a statement writes; `None` where it depends on the row."""
    match stmt:
        case Insert(upsert=upsert):
            return "upsert" if upsert else "insert"
        case Delete():
            return "delete"
        case Update(assignments=assignments):
            assigned = {column.lower() for column, _expression in assignments}
            return "upsert" if assigned.isdisjoint(name.lower() for name in key) else None
        case Merge():
            return None


# INSERT


def given_columns(stmt: Insert, columns: Sequence[str]) -> Sequence[str]:
    """The columns that a row of the source has values for, in order."""
    into = target(stmt.table, None, columns, (), (), None)
    given = into.columns if stmt.columns is None else into.resolve(stmt.columns, doing="listed")
    if stmt.width not in (None, len(given)):
        raise SqlError(
            f"INSERT INTO {stmt.table}: expected {len(given)} values ({', '.join(given)}), "
            f"found {stmt.width} in each row of VALUES"
        )
    return given


def insert_query(
    stmt: Insert,
    columns: Sequence[str],
    key: Sequence[str],
    hidden: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> Query:
    """The source's rows under the table's columns; columns that are not listed have their default, or are NULL.

    Values are matched by position. Spark reports a SELECT with another number of columns.
    """
    into = target(stmt.table, None, columns, key, hidden, None, defaults=defaults)
    given = given_columns(stmt, columns)
    source = "`_ebla_source`"
    output = [
        as_column(f"{source}.{quote(name)}" if name in given else into.ungiven(name), name) for name in into.stored
    ]
    output.append(as_column("'upsert'" if stmt.upsert else "'insert'", KIND))
    names = ", ".join(quote(name) for name in given)
    return stmt.source.within(f"SELECT {comma(output)}\nFROM (\n", f"\n) AS {source}({names})")


# DELETE and UPDATE


def delete_query(stmt: Delete, columns: Sequence[str], key: Sequence[str], hidden: Sequence[str] = ()) -> Query:
    """The rows that go. One scan of the table, no shuffle of its own."""
    table = target(stmt.table, stmt.alias, columns, key, hidden, None)
    output = [as_column(table.old(name), name) for name in table.stored]
    return _from_table(table, [*output, as_column("'delete'", KIND)], stmt.where).query()


def update_query(
    stmt: Update,
    columns: Sequence[str],
    key: Sequence[str],
    hidden: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    dialect: Dialect | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Query:
    """The rows that change, as they become. One scan of the table, no shuffle of its own.

    Every expression sees the old row: `SET a = b, b = a` swaps.
    """
    table = target(stmt.table, stmt.alias, columns, key, hidden, types, dialect, defaults)
    assigned = table.assigned(stmt.assignments, stmt.places)
    if not moves(table, assigned):
        output = [as_column(assigned.get(name, table.old(name)), name) for name in table.stored]
        return _from_table(table, [*output, as_column("'upsert'", KIND)], stmt.where).query()
    output = [as_column(table.old(name), f"_ebla_old{i}") for i, name in enumerate(table.stored)]
    olds, news = [f"`_ebla_old{i}`" for i in range(len(output))], []
    for i, name in enumerate(table.stored):
        new = olds[i]
        if name in assigned:
            output.append(as_column(assigned[name], f"_ebla_value{i}"))
            new = table.stored_value(name, f"`_ebla_value{i}`")
        news.append(as_column(new, f"_ebla_new{i}"))
    changes = _from_table(table, output, stmt.where).within(
        f"SELECT {comma([*olds, *news])}, 'update' AS `_ebla_kind`\nFROM (\n", "\n)"
    )
    return resolved(table, changes, may_move=True).query()


def _from_table(table: Target, output: Iterable[str], where: str | None) -> Sql:
    condition = "" if where is None else f"\nWHERE ({where})"
    return Sql(quote(table.table), 0).within(f"SELECT {comma(output)}\nFROM ", f" AS {quote(table.alias)}{condition}")
