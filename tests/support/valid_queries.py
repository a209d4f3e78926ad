"""A small warehouse as the validator knows it, and queries over it that Spark accepts: they have no error."""

from __future__ import annotations

from ebla.model.relation import Kind
from ebla.validate import RelationFacts, Warehouse

TABLES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "orders": ({"id": "bigint", "customer": "bigint", "total": "decimal(12,2)", "day": "date"}, ("id",)),
    "customers": ({"id": "bigint", "name": "string", "country": "int", "vip": "boolean"}, ("id",)),
    "lines": ({"oid": "bigint", "n": "int", "note": "string"}, ("oid", "n")),
    "things": ({"id": "bigint", "s": "struct<f:int,g:struct<h:int>>", "tags": "array<string>", "m": "map<string,int>"},
               ("id",)),
    "bag": ({"x": "bigint"}, ()),
}  # fmt: skip

KNOWN = Warehouse(
    relations={
        **{n: RelationFacts(name=n, kind=Kind.TABLE, columns=c, key=k) for n, (c, k) in TABLES.items()},
        "by_customer": RelationFacts(
            name="by_customer",
            kind=Kind.VIEW,
            columns={"customer": "bigint", "n": "bigint"},
            key=("customer",),
            reads=frozenset({"orders"}),
        ),
        "rich": RelationFacts(
            name="rich", kind=Kind.VIEW, columns={"id": "bigint"}, key=("id",), reads=frozenset({"orders", "customers"})
        ),
    },
    handlers={"nightly": (("by_customer",), ("orders",))},
)

