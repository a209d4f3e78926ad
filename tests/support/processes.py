"""Real processes for tests to crash and kill, without paying for Python's start and imports each time.

One helper process imports the program once and then forks a child for every task. It has one thread and holds no
connection, so a child starts as clean as a new process. A task is a function named `module:function`; what it prints
comes back line by line through a pipe of its own. Failpoints are given as `EBLA_FAILPOINTS` would give them.

    with Processes() as processes:
        child = processes.start("support.catalog_tasks:commit_forever", url)
        version = int(child.line())
        child.kill()

A task that needs Spark starts one. A child of `processes.sharing(spark)` has that of the tests; see `support.attached`.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from support import attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "attached",
    "build_tasks",
    "catalog_tasks",
    "fuzz_tasks",
    "index_tasks",
    "spark_tasks",
    "table_tasks",
    "topology_tasks",
    "view_tasks",
)
"""What the helper process imports once for all children."""


class Child:
    """One forked process."""

    def __init__(
        self, processes: Processes, pid: int, output: IO[str], errors: Path, spark: SparkSession | None
    ) -> None:
        self.pid = pid
        self._processes = processes
        self._spark = spark
        self._output = output
        self._errors = errors
        self._status: int | None = None

    def line(self) -> str:
        """The next line that the task printed; empty after its last one."""
        return self._output.readline().strip()

    def kill(self) -> None:
        """Kill it at once, as a power cut would, and wait until it is gone."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit status: negative for a signal, as in `subprocess`."""
        if self._status is None:
            self._status = int(self._processes.ask({"wait": self.pid}))
            if self._spark is not None:
                attached.until_gone(self._spark, self.pid)
        return self._status

    def rest(self) -> list[str]:
        """Every line that was not read yet, once the task has closed its output."""
        return [line.strip() for line in self._output]

    def finish(self) -> list[str]:
        """Wait for a task that must succeed, and return what it printed."""
        lines = self.rest()
        status = self.wait()
        assert status == 0, f"expected the task to succeed, found status {status}:\n{self.errors()}"
        self.close()
        return lines

    def errors(self) -> str:
        return self._errors.read_text()

    def close(self) -> None:
        self._output.close()


class Processes:
    """A context manager around the helper process."""

    def __enter__(self) -> Processes:
        self._directory = tempfile.TemporaryDirectory(prefix="ebla-processes-")
        self._number = 0
        path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self._helper = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "support.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._helper.communicate()  # closes its input, which ends it
        self._directory.cleanup()

    def sharing(self, spark: SparkSession) -> Sharing:
        """The same, for tasks that need Spark and no Spark of their own."""
        return Sharing(self, spark)

    def start(self, task: str, *arguments: Any, failpoints: str = "", spark: SparkSession | None = None) -> Child:
        self._number += 1
        output = Path(self._directory.name) / f"{self._number}.out"
        errors = output.with_suffix(".err")
        os.mkfifo(output)
        pid = self.ask(
            {
                "task": task,
                "arguments": arguments,
                "failpoints": failpoints,
                "output": str(output),
                "errors": str(errors),
                "attach": None if spark is None else attached.address(spark),
            }
        )
        return Child(self, int(pid), output.open(), errors, spark)

    def run(self, task: str, *arguments: Any, failpoints: str = "", spark: SparkSession | None = None) -> int:
        """Run a task to its end and return its exit status."""
        child = self.start(task, *arguments, failpoints=failpoints, spark=spark)
        child.rest()
        status = child.wait()
        child.close()
        return status

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.write(json.dumps(request) + "\n")
        self._helper.stdin.flush()
        answer = self._helper.stdout.readline()
        assert answer, "the helper process ended"
        return json.loads(answer)


class Sharing:
    """Starts children that attach to the Spark of a session."""

    def __init__(self, processes: Processes, spark: SparkSession) -> None:
        self._processes = processes
        self._spark = spark

    def start(self, task: str, *arguments: Any, failpoints: str = "") -> Child:
        return self._processes.start(task, *arguments, failpoints=failpoints, spark=self._spark)

    def run(self, task: str, *arguments: Any, failpoints: str = "") -> int:
        return self._processes.run(task, *arguments, failpoints=failpoints, spark=self._spark)


# ---- the helper process ---------------------------------------------------------------------------------


def _serve() -> None:
    import ebla

    for package in pkgutil.walk_packages(ebla.__path__, "ebla."):  # each child would load them anew, for a second
        if not package.name.endswith("__main__"):
            importlib.import_module(package.name)
    for module in MODULES:
        importlib.import_module(f"support.{module}")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = _fork(request)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with open(request["errors"], "w") as errors:
            os.dup2(errors.fileno(), sys.stderr.fileno())
        with open(request["output"], "w") as output:
            os.dup2(output.fileno(), sys.stdout.fileno())
        _perform(request)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _perform(request: dict[str, Any]) -> None:
    from ebla.base import failpoint

    os.environ["EBLA_FAILPOINTS"] = request["failpoints"]
    importlib.reload(failpoint)  # it reads the environment when it is imported
    if request["attach"] is not None:
        attached.attach(request["attach"])
    module, _, function = request["task"].partition(":")
    getattr(importlib.import_module(module), function)(*request["arguments"])


if __name__ == "__main__":
    _serve()
