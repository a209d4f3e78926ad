"""Group commit: what waits at the same moment shares a database transaction, and each has its own outcome."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, select

from ebla.base.failpoint import EXIT_CODE
from ebla.base.ids import NodeId, RelationId, TransactionId
from ebla.catalog import memory
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import CatalogUnavailableError, ConflictError, TransactionClosedError
from ebla.model import changes as c
from support import catalog_tasks as tasks
from support.catalogs import add, create, dump, relation, run
from support.processes import Processes

SECOND_US = 1_000_000


def write(catalog: Catalog, target: RelationId, number: int, *requires: c.Requirement) -> Callable[[], c.CommitRecord]:
    decision = c.Decision(
        reason=f"write {number}", relation=target, requires=requires, updates=(c.AddRuns(runs=(run(target),)),)
    )
    return lambda: catalog.commit(decision)


def reasons(catalog: Catalog) -> dict[int, str]:
    with catalog.reading() as connection:
        return {row.version: row.reason for row in connection.execute(select(s.history).order_by(s.history.c.version))}


def test_writes_that_wait_share_a_transaction_and_have_versions_of_their_own(catalog: Catalog) -> None:
    target = create(catalog, "orders")
    before, version = catalog.queue.counts, catalog.version()
    done = tasks.together(catalog, [write(catalog, target.id, n) for n in range(5)])
    after = catalog.queue.counts
    assert (after.changes - before.changes, after.transactions - before.transactions) == (5, 1)
    versions = [one.version for one in done if isinstance(one, c.CommitRecord)]
    assert versions == list(range(version + 1, version + 6))
    assert [reasons(catalog)[v] for v in versions] == [f"write {n}" for n in range(5)]
    times = [one.committed_at for one in done if isinstance(one, c.CommitRecord)]
    assert times == sorted(set(times))


def test_one_that_is_refused_leaves_the_others_alone(catalog: Catalog) -> None:
    """Among writers that read what they write over, the second has lost to the first, and the third to none."""
    target, other = create(catalog, "orders"), create(catalog, "customers")
    version = catalog.version()
    unchanged = c.NoWritesSince(relation=target.id, version=version)
    closed = c.TransactionOpen(transaction=TransactionId(4711))
    done = tasks.together(
        catalog,
        [
            write(catalog, target.id, 0, unchanged),
            write(catalog, target.id, 1, unchanged),
            write(catalog, other.id, 2, closed),
            write(catalog, other.id, 3),
        ],
    )
    assert [type(one) for one in done] == [c.CommitRecord, ConflictError, TransactionClosedError, c.CommitRecord]
    assert [one.version for one in done if isinstance(one, c.CommitRecord)] == [version + 1, version + 2]
    assert catalog.version() == version + 2
    assert list(reasons(catalog).values())[-2:] == ["write 0", "write 3"]


def test_transactions_begin_and_relations_are_created_in_a_group(catalog: Catalog) -> None:
    target = create(catalog, "orders")

    def begin() -> object:
        return tx.begin_on(
            catalog, "orders", lambda connection, found: memory.counters(connection)["version"], node=NodeId("node1"),
            holder="test", reason="write", lease_us=SECOND_US,
        )  # fmt: skip

    version = catalog.version()
    done = tasks.together(
        catalog,
        [
            begin,
            write(catalog, target.id, 0),
            lambda: create(catalog, "customers"),
            lambda: create(catalog, "ORDERS"),
            begin,
        ],
    )
    first, written, customers, refused, last = done
    assert isinstance(first, tuple)
    assert isinstance(last, tuple)
    assert (first[1].snapshot, first[2]) == (version, version)
    assert first[1].id != last[1].id
    assert isinstance(written, c.CommitRecord)
    assert customers == relation(catalog, "customers")
    assert isinstance(refused, Exception)
    with catalog.reading() as connection:
        opened = tx.open_transactions(connection)
        counters = memory.counters(connection)
    assert {first[1].id, last[1].id} <= opened
    assert counters["transaction"] == max(opened)
    assert counters["version"] == max(reasons(catalog)) == version + 2


def test_a_database_that_fails_in_a_group_fails_none_that_can_be_done(catalog: Catalog) -> None:
    target = create(catalog, "orders")
    version = catalog.version()

    def broken(connection: Connection) -> None:
        connection.exec_driver_sql("SELECT * FROM there_is_no_such_table")

    done = tasks.together(
        catalog,
        [write(catalog, target.id, 0), lambda: catalog.change(broken), write(catalog, target.id, 1)],
    )
    assert [isinstance(one, c.CommitRecord) for one in done] == [True, False, True]
    assert isinstance(done[1], Exception)
    assert catalog.version() == version + 2
    assert list(reasons(catalog).values())[-2:] == ["write 0", "write 1"]


def test_a_commit_whose_answer_was_lost_is_found_by_each_of_the_group(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = create(catalog, "orders")
    version = catalog.version()
    transaction = catalog.queue._transaction
    is_lost = iter([False, True])  # the first is the one behind which they wait

    @contextlib.contextmanager
    def silent() -> Iterator[Connection]:
        with transaction() as connection:
            yield connection
        if next(is_lost, False):
            raise CatalogUnavailableError("expected an answer, found silence")

    monkeypatch.setattr(catalog.queue, "_transaction", silent)
    done = tasks.together(catalog, [write(catalog, target.id, n) for n in range(3)])
    assert [one.version for one in done if isinstance(one, c.CommitRecord)] == [version + 1, version + 2, version + 3]
    assert catalog.version() == version + 3


def test_when_the_database_is_gone_every_one_of_the_group_says_so(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = create(catalog, "orders")
    version = catalog.version()
    asked: list[int] = []
    begin = catalog._begin_write

    def gone() -> Connection:
        asked.append(1)
        if len(asked) == 1:
            return begin()
        raise CatalogUnavailableError("expected a database that answers, found none")

    monkeypatch.setattr(catalog, "_begin_write", gone)
    done = tasks.together(catalog, [write(catalog, target.id, n) for n in range(4)])
    assert [type(one) for one in done] == [CatalogUnavailableError] * 4
    assert len(asked) == 3  # to hold it, for the group, and for the first of them alone
    monkeypatch.undo()
    assert catalog.version() == version


def test_threads_that_write_at_once_need_fewer_transactions_than_writes(catalog: Catalog) -> None:
    """Some read what they write over and start over when they lost; all get through, each once."""
    target = create(catalog, "orders")
    threads, each = 6, 10
    gate = threading.Barrier(threads)
    version, before = catalog.version(), catalog.queue.counts

    def work(thread: int) -> list[int]:
        gate.wait()
        return [insist(thread * each + n) for n in range(each)]

    def insist(number: int) -> int:
        while True:
            unchanged = c.NoWritesSince(relation=target.id, version=catalog.version())
            requires = (unchanged,) if number % 3 == 0 else ()
            try:
                return write(catalog, target.id, number, *requires)().version
            except ConflictError:
                continue

    with ThreadPoolExecutor(threads) as pool:
        versions = sorted(v for part in pool.map(work, range(threads)) for v in part)
    after = catalog.queue.counts
    assert versions == list(range(version + 1, version + 1 + threads * each))
    assert sorted(list(reasons(catalog).values())[-threads * each :]) == sorted(
        f"write {n}" for n in range(threads * each)
    )
    assert after.transactions - before.transactions < after.changes - before.changes


def test_a_lone_write_does_not_wait(catalog: Catalog) -> None:
    target = create(catalog, "orders")
    before = catalog.queue.counts
    add(catalog, run(target.id))
    after = catalog.queue.counts
    assert (after.changes - before.changes, after.transactions - before.transactions) == (1, 1)


def test_a_change_within_a_change_is_refused_and_stops_no_other(catalog: Catalog) -> None:
    target = create(catalog, "orders")
    inner = write(catalog, target.id, 1)
    for begun in (lambda: catalog.change(lambda _: inner()), lambda: _within_writing(catalog, inner)):
        with pytest.raises(RuntimeError, match="one change of the catalog at a time"):
            begun()
    assert write(catalog, target.id, 2)().version == catalog.version()


def _within_writing(catalog: Catalog, inner: Callable[[], c.CommitRecord]) -> c.CommitRecord:
    with catalog.writing():
        return inner()


# ---- crashes --------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    "point",
    ["catalog.commit.applied=exit@2", "catalog.commit.before_commit=exit@2", "catalog.commit.before_commit=exit@3"],
)
def test_a_crash_within_a_group_leaves_none_of_it(catalog: Catalog, processes: Processes, point: str) -> None:
    create(catalog, "orders")
    before = dump(catalog)
    assert processes.run("support.catalog_tasks:commit_together", catalog.where, failpoints=point) == EXIT_CODE
    assert dump(catalog) == before


@pytest.mark.process
def test_a_crash_behind_a_group_leaves_all_of_it(catalog: Catalog, processes: Processes) -> None:
    create(catalog, "orders")
    version = catalog.version()
    point = "catalog.commit.done=exit"
    assert processes.run("support.catalog_tasks:commit_together", catalog.where, failpoints=point) == EXIT_CODE
    assert catalog.version() == version + tasks.GROUP
    with catalog.reading() as connection:
        runs = connection.execute(select(s.runs.c.begin_version).order_by(s.runs.c.begin_version)).scalars().all()
    assert runs == list(range(version + 1, version + 1 + tasks.GROUP))
