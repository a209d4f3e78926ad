"""Columns of single rows, wherever these lie in the runs of a path.

Row groups are decoded whole and kept, as the next request mostly wants rows beside those of the last one. A page
through an index is different: a hundred rows of its base lie in nearly as many row groups. To decode these costs as
much as a scan, and where the base has no room in the cache the next page pushes them out again. Then DuckDB reads of
each run the rows alone, and passes over the pages without them; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ebla.base.ids import RunId
from ebla.base.precedence import PRECEDENCE
from ebla.model.relation import Column, Run
from ebla.query.overlay import Place, Source
from ebla.storage.duck import literally, quoted
from ebla.storage.files import Root
from ebla.storage.store import from_copy, today
from ebla.values import types

DECODED_TIMES = 4
"""The size of a relation in memory, divided by that of its files."""
REQUEST_PART = 8
"""One request takes at most this part of the cache for row groups of a relation that has no room there."""
SPARSE_ROWS = 256
"""Rows are picked from a run if at most one in this many of them is wanted."""
ROW = "_ebla_row"

Group = tuple[RunId, int]
Columns = Mapping[Group, Mapping[str, pa.Array]]
"""Columns of row groups."""


def columns_of(source: Source, places: Sequence[Place], wanted: Sequence[Column]) -> tuple[Sequence[Place], Columns]:
    """The columns that rows in runs lie in, and their places there: of rows that were picked, in those alone."""
    groups: dict[Group, tuple[Run, int]] = {}
    for place in places:
        if place.run is not None:
            groups[place.run.id, place.group] = place.run, place.group
    cold = {name: one for name, one in groups.items() if not source.store.has_columns(*one, wanted)}
    columns: dict[Group, Mapping[str, pa.Array]] = {}
    if cold and not _has_room(source) and _are_large(source, cold, wanted):
        places, columns = _picked(source, places, cold, wanted)
    left = [one for name, one in groups.items() if name not in columns]
    return places, columns | source.store.warm(source.roots, left, wanted)


def _has_room(source: Source) -> bool:
    """Whether the cache of decoded columns may keep the whole relation."""
    return DECODED_TIMES * sum(run.bytes for run in source.snapshot.level1) <= source.store.columns_bytes_max


def _are_large(source: Source, groups: Mapping[Group, tuple[Run, int]], wanted: Sequence[Column]) -> bool:
    """Whether these row groups would take too much of the cache."""
    taken = 0.0
    for run, group in groups.values():
        footer = source.store.footer(source.roots, run)
        taken += footer.metadata.row_group(group).total_byte_size * len(wanted) / max(1, len(footer.schema))
    return taken * REQUEST_PART > source.store.columns_bytes_max


def _picked(
    source: Source, places: Sequence[Place], cold: Mapping[Group, tuple[Run, int]], wanted: Sequence[Column]
) -> tuple[Sequence[Place], dict[Group, Mapping[str, pa.Array]]]:
    """Rows of these row groups, alone, where they are few; the others stay where they are."""
    runs: dict[RunId, tuple[Run, set[tuple[int, int]]]] = {}
    for place in places:
        if place.run is not None and (place.run.id, place.group) in cold:
            runs.setdefault(place.run.id, (place.run, set()))[1].add((place.group, place.at))
    sparse = [(run, sorted(spots)) for run, spots in runs.values() if SPARSE_ROWS * len(spots) <= run.rows]
    if not sparse or any(pa.types.is_nested(types.to_arrow(column.type)) for column in wanted):
        return places, {}
    pick = PRECEDENCE.bound(lambda one: _rows_of(source, one[0], one[1], wanted))
    columns: dict[Group, Mapping[str, pa.Array]] = {}
    numbers: dict[tuple[RunId, int, int], int] = {}
    for (run, spots), rows in zip(sparse, source.store.pool().map(pick, sparse), strict=True):
        if rows is not None:
            columns |= {(run.id, group): rows for group, _ in spots}
            numbers |= {(run.id, *spot): number for number, spot in enumerate(spots)}
    return [_moved(place, numbers) for place in places], columns


def _moved(place: Place, numbers: Mapping[tuple[RunId, int, int], int]) -> Place:
    number = None if place.run is None else numbers.get((place.run.id, place.group, place.at))
    return place if number is None else place._replace(at=number)


def _rows_of(
    source: Source, run: Run, spots: Sequence[tuple[int, int]], wanted: Sequence[Column]
) -> dict[str, pa.Array] | None:
    """Columns of these rows of a run; `None` if DuckDB cannot read them: who decodes the row groups tells why."""
    import duckdb

    footer = source.store.footer(source.roots, run)
    numbers = [footer.begins[group] + at for group, at in spots]
    stored = [quoted(column.physical) for column in wanted if footer.schema.get_field_index(column.physical) >= 0]
    text = (
        f"SELECT {', '.join([f'file_row_number AS {ROW}', *stored])} FROM read_parquet(?, hive_partitioning = false,"
        f" file_row_number = true) WHERE file_row_number IN ({', '.join(map(str, numbers))}) ORDER BY {ROW}"
    )

    def read(root: Root) -> Any:
        root.fetch(run.path)
        return cursor.sql(text, params=[[literally(root.inner(run.path))]]).to_arrow_table()

    cursor = source.lookups.cursor()
    try:
        rows = from_copy(source.roots, run, read)
    except duckdb.Error:
        return None
    finally:
        cursor.close()
    if rows[ROW].to_pylist() != numbers:
        return None
    return {column.physical: today(rows, column, len(numbers)) for column in wanted}
