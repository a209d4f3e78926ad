"""Whose fault a failure is: that of a relation's own rows or definition, or of anything else.

Theory of operation. A failure is *final* only if it says so itself: Spark refused to analyse the text, or an expression
failed on a row with an error that has a name (a cast, an overflow, a division by zero, a value twice where it may stand
once). Spark gives every named error a condition and an SQLSTATE; the classes in `_FINAL_STATES` are those of data, of
constraints, of texts and of limits that a text or a value exceeds. Doing the work again would end the same way until
an input changes. Everything else is *transient*, whatever it is: a job or a stage that was cancelled, a Python worker
or an executor that died, a full disk, a file that cannot be read, and every exception that the code did not expect.
Such work is done again.

Nothing here changes anything. Spark's errors are read through PySpark, which asks the JVM; where the JVM is gone, their
text has to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ebla.catalog.troubles import LOST_JOB
from ebla.errors import (
    DuplicateKeyError,
    EblaError,
    SparkJobError,
    SqlError,
    StorageFullError,
    TypeMismatchError,
)
from ebla.spark import jvm

_FINAL_STATES = frozenset({"07", "0A", "21", "22", "23", "42", "54", "P0"})
"""Classes of SQLSTATE: texts (07, 0A, 42), cardinality, data, constraints, limits, `raise_error`."""

_FINAL_CONDITIONS = frozenset({"FAILED_EXECUTE_UDF", "FAILED_FUNCTION_CALL"})
"""A function that fails on a row, though its SQLSTATE is that of outer routines, as a lost worker's is."""

_NOT_FINAL_CONDITIONS = frozenset({"PATH_NOT_FOUND", "KRYO_BUFFER_OVERFLOW"})
"""Files that went and buffers of Spark: of these classes, and no fault of a row or a text."""

_OVERFLOW = "java.lang.StackOverflowError"
_TOO_DEEP = "expected a text that is nested less deeply, found one that overflows Spark's stack; split it"

_FINAL_KINDS = re.compile(
    r".*\b(Extended)?(Analysis|Parse)Exception|java\.lang\.(Arithmetic|NumberFormat)Exception|java\.time\.[\w.]*Exception"
    r"|java\.util\.\w*Format\w*Exception|java\.util\.regex\.PatternSyntaxException"
    rf"|{re.escape(_OVERFLOW)}"
)
"""What only analysis and expressions throw, where Spark has no name for it."""

_LOST = re.compile(
    r"SPARK_JOB_CANCELLED|Job \S* ?cancelled|was cancelled|SparkContext was shut down|stopped SparkContext"
    r"|Python worker (exited|failed|crashed)|Python worker .* (crash|EOF)|ExecutorLost|Executor .* lost|executor lost"
    r"|FetchFailed|Task(Killed|ResultLost)|MetadataFetchFailed|task was killed|Connection (reset|refused)|Broken pipe"
    r"|EOFException|SocketException|ClosedChannelException|PythonWorkerFactory"
)
_LOST_CLASSES = frozenset({"Py4JNetworkError", "Py4JError", "ConnectionRefusedError", "ConnectionResetError"})

_WORKER_CAUSE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Invalid|Interrupt|Exit|Full)\w*)(?:: (.*))?$"
)
_WORKER_ABOUT_ROWS = frozenset(
    {"ArrowInvalid", "ArrowTypeError", "ArrowNotImplementedError", "OverflowError", "UnicodeDecodeError"}
    | {"UnicodeEncodeError", "ValueError", "InvalidOperation"}
)
"""What a Python worker says of a value that it cannot convert."""

ENDS_S = 2.0
"""How long a JVM whose connections broke may take to end."""

NO_SPACE = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a failure means for those who come after it."""

    final: bool
    code: str
    """Spark's error condition, `LOST_JOB`, or the class of the error."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One error of a chain of causes, as Spark tells it."""

    condition: str | None
    state: str | None
    kind: str
    """The class, in Java or Python."""
    text: str

    @property
    def final(self) -> bool:
        name = (self.condition or "").split(".")[0]
        if name in _NOT_FINAL_CONDITIONS:
            return False
        if name in _FINAL_CONDITIONS or (self.state or "")[:2] in _FINAL_STATES:
            return True
        return self.condition is None and _FINAL_KINDS.fullmatch(self.kind) is not None


