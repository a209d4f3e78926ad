"""A run file cut by tokens: a file for each tablet that has rows of it, in the same order.

The file is read a row group at a time, so memory is bounded, and nothing is sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ebla.base.ids import TabletId
from ebla.base.pace import PACE
from ebla.model.relation import TOKEN, Relation
from ebla.storage import runs as rf
from ebla.storage.files import Root, translated
from ebla.values import token as tokens

PIECE_BYTES = 12 * 2**20
"""Row groups of about this size, before compression, are cut in one turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFile:
    """The rows that a tablet has of a file."""

    tablet: TabletId
    path: str
    facts: rf.Facts


def cut(source: Root, path: str, relation: Relation, into: Root, name: Callable[[TabletId], str]) -> list[CutFile]:
    """Write the rows of a file to a file for each tablet of the relation; `name` says where."""
    file = source.open_parquet(path)
    groups = range(file.metadata.num_row_groups)
    rows_max = max((file.metadata.row_group(group).num_rows for group in groups), default=1)
    statistics = _statistics(file)
    parts: dict[TabletId, _Writer] = {}
    try:
        for piece in _pieces(file):
            with PACE.turn() as alone:
                for group in piece:
                    table = file.read_row_group(group, use_threads=not alone)  # one core beside queries
                    of_row = tokens.tablets_of(_tokens(table, relation), relation.tablets)
                    for number in np.unique(of_row):
                        tablet = TabletId(int(number))
                        if tablet not in parts:
                            parts[tablet] = _Writer(
                                into, name(tablet), file.schema_arrow, statistics, relation, rows_max
                            )
                        parts[tablet].add(table.filter(pa.array(of_row == number)))
        return [CutFile(tablet=tablet, path=part.path, facts=part.end()) for tablet, part in sorted(parts.items())]
    finally:
        for part in parts.values():
            part.close()


def _pieces(file: pq.ParquetFile) -> Iterator[list[int]]:
    """Row groups that are cut in one turn. Many short turns would meet each query of some 100 ms; of few long ones with
    their pauses most queries meet none."""
    piece: list[int] = []
    size = 0
    for group in range(file.metadata.num_row_groups):
        piece.append(group)
        size += file.metadata.row_group(group).total_byte_size
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _tokens(table: pa.Table, relation: Relation) -> npt.NDArray[np.int64]:
    """Level 0 files have them beside the rows."""
    if TOKEN in table.column_names:
        found: npt.NDArray[np.int64] = table[TOKEN].to_numpy()
        return found
    names = [column.physical for column in relation.identity]
    return tokens.tokens(rf.align(table.select(names), relation.identity), names)


def _statistics(file: pq.ParquetFile) -> list[str]:
    """The columns whose least and greatest values may be written beside them: see `honest_statistics`."""
    plain = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
    floats = [name for name in plain if pa.types.is_floating(file.schema_arrow.field(name).type)]
    left_out = {
        name
        for group in range(file.metadata.num_row_groups if floats else 0)
        for name, column in zip(floats, file.read_row_group(group, columns=floats).columns, strict=True)
        if bool(pc.any(pc.is_nan(column)).as_py())
    }
    return [name for name in plain if name not in left_out]


class _Writer:
    """One file while it is written."""

    def __init__(
        self, root: Root, path: str, schema: pa.Schema, statistics: list[str], relation: Relation, rows_max: int
    ) -> None:
        self.path = path
        self._root = root
        self._relation = relation
        self._rows_max = rows_max
        self._key = [column.physical for column in relation.key]
        self._kept: list[pa.Table] = []
        self._kept_rows = 0
        self._rows = 0
        self._first: list[object] | None = None
        self._last: list[object] | None = None
        root.make_place(path)
        with translated(root.full(path)):
            self._out = root.filesystem.open_output_stream(root.inner(path))
            self._file = pq.ParquetWriter(
                self._out, schema, compression="snappy", write_page_checksum=True, write_statistics=statistics
            )

    def add(self, table: pa.Table) -> None:
        self._kept.append(table)
        self._kept_rows += table.num_rows
        if self._kept_rows >= self._rows_max:
            self._flush()

    def _flush(self) -> None:
        if not self._kept_rows:
            return
        table = pa.concat_tables(self._kept)
        first, last = rf.ends(table, self._key)
        self._first, self._last = self._first or first, last
        with translated(self._root.full(self.path)):
            self._file.write_table(table, row_group_size=self._rows_max)
        self._rows += table.num_rows
        self._kept, self._kept_rows = [], 0

    def end(self) -> rf.Facts:
        """Write what is left, which may be most of the file; what the file has."""
        with PACE.turn():
            self._flush()
        self.close()
        size = self._root.size(self.path) or 0
        return rf.bounded(self._rows, size, self._relation, self._first, self._last)

    def close(self) -> None:
        with translated(self._root.full(self.path)):
            self._file.close()
            self._out.close()
