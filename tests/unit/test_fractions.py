"""Binary fractions of 32 bits: the nearest one to a number, rounded once, whatever door it comes through."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ebla.model.relation import Column
from ebla.sql import literals as lit
from ebla.values import texts, types
from ebla.values.fractions import single
from ebla.values.grammar import Unfit, parse
from ebla.values.python_values import stored_value

FLOAT = parse("float")
BITS_MAX = 0x7F7FFFFF
"""Of the largest finite fraction of 32 bits."""


def fraction(bits: int) -> Fraction:
    return Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def nearest(exact: Fraction) -> float | None:
    """By comparing distances; `None` is infinite. The bits of positive fractions are in the order of their values."""
    low, high = 0, BITS_MAX + 1
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fraction(middle) <= abs(exact) else (low, middle)
    above = fraction(high) if high <= BITS_MAX else Fraction(2**128)
    below = abs(exact) - fraction(low)
    up = below > above - abs(exact) or (below == above - abs(exact) and low % 2 == 1)
    if up and high > BITS_MAX:
        return None
    return math.copysign(float(above if up else fraction(low)), exact)


@st.composite
def near_middles(draw: st.DrawFn) -> str:
    """The middle between two neighbours, or a little beside it: less than any fraction of 64 bits can say."""
    bits = draw(st.one_of(st.integers(1, BITS_MAX), st.integers(1, 300), st.integers(BITS_MAX - 300, BITS_MAX)))
    above = fraction(bits + 1) if bits < BITS_MAX else Fraction(2**128)
    middle = (fraction(bits) + above) / 2
    power = middle.denominator.bit_length() - 1
    digits = f"{Decimal(middle.numerator * 5**power):f}"
    beside = draw(st.sampled_from([0, 1, -1]))
    number = int(digits) * 10**20 + beside
    return f"{draw(st.sampled_from(['', '-']))}{number}e-{power + 20}"


@given(st.one_of(near_middles(), st.decimals(allow_nan=False, allow_infinity=False).map(str)))
def test_the_nearest_fraction(text: str):
    exact = Fraction(text)
    assume(abs(exact) < 10**60)
    expected = nearest(exact)
    if expected is None:
        with pytest.raises(OverflowError):
            single(text)
        return
    assert single(text) == single(Decimal(text)) == expected
    if expected == 0 and exact != 0:
        with pytest.raises(Unfit, match="too small"):
            texts.value(text, FLOAT)
        return
    assert texts.value(text, FLOAT) == stored_value(Decimal(text), FLOAT) == expected
    assert lit.whole(f"{text}F", lit.Dialect()).value == np.float32(expected)


BESIDE = [
    "1.00000005960464477539062500001",
    "16777217.00000001",
    "-16777217.00000001",
    "16777216.99999999",
    "16777219.0",
]


@pytest.mark.parametrize("digits", BESIDE)
def test_every_door_rounds_once(digits: str):
    """Numbers whose nearest double is the middle between two floats."""
    expected = nearest(Fraction(digits))
    column = Column(name="f", physical="f", type="float")
    assert texts.array(pa.array([digits]), FLOAT).to_pylist() == [expected]
    decimals = pa.table({"f": pa.array([Decimal(digits)])})
    assert types.fit(decimals, [column], relation="t")["f"].to_pylist() == [expected]
    assert types.from_rows([{"f": Decimal(digits)}], [column], relation="t")["f"].to_pylist() == [expected]
    assert lit.stored(lit.whole(digits, lit.Dialect()), FLOAT, "UTC") == expected
