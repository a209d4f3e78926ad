"""Only what names a row or a text is final; everything else is tried again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import duckdb
import pyspark
import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkValueError, PythonException

from ebla.base.ids import RelationId
from ebla.catalog.troubles import BACKOFF_US, LOST_JOB, Activity, Trouble, obstacle, waiting
from ebla.errors import (
    ConflictError,
    CorruptRunError,
    Culprit,
    DuplicateKeyError,
    EblaError,
    SparkJobError,
    SqlError,
    StorageFullError,
    TypeMismatchError,
    UnknownNameError,
)
from ebla.model.relation import Kind
from ebla.spark.faults import Link, fault_of, of_spark

CONDITIONS = [
    ("CAST_INVALID_INPUT", "22018", True),
    ("ARITHMETIC_OVERFLOW", "22003", True),
    ("NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION", "22003", True),
    ("DIVIDE_BY_ZERO", "22012", True),
    ("REMAINDER_BY_ZERO", "22012", True),
    ("DATETIME_FIELD_OUT_OF_BOUNDS.WITHOUT_SUGGESTION", "22023", True),
    ("INVALID_ARRAY_INDEX", "22003", True),
    ("SCALAR_SUBQUERY_TOO_MANY_ROWS", "21000", True),
    ("DUPLICATED_MAP_KEY", "23505", True),
    ("USER_RAISED_EXCEPTION", "P0001", True),
    ("UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", True),
    ("COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER", "54000", True),
    ("FAILED_EXECUTE_UDF", "39000", True),
    ("SPARK_JOB_CANCELLED", "XXKDA", False),
    ("PYTHON_EXCEPTION", "38000", False),
    ("PATH_NOT_FOUND", "42K03", False),
    ("UNABLE_TO_ACQUIRE_MEMORY", "53200", False),
    ("TASK_WRITE_FAILED", "58030", False),
    ("INTERNAL_ERROR", "XX000", False),
    ("_LEGACY_ERROR_TEMP_1000", None, False),
    (None, None, False),
]


def test_conditions_have_the_states_that_spark_gives_them():
    jar = next((Path(pyspark.__file__).parent / "jars").glob("spark-common-utils_*.jar"))
    with zipfile.ZipFile(jar) as opened:
        known = json.loads(opened.read("error/error-conditions.json"))
    for condition, state, _ in CONDITIONS:
        if condition is not None:
            assert known[condition.split(".")[0]].get("sqlState") == state, condition
    # What is final besides: no condition of a class that this list shows no example of.
    states = {str(one.get("sqlState", ""))[:2] for name, one in known.items() if _final(name, one.get("sqlState"))}
    assert states == {"07", "0A", "21", "22", "23", "38", "39", "42", "54", "P0"}


def _final(condition: str, state: str | None) -> bool:
    return Link(condition=condition, state=state, kind="org.apache.spark.SparkException", text="").final


@pytest.mark.parametrize(("condition", "state", "final"), CONDITIONS)
def test_spark_s_conditions(condition: str | None, state: str | None, final: bool):
    assert (condition is not None and _final(condition, state)) is final


@pytest.mark.parametrize(
    ("kind", "final"),
    [
        ("java.util.IllegalFormatArgumentIndexException", True),
        ("java.lang.ArithmeticException", True),
        ("java.time.format.DateTimeParseException", True),
        ("org.apache.spark.sql.catalyst.ExtendedAnalysisException", True),
        ("java.lang.IllegalStateException", False),
        ("java.io.IOException", False),
        ("java.lang.OutOfMemoryError", False),
        ("java.io.EOFException", False),
    ],
)
def test_causes_that_spark_has_no_name_for(kind: str, final: bool):
    assert Link(condition=None, state=None, kind=kind, text="").final is final


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (SqlError("v: refused"), True),
        (TypeMismatchError("v: overflow"), True),
        (DuplicateKeyError("v: twice"), True),
        (duckdb.OutOfRangeException("too large"), True),
        (duckdb.ConversionException("no number"), True),
        (PySparkValueError(errorClass="VALUE_OUT_OF_BOUNDS", messageParameters={}, message="x"), True),
        (duckdb.InternalException("lost"), False),
        (duckdb.IOException("no file"), False),
        (SparkJobError("v: Spark lost a job", lost=True), False),
        (StorageFullError("v: full"), False),
        (CorruptRunError("v: damaged"), False),
        (ConflictError("v: another came first"), False),
        (UnknownNameError("v: no such column"), False),
        (KeyError("w_id"), False),
        (OverflowError("date value out of range"), False),
        (MemoryError(), False),
        (OSError(28, "No space left on device"), False),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else str(given),
)
def test_errors_of_every_kind(error: Exception, final: bool):
    assert fault_of(error).final is final


def test_refused_texts_are_final_even_without_a_jvm():
    for kind in (AnalysisException, ParseException):
        assert fault_of(kind("no such column")).final


def test_a_lost_job_has_a_code_of_its_own():
    assert fault_of(SparkJobError("v: Spark lost a job", lost=True)).code == LOST_JOB
    assert fault_of(SparkJobError("v: no memory", code="UNABLE_TO_ACQUIRE_MEMORY")).code == "UNABLE_TO_ACQUIRE_MEMORY"
    assert fault_of(KeyError("x")).code == "KeyError"


ABORTED = (
    "Job aborted due to stage failure: Task 3 in stage 7.0 failed 4 times, most recent failure: "
    "Lost task 3.3 in stage 7.0 (TID 31) (10.0.0.3 executor 2): "
)
REPEATED = (
    "Job aborted due to stage failure: ResultStage 8 (collect) has failed the maximum allowable number of times: 4. "
    "Most recent failure reason:\n"
)
OF_LOST_MACHINES = [
    f"{ABORTED}ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited "
    "with code 137",
    f"{ABORTED}ExecutorLostFailure (executor 2 exited unrelated to the running tasks) Reason: worker lost",
    f"{ABORTED}ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Executor heartbeat "
    "timed out after 160000 ms",
    f"{ABORTED}FetchFailed(BlockManagerId(2, 10.0.0.3, 7337, None), shuffleId=0, mapIndex=1, mapId=5, reduceId=3)",
    f"{REPEATED}org.apache.spark.shuffle.FetchFailedException: Failed to connect to /10.0.0.3:7337",
    f"{REPEATED}org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 0",
    f"{ABORTED}TaskResultLost (result lost from block manager)",
    f"{ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
]


@pytest.mark.parametrize("said", OF_LOST_MACHINES)
@pytest.mark.parametrize("kind", [PySparkException, PythonException])
def test_a_lost_executor_is_a_lost_job(kind: type[PySparkException], said: str):
    """With local executors none can be lost, so these are Spark's words of a cluster."""
    error = kind(f"{said}\n\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(X.scala:1)")
    assert (fault_of(error).final, fault_of(error).code) == (False, LOST_JOB)
    raised = of_spark(error, "view v")
    assert isinstance(raised, SparkJobError)
    assert (raised.lost, raised.retryable) == (True, True)
    assert str(raised).startswith("view v: Spark lost a job: ")
    again = fault_of(raised)
    assert (again.final, again.code) == (False, LOST_JOB)


