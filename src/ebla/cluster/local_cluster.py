"""A whole cluster on one machine, in one directory: PostgreSQL, node processes and Spark, for trying out and for tests.

DIR/cluster.json     what there is, of mode 600: it holds the password of the catalog and the first token
DIR/postgres/        the data of PostgreSQL
DIR/<node>/          node.toml, log, and data: the storage root of a node
DIR/spark/           logs of the standalone master and worker
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ebla.base.system_processes import has_ended, is_there
from ebla.cluster import spark_standalone
from ebla.cluster.detached_process import DetachedProcess
from ebla.cluster.place import Place
from ebla.cluster.postgres import Postgres
from ebla.errors import NodeUnavailableError, UsageError
from ebla.model.topology import LOCAL

FILE = "cluster.json"
FIRST_PORT = 7601
POSTGRES_PORT = 54_320
UP_S = 90.0
DOWN_S = 20.0

HIDDEN = "/proc/self/cwd/data"
"""A local root: each process finds its own one there, and no other's, as if it were alone on its machine."""

SparkKind = Literal["local", "standalone", "none"]

SETTINGS: Mapping[str, object] = {"spark_memory": "1g", "tablets": 4}
"""Of nodes that share a machine, unless they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    port: int
    spark_master: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    directory: Path
    postgres_directory: Path
    postgres_port: int
    password: str
    secret: str
    spark: SparkKind
    nodes: tuple[Node, ...] = ()
    token: str | None = None
    spark_pids: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    first_port: int = FIRST_PORT
    local_roots: bool = False
    """Whether each process alone reaches its root: it has the same path in all of them, below their directories."""

    # ---- what is kept -----------------------------------------------------------------------------------

    @classmethod
    def read(cls, directory: Path) -> LocalCluster:
        try:
            said = json.loads((directory / FILE).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{directory}: expected a cluster of `ebla cluster up`, found: {error}") from error
        said["nodes"] = tuple(Node(**one) for one in said["nodes"])
        said["spark_pids"] = tuple(said["spark_pids"])
        said["postgres_directory"] = Path(said["postgres_directory"])
        return cls(directory=directory, **said)

    def write(self) -> None:
        said = {k: v for k, v in asdict(self).items() if k != "directory"}
        said["postgres_directory"] = str(self.postgres_directory)
        private(self.directory / FILE, json.dumps(said, indent=1))

    @property
    def postgres(self) -> Postgres:
        return Postgres(directory=self.postgres_directory, port=self.postgres_port, password=self.password)

    def root(self, node: str) -> Path:
        return self.directory / node / "data"

    def node(self, name: str) -> Node:
        found = next((one for one in self.nodes if one.name == name), None)
        if found is None:
            raise UsageError(f"node {name}: expected one of {', '.join(one.name for one in self.nodes)}")
        return found

    def place(self, name: str) -> Place | None:
        """The process of a node, if it runs."""
        found = Place.read(self.root(name))
        return found if found is not None and found.is_running else None

    # ---- nodes ------------------------------------------------------------------------------------------

    def added(self, name: str, *, spark: bool = True) -> LocalCluster:
        """The cluster with one node more, which does not run yet."""
        if any(one.name == name for one in self.nodes):
            raise UsageError(f"node {name}: expected a new name, found it in the cluster")
        if self.spark == "standalone":
            master = spark_standalone.url(self.directory)
        else:
            master = f"local[{cores()}]" if self.spark == "local" else "none"
        port = free_port({one.port for one in self.nodes}, first=self.first_port)
        new = Node(name=name, port=port, spark_master=master if spark else "none")
        return replace(self, nodes=(*self.nodes, new))

    def start(
        self,
        name: str,
        *,
        found: str | None = None,
        replaces: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the process of a node; it joins and serves in the background. `environment`: what it has besides."""
        node, folder = self.node(name), self.directory / name
        folder.mkdir(mode=0o700, exist_ok=True)
        said: dict[str, Any] = {
            "catalog": self.postgres.url,
            "name": name,
            "root": HIDDEN if self.local_roots else str(self.root(name)),
            "listen": f"127.0.0.1:{node.port}",
            "spark_master": node.spark_master,
            "secret": self.secret,
        }
        said |= {"local_root": True} if self.local_roots else {}
        said |= {} if found is None else {"found": found}
        said |= {} if replaces is None else {"replaces": replaces}
        private(folder / "node.toml", toml({**said, "settings": {**SETTINGS, **self.settings}}))
        with (folder / "log").open("ab") as log:
            return DetachedProcess(
                [sys.executable, "-m", "ebla", "node", "start", "--config", str(folder / "node.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder if self.local_roots else None,
                env={**os.environ, **(environment or {})},
            )

    def wait(self, name: str, process: subprocess.Popen[bytes], timeout_s: float = UP_S) -> None:
        """Wait until a node serves.

        A process that does not serve in time is asked to end: it may not have written where it is, so that `down` would
        not find it.
        """
        until = time.monotonic() + timeout_s
        while not is_ready(self.node(name).url) or self.place(name) is None:
            if process.poll() is not None or time.monotonic() > until:
                process.terminate()
                lines = (self.directory / name / "log").read_text(errors="replace").splitlines()
                raise NodeUnavailableError(f"node {name}: expected it to serve, found: {' | '.join(lines[-5:])}")
            time.sleep(0.05)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM, timeout_s: float = DOWN_S) -> None:
        """End the process of a node, and wait for that."""
        place = self.place(name)
        if place is None:
            return
        end(place.pid, number, timeout_s)


def up(
    directory: Path,
    *,
    nodes: int = 3,
    spark: SparkKind = "local",
    with_spark: int | None = None,
    settings: Mapping[str, Any] | None = None,
    first_port: int | None = None,
    local_roots: bool = False,
) -> LocalCluster:
    """Make and start a cluster, or start again what does not run of the one that is there.

    What is to be made is written before anything of it runs: if it does not come up, `down` ends what does, and `up`
    goes on.

    `with_spark`: the number of nodes that have Spark, the first ones. `first_port`: where free ports are looked for;
    clusters that are started at the same moment need different ones.
    """
    directory = directory.absolute()
    if (directory / FILE).exists():
        return again(LocalCluster.read(directory))
    if local_roots and (spark == "standalone" or not Path(HIDDEN).parent.exists()):
        raise UsageError("local_roots: expected Spark in each node, and Linux, which tells processes apart")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UsageError(f"{directory}: expected an empty directory, or one of a cluster, found other files")
    of_postgres = POSTGRES_PORT if first_port is None else first_port + 50
    port, password = free_port(set(), first=of_postgres), secrets.token_hex(16)
    postgres = Postgres.create(directory / "postgres", port, password)
    cluster = LocalCluster(
        directory=directory, postgres_directory=postgres.directory, postgres_port=port, password=password, spark=spark,
        secret=secrets.token_hex(16),
        settings=dict(settings or {}), first_port=first_port or FIRST_PORT, local_roots=local_roots,
    )  # fmt: skip
    for number in range(1, nodes + 1):
        cluster = cluster.added(f"n{number}", spark=with_spark is None or number <= with_spark)
    cluster.write()
    return again(cluster)


def again(cluster: LocalCluster) -> LocalCluster:
    """Start what does not run. The first node founds the cluster, unless that is done."""
    cluster.postgres.start()
    pids = cluster.spark_pids
    if cluster.spark == "standalone" and not (pids and all(is_there(pid) for pid in pids)):
        cluster = replace(cluster, spark_pids=spark_standalone.start(cluster.directory, pids))
        cluster.write()
    if cluster.token is None:
        first = cluster.nodes[0].name
        if cluster.place(first) is None:
            cluster.wait(first, cluster.start(first, found=cluster.directory.name))
        cluster = replace(cluster, token=first_token(cluster))
        cluster.write()
    started = {one.name: cluster.start(one.name) for one in cluster.nodes if cluster.place(one.name) is None}
    for name, process in started.items():
        cluster.wait(name, process)
    return cluster


def first_token(cluster: LocalCluster) -> str:
    """Make the first user, an administrator, unless that is done; a token of it."""
    from ebla.api.connect import connect

    first = cluster.nodes[0].name
    root = LOCAL + HIDDEN if cluster.local_roots else str(cluster.root(first))
    with connect(
        cluster.postgres.url, node=first, storage_root=root,
        auto_refresh=False, role="command",
    ) as database:  # fmt: skip
        database.sql("CREATE USER IF NOT EXISTS admin ROLE admin")
        found: list[dict[str, Any]] = database.sql("ALTER USER admin ROTATE TOKEN").to_arrow().to_pylist()
    return str(found[0]["token"])


def down(directory: Path, *, remove: bool = False) -> LocalCluster:
    """Stop all processes of a cluster; its data stay, unless they shall go."""
    cluster = LocalCluster.read(directory.absolute())
    places = [place for one in cluster.nodes if (place := cluster.place(one.name)) is not None]
    for place in places:
        with contextlib.suppress(ProcessLookupError):
            os.kill(place.pid, signal.SIGTERM)
    for place in places:
        end(place.pid, signal.SIGTERM, DOWN_S)
    for pid in cluster.spark_pids:
        end(pid, signal.SIGTERM, DOWN_S)
    cluster.postgres.stop()
    if remove:
        shutil.rmtree(cluster.postgres_directory, ignore_errors=True)
        shutil.rmtree(cluster.directory, ignore_errors=True)
    return cluster


# ---- reports --------------------------------------------------------------------------------------------


def status(directory: Path) -> dict[str, Any]:
    """Processes as they are, and the catalog's view of them."""
    cluster = LocalCluster.read(directory.absolute())
    report: dict[str, Any] = {
        "directory": str(cluster.directory),
        "postgres": {"pid": cluster.postgres.pid, "port": cluster.postgres_port},
        "urls": [one.url for one in cluster.nodes],
        "leader": None,
        "nodes": [],
    }
    members_by_name: dict[str, dict[str, Any]] = {}
    if cluster.postgres.pid is not None:
        from ebla.cluster import catalog_report

        members_by_name = catalog_report.read(cluster.postgres.url, report)
    for one in cluster.nodes:
        place = cluster.place(one.name)
        member = members_by_name.get(one.name, {})
        report["nodes"].append(
            {
                "name": one.name,
                "pid": None if place is None else place.pid,
                "state": member.get("state", "unknown"),
                "alive": place is not None,
                "address": one.url,
                "seen_version": member.get("seen_version"),
                "tablets": member.get("tablets"),
                "load": member.get("load", []),
            }
        )
    return report


# ---- small things ---------------------------------------------------------------------------------------


def cores() -> int:
    """Of this machine, for each of three nodes."""
    return max(1, (os.cpu_count() or 1) // 3)


def is_ready(url: str, timeout_s: float = 2.0) -> bool:
    import httpx

    try:
        return httpx.get(f"{url}/health/ready", timeout=timeout_s).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def end(pid: int, number: signal.Signals, timeout_s: float) -> None:
    """Send a signal and wait for the end; what does not end in time is killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    has_ended(pid, timeout_s)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of this process: others see that it is gone
    with contextlib.suppress(ProcessLookupError):
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)


def free_port(taken: set[int], first: int = FIRST_PORT) -> int:
    """The first port from there on that no program listens on."""
    for port in range(first, first + 1000):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise UsageError(f"expected a free port from {first} on, found none")


def private(file: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)


def toml(values: Mapping[str, Any]) -> str:
    """Flat values, then one table for each mapping. JSON's strings, numbers and words are TOML's, too."""
    plain = [f"{name} = {json.dumps(value)}" for name, value in values.items() if not isinstance(value, Mapping)]
    tables = [
        "\n".join([f"\n[{name}]", *(f"{key} = {json.dumps(one)}" for key, one in value.items())])
        for name, value in values.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables]) + "\n"
