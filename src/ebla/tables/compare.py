"""Rows as they should be beside rows as they are: what is missing, spurious or different.

Plan of a part: one scan of each side, one shuffled join on the key. A sample takes rows by a hash that both sides have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebla.base.ids import Version
from ebla.model.relation import Column
from ebla.spark import scan as sscan
from ebla.values import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIFFERENCE = "_ebla_difference"
MISSING, SPURIOUS, DIFFERENT = "missing", "spurious", "different"
_NEAR = 1e-9
"""Sums of floating numbers depend on the order in which they are added."""
_COUNT = "_ebla_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonResult:
    """What is wrong with a relation at a version; `repaired` once it is written."""

    kind: str
    name: str
    version: Version
    missing: int = 0
    spurious: int = 0
    different: int = 0
    sample_percent: float = 100.0
    repaired: bool = False

    @classmethod
    def of(
        cls, kind: str, name: str, version: Version, wrong: Mapping[str, int], percent: float | None
    ) -> ComparisonResult:
        """The result of the numbers that `counted` gives; without `percent` all rows were compared."""
        return cls(
            kind=kind,
            name=name,
            version=version,
            missing=wrong.get(MISSING, 0),
            spurious=wrong.get(SPURIOUS, 0),
            different=wrong.get(DIFFERENT, 0),
            sample_percent=100.0 if percent is None else percent,
        )

    @property
    def wrong(self) -> bool:
        return bool(self.missing or self.spurious or self.different)


def report(done: ComparisonResult) -> pa.Table:
    """The result as rows for users; the first column says what was compared."""
    return pa.table(
        {
            done.kind: [done.name],
            "version": [int(done.version)],
            MISSING: [done.missing],
            SPURIOUS: [done.spurious],
            DIFFERENT: [done.different],
            "sample_percent": [done.sample_percent],
            "repaired": [done.repaired],
        }
    )


def sampled(frame: DataFrame, hashed: str, percent: float | None) -> DataFrame:
    """A part of the rows, the same ones on both sides; `hashed` is an expression of a long."""
    if percent is None or percent >= 100:
        return frame
    return frame.filter(f"pmod(xxhash64({hashed}), 1000000) < {percent * 10_000:.0f}")


def differences(
    should: DataFrame, found: DataFrame, columns: Sequence[Column], key: Sequence[str], *, near: bool = False
) -> DataFrame:
    """Rows that are wrong: as they should be (a spurious one as it is), and what is wrong (`_ebla_difference`).

    Both sides have the columns under their physical names. `near`: floating numbers may differ in the last digits.
    """
    from pyspark.sql import functions as F

    q = sscan.quoted
    names = [c.physical for c in columns]
    left = should.selectExpr(*sscan.renamed([(n, f"_s_{n}") for n in names]), "true AS _s")
    right = found.selectExpr(*sscan.renamed([(n, f"_f_{n}") for n in names]), "true AS _f")
    on = " AND ".join(f"{q(f'_s_{n}')} <=> {q(f'_f_{n}')}" for n in key)
    values = [_same(c, near) for c in columns if c.physical not in key]
    what = f"CASE WHEN _f IS NULL THEN '{MISSING}' WHEN _s IS NULL THEN '{SPURIOUS}' ELSE '{DIFFERENT}' END"
    return (
        left.join(right, F.expr(on), "full_outer")
        .filter(f"_f IS NULL OR _s IS NULL OR NOT ({' AND '.join(['true', *values])})")
        .selectExpr(
            *[f"IF(_s IS NULL, {q(f'_f_{n}')}, {q(f'_s_{n}')}) AS {q(n)}" for n in names], f"{what} AS {DIFFERENCE}"
        )
    )


def _same(column: Column, near: bool) -> str:
    s, f = sscan.quoted(f"_s_{column.physical}"), sscan.quoted(f"_f_{column.physical}")
    if near and column.type in ("float", "double"):
        return f"({s} <=> {f} OR coalesce(abs({s} - {f}) <= {_NEAR} * greatest(abs({s}), abs({f})), false))"
    if types.is_key_type(column.type):
        return f"{s} <=> {f}"
    return f"CAST({s} AS STRING) <=> CAST({f} AS STRING)"  # values that Spark cannot compare


def counted(frame: DataFrame) -> Mapping[str, int]:
    """How many rows are wrong, by what is wrong with them."""
    return {row[DIFFERENCE]: row["count"] for row in frame.groupBy(DIFFERENCE).count().collect()}


def counted_bags(should: DataFrame, found: DataFrame, columns: Sequence[Column]) -> Mapping[str, int]:
    """The same for rows without a key: each as often as it is missing, or there too often."""
    from pyspark.sql import functions as F

    texts = [
        sscan.quoted(c.physical) if types.is_key_type(c.type) else f"CAST({sscan.quoted(c.physical)} AS STRING)"
        for c in columns
    ]
    sides = [
        side.selectExpr(*[f"{text} AS _{name}{i}" for i, text in enumerate(texts)])
        .groupBy(*[f"_{name}{i}" for i in range(len(texts))])
        .agg(F.count(F.lit(1)).alias(f"{_COUNT}_{name}"))
        for name, side in (("s", should), ("f", found))
    ]
    on = F.expr(" AND ".join(f"_s{i} <=> _f{i}" for i in range(len(texts))))
    more = f"coalesce({_COUNT}_s, 0) - coalesce({_COUNT}_f, 0)"
    row = (
        sides[0]
        .join(sides[1], on, "full_outer")
        .selectExpr(
            f"coalesce(sum(greatest({more}, 0)), 0) AS {MISSING}",
            f"coalesce(sum(greatest(-({more}), 0)), 0) AS {SPURIOUS}",
        )
        .collect()[0]
    )
    return {MISSING: int(row[MISSING]), SPURIOUS: int(row[SPURIOUS])}
