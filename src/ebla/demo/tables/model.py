"""The same shop in plain Python: dictionaries that are changed as the tables are, to compare the tables with."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa

MONEY = pa.decimal128(12, 2)


@dataclass(frozen=True, slots=True)
class Order:
    customer: int
    cents: int
    status: str
    placed: dt.date
    note: str | None = None


@dataclass(slots=True)
class Shop:
    """Every table of the demonstration, by key."""

    customers: dict[int, tuple[str, str]] = field(default_factory=dict)
    orders: dict[int, Order] = field(default_factory=dict)
    visits: Counter[tuple[int, str]] = field(default_factory=Counter)

    def cents(self) -> int:
        return sum(order.cents for order in self.orders.values())

    def ship_small_paid_orders(self) -> int:
        """UPDATE orders SET status = 'shipped' WHERE status = 'paid' AND total < 20"""
        found = [k for k, o in self.orders.items() if o.status == "paid" and o.cents < 2000]
        for key in found:
            self.orders[key] = replace(self.orders[key], status="shipped")
        return len(found)

    def delete_tiny_orders(self) -> int:
        """DELETE FROM orders WHERE total < 1"""
        found = [k for k, o in self.orders.items() if o.cents < 100]
        for key in found:
            del self.orders[key]
        return len(found)

    def merge(self, corrections: Mapping[int, Order | None]) -> int:
        """MERGE: nothing known of an order deletes it, a known key takes the new total, an unknown one is new."""
        changed = 0
        for key, correction in corrections.items():
            if key in self.orders:
                changed += 1
                if correction is None:
                    del self.orders[key]
                else:
                    self.orders[key] = replace(self.orders[key], cents=correction.cents)
            elif correction is not None:
                changed += 1
                self.orders[key] = correction
        return changed

    def note_large_orders(self) -> int:
        """UPDATE orders SET note = 'large' WHERE amount > 990"""
        found = [k for k, o in self.orders.items() if o.cents > 99_000]
        for key in found:
            self.orders[key] = replace(self.orders[key], note="large")
        return len(found)


def changes(before: Mapping[int, Order], after: Mapping[int, Order]) -> dict[str, int]:
    """How many keys came, went, or have another row."""
    common = before.keys() & after.keys()
    return {
        "insert": len(after.keys() - before.keys()),
        "delete": len(before.keys() - after.keys()),
        "update": sum(1 for k in common if before[k] != after[k]),
    }


def orders_table(orders: Mapping[int, Order]) -> pa.Table:
    """The orders as one Arrow table in the order of their keys: what the final table must be equal to."""
    keys = sorted(orders)
    rows = [orders[k] for k in keys]
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "customer": pa.array([o.customer for o in rows], pa.int64()),
            "amount": pa.array([Decimal(o.cents).scaleb(-2) for o in rows], pa.decimal128(16, 4)),
            "status": pa.array([o.status for o in rows], pa.string()),
            "placed": pa.array([o.placed for o in rows], pa.date32()),
            "note": pa.array([o.note for o in rows], pa.string()),
        }
    )
