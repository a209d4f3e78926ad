"""The process that leads the topology is killed at its failpoints, and the next one goes on.

A chain of kills has each process die after one more step, until one comes to the end: so every step of a procedure is
the last of some leader, at the price of one run. A single kill has the next process do all the rest.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import ebla
from chaos.clusters import Cluster
from chaos.procedures import Procedure, shape
from ebla.catalog import schema as s
from ebla.catalog import topology
from ebla.catalog.store import Catalog
from ebla.model.lifecycle.node import NodeState
from support.processes import Child, Processes, Sharing
from support.topology_tasks import KEYS, changes
from support.warehouse import later, named, open_transactions, stored

BEHIND = frozenset({"topology.committed"})
"""Failpoints behind a commit: a process that dies the first time has made a step. In front of one it is the second."""
STEPS = ("begin", "end", "tablet", "t:", "announce", "new generations")
"""What the reasons of the coordinator's commits begin with."""
KILLS_MAX = 60


@dataclass(slots=True)
class Written:
    """What the rows of the table may be, after the writes that processes have said to be in or to have tried."""

    allowed: dict[int, set[int | None]] = field(default_factory=lambda: {i: {i} for i in range(KEYS)})
    next: int = 0

    def follow(self, lines: list[str]) -> None:
        """The lines of one process that has ended. A write that was tried and not acknowledged may be in or not."""
        said = [line.split() for line in lines]
        acknowledged = {int(words[1]) for words in said if words[0] == "ack"}
        for number in (int(words[1]) for words in said if words[0] == "try"):
            for row, value in changes(number).items():
                before = set() if number in acknowledged else self.allowed.get(row, {None})
                self.allowed[row] = before | {value}
            self.next = number + 1

    def wrong(self, rows: list[tuple[int, int]]) -> dict[int, tuple[Any, Any]]:
        """Where rows are not as they may be: id to what is allowed and what there is."""
        found = dict(rows)
        assert len(found) == len(rows), f"expected each row once, found {Counter(i for i, _ in rows).most_common(3)}"
        return {
            row: (self.allowed.get(row), found.get(row))
            for row in self.allowed.keys() | found.keys()
            if found.get(row) not in self.allowed.get(row, {None})
        }


