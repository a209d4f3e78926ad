"""The processes that other tests kill: they share the Spark of the tests, and leave nothing behind in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.processes import Sharing
from support.warehouse import eventually

pytestmark = [pytest.mark.spark, pytest.mark.process]


def test_a_process_attaches_and_does_not_stop_what_is_not_its_own(
    spark: SparkSession, spark_processes: Sharing, tmp_path: Path
):
    said = spark_processes.start("support.spark_tasks:say_which", str(tmp_path / "warehouse")).finish()
    assert said == [spark.sparkContext.applicationId]
    assert spark.range(3).count() == 3


def test_what_a_killed_process_had_begun_is_over_when_the_test_goes_on(spark: SparkSession, spark_processes: Sharing):
    active = spark.sparkContext._jsc.sc().dagScheduler().activeJobs()
    child = spark_processes.start("support.spark_tasks:sleep", 3000)
    eventually(lambda: active.size() == 1)
    child.kill()
    child.close()
    assert active.size() == 0
