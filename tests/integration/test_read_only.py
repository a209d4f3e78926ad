"""A user who may not write reads with Spark, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ebla.catalog import engines
from ebla.errors import CatalogError
from support.catalogs import dump
from support.warehouse import connect, rows


def test_spark_reads_for_a_user_who_may_not_write(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """How such a user is told apart is tested elsewhere, with one."""
    with connect(tmp_path / "w", spark) as db:
        db.sql("CREATE TABLE t (id INT, n INT, PRIMARY KEY (id))")
        first = db.table("t").upsert([{"id": i, "n": 1} for i in range(10)]).version
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
        db.sql("UPDATE t SET n = 2 WHERE id = 1; FLUSH v")
    monkeypatch.setattr(engines, "may_write", lambda folder: False)
    with connect(tmp_path / "w", spark) as db:
        before = dump(db.context.catalog)
        assert rows(db, "SELECT * FROM v ORDER BY n") == [(1, 9), (2, 1)]
        assert rows(db, f"SELECT sum(n) FROM t VERSION AS OF {first}") == [(10,)]
        assert db.table("t").scan().count() == 10
        assert db.table("t").changes(since=int(first or 0)).count() == 1
        assert rows(db, "SELECT count(*) FROM system.relations WHERE kind = 'view'") == [(1,)]
        for statement in (
            "DELETE FROM t",
            "CREATE INDEX i ON t (n)",
            "CREATE MATERIALIZED VIEW w AS SELECT id FROM t",
        ):
            with pytest.raises(CatalogError, match="found it read-only"):
                db.sql(statement)
        assert dump(db.context.catalog) == before
