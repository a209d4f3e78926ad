"""Tokens and tablets, against values recorded from Spark; `test_token_spark.py` asks Spark itself."""

from __future__ import annotations

import datetime as dt
import math
import time
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebla.errors import TypeMismatchError
from ebla.values import token

unhurried = settings(deadline=None)  # a busy machine is no failure
MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 6)
TOKEN_MIN, TOKEN_MAX = -(2**63), 2**63 - 1
signed = st.integers(TOKEN_MIN, TOKEN_MAX)
tablet_counts = st.integers(0, 20).map(lambda bits: 2**bits)


class TestToken:
    @pytest.mark.parametrize(
        ("values", "sql_types", "expected"),
        [
            ([True], ["boolean"], -6698625589789238999),
            ([-1], ["tinyint"], 2017008487422258757),
            ([7], ["smallint"], 2786828215451145335),
            ([7], ["int"], 2786828215451145335),
            ([7], ["bigint"], -2864211556195259663),
            ([1.5], ["float"], 6163473420726370430),
            ([math.nan], ["float"], 2692338816207849720),
            ([0.0], ["double"], -5252525462095825812),
            ([-0.0], ["double"], -5252525462095825812),
            ([math.nan], ["double"], -3127944061524951246),
            ([Decimal("1.5")], ["decimal(10,2)"], -6873856301616164681),
            ([99], ["decimal(18,0)"], -2952515833405150181),
            ([Decimal("-12345678901234567890.12")], ["decimal(38,2)"], 2794727827352827620),
            ([""], ["string"], -7444071767201028348),
            (["ebla"], ["string"], 1905104519981346985),
            (["ä😀 and more than thirty-two bytes of text"], ["string"], -6407945660595761571),
            ([b"\x00\xff"], ["binary"], 879945414100663330),
            ([dt.date(1969, 12, 31)], ["date"], 2017008487422258757),
            ([MOMENT.replace(tzinfo=dt.UTC)], ["timestamp"], -2050186033471453396),
            ([MOMENT], ["timestamp_ntz"], -2050186033471453396),
            ([None], ["int"], token.SEED),
            ([1, None, "x"], ["bigint", "int", "string"], 6158280145716684778),
            ([None, 1], ["string", "int"], -6698625589789238999),
            ([1, None], ["int", "string"], -6698625589789238999),
        ],
    )
    def test_is_spark_s_hash(self, values, sql_types, expected):
        assert token.token_of(values, sql_types) == expected

    def test_a_value_of_the_wrong_type_has_no_token(self):
        with pytest.raises(TypeMismatchError, match="expected int, found '1'"):
            token.token_of(["1"], ["int"])
        with pytest.raises(TypeMismatchError, match="expected tinyint, found 300"):
            token.token_of([300], ["tinyint"])

    def test_as_many_values_as_types(self):
        with pytest.raises(ValueError, match="zip"):
            token.token_of([1, 2], ["int"])

    def test_no_rows_and_no_columns(self):
        empty = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
        assert token.tokens(empty, ["a", "b"]).tolist() == []
        assert token.tokens(pa.table({"a": pa.chunked_array([], pa.int64())}), ["a"]).tolist() == []
        assert token.tokens(pa.table({"a": [1, 2]}), []).tolist() == [token.SEED] * 2

    @pytest.mark.parametrize(
        "array",
        [
            pa.array([1], pa.uint32()),
            pa.array([1], pa.timestamp("ns")),
            pa.array([1], pa.timestamp("us", "Europe/Paris")),
            pa.array(["a"], pa.large_string()),
            pa.array(["a"]).dictionary_encode(),
            pa.array([[1]]),
            pa.array([None]),
        ],
    )
    def test_columns_that_are_not_fitted_are_refused(self, array):
        with pytest.raises(TypeMismatchError):
            token.tokens(pa.table({"a": array}), ["a"])

    @unhurried
    @given(
        rows=st.lists(
            st.tuples(
                st.one_of(st.none(), st.booleans()),
                st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
                st.one_of(st.none(), signed),
                st.one_of(st.none(), st.floats(width=32)),
                st.one_of(st.none(), st.text(st.characters(blacklist_categories=["Cs"]), max_size=9)),
                st.one_of(st.none(), st.integers(-(10**30), 10**30).map(Decimal)),
                st.one_of(st.none(), st.integers(-(10**9), 10**9).map(Decimal)),
                st.one_of(st.none(), st.dates()),
            ),
            max_size=12,
        ),
        cuts=st.lists(st.integers(0, 12), max_size=3),
    )
    def test_chunks_slices_and_single_rows_agree(self, rows, cuts):
        sql_types = ["boolean", "int", "bigint", "float", "string", "decimal(38,0)", "decimal(18,0)", "date"]
        kinds = [
            pa.bool_(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.string(),
            pa.decimal128(38, 0),
            pa.decimal128(18, 0),
            pa.date32(),
        ]
        names = [f"k{n}" for n in range(len(kinds))]
        columns = zip(*rows, strict=True) if rows else [[] for _ in kinds]
        table = pa.table({n: pa.array(list(c), k) for n, c, k in zip(names, columns, kinds, strict=True)})
        edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        chunked = pa.concat_tables(table.slice(a, b - a) for a, b in pairwise(edges))
        whole = token.tokens(table, names).tolist()
        assert token.tokens(chunked, names).tolist() == whole
        assert [token.token_of(row, sql_types) for row in rows] == whole

    def test_the_order_of_columns_counts(self):
        table = pa.table({"a": [1], "b": [2]})
        assert token.tokens(table, ["a", "b"]) != token.tokens(table, ["b", "a"])

    @pytest.mark.parametrize("names", [["a", "b"], ["s"]])
    def test_is_fast(self, names):
        """The targets are 2 and 3 ms of work for 1,000 rows; what others do meanwhile does not count."""
        n = 1_000
        data = {"a": np.arange(n), "b": np.arange(n, dtype=np.int32), "s": [f"user {i}" for i in range(n)]}
        table, best = pa.table(data), math.inf
        for _ in range(10):
            start = time.thread_time()
            token.tokens(table, names)
            best = min(best, time.thread_time() - start)
        assert best < 0.005


class TestTablets:
    @unhurried
    @given(signed, tablet_counts)
    def test_a_token_lies_in_the_range_of_its_tablet(self, value, tablets):
        tablet = token.tablet_of(value, tablets)
        first, last = token.token_range(tablet, tablets)
        assert 0 <= tablet < tablets
        assert first <= value <= last
        assert token.tablets_of(np.array([value], np.int64), tablets).tolist() == [tablet]

    @pytest.mark.parametrize("tablets", [1, 2, 4, 1024])
    def test_ranges_cover_the_token_space_without_gap(self, tablets):
        ranges = [token.token_range(tablet, tablets) for tablet in range(tablets)]
        assert ranges[0][0] == TOKEN_MIN
        assert ranges[-1][1] == TOKEN_MAX
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(ranges))

    @unhurried
    @given(signed, st.integers(0, 19).map(lambda bits: 2**bits))
    def test_a_split_moves_rows_only_to_the_two_halves(self, value, tablets):
        assert token.tablet_of(value, 2 * tablets) // 2 == token.tablet_of(value, tablets)

    def test_the_ends(self):
        assert token.token_range(0, 1) == (TOKEN_MIN, TOKEN_MAX)
        assert token.token_range(1, 2) == (0, TOKEN_MAX)
        assert [token.tablet_of(t, 2) for t in (TOKEN_MIN, -1, 0, TOKEN_MAX)] == [0, 0, 1, 1]
        assert token.tablets_of(np.array([TOKEN_MIN, -1, 0, TOKEN_MAX]), 4).tolist() == [0, 1, 2, 3]
        assert token.tablets_of(np.array([], np.int64), 1).tolist() == []

    @pytest.mark.parametrize("tablets", [0, -1, 3, 6, 2**20 + 1, 2**21])
    def test_the_number_of_tablets_is_a_power_of_two(self, tablets):
        calls: list[Any] = [
            lambda: token.tablet_of(0, tablets),
            lambda: token.tablets_of(np.array([0]), tablets),
            lambda: token.token_range(0, tablets),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="expected a power of two from 1 to 1048576 tablets, found"):
                call()

    @pytest.mark.parametrize("tablet", [-1, 4])
    def test_a_range_is_that_of_a_tablet(self, tablet):
        with pytest.raises(ValueError, match="expected a tablet from 0 to 3"):
            token.token_range(tablet, 4)
