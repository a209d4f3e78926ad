"""What child processes do to indexes, with the Spark of the tests or one of their own; see `support.processes`."""

from __future__ import annotations

from typing import Any

import ebla


def connect(where: str) -> ebla.Database:
    return ebla.connect(
        where, auto_compact=False, auto_refresh=False, fsync=False, spark_cores="1", spark_memory="1g",
        index_tablets_per_job=1, barrier_grace_s=0.1, leader_lease_s=1.0,
    )  # fmt: skip


def run(where: str, text: str) -> None:
    db = connect(where)
    db.sql(text)
    print("done", flush=True)
    db.close()


def write(where: str, rows: list[dict[str, Any]]) -> None:
    db = connect(where)
    db.table("t").upsert(rows)
    print("written", flush=True)
    db.close()
