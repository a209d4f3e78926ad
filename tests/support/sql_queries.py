"""Queries and the tables that they name, in order: one list for the unit tests and for Spark's own parser."""

from __future__ import annotations

TPCH: dict[str, tuple[str, list[str]]] = {
    "q1": (
        "select l_returnflag, sum(l_quantity) as sum_qty, count(*) as n from lineitem "
        "where l_shipdate <= date '1998-12-01' - interval '90' day group by l_returnflag, l_linestatus "
        "order by l_returnflag, l_linestatus",
        ["lineitem"],
    ),
    "q2": (
        "select s_acctbal, s_name from part, supplier, partsupp, nation, region where p_partkey = ps_partkey "
        "and ps_supplycost = (select min(ps_supplycost) from partsupp, supplier, nation, region "
        "where p_partkey = ps_partkey and r_name = 'EUROPE') order by s_acctbal desc, n_name limit 100",
        ["part", "supplier", "partsupp", "nation", "region", "partsupp", "supplier", "nation", "region"],
    ),
    "q3": (
        "select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue from customer, orders, lineitem "
        "where c_custkey = o_custkey group by l_orderkey, o_orderdate order by revenue desc, o_orderdate limit 10",
        ["customer", "orders", "lineitem"],
    ),
    "q4": (
        "select o_orderpriority, count(*) from orders where o_orderdate < date '1993-07-01' + interval '3' month "
        "and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate) "
        "group by o_orderpriority",
        ["orders", "lineitem"],
    ),
    "q5": (
        "select n_name, sum(l_extendedprice) from customer c, orders o, lineitem l, supplier s, nation n, region r "
        "where c.c_custkey = o.o_custkey group by n_name",
        ["customer", "orders", "lineitem", "supplier", "nation", "region"],
    ),
    "q6": (
        "select sum(l_extendedprice * l_discount) from lineitem where l_discount between .06 - 0.01 and 0.07",
        ["lineitem"],
    ),
    "q7": (
        "select supp_nation, l_year, sum(volume) from (select n1.n_name as supp_nation, extract(year from "
        "l_shipdate) as l_year, l_extendedprice as volume from supplier, lineitem, orders, customer, nation n1, "
        "nation n2 where s_suppkey = l_suppkey) as shipping group by supp_nation, l_year",
        ["supplier", "lineitem", "orders", "customer", "nation", "nation"],
    ),
    "q8": (
        "select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) from (select "
        "extract(year from o_orderdate) as o_year, n2.n_name as nation, 1 as volume from part, supplier, lineitem, "
        "orders, customer, nation n1, nation n2, region) as all_nations group by o_year",
        ["part", "supplier", "lineitem", "orders", "customer", "nation", "nation", "region"],
    ),
    "q9": (
        "select nation, sum(amount) from (select n_name as nation, ps_supplycost * l_quantity as amount from part, "
        "supplier, lineitem, partsupp, orders, nation where p_name like '%green%') as profit group by nation",
        ["part", "supplier", "lineitem", "partsupp", "orders", "nation"],
    ),
    "q10": (
        "select c_custkey from customer, orders, lineitem, nation where l_returnflag = 'R' group by c_custkey, c_name",
        ["customer", "orders", "lineitem", "nation"],
    ),
    "q11": (
        "select ps_partkey, sum(ps_supplycost) as value from partsupp, supplier, nation group by ps_partkey having "
        "sum(ps_supplycost) > (select sum(ps_supplycost) * 0.0001 from partsupp, supplier, nation) order by value",
        ["partsupp", "supplier", "nation", "partsupp", "supplier", "nation"],
    ),
    "q12": (
        "select l_shipmode from orders, lineitem where l_shipmode in ('MAIL', 'SHIP') group by l_shipmode",
        ["orders", "lineitem"],
    ),
    "q13": (
        "select c_count, count(*) from (select c_custkey, count(o_orderkey) from customer left outer join orders on "
        "c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey) as c_orders "
        "(c_custkey, c_count) group by c_count",
        ["customer", "orders"],
    ),
    "q14": (
        "select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice else 0 end) from lineitem, part",
        ["lineitem", "part"],
    ),
    "q15": (
        "with revenue as (select l_suppkey as supplier_no, sum(l_extendedprice) as total from lineitem group by "
        "l_suppkey) select s_suppkey from supplier, revenue where total = (select max(total) from revenue)",
        ["lineitem", "supplier"],
    ),
    "q16": (
        "select p_brand, count(distinct ps_suppkey) from partsupp, part where ps_suppkey not in (select s_suppkey "
        "from supplier where s_comment like '%Customer%Complaints%') group by p_brand",
        ["partsupp", "part", "supplier"],
    ),
    "q17": (
        "select sum(l_extendedprice) / 7.0 from lineitem, part where l_quantity < (select 0.2 * avg(l_quantity) "
        "from lineitem where l_partkey = p_partkey)",
        ["lineitem", "part", "lineitem"],
    ),
    "q18": (
        "select c_name from customer, orders, lineitem where o_orderkey in (select l_orderkey from lineitem "
        "group by l_orderkey having sum(l_quantity) > 300) and c_custkey = o_custkey",
        ["customer", "orders", "lineitem", "lineitem"],
    ),
    "q19": (
        "select sum(l_extendedprice) from lineitem, part where (p_partkey = l_partkey and p_size between 1 and 5) "
        "or (p_partkey = l_partkey and l_shipmode in ('AIR', 'AIR REG'))",
        ["lineitem", "part"],
    ),
    "q20": (
        "select s_name from supplier, nation where s_suppkey in (select ps_suppkey from partsupp where ps_partkey in "
        "(select p_partkey from part where p_name like 'forest%') and ps_availqty > (select 0.5 * sum(l_quantity) "
        "from lineitem where l_partkey = ps_partkey))",
        ["supplier", "nation", "partsupp", "part", "lineitem"],
    ),
    "q21": (
        "select s_name from supplier, lineitem l1, orders, nation where exists (select * from lineitem l2 where "
        "l2.l_orderkey = l1.l_orderkey) and not exists (select * from lineitem l3 where l3.l_suppkey <> "
        "l1.l_suppkey) group by s_name",
        ["supplier", "lineitem", "orders", "nation", "lineitem", "lineitem"],
    ),
    "q22": (
        "select cntrycode, count(*) from (select substring(c_phone from 1 for 2) as cntrycode, c_acctbal from customer "
        "where c_acctbal > (select avg(c_acctbal) from customer where c_acctbal > 0.00) and not exists (select * "
        "from orders where o_custkey = c_custkey)) as custsale group by cntrycode",
        ["customer", "customer", "orders"],
    ),
}

