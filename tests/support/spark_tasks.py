"""What child processes do to Spark itself; see `support.attached`."""

from __future__ import annotations

from pyspark.sql import SparkSession

import ebla


def say_which(where: str) -> None:
    """The application that Ebla works in; to close the database does not end it."""
    with ebla.connect(where, auto_compact=False, auto_refresh=False) as db:
        print(db.spark.sparkContext.applicationId, flush=True)


def sleep(milliseconds: int) -> None:
    """One job that takes so long."""
    session = SparkSession.getActiveSession()
    assert session is not None
    session.sql(f"SELECT reflect('java.lang.Thread', 'sleep', {milliseconds}L) FROM range(1)").collect()
