"""A cluster of node processes under load, to which something happens every few seconds, by chance.

Processes are killed and started again, the one that leads among them, sleep past their leases, and are cut off from
the catalog or from each other; PostgreSQL is killed; tablets move. When the time is over everything is brought back,
and what was acknowledged must be there: `Story.prove`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.engine import make_url

from chaos.leaders import is_open, killed_leader
from ebla.catalog.store import Catalog
from ebla.cluster import local_cluster
from ebla.demo.cluster.load import TABLE, Load
from ebla.demo.cluster.story import Story, started, wait
from ebla.errors import EblaError
from support.clusters import ports_between, refusing
from support.proxy import Proxy

SLEEP_S_MAX = 8.0
"""A process that sleeps longer than its lease is followed by another one."""
CALM_S = (0.5, 3.0)
CUT = "n3"
"""The node that reaches the catalog by a way that can be cut."""


@dataclass(slots=True, kw_only=True)
class Storm:
    story: Story
    load: Load
    chance: random.Random
    between: Proxy
    folder: Path
    """Of the files that say which ports the network refuses to a node."""
    say: Callable[[str], None]
    happened: Counter[str] = field(default_factory=Counter)

    def blow(self, seconds: float) -> None:
        """Let things happen for a while, one after the other; then the cluster is whole again."""
        deeds = (
            self.kill,
            self.kill,
            self.kill_leader,
            self.sleep,
            self.crash_postgres,
            self.cut,
            self.part,
            self.move,
            self.move,
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            deed = self.chance.choice(deeds)
            with contextlib.suppress(EblaError):  # a statement may meet what happened before
                self.say(f"{until - time.monotonic():5.0f} s left, {self.load.commits:6,} commits: {deed()}")
                self.happened[deed.__name__] += 1
            self.load.goes_on()
            time.sleep(self.chance.uniform(*CALM_S))
        wait("all nodes ready", lambda: all(local_cluster.is_ready(url) for url in self.story.urls))
        wait("all nodes alive", self._are_alive)
        wait("no open request", self.story.is_settled)

    def _node(self) -> str:
        return self.chance.choice([one.name for one in self.story.cluster.nodes])

    def _are_alive(self) -> bool:
        return all(row["alive"] for row in self.story.rows("SHOW NODES") if row["state"] == "normal")

    def start(self, name: str) -> None:
        cluster = self.story.cluster
        way = make_url(cluster.postgres.url).set(port=self.between.port).render_as_string(hide_password=False)
        environment = refusing(self._refused(name)) | ({"EBLA_NODE_CATALOG": way} if name == CUT else {})
        cluster.wait(name, cluster.start(name, environment=environment))

    def _refused(self, name: str) -> Path:
        return self.folder / f"refused-{name}"

    # ---- what happens -----------------------------------------------------------------------------------

    def kill(self) -> str:
        name = self._node()
        self.story.cluster.stop(name, signal.SIGKILL)
        self.start(name)
        return f"{name} was killed, and started again"

    def kill_leader(self) -> str:
        """It dies in the middle of a request, which another one ends before it is started again."""
        with contextlib.closing(Catalog.open(self.story.cluster.postgres.url, create=False)) as catalog:
            name, _, _, request = killed_leader(self.story, catalog)
            wait("the end of the leader's request", lambda: not is_open(catalog, request))
        self.start(name)
        return f"{name} was killed while it led request {request}, which another node ended, and started again"

    def sleep(self) -> str:
        name, seconds = self._node(), self.chance.uniform(1, SLEEP_S_MAX)
        place = self.story.cluster.place(name)
        assert place is not None
        os.kill(place.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(place.pid, signal.SIGCONT)
        return f"{name} slept for {seconds:.1f} s"

    def crash_postgres(self) -> str:
        postgres = self.story.cluster.postgres
        assert postgres.pid is not None
        local_cluster.end(postgres.pid, signal.SIGKILL, 10)
        postgres.start()
        return "PostgreSQL was killed, and started again"

    def cut(self) -> str:
        seconds = self.chance.uniform(1, SLEEP_S_MAX)
        with self.between.silence():
            time.sleep(seconds)
        return f"{CUT} was cut off from the catalog for {seconds:.1f} s"

    def part(self) -> str:
        """One node and the others refuse each other's connections; all of them reach the catalog, and clients them."""
        alone, seconds = self._node(), self.chance.uniform(1, SLEEP_S_MAX)
        others = {one.name for one in self.story.cluster.nodes} - {alone}
        refused = ports_between(self.story.cluster, [{alone}, others])
        for name, ports in refused.items():
            self._refused(name).write_text(" ".join(map(str, ports)))
        time.sleep(seconds)
        for name in refused:
            self._refused(name).unlink()
        return f"{alone} and the other nodes did not reach each other for {seconds:.1f} s"

    def move(self) -> str:
        number = self.chance.randrange(4)
        source, target = self.story.ends_of_tablet(number)
        self.story.rows(f"MOVE TABLET {number} OF {TABLE} FROM '{source}' TO '{target}'")
        return f"tablet {number} shall move from {source} to {target}"


def run(folder: Path, *, seconds: float, seed: int, with_spark: int = 1, say: Callable[[str], None] = print) -> Storm:
    """A storm over three nodes, and the proof that it did no harm."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(started(folder / "c", with_spark=with_spark))
        story = Story(cluster, say=say)
        story.create()
        between = stack.enter_context(Proxy(cluster.postgres_port))
        load = Load(story.urls, cluster.token, seed=seed)
        storm = Storm(story=story, load=load, chance=random.Random(seed), between=between, folder=folder, say=say)
        for node in cluster.nodes:
            cluster.stop(node.name)
            storm.start(node.name)
        with load:
            wait("the first commits", lambda: load.commits > 10)
            storm.blow(seconds)
        story.prove(load)
        return storm