# What both Spark and sqlglot read.
COMMON: list[tuple[str, list[str]]] = [
    ("SELECT 1", []),
    ("SELECT * FROM t", ["t"]),
    ("SELECT * FROM `t`", ["t"]),
    ("SELECT * FROM `odd ``name``; -- x`", ["odd `name`; -- x"]),
    ("SELECT 'FROM x', \"FROM y\", `FROM z` FROM t -- FROM u\n", ["t"]),
    ("SELECT /* FROM x /* nested */ FROM y */ a FROM t", ["t"]),
    ("SELECT 'it\\'s FROM x' FROM t", ["t"]),
    ("SELECT 'it''s FROM x' FROM t", ["t"]),
    ("SELECT r'\\' FROM t", ["t"]),
    ("SELECT a FROM t AS x JOIN u y ON x.id = y.id LEFT JOIN v USING (id) CROSS JOIN w", ["t", "u", "v", "w"]),
    ("SELECT a FROM t JOIN u ON t.a = u.a, v WHERE 1 = 1", ["t", "u", "v"]),
    ("SELECT * FROM t NATURAL JOIN u LEFT SEMI JOIN v ON t.a = v.a LEFT ANTI JOIN w ON t.a = w.a", list("tuvw")),
    ("SELECT * FROM (t JOIN u ON t.a = u.a) JOIN v ON t.b = v.b", ["t", "u", "v"]),
    ("SELECT * FROM ((t JOIN u ON t.a = u.a) JOIN v ON t.b = v.b)", ["t", "u", "v"]),
    ("SELECT * FROM ((SELECT a FROM t) UNION SELECT b FROM u) x", ["t", "u"]),
    ("(SELECT a FROM t) UNION ALL (SELECT a FROM u ORDER BY a LIMIT 1) ORDER BY a", ["t", "u"]),
    ("SELECT a FROM t UNION SELECT a FROM u EXCEPT SELECT a FROM v INTERSECT SELECT a FROM w", list("tuvw")),
    ("SELECT a, (SELECT max(b) FROM u WHERE u.id = t.id) AS m FROM t", ["u", "t"]),
    ("SELECT * FROM t WHERE (a, b) IN (SELECT a, b FROM u) AND NOT EXISTS (SELECT 1 FROM v)", ["t", "u", "v"]),
    ("SELECT * FROM t WHERE a = ((SELECT max(a) FROM u) + 1)", ["t", "u"]),
    ("SELECT CASE WHEN a IN (SELECT a FROM u) THEN (SELECT 1 FROM v) END FROM t", ["u", "v", "t"]),
    ("SELECT count(*) FILTER (WHERE a IS DISTINCT FROM b) FROM t", ["t"]),
    ("SELECT * FROM t WHERE a IS NOT DISTINCT FROM b AND c IS DISTINCT FROM d", ["t"]),
    ("SELECT extract(DAY FROM d), trim(BOTH ' ' FROM s), substring(s FROM 2) FROM t", ["t"]),
    ("WITH x AS (SELECT * FROM t) SELECT * FROM x", ["t"]),
    ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
    ("WITH Orders AS (SELECT * FROM t) SELECT * FROM ORDERS o JOIN u ON o.a = u.a", ["t", "u"]),
    ("WITH a AS (SELECT * FROM t), b AS (SELECT * FROM a JOIN u ON true) SELECT * FROM b, a, c", ["t", "u", "c"]),
    ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM a, b", ["a"]),
    ("WITH x(a, b) AS (SELECT 1, 2 FROM t) SELECT * FROM (SELECT * FROM x) y", ["t"]),
    ("SELECT * FROM (WITH x AS (SELECT * FROM t) SELECT * FROM x) y JOIN x ON true", ["t", "x"]),
    ("WITH x AS (WITH y AS (SELECT * FROM t) SELECT * FROM y) SELECT * FROM x, y", ["t", "y"]),
    ("WITH x AS (SELECT 1) SELECT (SELECT max(a) FROM x), (SELECT 1 FROM u) FROM v", ["u", "v"]),
    ("SELECT * FROM t LATERAL VIEW explode(arr) e AS x, y WHERE x > 1", ["t"]),
    ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.id = t.id) AS l", ["t", "u"]),
    ("SELECT * FROM t JOIN LATERAL (SELECT max(b) AS m FROM u) AS l ON true", ["t", "u"]),
    ("SELECT * FROM t TABLESAMPLE (10 PERCENT) s JOIN u TABLESAMPLE (5 ROWS) ON s.a = u.a", ["t", "u"]),
    ("SELECT * FROM t PIVOT (sum(a) FOR b IN ('x', 'y'))", ["t"]),
    ("SELECT * FROM (SELECT a, b FROM t) PIVOT (sum(a) FOR b IN ('x' AS x, 'y' AS y)) AS p", ["t"]),
    ("SELECT * FROM range(10)", []),
    ("SELECT * FROM range(10) r JOIN t ON r.id = t.id", ["t"]),
    ("SELECT * FROM explode(array(1, 2)) AS e(x), t", ["t"]),
    ("VALUES (1, 'a'), (2, 'b')", []),
    ("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(id, s)", []),
    ("SELECT * FROM (VALUES (1), (2)) AS v(id), t", ["t"]),
    ("SELECT row_number() OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t", ["t"]),
    ("SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b)", ["t"]),
    ("SELECT a FROM t GROUP BY a, b HAVING count(*) > 1 ORDER BY a, b LIMIT 3 OFFSET 2", ["t"]),
    ("SELECT transform(arr, x -> x + 1), filter(arr, (x, i) -> x > i) FROM t", ["t"]),
    ("SELECT s.from, s.join FROM t AS s", ["t"]),
    ("SELECT a AS `from`, cast(a AS decimal(3, 1)) FROM t, u", ["t", "u"]),
    ("SELECT * FROM t FULL OUTER JOIN u ON t.a = u.a RIGHT OUTER JOIN v ON true INNER JOIN w ON true", list("tuvw")),
    ("SELECT DISTINCT a FROM t", ["t"]),
    ("SELECT * FROM t AS x(a, b), u AS y(c)", ["t", "u"]),
    ("SELECT a FROM t WHERE a LIKE '%FROM%' OR b BETWEEN 1 AND (SELECT max(b) FROM u)", ["t", "u"]),
    ("SELECT if(a > 1, (SELECT min(x) FROM u), 0) FROM t", ["u", "t"]),
]

