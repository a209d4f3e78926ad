"""Files to load: customers as CSV, orders and visits as Parquet. The same ones every time."""

from __future__ import annotations

import csv
import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ebla.demo.tables.model import MONEY, Order, Shop

CUSTOMERS = 20_000
ORDERS = 240_000
VISITS = 60_000
ORDER_FILES = 4

STATUSES = ("new", "paid", "shipped")
CITIES = ("Aleppo", "Ebla", "Mari", "Ugarit", "Emar")
PAGES = ("home", "search", "basket")
FIRST_DAY = dt.date(2024, 1, 1)


def generate(folder: Path, seed: int = 1975) -> Shop:
    """Write the files, and return what they hold as plain Python."""
    numbers = np.random.default_rng(seed)
    shop = Shop()
    _customers(folder, shop)
    _orders(folder, shop, numbers)
    _visits(folder, shop, numbers)
    return shop


def _customers(folder: Path, shop: Shop) -> None:
    for key in range(1, CUSTOMERS + 1):
        shop.customers[key] = (f"Customer {key}", CITIES[key % len(CITIES)])
    with open(folder / "customers.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "name", "city"])
        writer.writerows((key, name, city) for key, (name, city) in shop.customers.items())


def _orders(folder: Path, shop: Shop, numbers: np.random.Generator) -> None:
    customer = numbers.integers(1, CUSTOMERS + 1, ORDERS).tolist()
    cents = numbers.integers(1, 100_000, ORDERS).tolist()
    status = numbers.integers(0, len(STATUSES), ORDERS).tolist()
    day = numbers.integers(0, 365, ORDERS).tolist()
    days = [FIRST_DAY + dt.timedelta(days=n) for n in range(365)]
    for i in range(ORDERS):
        shop.orders[i + 1] = Order(customer[i], cents[i], STATUSES[status[i]], days[day[i]])
    (folder / "orders").mkdir()
    table = rows_table(shop.orders)
    part = ORDERS // ORDER_FILES
    for number in range(ORDER_FILES):
        pq.write_table(table.slice(number * part, part), folder / "orders" / f"part{number}.parquet")


def rows_table(orders: dict[int, Order]) -> pa.Table:
    """Orders as an Arrow table with the columns that the table has at first."""
    rows = list(orders.values())
    return pa.table(
        {
            "id": pa.array(list(orders), pa.int64()),
            "customer": pa.array([o.customer for o in rows], pa.int64()),
            "total": pa.array([Decimal(o.cents).scaleb(-2) for o in rows], MONEY),
            "status": pa.array([o.status for o in rows], pa.string()),
            "placed": pa.array([o.placed for o in rows], pa.date32()),
        }
    )


def _visits(folder: Path, shop: Shop, numbers: np.random.Generator) -> None:
    """A bag: the same visit may be there many times."""
    customer = numbers.integers(1, 2000, VISITS)
    page = numbers.integers(0, len(PAGES), VISITS)
    pages = [PAGES[p] for p in page.tolist()]
    shop.visits.update(zip(customer.tolist(), pages, strict=True))
    pq.write_table(
        pa.table({"customer": pa.array(customer, pa.int64()), "page": pa.array(pages, pa.string())}),
        folder / "visits.parquet",
    )
