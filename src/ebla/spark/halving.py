"""A row that makes a computation fail, found by halving the rows that it has at hand."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def one_row(rows: pa.Table, fails: Callable[[pa.Table], bool]) -> pa.Table | None:
    """One row with which alone it fails; `None` if it fails without rows, or with no single one of them."""
    if fails(rows.slice(0, 0)):
        return None
    while rows.num_rows > 1:
        half = rows.num_rows // 2
        first, second = rows.slice(0, half), rows.slice(half)
        if fails(first):
            rows = first
        elif fails(second):
            rows = second
        else:
            return None
    return rows
