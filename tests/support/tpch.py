"""TPC-H: its tables, its 22 queries as views can mean them, and its refresh streams.

The queries are the standard's own texts with the parameters of its validation run. `ORDER BY` is kept (it says nothing
about a view's rows) and `LIMIT` is left out of Q2, Q3, Q10, Q18 and Q21: the first rows of an order with ties are not
a function of the inputs. Two things are written as Spark has them: dates with `INTERVAL n MONTH`, and Q15's view as a
CTE. Q11's fraction is for a tiny scale.
"""

from __future__ import annotations

import datetime
import random
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}

_KINDS = {"int64": "BIGINT", "int32": "INT", "date32[day]": "DATE", "decimal128(15, 2)": "DECIMAL(15,2)"}


def generate(folder: Path, scale: float) -> dict[str, pa.Table]:
    """All tables at this scale, the same ones every time."""
    tool = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [str(tool), "parquet", "-s", f"{scale:g}", f"--output-dir={folder}"], check=True, stdout=subprocess.DEVNULL
    )
    found = {}
    for name in KEYS:
        table = pq.read_table(folder / f"{name}.parquet")
        schema = [(f.name, pa.string() if str(f.type) == "string_view" else f.type) for f in table.schema]
        found[name] = table.cast(pa.schema(schema))
    return found


def create_table(name: str, table: pa.Table) -> str:
    columns = ", ".join(f"{f.name} {_KINDS.get(str(f.type), 'STRING')}" for f in table.schema)
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({', '.join(KEYS[name])}))"


# ---- the refresh streams --------------------------------------------------------------------------------


