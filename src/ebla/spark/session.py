"""The Spark session: started with sensible settings, or the user's own, used and left as it was."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebla.base.settings import Settings
from ebla.errors import MissingDependencyError, NoSparkError, SparkJobError, UsageError
from ebla.spark import jvm
from ebla.spark.tags import own_handler_kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

log = logging.getLogger("ebla.spark")

JAVA_HINT = (
    "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) "
    "or set JAVA_HOME"
)

_CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Listing the files of a snapshot is the catalog's work; never start a job for it.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.log.level": "ERROR",
    # There is no user interface that shows jobs which are over; the JVM would keep the plans of a thousand of them.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}


def file_address(path: Path) -> str:
    """The address of a file as Hadoop reads it: it takes `%20` for three characters."""
    return f"file://{path}"


_POOLS = {
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": file_address(Path(__file__).with_name("pools.xml")),
}
"""Jobs of one pool get cores before those of another (`tags.Pool`). Pools are set when Spark starts, and not later."""


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise MissingDependencyError(f"Java: expected version 17 or 21, found none; {JAVA_HINT}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found and int(found.group(1)) < 17:
        raise MissingDependencyError(f"Java: expected version 17 or 21, found {found.group(1)}; {JAVA_HINT}")


class StartedSession:
    """A session for a database that was given none."""

    _lock = threading.Lock()
    _running: SparkSession | None = None
    _users = 0

    def __init__(self, session: SparkSession, *, ours: bool) -> None:
        self.session = session
        self._ours = ours

    @property
    def is_running(self) -> bool:
        return is_running(self.session)

    @property
    def can_restart(self) -> bool:
        """Whether another one can be started once this one is gone: it is not the program's, or that was stopped."""
        return self._ours or _has_ended(self.session)

    @classmethod
    def start(cls, settings: Settings) -> StartedSession:
        """A process has one Spark. Databases share the one that Ebla started; the last to stop it does.

        Where the program runs Spark already, Ebla works in a session of its own beside it, and stops nothing.
        """
        with cls._lock:
            if cls._running is None or not is_running(cls._running):
                if cls._running is not None and not _has_ended(cls._running):
                    log.warning("Spark: expected it to run, found that %s; starting it again", jvm.ended())
                    jvm.forget(cls._running)
                cls._running, cls._users = None, 0
                found = _of_program()
                if found is not None:
                    require_running(found)
                    return cls(_beside(found), ours=False)
                cls._running = _launch(settings)
            cls._users += 1
            return cls(cls._running, ours=True)

    def stop(self) -> None:
        cls = type(self)
        with cls._lock:
            if not self._ours or cls._running is not self.session:
                return
            self._ours = False
            cls._users -= 1
            if cls._users == 0:
                cls._running = None
                if is_running(self.session):
                    self.session.stop()
                elif not _has_ended(self.session):
                    jvm.forget(self.session)


def _has_ended(session: SparkSession) -> bool:
    return session.sparkContext._jsc is None


def is_running(session: SparkSession) -> bool:
    """Whether jobs can be run in a session: it was not stopped, and its JVM, if this process launched it, is there."""
    if _has_ended(session):
        return False
    return jvm.ended() is None


def require_running(session: SparkSession) -> None:
    """Refuse a session that is gone: one that the program passed or made is the program's to start again."""
    if not is_running(session):
        raise SparkJobError(
            f"Spark: expected a session that runs, found that {jvm.ended() or 'it was stopped'}; "
            "start a new Spark session and connect with it",
            lost=True,
        )


def _of_program() -> SparkSession | None:
    from pyspark.sql import SparkSession

    found = SparkSession._instantiatedSession
    return None if found is None or _has_ended(found) else found


def _beside(session: SparkSession) -> SparkSession:
    sibling = session.newSession()
    for name, value in _CONFIGURATION.items():
        if sibling.conf.isModifiable(name):
            sibling.conf.set(name, value)
    return sibling


NO_SPARK = "none"
"""The master of a process that shall start none."""


def _launch(settings: Settings) -> SparkSession:
    if settings.spark_master == NO_SPARK:
        raise NoSparkError(
            "Spark: expected it for this statement, found a node that was started without; ask a node that has it"
        )
    require_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("ebla").master(settings.spark_master or f"local[{settings.spark_cores}]")
    builder = builder.config("spark.driver.memory", settings.spark_memory)
    cores = os.cpu_count() or 2
    builder = builder.config("spark.sql.shuffle.partitions", str(max(4, 2 * cores)))
    for name, value in (*_CONFIGURATION.items(), *_POOLS.items(), *_of_executors(settings).items()):
        builder = builder.config(name, value)
    with _quiet_launch(), own_handler_kept():
        session = builder.getOrCreate()
    jvm.mark_launched()
    session.sparkContext.setLogLevel("ERROR")
    # PySpark logs every error that it also raises; ours say more to the user.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    return session


def _of_executors(settings: Settings) -> dict[str, str]:
    """One executor on a standalone cluster: without a limit the first process would take all cores from the others."""
    if settings.spark_master is None or not settings.spark_master.startswith("spark://"):
        return {}
    return {
        "spark.executor.memory": settings.spark_executor_memory,
        "spark.executor.cores": str(settings.spark_executor_cores),
        "spark.cores.max": str(settings.spark_executor_cores),
    }


@contextlib.contextmanager
def _quiet_launch() -> Iterator[None]:
    """Spark's launcher prints warnings before any logging setting can reach it; they say nothing to our users."""
    saved = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


def require_classic(session: SparkSession) -> None:
    if not hasattr(session, "_jsparkSession"):
        raise UsageError(
            "spark: expected a classic SparkSession, found a Spark Connect one; "
            "start it with SparkSession.builder.master(…)"
        )


