"""Numbers as binary fractions of 32 bits, rounded once.

The nearest fraction of 64 bits is not a step on the way: where it lies in the middle between two of 32 bits, it no
longer says on which side of the middle the number was.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal

_BITS = 24
_EXPONENT_MIN = -126
"""Fractions below 2 to this have fewer bits."""


def single(number: str | Decimal) -> float:
    """The fraction of 32 bits that is nearest to a finite number, of two the even one; an OverflowError if it is
    infinite."""
    found = float(number)
    if _is_middle(found):
        exact = Decimal(number)
        if exact != Decimal(found):
            found = math.nextafter(found, math.inf if exact > Decimal(found) else -math.inf)
    return narrowed(found)


def narrowed(found: float) -> float:
    """A fraction of 64 bits as the nearest one of 32; an OverflowError if only that is infinite."""
    return float(struct.unpack("<f", struct.pack("<f", found))[0])


def _is_middle(found: float) -> bool:
    """Whether it is as far from one fraction of 32 bits as from the next."""
    if not math.isfinite(found):
        return False
    exponent = max(math.frexp(found)[1] - 1, _EXPONENT_MIN)
    halves = math.ldexp(found, _BITS - exponent)
    return halves.is_integer() and int(halves) % 2 == 1
