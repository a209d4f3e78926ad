"""The shop at work: three threads that never stop writing, each in its own part of the tables.

Sales place orders and cancel some; service moves older orders on, and deletes some; the office changes prices, moves
customers to other countries, and now and then changes a country for all who live there.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ebla.demo.shop import data
from ebla.demo.shop.data import Rows

if TYPE_CHECKING:
    from ebla.api.database import Database

REGIONS = ("Europe", "Asia", "Africa", "Americas", "Levant", "North", "South")


@dataclass(frozen=True, slots=True)
class Count:
    """Commits of one kind, and the rows that they wrote or deleted."""

    commits: int = 0
    rows: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.commits + other.commits, self.rows + other.rows)


class Tally:
    """What the writers have done, by kind."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(kinds, Count())

    def add(self, kind: str, *rows: int) -> None:
        """One commit for each number of rows."""
        with self._lock:
            self._counts[kind] += Count(len(rows), sum(rows))

    def counts(self) -> dict[str, Count]:
        with self._lock:
            return dict(self._counts)


def total(counts: Mapping[str, Count]) -> Count:
    return sum(counts.values(), Count())


class Writer(ABC):
    """One thread's acts. Each is one or two commits; `pause_s` lies between two acts."""

    kinds: tuple[str, ...] = ()
    pause_s = 0.1

    def __init__(self, db: Database, rows: Rows, tally: Tally, seed: int) -> None:
        self.db = db
        self.rows = rows
        self.tally = tally
        self.numbers = np.random.default_rng(seed)
        self.turn = 0

    @abstractmethod
    def act(self) -> None:
        """One turn of writes."""


class Sales(Writer):
    """New orders with their lines; every eighth time, the oldest of its orders are cancelled."""

    kinds = ("orders placed", "orders cancelled")
    pause_s = 0.25

    def __init__(self, db: Database, rows: Rows, tally: Tally, seed: int) -> None:
        super().__init__(db, rows, tally, seed)
        self._next = rows.orders.num_rows + 1
        self._placed: list[tuple[pa.Table, pa.Table]] = []

    def act(self) -> None:
        self.turn += 1
        if self.turn % 8 == 0:
            self._cancel()
        else:
            self._place()

    def _place(self) -> None:
        orders = data.new_orders(
            self._next, int(self.numbers.integers(5, 60)), self.rows.customers.num_rows, self.numbers
        )
        lines = data.new_lines(orders["id"].to_numpy(), self.rows.products, self.numbers)
        self._next += orders.num_rows
        written = [self.db.table("orders").upsert(orders), self.db.table("lines").upsert(lines)]
        self._placed.append((orders, lines))
        self.tally.add("orders placed", *[w.rows for w in written])

    def _cancel(self) -> None:
        orders, lines = self._placed.pop(0)
        written = [self.db.table("lines").delete(lines), self.db.table("orders").delete(orders)]
        self.tally.add("orders cancelled", *[w.rows for w in written])


class Service(Writer):
    """Status changes of the orders that were there at first; every tenth time, some of them are deleted."""

    kinds = ("status changes", "orders deleted")
    pause_s = 0.25

    def __init__(self, db: Database, rows: Rows, tally: Tally, seed: int) -> None:
        super().__init__(db, rows, tally, seed)
        self._deleted = np.zeros(rows.orders.num_rows, dtype=bool)
        self._order_of_line = rows.lines["order_id"].to_numpy()

    def act(self) -> None:
        self.turn += 1
        some = np.unique(self.numbers.integers(0, len(self._deleted), 25))
        orders = self.rows.orders.take(pa.array(some[~self._deleted[some]]))
        if self.turn % 10 == 0:
            self._delete(orders)
        else:
            self._move_on(orders)

    def _move_on(self, orders: pa.Table) -> None:
        status = data.chosen([code for code, _ in data.STATUSES], orders.num_rows, self.numbers)
        written = self.db.table("orders").upsert(_with(orders, "status", status))
        self.tally.add("status changes", written.rows)

    def _delete(self, orders: pa.Table) -> None:
        ids = orders["id"].to_numpy()
        self._deleted[ids - 1] = True
        lines = self.rows.lines.take(pa.array(np.flatnonzero(np.isin(self._order_of_line, ids))))
        written = [self.db.table("orders").delete(orders), self.db.table("lines").delete(lines)]
        self.tally.add("orders deleted", *[w.rows for w in written])


class Office(Writer):
    """Prices, with UPDATE; customers who move; and every sixteenth time the dictionary of countries."""

    kinds = ("prices", "customers moved", "dictionary")
    pause_s = 0.6

    def act(self) -> None:
        self.turn += 1
        if self.turn % 16 == 0:
            self._rename_region()
        elif self.turn % 2:
            self._move_customers()
        else:
            self._change_prices()

    def _change_prices(self) -> None:
        first = int(self.numbers.integers(1, self.rows.products.num_rows + 1))
        factor = f"{self.numbers.integers(90, 112) / 100:.2f}"
        done = self.db.sql(
            f"UPDATE products SET price = CAST(price * {factor} AS DECIMAL(10,2)) WHERE id BETWEEN :a AND :b",
            a=first,
            b=first + 2,
        )
        self.tally.add("prices", int(done.one()[0]))

    def _move_customers(self) -> None:
        some = np.unique(self.numbers.integers(0, self.rows.customers.num_rows, 8))
        customers = self.rows.customers.take(pa.array(some))
        country = data.chosen([code for code, _, _ in data.COUNTRIES], customers.num_rows, self.numbers)
        written = self.db.table("customers").upsert(_with(customers, "country", country))
        self.tally.add("customers moved", written.rows)

    def _rename_region(self) -> None:
        code = str(data.chosen([code for code, _, _ in data.COUNTRIES], 1, self.numbers)[0])
        region = str(data.chosen(REGIONS, 1, self.numbers)[0])
        done = self.db.sql("UPDATE countries SET region = :region WHERE code = :code", region=region, code=code)
        self.tally.add("dictionary", int(done.one()[0]))


def _with(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, values)


ALL: tuple[type[Writer], ...] = (Sales, Service, Office)


class Writers:
    """The threads. An error of one stops all, and is raised by `check` and `stop`: none may vanish."""

    def __init__(self, db: Database, rows: Rows, seed: int = 2400, kinds: Sequence[type[Writer]] = ALL) -> None:
        self.tally = Tally([kind for writer in kinds for kind in writer.kinds])
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._made = made = [writer(db, rows, self.tally, seed + i) for i, writer in enumerate(kinds)]
        self._threads = [
            threading.Thread(target=self._run, args=(writer,), name=type(writer).__name__, daemon=True)
            for writer in made
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def move_to(self, db: Database) -> None:
        """From each writer's next statement on, write through another connection."""
        for writer in self._made:
            writer.db = db

    def _run(self, writer: Writer) -> None:
        wait: Callable[[float], bool] = self._stopping.wait
        try:
            while not self._stopping.is_set():
                writer.act()
                wait(writer.pause_s)
        except BaseException as error:
            error.add_note(f"in the demonstration's writer {type(writer).__name__}, turn {writer.turn}")
            self._errors.append(error)
            self._stopping.set()

    def raise_failure(self) -> None:
        """Raise what a writer failed with."""
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """Let each finish its act, wait for all, and raise what one failed with."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self.raise_failure()
