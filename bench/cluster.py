"""A cluster: what PostgreSQL and a node's HTTP API cost, and how soon others follow processes that are killed.

PostgreSQL and all processes are on this machine.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

import ebla
from bench.measure import ROOT, Result, alternately

ROWS = 100_000
QUERIES = 300
WARM = 50
THREADS = 8
SECONDS = 8.0
GROUPS = 1000


UPSERTS = 40
ROWS_OF_UPSERT = 1000
KILLS = 3
LEASE_S = 3.0


def run(scale: float = 1.0) -> list[Result]:
    """The same data at every scale; below 1 fewer repetitions."""
    kills = KILLS if scale >= 1 else 1
    with _served() as (db, url):
        found = [upsert_over_postgres(db, UPSERTS if scale >= 1 else 10), *statements(db)]
        found += [http_latency(db, url), http_throughput(url)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return [*found, *_killed(Path(folder), kills)]


# ---- PostgreSQL -----------------------------------------------------------------------------------------


def upsert_over_postgres(db: ebla.Database, times: int) -> Result:
    """The same rows into the same table with the catalog in PostgreSQL and in SQLite, in turns."""
    create = "CREATE TABLE work (id BIGINT PRIMARY KEY, name STRING, total DOUBLE)"
    numbers = itertools.count()

    def rows() -> pa.Table:
        first = next(numbers) * ROWS_OF_UPSERT
        ids = list(range(first, first + ROWS_OF_UPSERT))
        return pa.table({"id": ids, "name": [f"name {one}" for one in ids], "total": [one / 7 for one in ids]})

    with tempfile.TemporaryDirectory() as folder, ebla.connect(f"{folder}/w", tablets=4) as other:
        for one in (db, other):
            one.sql(create)
        ours, theirs = db.table("work"), other.table("work")
        postgres_s, sqlite_s = alternately(lambda: ours.upsert(rows()), lambda: theirs.upsert(rows()), times=times)
    return Result(
        work="upsert of 1,000 rows over PostgreSQL, against over SQLite",
        figure=postgres_s / sqlite_s,
        bar=2,
        unit="×",
        detail=f"{postgres_s * 1e3:.1f} ms over PostgreSQL, {sqlite_s * 1e3:.1f} ms over SQLite",
    )


def statements(db: ebla.Database) -> list[Result]:
    """Statements that the catalog gets for a small write, and for an epoch of a view; `tests` hold the same bars."""
    from support.statements import of_epoch, of_upsert

    detail = "counted on the connection, in the thread of the work"
    return [
        Result(work=work, figure=count(db), bar=bar, unit="statements", detail=detail)
        for work, bar, count in (
            ("catalog statements of a small upsert", 10, of_upsert),
            ("catalog statements of a view's epoch", 25, of_epoch),
        )
    ]


# ---- processes that are killed --------------------------------------------------------------------------


def _killed(folder: Path, kills: int) -> list[Result]:
    from ebla.demo.cluster.story import Story, started

    with started(folder / "c", with_spark=2) as cluster:
        story = Story(cluster, say=lambda text: None)
        story.create()
        leader_s, jobs_s, start_s = [], [], []
        for _ in range(kills):
            leader_s.append(_leader_killed(story))
            started_s, moved_s = _runner_killed(story)
            start_s.append(started_s)
            jobs_s.append(moved_s)

    def worst(work: str, found: list[float], bar: float) -> Result:
        detail = f"the worst of {len(found)}: {', '.join(f'{one:.1f}' for one in found)} s"
        return Result(work=work, figure=max(found), bar=bar, unit="s", detail=detail)

    return [
        worst(f"leader killed with -9, to the next decision (lease {LEASE_S:g} s)", leader_s, LEASE_S + 1),
        worst("node killed with -9, to its jobs elsewhere", jobs_s, 10),
        worst("node start to serving", start_s, 10),
    ]


def _leader_killed(story: Any) -> float:
    """From the death of a leader in the middle of a request to the next step of it."""
    from chaos.leaders import killed_leader
    from ebla.catalog import topology
    from ebla.catalog.store import Catalog

    with contextlib.closing(Catalog.open(story.cluster.postgres.url, create=False)) as catalog:
        name, began, version, request = killed_leader(story, catalog)
        while catalog.read(topology.version) == version:
            time.sleep(0.01)
        followed_s = time.monotonic() - began
    with contextlib.suppress(ebla.UsageError):  # it went back, where the leader was the target
        story.rows(f"WAIT FOR REQUEST {request}")
    story.cluster.wait(name, story.cluster.start(name))
    return followed_s


def _runner_killed(story: Any) -> tuple[float, float]:
    """A node that runs the jobs is killed: until it serves again after its start, and until its jobs ran elsewhere."""
    import signal

    from ebla.demo.cluster.story import wait

    def runs_on() -> str | None:
        [job] = [row for row in story.rows("SHOW JOBS") if row["name"] == "default"]
        return str(job["identity"]).split()[0].removeprefix("node=") if job["state"] == "running" else None

    wait("two runners", lambda: len(story.rows("SHOW RUNNERS")) == 2)
    name = wait("the job", runs_on)
    began = time.monotonic()
    story.cluster.stop(name, signal.SIGKILL)
    wait("the job elsewhere", lambda: runs_on() not in (None, name))
    moved_s = time.monotonic() - began
    began = time.monotonic()
    story.cluster.wait(name, story.cluster.start(name))
    return time.monotonic() - began, moved_s


@contextlib.contextmanager
def _served() -> Iterator[tuple[ebla.Database, str]]:
    """A node that serves a table of 100,000 rows, sorted by its key, which has the group first."""
    sys.path.insert(0, str(ROOT.parent / "tests"))
    from ebla.server.app import create_app
    from ebla.server.listener import Address, Listener
    from ebla.server.options import Options
    from support.postgres import PostgresServer, find_binaries

    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PostgresServer(binaries))
        place = stack.enter_context(server.database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        db = stack.enter_context(
            ebla.connect(place, storage_root=str(folder / "root"), tablets=4, auto_refresh=False, spark_memory="2g")
        )
        db.sql("CREATE TABLE card (grp BIGINT, id BIGINT, name STRING, total DOUBLE, PRIMARY KEY (grp, id))")
        chance = random.Random(7)
        columns = {
            "grp": [number % GROUPS for number in range(ROWS)],
            "id": list(range(ROWS)),
            "name": [f"name {number}" for number in range(ROWS)],
            "total": [chance.random() for _ in range(ROWS)],
        }
        db.table("card").upsert(pa.table(columns))
        db.compact("card")
        token = db.sql("CREATE USER bench ROLE reader").one()[2]
        listener = stack.enter_context(Listener(create_app(db, Options()), Address(port=0)))
        yield db, f"{listener.url}?{token}"


# ---- HTTP -----------------------------------------------------------------------------------------------


def http_latency(db: ebla.Database, url: str) -> Result:
    """The first 100 rows of a group, by HTTP and in the process, in turns: the difference of the medians."""
    ask = _asker(url)
    http_s, here_s = [], []
    for number in range(WARM + QUERIES):
        group = number % GROUPS
        began = time.perf_counter()
        ask(group)
        between = time.perf_counter()
        db.query("card", where={"grp": group}, order_by="id").to_arrow()
        ended = time.perf_counter()
        if number >= WARM:
            http_s.append(between - began)
            here_s.append(ended - between)
    more_ms = (statistics.median(http_s) - statistics.median(here_s)) * 1e3
    detail = (
        f"p50 {statistics.median(http_s) * 1e3:.1f} ms by HTTP, {statistics.median(here_s) * 1e3:.1f} ms in process"
    )
    return Result(
        work="first-100 query over HTTP, p50 beyond in-process", figure=more_ms, bar=5, unit="ms", detail=detail
    )


def http_throughput(url: str) -> Result:
    """Queries a second that another process gets answered, with eight connections.

    It shares the two cores with the node and with PostgreSQL. Its connections are those of `http.client`, kept open: a
    query costs it about 0.4 ms of processor time, where a client of many layers would measure itself.
    """
    done = subprocess.run([sys.executable, "-m", "bench.cluster", url], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    took = f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms"
    detail = f"{THREADS} connections of http.client in another process for {SECONDS:g} s, {took}"
    return Result(
        work="first-100 queries over HTTP",
        figure=found["rate"],
        bar=200,
        unit="queries/s",
        detail=detail,
        at_least=True,
    )


def _asker(url: str) -> Callable[[int], None]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port)
    connection.connect()  # headers and body are two segments: the second shall not wait for the answer to the first
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    headers = {
        "Authorization": f"Bearer {place.query}",
        "Accept": "application/vnd.apache.arrow.stream",
        "Content-Type": "application/json",
    }

    def ask(group: int) -> None:
        body = json.dumps({"relation": "card", "where": {"grp": group}, "order_by": "id"})
        connection.request("POST", "/v1/query", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    return ask


def _load(url: str) -> None:
    """Ask with several connections for a while; prints what came of it."""
    until = time.perf_counter() + SECONDS
    seconds: list[float] = []

    def work(first: int) -> None:
        ask, group = _asker(url), first
        while time.perf_counter() < until:
            began = time.perf_counter()
            ask(group % GROUPS)
            seconds.append(time.perf_counter() - began)
            group += THREADS

    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    cut = statistics.quantiles(seconds, n=100)
    print(json.dumps({"rate": len(seconds) / SECONDS, "p50_ms": cut[49] * 1e3, "p99_ms": cut[98] * 1e3}))


if __name__ == "__main__":
    _load(sys.argv[1])
