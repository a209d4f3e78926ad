"""A long look at a relation, part by part and no faster than it may be: `CHECK` and `REPAIR`.

A part is a range of tokens. There are as many as make none larger than `chunk_rows`, and no larger than a minute's
worth at the rate; their number is a power of two, so each is some whole tablets, or a piece of one. Every part reads
the newest snapshot and holds it only while it is compared, so a slow check keeps nothing old from vacuum. Between parts
it can be stopped: what a repair has committed stays, and the next one goes on with what is left.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebla.base.activities import Progress
from ebla.base.settings import Settings
from ebla.errors import UnknownNameError, UsageError
from ebla.model.tablets import TokenRange, token_range
from ebla.model.throttle import Throttle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS_MAX = 4096
REST_S = 0.2

OPTIONS = ("rows_per_minute", "chunk_rows")
"""Of `CHECK` and `REPAIR`; named as those of builds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpeed:
    """How fast a relation is looked at. `None`: as fast as it goes."""

    rows_per_minute: int | None
    chunk_rows: int

    @classmethod
    def of(cls, settings: Settings, options: Mapping[str, object]) -> CheckSpeed:
        """The options of a statement, checked, and the settings where it gives none."""
        for name, value in options.items():
            if name not in OPTIONS:
                raise UnknownNameError(f"check: expected {' or '.join(OPTIONS)}, found {name}")
            without = name == "rows_per_minute" and value is None
            if not without and (type(value) is not int or value < 1):
                limit = ", or NULL for no limit" if name == "rows_per_minute" else ""
                raise UsageError(f"{name}: expected a whole number from 1{limit}, found {value!r}")
        rate = options.get("rows_per_minute", settings.check_rows_per_minute)
        chunk = options.get("chunk_rows", settings.check_chunk_rows)
        assert isinstance(chunk, int)
        return cls(rows_per_minute=rate if isinstance(rate, int) else None, chunk_rows=chunk)

    @property
    def part_rows(self) -> int:
        return self.chunk_rows if self.rows_per_minute is None else min(self.chunk_rows, self.rows_per_minute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of `count` equal ranges of tokens."""

    number: int
    count: int

    @property
    def tokens(self) -> tuple[TokenRange, ...] | None:
        """The range; `None`: all tokens."""
        return None if self.count == 1 else (token_range(self.number, self.count),)

    def within(self, hashed: str) -> str:
        """A condition of Spark SQL: this long lies in the range."""
        if self.count == 1:
            return "true"
        first, last = token_range(self.number, self.count)
        low = f"{first}L" if first > -(2**63) else "(-9223372036854775807L - 1L)"
        return f"{hashed} BETWEEN {low} AND {last}L"


def count_of(rows: int, pace: CheckSpeed) -> int:
    """In how many parts this many rows are looked at."""
    wanted = -(-rows // pace.part_rows)
    return min(PARTS_MAX, 1 << max(0, wanted - 1).bit_length())


def parts(progress: Progress, what: str, rows: int, pace: CheckSpeed) -> Iterator[Part]:
    """The parts of a relation with this many rows, each when its turn has come; says how far it is."""
    count = count_of(rows, pace)
    for number in paced(progress, what, [-(-rows // count)] * count, pace):
        yield Part(number=number, count=count)


def paced(
    progress: Progress,
    what: str,
    sizes: list[int],
    pace: CheckSpeed,
    *,
    clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """The numbers of pieces of these sizes, in rows, each when its turn has come, and the end when all are paid for."""
    throttle = Throttle(rows_per_minute=pace.rows_per_minute, at_us=clock())
    done, rows = 0, sum(sizes)
    for number, size in enumerate(sizes):
        said = f"{what}: part {number + 1} of {len(sizes)}, {done:,} of {rows:,} rows"
        progress(said, done / max(1, rows))
        yield number
        done += size
        throttle = throttle.spent(size, clock())
        while wait_us := throttle.wait_us(clock()):
            progress(f"{what}: {done:,} of {rows:,} rows, waiting for its rate", done / max(1, rows))
            sleep(min(REST_S, wait_us / 1e6))


@contextlib.contextmanager
def stoppable(spark: SparkSession) -> Iterator[None]:
    """A statement that is interrupted here (`Ctrl-C`) leaves no Spark job behind."""
    tag = f"ebla-check-{uuid.uuid4()}"
    spark.sparkContext.addJobTag(tag)
    try:
        yield
    except Exception:
        raise
    except BaseException:
        spark.sparkContext.cancelJobsWithTag(tag)
        raise
    finally:
        spark.sparkContext.removeJobTag(tag)
