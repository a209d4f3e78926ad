"""Queries over system tables: those that are answered without Spark, and those that are left to it."""

from __future__ import annotations

WITHOUT_SPARK = [
    "SELECT * FROM system.history",
    "SELECT * FROM system.history WHERE committed_at > current_timestamp() - INTERVAL 1 HOUR ORDER BY version",
    "SELECT version, reason FROM system.history ORDER BY version DESC LIMIT 3",
    "SELECT Version, REASON FROM System.History ORDER BY 1 LIMIT 3 OFFSET 1",
    "SELECT version v, v.version FROM system.history v ORDER BY v.version",
    "SELECT name, level, count(*), sum(bytes) FROM system.runs JOIN system.relations USING (relation_id) "
    "WHERE end_version > 4000000000000000000 GROUP BY ALL ORDER BY name, level",
    "SELECT r.name, count(*) AS n, max(h.committed_at) FROM system.relations r LEFT JOIN system.history h "
    "ON r.relation_id = h.relation_id GROUP BY r.name ORDER BY n DESC, name",
    "SELECT relation_id, count(1), avg(version), min(version), max(version), sum(version) FROM system.history "
    "GROUP BY relation_id ORDER BY relation_id",
    "SELECT relation_id FROM system.history GROUP BY relation_id HAVING count(*) > 1 ORDER BY relation_id DESC",
    "SELECT * FROM system.relations RIGHT JOIN system.tablets USING (relation_id) ORDER BY relation_id, tablet_id",
    "SELECT relation_id, h.reason FROM system.relations r FULL OUTER JOIN system.history h USING (relation_id) "
    "ORDER BY relation_id, h.version",
    "WITH h AS (SELECT version, relation_id FROM system.history), r AS (SELECT * FROM h WHERE version > 1) "
    "SELECT count(*), count(relation_id), count(DISTINCT relation_id) FROM r",
    "SELECT name FROM system.relations WHERE relation_id IN (SELECT relation_id FROM system.history) ORDER BY name",
    "SELECT name FROM system.relations r WHERE EXISTS (SELECT 1 FROM system.runs x "
    "WHERE x.relation_id = r.relation_id) ORDER BY 1",
    "SELECT name, (SELECT max(version) FROM system.history) AS newest FROM system.relations ORDER BY name",
    "SELECT r.name FROM system.relations r LEFT ANTI JOIN system.runs x ON r.relation_id = x.relation_id ORDER BY 1",
    "SELECT kind FROM system.history UNION SELECT kind FROM system.relations ORDER BY kind",
    "SELECT reason FROM system.history EXCEPT SELECT name FROM system.relations ORDER BY reason",
    "SELECT DISTINCT kind FROM system.history ORDER BY kind",
    "SELECT upper(name), lower(name) l, length(name), name || '!' AS loud FROM system.relations ORDER BY name",
    "SELECT version + 1, version * 2 - 1, version / 4, version % 2, -version FROM system.history ORDER BY version",
    "SELECT CASE WHEN relation_id IS NULL THEN 'none' ELSE kind END AS k, coalesce(relation_id, 0) c, "
    "if(version > 2, 1, 0) i, nullif(version, 1) n FROM system.history ORDER BY version",
    "SELECT version FROM system.history WHERE reason LIKE 'create%' OR version BETWEEN 2 AND 3 ORDER BY version",
    "SELECT version FROM system.history WHERE committed_at > '2020-01-01' AND committed_at < '2999-12-31 23:59:59' "
    "ORDER BY version",
    "SELECT version, row_number() OVER (PARTITION BY kind ORDER BY version) AS place, "
    "sum(version) OVER (PARTITION BY kind) AS total, lag(version) OVER (ORDER BY version) AS before "
    "FROM system.history ORDER BY version",
    "SELECT h.committed_at - g.committed_at AS took FROM system.history h JOIN system.history g "
    "ON h.version = g.version + 1 ORDER BY h.version",
    "SELECT date_trunc('DAY', committed_at) AS day, count_if(version > 1) AS n, "
    "count(*) FILTER (WHERE kind = 'data') AS data FROM system.history GROUP BY 1",
    "SELECT CAST(version AS STRING) s, CAST(version AS DOUBLE) d, CAST(committed_at AS DATE) t FROM system.history "
    "ORDER BY version",
    "SELECT name, status, age_s FROM system.views WHERE age_s > 5 ORDER BY age_s DESC",
    "SELECT name, percent, is_unique FROM system.indexes WHERE NOT is_unique",
    "SELECT * FROM system.transactions WHERE state = 'open'",
    "SELECT * FROM system.pins ORDER BY version",
    "SELECT name FROM system.columns WHERE nullable AND key_position IS NULL AND hidden = false ORDER BY name",
    "SELECT a.*, b.name FROM system.tablets a CROSS JOIN system.relations b "
    "ORDER BY b.name, a.relation_id, a.tablet_id",
]

LEFT_TO_SPARK = [
    "SELECT version / 0 FROM system.history",
    "SELECT get_json_object(options, '$.query') FROM system.relations",
    "SELECT collect_list(version) FROM system.history",
    "SELECT version FROM system.history WHERE reason = 5",
    "SELECT version * 1.5 FROM system.history",
    "SELECT explode(split(reason, ' ')) FROM system.history",
    "SELECT reason FROM system.history WHERE reason LIKE 'a\\_b'",
    "SELECT committed_at + INTERVAL 1 MONTH FROM system.history",
    "SELECT CAST(committed_at AS STRING) FROM system.history",
    "SELECT version FROM system.history TABLESAMPLE (50 PERCENT)",
    "SELECT transform(split(reason, ' '), x -> upper(x)) FROM system.history",
    "SELECT word FROM system.history LATERAL VIEW explode(split(reason, ' ')) AS word",
    "SELECT system.history.version, date '2024-01-01' > committed_at FROM system.history",
    "SELECT version FROM system.history UNION ALL BY NAME SELECT explode(array(1)) AS version FROM system.runs",
    "SELECT v, explode(array(v)) FROM (SELECT version v, kind FROM system.history) GROUP BY ALL ORDER BY v",
    "SELECT dateadd(HOUR, 1, committed_at), session_user FROM system.history",
    "SELECT date '2024-01-01' > committed_at FROM system.history",
]
