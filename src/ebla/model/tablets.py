"""Which tokens a tablet holds; see `ebla.values.token`."""

from __future__ import annotations

from ebla.base.ids import TabletId, Token

TABLETS_MAX = 2**20
_TOKEN_MIN = -(2**63)


def tablet_of(token: int, tablets: int) -> TabletId:
    return TabletId((token - _TOKEN_MIN) >> (64 - bits_of(tablets)))


def token_range(tablet: int, tablets: int) -> tuple[Token, Token]:
    """The first and the last token of a tablet, both inclusive."""
    width = 2 ** (64 - bits_of(tablets))
    if not 0 <= tablet < tablets:
        raise ValueError(f"expected a tablet from 0 to {tablets - 1}, found {tablet}")
    first = _TOKEN_MIN + tablet * width
    return Token(first), Token(first + width - 1)


def bits_of(tablets: int) -> int:
    if not 1 <= tablets <= TABLETS_MAX or tablets & (tablets - 1):
        raise ValueError(f"expected a power of two from 1 to {TABLETS_MAX} tablets, found {tablets}")
    return tablets.bit_length() - 1
