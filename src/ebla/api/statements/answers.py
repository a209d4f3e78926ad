"""Small answers of statements: columns, or one row of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ebla.spark.result import Result
from ebla.tables.context import Context


def columns(context: Context, values: Mapping[str, Sequence[Any] | pa.Array]) -> Result:
    return Result(table=pa.table(dict(values)), spark=lambda: context.spark)


def row(context: Context, **values: int | None) -> Result:
    return columns(context, {name: pa.array([value], pa.int64()) for name, value in values.items()})