@dataclass(slots=True, kw_only=True)
class Chain:
    """One procedure on one cluster, carried out by processes that are killed."""

    cluster: Cluster
    procedure: Procedure
    processes: Processes | Sharing
    written: Written = field(default_factory=Written)
    kills: int = 0

    def run(self, failpoint: str, *, once: int | None = None) -> None:
        """Carry the procedure out. `once`: only the first process is killed, when the failpoint is reached so often."""
        times = once or 1
        for _ in range(KILLS_MAX):
            ended = self._process(f"{failpoint}=kill@{times}" if times else "")
            if ended is not None:
                break
            times = 0 if once else 1 if failpoint in BEHIND else 2
        else:
            raise AssertionError(f"expected the procedure to end, found it unfinished after {KILLS_MAX} kills")
        self.check(ended)

    def _process(self, failpoints: str) -> str | None:
        """Let one process carry on; what it says at its end, `None` if it was killed."""
        one = self.procedure
        gone = self._left()
        settings = self.cluster.settings(*(name for name in one.nodes if name not in gone), **one.settings)
        child = self.processes.start(
            "support.topology_tasks:carry_out",
            self.cluster.where,
            settings,
            one.kind,
            one.statement,
            self.written.next,
            one.merges,
            failpoints=failpoints,
        )
        lines = self._ended(child)
        last = next((line for line in lines if line.startswith(("result", "refused"))), None)
        if child.wait() == -signal.SIGKILL:
            self.kills += 1
            return None
        assert child.wait() == 0, child.errors()
        assert last is not None
        word, _, said = last.partition(" ")
        return self._begin_anew() if word == "refused" or said.startswith("failed") else said

    def _ended(self, child: Child) -> list[str]:
        lines = child.rest()
        child.wait()
        child.close()
        self.written.follow(lines)
        return lines

    def _begin_anew(self) -> str | None:
        """A node whose process died before it was a member begins anew with a fresh root when its request ended."""
        one = self.procedure
        assert one.asks_by_opening, "only a node that asked may be refused"
        settings = self.cluster.settings(*one.without)
        child = self.processes.start(
            "support.topology_tasks:carry_out", self.cluster.where, settings, one.kind, "", self.written.next
        )
        lines = self._ended(child)
        assert child.wait() == 0, child.errors()
        assert any("expected its process to stay alive, found it gone" in line for line in lines), lines
        shutil.rmtree(self.cluster.folder / one.nodes[-1])
        return None

    def check(self, ended: str) -> None:
        """It has ended as it should, once, every acknowledged write is there, once, and nothing is left over."""
        one = self.procedure
        assert ended == one.result
        gone = self._left()
        with self.cluster.open(*(name for name in one.nodes if name not in gone)) as db:
            found = shape(db)
            assert {name: found[name] for name in one.after} == dict(one.after)
            self._assert_once(db)
            assert_sound(db, self.written)

    def _assert_once(self, db: ebla.Database) -> None:
        """It was asked for once, unless a new node had to begin anew, and no step was made twice."""
        one = self.procedure
        ended = db.sql(f"SELECT state FROM system.topology_requests WHERE kind = '{one.kind}' ORDER BY id").rows()
        assert ended[-1] == ("done",)
        if one.asks_by_opening:
            assert set(ended[:-1]) <= {("failed",)}
            return
        assert len(ended) == 1
        reasons = Counter(reason for (reason,) in db.sql("SELECT reason FROM system.history").rows())
        steps = {reason: times for reason, times in reasons.items() if reason.startswith(STEPS)}
        assert set(steps.values()) == {1}, steps

    def _left(self) -> set[str]:
        """The names that belong to no node any more."""
        with contextlib.closing(Catalog.open(self.cluster.where)) as catalog:
            members = catalog.read(topology.members).values()
        there = {member.name for member in members if member.state is not NodeState.LEFT}
        return {member.name for member in members} - there - self._new()

    def _new(self) -> set[str]:
        """The names of nodes that ask for themselves: they may come anew."""
        return set(self.procedure.nodes) - set(self.procedure.without)


def kill_leader_of_others(cluster: Cluster, processes: Processes, join: Procedure, failpoints: str) -> None:
    """A process leads for a node of another process and is killed; the other one goes on by itself."""
    written, own = Written(), cluster.settings(*join.without)
    leader = processes.start("support.topology_tasks:lead", cluster.where, own, 0, failpoints=failpoints)
    first: list[str] = []
    while not first or first[-1] not in ("leads", ""):
        first.append(leader.line())
    newcomer = cluster.settings(*reversed(join.nodes[len(join.without) :]))
    child = processes.start("support.topology_tasks:carry_out", cluster.where, newcomer, join.kind, "", 1000)
    written.follow([*filter(None, first), *leader.rest()])
    assert leader.wait() == -signal.SIGKILL, leader.errors()
    leader.close()
    lines = child.finish()
    written.follow(lines)
    assert f"result {join.result}" in lines
    with cluster.open(*join.nodes) as db:
        assert_sound(db, written)


def assert_sound(db: ebla.Database, written: Written) -> None:
    """Every acknowledged write is there, once, by the table and by its index, and nothing is left over."""
    rows = sorted(db.query("t", limit=10_000).rows())
    assert written.wrong(rows) == {}
    by_index = [(row, n) for n in sorted({n for _, n in rows}) for row, n in db.query("t", where={"n": n}).rows()]
    assert sorted(by_index) == rows
    assert db.sql("SELECT * FROM system.under_replicated").rows() == []
    later(db)  # the transactions of the killed have run out
    db.vacuum(retain_s=0)
    assert sorted(db.query("t", limit=10_000).rows()) == rows
    assert stored(db) == named(db)
    assert open_transactions(db) == set()
    with db.context.catalog.reading() as connection:
        for query in (s.tablet_transitions.select(), s.sessions.select().where(s.sessions.c.closed_version.is_(None))):
            assert connection.execute(query).all() == []
        states = connection.execute(s.topology_requests.select()).all()
        assert {row.state for row in states} <= {"done", "failed"}, states
