"""Which index of a chunk, and which row of its base, keeps it from being built: the row is found by halving, on Spark,
then on the driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.errors import Culprit, EblaError
from ebla.indexes import entries
from ebla.model.relation import Column
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index
from ebla.spark import scan as sscan
from ebla.spark import session as ssession
from ebla.spark.faults import is_final
from ebla.spark.halving import one_row
from ebla.spark.sessions import Sessions
from ebla.storage import runs as rf
from ebla.tables.chunk_scan import Scan
from ebla.values.bounds import short
from ebla.values.columns import python_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ebla.build")

HERE_MAX = 10_000
"""Rows of the base that are halved on the driver."""


def culprits(sessions: Sessions, indexes: Sequence[Index], snapshot: Snapshot, scan: Scan) -> Sequence[Index]:
    """Of several indexes that were filled together, those whose own expressions fail."""
    if len(indexes) == 1:
        return indexes
    found = []
    for index in indexes:
        if not index.needs_spark:
            continue
        spark = sessions.of_view(index.settings, small=False)
        rows = ssession.rebind(scan.rows(snapshot.version), spark)
        made = entries.entries_of(entries.computed(rows, snapshot.relation, [index]), index)
        try:
            made.write.format("noop").mode("overwrite").save()
        except Exception as error:
            if is_final(error):  # a job that was lost says nothing about rows
                found.append(index)
    return found or indexes


def placed(sessions: Sessions, index: Index, snapshot: Snapshot, scan: Scan, error: EblaError) -> EblaError:
    """The error with the row to blame, where one is found."""
    if not index.needs_spark:
        return error
    try:
        found = Search(sessions, index, snapshot, scan.rows(snapshot.version)).found()
    except Exception as other:  # the error itself is what counts
        log.info("index=%s expected to find the row to blame, found reason=%s", index.name, other)
        return error
    return error if found is None else error.found_at(found)


class Search:
    """The search for one index, among the rows that a chunk read (`rows`, under physical names)."""

    def __init__(self, sessions: Sessions, index: Index, snapshot: Snapshot, rows: DataFrame) -> None:
        self._sessions = sessions
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
        session = self._sessions.of_view(self._index.settings, small=False)
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
        session = self._sessions.of_view(self._index.settings, small=True)
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
