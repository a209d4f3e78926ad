"""The history is trimmed, and nothing that was asked of it gets another answer, on both databases."""

from __future__ import annotations

import pytest

from ebla.base.ids import Version
from ebla.catalog import history, reads
from ebla.catalog.store import Catalog
from ebla.errors import SnapshotError
from ebla.model import changes as c
from support.catalogs import SECOND_US, Clock, add, commit, create, exclusively, relation, run


def written(catalog: Catalog, name: str, clock: Clock) -> Version:
    """A write whose runs vacuum has forgotten."""
    clock.advance(SECOND_US)
    target, updates = relation(catalog, name).id, (c.SetProgress(name="position", value=str(clock())),)
    return catalog.commit(c.Decision(reason=f"write {name}", updates=updates, relation=target)).version


def trim(catalog: Catalog, until: Version) -> None:
    with catalog.reading() as connection:
        kept = history.last_of_each(connection, until)
    with catalog.writing() as connection:
        history.trim(connection, until, kept)


def versions(catalog: Catalog) -> list[int]:
    with catalog.reading() as connection:
        return [version for version in range(1, catalog.version() + 1) if history.commit(connection, version)]


def test_the_last_commit_of_each_relation_stays(catalog: Catalog, clock: Clock):
    for name in ("orders", "other", "gone"):
        create(catalog, name)
    other, gone = written(catalog, "other", clock), written(catalog, "gone", clock)
    exclusively(catalog, c.DropRelation(relation=relation(catalog, "gone").id))
    numbers = [written(catalog, "orders", clock) for _ in range(5)]
    with catalog.reading() as connection:
        before = history.last_writes(connection)
    trim(catalog, numbers[3])
    left = versions(catalog)
    assert {other, *numbers[3:]} <= set(left)
    assert not {gone, *numbers[:3]} & set(left)
    with catalog.reading() as connection:
        last = history.last_writes(connection)
        assert last == {number: at for number, at in before.items() if number in last}
        assert history.complete_since(connection) == numbers[3]
    trim(catalog, numbers[1])
    assert versions(catalog) == left, "what is complete stays so"


def test_a_view_that_stops_was_not_written(catalog: Catalog):
    """What reads it is not behind it, and the commit that last wrote its rows stays when the history is trimmed."""
    create(catalog, "card")
    card = relation(catalog, "card").id
    [wrote, *others] = [
        catalog.commit(c.Decision(reason="keep card", updates=(), relation=card, work=work)).version
        for work in (c.WorkKind.EPOCH, c.WorkKind.EPOCH_FAILURE, c.WorkKind.BUILD_FAILURE)
    ]
    end = commit(catalog).version
    for _ in range(2):
        with catalog.reading() as connection:
            assert history.last_writes(connection)[card] == wrote
        trim(catalog, end)
    assert {wrote, others[-1]} <= set(versions(catalog))


def test_the_history_of_a_build_says_that_it_failed(catalog: Catalog):
    create(catalog, "card")
    for work in c.WorkKind:
        catalog.commit(c.Decision(reason=f"{work} of card", updates=(), work=work))
    with catalog.reading() as connection:
        found = [row.reason for row in history.newest(connection, 20, of_builds=True)]
    assert found == ["build_failure of card", "build of card"]


def test_epochs_and_chunks_of_a_view_are_found_by_what_they_are(catalog: Catalog):
    """No reason is read: a table may be called as one begins."""
    create(catalog, "epoch of card")
    number = relation(catalog, "epoch of card").id
    for work in (None, *c.WorkKind):
        catalog.commit(c.Decision(reason=f"epoch of card {work}", updates=(), relation=number, work=work))
    with catalog.reading() as connection:
        found = [row.reason.removeprefix("epoch of card ") for row in history.epochs(connection, number, 20)]
    assert sorted(found) == ["build_failure", "chunk", "epoch", "epoch_failure"]


def test_a_time_of_which_commits_are_missing_is_refused(catalog: Catalog, clock: Clock):
    create(catalog, "orders")
    create(catalog, "other")
    written(catalog, "other", clock)
    numbers = [written(catalog, "orders", clock) for _ in range(4)]
    with catalog.reading() as connection:
        times = reads.committed_at(connection, numbers)
    trim(catalog, numbers[2])
    with catalog.reading() as connection:
        assert reads.version_at(connection, times[numbers[2]] + SECOND_US // 2) == numbers[2]
        for time_us in (times[numbers[1]], times[numbers[2]] - 1):
            with pytest.raises(SnapshotError, match="since the oldest commit that vacuum has kept"):
                reads.version_at(connection, time_us)


def test_what_is_not_known_any_more_counts_as_written(catalog: Catalog, clock: Clock):
    """An epoch then looks, and finds nothing; the other way round it would miss a write."""
    create(catalog, "orders")
    orders = relation(catalog, "orders").id
    numbers = [written(catalog, "orders", clock) for _ in range(4)]
    create(catalog, "other")
    late = written(catalog, "other", clock)
    trim(catalog, numbers[2])
    with catalog.reading() as connection:
        assert history.newest_of(connection, orders, numbers[1]) == numbers[1]
        assert history.newest_of(connection, orders, numbers[2]) == numbers[2]
        assert history.newest_of(connection, orders, late) == numbers[3]
        assert history.newest_of(connection, relation(catalog, "other").id, late) == late


def test_commits_of_runs_that_are_named_keep_their_times(catalog: Catalog, clock: Clock):
    create(catalog, "orders")
    orders = relation(catalog, "orders")
    numbers = []
    for _ in range(3):
        clock.advance(SECOND_US)
        numbers.append(add(catalog, run(orders.id)))
    with catalog.reading() as connection:
        times = reads.committed_at(connection, numbers)
    trim(catalog, numbers[2])
    with catalog.reading() as connection:
        assert reads.committed_at(connection, numbers) == times
        assert len(reads.writes_between(connection, orders, Version(0), numbers[2])) == 3
        with pytest.raises(SnapshotError):
            reads.version_at(connection, times[numbers[1]])


def test_a_commit_that_was_trimmed_has_the_time_of_the_last_one_before(catalog: Catalog, clock: Clock) -> None:
    first = commit(catalog)
    clock.advance(SECOND_US)
    second, third = commit(catalog), commit(catalog)
    with catalog.writing() as connection:
        history.trim(connection, third.version, [int(first.version)])
    with catalog.reading() as connection:
        assert reads.time_of(connection, second.version) == first.committed_at
        assert reads.time_of(connection, third.version) == third.committed_at
