"""Views and indexes are built exactly, whatever fails on the way. `docs/internals/building.md` lists the invariants."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from ebla.build.coordinator import Coordinator, WorkerAnswer
from ebla.build.state import State
from ebla.build.worker import Worker
from ebla.catalog import build_tasks, index_states
from ebla.model import changes as c
from ebla.model import segments, task_moves
from ebla.model.lifecycle import index as states
from ebla.model.lifecycle.index import Permission
from ebla.model.segments import Segment
from ebla.model.task_maps import in_map
from simulation import model, world
from simulation.world import run

SEEDS = int(os.environ.get("EBLA_SIMULATION_SEEDS", "1000")) * 7 // 10
"""In the cluster's world, which has all of its own, views and indexes are built, too."""
PARTS = 7

HAPPENS = {
    "chunks",
    "chunks refused",
    "drops",
    "drops of what was being built",
    "epochs",
    "epochs refused",
    "finished tasks that were aborted",
    "indexes built",
    "merges",
    "old leaders refused",
    "old terms refused",
    "splits",
    "staged runs",
    "tasks aborted",
    "tasks finished",
    "tasks that gave way",
    "views built",
}


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int):
    counts: Counter[str] = Counter()
    for seed in range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS):
        counts += run(seed).catalog.counts
    if SEEDS >= 100 * PARTS:
        assert set(counts) == HAPPENS, "the simulation does not do what it is for"


def test_a_seed_gives_the_same_run_every_time():
    one, other = run(7), run(7)
    assert (one.steps, one.now, one.catalog.counts) == (other.steps, other.now, other.catalog.counts)


# ---- the simulation finds what it is for ----------------------------------------------------------------


def advance_everything(before, version):
    return tuple(Segment(up_to=s.up_to, since=version, rows=s.rows) for s in before)


def applies_everywhere(before, key, changed):
    return True


def applied_is_newest(state, view):
    span = state.spans.get(view)
    applied = state.applied.get(view, 0)
    return span is not None and (applied is None or span.newest <= applied)


ask, take_in, deletes, load = Coordinator._calls, Coordinator._answered, states.writer_deletes, State.of


def ask_once(coordinator, state, base, now_us):
    for flight in coordinator._flights.values():
        flight.asked_us = now_us if flight.asked_us is not None else None
    return ask(coordinator, state, base, now_us)


def all_are_finished(coordinator, answer, state, now_us):
    flight = coordinator._flights.get(answer.replica)
    asked = frozenset() if flight is None else frozenset(flight.ids)
    take_in(coordinator, WorkerAnswer(replica=answer.replica, finished=answer.finished | asked), state, now_us)


def backfilling_deletes_nothing(state):
    return state is not Permission.BACKFILLING and deletes(state)


def keep_old_entries(state):
    return False


def load_without_guard(tasks, **known):
    return load(tasks, **(known | {"unmoved": {}}))


def without_write_and_delete(state):
    return Permission.BACKFILLING


class AnyStep:
    """A life cycle in which every step is allowed."""

    def step(self, *_):
        pass


changes = build_tasks.changes


def forget_nothing(relation):
    return ()


def replace_all_segments(state, update, version, created):
    if isinstance(update, c.ReplaceSegments):
        update = replace(update, seen=len(build_tasks.segments_of(state, update.view, update.tokens)))
    return changes(state, update, version, created)


def see_nothing(worker, state):
    return []


def lose_tasks(tasks, tokens, source, target, new_id):
    return ()


def cut_nothing(before, ranges):
    return before


def first_halves(tasks, placement, new_id):
    found = in_map(tasks, placement, new_id)
    return [task for task in found if task.tokens.first in {other.tokens.first for other in tasks}]


MISTAKES = {
    "an epoch takes newer segments back to its version": (segments, "advance", advance_everything),
    "an epoch applies changes that a chunk has read, or will read": (segments, "applies", applies_everywhere),
    "a chunk that an epoch did not see counts as applied": (State, "is_level", applied_is_newest),
    "a call that was lost is not repeated": (Coordinator, "_calls", ask_once),
    "an answer finishes all that was asked for": (Coordinator, "_answered", all_are_finished),
    "a worker does not see that tasks are aborted or gone": (Worker, "observed", see_nothing),
    "aborted tasks are not replaced when their tablet has arrived": (task_moves, "arrive", lose_tasks),
    "a split leaves what is covered in one piece": (build_tasks, "cut_at", cut_nothing),
    "a split leaves the second half of a tablet without a task": (build_tasks, "in_map", first_halves),
    "a writer removes nothing while an index is filled": (model, "writer_deletes", backfilling_deletes_nothing),
    "a view is marked built though an epoch has moved it": (State, "of", load_without_guard),
    "tombstones from before t_read stay": (world, "begins_empty", keep_old_entries),
    "an index skips WRITE_AND_DELETE": (world, "forward", without_write_and_delete),
    "the catalog keeps what a dropped view has": (build_tasks, "forget", forget_nothing),
    "the catalog lets an epoch replace segments that it has not seen": (build_tasks, "changes", replace_all_segments),
}

FOUND_BY = {
    "a view is marked built though an epoch has moved it": 2054,
    "tombstones from before t_read stay": 687,
}
"""Seeds that found what hardly any other does. Put in another one when the simulation has changed."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    where, what, mistake = MISTAKES[name]
    monkeypatch.setattr(where, what, mistake)
    if mistake is without_write_and_delete:  # which the catalog refuses
        monkeypatch.setattr(index_states, "LIFE", AnyStep())
    with pytest.raises(AssertionError, match=r"seed \d+ at .* INV-BUILD-\d: .*\nfaults: .*\nagain: "):
        list(map(run, [FOUND_BY[name]] if name in FOUND_BY else range(100)))
