"""The shop's rows: generated with numpy, as Arrow tables. The same ones every time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MONEY = pa.decimal128(10, 2)
FIRST_DAY = dt.date(2025, 1, 1)
DAYS = 365
LINES_PER_ORDER_MAX = 5

COUNTRIES = (
    ("AT", "Austria", "Europe"), ("BE", "Belgium", "Europe"), ("BR", "Brazil", "Americas"),
    ("CA", "Canada", "Americas"), ("CH", "Switzerland", "Europe"), ("CL", "Chile", "Americas"),
    ("CY", "Cyprus", "Europe"), ("DE", "Germany", "Europe"), ("DK", "Denmark", "Europe"),
    ("EG", "Egypt", "Africa"), ("ES", "Spain", "Europe"), ("FI", "Finland", "Europe"),
    ("FR", "France", "Europe"), ("GB", "United Kingdom", "Europe"), ("GR", "Greece", "Europe"),
    ("IE", "Ireland", "Europe"), ("IN", "India", "Asia"), ("IT", "Italy", "Europe"),
    ("JP", "Japan", "Asia"), ("KE", "Kenya", "Africa"), ("KR", "South Korea", "Asia"),
    ("LB", "Lebanon", "Asia"), ("MA", "Morocco", "Africa"), ("MX", "Mexico", "Americas"),
    ("NL", "Netherlands", "Europe"), ("NO", "Norway", "Europe"), ("PL", "Poland", "Europe"),
    ("PT", "Portugal", "Europe"), ("SE", "Sweden", "Europe"), ("US", "United States", "Americas"),
)  # fmt: skip
STATUSES = (
    ("new", "just placed"), ("paid", "paid for"), ("packed", "in a box"),
    ("shipped", "on its way"), ("delivered", "arrived"), ("returned", "sent back"),
)  # fmt: skip
FIRST_NAMES = ("Ada", "Bel", "Cyrus", "Dido", "Enna", "Felix", "Gudea", "Hana", "Ishar", "Jona", "Kura", "Lars")
LAST_NAMES = ("Adler", "Berg", "Costa", "Dumont", "Eriksen", "Fontaine", "Gallo", "Haddad", "Ito", "Jensen", "Kaya")
CUSTOMERS_MIN = len(FIRST_NAMES) * len(LAST_NAMES) + 1
"""More customers than names: some name stands twice."""
THINGS = ("lamp", "jar", "chair", "tablet", "stylus", "bowl", "rug", "basket", "mirror", "shelf", "kettle", "coat")
KINDS = ("small", "large", "red", "blue", "oak", "clay", "linen", "brass", "plain", "old")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many rows each of the large tables gets at first. Lines are about three for an order."""

    customers: int
    products: int
    orders: int

    @classmethod
    def of(cls, rows: int) -> Sizes:
        """Sizes that make up about this many rows in all."""
        return cls(
            customers=max(CUSTOMERS_MIN, rows // 20), products=max(10, rows // 80), orders=max(20, rows * 47 // 200)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All tables as they are loaded. Keys count from 1; an order's lines lie together, in the order of orders."""

    countries: pa.Table
    statuses: pa.Table
    customers: pa.Table
    products: pa.Table
    orders: pa.Table
    lines: pa.Table

    @property
    def total(self) -> int:
        return sum(
            t.num_rows for t in (self.countries, self.statuses, self.customers, self.products, self.orders, self.lines)
        )


def generate(sizes: Sizes, seed: int = 1975) -> Rows:
    numbers = np.random.default_rng(seed)
    products = _products(sizes.products, numbers)
    orders = new_orders(1, sizes.orders, sizes.customers, numbers)
    return Rows(
        countries=_named(("code", "name", "region"), COUNTRIES),
        statuses=_named(("code", "label"), STATUSES),
        customers=_customers(sizes.customers, numbers),
        products=products,
        orders=orders,
        lines=new_lines(orders["id"].to_numpy(), products, numbers),
    )


def _named(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows]) for i, name in enumerate(columns)})


def _customers(count: int, numbers: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": _keys(1, count),
            "name": _joined(FIRST_NAMES, LAST_NAMES, count, numbers),
            "country": chosen([code for code, _, _ in COUNTRIES], count, numbers),
        }
    )


def _products(count: int, numbers: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": _keys(1, count),
            "name": _joined(KINDS, THINGS, count, numbers),
            "price": money(numbers.integers(100, 50_000, count)),
        }
    )


def new_orders(first: int, count: int, customers: int, numbers: np.random.Generator) -> pa.Table:
    """Orders with consecutive ids, of any customer, on any day of the year."""
    day = numbers.integers(0, DAYS, count) + np.datetime64(FIRST_DAY, "D").astype(np.int64)
    return pa.table(
        {
            "id": _keys(first, count),
            "customer": pa.array(numbers.integers(1, customers + 1, count), pa.int64()),
            "placed": pa.array(day.astype(np.int32)).cast(pa.date32()),
            "status": chosen([code for code, _ in STATUSES], count, numbers),
        }
    )


def new_lines(orders: np.ndarray, products: pa.Table, numbers: np.random.Generator) -> pa.Table:
    """One to five lines for each of these orders, at the price that the product has in the list."""
    per_order = numbers.integers(1, LINES_PER_ORDER_MAX + 1, len(orders))
    total = int(per_order.sum())
    first_of_order = np.repeat(np.cumsum(per_order) - per_order, per_order)
    product = numbers.integers(0, products.num_rows, total)
    return pa.table(
        {
            "order_id": pa.array(np.repeat(orders, per_order), pa.int64()),
            "line": pa.array(np.arange(total) - first_of_order + 1, pa.int32()),
            "product": products["id"].take(pa.array(product)),
            "quantity": pa.array(numbers.integers(1, 10, total), pa.int32()),
            "price": products["price"].take(pa.array(product)),
        }
    )


def chosen(values: Sequence[str], count: int, numbers: np.random.Generator) -> pa.Array:
    return pa.array(list(values)).take(pa.array(numbers.integers(0, len(values), count)))


def money(cents: np.ndarray) -> pa.Array:
    """Whole cents as decimals with two digits behind the point."""
    hundredths = pa.array(cents, pa.int64()).cast(pa.decimal128(19, 0))
    return pc.divide(hundredths.cast(pa.decimal128(21, 2)), pa.scalar(100, pa.decimal128(3, 0))).cast(MONEY, safe=False)


def _keys(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count), pa.int64())


def _joined(firsts: Sequence[str], lasts: Sequence[str], count: int, numbers: np.random.Generator) -> pa.Array:
    return pc.binary_join_element_wise(chosen(firsts, count, numbers), chosen(lasts, count, numbers), " ")
