"""Which rows of level 1 a newer mutation has replaced, by file and row number.

A scan that leaves rows out by their places decodes no key and hashes none (`spark.scan.merged`). The places are found
by one semi join of DuckDB over the key columns of level 1, so they are worth it for a snapshot that is read again.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ebla.base.settings import Settings
from ebla.model.snapshot import Snapshot
from ebla.spark import scan as sscan
from ebla.storage import runs as rf
from ebla.storage.duck import literally, quoted
from ebla.storage.files import Root
from ebla.storage.node_storage import NodeStorage

LEVEL1_ROWS_MAX = 50_000_000
"""The driver reads the keys of at most this number of rows."""
_FILE = "_ebla_file"


def replaced_places(storage: NodeStorage, settings: Settings, snapshot: Snapshot) -> pa.Array | None:
    """The places of rows below mutations in level 0; `None` if they cannot be found, or would take long to find.

    A file is recognized by its size, which Spark knows of every row without reading it: sizes must differ.
    """
    sizes = {run.bytes for run in snapshot.level1}
    if len(sizes) < len(snapshot.level1) or max(sizes, default=0) >= sscan.SIZE_MAX:
        return None
    rows_max = settings.level0_rows_max
    if sum(run.rows for run in snapshot.level1) > LEVEL1_ROWS_MAX or not sscan.carries_rows(snapshot, rows_max):
        return None
    if any(column.physical.lower() == sscan.METADATA for column in snapshot.relation.columns):
        return None
    roots = storage.nodes.all()
    copies = rf.require_copies(snapshot, roots)
    names = [column.physical for column in snapshot.relation.identity]
    keys = rf.mutations(snapshot.relation, snapshot.level0, roots, storage.level0, snapshot).select(names)
    files_read = rf.paths(roots, snapshot.level1, Root.inner, copies)
    of_files = {path: run.bytes for path, run in zip(files_read, snapshot.level1, strict=True)}
    # Not by plain equality: statistics leave NaN out, and DuckDB believes them.
    same = " AND ".join(f"s.{quoted(name)} IS NOT DISTINCT FROM w.{quoted(name)}" for name in names)
    read = f"read_parquet(?, hive_partitioning = false, filename = '{_FILE}', file_row_number = true)"
    cursor = storage.lookups.cursor()
    try:
        cursor.register("wanted", keys)
        found = cursor.sql(
            f"SELECT s.{_FILE}, s.file_row_number FROM (SELECT {', '.join(map(quoted, names))}, {_FILE}, "
            f"file_row_number FROM {read}) s SEMI JOIN wanted w ON {same}",
            params=[list(map(literally, of_files))],
        ).to_arrow_table()
    except duckdb.Error:
        return None  # a column of such a name, or a damaged file, of which the scan by keys tells
    finally:
        cursor.close()
    files = pc.dictionary_encode(found[_FILE].combine_chunks())
    of_rows = pa.array([of_files[name] for name in files.dictionary.to_pylist()], pa.int64()).take(files.indices)
    return pc.add(pc.shift_left(of_rows, pa.scalar(32, pa.int64())), found["file_row_number"].combine_chunks())
