"""How the catalog and the files beside this module were made: by an older release, named by the commit of its sources.

    git archive 0c73047~1 src | tar x -C FOLDER
    PYTHONPATH=FOLDER/src python make.py

The release had no tokens as keys, no stored states of views, no topology and no jobs: today's migrations add them.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WRITTEN = """
CREATE TABLE customers (id BIGINT, name STRING, country STRING, PRIMARY KEY (id)) WITH (tablets = 2);
CREATE TABLE countries (code STRING, name STRING, PRIMARY KEY (code)) WITH (tablets = 1);
CREATE TABLE orders (
    id BIGINT, customer BIGINT NOT NULL, total DECIMAL(10,2), day DATE, note STRING DEFAULT 'none',
    CONSTRAINT positive CHECK (total >= 0), PRIMARY KEY (id)
) WITH (tablets = 2);
COMMENT ON TABLE orders IS 'what was bought';
INSERT INTO countries VALUES ('TN', 'Tunisia'), ('UK', 'United Kingdom');
INSERT INTO customers VALUES (1, 'Ada', 'UK'), (2, 'Dido', 'TN'), (3, 'Grace', 'UK');
INSERT INTO orders (id, customer, total, day) VALUES
    (1, 1, 10.00, DATE '2026-01-01'), (2, 2, 12.50, DATE '2026-01-02'), (3, 3, 0.99, DATE '2026-01-03'),
    (4, 1, 7.25, DATE '2026-01-04'), (5, 2, 99.99, DATE '2026-01-05'), (6, 3, 1.00, NULL);
CREATE INDEX orders_by_customer ON orders (customer, total DESC);
CREATE UNIQUE INDEX customers_by_name ON customers (upper(name));
CREATE MATERIALIZED VIEW card AS
    SELECT o.id, o.total, c.name, n.name AS country
    FROM orders o JOIN customers c ON o.customer = c.id JOIN countries n ON c.country = n.code;
CREATE MATERIALIZED VIEW sums AS SELECT customer, count(*) AS orders, sum(total) AS total FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 / total AS r FROM orders;
CREATE HANDLER shop PROCESS card, INPUT orders AS STREAM, INPUT customers AS STREAM, INPUT countries AS BATCH
    WITH (dictionary_period_s = 300);
COMPACT orders;
ALTER TABLE orders ADD COLUMN place STRING;
ALTER TABLE customers ADD COLUMN phone STRING;
ALTER TABLE customers RENAME COLUMN phone TO mail
"""

CHANGED = """
UPDATE orders SET note = 'gift', place = 'here' WHERE id = 2;
DELETE FROM orders WHERE id = 3;
UPDATE countries SET name = 'Carthage' WHERE code = 'TN';
INSERT INTO orders (id, customer, total, day) VALUES (7, 1, 0.00, DATE '2026-01-07');
FLUSH;
INSERT INTO orders (id, customer, total, day) VALUES (8, 3, 8.00, DATE '2026-01-08')
"""
"""`ratio` fails on order 7, and no view has order 8."""

BUILT = "CREATE MATERIALIZED VIEW dear WITH (chunk_rows = 2) AS SELECT id, customer, total FROM orders WHERE total > 5"
BUILD_ENDS_AT = "build.chunk_committed=exit"
"""Behind the first of several chunks."""


def connect(warehouse: str):  # type: ignore[no-untyped-def]
    import ebla

    return ebla.connect(warehouse, tablets=2, auto_compact=False, auto_refresh=False, fsync=False)


def run(warehouse: str, *texts: str) -> None:
    with connect(warehouse) as db:
        for text in texts:
            for one in text.split(";"):
                print(one.strip().splitlines()[:1], flush=True)
                db.sql(one)


def step(warehouse: str, name: str, **environment: str) -> int:
    """Run a step in a process of its own."""
    command = [sys.executable, __file__, warehouse, name]
    return subprocess.run(command, env=os.environ | environment, check=False).returncode


def sql_of(warehouse: Path) -> str:
    """The catalog's text, without names of this machine and its folders."""
    with sqlite3.connect(warehouse / "catalog.db") as connection:
        text = "\n".join(connection.iterdump())
    host = re.escape(socket.gethostname())
    text = re.sub(rf"'{host}/\d+/([0-9a-f]{{8}})'", r"'machine/1/\1'", text)
    text = re.sub(rf"'{host}',\d+,", "'machine',1,", text)
    text = re.sub(r'File "/[^"]*/', 'File "', text)
    places = re.findall(rf"""(?:[\s"'(:]/[a-z]|{re.escape(str(warehouse.parent))}).{{0,80}}""", text)
    assert not places, f"expected no place of this machine, found {places}"
    return text


def stripped(file: tarfile.TarInfo) -> tarfile.TarInfo:
    return file.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


def pack(warehouse: Path) -> None:
    with gzip.GzipFile(HERE / "catalog.sql.gz", "wb", mtime=0) as out:
        out.write(sql_of(warehouse).encode())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(warehouse / "data", "data", filter=stripped)
    with gzip.GzipFile(HERE / "data.tar.gz", "wb", mtime=0) as out:
        out.write(packed.getvalue())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        assert step(str(warehouse), "written") == 0
        assert step(str(warehouse), "changed") == 0
        assert step(str(warehouse), "built", EBLA_FAILPOINTS=BUILD_ENDS_AT) != 0
        pack(warehouse)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case [warehouse, "written"]:
            run(warehouse, WRITTEN)
        case [warehouse, "changed"]:
            run(warehouse, CHANGED)
        case [warehouse, "built"]:
            run(warehouse, BUILT)
