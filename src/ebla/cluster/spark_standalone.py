"""Spark standalone on one machine: a master and a worker from the programs of the PySpark package."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from ebla.base.system_processes import is_there
from ebla.cluster.detached_process import DetachedProcess
from ebla.errors import NodeUnavailableError

PORT = 7077
WEB_PORT = 18_080
START_S = 60.0
EXECUTORS = 5
"""For three nodes, and two that may be added; each takes a core and a gigabyte of what the worker offers."""


FILE = "spark.json"
"""In `DIR/spark`: the ports of the master, which a restart keeps, for nodes know them."""


def url(directory: Path) -> str:
    return f"spark://127.0.0.1:{_ports(directory / 'spark')['master']}"


def start(directory: Path, pids: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Start master and worker, or the one of them that does not run any more; their process ids.

    If one of them does not come up, neither of those that were started is left.
    """
    import pyspark

    home, folder = Path(pyspark.__file__).parent, directory / "spark"
    ports = _ports(folder)
    page = f"http://127.0.0.1:{ports['web']}/json/"
    master, worker = (*pids, 0, 0)[:2]
    with contextlib.ExitStack() as started:
        if not is_there(master):
            web = ("--webui-port", str(ports["web"]))
            process = _run(home, folder, "Master", "--host", "127.0.0.1", "--port", str(ports["master"]), *web)
            started.callback(_end, process)
            master = process.pid
            _wait(page, b'"status"')
        if not is_there(worker):
            size = ("--cores", str(EXECUTORS), "--memory", f"{EXECUTORS}g", "--work-dir", str(folder / "work"))
            process = _run(home, folder, "Worker", "--host", "127.0.0.1", "--webui-port", "0", *size, url(directory))
            started.callback(_end, process)
            worker = process.pid
            _wait(page, b'"ALIVE"')
        started.pop_all()
    return master, worker


def _end(process: DetachedProcess) -> None:
    process.kill()
    process.wait()


def _ports(folder: Path) -> dict[str, int]:
    from ebla.cluster.local_cluster import free_port

    file = folder / FILE
    if not file.exists():
        folder.mkdir(exist_ok=True)
        master = free_port(set(), first=PORT)
        file.write_text(json.dumps({"master": master, "web": free_port({master}, first=WEB_PORT)}))
    found: dict[str, int] = json.loads(file.read_text())
    return found


def _run(home: Path, folder: Path, name: str, *arguments: str) -> DetachedProcess:
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / f"{name.lower()}.log").open("ab") as log:
        return DetachedProcess(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait(page: str, word: bytes) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(page, timeout=2) as said:
                if word in said.read():
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise NodeUnavailableError(f"Spark: expected it to answer at {page} in {START_S:.0f} s, found it silent")