class Streams:
    """RF1 inserts new orders with their lines, RF2 deletes as many old ones; every stream takes others.

    As in the standard, the keys of orders have gaps: of every 32 the load uses eight, and new orders take the eight
    behind them. A third of the customers has no orders and gets none. Unlike in the standard, the orders in `first` are
    deleted before all others, and copied as they are: few orders are of interest to all queries.
    """

    def __init__(self, tables: dict[str, pa.Table], first: Collection[int] = (), seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._orders: list[Row] = sorted(tables["orders"].to_pylist(), key=lambda row: row["o_orderkey"] not in first)
        self._first = len(first)
        self._lines: dict[int, list[Row]] = {}
        for row in tables["lineitem"].to_pylist():
            self._lines.setdefault(row["l_orderkey"], []).append(row)
        self._customers = tables["customer"].num_rows
        self._parts = tables["part"].num_rows
        self._suppliers: dict[int, list[int]] = {}
        for row in tables["partsupp"].select(["ps_partkey", "ps_suppkey"]).to_pylist():
            self._suppliers.setdefault(row["ps_partkey"], []).append(row["ps_suppkey"])
        self._inserted = 0
        self._deleted = 0

    def insert(self, count: int) -> tuple[list[Row], list[Row]]:
        """RF1: orders and lines like those of the load, under new keys, with customers and parts drawn anew."""
        orders: list[Row] = []
        lines: list[Row] = []
        for _ in range(count):
            self._inserted += 1
            key = self._inserted // 8 * 32 + 8 + self._inserted % 8
            like = self._orders[self._inserted - 1]
            customer = self._chance.choice([c for c in range(1, self._customers + 1) if c % 3])
            same = self._inserted <= self._first
            orders.append({**like, "o_orderkey": key, "o_custkey": like["o_custkey"] if same else customer})
            for line in self._lines[like["o_orderkey"]]:
                if same:
                    lines.append({**line, "l_orderkey": key})
                    continue
                part = self._chance.randrange(1, self._parts + 1)
                supplier = self._chance.choice(self._suppliers[part])
                lines.append({**line, "l_orderkey": key, "l_partkey": part, "l_suppkey": supplier})
        return orders, lines

    def delete(self, count: int) -> tuple[list[Row], list[Row]]:
        """RF2: the keys of the oldest orders and of their lines."""
        old = [row["o_orderkey"] for row in self._orders[self._deleted : self._deleted + count]]
        self._deleted += count
        lines = [{k: row[k] for k in KEYS["lineitem"]} for key in old for row in self._lines[key]]
        return [{"o_orderkey": key} for key in old], lines


INTERESTING = """
SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300
UNION (
    SELECT o_orderkey FROM customer, orders, lineitem
    WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' ORDER BY o_orderkey LIMIT 2)
UNION (
    SELECT o_orderkey FROM orders, lineitem
    WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate AND o_orderdate >= DATE '1993-07-01'
        AND o_orderdate < DATE '1993-10-01' ORDER BY o_orderkey LIMIT 2)
UNION (
    SELECT o_orderkey FROM orders, lineitem
    WHERE o_orderkey = l_orderkey AND l_shipmode = 'MAIL' AND l_commitdate < l_receiptdate
        AND l_shipdate < l_commitdate AND year(l_receiptdate) = 1994 ORDER BY o_orderkey LIMIT 2)
UNION (
    SELECT o_orderkey FROM customer, orders, lineitem, supplier, nation
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        AND s_nationkey = n_nationkey AND n_regionkey = 2 AND year(o_orderdate) = 1994 ORDER BY o_orderkey LIMIT 2)
UNION (
    SELECT o_orderkey FROM customer, orders, lineitem, supplier, nation n1, nation n2
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND s_nationkey = n1.n_nationkey
        AND c_nationkey = n2.n_nationkey AND n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY'
        AND year(l_shipdate) = 1995 ORDER BY o_orderkey LIMIT 2)
UNION (
    SELECT l1.l_orderkey FROM supplier, lineitem l1, orders, nation
    WHERE s_suppkey = l1.l_suppkey AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
        AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
            AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
    ORDER BY l1.l_orderkey LIMIT 2)
"""
"""Orders that queries with narrow filters see: Q18, Q3, Q4, Q12, Q5, Q7 and Q21. For DuckDB."""


# ---- comparing ------------------------------------------------------------------------------------------


def canonical(rows: Iterable[Sequence[Any]], *, places: int | None = None) -> list[tuple[Any, ...]]:
    """Rows in one order. Numbers exact; with `places`, rounded to this number of significant digits."""

    def one(value: Any) -> Any:
        if isinstance(value, Decimal | float | int) and not isinstance(value, bool):
            if places is not None:
                return float(f"{float(value):.{places}g}")
            return value.normalize() if isinstance(value, Decimal) else value
        return value.isoformat() if isinstance(value, datetime.date) else value

    return sorted((tuple(one(v) for v in row) for row in rows), key=repr)


# ---- the queries ----------------------------------------------------------------------------------------

QUERIES: dict[str, str] = {
    "q1": """
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
    sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
    avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
FROM lineitem
WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus""",
    "q2": """
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part, supplier, partsupp, nation, region
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS'
    AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
    AND ps_supplycost = (
        SELECT min(ps_supplycost) FROM partsupp, supplier, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
            AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey""",
    "q3": """
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
    AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority
ORDER BY revenue DESC, o_orderdate""",
    "q4": """
SELECT o_orderpriority, count(*) AS order_count
FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL 3 MONTH
    AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority
ORDER BY o_orderpriority""",
    "q5": """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
    AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
    AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1994-01-01' + INTERVAL 1 YEAR
GROUP BY n_name
ORDER BY revenue DESC""",
    "q6": """
SELECT sum(l_extendedprice * l_discount) AS revenue
FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR
    AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
    "q7": """
SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
FROM (
    SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(YEAR FROM l_shipdate) AS l_year,
        l_extendedprice * (1 - l_discount) AS volume
    FROM supplier, lineitem, orders, customer, nation n1, nation n2
    WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
        AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
        AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
        AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
GROUP BY supp_nation, cust_nation, l_year
ORDER BY supp_nation, cust_nation, l_year""",
    "q8": """
SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
FROM (
    SELECT extract(YEAR FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
    FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
    WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
        AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
        AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations
GROUP BY o_year
ORDER BY o_year""",
    "q9": """
SELECT nation, o_year, sum(amount) AS sum_profit
FROM (
    SELECT n_name AS nation, extract(YEAR FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
    FROM part, supplier, lineitem, partsupp, orders, nation
    WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
        AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit
GROUP BY nation, o_year
ORDER BY nation, o_year DESC""",
    "q10": """
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone,
    c_comment
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01'
    AND o_orderdate < DATE '1993-10-01' + INTERVAL 3 MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
ORDER BY revenue DESC""",
    "q11": """
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
FROM partsupp, supplier, nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (
    SELECT sum(ps_supplycost * ps_availqty) * 0.01 FROM partsupp, supplier, nation
    WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')
ORDER BY value DESC""",
    "q12": """
SELECT l_shipmode,
    sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
    sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
    AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
    AND l_receiptdate < DATE '1994-01-01' + INTERVAL 1 YEAR
GROUP BY l_shipmode
ORDER BY l_shipmode""",
    "q13": """
SELECT c_count, count(*) AS custdist
FROM (
    SELECT c_custkey, count(o_orderkey) AS c_count
    FROM customer LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
    GROUP BY c_custkey) AS c_orders
GROUP BY c_count
ORDER BY custdist DESC, c_count DESC""",
    "q14": """
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
    / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem, part
WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
    AND l_shipdate < DATE '1995-09-01' + INTERVAL 1 MONTH""",
    "q15": """
WITH revenue AS (
    SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
    FROM lineitem
    WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL 3 MONTH
    GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
FROM supplier, revenue
WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
ORDER BY s_suppkey""",
    "q16": """
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
FROM partsupp, part
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
    AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
    AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size
ORDER BY supplier_cnt DESC, p_brand, p_type, p_size""",
    "q17": """
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
    AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    "q18": """
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
    AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate""",
    "q19": """
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem, part
WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
        AND l_quantity >= 1 AND l_quantity <= 1 + 10 AND p_size BETWEEN 1 AND 5
        AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
    OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
        AND l_quantity >= 10 AND l_quantity <= 10 + 10 AND p_size BETWEEN 1 AND 10
        AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
    OR (p_partkey = l_partkey AND p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
        AND l_quantity >= 20 AND l_quantity <= 20 + 10 AND p_size BETWEEN 1 AND 15
        AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')""",
    "q20": """
SELECT s_name, s_address
FROM supplier, nation
WHERE s_suppkey IN (
        SELECT ps_suppkey FROM partsupp
        WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
            AND ps_availqty > (
                SELECT 0.5 * sum(l_quantity) FROM lineitem
                WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'
                    AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR))
    AND s_nationkey = n_nationkey AND n_name = 'CANADA'
ORDER BY s_name""",
    "q21": """
SELECT s_name, count(*) AS numwait
FROM supplier, lineitem l1, orders, nation
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
    AND l1.l_receiptdate > l1.l_commitdate
    AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
    AND NOT EXISTS (
        SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
            AND l3.l_receiptdate > l3.l_commitdate)
    AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
GROUP BY s_name
ORDER BY numwait DESC, s_name""",
    "q22": """
SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
FROM (
    SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal
    FROM customer
    WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
        AND c_acctbal > (
            SELECT avg(c_acctbal) FROM customer
            WHERE c_acctbal > 0.00 AND substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale
GROUP BY cntrycode
ORDER BY cntrycode""",
}
