"""Which path a request takes, and what of it is left to do: decided from values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ebla
from ebla.model.relation import Column
from ebla.predicates import conditions as c
from ebla.predicates import values as v
from ebla.predicates.access import AccessPath, base_path
from ebla.query import explain, plan
from ebla.query.paths import index_path
from ebla.query.plan import Extent, FittedPath
from support.relations import relation

ORDERS = relation("orders", "id", "id bigint", "status string", "total int", "note string")
INDEX = relation("by_status", "status total id", "status string", "total int", "id bigint", number=2)
PATH = index_path(ORDERS, INDEX)
DOWN = index_path(ORDERS, INDEX, descending=["total"])


def fitted(path: AccessPath, **asked: object) -> FittedPath:
    found = plan.fit(path, c.request(ORDERS, **asked))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_equality_then_order_is_read_in_order_and_stops():
    found = fitted(PATH, where={"status": "open"}, order_by="total", columns=["id", "total"])
    assert (found.fixed, found.exact, found.backwards, found.covering) == (1, True, False, True)
    assert not found.filters


def test_a_descending_column_serves_a_descending_order_forwards():
    found = fitted(DOWN, where={"status": "open"}, order_by="-total")
    assert (found.exact, found.backwards) == (True, False)


def test_reading_backwards_leaves_rows_of_one_value_to_be_sorted_by_key():
    found = fitted(PATH, where={"status": "open"}, order_by="-total")
    assert (found.backwards, found.exact, found.sorted) == (True, False, 1)


def test_the_key_itself_is_read_backwards_exactly():
    found = fitted(base_path(ORDERS), order_by="-id")
    assert (found.backwards, found.exact) == (True, True)


def test_an_order_that_mixes_directions_is_sorted_in_part():
    found = fitted(PATH, order_by=["status", "-total"])
    assert (found.exact, found.sorted) == (False, 1)


def test_values_of_in_become_intervals_and_keep_the_order():
    found = fitted(PATH, where={"status": ebla.one_of("paid", "open")}, order_by="total")
    assert [i.low.ranks for i in found.intervals] == [((1, "open"),), ((1, "paid"),)]
    assert found.exact


def test_too_many_values_are_a_filter():
    found = fitted(PATH, where={"status": ebla.one_of(*map(str, range(100)))}, order_by="status")
    assert (found.fixed, len(found.intervals), len(found.filters)) == (0, 1, 1)


def test_ranges_and_prefixes_narrow_the_column_behind_the_fixed_ones():
    found = fitted(PATH, where={"status": "open", "total": ebla.between(3, None)}, order_by="total")
    assert (found.fixed, found.narrowed) == (1, True)
    assert found.intervals[0].low == plan.Edge(((1, "open"), (1, 3)))
    found = fitted(PATH, where={"status": ebla.prefix("op")})
    assert found.intervals == (plan.Interval(plan.Edge(((1, "op"),)), plan.Edge(((1, "oq"),), False)),)


def test_a_range_leaves_null_out_and_is_turned_around_with_its_column():
    found = fitted(DOWN, where={"status": "open", "total": ebla.between(None, 9)}, order_by="-total")
    low, high = found.intervals[0].low, found.intervals[0].high
    assert low.ranks[1] == v.Desc((1, 9))
    assert high == plan.Edge(((1, "open"), v.Desc(v.NULL)), False)


def test_a_page_begins_behind_the_last_row():
    found = fitted(PATH, where={"status": "open"}, order_by="total", after={"total": 5, "id": 7})
    assert found.intervals[0].low == plan.Edge(((1, "open"), (1, 5), (1, 7)), False)


def test_conditions_on_columns_that_an_index_lacks_wait_for_the_rows():
    found = fitted(PATH, where={"status": "open", "note": "x"}, order_by="total")
    assert not found.covering
    assert [str(f) for f in found.late] == ["note = 'x'"]


@pytest.mark.parametrize(
    ("promise", "given", "usable"),
    [
        (c.Equals("open"), "open", True),
        (c.Equals("open"), "paid", False),
        (c.OneOf(("open", "paid")), "paid", True),
        (c.NotNull(), ebla.prefix("a"), True),
        (c.NotNull(), ebla.is_null(), False),
        (c.Range("a", "p"), "open", True),
        (c.Range("a", "p"), ebla.between("a", "z"), False),
        (c.Prefix("op"), ebla.prefix("ope"), True),
    ],
)
def test_a_partial_index_serves_only_requests_that_it_holds_all_rows_of(promise, given, usable):
    path = AccessPath(
        relation=INDEX, key=PATH.key, columns=PATH.columns, predicate=(c.Filter(ORDERS.columns[1], promise),)
    )
    assert (plan.fit(path, c.request(ORDERS, where={"status": given})) is not None) is usable
    assert plan.fit(path, c.request(ORDERS)) is None


def chosen(asked: dict[str, object], *paths: AccessPath) -> plan.Plan:
    request = c.request(ORDERS, **asked)  # type: ignore[arg-type]
    found = []
    for path in paths:
        fits = plan.fit(path, request)
        assert fits is not None
        rows = 1_000_000 if not fits.used else 50_000
        extent = Extent(runs=16, runs_read=16, groups=160, groups_read=160, rows=rows)
        found.append(plan.plan(request, fits, extent))
    return plan.choose(found)


def test_the_index_that_fits_the_filter_and_the_order_is_taken():
    found = chosen({"where": {"status": "open"}, "order_by": "total", "limit": 100}, base_path(ORDERS), PATH)
    assert (found.fitted.path.name, found.scan) == ("by_status", False)


def test_without_an_order_that_fits_rows_are_scanned():
    found = chosen({"where": {"note": "x"}, "order_by": "total"}, base_path(ORDERS))
    assert found.scan


def test_the_key_is_taken_for_a_lookup_by_key():
    found = chosen({"where": {"id": 5}}, base_path(ORDERS), PATH)
    assert (found.fitted.path.is_base, found.scan) == (True, False)


def test_a_plan_says_what_is_done():
    text = explain.as_text(chosen({"where": {"status": "open", "note": "x"}, "order_by": "total"}, PATH))
    assert "path: by_status (status, total, id), index, forwards" in text
    assert "sought: status = 'open'" in text
    assert "filtered after the fetch: note = 'x'" in text
    assert "fetch: rows by key from orders" in text
    assert "row groups: at most 160 of 160" in text


@pytest.mark.parametrize(
    ("text", "behind"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff", None), ("", None)],
)
def test_the_first_string_behind_a_prefix(text, behind):
    assert c.after_prefix(text) == behind


def test_ranks_sort_as_spark_does():
    values = [2.5, float("nan"), None, float("-inf"), 0.0]
    assert [str(x) for x in sorted(values, key=v.rank)] == ["None", "-inf", "0.0", "2.5", "nan"]
    assert [str(x) for x in sorted(values, key=v.descending)] == ["nan", "2.5", "0.0", "-inf", "None"]


# ---- why a path cannot serve ----------------------------------------------------------------------------

EVEN, ODD = "=total % 2 = 0", "=total % 2 = 1"
TOKYO, UTC = {"zone": "Tokyo"}, {"zone": "UTC"}


def partial(*promises: str, predicate: tuple[c.Filter, ...] = ()) -> AccessPath:
    return replace(PATH, promises=frozenset(promises), predicate=predicate, settings=UTC)


def saying(*texts: str, settings: Mapping[str, str] = UTC, **asked: object) -> c.Request:
    made = c.request(ORDERS, **asked)  # type: ignore[arg-type]
    return replace(made, said=frozenset(texts), settings=settings)


@pytest.mark.parametrize(
    ("path", "request_", "why"),
    [
        (partial(EVEN), saying(EVEN), None),
        (partial(EVEN), saying(), "it has only rows with total % 2 = 0, which the query does not say in these words"),
        (partial(EVEN), saying(ODD), "it has only rows with total % 2 = 0, which"),
        (partial(EVEN), saying(EVEN, ODD), "total % 2 = 1 is no condition of it, and only Spark understands it"),
        (PATH, saying(EVEN), "total % 2 = 0 is no condition of it"),
        (partial(EVEN), saying(EVEN, settings=TOKYO), "its expressions were written in a session with other settings"),
        (
            partial(predicate=(c.Filter(ORDERS.columns[1], c.Equals("open")),)),
            saying(where={"status": "paid"}),
            "it has only rows with status = 'open', and the query may want others",
        ),
    ],
)
def test_why_a_path_cannot_serve(path: AccessPath, request_: c.Request, why: str | None):
    found = plan.lacks(path, request_)
    assert found == why if why is None or found is None else why in found
    assert (plan.fit(path, request_) is None) == (why is not None)


def test_a_condition_that_every_row_fulfils_is_not_looked_at_again():
    """Also where another index has its expression as a column, so that it could be compared."""
    lower = Column(name="lower", physical="=lower ( note )", type="string")
    told = c.Filter(lower, c.Equals("a"), text="=lower ( note ) = 'a'")
    asked = replace(saying(where={"status": "open"}), where=(told,))
    assert plan.lacks(PATH, asked) == "it does not have lower(note)"
    found = plan.fit(partial(told.text), asked)
    assert found is not None
    assert (found.filters, found.late) == ((), ())


BOUND = st.none() | st.integers(0, 3)
RANGES = st.builds(c.Range, BOUND, BOUND, st.booleans(), st.booleans())


@given(RANGES, RANGES)
def test_a_range_that_implies_another_lies_in_it(asked, promised):
    """Compared with points, between whole numbers too, and far outside."""
    points = [v.rank(n / 2) for n in range(-2, 9)]
    lies_in = all(c.in_range(p, promised) for p in points if c.in_range(p, asked))
    if plan._implies(asked, promised):
        assert lies_in
    elif lies_in:  # then nothing is asked for at all
        assert not any(c.in_range(p, asked) for p in points)