def fault_of(error: BaseException) -> Fault:
    """Whether an error is final, with its code and message. A class that is not listed is transient."""
    message = text_of(error) or type(error).__name__
    if isinstance(error, SparkJobError):
        return Fault(final=False, code=LOST_JOB if error.lost else (error.code or "SparkJobError"), message=message)
    if isinstance(error, EblaError):
        final = isinstance(error, SqlError | TypeMismatchError | DuplicateKeyError)
        code = next((link.condition for link in _of_causes(error) if link.condition), None)
        return Fault(final=final, code=code or type(error).__name__, message=message)
    if not is_of_spark(error):
        final = type(error).__module__.split(".")[0] in ("duckdb", "_duckdb") and _is_data_error(error)
        return Fault(final=final, code=type(error).__name__, message=message)
    found = list(links(error))
    wrong = next((link for link in found if link.final), None)
    if wrong is not None:
        said = _TOO_DEEP if wrong.kind == _OVERFLOW else sentence(wrong.text)
        return Fault(final=True, code=wrong.condition or wrong.kind, message=said)
    code = LOST_JOB if is_lost(error, found) else next((link.condition for link in found if link.condition), None)
    return Fault(final=False, code=code or type(error).__name__, message=_said(found) or message)


def is_final(error: BaseException) -> bool:
    return fault_of(error).final


def _is_data_error(error: BaseException) -> bool:
    """DuckDB's words for a value: out of range, not convertible."""
    return any(kind.__name__ == "DataError" for kind in type(error).__mro__)


def _of_causes(error: BaseException) -> Iterator[Link]:
    seen: set[int] = set()
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if is_of_spark(cause):
            yield from links(cause)
        cause = cause.__cause__


# ---- Spark's errors -------------------------------------------------------------------------------------


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark raised an error, or it is that of a connection to a JVM that has ended."""
    if type(error).__module__.split(".")[0] in ("pyspark", "py4j"):
        return True
    return isinstance(error, ConnectionError | EOFError) and jvm.ended(ENDS_S) is not None


def links(error: BaseException) -> Iterator[Link]:
    """An error of Spark and its causes, outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is not None:
        found = list(_java_links(java))
        if found:
            yield from found
            return
    text = text_of(error)
    condition, state = _condition_of(error)
    if condition is None:
        named = re.search(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]", text)
        coded = re.search(r"SQLSTATE: ([0-9A-Z]{5})", text)
        condition = named.group(1) if named and coded else None
        state = coded.group(1) if named and coded else None
    if condition is not None and state is None and type(error).__name__ in ("PySparkValueError", "PySparkTypeError"):
        state = "22000"  # what PySpark says of values by itself, without the JVM
    yield Link(condition=condition, state=state, kind=type(error).__name__, text=text)
    cause = getattr(error, "_cause", None)
    if cause is not None:
        yield from links(cause)


def _java_links(java: Any) -> Iterator[Link]:
    try:
        from py4j.java_gateway import is_instance_of
        from pyspark import SparkContext

        gateway, jvm = SparkContext._gateway, SparkContext._jvm
        if gateway is None or jvm is None:
            return
        for _ in range(20):
            named = is_instance_of(gateway, java, "org.apache.spark.SparkThrowable")
            condition = jvm.PythonErrorUtils.getCondition(java) if named else None
            state = jvm.PythonErrorUtils.getSqlState(java) if named else None
            text = str(java.getMessage() or "")
            yield Link(condition=condition, state=state, kind=str(java.getClass().getName()), text=text)
            java = java.getCause()
            if java is None:
                return
    except Exception:  # the JVM is gone, and what it knew with it
        return