VALID = [
    "SELECT s.f, things.s.g.h, s.g.h AS deep FROM things",
    "SELECT t.id, tag FROM things t LATERAL VIEW explode(t.tags) x AS tag",
    "SELECT t.id, x.tag, pos FROM things t LATERAL VIEW OUTER posexplode(tags) x AS pos, tag",
    "SELECT id, explode(tags) AS tag FROM things",
    "SELECT id, posexplode(tags) AS (p, t) FROM things",
    "SELECT id, k, v FROM things LATERAL VIEW explode(m) AS k, v",
    "SELECT id, m['a'] AS a, tags[0] AS t0, s['f'] AS f FROM things",
    "SELECT id, transform(tags, t -> upper(t)) AS u, aggregate(tags, '', (acc, t) -> acc || t) AS j FROM things",
    "SELECT id, filter(tags, (t, i) -> i > id) AS u FROM things",
    "SELECT * FROM orders PIVOT (sum(total) FOR customer IN (1 AS a, 2 AS b))",
    "SELECT a, b FROM (SELECT customer, total, day FROM orders) PIVOT (sum(total) FOR customer IN (1 AS a, 2 AS b))",
    "SELECT * FROM lines UNPIVOT (val FOR name IN (oid, n))",
    "SELECT id, total FROM orders WHERE total > :least",
    "SELECT id, unheard_of(total, day) AS x FROM orders",
    "SELECT id, total * 2 AS twice, twice + 1 AS more FROM orders",
    "SELECT customer AS c, count(*) AS n FROM orders GROUP BY c HAVING n > 1 ORDER BY n DESC",
    "SELECT customer, count(*) AS n FROM orders GROUP BY ALL",
    "SELECT customer, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2",
    "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id ORDER BY id",
    "SELECT id, name, total FROM orders JOIN customers USING (id)",
    "SELECT id, name FROM orders NATURAL JOIN customers",
    "SELECT * FROM orders o JOIN customers c USING (id)",
    "SELECT id FROM orders o LEFT SEMI JOIN customers c ON o.customer = c.id WHERE id > 1",
    "SELECT id FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id",
    "SELECT id FROM customers c WHERE EXISTS (SELECT 1 FROM orders WHERE customer = c.id AND total > country)",
    "SELECT id FROM customers c WHERE id IN (SELECT customer FROM (SELECT customer FROM orders WHERE id > c.id) x)",
    "SELECT id, (SELECT max(total) FROM orders o WHERE o.customer = c.id) AS top FROM customers c",
    "WITH x AS (SELECT id AS k, total FROM orders), y (a, b) AS (SELECT k, total FROM x) SELECT a, b FROM y",
    "WITH RECURSIVE r(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 9) SELECT k FROM r",
    "WITH orders AS (SELECT 1 AS other) SELECT other FROM orders",
    "SELECT a, b FROM VALUES (1, 2), (3, 4) AS t(a, b)",
    "SELECT col1 FROM VALUES (1), (2)",
    "SELECT r.id FROM range(10) r",
    "SELECT o.id, z.n FROM orders o, LATERAL (SELECT max(n) AS n FROM lines WHERE oid = o.id) z",
    "SELECT o.id, z.n FROM orders o JOIN LATERAL (SELECT o.total AS n) z",
    "SELECT x.k, x.t FROM orders AS x(k, c, t, d)",
    "SELECT `id`, orders.`total` FROM orders",
    "SELECT ID, Orders.TOTAL FROM ORDERS",
    "SELECT id, sum(total) OVER w AS s FROM orders WINDOW w AS (PARTITION BY customer ORDER BY day)",
    "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day) AS r FROM orders QUALIFY r = 1",
    "SELECT id FROM orders UNION SELECT id FROM customers ORDER BY id",
    "(SELECT id FROM orders) UNION ALL (SELECT oid FROM lines)",
    "SELECT id, extract(YEAR FROM day) AS y, date_trunc('month', day) AS m, dateadd(DAY, 1, day) AS t FROM orders",
    "SELECT id, timestampdiff(MONTH, day, day) AS d, timestampadd(HOUR, 1, day) AS e FROM orders",
    "SELECT id, day + INTERVAL 1 DAY AS n, DATE'2024-01-01' AS d, CAST(id AS STRING) AS t, id::int AS i FROM orders",
    "SELECT id, struct(id AS a, total) AS st, named_struct('x', 1).x AS x FROM orders",
    "SELECT id, CASE WHEN vip THEN name ELSE 'x' END AS y, name LIKE 'a%' AS l FROM customers",
    "SELECT /*+ BROADCAST(c) */ o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "SELECT * EXCEPT (name) FROM customers",
    "SELECT c.* EXCEPT (name), o.total FROM orders o JOIN customers c ON o.customer = c.id",
    "SELECT count(*) FILTER (WHERE vip) AS n, grouping(country) AS g FROM customers GROUP BY country WITH ROLLUP",
    "SELECT country, vip, grouping__id FROM customers GROUP BY country, vip GROUPING SETS ((country), (vip))",
    "SELECT a.id, b.id AS other FROM (orders a JOIN orders b ON a.customer = b.id)",
    "FROM orders SELECT id, total",
    "TABLE orders",
    "FROM orders |> WHERE total > 1 |> SELECT id, total AS t |> WHERE t < 9",
    "SELECT unix_timestamp(day) AS u, id FROM orders",
    "SELECT `count(1)` FROM (SELECT count(1) FROM orders)",
    "SELECT id, try_element_at(tags, 1) AS t, stack(2, 1, 2) FROM things",
    "SELECT inline(array(struct(1, 'a'))), id FROM things",
    "SELECT json_tuple('{}', 'a', 'b') AS (a, b), id FROM things",
    "SELECT id FROM orders WHERE (customer, id) IN (SELECT id, id FROM customers)",
    "SELECT DISTINCT customer FROM orders -- total of nothing\n",
    "SELECT max(struct(total, day)).day AS latest, customer FROM orders GROUP BY customer",
    "SELECT o.id, o2.id AS id2 FROM orders o CROSS JOIN orders o2",
    "SELECT t.now, t.rand FROM VALUES (1, 2) AS t(now, rand)",
    "SELECT id FROM orders TABLESAMPLE (10 ROWS)",
    "SELECT id, 'é😀' AS s, total FROM orders",
    "SELECT key, value FROM things LATERAL VIEW explode(m) kv",
    "SELECT id, array_sort(tags, (l, r) -> CASE WHEN l < r THEN -1 ELSE 1 END) AS x FROM things",
    "SELECT id FROM orders SORT BY total",
    "SELECT customer, collect_set(id) AS ids FROM orders GROUP BY customer CLUSTER BY customer",
    "SELECT id FROM orders WHERE day BETWEEN '2024-01-01' AND '2024-02-01' OR total IS NULL",
    "SELECT id, user FROM (SELECT id, name AS user FROM customers)",
    "SELECT id, current_date FROM (SELECT id, day AS current_date FROM orders)",
]  # fmt: skip

