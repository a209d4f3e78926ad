"""Which way an epoch takes: over the driver, over Spark, or by computing the view anew.

The estimate is deliberately plain. Rows written are known from the catalog before anything is read; a share of an
input is taken to touch the same share of the view. Following a change costs about twice per affected row what
recomputing costs per row (it is looked up, joined and merged with what is there), so above a certain share recomputing
is cheaper. Few rows are fastest through the driver: no Spark job reads an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

SHARE_MAX = 0.4
"""A change of more than this share of an input is not followed."""


LARGE_ROWS = 50_000
"""An epoch of more rows takes long enough that a piece of compaction is abandoned for it."""


class Way(StrEnum):
    DRIVER = "driver"
    SPARK = "spark"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    way: Way
    share: float
    """Of the view, that the change touches."""
    reason: str


def estimate(written: Mapping[str, int], sizes: Mapping[str, int], *, rows_max: int, view_rows: int) -> Estimate:
    """From rows written to each input, and how many rows it has."""
    shares = {t: min(1.0, rows / max(1, sizes[t])) for t, rows in written.items() if rows}
    share = min(1.0, sum(shares.values()))
    rows = sum(written.values())
    if rows <= rows_max and (view_rows * share <= 4 * rows_max or share <= SHARE_MAX):
        return Estimate(way=Way.DRIVER, share=share, reason=f"{rows} rows changed")
    if share > SHARE_MAX:
        most = max(shares, key=lambda t: shares[t])
        return Estimate(way=Way.RECOMPUTE, share=share, reason=f"{shares[most]:.0%} of {most} changed")
    return Estimate(way=Way.SPARK, share=share, reason=f"{rows} rows changed")


def is_large(written: Mapping[str, int], guess: Estimate, view_rows: int) -> bool:
    """Whether an epoch follows or computes more rows than `LARGE_ROWS`: then it is worth all cores."""
    return (view_rows if guess.way is Way.RECOMPUTE else sum(written.values())) > LARGE_ROWS
