"""Guarded commits: versions, history, lost races. One suite, both databases."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from ebla.base.ids import NodeId, Term, Version
from ebla.catalog import memory, reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, DuplicateNameError, StaleTermError
from ebla.model import changes as c
from support.catalogs import NODE, Clock, add, commit, create, dump, exclusively, new_relation, relation, run
from support.processes import Processes


def history(catalog: Catalog) -> list[tuple[int, str, str, int]]:
    with catalog.reading() as connection:
        query = select(s.history.c.version, s.history.c.kind, s.history.c.reason, s.history.c.committed_at)
        return [tuple(row) for row in connection.execute(query.order_by(s.history.c.version))]


def exclusive_version(catalog: Catalog) -> int:
    with catalog.reading() as connection:
        return memory.counters(connection)["exclusive_version"]


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """Run `work(0)` … `work(count - 1)` so that all begin at once; an exception becomes a result."""
    gate = threading.Barrier(count)

    def one(number: int) -> object:
        gate.wait()
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


# ---- one commit -----------------------------------------------------------------------------------------


def test_a_commit_gets_the_next_version_and_a_history_row(catalog: Catalog, clock: Clock):
    target = create(catalog, "orders")
    before = catalog.version()
    clock.advance(5)
    decision = c.Decision(
        reason="write 10 rows",
        updates=(c.AddRuns(runs=(run(target.id),)),),
        relation=target.id,
    )
    committed = catalog.commit(decision, node=NODE)
    assert committed.version == before + 1 == catalog.version()
    assert committed.committed_at == clock.now_us
    with catalog.reading() as connection:
        row = connection.execute(select(s.history).where(s.history.c.version == committed.version)).one()
    assert (row.kind, row.reason, row.node_id, row.relation_id) == ("data", "write 10 rows", NODE, target.id)
    assert row.committed_at == clock.now_us


def test_creating_a_relation_returns_its_identifier_and_names_it_in_history(catalog: Catalog):
    committed = exclusively(catalog, new_relation("orders"))
    assert committed.relation == relation(catalog, "orders").id
    with catalog.reading() as connection:
        found = connection.execute(select(s.history).where(s.history.c.version == committed.version)).one()
    assert (found.relation_id, found.kind) == (committed.relation, "exclusive")


def test_only_exclusive_commits_move_the_exclusive_version(catalog: Catalog):
    target = create(catalog, "orders")
    assert exclusive_version(catalog) == catalog.version()
    before = exclusive_version(catalog)
    add(catalog, run(target.id))
    assert exclusive_version(catalog) == before < catalog.version()


def test_a_stale_exclusive_commit_is_refused_and_changes_nothing(catalog: Catalog):
    stale = exclusive_version(catalog)
    create(catalog, "orders")
    found, before = exclusive_version(catalog), dump(catalog)
    decision = c.Decision(
        reason="create too late",
        updates=(new_relation("late"), c.SetProgress(name="p", value="1")),
        requires=(c.ExclusiveVersionIs(version=Version(stale)),),
        exclusive=True,
    )
    with pytest.raises(ConflictError, match=f"expected version {stale}, found {found}"):
        catalog.commit(decision)
    assert dump(catalog) == before


def test_data_commits_do_not_disturb_an_exclusive_decision(catalog: Catalog):
    target = create(catalog, "orders")
    calls = []

    def make(connection: Connection, at: Version) -> c.Decision:
        calls.append(at)
        add(catalog, run(target.id))
        return c.Decision(reason="create", updates=(new_relation("customers"),))

    assert catalog.decide(make) is not None
    assert len(calls) == 1


def test_an_update_that_fails_undoes_the_ones_before_it(catalog: Catalog):
    create(catalog, "orders")
    before = dump(catalog)
    updates = (c.SetProgress(name="p", value="1"), new_relation("customers"), new_relation("ORDERS"))
    with pytest.raises(DuplicateNameError, match="ORDERS: expected a free name"):
        catalog.commit(c.Decision(reason="test", updates=updates, exclusive=True))
    assert dump(catalog) == before


def test_times_grow_strictly_even_when_the_clock_stands_or_goes_back(catalog: Catalog, clock: Clock):
    for step in (0, 0, -1000, 5, -3, 2000, 0):
        clock.advance(step)
        commit(catalog, c.SetProgress(name="p", value="1"))
    times = [row[3] for row in history(catalog)]
    assert all(a < b for a, b in itertools.pairwise(times))


# ---- deciding -------------------------------------------------------------------------------------------


def test_deciding_nothing_commits_nothing(catalog: Catalog):
    before = dump(catalog)
    assert catalog.decide(lambda connection, at: None) is None
    assert dump(catalog) == before


def test_a_lost_race_reloads_and_decides_again(catalog: Catalog):
    seen: list[tuple[Version, list[str]]] = []

    def make(connection: Connection, at: Version) -> c.Decision:
        names = reads.relation_names(connection)
        seen.append((at, names))
        if len(seen) == 1:
            create(catalog, "first")
        return c.Decision(reason=f"saw {names}", updates=(new_relation(f"after_{len(names)}"),))

    committed = catalog.decide(make, node=NodeId("node9"))
    assert committed is not None
    assert [names for _, names in seen] == [[], ["first"]]
    assert seen[0][0] < seen[1][0]
    assert history(catalog)[-1][:3] == (committed.version, "exclusive", "saw ['first']")
    assert relation(catalog, "after_1").id == committed.relation


def test_the_last_attempt_cannot_lose(catalog: Catalog):
    """Each earlier attempt loses; during the last one the competitor waits until the decision is committed."""
    attempts = 3
    calls = 0
    competitors: list[threading.Thread] = []

    def make(connection: Connection, at: Version) -> c.Decision:
        nonlocal calls
        calls += 1
        competitor = threading.Thread(target=create, args=(catalog, f"competitor{calls}"))
        competitor.start()
        competitor.join(None if calls < attempts else 0.2)
        competitors.append(competitor)
        return c.Decision(reason="at last", updates=(new_relation("mine"),))

    committed = catalog.decide(make, attempts=attempts)
    for competitor in competitors:
        competitor.join()
    assert committed is not None
    assert calls == attempts
    assert committed.version < relation(catalog, f"competitor{attempts}").created_version


def test_what_cannot_be_mended_by_reloading_is_not_tried_again(catalog: Catalog):
    calls = 0

    def make(connection: Connection, at: Version) -> c.Decision:
        nonlocal calls
        calls += 1
        return c.Decision(reason="test", updates=(), requires=(c.TermIs(lease="leader", holder="me", term=Term(1)),))

    with pytest.raises(StaleTermError):
        catalog.decide(make)
    assert calls == 1


# ---- many at once ---------------------------------------------------------------------------------------


def test_threads_create_relations_of_different_names(catalog: Catalog):
    threads, each = 6, 5

    def work(number: int) -> None:
        for i in range(each):
            create(catalog, f"t{number}_{i}")

    assert in_threads(threads, work) == [None] * threads
    with catalog.reading() as connection:
        assert len(reads.relation_names(connection)) == threads * each
    versions = [row[0] for row in history(catalog)]
    assert versions == list(range(1, catalog.version() + 1))


def test_five_threads_create_one_name(catalog: Catalog):
    results = in_threads(5, lambda number: create(catalog, "orders" if number % 2 else "ORDERS"))
    duplicates = [r for r in results if isinstance(r, DuplicateNameError)]
    assert len(duplicates) == 4, results
    with catalog.reading() as connection:
        assert len(reads.relation_names(connection)) == 1


@pytest.mark.process
def test_processes_create_relations_of_different_names(catalog: Catalog, processes: Processes, tmp_path: Path):
    gate, count, each = tmp_path / "gate", 4, 6
    children = [
        processes.start("support.catalog_tasks:create_relations", catalog.where, f"p{n}_", each, str(gate))
        for n in range(count)
    ]
    gate.touch()
    said = [line for child in children for line in child.finish()]
    assert sorted(said) == sorted(f"created p{n}_{i}" for n in range(count) for i in range(each))
    with catalog.reading() as connection:
        assert len(reads.relation_names(connection)) == count * each


@pytest.mark.process
def test_five_processes_create_the_same_names(catalog: Catalog, processes: Processes, tmp_path: Path):
    gate, names = tmp_path / "gate", 4
    children = [
        processes.start("support.catalog_tasks:create_relations", catalog.where, "same", names, str(gate))
        for _ in range(5)
    ]
    gate.touch()
    said = [line for child in children for line in child.finish()]
    assert sorted(line for line in said if line.startswith("created")) == [f"created same{n}" for n in range(names)]
    assert len([line for line in said if line.startswith("duplicate")]) == 4 * names


def test_data_commits_do_not_conflict_with_each_other(catalog: Catalog):
    threads, each = 6, 12
    target = create(catalog, "orders")
    before = catalog.version()

    def work(number: int) -> list[int]:
        return [add(catalog, run(target.id, id=f"w{number}-{i}"), run(target.id)) for i in range(each)]

    results = in_threads(threads, work)
    versions = [version for result in results if isinstance(result, list) for version in result]
    assert sorted(versions) == list(range(before + 1, before + 1 + threads * each)), results
    assert all(result == sorted(result) for result in results if isinstance(result, list))
    rows = history(catalog)
    assert [row[0] for row in rows] == list(range(1, catalog.version() + 1))
    assert all(a[3] < b[3] for a, b in itertools.pairwise(rows))
    with catalog.reading() as connection:
        runs = connection.execute(select(s.runs.c.run_id, s.runs.c.begin_version)).all()
    begins = [begin for _, begin in runs]
    assert len(runs) == 2 * threads * each
    assert sorted(set(begins)) == sorted(versions)
    assert all(begins.count(version) == 2 for version in versions)


def test_a_reader_sees_whole_commits_while_writers_commit(catalog: Catalog):
    """Inside one read the version, the history and the manifest belong together."""
    target = create(catalog, "orders")

    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            add(catalog, run(target.id), run(target.id))

    seen: set[Version] = set()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            while len(seen) < 20 and not writer.done():
                with catalog.reading() as connection:
                    version = reads.current_version(connection)
                    found = reads.snapshot(connection, target)
                    newest = connection.execute(select(func.max(s.history.c.version))).scalar()
                assert found.version == version == newest
                assert len(found.level0) == 2 * (version - target.created_version)
                seen.add(version)
        finally:
            enough.set()
        writer.result()
