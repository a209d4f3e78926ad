"""The shop's tables and views, as statements."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ebla.demo.shop.data import Rows

if TYPE_CHECKING:
    from ebla.api.database import Database

TABLES = """
CREATE TABLE customers (id BIGINT, name STRING NOT NULL, country STRING, PRIMARY KEY (id));
CREATE TABLE products (id BIGINT, name STRING NOT NULL, price DECIMAL(10,2), PRIMARY KEY (id));
CREATE TABLE orders (id BIGINT, customer BIGINT, placed DATE, status STRING, PRIMARY KEY (id));
CREATE TABLE lines (order_id BIGINT, line INT, product BIGINT, quantity INT, price DECIMAL(10,2),
                    PRIMARY KEY (order_id, line))
"""
DICTIONARIES = """
CREATE TABLE countries (code STRING, name STRING, region STRING, PRIMARY KEY (code)) WITH (tablets = 1);
CREATE TABLE statuses (code STRING, label STRING, PRIMARY KEY (code)) WITH (tablets = 1)
"""

VIEWS = {
    "card": """
SELECT l.order_id, l.line, o.placed, s.label AS status, c.name AS customer, k.name AS country, k.region,
       p.name AS product, p.price AS list_price, l.quantity, l.quantity * l.price AS amount
FROM lines l
JOIN orders o ON l.order_id = o.id
JOIN customers c ON o.customer = c.id
JOIN countries k ON c.country = k.code
JOIN products p ON l.product = p.id
LEFT JOIN statuses s ON o.status = s.code""",
    "revenue": """
SELECT o.customer, month(o.placed) AS month, count(*) AS lines,
       sum(l.quantity * l.price) AS total, avg(l.quantity * l.price) AS average
FROM orders o JOIN lines l ON l.order_id = o.id
GROUP BY o.customer, month(o.placed)""",
    "by_country": """
SELECT k.name AS country, count(DISTINCT r.customer) AS customers, sum(r.lines) AS lines, sum(r.total) AS total
FROM revenue r
JOIN customers c ON r.customer = c.id
JOIN countries k ON c.country = k.code
GROUP BY k.name""",
}
ABOUT = {
    "card": "every line, joined from six tables",
    "revenue": "an aggregate by customer and month",
    "by_country": "a view on that view",
}
INDEX_NAME = "card_by_customer"
INDEX = f"CREATE INDEX {INDEX_NAME} ON card (customer, amount DESC) INCLUDE (product, status)"
UNIQUE_INDEX = "CREATE UNIQUE INDEX one_name ON customers (name)"


def create_tables(db: Database, rows: Rows) -> None:
    """The shop's tables, filled. The lines, of which there are most, are loaded from a file, as one commit."""
    create_dictionaries(db, rows)
    db.sql(TABLES)
    for name in ("customers", "products", "orders"):
        db.table(name).upsert(getattr(rows, name))
    with tempfile.TemporaryDirectory(prefix="ebla-shop-") as folder:
        pq.write_table(rows.lines, f"{folder}/lines.parquet")
        db.sql(f"LOAD INTO lines FROM '{folder}/lines.parquet'")


def create_dictionaries(db: Database, rows: Rows) -> None:
    """Countries and statuses: small tables that seldom change, and when they do, change much of a view."""
    db.sql(DICTIONARIES)
    db.table("countries").upsert(rows.countries)
    db.table("statuses").upsert(rows.statuses)


def view_statement(name: str, options: str = "", *, asynchronous: bool = False) -> str:
    create = "CREATE ASYNC MATERIALIZED VIEW" if asynchronous else "CREATE MATERIALIZED VIEW"
    return f"{create} {name}{f' WITH ({options})' if options else ''} AS {VIEWS[name]}"


def create_handler(db: Database) -> None:
    """The views are kept together; changes of dictionaries are gathered, and applied at a pace of their own."""
    streams = ", ".join(f"INPUT {name} AS STREAM" for name in ("lines", "orders", "customers", "products", "revenue"))
    db.sql(
        f"CREATE ASYNC HANDLER shop PROCESS {', '.join(VIEWS)}, {streams}, INPUT countries AS BATCH, "
        "INPUT statuses AS BATCH WITH (dictionary_period_s = 5)"
    )


def run_handler(db: Database, should_run: bool) -> None:
    """Let epochs go on in the background, or only where a statement asks for one."""
    db.sql(f"ALTER HANDLER shop SET (should_run = {str(should_run).lower()})")


def explained(db: Database, name: str) -> list[tuple[str, str]]:
    """EXPLAIN MATERIALIZED VIEW in short: for each input, the way from its changed rows to the view's."""
    found = db.sql(f"EXPLAIN MATERIALIZED VIEW {name}").to_arrow()
    inputs = json.loads(found["json"][0].as_py())["inputs"]
    return [(table, _way(how)) for table, how in inputs.items()]


def _way(how: Mapping[str, Any]) -> str:
    if how["plan"] != "incremental":
        return f"{how['plan']}: {how['reason']}"
    found = [_short(step) for step in how["steps"] if step["phase"] == "find"]
    return " → ".join([*dict.fromkeys(found), f"sync by {how['way']}"])


def _short(step: Mapping[str, Any]) -> str:
    if step["step"] == "transform":
        return f"transform ({', '.join(step['columns'])})"
    return f"grab {step['input']} by ({', '.join(step['by'])})"