MORE = r"""
SELECT o.id FROM orders o WHERE o.customer IN (SELECT id FROM customers c WHERE c.country = o.id)
SELECT id FROM orders WHERE id = (SELECT max(id) FROM orders)
SELECT id FROM orders ORDER BY total
SELECT customer FROM orders GROUP BY customer ORDER BY sum(total)
SELECT customer, sum(total) s FROM orders GROUP BY customer HAVING sum(id) > 1 ORDER BY s
SELECT DISTINCT customer FROM orders ORDER BY customer
SELECT a.id FROM orders a, customers b WHERE a.customer = b.id
SELECT orders.id FROM orders, customers WHERE customer = customers.id
SELECT x.id FROM (SELECT * FROM orders) x
SELECT id FROM (SELECT * FROM orders)
SELECT id, total FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders)
SELECT a.*, b.name FROM orders a JOIN customers b ON a.customer = b.id
SELECT s.* FROM things
SELECT t.s.* FROM things t
SELECT things.s.f FROM things
SELECT id, s.g.h h FROM things WHERE s.g.h > 1
SELECT id FROM things WHERE tags[0] = 'a' AND m.a = 1
SELECT m.key1 FROM things
SELECT id, tag FROM things LATERAL VIEW explode(tags) AS tag
SELECT id, col FROM things LATERAL VIEW explode(tags) t
SELECT id, explode(tags) FROM things
SELECT col FROM (SELECT explode(tags) FROM things)
SELECT pos, col FROM (SELECT posexplode(tags) FROM things)
SELECT x.col FROM things, LATERAL explode(tags) x
SELECT x.c FROM things, LATERAL explode(tags) AS x(c)
SELECT id, sum(total) OVER (PARTITION BY customer) AS s FROM orders QUALIFY s > 1
SELECT count(DISTINCT customer, total) c FROM orders
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total) p FROM orders
SELECT if(total > 1, 'a', 'b') x, nvl(total, 0) y, decode(id, 1, 'a', 'b') z FROM orders
SELECT cast(day AS timestamp) ts, date_format(day, 'yyyy') y, year(day) yy, make_date(2020,1,1) md FROM orders
SELECT date_add(day, 1) a, datediff(day, day) b, months_between(day, day) c, trunc(day, 'MM') d FROM orders
SELECT date_diff(MONTH, day, day) b FROM orders
SELECT date_add(MONTH, 1, day) b FROM orders
SELECT datediff(DAY, day, day) b FROM orders
SELECT timestampdiff(day, day, day) b FROM orders
SELECT name ILIKE 'a%' i, name RLIKE 'b' r, name LIKE ANY ('a', 'b') l FROM customers
SELECT id FROM orders MINUS SELECT id FROM customers
SELECT id FROM orders INTERSECT SELECT id FROM customers
WITH a AS (SELECT id FROM orders), b AS (SELECT id FROM a) SELECT * FROM a JOIN b USING (id)
WITH a AS (WITH b AS (SELECT id FROM orders) SELECT id FROM b) SELECT id FROM a
WITH t(x, y) AS (SELECT id, total FROM orders) SELECT x + 1 AS z, y FROM t
SELECT (SELECT count(*) FROM orders WHERE customer = c.id) AS n, c.id FROM customers c
SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM lines l WHERE l.oid = c.id GROUP BY l.n HAVING count(*) > 1)
SELECT id FROM orders o NATURAL LEFT JOIN customers c
SELECT o.id, c.id AS cid FROM orders o JOIN customers c USING (id)
SELECT o.*, c.name FROM orders o JOIN customers c USING (id)
SELECT id, c.name FROM orders o LEFT JOIN customers c USING (id) WHERE id > 1
SELECT country, vip, count(*) n FROM customers GROUP BY CUBE (country, vip)
SELECT country, vip, count(*) n FROM customers GROUP BY GROUPING SETS ((country, vip), (country), ())
SELECT country, count(*) n FROM customers GROUP BY country WITH CUBE
SELECT country c, count(*) n FROM customers GROUP BY ROLLUP (c)
SELECT reduce(tags, 0, (acc, t) -> acc + length(t), acc -> acc * 2) r FROM things
SELECT zip_with(tags, tags, (x, y) -> concat(x, y)) z FROM things
SELECT transform(tags, t -> transform(tags, u -> concat(t, u))) z FROM things
SELECT sum(total) FILTER (WHERE day > DATE'2020-01-01') s FROM orders
SELECT array(1, 2)[0] a, map('a', 1)['a'] b, struct(id, total).id c, named_struct('a', id).a d FROM orders
SELECT id AS `weird name`, `weird name` + 1 AS y FROM orders
SELECT `o`.`id` FROM orders `o`
SELECT id `select` FROM orders ORDER BY `select`
SELECT try_divide(total, 2) x, total div 2 y, total % 2 z, -total w, ~id v FROM orders
SELECT CASE customer WHEN 1 THEN 'a' WHEN 2 THEN 'b' END x FROM orders
SELECT stack(2, 'a', id, 'b', customer) AS (k, v) FROM orders
SELECT inline(array(struct(id, total))) FROM orders
SELECT c0 FROM (SELECT json_tuple('{}', 'a'), id FROM orders)
SELECT id FROM (orders)
SELECT a.id FROM ((SELECT id FROM orders) a JOIN customers b ON a.id = b.id)
SELECT id, date FROM (SELECT id, day AS date FROM orders)
SELECT id, timestamp FROM (SELECT id, day AS timestamp FROM orders)
SELECT id, year, month FROM (SELECT id, year(day) AS year, month(day) AS month FROM orders) WHERE year > 2000
SELECT id, left, right FROM (SELECT id, 1 AS `left`, 2 AS `right` FROM orders)
SELECT id, value FROM (SELECT id, total AS value FROM orders)
SELECT id, key, type, row FROM (SELECT id, 1 AS key, 2 AS type, 3 AS row FROM orders)
SELECT id, interval FROM (SELECT id, 1 AS interval FROM orders)
SELECT id, user FROM (SELECT id, 1 AS user FROM orders)
SELECT user.id FROM orders AS user
SELECT current_date FROM (SELECT 1 AS current_date FROM orders)
SELECT first.id FROM orders first
SELECT id, default FROM (SELECT id, 1 AS default FROM orders)
SELECT replace(name, 'a') x, format_string('%s', name) y FROM customers
SELECT hash(*) h, id FROM orders
SELECT struct(*) h, id FROM orders
SELECT concat_ws(',', *) n FROM customers
SELECT * FROM orders LIMIT 5 OFFSET 2
SELECT id FROM orders TABLESAMPLE (10 PERCENT) REPEATABLE (5) s
SELECT s.id FROM orders TABLESAMPLE (BUCKET 1 OUT OF 2) s
SELECT * FROM (SELECT id, customer, total FROM orders) PIVOT (sum(total) AS s, count(*) AS n FOR customer IN (1, 2))
SELECT p.a FROM (SELECT id, customer, total FROM orders) PIVOT (sum(total) FOR customer IN (1 AS a)) p
SELECT id, k, v FROM orders UNPIVOT (v FOR k IN (customer, total))
SELECT u.k FROM orders UNPIVOT INCLUDE NULLS (v FOR k IN (customer AS c, total AS t)) u
FROM orders |> AGGREGATE sum(total) AS s GROUP BY customer |> WHERE s > 1
FROM orders |> EXTEND total * 2 AS twice |> SET total = twice |> DROP twice
SELECT * FROM VALUES (1, 'a') t
SELECT a FROM (VALUES (1, 2)) AS t(a, b)
SELECT id::string s, total::decimal(10,1) d, '5'::int i FROM orders
SELECT r.id FROM range(3) r JOIN orders o ON r.id = o.id
SELECT id FROM orders WHERE day > '2020-01-01'::date - INTERVAL '1' MONTH
SELECT id, extract(DAYOFWEEK FROM day) d, date_part('week', day) w FROM orders
SELECT id, grouping_id() g FROM orders GROUP BY ROLLUP (id)
SELECT id, INPUT FROM (SELECT id, 1 AS INPUT FROM orders)
SELECT o.customer, o.total FROM orders AS o CLUSTER BY customer
SELECT TRANSFORM(id, total) USING 'cat' AS (a, b) FROM orders
SELECT id, (SELECT name FROM customers WHERE customers.id = orders.customer) n FROM orders
SELECT id, name FROM orders JOIN (SELECT id AS cid, name FROM customers) ON customer = cid
SELECT a.id FROM orders a JOIN orders b ON a.id = b.id JOIN orders c ON b.id = c.id AND a.customer = c.customer
SELECT id FROM orders WHERE array_contains(array(1,2), customer) AND total BETWEEN 1 AND customer
SELECT max_by(id, total) m, min(struct(total, id)).id n FROM orders
SELECT listagg(name, ',') WITHIN GROUP (ORDER BY name) l FROM customers
SELECT mode(country) m, histogram_numeric(country, 3) h FROM customers
SELECT id, total t, t + 1 u, u + 1 w FROM orders
SELECT id x FROM orders WHERE id > 1 GROUP BY x
SELECT customer % 2 AS k, count(*) c FROM orders GROUP BY k
SELECT parse_json('{"a": 1}'):a::int v, id FROM orders
SELECT get_json_object(name, '$.a') v, from_json(name, 'a INT').a w FROM customers
SELECT from_json(name, 'a INT') AS j, j.a FROM customers
SELECT regexp_extract(name, '(a)', 1) x, split(name, ',')[0] y, sort_array(split(name, ',')) z FROM customers
SELECT o.id FROM orders o LEFT JOIN LATERAL (SELECT * FROM lines l WHERE l.oid = o.id LIMIT 1) x ON true
SELECT o.id, x.n FROM orders o LEFT JOIN LATERAL (SELECT n FROM lines l WHERE l.oid = o.id LIMIT 1) x
SELECT k.id FROM customers c JOIN (SELECT id, customer FROM orders) AS k(id, cust) ON k.cust = c.id
SELECT c.id FROM customers c WHERE c.id NOT IN (SELECT customer FROM orders WHERE vip)
SELECT id FROM customers WHERE country <=> NULL OR vip IS DISTINCT FROM true OR name IS NOT DISTINCT FROM 'a'
SELECT id, name FROM customers ORDER BY country NULLS LAST, name DESC
SELECT sum(total) s, customer FROM orders GROUP BY customer ORDER BY ALL
SELECT id FROM orders DISTRIBUTE BY customer SORT BY total
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r
WITH RECURSIVE r(n, m) AS (VALUES (1, 2) UNION ALL SELECT n + 1, m FROM r WHERE n < 3) SELECT n, m FROM r
MAP id USING 'cat' AS x FROM orders
SELECT /*+ REPARTITION(3), BROADCAST(orders) */ id FROM orders
SELECT unnest.id FROM orders unnest
SELECT id FROM orders WHERE total > 1e3 AND total < 5BD AND id > 3L
SELECT concat(name, 'it''s', "dq") x FROM customers
SELECT if(vip, country, 0) AS x, x * 2 AS y FROM customers WHERE country > 0
SELECT id, CASE WHEN country IN (SELECT country FROM customers) THEN 1 END c FROM customers
SELECT variant_get(parse_json(name), '$.a', 'int') x FROM customers
SELECT t.* EXCEPT (s.f) FROM things t
SELECT * EXCEPT (id) FROM orders
SELECT sequence(1, id) s, explode(sequence(1, 3)) e FROM orders
SELECT id, exists(tags, x -> x IS NULL) AND forall(tags, x -> x > 'a') b FROM things
SELECT id, array_agg(total) FILTER (WHERE total > 0) OVER (PARTITION BY customer) x FROM orders
"""
VALID += MORE.strip().splitlines()
