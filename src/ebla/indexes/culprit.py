"""Which row of its base keeps an index from being built: found by halving, on Spark, then on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.errors import Culprit
from ebla.indexes import entries
from ebla.model.relation import Column
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark.faults import is_final
from ebla.spark.halving import one_row
from ebla.storage import runs as rf
from ebla.tables.context import Context
from ebla.values.bounds import short
from ebla.values.columns import python_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HERE_MAX = 10_000
"""Rows of the base that are halved on the driver."""


class Search:
    """The search for one index, among the rows that a chunk read (`rows`, under physical names)."""

    def __init__(self, context: Context, index: Index, snapshot: Snapshot, rows: DataFrame) -> None:
        self._context = context
        self._index = index
        self._snapshot = snapshot
        base = snapshot.relation
        used = {c.physical for c in (*index.needed, *base.key)}
        self._columns = [c for c in base.columns if c.physical in used]
        self._rows = rows

    def found(self) -> Culprit | None:
        """The table and the key of a row on which the index's expressions fail; `None` if no single row is to blame."""
        rows = self._few()
        found = None if rows is None else one_row(rows, self._fails_here)
        return None if found is None else self._culprit(found)

    def _few(self) -> pa.Table | None:
        """A part of the rows that fails and fits the driver: cut by a hash of the key. Two jobs for each cut."""
        session = self._context.view_session(self._index.settings, small=False)
        everything = ssession.rebind(self._rows, session).select(*[sscan.quoted(c.physical) for c in self._columns])
        token = f"xxhash64({', '.join(sscan.quoted(k.physical) for k in self._snapshot.relation.key)})"
        parts, chosen, part = 1, 0, everything
        while self._snapshot.rows_at_most // parts > HERE_MAX:
            halves = [(n, everything.filter(f"pmod({token}, {2 * parts}) = {n}")) for n in (chosen, chosen + parts)]
            bad = next(((n, half) for n, half in halves if self._fails(half)), None)
            if bad is None:
                return None
            parts, (chosen, part) = 2 * parts, bad
        return rf.align(part.toArrow(), self._columns)

    def _fails_here(self, rows: pa.Table) -> bool:
        session = self._context.view_session(self._index.settings, small=True)
        return self._fails(sscan.local(session, rows, sscan.struct(self._columns)))

    def _fails(self, frame: DataFrame) -> bool:
        base = self._snapshot.relation
        try:
            made = entries.entries_of(entries.computed(frame, base, [self._index]), self._index)
            made.write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not is_final(error):
                raise  # a job that was lost says nothing about rows
            return True
        return False

    def _culprit(self, row: pa.Table) -> Culprit:
        columns: list[Column] = [k for k in self._snapshot.relation.key if not k.hidden]
        columns = columns or [c for c in self._columns if not c.hidden][:3]
        values = ", ".join(f"{c.name} = {short(str(python_value(row[c.physical][0])))}" for c in columns)
        return Culprit(self._snapshot.relation.name, values)