def _condition_of(error: BaseException) -> tuple[str | None, str | None]:
    try:
        return error.getCondition(), error.getSqlState()  # type: ignore[attr-defined]
    except Exception:  # no error of that kind, or the JVM is gone
        return None, None


def text_of(error: BaseException) -> str:
    """What an error says, also where the JVM that knew it is gone."""
    try:
        return str(error)
    except Exception:  # Py4J asks the JVM for it
        return type(error).__name__


def is_lost(error: BaseException, found: list[Link] | None = None) -> bool:
    """Whether Spark lost a job, a stage, a worker or itself. A word for users: nothing is retried because of it."""
    chain = list(links(error)) if found is None else found
    if type(error).__name__ in _LOST_CLASSES:
        return True
    return any(_LOST.search(f"[{link.condition}] {link.kind}: {link.text}") for link in chain)


def worker_cause(error: BaseException) -> tuple[str, str] | None:
    """The class and the message of what a Python worker raised, if that is what the error is about."""
    found = [link for link in links(error) if (link.condition or "").startswith("PYTHON_")]
    text = text_of(error) if type(error).__name__ == "PythonException" else "\n".join(link.text for link in found)
    if not found and "Python worker" not in text:
        return None
    for line in reversed([line.rstrip() for line in text.split("JVM stacktrace")[0].splitlines()]):
        said = _WORKER_CAUSE.match(line)
        if said is not None:
            return said.group(1), (said.group(2) or said.group(1)).strip()
    return None


def of_worker(error: BaseException, what: str) -> EblaError | None:
    """What a Python worker raised, in the class that it has there; `None` if it raised nothing that is known."""
    found = worker_cause(error)
    if found is None:
        return None
    name, said = found
    if any(words in said for words in NO_SPACE):
        return full(what)
    kind = _ebla_errors().get(name)
    if kind is not None:
        return kind(said)
    if name in _WORKER_ABOUT_ROWS:
        return TypeMismatchError(f"{what}: {said}")
    return SparkJobError(f"{what}: a Python worker of Spark failed: {name}: {said}", code=name)


def _ebla_errors() -> dict[str, type[EblaError]]:
    found: dict[str, type[EblaError]] = {}
    left: list[type[EblaError]] = [EblaError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return {name: kind for name, kind in found.items() if not issubclass(kind, SparkJobError)}


def full(what: str) -> StorageFullError:
    return StorageFullError(
        f"{what}: expected room for the write, found the disk full; it was rolled back: free space and retry"
    )


def of_spark(error: BaseException, what: str) -> EblaError:
    """An error of Spark that is neither about a row nor about the text, as one of ours."""
    found = list(links(error))
    said = _said(found) or sentence(text_of(error)) or type(error).__name__
    if is_lost(error, found):
        return _lost(error, what, said)
    code = next((link.condition for link in found if link.condition), None)
    return SparkJobError(f"{what}: Spark could not finish a job: {said}", code=code)


def _lost(error: BaseException, what: str, said: str) -> SparkJobError:
    how = jvm.ended(ENDS_S if type(error).__name__ in _LOST_CLASSES else 0.0)
    if how is None:
        return SparkJobError(f"{what}: Spark lost a job: {said}; repeat the statement", lost=True)
    if jvm.is_launched_by_ebla():
        how = f"{how}, the next use of Spark starts another one"
        return SparkJobError(f"{what}: Spark lost a job: {how}; repeat the statement", lost=True)
    return SparkJobError(f"{what}: Spark lost a job: {how}; start a new Spark session and connect with it", lost=True)


def sentence(text: str) -> str:
    """Spark's own sentence, without the stack and the query context."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if re.search(r"\[[A-Z_.0-9]+\]", line)]
    chosen = (marked or lines or [text])[0]
    return re.sub(r"^.*?(\[[A-Z_.0-9]+\])", r"\1", chosen)


def _said(chain: list[Link]) -> str:
    """The innermost cause that says anything."""
    return next((sentence(link.text) for link in reversed(chain) if link.text.strip()), "")
