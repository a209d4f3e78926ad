"""How often things go wrong, and the network on which they do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.world import World

MS = 1_000
SECOND = 1_000 * MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often things go wrong, each a probability, or a mean time between two events."""

    lose: float
    repeat: float
    slow: float
    call_fails: float
    task_fails: float
    stale_read: float
    late_commit: float
    leader_us: int
    crash_us: int
    move_us: int
    view_us: int
    write_us: int
    pause_us: int
    gives_way: float

    @classmethod
    def of(cls, chance: random.Random) -> Faults:
        def rate(most: float) -> float:
            return chance.choice([0.0, most / 4, most])

        def every(least_s: float) -> int:
            return int(least_s * SECOND * chance.choice([1, 2, 4]))

        return cls(
            lose=rate(0.3),
            repeat=rate(0.3),
            slow=rate(0.3),
            call_fails=rate(0.2),
            task_fails=rate(0.1),
            stale_read=rate(0.5),
            late_commit=rate(0.5),
            leader_us=every(1.5),
            crash_us=every(1.5),
            move_us=every(1.0),
            view_us=every(1.0),
            write_us=every(0.08),
            pause_us=every(4.0),
            gives_way=rate(0.2),
        )


class Network:
    """Messages are lost, repeated, late and out of order."""

    def __init__(self, world: World) -> None:
        self.world = world

    def send(self, deliver: Callable[[], None]) -> None:
        world, faults = self.world, self.world.faults
        if world.healed:
            world.after(world.chance.randint(1, 5) * MS, deliver)
            return
        for _ in range(2 if world.chance.random() < faults.repeat else 1):
            if world.chance.random() >= faults.lose:
                slow = world.chance.random() < faults.slow
                world.after(world.chance.randint(1, 4_000 if slow else 50) * MS, deliver)
