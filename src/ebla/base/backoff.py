"""How long to wait before the next try."""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause that doubles with every failure in a row, from `first` up to `most`. Both are in one unit of time."""

    first: float
    most: float

    def after(self, failures: int) -> float:
        """The pause after this many failures in a row; after none, no pause."""
        return 0.0 if failures <= 0 else min(self.most, self.first * 2 ** min(failures - 1, DOUBLINGS_MAX))
