"""The story of a cluster: it grows, loses nodes and its leader, and shrinks, while it is written to and read.

Each chapter changes something, waits until the cluster has followed, and asserts what must hold then.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import ebla
from ebla.cluster import local_cluster
from ebla.cluster.local_cluster import LocalCluster
from ebla.demo.cluster.load import INDEX, TABLE, VIEW, Load, Order, recomputed, schema

PATIENCE_S = 150.0
"""How long a chapter waits for the cluster to follow."""
LOOK_S = 0.25

Found = TypeVar("Found")


class StoryError(AssertionError):
    """Something did not come out as it must."""


@dataclass(slots=True)
class Story:
    """A cluster, what it is asked over HTTP, and what is printed of it."""

    cluster: LocalCluster
    say: Callable[[str], None] = print
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        return [one.url for one in self.cluster.nodes]

    def connect(self) -> Any:
        return ebla.connect(",".join(self.urls), token=self.cluster.token)

    def rows(self, text: str) -> list[dict[str, Any]]:
        with self.connect() as client:
            found: list[dict[str, Any]] = client.sql(text).to_arrow().to_pylist()
            return found

    # ---- chapters ---------------------------------------------------------------------------------------

    def create(self) -> None:
        """A table with two copies of each tablet, a view and an index."""
        with self.connect() as client:
            for statement in schema(min(2, len(self.cluster.nodes))):
                began = time.monotonic()
                client.sql(statement)
                self.say(f"{statement.partition(' AS ')[0]}  ({time.monotonic() - began:.1f} s)")

    def follow(self, load: Load) -> None:
        """The view shows what was written up to now."""
        with self.connect() as client:
            began, version = time.monotonic(), client.version
            client.query(VIEW, at_least=version, wait_s=PATIENCE_S)
            self.facts["view_follows_s"] = time.monotonic() - began
        self.say(f"the view shows {load.commits:,} commits, {self.facts['view_follows_s']:.1f} s behind the last one")

    def grow(self, name: str) -> None:
        """A node joins, and tablets move to it."""
        began = time.monotonic()
        self.cluster = self.cluster.added(name, spark=False)
        self.cluster.write()
        self.cluster.wait(name, self.cluster.start(name))
        joined_s = time.monotonic() - began
        wait(f"tablets on {name}", lambda: self.is_settled() and self._node(name)["tablets"] > 0)
        self.say(
            f"{name} joined in {joined_s:.1f} s and has {self._node(name)['tablets']} tablets after "
            f"{time.monotonic() - began:.1f} s"
        )

    def kill(self, name: str, load: Load) -> None:
        """A node dies: reads and writes go on."""
        began, commits, reads = time.monotonic(), load.commits, load.reads
        self.cluster.stop(name, signal.SIGKILL)
        wait(f"{name} is taken for dead", lambda: not self._node(name)["alive"])
        dead_s = time.monotonic() - began
        wait("writes and reads behind it", lambda: load.commits > commits + 20 and load.reads > reads + 20)
        self.say(
            f"killed {name} with -9: taken for dead after {dead_s:.1f} s; longest pause of all writers "
            f"{load.pause_s(began):.1f} s"
        )

    def replace(self, dead: str, name: str) -> None:
        """Another node comes in the place of a dead one."""
        began = time.monotonic()
        self.cluster = self.cluster.added(name, spark=False)
        self.cluster.write()
        self.cluster.wait(name, self.cluster.start(name, replaces=dead))
        wait(f"{dead} left", lambda: self._node(dead)["state"] == "left" and self.is_settled())
        self.cluster = replace(self.cluster, nodes=tuple(one for one in self.cluster.nodes if one.name != dead))
        self.cluster.write()
        self.say(
            f"{name} took the place of {dead} in {time.monotonic() - began:.1f} s, "
            f"with {self._node(name)['tablets']} tablets"
        )

    def kill_leader(self, load: Load) -> None:
        """The leader dies in the middle of a request; the next one ends the request. Its node starts again."""
        request = wait("a tablet that does not move", self.ask_for_a_move)
        leader = wait("a leader", lambda: local_cluster.status(self.cluster.directory)["leader"])
        began = time.monotonic()
        self.cluster.stop(leader, signal.SIGKILL)
        with contextlib.suppress(ebla.UsageError):  # it went back, where the leader was the one that the tablet came to
            self.rows(f"WAIT FOR REQUEST {request}")
        self.facts["leader_follows_s"] = time.monotonic() - began
        self.say(
            f"killed the leader, {leader}, with -9: another one ended its request after "
            f"{self.facts['leader_follows_s']:.1f} s; longest pause of all writers {load.pause_s(began):.1f} s"
        )
        self.cluster.wait(leader, self.cluster.start(leader))
        wait(f"{leader} back", lambda: self._node(leader)["alive"])
        self.say(f"{leader} is back")

    def shrink(self, name: str) -> None:
        """A node leaves; its tablets move to the others first."""
        began = time.monotonic()
        request = self.rows(f"ALTER CLUSTER DECOMMISSION NODE '{name}'")[0]["request"]
        self.rows(f"WAIT FOR REQUEST {request}")
        self.cluster.stop(name)
        self.cluster = replace(self.cluster, nodes=tuple(one for one in self.cluster.nodes if one.name != name))
        self.cluster.write()
        left = self._node(name)
        require(left["state"] == "left" and not left["tablets"], f"{name} to have left, found {left}")
        self.say(f"{name} left in {time.monotonic() - began:.1f} s, and its process was stopped")

    def prove(self, load: Load) -> None:
        """Every acknowledged write is there, and view and index are what their definitions give."""
        require(not load.errors, f"no failed request, found {load.errors[:3]}")
        wait("copies of all", lambda: not self.rows("SELECT * FROM system.under_replicated"))
        with self.connect() as client:
            version = client.version
            client.query(VIEW, at_least=version, wait_s=PATIENCE_S)
            table = client.sql(f"SELECT id, customer, amount FROM {TABLE}").rows()
            view = client.sql(f"SELECT customer, orders, total FROM {VIEW}").rows()
            index = client.sql(f"CHECK INDEX {INDEX}").to_arrow().to_pylist()
        orders = {key: Order(customer, amount) for key, customer, amount in table}
        wrong = load.differences(orders)
        require(not wrong, f"every acknowledged write, found {len(wrong)} keys that differ: {wrong[:3]}")
        self.say(f"{load.commits:,} acknowledged commits, {len(orders):,} rows: all there, none twice")
        rows_of_view = {customer: (number, total) for customer, number, total in view}
        require(rows_of_view == recomputed(orders), f"{VIEW} to be equal to its recomputation, found {rows_of_view}")
        self.say(f"{VIEW}: {len(rows_of_view)} rows, equal to its recomputation")
        damage = {name: sum(row[name] for row in index) for name in ("missing", "spurious", "different")}
        require(not any(damage.values()), f"{INDEX} as its definition says, found {damage}")
        self.say(f"{INDEX}: no entry missing, spurious or different")
        self.facts |= {"commits": load.commits, "rows": len(orders), "reads": load.reads}

    # ---- what the cluster says --------------------------------------------------------------------------

    def _node(self, name: str) -> dict[str, Any]:
        found = [row for row in self.rows("SHOW NODES") if row["name"] == name]
        require(bool(found), f"a node {name}, found none")
        return found[-1]

    def is_settled(self) -> bool:
        """Whether no tablet moves, and no request waits."""
        return not self.rows("SHOW TRANSITIONS") and all(
            row["state"] not in ("queued", "running") for row in self.rows("SHOW REQUESTS")
        )

    def ask_for_a_move(self) -> int | None:
        """The request of a move, unless the balancer moves the tablet just then."""
        source, target = self.ends_of_tablet(0)
        with contextlib.suppress(ebla.UsageError):
            return int(self.rows(f"MOVE TABLET 0 OF {TABLE} FROM '{source}' TO '{target}'")[0]["request"])
        return None

    def ends_of_tablet(self, number: int) -> tuple[str, str]:
        """A node that has a tablet, and a live one that has not."""
        [replicas] = [
            str(row["replicas"]).split(", ") for row in self.rows(f"SHOW TABLETS OF {TABLE}") if row["tablet"] == number
        ]
        free = [
            row["name"]
            for row in self.rows("SHOW NODES")
            if row["alive"] and row["state"] == "normal" and row["name"] not in replicas
        ]
        require(bool(free), "a node without the tablet, found none")
        return replicas[0], free[0]


def require(holds: bool, what: str) -> None:
    if not holds:
        raise StoryError(f"expected {what}")


def wait(what: str, until: Callable[[], Found | None], timeout_s: float = PATIENCE_S) -> Found:
    """Ask again until the answer is true; it."""
    ends = time.monotonic() + timeout_s
    while not (found := until()):
        if time.monotonic() > ends:
            raise StoryError(f"expected {what} within {timeout_s:.0f} s, found it missing")
        time.sleep(LOOK_S)
    return found


@contextlib.contextmanager
def started(
    directory: Path,
    *,
    nodes: int = 3,
    with_spark: int = 2,
    spark: local_cluster.SparkKind = "local",
    local_roots: bool = False,
) -> Iterator[LocalCluster]:
    """A cluster that is stopped and removed in the end. Others may be started at the same moment."""
    port = random.randrange(20_000, 32_000, 100)
    try:
        yield local_cluster.up(
            directory, nodes=nodes, spark=spark, with_spark=with_spark, first_port=port, local_roots=local_roots
        )
    finally:
        if (directory / local_cluster.FILE).exists():
            local_cluster.down(directory, remove=True)


def tell(story: Story, title: Callable[[str], None] = lambda text: None, *, seed: int = 0) -> Load:
    """The whole story."""
    title("A table with two copies, a view and an index")
    story.create()
    with Load(story.urls, story.cluster.token, seed=seed) as load:
        title("Two writers and a reader at work")
        wait("the first commits", lambda: load.commits > 20)
        story.follow(load)
        title("A node is added")
        story.grow("n4")
        title("A node is killed, and replaced")
        story.kill("n3", load)
        story.replace("n3", "n5")
        title("The leader is killed")
        story.kill_leader(load)
        title("A node is decommissioned")
        story.shrink("n4")
        story.follow(load)
    title("What is left")
    story.prove(load)
    return load
