"""Crashes: whenever a process dies, the catalog is as it was before the commit, or as it is after it."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import select

from ebla.base.failpoint import EXIT_CODE
from ebla.catalog import apply, memory, migrations, store
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.model import changes as c
from ebla.model.relation import FOREVER
from support import catalog_tasks as tasks
from support.catalogs import NODE, Clock, create, dump
from support.processes import Processes

pytestmark = pytest.mark.process

OWN = ("meta", "migrations")
"""Tables that hold a random id and the time of creation."""

KILLS = 6


def failpoints_of(module: object) -> set[str]:
    source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]
    return set(re.findall(r'hit\("([^"]+)"\)', source))


@pytest.fixture
def prepared(empty_catalog: Catalog) -> Catalog:
    tasks.prepare(empty_catalog)
    return empty_catalog


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog in the same state, to which the same happens without a crash."""
    catalog = Catalog.open(str(tmp_path / "twin"), clock=Clock())
    tasks.prepare(catalog)
    yield catalog
    catalog.close()


def test_the_decision_below_has_every_kind_of_update(twin: Catalog):
    kinds = {type(change) for change in tasks.every_update(twin).updates}
    assert kinds == set(get_args(c.Update))


def test_a_crash_between_any_two_statements_of_a_commit(prepared: Catalog, twin: Catalog, processes: Processes):
    updates = len(tasks.every_update(twin).updates)
    inside = [
        "catalog.commit.begun=exit",
        "catalog.commit.checked=exit",
        *(f"catalog.commit.applied=exit@{n}" for n in range(1, updates + 1)),
        "catalog.commit.before_commit=exit",
    ]
    after = "catalog.commit.done=exit"
    assert {point.partition("=")[0] for point in (*inside, after)} == failpoints_of(store) | failpoints_of(apply)
    before = dump(prepared)
    for point in inside:
        assert processes.run("support.catalog_tasks:commit_everything", prepared.where, failpoints=point) == EXIT_CODE
        assert dump(prepared) == before, point
    assert processes.run("support.catalog_tasks:commit_everything", prepared.where, failpoints=after) == EXIT_CODE
    twin.commit(tasks.every_update(twin), node=NODE)
    assert dump(prepared, without=OWN) == dump(twin, without=OWN)


def test_a_failpoint_beyond_the_last_update_is_never_hit(prepared: Catalog, twin: Catalog, processes: Processes):
    """So the test above has stopped at every one of them."""
    beyond = len(tasks.every_update(twin).updates) + 1
    point = f"catalog.commit.applied=exit@{beyond}"
    assert processes.run("support.catalog_tasks:commit_everything", prepared.where, failpoints=point) == 0


@pytest.mark.parametrize("point", sorted(failpoints_of(migrations)))
def test_a_crash_during_the_first_migration_leaves_an_empty_catalog(catalog_url: str, processes: Processes, point: str):
    assert processes.run("support.catalog_tasks:open_only", catalog_url, failpoints=f"{point}=exit") == EXIT_CODE
    catalog = Catalog.open(catalog_url)
    with catalog.reading() as connection:
        numbers = connection.execute(select(s.migrations.c.number)).scalars().all()
        formats = connection.execute(select(s.meta.c.value).where(s.meta.c.key == "format")).scalars().all()
    assert numbers == [m.number for m in migrations.MIGRATIONS]
    assert formats == [migrations.FORMAT]
    assert catalog.version() == 0
    create(catalog, "orders")
    catalog.close()


def test_killed_at_random_moments(catalog: Catalog, processes: Processes):
    """Two processes commit in a loop; they are killed, again and again, in the middle of whatever they are doing."""
    create(catalog, "orders")
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    acknowledged: list[int] = []
    for _ in range(KILLS):
        children = [processes.start("support.catalog_tasks:commit_forever", catalog.where, f"p{n}") for n in range(2)]
        for child in children:
            acknowledged += [int(child.line()) for _ in range(rng.randint(1, 4))]
        moment = time.perf_counter() + rng.uniform(0, 0.01)
        while time.perf_counter() < moment:
            pass
        for child in children:
            child.kill()
            acknowledged += [int(line) for line in child.rest() if line]
            child.close()
        require_whole_commits(catalog, acknowledged)
    assert len(acknowledged) == len(set(acknowledged)) >= 2 * KILLS


def require_whole_commits(catalog: Catalog, acknowledged: list[int]) -> None:
    with catalog.reading() as connection:
        version = memory.counters(connection)["version"]
        history = {r.version: r for r in connection.execute(select(s.history))}
        runs = connection.execute(select(s.runs.c.run_id, s.runs.c.begin_version, s.runs.c.end_version)).all()
        transactions = {r.transaction_id: r for r in connection.execute(select(s.transactions))}
        progress = connection.execute(select(s.progress).where(s.progress.c.name == "loop")).one()
        assert memory.counters(connection)["transaction"] == max(transactions)
    assert set(history) == set(range(1, version + 1))
    assert set(acknowledged) <= set(history)
    loop = {v: row for v, row in history.items() if row.kind == "data"}
    wanted = {
        (f"t{row.transaction_id}-{n}", v, FOREVER) for v, row in loop.items() for n in range(tasks.RUNS_PER_COMMIT)
    }
    assert {tuple(r) for r in runs} == wanted
    committed = {t: r.committed_version for t, r in transactions.items() if r.state == "committed"}
    assert committed == {row.transaction_id: v for v, row in loop.items()}
    assert {r.state for r in transactions.values()} <= {"committed", "open"}
    assert (progress.version, progress.value) == (version, history[version].reason)
