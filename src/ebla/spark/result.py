"""What a statement returns: rows that are here already, or a Spark query that has not run yet."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ebla.errors import UsageError
from ebla.sql.lex import name_pattern
from ebla.values.columns import python_values

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


class Releasable(Protocol):
    def release(self) -> None: ...


def _release(holds: list[Releasable]) -> None:
    for hold in holds:
        hold.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of an answer besides its rows."""

    applied_version: int | None = None
    age_s: float | None = None
    next: str | None = None


def named_like(table: pa.Table, pattern: str | None) -> pa.Table:
    """The rows whose name, in the first column, fits the pattern of a SHOW statement."""
    if pattern is None:
        return table
    wanted = name_pattern(pattern)
    return table.filter(
        pa.array([wanted.fullmatch(name) is not None for name in table.column(0).to_pylist()], pa.bool_())
    )


class Result:
    """Rows with named columns. A query runs when its rows are first asked for, over the snapshot it was made on."""

    def __init__(
        self,
        *,
        table: pa.Table | None = None,
        frame: DataFrame | None = None,
        spark: Callable[[], SparkSession] | None = None,
        rescue: Callable[[BaseException], DataFrame | BaseException | None] | None = None,
        holds: Sequence[Releasable] = (),
        facts: Facts | None = None,
        running: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._table = table
        self._frame = frame
        self._spark = spark
        self._rescue = rescue
        self._facts = facts
        self._running = running
        """Around the job: it can be cancelled there, and no other with it."""
        self._holds = list(holds)
        self._finalizer = weakref.finalize(self, _release, self._holds)

    @property
    def applied_version(self) -> int | None:
        """The version up to which a view that was read without Spark has its inputs."""
        return None if self._facts is None else self._facts.applied_version

    @property
    def age_s(self) -> float | None:
        """The age of the oldest write that such a view does not have; 0 if it has all."""
        return None if self._facts is None else self._facts.age_s

    @property
    def next(self) -> str | None:
        """What `query(…, after=…)` takes for the next page; `None` if this was the last one."""
        return None if self._facts is None else self._facts.next

    @property
    def columns(self) -> list[str]:
        if self._frame is not None:
            return list(self._frame.columns)
        return list(self._schema_table().schema.names)

    def to_arrow(self) -> pa.Table:
        if self._table is None:
            try:
                self._table = self._collected()
            finally:
                _release(self._holds)
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame, in the types that Arrow gives them there."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def _collected(self) -> pa.Table:
        """The rows. An error may be rescued: by a query over other copies of the same runs, or with better words."""
        while True:
            assert self._frame is not None
            try:
                with self._running():
                    return self._frame.toArrow()
            except Exception as error:
                better = self._rescue(error) if self._rescue is not None else None
                if better is None or better is error:
                    raise
                if isinstance(better, BaseException):
                    raise better from error
                self._frame = better

    def to_spark(self) -> DataFrame:
        """The result as a lazy DataFrame. Its version stays pinned until the lease ends or the database closes."""
        self._finalizer.detach()
        self._holds.clear()
        if self._frame is None:
            if self._spark is None:
                raise UsageError("to_spark: expected a result of a database that is open, found one without Spark")
            from ebla.spark.session import local_frame

            self._frame = local_frame(self._spark(), self._schema_table())
        return self._frame

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as Python values. Dates and times beyond the years 1 to 9999 are text: `+10000-01-01`."""
        table = self.to_arrow()
        if table.num_columns == 0:
            return [() for _ in range(table.num_rows)]
        return list(zip(*[python_values(column) for column in table.columns], strict=True))

    def one(self) -> tuple[Any, ...]:
        """The only row; an error if there are none or several."""
        found = self.rows()
        if len(found) != 1:
            raise UsageError(f"one(): expected exactly one row, found {len(found)}")
        return found[0]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows())

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __repr__(self) -> str:
        return f"Result(columns={self.columns})"

    def _schema_table(self) -> pa.Table:
        assert self._table is not None
        return self._table
