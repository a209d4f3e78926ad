"""Small answers of statements: columns, or one row of numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ebla.spark.result import Result
from ebla.spark.sessions import Sessions


def columns(sessions: Sessions, values: Mapping[str, Sequence[Any] | pa.Array]) -> Result:
    return Result(table=pa.table(dict(values)), spark=lambda: sessions.spark)


def explained(lines: Iterable[str], value: Mapping[str, object], diagram: Iterable[str]) -> Result:
    """Where a thing stands in its life: as text, as JSON, and the diagram of the whole of it."""
    drawn = "\n".join(["stateDiagram-v2", *diagram])
    return Result(table=pa.table({"plan": ["\n".join(lines)], "json": [json.dumps(value)], "mermaid": [drawn]}))


def row(sessions: Sessions, **values: int | None) -> Result:
    return columns(sessions, {name: pa.array([value], pa.int64()) for name, value in values.items()})
