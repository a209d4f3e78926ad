"""Fixtures that every layer of the tests shares: one Spark session, one PostgreSQL server, fresh catalogs."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from support import jvm
from support.postgres import PostgresServer, find_binaries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.processes import Processes, Sharing

# Every JVM of the tests, also of the processes that they start, lives for minutes and runs each plan once or twice. The
# second compiler takes more time from the tests than its code gives back (measured: 43 % of the JVM's work), and so do
# collectors with threads of their own. Metaspace that starts small is collected as it grows. A task that sorts or
# groups fills a page with zeros first, 32 MB by default, which soon is garbage of the old generation.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=512m -Dspark.buffer.pageSize=1m",
)
# The heap of the session that all tests share is large at once: growing, it was collected whole dozens of times, a
# seventh of the JVM's work.
LARGE_HEAP = "-Xms2g -Xmn800m"

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("ebla", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ebla")

NO_POSTGRES = (
    "PostgreSQL is not installed: its tests did NOT run. "
    "Run `make setup`, or install it (Debian: apt-get install postgresql)."
)
MISSED = "NOT"
"""The word in the reason of a skip that no run may hide: something was not tested that should be."""

MARKER_OF_FIXTURE = {"spark": "spark", "postgres_server": "postgres", "postgres_url": "postgres"}


LONGEST = (
    "test_tpch.py",
    "test_view_ways.py",
    "test_guides.py",
    "test_faults.py",
    "test_demo_shop.py",
    "test_demo.py",
    "test_console.py",
    "test_processes.py",
)
"""Files whose single tests take longest: run first, so that no worker waits at the end for one that another began late,
and not stolen, so that what a file prepares once is prepared once."""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that uses a costly fixture carries its marker, so `-m "not spark"` cannot miss it."""
    for item in items:
        for fixture, marker in MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was missed, from the reports: those of all workers come here."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    missed = [reason.removeprefix("Skipped: ") for reason in reasons if MISSED in reason.split()]
    if missed:
        terminalreporter.section("WARNING", sep="!", red=True, bold=True)
        for reason in dict.fromkeys(missed):
            terminalreporter.line(f"{missed.count(reason)} skipped: {reason}", red=True, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that ran out of time also shows what Spark's JVM was doing: Python sees only that it waits for it."""
    report = yield
    if call.excinfo is not None and str(call.excinfo.value).startswith("Timeout (>"):
        report.sections.append(("threads of Spark's JVM", jvm.threads()))
        jvm.give_up_call()
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run; starting one takes seconds."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers are PATH's python3
    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("ebla-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", LARGE_HEAP)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def active_session(request: pytest.FixtureRequest) -> None:
    """The session of the run is this thread's, as where a program has just made it.

    The JVM keeps the active session of each connection. An interrupted call closes that of its thread, and where none
    is active Spark writes to no source of Python's: what one test did would decide about the next.
    """
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Where tests get real processes from, cheaply. One that needs Spark starts its own."""
    from support.processes import Processes

    with Processes() as started:
        yield started


@pytest.fixture(scope="session")
def spark_processes(processes: Processes, spark: SparkSession) -> Sharing:
    """The same for tasks that need Spark: they share the one of the run."""
    return processes.sharing(spark)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A private server for the run. Where PostgreSQL is missing, skips loudly, and fails with CI=true."""
    binaries = find_binaries()
    if binaries is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NO_POSTGRES, pytrace=False)
        pytest.skip(NO_POSTGRES)
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database, dropped after the test."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `ebla.connect` takes, once per kind of catalog: a fresh directory (SQLite) or a fresh database."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    directory = tmp_path / "catalog"
    directory.mkdir()
    return str(directory)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """An empty directory for data files."""
    directory = tmp_path / "warehouse"
    directory.mkdir()
    return directory