# What Spark reads, and sqlglot refuses or understands otherwise in a few places.
SPARK: list[tuple[str, list[str]]] = [
    ("SELECT a FROM t WHERE d > :from AND e < :join AND f = :select", ["t"]),
    ("FROM t", ["t"]),
    ("FROM t SELECT a, b WHERE a > 1", ["t"]),
    ("WITH x AS (SELECT * FROM t) FROM x SELECT a", ["t"]),
    ("SELECT * FROM (FROM t SELECT a) JOIN u ON true", ["t", "u"]),
    ("TABLE t", ["t"]),
    ("TABLE t ORDER BY a LIMIT 1", ["t"]),
    ("SELECT a FROM t UNION ALL TABLE u", ["t", "u"]),
    ("SELECT * FROM (TABLE t) x", ["t"]),
    ("WITH x AS (TABLE t) TABLE x", ["t"]),
    ("FROM t |> WHERE a > 1 |> JOIN u ON t.a = u.a |> SELECT a, b |> LEFT JOIN v USING (a)", ["t", "u", "v"]),
    ("FROM t |> AGGREGATE sum(a) AS s, count(*) AS n GROUP BY b |> UNION ALL (FROM u) |> LIMIT 1", ["t", "u"]),
    ("FROM t |> EXTEND a + 1 AS b, 2 AS c |> WHERE a IN (SELECT a FROM u) |> DROP c |> AS x", ["t", "u"]),
    ("SELECT * FROM t QUALIFY row_number() OVER (ORDER BY a) = 1", ["t"]),
    ("SELECT a::map<string, int>, b::struct<x: int, y: int> FROM t, u", ["t", "u"]),
    ("SELECT * FROM t JOIN u ON t.a::map<string, int> IS NULL, v", ["t", "u", "v"]),
    ("SELECT * EXCEPT (a) FROM t", ["t"]),
    ("SELECT struct(* EXCEPT (a)) FROM t, u", ["t", "u"]),
    ("SELECT * FROM t window, u", ["t", "u"]),
    ("SELECT * FROM t match JOIN u version ON true", ["t", "u"]),
    ("SELECT * FROM VALUES 1, 2 x, t", ["t"]),
    ("SELECT * FROM (VALUES (1), (2) JOIN t ON true) JOIN (VALUES (1) UNION TABLE u) ON true", ["t", "u"]),
    ("WITH x ((SELECT * FROM t) UNION SELECT 1) SELECT * FROM x", ["t"]),
    ("SELECT * FROM VALUES (1), (-2) JOIN t ON true", ["t"]),
    ("SELECT * FROM VALUES struct(1, date '2026-01-01'), struct(1 + 2 * 3, NULL) AS v(a, b), t", ["t"]),
    ("SELECT * FROM VALUES (CASE WHEN true THEN 1 ELSE 2 END), CASE WHEN true THEN 1 END v, t", ["t"]),
    ("SELECT * FROM t UNPIVOT (v FOR n IN (a, b)) AS p, u", ["t", "u"]),
    ("SELECT * FROM t UNPIVOT INCLUDE NULLS (v FOR n IN (a, b)), u", ["t", "u"]),
    ("SELECT overlay(s PLACING 'x' FROM 2) FROM t", ["t"]),
    ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r JOIN t ON true) SELECT * FROM r", ["t"]),
    (
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 10 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r, t",
        ["t"],
    ),
    ("WITH x (SELECT * FROM t) SELECT * FROM x", ["t"]),
    ("SELECT * FROM t WITH (`split-size` = 5) AS x, u", ["t", "u"]),
    ("SELECT * FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (3) x, u", ["t", "u"]),
    ("SELECT * FROM f(TABLE(t)), u", ["t", "u"]),
    ("SELECT * FROM f(TABLE(t) PARTITION BY a ORDER BY b), u", ["t", "u"]),
    ("SELECT * FROM f(x => TABLE(SELECT * FROM t), y => 2)", ["t"]),
    ("SELECT /*+ BROADCAST(u) */ * FROM t JOIN u ON true", ["t", "u"]),
    ("SELECT a FROM t GROUP BY ALL ORDER BY ALL", ["t"]),
    ("SELECT a FROM t DISTRIBUTE BY a, b SORT BY c, d", ["t"]),
    ("SELECT * FROM t -- over the line \\\n FROM x\n, u", ["t", "u"]),
    ("SELECT * FROM t VERSION AS OF 3", ["t"]),
    ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 3 AS x, u", ["t", "u"]),
    ("SELECT * FROM t TIMESTAMP AS OF '2026-01-01 00:00:00' x JOIN u ON true", ["t", "u"]),
    ("SELECT * FROM t FOR SYSTEM_TIME AS OF current_timestamp() - INTERVAL 1 DAY 2 HOURS x, u", ["t", "u"]),
    ("SELECT * FROM t TIMESTAMP AS OF date_sub(current_date(), 1), u", ["t", "u"]),
    ("SELECT * FROM t TIMESTAMP AS OF CAST('2026-01-01' AS TIMESTAMP) WHERE a > 1", ["t"]),
    ("SELECT * FROM t TIMESTAMP AS OF TIMESTAMP '2026-01-01' + INTERVAL '1' HOUR", ["t"]),
    ("SELECT (values), (table), (from) FROM t", ["t"]),
    ("SELECT (table IS NULL) FROM t", ["t"]),
    ("SELECT left, right, full, `join` FROM t", ["t"]),
    ("SELECT MAP(1, 2)[1], arr[0], col.f.g FROM t", ["t"]),
    ("SELECT 1a.b FROM 1a", ["1a"]),
    ("SELECT 1e3, 1.5BD, 10L, .5, 1. FROM t", ["t"]),
]
