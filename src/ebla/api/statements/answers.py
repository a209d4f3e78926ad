"""Small answers of statements: columns, or one row of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ebla.spark.result import Result
from ebla.spark.sessions import Sessions


def columns(sessions: Sessions, values: Mapping[str, Sequence[Any] | pa.Array]) -> Result:
    return Result(table=pa.table(dict(values)), spark=lambda: sessions.spark)


def row(sessions: Sessions, **values: int | None) -> Result:
    return columns(sessions, {name: pa.array([value], pa.int64()) for name, value in values.items()})