def test_an_error_says_which_row_is_to_blame():
    found = TypeMismatchError("v: overflow").found_at(Culprit("orders", "id = 7"))
    assert isinstance(found, TypeMismatchError)
    assert str(found) == "v: overflow; found at orders (id = 7)"
    assert str(found.culprit) == "orders (id = 7)"
    assert EblaError("x").culprit is None


def trouble(code: str, message: str, retry_at: int | None) -> Trouble:
    return Trouble(
        relation=RelationId(1), work=Activity.EPOCH, name="v", kind=Kind.VIEW, final=retry_at is None, code=code,
        message=message, culprit=None, traceback=None, attempts=3, holder="me", first_at=0, last_at=0,
        retry_at=retry_at,
    )  # fmt: skip


def test_what_users_see_of_work_that_waits():
    assert waiting(trouble(LOST_JOB, "Job 7 cancelled", 4_000_000), 1) == "waiting: Spark lost a job, again in 4 s"
    assert waiting(trouble(LOST_JOB, "Job 7 cancelled", 4_000_000), 5_000_000) == "waiting: Spark lost a job, again now"
    assert waiting(trouble("KeyError", "'w_id'", 2_500_000), 0) == "waiting: 'w_id', again in 3 s"
    assert len(obstacle(trouble("X", "long " * 500, 1), 0)) < 250


def test_pauses_double_up_to_a_bound():
    pauses = [BACKOFF_US.after(n) for n in range(1, 12)]
    assert pauses[:4] == [500_000, 1_000_000, 2_000_000, 4_000_000]
    assert pauses[-1] == BACKOFF_US.most
