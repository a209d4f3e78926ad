"""A run file is cut by the tokens of its rows: each row is in one part, in its order, and nothing is done at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebla.base.pace import PACE
from ebla.model.relation import TOKEN, Column
from ebla.storage import cutting
from ebla.storage.files import Root
from ebla.values import token as tokens
from support.manifests import table_of

ROWS, GROUP = 1000, 300
TABLE = replace(table_of(4), columns=(Column(name="id", physical="id", type="bigint", nullable=False, key_position=0),))


def put(root: Root) -> pa.Table:
    """A file of 1,000 rows in four row groups."""
    ids = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    rows = ids.append_column(TOKEN, pa.array(tokens.tokens(ids, ["id"]), pa.int64()))
    root.write_parquet(rows, "r1/t1-0.parquet", row_group_rows=GROUP)
    return rows


def put_bytes(root: Root) -> int:
    """The bytes of the row groups of the file, before compression."""
    metadata = root.open_parquet("r1/t1-0.parquet").metadata
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


def test_each_row_is_in_the_file_of_its_tablet_in_its_order(tmp_path: Path):
    root = Root(str(tmp_path))
    rows = put(root)
    parts = cutting.cut(root, "r1/t1-0.parquet", TABLE, root, lambda tablet: f"r1/t2-{tablet}.parquet")
    of_row = tokens.tablets_of(rows[TOKEN].to_numpy(), TABLE.tablets)
    assert [part.tablet for part in parts] == sorted(set(of_row.tolist()))
    for part in parts:
        found = pq.read_table(root.inner(part.path))
        assert found["id"].to_pylist() == np.flatnonzero(of_row == part.tablet).tolist()
        assert part.facts.rows == found.num_rows


def test_beside_queries_all_rows_are_read_and_written_in_turns_by_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root, turns, done, real = Root(str(tmp_path)), list[bool](), list[tuple[str, bool]](), PACE.turn
    count = list[bool]()
    put(root)

    @contextlib.contextmanager
    def turn() -> Iterator[bool]:
        with real() as alone:
            turns.append(alone)
            count.append(alone)
            yield alone
            turns.pop()

    def noting(owner: type, name: str) -> None:
        before = getattr(owner, name)

        def note(self: Any, *given: Any, **named: Any) -> Any:
            done.append((name, bool(turns) and named.get("use_threads") is not True))
            return before(self, *given, **named)

        monkeypatch.setattr(owner, name, note)

    monkeypatch.setattr(PACE, "turn", turn)
    monkeypatch.setattr(cutting, "PIECE_BYTES", put_bytes(root) // 2)
    noting(pq.ParquetFile, "read_row_group")
    noting(pq.ParquetWriter, "write_table")
    with PACE.first(), PACE.paced(0.9):
        parts = cutting.cut(root, "r1/t1-0.parquet", TABLE, root, lambda tablet: f"r1/t2-{tablet}.parquet")
    assert sum(part.facts.rows for part in parts) == ROWS
    assert {name for name, _ in done} == {"read_row_group", "write_table"}
    assert all(is_paced for _, is_paced in done), done
    assert count == [True] * (2 + len(parts)), "of four row groups two go in one turn; each file's end is one"
