"""How many statements small pieces of work send to a PostgreSQL catalog: each is a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ebla
from support.statements import of_epoch, of_upsert
from support.warehouse import connect


@pytest.fixture
def db(spark: SparkSession, postgres_url: str, tmp_path: Path) -> Iterator[ebla.Database]:
    with connect(postgres_url, spark, storage_root=str(tmp_path / "root"), auto_refresh=False) as opened:
        yield opened


@pytest.mark.postgres
def test_a_small_upsert_and_an_epoch_send_few_statements(db: ebla.Database):
    assert of_upsert(db) <= 10
    assert of_epoch(db) <= 25
