"""A cluster changes its shape under faults, and nothing acknowledged is lost: `docs/internals/simulation.md`."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

import pytest

from ebla.catalog import guards, rows, runs, sessions, transitions
from ebla.model import changes as c
from ebla.model import relation, task_moves
from ebla.model.lifecycle.tablet import NEW, Stage, reads_from
from ebla.model.scopes import of_relation
from ebla.topology import barrier, coordinator, load, loader
from simulation.cluster import run

SEEDS = int(os.environ.get("EBLA_SIMULATION_SEEDS", "1000"))
PARTS = 20

HAPPENS = {
    "copies committed",
    "disks lost",
    "files copied",
    "files swept",
    "folds",
    "indexes built",
    "join done",
    "joins that were asked for again",
    "late commits",
    "leave done",
    "move done",
    "move failed",
    "new_cdc_generation done",
    "processes died",
    "reads",
    "rebuild done",
    "remove done",
    "replace done",
    "replication done",
    "requests refused at once",
    "requests that met an error",
    "resize done",
    "resizes",
    "runs cut",
    "staged runs",
    "statements",
    "statements beside a stage",
    "tasks finished",
    "transitions begun",
    "transitions ended by cleanup",
    "transitions ended by revert_migration",
    "views built",
    "writes acknowledged",
    "writes refused: ConflictError",
    "writes refused: StorageError",
    "writes refused: TransactionClosedError",
}


FOUND = {
    50565: "a merge by size waited for balancing, which was off, to bring its tablets together",
    51102: "the simulation took a node that asked to join at the last moment for one that nothing answers",
}
"""Seeds beyond those of the tests that failed once, and what they found."""


@pytest.fixture(autouse=True)
def quiet():
    """Every fault is logged, and there are many."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    yield
    logging.disable(before)


@pytest.mark.parametrize("part", range(PARTS))
def test_seeds(part: int):
    for seed in range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS):
        run(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_mistake(seed: int):
    run(seed)


def test_everything_happens():
    counts: Counter[str] = Counter()
    for seed in range(60):
        counts += run(seed).catalog.counts
        if counts.keys() >= HAPPENS:
            return
    assert not HAPPENS - counts.keys(), "the simulation does not do what it is for"


def test_a_seed_gives_the_same_run_every_time():
    one, other = run(7), run(7)
    assert (one.steps, one.now, one.catalog.counts) == (other.steps, other.now, other.catalog.counts)


# ---- the simulation finds what it is for ----------------------------------------------------------------


require_session, begin, places = sessions.require_session, transitions._begin, load.Load.places


def all_know_the_last(topology):
    return topology.version


def any_session(state, requirement, now):
    if not isinstance(requirement, c.SessionOpen):
        require_session(state, requirement, now)


def any_term(state, wanted, now):
    """A leader of an older term commits."""


def refuse_nothing(*_):
    """What is too few, or incomplete, is enough."""


def nothing_lacks(state, one):
    return 0


def new_while_streaming(stage):
    return NEW if stage is Stage.STREAMING else reads_from(stage)


def begin_again(state, new, version):
    """A transition takes the place of another one of the same tablet."""
    return (rows.delete(transitions._table, **transitions._key(new.tablet)), *begin(state, new, version))


def all_places(scratch, layout):
    scratch.moving = {}
    return places(scratch, layout)


def keep_copies(*_):
    return []


def resizes_alone(topology, request):
    return request.kind == "resize"


def of_relation_of(relation, tablet):
    return of_relation(relation)


def lose_tasks(tasks, tokens, source, target, new_id):
    return ()


MISTAKES: dict[str, list[tuple[Any, str, Any]]] = {
    "a stage is left before its barrier holds": [(barrier, "holds_up_to", all_know_the_last)],
    "a copy is committed though its session is closed": [(sessions, "require_session", any_session)],
    "an old leader commits": [(sessions, "_check_term", any_term)],
    "a write with too few copies is committed": [(runs, "_refuse_too_few_copies", refuse_nothing)],
    "the pending replica is read while it is copied to": [(relation, "reads_from", new_while_streaming)],
    "readers go over to a replica that lacks runs": [
        (loader, "_count_missing", nothing_lacks),
        (transitions, "refuse_incomplete", refuse_nothing),
    ],
    "two transitions of one tablet": [(load.Load, "places", all_places), (transitions, "_begin", begin_again)],
    "copies of a replica that left stay in the manifest": [(transitions, "without_copies", keep_copies)],
    "a resize and a move wait for each other": [(coordinator, "_leaves_free", resizes_alone)],
    "a stage of a tablet is in the way of statements": [(guards, "of_tablet", of_relation_of)],
    "aborted tasks are not replaced when their tablet has arrived": [(task_moves, "arrive", lose_tasks)],
}
SEEN = {"a copy is committed though its session is closed": 200}
"""From which seed on to look, where a mistake shows in about one of a hundred of them."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    for where, what, mistake in MISTAKES[name]:
        monkeypatch.setattr(where, what, mistake)
    first = SEEN.get(name, 0)
    with pytest.raises(AssertionError, match=r"seed \d+ at .* INV-(TOPO|BUILD)-\d+: .*\nfaults: .*\nagain: "):
        list(map(run, range(first, first + 120)))