_OFTEN_NAMED = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "PythonErrorUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
)
"""What PySpark calls classes that it needs several times in each query."""


def java_class(session: SparkSession, name: str) -> Any:
    """A class or object of the JVM, searched for once, and kept where PySpark looks first.

    Py4J asks the JVM at each use. For a name without its package the JVM searches every jar once for each package that
    PySpark imports, and for `a.b.C` as attributes once for each part: a tenth of its work for small queries.
    """
    classes = vars(session._jvm)
    if name not in classes:
        classes[name] = getattr(session._jvm, name)
    return classes[name]


def remember_classes(session: SparkSession) -> None:
    """Search for the classes that PySpark often names, before it does. If Spark is gone, what comes next says so."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        for name in _OFTEN_NAMED:
            java_class(session, name)


def tree_patterns(session: SparkSession) -> Any:
    """Spark's names of the kinds of expressions that a plan may contain."""
    return java_class(session, "org.apache.spark.sql.catalyst.trees.TreePattern")


def writer_session(session: SparkSession) -> SparkSession:
    """A sibling session with Ebla's own settings, so that the given one's are neither needed nor changed.

    It shares the Spark context. Timestamps must be written as microseconds: the default, INT96, has no statistics.
    """
    sibling = session.newSession()
    sibling.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    sibling.conf.set("spark.sql.session.timeZone", "UTC")
    sibling.conf.set("spark.sql.ansi.enabled", "true")
    sibling.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    # Old dates as they are, not shifted to the calendar of 1582; a context may be configured otherwise.
    sibling.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    # LOAD reads nanoseconds, which Spark has no type for, as numbers, and checks them.
    sibling.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    for name in ("spark.sql.shuffle.partitions", "spark.sql.files.maxPartitionBytes"):
        sibling.conf.set(name, str(session.conf.get(name)))
    return sibling


VIEW_SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive")
"""What a query's result depends on besides its text and its inputs."""


STARTED_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
}
"""The settings of a session that Ebla starts."""


def view_settings(session: SparkSession) -> dict[str, str]:
    return {name: str(session.conf.get(name)) for name in VIEW_SETTINGS}


def view_session(
    session: SparkSession, settings: Mapping[str, str], *, small: bool, generates_code: bool = False
) -> SparkSession:
    """A sibling session with the settings of a view; for `small` data one that plans little and runs one job.

    Generated code takes longer to compile than a few hundred rows without it, unless the plan is kept.
    """
    sibling = session.newSession()
    sibling.conf.set("spark.sql.shuffle.partitions", str(session.conf.get("spark.sql.shuffle.partitions")))
    if small:
        sibling.conf.set("spark.sql.adaptive.enabled", "false")
        sibling.conf.set("spark.sql.shuffle.partitions", "1")
        sibling.conf.set("spark.sql.codegen.wholeStage", str(generates_code).lower())
        sibling.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
        # Rows behind an RDD may be any number to the planner, which would cut them into partitions. The product of
        # these sizes is that of a join.
        sibling.conf.set("spark.sql.maxSinglePartitionBytes", str(2**63 - 1))
        sibling.conf.set("spark.sql.defaultSizeInBytes", "10")
        sibling.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        sibling.conf.set("spark.sql.exchange.reuse", "false")
    for name, value in settings.items():
        sibling.conf.set(name, value)
    return sibling


@contextlib.contextmanager
def same_active_session(session: SparkSession) -> Iterator[None]:
    """Leave the program's active session what it was. `createDataFrame` would make its own session the active one."""
    from pyspark.sql import SparkSession

    active = SparkSession._get_j_spark_session_class(session._jvm)
    before, default = active.getActiveSession(), SparkSession._activeSession
    try:
        yield
    finally:
        SparkSession._activeSession = default
        if before.isDefined():
            active.setActiveSession(before.get())
        else:
            active.clearActiveSession()


def local_frame(session: SparkSession, data: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """An Arrow table as a DataFrame that lives in the query plan.

    Spark stops reading an Arrow table at its first empty chunk, so there must be none.
    """
    with same_active_session(session):
        made: DataFrame = session.createDataFrame(data.combine_chunks(), schema)
        return made


def empty_frame(session: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows: Spark leaves out what is joined with them. Those of `createDataFrame` are read by Python workers."""
    from pyspark.sql import DataFrame as Frame

    spark = session._jsparkSession
    nothing = java_class(session, "java.util.ArrayList")()
    return Frame(spark.createDataFrame(nothing, spark.parseDataType(schema.json())), session)


def rebind(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same analysed query under another session of the same Spark context, hence under its settings."""
    from pyspark.sql import DataFrame as Frame

    if frame.sparkSession is session:
        return frame
    plan = frame._jdf.queryExecution().analyzed()
    dataset = java_class(session, "org.apache.spark.sql.classic.Dataset")
    return Frame(dataset.ofRows(session._jsparkSession, plan), session)


def estimated_bytes(frame: DataFrame) -> int:
    """Spark's own guess of a result's size: exact for local data and files, an upper bound for most joins.

    It knows nothing of rows that a generator such as `explode` makes of one: those are taken for endless.
    """
    plan = frame._jdf.queryExecution().optimizedPlan()
    if "Generate " in str(plan.toString()):
        return 2**63
    return int(str(plan.stats().sizeInBytes()))


def close_lost_files(session: SparkSession) -> None:
    """Make the JVM close files that failed tasks left open: deleted, they take space until it collects garbage."""
    session._jvm.System.gc()  # type: ignore[union-attr]
