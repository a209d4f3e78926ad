"""Requests that cannot be meant: each is refused with what was expected, what was found, and what to do."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

import ebla
from ebla.errors import EblaError, TypeMismatchError, UnknownNameError, UsageError
from ebla.predicates import conditions as c
from support.relations import relation

T = relation("t", "id", "id bigint", "name string", "total int", "price decimal(8,2)", "tags array<string>", number=7)


def cursor(*content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(content)).encode()).decode()


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"where": {"name": []}}, TypeMismatchError, "expected a value for name, or a list of conditions, found []"),
        ({"where": {"name": ["a"]}}, TypeMismatchError, "found ['a']; use one_of(…)"),
        ({"where": {"name": [ebla.prefix("a"), "b"]}}, TypeMismatchError, "use one_of(…)"),
        ({"where": []}, UsageError, "where: expected a dict of columns and conditions, found list"),
        ({"where": ""}, UsageError, "where: expected a dict of columns and conditions, found str"),
        ({"where": {1: 2}}, UnknownNameError, "where: expected a column of t (id, name, total, price, tags), found 1"),
        ({"where": {"total": True}}, TypeMismatchError, "t.total: expected int"),
        ({"where": {"tags": "a"}}, TypeMismatchError, "t.tags: expected is_null() or not_null() for array<string>"),
        ({"order_by": 5}, UsageError, "order_by: expected a name such as 'total' or '-total', or a list, found 5"),
        ({"order_by": {"total": 1}}, UsageError, "or a list, found {'total': 1}"),
        ({"order_by": {"total"}}, UsageError, "or a list, found {'total'}"),
        ({"order_by": [None]}, UsageError, "order_by: expected names such as"),
        ({"order_by": "--total"}, UnknownNameError, "found '-total'"),
        ({"order_by": "tags"}, TypeMismatchError, "expected a type that has an order, found tags array<string>"),
        ({"columns": "name"}, UsageError, "columns: expected a list of names, found 'name'"),
        ({"columns": 5}, UsageError, "columns: expected a list of names, found 5"),
        ({"limit": 0}, UsageError, "limit: expected a whole number from 1 to 10000, found 0; read more in pages"),
        ({"limit": -1}, UsageError, "found -1"),
        ({"limit": 10**9}, UsageError, "found 1000000000"),
        ({"limit": None}, UsageError, "found None"),
        ({"limit": True}, UsageError, "found True"),
        ({"after": (1,)}, UsageError, "after: expected the `next` of a result, or a dict"),
        ({"after": {}}, UsageError, "after: expected values of id, found none of id"),
        (
            {"after": {"id": 1, "nope": 3}},
            UnknownNameError,
            "after: expected a column of t (id, name, total, price, tags)",
        ),
        ({"after": {1: 1}}, UnknownNameError, "found 1"),
        ({"after": {"id": "x"}}, TypeMismatchError, "t.id: expected bigint"),
        ({"after": "garbage"}, UsageError, "after: expected the `next` of a result, found 'garbage'"),
        ({"after": cursor(7, ["id"], [])}, UsageError, "after: expected a cursor of t in the order id"),
        ({"after": cursor(7, ["id"], 5)}, UsageError, "after: expected a cursor of t in the order id"),
        ({"after": cursor(7, ["id"])}, UsageError, "after: expected the `next` of a result"),
        ({"after": cursor(8, ["id"], [1])}, UsageError, "found one of another query"),
        ({"after": cursor(7, ["-id"], [1])}, UsageError, "found one of another query"),
        ({"after": cursor(7, ["id"], ["x"])}, UsageError, "found 'x' for id bigint in it"),
        ({"after": cursor(7, ["id"], [True])}, UsageError, "found True for id bigint in it"),
        ({"after": cursor(7, ["id"], [[1]])}, UsageError, "found [1] for id bigint in it"),
        (
            {"order_by": "price", "after": cursor(7, ["price", "id"], [1, 1])},
            UsageError,
            "for price decimal(8,2) in it",
        ),
        ({"order_by": "price", "after": cursor(7, ["price", "id"], [{"d": "x"}, 1])}, UsageError, "for price decimal"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, Any], error: type[EblaError], says: str):
    with pytest.raises(error) as caught:
        c.request(T, **asked)
    assert says in str(caught.value)


def test_a_cursor_of_every_kind_of_value_is_read_back():
    found = c.request(T, order_by=["price", "name"], after={"price": None, "name": "é", "id": 5})
    again = c.request(T, order_by=["price", "name"], after=c.cursor(T, found.order, found.after or ()))
    assert again.after == found.after == (None, "é", 5)
