"""System tables by SQL: without Spark, and with the answers that Spark gives."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ebla
from ebla.api import system_queries
from ebla.errors import SnapshotError, UnknownNameError
from ebla.spark.session import STARTED_SETTINGS
from ebla.sql.refs import find
from support.system_queries import LEFT_TO_SPARK, WITHOUT_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTIONS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "system-tables.md"


def filled(place: Path, spark: SparkSession | None = None) -> ebla.Database:
    db = ebla.connect(str(place), spark, auto_refresh=False, auto_compact=False)
    db.sql("CREATE TABLE orders (id BIGINT, total DOUBLE, note STRING, PRIMARY KEY (id))")
    db.sql("CREATE TABLE Other (id BIGINT, PRIMARY KEY (id))")
    for number in range(3):
        db.table("orders").upsert([{"id": number, "total": 1.5, "note": "a"}])
    return db


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    with filled(tmp_path_factory.mktemp("system") / "w") as database:
        yield database


def alone(db: ebla.Database, text: str, **parameters: object) -> pa.Table | None:
    return system_queries.answer(db.context, find(text), parameters, STARTED_SETTINGS)


@pytest.mark.parametrize("text", WITHOUT_SPARK)
def test_queries_over_system_tables_start_no_spark(db: ebla.Database, text: str):
    assert alone(db, text) is not None
    assert db.sql(text).columns
    assert not db.context.has_spark


@pytest.mark.parametrize("text", LEFT_TO_SPARK)
def test_what_the_engines_may_understand_differently_is_left_to_spark(db: ebla.Database, text: str):
    assert alone(db, text) is None


def test_the_questions_of_the_reference_are_answered_without_spark(db: ebla.Database):
    asked = re.findall(r"`(SELECT [^`]+)`", QUESTIONS.read_text(encoding="utf-8"))
    assert len(asked) >= 4
    for text in asked:
        db.sql(text).rows()
    assert not db.context.has_spark


def test_parameters_are_bound(db: ebla.Database):
    found = db.sql("SELECT version FROM system.history WHERE version = :v AND reason LIKE :r", v=2, r="create%")
    assert found.rows() == [(2,)]
    later = dt.datetime(2999, 1, 1, tzinfo=dt.UTC)
    assert db.sql("SELECT count(*) FROM system.history WHERE committed_at > :t", t=later).one() == (0,)
    assert not db.context.has_spark


def test_the_history_calls_an_upsert_an_upsert(tmp_path):
    with filled(tmp_path / "w") as db:
        db.sql("UPSERT INTO orders VALUES (1, 2.5, 'b'); INSERT INTO orders VALUES (9, 2.5, 'c')")
        found = db.sql("SELECT reason FROM system.history ORDER BY version DESC LIMIT 2").rows()
        assert found == [("insert into orders",), ("upsert into orders",)]
        assert not db.context.has_spark


def test_times_are_instants_in_utc(db: ebla.Database):
    found = db.sql("SELECT max(committed_at), current_timestamp() FROM system.history")
    newest, now = found.one()
    assert newest.tzinfo is not None
    assert dt.timedelta(0) < now - newest < dt.timedelta(hours=1)
    assert found.to_arrow().schema.types == [pa.timestamp("us", "UTC")] * 2


def test_errors_need_no_spark(db: ebla.Database):
    with pytest.raises(UnknownNameError, match=r"system\.nothing: expected one of"):
        db.sql("SELECT * FROM system.nothing")
    with pytest.raises(SnapshotError, match="expected the present"):
        db.sql("SELECT * FROM system.history VERSION AS OF 1")
    with pytest.raises(UnknownNameError, match=r"of system\.history, found nothing; columns of .* version, .*reason"):
        db.sql("SELECT nothing FROM system.history")
    for text in (
        "SELECT h.nothing FROM system.history h JOIN system.runs r ON h.relation_id = r.relation_id",
        "SELECT explode(split(nothing, ' ')) FROM System.History",
        "SELECT version FROM system.history WHERE reason IN (SELECT name FROM system.relations WHERE nothing = 1)",
        "WITH h AS (SELECT version v FROM system.history) SELECT nothing FROM h",
        "SELECT version FROM system.history ORDER BY nothing",
    ):
        with pytest.raises(UnknownNameError, match="found nothing; columns of system"):
            db.sql(text)
    assert not db.context.has_spark


def test_another_time_zone_leaves_what_depends_on_it_to_spark(db: ebla.Database):
    settings = {**STARTED_SETTINGS, "spark.sql.session.timeZone": "America/New_York"}
    zoned = find("SELECT date_trunc('DAY', committed_at) AS d FROM system.history")
    plain = find("SELECT max(committed_at) FROM system.history WHERE version > 1")
    assert system_queries.answer(db.context, zoned, {}, settings) is None
    assert system_queries.answer(db.context, plain, {}, settings) is not None
    assert system_queries.answer(db.context, zoned, {}, None) is None


@pytest.mark.spark
@pytest.mark.parametrize("quoted", ["true", "false"])
def test_double_quotes_are_what_the_session_says(tmp_path, spark, quoted: str):
    """Names or strings, by every way to an answer: DuckDB, first rows, and Spark."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", quoted)
    with filled(tmp_path / "w", session) as db:
        is_name = quoted == "true"
        history = db.sql('SELECT "kind" AS k FROM system.history ORDER BY version LIMIT 1')
        assert history.rows() == [("exclusive" if is_name else "kind",)]
        assert db.sql("SELECT count(*) FROM system.history WHERE \"kind\" = 'kind'").one()[0] == (0 if is_name else 6)
        first = db.sql("SELECT id FROM orders WHERE \"note\" = 'a' ORDER BY id LIMIT 5").rows()
        assert first == ([(0,), (1,), (2,)] if is_name else [])
        assert db.sql('SELECT max("note") FROM orders').one() == ("a" if is_name else "note",)


@pytest.mark.spark
def test_the_answers_are_those_of_spark(tmp_path, spark):
    wrong = []
    with filled(tmp_path / "w", spark) as db:
        for text in WITHOUT_SPARK:
            expected = db.statements.operations.queries.snapshots.read(find(text), {}).frame.toArrow()
            found = alone(db, text)
            assert found is not None, text
            same_types = found.schema.types == expected.schema.types
            rows, wanted = found.to_pylist(), expected.to_pylist()
            if "ORDER BY" not in text:
                rows, wanted = sorted(rows, key=str), sorted(wanted, key=str)
            moving = {"expires_at"}  # each read holds a pin of its own for a moment
            if not same_types or found.column_names != expected.column_names:
                wrong.append((text, found.schema, expected.schema))
            elif [{k: v for k, v in r.items() if k not in moving} for r in rows] != wanted and "pins" not in text:
                wrong.append((text, rows[:3], wanted[:3]))
    assert not wrong, "\n".join(str(one) for one in wrong)
