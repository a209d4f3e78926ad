"""Where a row lives: the token of its key, and the tablet of a token.

Theory. The token of a row is Spark's `xxhash64` of its key columns, so that Spark (in a plan) and Python (in
a write of a few rows) put the same row in the same place. Spark hashes column by column with XXH64: the
seed of the first is 42, the seed of each next is the hash so far, and NULL leaves the hash as it is. What is
hashed is not the value as stored but Spark's idea of it:

    boolean, tinyint, smallint, int, date       4 bytes: the value as a 32-bit integer
    bigint, timestamp, timestamp_ntz            8 bytes: the value as a 64-bit integer
    float, double                               4 or 8 bytes: the IEEE bits; -0.0 as 0.0, every NaN as one
    decimal, up to 18 digits                    8 bytes: the unscaled value
    decimal, more digits                        the unscaled value, two's complement, big-endian, shortest
    string, binary                              the bytes; of a string, UTF-8

So the token depends on the type as well: 1 as int and 1 as bigint have different tokens, and so have 1.0
and 1.00. NULL counts like no column at all: the different keys (NULL, 1) and (1, NULL) share a token.

A relation has 2^n tablets. Tablet i holds the tokens whose upper n bits, counted from the lowest signed
token, are i: one contiguous range. Doubling the tablets splits tablet i into 2i and 2i+1 and moves no row
elsewhere.

Values of fixed width are hashed by numpy, a whole column at once; bytes one by one by the C library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ebla.base.ids import Token
from ebla.errors import TypeMismatchError
from ebla.model.tablets import TABLETS_MAX, bits_of, tablet_of, token_range
from ebla.values import types

__all__ = ["SEED", "TABLETS_MAX", "tablet_of", "tablets_of", "token_of", "token_range", "tokens"]

SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_Hashes = npt.NDArray[np.uint64]


def tokens(table: pa.Table, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """The token of every row, from the key columns in the order of `names`.

    The columns must have the relation's types (`types.fit`), because the token depends on them.
    """
    hashes = np.full(table.num_rows, SEED, np.uint64)
    for name in names:
        start = 0
        for chunk in table.column(name).chunks:
            seeds = hashes[start : start + len(chunk)]
            hashed = _hash_column(chunk, seeds, name) if len(chunk) else seeds
            if chunk.null_count:
                hashed = np.where(chunk.is_null().to_numpy(zero_copy_only=False), seeds, hashed)
            seeds[:] = hashed
            start += len(chunk)
    return hashes.view(np.int64)


def token_of(values: Sequence[object], sql_types: Sequence[str]) -> Token:
    """The token of one key, given as Python values that `types.from_rows` would take."""
    columns = [_KeyColumn(name=f"key {n}", type=sql_type) for n, sql_type in enumerate(sql_types, start=1)]
    names = [column.name for column in columns]
    table = types.from_rows([dict(zip(names, values, strict=True))], columns, relation="token")
    return Token(int(tokens(table, names)[0]))


def tablets_of(tokens: npt.NDArray[np.int64], tablets: int) -> npt.NDArray[np.int64]:
    """`tablet_of` for an array."""
    bits = bits_of(tablets)
    if bits == 0:  # numpy cannot shift by the whole width
        return np.zeros(len(tokens), np.int64)
    # Flipping the sign bit counts the tokens from the lowest: -2^63 becomes 0.
    return ((tokens.view(np.uint64) ^ np.uint64(2**63)) >> np.uint64(64 - bits)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyColumn:
    name: str
    type: str
    nullable: bool = True


def _hash_column(array: Any, seeds: _Hashes, name: str) -> _Hashes:
    """The hash of each value with its own seed; where the value is NULL, anything."""
    sql_type = types.from_arrow(array.type)
    if array.type != types.to_arrow(sql_type):
        raise TypeMismatchError(f"key column {name!r}: expected a fitted column, found Arrow's {array.type}")
    match sql_type.partition("(")[0]:
        case "boolean" | "tinyint" | "smallint" | "int":
            return _hash_32_bits(_numpy(array.cast(pa.int32())), seeds)
        case "date":
            return _hash_32_bits(_numpy(array.view(pa.int32())), seeds)
        case "bigint" | "timestamp" | "timestamp_ntz":
            return _hash_64_bits(_numpy(array.view(pa.int64())), seeds)
        case "float":
            return _hash_32_bits(_one_zero_one_nan(_numpy(array)).view(np.int32), seeds)
        case "double":
            return _hash_64_bits(_one_zero_one_nan(_numpy(array)).view(np.int64), seeds)
        case "string" | "binary":
            return _hash_bytes(pc.fill_null(array.view(pa.binary()), b"").to_pylist(), seeds)
        case "decimal":
            words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :][: 2 * len(array)]
            low, high = words[0::2], words[1::2]
            if array.type.precision <= 18:
                return _hash_64_bits(low, seeds)
            unscaled = zip(high.tolist(), low.view(np.uint64).tolist(), strict=True)
            return _hash_bytes([_shortest(upper << 64 | lower) for upper, lower in unscaled], seeds)
        case _:
            raise TypeMismatchError(f"key column {name!r}: expected an atomic type, found {sql_type}")


def _numpy(array: Any) -> Any:
    """The values without a copy; a NULL is whatever lies there."""
    width = array.type.bit_width // 8
    kind = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * width)


def _one_zero_one_nan(values: Any) -> Any:
    with np.errstate(invalid="ignore"):  # a signalling NaN is still a NaN
        values = values + values.dtype.type(0)  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    return values


def _shortest(value: int) -> bytes:
    """As Java's `BigInteger.toByteArray`: as few bytes as hold the value and its sign."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _hash_bytes(values: Sequence[bytes], seeds: _Hashes) -> _Hashes:
    digest = xxhash.xxh64_intdigest
    hashes = [digest(value, seed) for value, seed in zip(values, seeds.tolist(), strict=True)]
    return np.array(hashes, np.uint64)


def _hash_32_bits(values: npt.NDArray[np.int32], seeds: _Hashes) -> _Hashes:
    hashes = seeds + (_P5 + np.uint64(4))
    hashes ^= values.view(np.uint32).astype(np.uint64) * _P1
    return _avalanche(_rotated(hashes, 23) * _P2 + _P3)


def _hash_64_bits(values: npt.NDArray[np.int64], seeds: _Hashes) -> _Hashes:
    hashes = seeds + (_P5 + np.uint64(8))
    hashes ^= _rotated(values.astype(np.uint64) * _P2, 31) * _P1
    return _avalanche(_rotated(hashes, 27) * _P1 + _P4)


def _rotated(values: _Hashes, bits: int) -> _Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: _Hashes) -> _Hashes:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes
