"""Jobs run in one place each, whatever fails: processes crash, pause past their leases, and lose answers.

The processes' parts and the catalog's rules are the production code; time, crashes and what a job does are simulated.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from ebla.base import settings as settings_module
from ebla.base.services import Scheduler
from ebla.catalog import jobs
from ebla.catalog.leadership import Leadership
from ebla.errors import CatalogUnavailableError
from ebla.model.jobs import COORDINATOR, CommandStatus
from ebla.node.assignment import Assignment
from support.catalogs import SECOND_US, Clock
from support.tables import MemoryCatalog

SEEDS = int(os.environ.get("EBLA_SIMULATION_SEEDS", "1000")) // 25
JOBS = ("default", "shop", "stock", "sys$dictionary")
LEASE_S = 3.0
FAULTY_STEPS, HEALED_STEPS = 120, 60
STEP_US = SECOND_US // 4


class Crash(BaseException):
    """The process is gone, in the middle of what it did."""


class Failing(MemoryCatalog):
    """A catalog in whose transactions processes die, and whose answers are lost."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        super().__init__(clock)
        self.chance = chance
        self.crash_rate = self.loss_rate = 0.0

    def change(self, change: Any) -> Any:
        if self.chance.random() < self.crash_rate:
            raise Crash
        done = super().change(change)
        if self.chance.random() < self.crash_rate:
            raise Crash
        if self.chance.random() < self.loss_rate:
            raise CatalogUnavailableError("the answer was lost")
        return done


class Process:
    """One process: what runs in it is what it was told to start."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.running: set[str] = set()
        self.ending: dict[str, int] = {}
        self.paused_until = 0
        services = Scheduler(lambda: world.clock.now_us / 1e6, threads=False)
        leadership = Leadership(world.catalog, f"{name}/{world.number()}", LEASE_S, services)
        settings = settings_module.load(runner_lease_s=LEASE_S, command_timeout_s=5.0, node=name)
        self.assignment = Assignment(
            world.catalog, settings, leadership, start=self.start, stop=self.stop, permanent=True
        )

    def start(self, job: str) -> None:
        if self.world.chance.random() < self.world.failure_rate:
            self.world.counts["starts failed"] += 1
            raise OSError(f"{job} does not start")
        self.running.add(job)

    def stop(self, job: str) -> bool:
        """An epoch that runs goes on for a while."""
        if job in self.running and job not in self.ending:
            self.ending[job] = self.world.clock.now_us + self.world.chance.choice([0, STEP_US, 4 * STEP_US])
        if self.world.clock.now_us < self.ending.get(job, 0):
            return False
        self.running.discard(job)
        self.ending.pop(job, None)
        return True

    def step(self) -> None:
        now = self.world.clock.now_us
        if now < self.paused_until:
            return
        mine = self.assignment
        if mine.runner is not None:
            self.world.catalog.change(lambda state: jobs.renew(state, mine.runner, now, mine.lease_us))
        mine.look(self.world.wanted)


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.catalog = Failing(self.clock, self.chance)
        self.counts = Counter[str]()
        self.failure_rate = 0.0
        self.wanted = dict.fromkeys(JOBS, "{}")
        self._numbers = 0
        self.processes = [Process(self, name) for name in "abc"]

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def run(self) -> None:
        self.catalog.crash_rate = self.chance.choice([0.0, 0.02, 0.05])
        self.catalog.loss_rate = self.chance.choice([0.0, 0.05])
        self.failure_rate = self.chance.choice([0.0, 0.1])
        for _ in range(FAULTY_STEPS):
            if self.chance.random() < 0.05:
                self.wanted = {job: "{}" for job in JOBS if self.chance.random() < 0.7}
            if self.chance.random() < 0.05:
                self.chance.choice(self.processes).paused_until = self.clock.now_us + 5 * SECOND_US
                self.counts["pauses"] += 1
            self.step()
        self.catalog.crash_rate = self.catalog.loss_rate = self.failure_rate = 0.0
        self.wanted = dict.fromkeys(JOBS, "{}")
        for _ in range(HEALED_STEPS):
            self.step()
        self.check_converged()

    def step(self) -> None:
        for number, process in enumerate(self.processes):
            try:
                process.step()
            except Crash:
                self.counts["crashes"] += 1
                self.processes[number] = Process(self, process.name)
            except CatalogUnavailableError:
                self.counts["answers lost"] += 1
            self.check_safe()
        self.clock.advance(STEP_US)

    def check_safe(self) -> None:
        """No command twice, and no job in two processes that both are registered."""
        state = self.catalog.read(jobs.read)
        unanswered = Counter(one.job for one in state.commands if one.status.is_open)
        assert not unanswered or max(unanswered.values()) == 1, f"seed {self.seed}: {unanswered}"
        registered = {one.id for one in state.runners}
        places = Counter(job for p in self.processes if p.assignment.runner in registered for job in p.running)
        assert not places or max(places.values()) == 1, f"seed {self.seed}: {places}"
        assert all((one.diag is None) == (one.status is not CommandStatus.ERROR) for one in state.commands)
        self.counts["commands"] = max(self.counts["commands"], len(state.commands))

    def check_converged(self) -> None:
        state = self.catalog.read(jobs.read)
        assert sorted(job for p in self.processes for job in p.running) == sorted(JOBS), f"seed {self.seed}"
        stored = sorted((one.runner, one.job) for one in state.running if one.job != COORDINATOR)
        assert stored == sorted((p.assignment.runner or "", job) for p in self.processes for job in p.running)
        assert len(state.runners) == len(self.processes), f"seed {self.seed}: dead runners are gone"
        assert len([one for one in state.running if one.job == COORDINATOR]) == 1


def test_jobs_run_in_one_place_each(monkeypatch: pytest.MonkeyPatch):
    counts = Counter[str]()
    for seed in range(SEEDS):
        world = World(seed)
        made = random.Random(seed)
        monkeypatch.setattr(
            "ebla.node.assignment.uuid.uuid4", lambda made=made: SimpleNamespace(hex=f"{made.getrandbits(64):016x}")
        )
        world.run()
        counts += world.counts
    assert {"crashes", "pauses", "answers lost", "starts failed"} <= set(counts), "the simulation does what it is for"
