"""CHECK and REPAIR in parts: which tokens, which tablets, how fast."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ebla.base import settings
from ebla.base.ids import NodeId, RunId
from ebla.errors import UnknownNameError, UsageError
from ebla.tables import table_check
from ebla.tables.context import Context
from ebla.tables.parts import PARTS_MAX, CheckSpeed, Part, count_of, paced
from ebla.values.token import token_range

SETTINGS = settings.load(check_chunk_rows=100)


def pace(rate: int | None = None, chunk: int = 100) -> CheckSpeed:
    return CheckSpeed(rows_per_minute=rate, chunk_rows=chunk)


@pytest.mark.parametrize(
    ("rows", "given", "count"),
    [
        (0, pace(), 1),
        (100, pace(), 1),
        (101, pace(), 2),
        (500, pace(), 8),  # a power of two
        (500, pace(rate=50), 16),  # no more than a minute's worth
        (500, pace(rate=5000), 8),
        (10**12, pace(), PARTS_MAX),
    ],
)
def test_parts_are_as_many_as_make_none_too_large(rows: int, given: CheckSpeed, count: int):
    assert count_of(rows, given) == count


def test_a_part_is_a_range_of_tokens():
    assert Part(number=3, count=4).tokens == (token_range(3, 4),)


def test_one_part_asks_for_everything():
    assert Part(number=0, count=1).tokens is None
    assert Part(number=0, count=1).within("x") == "true"


def test_parts_of_tokens_meet_and_do_not_overlap():
    assert Part(number=0, count=2).within("x") == "x BETWEEN (-9223372036854775807L - 1L) AND -1L"
    assert Part(number=1, count=2).within("x") == "x BETWEEN 0L AND 9223372036854775807L"


def test_so_many_rows_take_at_least_their_time_and_say_how_far_they_are():
    now_us, said = 0, list[tuple[str, float | None]]()
    slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_us, slept
        slept += seconds
        now_us += round(seconds * 1e6)

    context = cast(Context, SimpleNamespace(progress=lambda what, part: said.append((what, part))))
    given = pace(rate=600)
    assert list(paced(context.progress, "checking x", [100, 50], given, clock=lambda: now_us, sleep=sleep)) == [0, 1]
    assert slept == pytest.approx(150 / 600 * 60)
    assert ("checking x: part 2 of 2, 100 of 150 rows", 100 / 150) in said
    assert ("checking x: 100 of 150 rows, waiting for its rate", 100 / 150) in said


def test_options_come_before_settings():
    given = settings.load(check_rows_per_minute=7, check_chunk_rows=9)
    assert CheckSpeed.of(given, {}) == pace(rate=7, chunk=9)
    assert CheckSpeed.of(given, {"rows_per_minute": None, "chunk_rows": 3}) == pace(rate=None, chunk=3)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"speed": 1}, UnknownNameError, "check: expected rows_per_minute or chunk_rows, found speed"),
        ({"rows_per_minute": 0}, UsageError, "rows_per_minute: expected a whole number from 1, or NULL for no limit"),
        ({"rows_per_minute": "many"}, UsageError, "found 'many'"),
        ({"rows_per_minute": 1.5}, UsageError, "found 1.5"),
        ({"chunk_rows": None}, UsageError, "chunk_rows: expected a whole number from 1, found None"),
        ({"chunk_rows": True}, UsageError, "found True"),
    ],
)
def test_options_are_checked(options: dict[str, object], error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        CheckSpeed.of(SETTINGS, options)


def run(name: str, rows: int, size: int = 1) -> Any:
    return SimpleNamespace(id=RunId(name), rows=rows, bytes=size, nodes=(NodeId("n1"), NodeId("n2")))


def test_runs_are_read_together_as_long_as_they_are_few():
    runs = [run("a", 10), run("b", 10), run("c", 30), run("d", 1)]
    assert [[r.id for r in piece] for piece in table_check.in_pieces(runs, 40)] == [["a", "b"], ["c"], ["d"]]
    assert table_check.in_pieces([], 40) == []


def test_many_or_large_runs_are_read_by_spark():
    assert not table_check.is_large([run("a", 1, size=table_check.HERE_BYTES_MAX // 2)])
    assert table_check.is_large([run("a", 1, size=table_check.HERE_BYTES_MAX // 2 + 1)])
    assert table_check.is_large([run("a", 1)] * (table_check.HERE_RUNS_MAX + 1))
