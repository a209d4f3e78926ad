"""Writers and a reader of a cluster, over HTTP, and what every acknowledged write has made of the table.

A writer changes keys of its own, one commit after the other. So the last acknowledged write of a key says what the
table must have for it, whatever the others do. A write that ends in an error may have been done or not: both are right.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ebla

TABLE = "orders"
VIEW = "by_customer"
INDEX = "orders_by_customer"
CUSTOMERS = 40
KEYS = 400
BATCH_MAX = 20
DELETES_PART = 0.15
PAUSE_S = 0.02
"""Between two writes of a writer: the machine has other work as well."""


def schema(copies: int = 2) -> tuple[str, ...]:
    """A table, a view and an index. One copy of a tablet is enough for a write to be acknowledged."""
    options = f"replication = {copies}, min_copies = 1"
    return (
        f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, customer INT, amount BIGINT) WITH (tablets = 4, {options})",
        f"CREATE MATERIALIZED VIEW {VIEW} WITH ({options}) AS "
        f"SELECT customer, count(*) AS orders, sum(amount) AS total FROM {TABLE} GROUP BY customer",
        f"CREATE INDEX {INDEX} ON {TABLE} (customer)",
    )


class Order(NamedTuple):
    customer: int
    amount: int


def recomputed(orders: Mapping[int, Order]) -> dict[int, tuple[int, int]]:
    """The rows of the view, from those of the table: the number of orders and their sum, by customer."""
    number, total = Counter[int](), Counter[int]()
    for order in orders.values():
        number[order.customer] += 1
        total[order.customer] += order.amount
    return {customer: (number[customer], total[customer]) for customer in number}


@dataclass(slots=True)
class Written:
    """What one writer has written."""

    orders: dict[int, Order] = field(default_factory=dict)
    unsure: dict[int, set[Order | None]] = field(default_factory=dict)
    """What keys may have, where a write ended in an error and none has come behind it."""
    commits: int = 0
    errors: list[str] = field(default_factory=list)
    acknowledged_s: list[float] = field(default_factory=list)

    def done(self, change: Mapping[int, Order | None]) -> None:
        self.commits += 1
        self.acknowledged_s.append(time.monotonic())
        for key, order in change.items():
            self.unsure.pop(key, None)
            if order is None:
                self.orders.pop(key, None)
            else:
                self.orders[key] = order

    def failed(self, change: Mapping[int, Order | None], error: Exception) -> None:
        self.errors.append(f"{type(error).__name__}: {error}")
        for key, order in change.items():
            self.unsure.setdefault(key, {self.orders.get(key)}).add(order)


class Load:
    """Threads that write and read until they are stopped. A context manager."""

    def __init__(self, urls: Sequence[str], token: str | None, *, writers: int = 2, seed: int = 0) -> None:
        self._over = threading.Event()
        self._urls, self._token = tuple(urls), token
        self.written = [Written() for _ in range(writers)]
        self.reads = 0
        self.wrong: list[str] = []
        """Answers to the reader that cannot be, and errors that it got."""
        self._threads = [
            threading.Thread(target=self._write, args=(number, random.Random(f"{seed}/{number}")), daemon=True)
            for number in range(writers)
        ]
        self._threads.append(threading.Thread(target=self._read, args=(random.Random(f"{seed}/r"),), daemon=True))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def connect(self, number: int) -> Any:
        """A client whose first address is not that of the others."""
        first = number % len(self._urls)
        return ebla.connect(",".join(self._urls[first:] + self._urls[:first]), token=self._token)

    def _write(self, number: int, chance: random.Random) -> None:
        written = self.written[number]
        with self.connect(number) as client:
            table = client.table(TABLE)
            while not self._over.wait(PAUSE_S):
                change = self._change(number, chance)
                try:
                    if None in change.values():
                        table.delete([{"id": key} for key in change])
                    else:
                        table.upsert([{"id": key, **order._asdict()} for key, order in change.items() if order])
                    written.done(change)
                except ebla.EblaError as error:
                    written.failed(change, error)

    def _change(self, number: int, chance: random.Random) -> dict[int, Order | None]:
        keys = [number + len(self.written) * chance.randrange(KEYS) for _ in range(chance.randint(1, BATCH_MAX))]
        if chance.random() < DELETES_PART:
            return dict.fromkeys(keys)
        return {key: Order(chance.randrange(CUSTOMERS), chance.randrange(1000)) for key in keys}

    def _read(self, chance: random.Random) -> None:
        with self.connect(len(self.written)) as client:
            while not self._over.wait(PAUSE_S):
                customer = chance.randrange(CUSTOMERS)
                try:
                    rows = client.query(TABLE, where={"customer": customer}, limit=100).rows()
                except ebla.EblaError as error:
                    self.wrong.append(f"{type(error).__name__}: {error}")
                    continue
                self.reads += 1
                if any(row[1] != customer for row in rows):
                    self.wrong.append(f"customer {customer}: found {rows}")

    # ---- what it came to --------------------------------------------------------------------------------

    @property
    def commits(self) -> int:
        return sum(one.commits for one in self.written)

    def goes_on(self, commits: int = 1, timeout_s: float = 90.0) -> None:
        """Wait for further commits."""
        until, least = time.monotonic() + timeout_s, self.commits + commits
        while self.commits < least:
            if time.monotonic() > until:
                raise AssertionError(f"expected {commits} commits in {timeout_s:.0f} s, found {self.errors[-3:]}")
            time.sleep(PAUSE_S)

    @property
    def errors(self) -> list[str]:
        return [error for one in self.written for error in one.errors] + self.wrong

    def expected(self) -> dict[int, Order]:
        return {key: order for one in self.written for key, order in one.orders.items()}

    def pause_s(self, since_s: float) -> float:
        """The longest time between two acknowledged writes since a moment."""
        times = sorted(at for one in self.written for at in one.acknowledged_s if at >= since_s)
        return max((b - a for a, b in zip([since_s, *times], [*times, time.monotonic()], strict=True)), default=0.0)

    def differences(self, found: Mapping[int, Order]) -> list[str]:
        """Where a table is not what the acknowledged writes have made of it."""
        expected = self.expected()
        unsure = {key: those for one in self.written for key, those in one.unsure.items()}
        return [
            f"id {key}: expected {expected.get(key)}, found {found.get(key)}"
            for key in sorted(expected.keys() | found.keys())
            if found.get(key) not in unsure.get(key, {expected.get(key)})
        ]
