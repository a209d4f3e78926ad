"""The chapters. Each changes the tables and the model alike, and claims that they agree; its title is its docstring."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import ebla
from ebla.demo.tables import crash, files, model, victim
from ebla.demo.tables.model import Order
from ebla.demo.tables.story import Story

Chapter = Callable[[Story], None]

CREATE = """
CREATE TABLE customers (id BIGINT, name STRING NOT NULL, city STRING, PRIMARY KEY (id));
CREATE TABLE orders (id BIGINT, customer BIGINT, total DECIMAL(12,2), status STRING, placed DATE, PRIMARY KEY (id));
CREATE TABLE visits (customer BIGINT, page STRING)
"""
MERGE = """
MERGE INTO orders o USING corrections c ON o.id = c.id
WHEN MATCHED AND c.total IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET total = c.total
WHEN NOT MATCHED THEN INSERT *
"""
BY_CITY = """
SELECT c.city, count(*) AS orders, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city ORDER BY c.city
"""
INCREMENTS = 3
"""UPDATEs of one row by each of two threads."""
SMALL_WRITES = 20


def create_tables(story: Story) -> None:
    """Tables, one of them without a primary key"""
    story.run(CREATE)
    story.stage.claim("three tables are there", story.db.tables(), ["customers", "orders", "visits"])


def load_files(story: Story) -> None:
    """Bulk loads from CSV and Parquet, each one commit"""
    stage = story.stage
    with stage.timed(f"{files.ORDERS + files.CUSTOMERS + files.VISITS:,} rows loaded"):
        for table, path in (("customers", "customers.csv"), ("orders", "orders"), ("visits", "visits.parquet")):
            stage.statement(f"LOAD INTO {table} FROM '{path}'")
            story.db.sql(f"LOAD INTO {table} FROM '{story.folder / path}'")
    story.claim_orders("all are there")
    found = story.db.sql("SELECT customer, page, count(*) FROM visits GROUP BY customer, page").rows()
    stage.claim(
        f"the table without a key holds {files.VISITS:,} rows, repeated ones as often as in the file",
        Counter({(customer, page): count for customer, page, count in found}),
        story.shop.visits,
    )
    story.loaded_version, story.loaded = story.db.version, dict(story.shop.orders)


def change_rows(story: Story) -> None:
    """UPDATE, DELETE and MERGE"""
    stage, shop = story.stage, story.shop
    updated = story.run("UPDATE orders SET status = 'shipped' WHERE status = 'paid' AND total < 20").one()[0]
    stage.claim(f"UPDATE changed {updated:,} rows", updated, shop.ship_small_paid_orders())
    deleted = story.run("DELETE FROM orders WHERE total < 1").one()[0]
    stage.claim(f"DELETE removed {deleted:,} rows", deleted, shop.delete_tiny_orders())
    corrections = _corrections(shop.orders)
    _store_corrections(story, corrections)
    merged = story.run(MERGE).one()[0]
    stage.claim(f"MERGE deleted, updated and inserted {merged:,} rows", merged, shop.merge(corrections))
    story.claim_orders("after all three")


def _corrections(orders: dict[int, Order]) -> dict[int, Order | None]:
    """Every 60th order is deleted or gets another total, and a thousand orders are new."""
    changed: dict[int, Order | None] = {}
    for key in sorted(orders)[::60]:
        changed[key] = None if key % 3 == 0 else Order(1, 5000 + key % 100, "new", files.FIRST_DAY)
    fresh = range(files.ORDERS + 1, files.ORDERS + 1001)
    return changed | {key: Order(key % files.CUSTOMERS + 1, key % 7000 + 100, "new", files.FIRST_DAY) for key in fresh}


def _store_corrections(story: Story, corrections: dict[int, Order | None]) -> None:
    story.db.sql(
        "CREATE TABLE corrections (id BIGINT, customer BIGINT, total DECIMAL(12,2), status STRING, placed DATE, "
        "PRIMARY KEY (id))"
    )
    gone = [{"id": key} for key, order in corrections.items() if order is None]
    story.db.table("corrections").upsert(gone)
    story.db.table("corrections").upsert(files.rows_table({k: o for k, o in corrections.items() if o is not None}))


def travel_in_time(story: Story) -> None:
    """Time travel: the table as it was after the load"""
    at = f"VERSION AS OF {story.loaded_version}"
    story.stage.statement(f"SELECT count(*), sum(total) FROM orders {at}")
    story.stage.claim(
        f"version {story.loaded_version} still has its {len(story.loaded):,} orders, now there are "
        f"{len(story.shop.orders):,}",
        story.count_and_cents(at),
        (len(story.loaded), sum(o.cents for o in story.loaded.values())),
    )


def read_changes(story: Story) -> None:
    """Changes between two versions, net per key"""
    since, until = story.loaded_version, story.db.version
    story.stage.statement(f'db.table("orders").changes({since}, {until})')
    frame = story.db.table("orders").changes(since, until)
    found = {row[0]: row[1] for row in frame.groupBy("_change_type").count().collect()}
    story.stage.rows(["_change_type", "rows"], sorted(found.items()))
    expected = model.changes(story.loaded, story.shop.orders)
    story.stage.claim(
        f"{sum(found.values()):,} changes, as many of each kind as the model has",
        {
            "insert": found.get("insert", 0),
            "delete": found.get("delete", 0),
            "update": found.get("update_postimage", 0),
        },
        expected,
    )


def write_at_once(story: Story) -> None:
    """Two writers at once"""
    stage = story.stage
    story.db.sql("CREATE TABLE counters (name STRING, n BIGINT, PRIMARY KEY (name)); "
                 "INSERT INTO counters VALUES ('hits', 0)")  # fmt: skip
    first = files.ORDERS + 2001
    errors: list[BaseException] = []
    orders = {key: Order(key % 100 + 1, 1234, "new", dt.date(2025, 1, 1)) for key in range(first, first + 2000)}

    def write(mine: dict[int, Order]) -> None:
        try:
            for _ in range(INCREMENTS):
                story.db.sql("UPDATE counters SET n = n + 1 WHERE name = 'hits'")
            story.db.table("orders").upsert(files.rows_table(mine))
        except BaseException as error:
            errors.append(error)

    halves = [dict(list(orders.items())[::2]), dict(list(orders.items())[1::2])]
    threads = [threading.Thread(target=write, args=(half,)) for half in halves]
    stage.say(f"Each runs UPDATE counters SET n = n + 1 {INCREMENTS} times, then writes {len(halves[0]):,} orders.")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    story.shop.orders |= orders
    stage.claim("both finish", errors, [])
    found = story.db.sql("SELECT n FROM counters").one()[0]
    stage.claim(f"no increment is lost: {found}", found, 2 * INCREMENTS)
    story.claim_orders("both writers' orders are there")


def kill_a_writer(story: Story) -> None:
    """A writer is killed in mid-write"""
    stage = story.stage
    for _ in range(3):
        before = story.db.version
        code, left = crash.kill_a_writer(story.warehouse)
        if story.db.version == before:
            break
        # It committed before the signal came. All of its rows are there then; take them out and try again.
        story.db.sql(f"DELETE FROM orders WHERE id >= {victim.FIRST_ID}")
    stage.say(f"Another process began to write {victim.ROWS:,} orders and got SIGKILL while its file grew.")
    stage.claim("it was killed", code, -9)
    stage.claim(f"it left a file behind: {', '.join(p.name for p in left)}", len(left), 1)
    stage.claim("no version was committed", story.db.version, before)
    story.claim_orders("nothing of it is visible")
    time.sleep(victim.LEASE_S)  # then it counts as dead
    done = story.run("VACUUM").rows()[0]
    stage.claim(f"VACUUM sweeps it: {done[3]} file of no transaction", [p for p in left if p.exists()], [])


def change_the_schema(story: Story) -> None:
    """Schema changes: add, rename, widen; no file is rewritten"""
    stage = story.stage
    files_before = crash.data_files(story.warehouse)
    for change in ("ADD COLUMN note STRING", "RENAME COLUMN total TO amount", "ALTER COLUMN amount TYPE DECIMAL(16,4)"):
        story.run(f"ALTER TABLE orders {change}")
    stage.claim("all files are as before", crash.data_files(story.warehouse), files_before)
    noted = story.run("UPDATE orders SET note = 'large' WHERE amount > 990").one()[0]
    stage.claim(f"the new column is written: {noted:,} rows", noted, story.shop.note_large_orders())
    described = {row[0]: row[1] for row in story.db.sql("DESCRIBE orders").rows()}
    stage.claim("amount is wider", described.get("amount"), "decimal(16,4)")
    old = story.db.sql(f"SELECT * FROM orders VERSION AS OF {story.loaded_version} LIMIT 1").columns
    stage.claim("the old version has its old columns", old, ["id", "customer", "total", "status", "placed"])


def compact_runs(story: Story) -> None:
    """Compaction"""
    stage, table = story.stage, story.db.table("orders")
    for number in range(SMALL_WRITES):
        key = 500_000 + number
        order = Order(number + 1, 100 * number + 100, "new", dt.date(2025, 2, 1))
        story.shop.orders[key] = order
        table.upsert([{"id": key, "customer": order.customer, "amount": Decimal(order.cents).scaleb(-2),
                       "status": order.status, "placed": order.placed}])  # fmt: skip
    stage.statement(BY_CITY)
    before_s, slow = _timed(story)
    done = story.run("COMPACT orders").rows()[0]
    after_s, fast = _timed(story)
    stage.rows(
        ["", "level 0 runs", "query, s"], [("before", done[2], round(before_s, 2)), ("after", 0, round(after_s, 2))]
    )
    stage.claim(
        f"{done[2]} level 0 runs were folded into {done[1]} tablets", (done[2] > SMALL_WRITES, done[1]), (True, 8)
    )
    stage.claim("the answer is the same", fast, slow)
    stage.claim("and it is the model's", [(c, n, int(a * 100)) for c, n, a in fast], _by_city(story))


def _timed(story: Story) -> tuple[float, list[tuple[Any, ...]]]:
    """The better of two runs, and the rows."""
    times: list[float] = []
    rows: list[tuple[Any, ...]] = []
    for _ in range(2):
        began = time.perf_counter()
        rows = story.db.sql(BY_CITY).rows()
        times.append(time.perf_counter() - began)
    return min(times), rows


def _by_city(story: Story) -> list[tuple[str, int, int]]:
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for order in story.shop.orders.values():
        city = story.shop.customers[order.customer][1]
        orders[city] += 1
        cents[city] += order.cents
    return [(city, orders[city], cents[city]) for city in sorted(orders)]


def vacuum_old_versions(story: Story) -> None:
    """Vacuum: old versions go, but not from under a reader"""
    stage = story.stage
    story.reconnect()
    reader = story.connect()
    frame = reader.table("orders").scan(version=story.loaded_version)
    stage.say(f"A reader holds version {story.loaded_version}.")
    first = story.run("VACUUM RETAIN 0 SECONDS").rows()[0]
    stage.claim("its rows are still there", frame.count(), len(story.loaded))
    reader.close()
    stage.say("The reader is gone.")
    second = story.run("VACUUM RETAIN 0 SECONDS").rows()[0]
    stage.rows(["", "horizon", "files removed", "bytes"], [("with the reader", *first[:3]), ("without", *second[:3])])
    stage.claim("files of old versions are removed", second[1] > 0)
    try:
        story.db.sql(f"SELECT count(*) FROM orders VERSION AS OF {story.loaded_version}").rows()
        refusal = "nothing"
    except ebla.SnapshotError as error:
        refusal = type(error).__name__
        stage.say(f"error: {error}")
    stage.claim("the old version is refused, not answered wrongly", refusal, "SnapshotError")


def look_inside(story: Story) -> None:
    """System tables"""
    found = story.run("SELECT version, kind, reason FROM system.history ORDER BY version DESC LIMIT 5")
    story.stage.rows(found.columns, found.rows())
    story.stage.claim("the history ends with the newest version", found.rows()[0][0], story.db.version)
    text = ("SELECT level, count(*) AS runs, sum(row_count) AS rows FROM system.runs JOIN system.relations "
            "USING (relation_id) WHERE name = 'orders' GROUP BY level")  # fmt: skip
    runs = story.run(text)
    story.stage.rows(runs.columns, runs.rows())
    story.stage.claim("the manifest counts the model's rows", runs.rows(), [(1, 8, len(story.shop.orders))])


def compare_everything(story: Story) -> None:
    """The final tables, row by row"""
    found = story.run("SELECT id, customer, amount, status, placed, note FROM orders ORDER BY id").to_arrow()
    expected = model.orders_table(story.shop.orders)
    story.stage.claim(
        f"all {expected.num_rows:,} orders are equal to the model's, in every column",
        found.cast(expected.schema).combine_chunks().equals(expected),
    )
    customers = {key: (name, city) for key, name, city in story.db.sql("SELECT id, name, city FROM customers").rows()}
    story.stage.claim(f"all {len(customers):,} customers, too", customers == story.shop.customers)


CHAPTERS: tuple[Chapter, ...] = (
    create_tables,
    load_files,
    change_rows,
    travel_in_time,
    read_changes,
    write_at_once,
    kill_a_writer,
    change_the_schema,
    compact_runs,
    vacuum_old_versions,
    look_inside,
    compare_everything,
)
