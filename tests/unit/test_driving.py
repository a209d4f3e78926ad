"""Which views are built in chunks, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.algebra.build_method import BuildMethod, DrivenBuild, GrowingBuild, OnePieceBuild, driving, one_by_one
from ebla.algebra.merge import sketch
from ebla.algebra.nodes import NotUnderstood
from ebla.algebra.shape import understood
from ebla.model.relation import ROW_SEQ, ROW_TXN, Column, Kind
from ebla.sql.refs import find
from support.relations import relation

ORDERS = relation("orders", "id", "id bigint", "customer bigint", "total bigint", number=1)
LINES = relation("lines", "o n", "o bigint", "n int", "part bigint", number=2)
CUSTOMERS = relation("customers", "id", "id bigint", "name string", number=3)
PARTS = relation("parts", "id", "id int", "brand string", number=4)
CARD = relation("card", "id", "id bigint", "name string", number=5)
LOG = replace(
    relation("log", "", "id bigint", "text string", number=6),
    columns=(
        Column(name="id", physical="id", type="bigint"),
        Column(name=ROW_TXN, physical=ROW_TXN, type="bigint", key_position=0, hidden=True),
        Column(name=ROW_SEQ, physical=ROW_SEQ, type="bigint", key_position=1, hidden=True),
    ),
)
RELATIONS = {r.name: r for r in (ORDERS, LINES, CUSTOMERS, PARTS, replace(CARD, kind=Kind.VIEW), LOG)}


def how(text: str, key: str) -> BuildMethod:
    """Of a view with this query and these columns in its key; columns have the types of those they come from."""
    query = find(text)
    names = list(dict.fromkeys(ref.name.lower() for ref in query.refs))
    relations = {n: RELATIONS[n] for n in names}
    try:
        shape = understood(query, relations, {})
    except NotUnderstood:
        return driving(None, names, relations, [], merges=False)
    kinds = {c.name: c.type for r in relations.values() for c in r.columns} | {"id": "bigint"}
    columns = [
        Column(name=n, physical=n, type=kinds.get(n, "bigint"), key_position=0 if n in key.split() else None)
        for n, _ in shape.outputs
    ]
    merges = sketch(query, shape, [n for n, _ in shape.outputs]) is not None
    return driving(shape, names, relations, columns, merges=merges)


@pytest.mark.parametrize(
    ("text", "key", "leaf", "scope"),
    [
        ("SELECT id, total FROM orders WHERE total > 1", "id", 0, ("id",)),
        ("SELECT total + 1 AS t, id FROM orders", "id", 0, ("id",)),
        ("SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id", "id", 0, ("id",)),
        ("SELECT n, o, brand FROM lines l JOIN parts p ON l.part = p.id", "o n", 0, ("o", "n")),
        ("SELECT l.o, l.n, c.name FROM lines l JOIN orders r ON l.o = r.id JOIN customers c ON r.customer = c.id",
         "o n", 0, ("o", "n")),
        # The base's key is shown by the column that a join equates with it.
        ("SELECT l.o, l.n, r.total FROM orders r JOIN lines l ON l.o = r.id", "o n", 0, ("o",)),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM lines l WHERE l.o = o.id)", "id", 0, ("id",)),
        ("WITH big AS (SELECT * FROM orders WHERE total > 9) SELECT id FROM big", "id", 0, ("id",)),
    ],
)  # fmt: skip
def test_rows_that_hang_on_one_row_of_the_base_are_built_in_chunks(
    text: str, key: str, leaf: int, scope: tuple[str, ...]
) -> None:
    found = how(text, key)
    assert isinstance(found, DrivenBuild), found
    assert (found.leaf, found.scope) == (leaf, scope)


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("SELECT customer, count(*) AS n FROM orders GROUP BY customer", "customer", "several rows of orders: aggreg"),
        ("SELECT DISTINCT customer FROM orders", "customer", "several rows of orders"),
        ("SELECT id, count(*) OVER (PARTITION BY customer) AS n FROM orders", "id", "several rows of orders"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", "", "a set operation"),
        ("SELECT a.id FROM orders a JOIN orders b ON a.customer = b.id", "id", "mentioned more than once"),
        ("SELECT c.id, o.total FROM orders o RIGHT JOIN customers c ON o.customer = c.id", "", "a right join"),
        ("SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.id", "", "a full join"),
        ("SELECT o.id, p.brand FROM orders o CROSS JOIN parts p", "", "does not hold the key of orders"),
        ("SELECT total FROM orders", "", "does not hold the key of orders"),
        ("SELECT id, name FROM card", "id", "reads the view card"),
        ("SELECT id FROM log", "", "no primary key"),
        ("SELECT count(*) AS n, max(total) AS top FROM orders", "", "several rows of orders: aggreg"),
        ("SELECT name, count(*) AS n FROM card GROUP BY name", "name", "reads the view card"),
        ("SELECT id FROM orders INTERSECT SELECT id FROM customers", "id", "several rows of orders: INTERSECT"),
    ],
)
def test_other_views_grow_and_say_why_they_are_not_driven(text: str, key: str, reason: str) -> None:
    found = how(text, key)
    assert isinstance(found, GrowingBuild), found
    assert reason in found.reason


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id", "name", "its declared key holds"),
        ("SELECT id, count(*) OVER () AS n FROM orders", "id", "every row depends on every row of orders"),
        ("SELECT max(total) - min(total) AS spread FROM orders", "", "every row depends on every row of orders"),
        ("SELECT id FROM orders WHERE total > (SELECT avg(total) FROM orders)", "id", "every row of orders"),
        ("SELECT 1 AS one", "", "begins with no table"),
        ("SELECT id FROM orders LIMIT 3", "id", "recomputed as a whole"),
    ],
)
def test_what_a_change_touches_everywhere_is_built_in_one_piece(text: str, key: str, reason: str) -> None:
    found = how(text, key)
    assert isinstance(found, OnePieceBuild), found
    assert reason in found.reason


@pytest.mark.parametrize(
    ("text", "table", "others"),
    [
        ("SELECT total FROM orders WHERE total > 1", "orders", ()),
        ("SELECT o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id", "orders", ()),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", "orders", (1,)),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", "customers", (0,)),
        ("SELECT id FROM orders UNION SELECT id FROM customers", "orders", None),
        ("SELECT o.total, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id", "customers", None),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM lines l WHERE l.o = o.id)", "lines", None),
        ("SELECT a.id FROM orders a JOIN orders b ON a.customer = b.id", "orders", None),
        ("WITH w AS (SELECT id FROM orders) SELECT id FROM w UNION ALL SELECT id FROM w", "orders", None),
        ("SELECT customer, count(*) AS n FROM orders GROUP BY customer", "orders", None),
        ("SELECT id FROM orders UNION ALL SELECT 1", "orders", None),
        ("SELECT id FROM orders UNION ALL SELECT count(*) FROM customers", "orders", None),
        ("SELECT id FROM orders UNION ALL SELECT c.id FROM customers c FULL JOIN (SELECT count(*) AS n FROM lines) "
         "ON c.id = n", "orders", None),
        ("SELECT id FROM orders UNION ALL SELECT c.id FROM customers c CROSS JOIN (SELECT count(*) FROM lines)",
         "orders", (1, 2)),
    ],
)  # fmt: skip
def test_rows_that_appear_add_what_the_query_makes_of_them(
    text: str, table: str, others: tuple[int, ...] | None
) -> None:
    query = find(text)
    found = one_by_one(understood(query, {r.name.lower(): RELATIONS[r.name] for r in query.refs}, {}).root, table)
    assert (None if found is None else found[1]) == others
