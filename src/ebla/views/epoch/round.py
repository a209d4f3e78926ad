"""What the views that are refreshed together read: each thing once, for the view that asks first and all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.tables.read_access import ReadAccess

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Round:
    """One for each set of views that are refreshed side by side, by several threads."""

    def __init__(self, context: ReadAccess) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._made: dict[object, Future[Any]] = {}
        self._used: dict[str, set[str]] = {}
        self._found: dict[object, list[pa.Table]] = {}

    def uses(self, used: Mapping[str, frozenset[str]]) -> None:
        """Say which columns of which inputs a view of this round needs; before the first lookup."""
        for table, names in used.items():
            self._used.setdefault(table, set()).update(names)

    def columns(self, relation: Relation, own: frozenset[str]) -> list[str]:
        """The columns that any view of the round needs, and the key: whole rows as far as they are concerned."""
        wanted = self._used.get(relation.name.lower(), set()) | own | {k.name for k in relation.key}
        return [col.name for col in relation.columns if col.name in wanted]

    def of_table(self, table: pa.Table, make: partial[Any]) -> Any:
        """What Spark makes of an Arrow table that several views read."""
        # The table is kept beside it, so that its id stays its own.
        return self.once(("table", id(table), make.func), lambda: (table, make()))[1]

    def snapshot(self, connection: Connection, relation: Relation, version: Version) -> Snapshot:
        """A relation at a version."""
        name = ("snapshot", relation.id, relation.schema_version, relation.placement_version, version)
        found: Snapshot = self.once(name, lambda: reads.snapshot(connection, relation, version))
        return found

    def remember(self, key: object, rows: pa.Table) -> None:
        """Keep rows of an input that a lookup found, for lookups that ask for some of them by another column."""
        with self._lock:
            self._found.setdefault(key, []).append(rows)

    def remembered(self, key: object) -> list[pa.Table]:
        with self._lock:
            return list(self._found.get(key, ()))

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """What `make` gives. The first caller makes it; others wait for it."""
        with self._lock:
            future = self._made.get(key)
            mine = future is None
            if future is None:
                future = self._made[key] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
        return future.result()
