"""The server of the catalog restarts: views and builds go on in the background, and statements wait for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

import ebla
from support.postgres import PostgresServer
from support.warehouse import connect, eventually


def shows(db: ebla.Database, count: int) -> bool:
    return db.query("v", where={"n": 2}, columns=["c"]).rows() == [(count,)]


def test_background_work_goes_on_after_restarts(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path):
    with (
        PostgresServer() as server,
        server.database() as url,
        connect(url, spark, storage_root=str(tmp_path / "data"), epoch_period_s=0.01, catalog_retry_s=120) as db,
        ThreadPoolExecutor(1) as pool,
    ):
        db.sql("CREATE TABLE t (id INT, n INT, PRIMARY KEY (id))")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS c FROM t GROUP BY n")
        db.table("t").upsert([{"id": i, "n": 0} for i in range(100)])
        for number, statement in enumerate(("UPSERT INTO t VALUES (1000, 1)", "CREATE ASYNC INDEX by_n ON t (n)")):
            server.stop()
            waiting = pool.submit(db.sql, statement)  # begins while the server is away
            server.start()
            waiting.result(timeout=120)
            db.table("t").upsert([{"id": number, "n": 2}])
            eventually(partial(shows, db, number + 1))
        db.sql("WAIT FOR by_n")
        assert [row[0] for row in db.query("t", where={"n": 1}).rows()] == [1000]
        assert db.sql("SELECT count(*) FROM system.troubles WHERE final").one()[0] == 0
