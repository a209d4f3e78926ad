"""The catalog's tables as dictionaries, and a catalog on them: the third store of the contract suite.

The rules are those of `ebla.catalog`, which do not know what they read. The simulation keeps its catalog here, too.
"""

from __future__ import annotations

import contextlib
import operator
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Table

from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Change, Delete, Insert, Put, Update, Where
from ebla.catalog.store import Catalog

Found = TypeVar("Found")

OF_ROWS = frozenset(
    {s.runs, s.folds, s.history, s.counters, s.guards, s.transactions, s.pins, s.leases, s.processes, s.progress,
     s.view_building_tasks, s.view_building_segments}
)  # fmt: skip
"""Tables that change with rows, positions, tasks and those who are at work. Nothing is remembered of them."""

COUNTERS = ("version", "exclusive_version", "relation", "transaction", "shape", "history", "jobs")


class Kind:
    """How a table's rows are kept: each is a named tuple, under the values of its primary key."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.columns]
        self.row: Callable[..., Any] = namedtuple(table.name, names, defaults=[None] * len(names))  # type: ignore[misc]
        self.place = {name: number for number, name in enumerate(names)}
        self.key_of = operator.attrgetter(*(column.name for column in table.primary_key))
        self.only_key = next(iter(table.primary_key)).name if len(table.primary_key) == 1 else None


kind = cache(Kind)


class Tables:
    """Rows by primary key, and what undoes the changes since the last commit."""

    def __init__(self) -> None:
        self._rows: dict[Table, dict[Any, Any]] = {table: {} for table in s.metadata.sorted_tables}
        self._undo: list[tuple[Table, Any, Any]] = []
        self.moves = dict.fromkeys(self._rows, 0)
        """How often each table has changed."""
        self._found: dict[Table, dict[Hashable, list[Any]]] = {table: {} for table in self._rows}
        """What was found in each table since it has changed last."""
        self._shape = 0
        self._remembered: dict[Hashable, tuple[int, Any]] = {}
        self.write(rows.insert(s.counters, [{"name": name, "value": 0} for name in COUNTERS]))
        self.write(rows.insert(s.meta, [{"key": "cluster_id", "value": "memory"}]))
        self.write(rows.insert(s.topology_state, [{"key": "topology", "topology_version": 0, "balancing": True}]))
        self.keep()

    def find(self, table: Table, where: Where) -> Sequence[Any]:
        asked = tuple((name, frozenset(v) if isinstance(v, set) else v) for name, v in where.items())
        known = self._found[table]
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._look(table, where)
        return found

    def _look(self, table: Table, where: Where) -> list[Any]:
        known, of = self._rows[table], kind(table)
        if isinstance(key := where.get(of.only_key), int | str):  # type: ignore[arg-type]
            found = [known[key]] if key in known else []
        else:
            found = list(known.values())
        for name, value in where.items():
            place = of.place[name]
            if value is None or isinstance(value, int | str):
                found = [row for row in found if row[place] == value]
            else:
                found = [row for row in found if rows.holds(row[place], value)]
        return found

    def write(self, change: Change) -> int:
        table, key_of = change.table, kind(change.table).key_of
        match change:
            case Insert(rows=new):
                for values in new:
                    self._insert(table, kind(table).row(**values))
                return len(new)
            case Put(row=values):
                row = kind(table).row(**values)
                self._set(table, key_of(row), row)
                return 1
            case Update(values=changed, where=where):
                met = self._look(table, where)
                for row in met:
                    self._set(table, key_of(row), row._replace(**changed))
                return len(met)
            case Delete(where=where):
                met = self._look(table, where)
                for row in met:
                    self._set(table, key_of(row), None)
                return len(met)

    def _insert(self, table: Table, row: Any) -> None:
        key = kind(table).key_of(row)
        if key in self._rows[table]:
            raise ValueError(f"{table.name}: expected no row {key}, found one")
        self._set(table, key, row)

    def _set(self, table: Table, key: Any, row: Any) -> None:
        self._undo.append((table, key, self._rows[table].get(key)))
        self._replace(table, key, row)

    def _replace(self, table: Table, key: Any, row: Any) -> None:
        self.moves[table] += 1
        self._found[table].clear()
        if table not in OF_ROWS:
            self._shape += 1
        if row is None:
            del self._rows[table][key]
        else:
            self._rows[table][key] = row

    def remembered(self, key: Hashable, read: Callable[[], Found]) -> Found:
        if key not in self._remembered or self._remembered[key][0] != self._shape:
            self._remembered[key] = (self._shape, read())
        found: Found = self._remembered[key][1]
        return found

    # ---- transactions -----------------------------------------------------------------------------------

    def keep(self) -> None:
        self._undo.clear()

    def undo(self) -> None:
        for table, key, before in reversed(self._undo):
            self._replace(table, key, before)
        self._undo.clear()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """All changes inside are kept, or none."""
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.keep()


class MemoryCatalog(Catalog):
    """The catalog's commits on dictionaries: what it hands out as a connection is `Tables`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(cast(Any, None), "memory", clock)
        self.tables = Tables()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        yield cast(Any, self.tables)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self.tables.changing():
            yield cast(Any, self.tables)

    def close(self) -> None:
        pass
