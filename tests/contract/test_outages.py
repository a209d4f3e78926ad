"""A database that falls silent: nothing is lost, nothing is done twice, and what waiting can mend is waited for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.engine import make_url

import ebla
from ebla.catalog import database
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.migrations import MIGRATIONS
from ebla.catalog.patience import PAUSE_S, Patience
from ebla.catalog.store import Catalog
from ebla.errors import CatalogUnavailableError
from ebla.model import changes as c
from support.catalogs import NODE, create, exclusively, new_relation, put_nodes, relation, run
from support.postgres import PostgresServer
from support.proxy import Cut, Proxy

LONG_S = 60.0


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as between:
        yield between


@pytest.fixture
def through(postgres_url: str, proxy: Proxy) -> Iterator[Callable[[float], Catalog]]:
    """Opens the catalog through the proxy, with so much patience."""
    Catalog.open(postgres_url).close()
    address = make_url(postgres_url).set(port=proxy.port).render_as_string(hide_password=False)
    opened: list[Catalog] = []

    def open_catalog(retry_s: float) -> Catalog:
        opened.append(Catalog.open(address, create=False, retry_s=retry_s))
        return opened[-1]

    yield open_catalog
    for catalog in opened:
        catalog.close()


def history(catalog: Catalog) -> list[tuple[int, str]]:
    with catalog.reading() as connection:
        found = connection.execute(select(s.history.c.version, s.history.c.reason).order_by(s.history.c.version))
        return [(row.version, row.reason) for row in found]


CUTS = [(Cut.ANSWER,), (Cut.COMMIT,), (Cut.ANSWER, Cut.ANSWER), (Cut.COMMIT, Cut.ANSWER)]


# ---- commits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "-".join(cut.name for cut in cuts))
def test_a_commit_happens_once_whatever_becomes_of_its_answer(
    through: Callable[[float], Catalog], proxy: Proxy, cuts: tuple[Cut, ...]
):
    catalog = through(LONG_S)
    put_nodes(catalog, NODE)
    target = create(catalog, "orders")
    begun = tx.begin(catalog, target, node=NODE, holder="me", reason="write", lease_us=LEASE_US)
    proxy.cut(*cuts)
    # The second answer that is lost is that of the transaction which looks for the first.
    committed = catalog.commit(
        c.Decision(
            reason="write",
            transaction=begun.id,
            relation=target.id,
            requires=(c.TransactionOpen(transaction=begun.id),),
            updates=(c.AddRuns(runs=(run(target.id),)), c.EndTransaction(transaction=begun.id)),
        )
    )
    assert proxy.cuts == len(cuts)
    assert history(catalog)[-1] == (committed.version, "write")
    assert [reason for _, reason in history(catalog)].count("write") == 1
    with catalog.reading() as connection:
        ended = connection.execute(select(s.transactions.c.state, s.transactions.c.committed_version)).one()
    assert tuple(ended) == ("committed", committed.version)


LEASE_US = 600 * 1_000_000


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "-".join(cut.name for cut in cuts))
def test_a_schema_change_happens_once(through: Callable[[float], Catalog], proxy: Proxy, cuts: tuple[Cut, ...]):
    """Without a transaction too, and its answer names the relation that was created."""
    catalog = through(LONG_S)
    put_nodes(catalog, NODE)
    proxy.cut(*cuts)
    made = exclusively(catalog, new_relation("orders"), reason="create orders")
    assert proxy.cuts == len(cuts)
    assert made.relation == relation(catalog, "orders").id
    assert [reason for _, reason in history(catalog)] == ["test", "create orders"]


def test_what_the_commit_lock_decides_is_settled_as_well(through: Callable[[float], Catalog], proxy: Proxy):
    catalog = through(LONG_S)
    proxy.cut(Cut.ANSWER)
    decision = c.Decision(reason="under the lock", updates=(c.SetProgress(name="p", value="1"),))
    committed = catalog.decide(lambda connection, at: decision, attempts=1)
    assert committed is not None
    assert history(catalog) == [(committed.version, "under the lock")]


def test_a_refusal_is_not_taken_for_silence(through: Callable[[float], Catalog]):
    catalog = through(LONG_S)
    with pytest.raises(ebla.ConflictError, match="progress of p: expected '1'"):
        catalog.commit(c.Decision(reason="no", updates=(), requires=(c.ProgressIs(name="p", value="1"),)))


def test_without_time_left_the_error_says_how_to_learn_what_happened(through: Callable[[float], Catalog], proxy: Proxy):
    catalog = through(0.0)
    proxy.cut(Cut.ANSWER)
    with pytest.raises(CatalogUnavailableError, match="whether the commit happened is not known") as lost:
        catalog.commit(c.Decision(reason="lost", updates=()))
    assert lost.value.retryable
    assert not lost.value.settled
    with catalog.reading() as connection:
        found = connection.execute(select(s.history.c.commit_id).where(s.history.c.reason == "lost")).scalar_one()
    assert f"commit_id = '{found}'" in str(lost.value)


def test_what_may_be_done_twice_is_done_again(through: Callable[[float], Catalog], proxy: Proxy):
    catalog = through(LONG_S)
    lease_us = LEASE_US
    proxy.cut(Cut.ANSWER)
    identifier, _ = tx.pin(catalog, None, holder="me", reason="scan", lease_us=lease_us)
    proxy.cut(Cut.ANSWER)
    lease = tx.lead(catalog, "building", "me", lease_us)
    proxy.cut(Cut.ANSWER)
    begun = tx.begin(catalog, None, node=NODE, holder="me", reason="write", lease_us=lease_us)
    assert proxy.cuts == 3
    assert lease is not None
    assert lease.term == 1
    with catalog.reading() as connection:
        assert list(connection.execute(select(s.pins.c.pin_id)).scalars()) == [identifier]
    tx.renew(catalog, begun.id, lease_us)


# ---- reads ----------------------------------------------------------------------------------------------


def test_a_read_is_done_again_as_a_whole(postgres_url: str):
    catalog = Catalog.open(postgres_url, retry_s=LONG_S)
    seen: list[int] = []

    def use(connection: Connection) -> int:
        seen.append(len(seen))
        if len(seen) == 1:
            with catalog.engine.connect() as other:
                other.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND datname = current_database()"
                )
        return connection.execute(select(func.count()).select_from(s.migrations)).scalar_one()

    assert catalog.read(use) == len(MIGRATIONS)
    assert seen == [0, 1]
    catalog.close()


# ---- the limit ------------------------------------------------------------------------------------------


def silence(since: float | None = None) -> CatalogUnavailableError:
    error = CatalogUnavailableError("silent")
    error.since = since
    return error


class Clock:
    """A time that passes in waits alone."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def is_set(self) -> bool:
        return False


def test_the_limit_counts_from_the_first_failure_through_all_layers(monkeypatch: pytest.MonkeyPatch):
    tries, clock, limit_s = list[float](), Clock(), 20.0
    monkeypatch.setattr("ebla.catalog.patience.time", clock)
    patience = Patience(limit_s)
    monkeypatch.setattr(patience, "_closing", clock)

    def never() -> None:
        tries.append(clock.now_s)
        raise silence(clock.now_s)

    with pytest.raises(CatalogUnavailableError):
        patience.insist(lambda: patience.insist(lambda: patience.insist(never)))
    assert len(tries) > 2
    assert clock.now_s - tries[0] == pytest.approx(limit_s)


def test_pauses_grow_up_to_a_bound():
    assert [PAUSE_S.after(n) for n in (1, 2, 3, 1000)] == [0.05, 0.1, 0.2, PAUSE_S.most]


def test_an_unsettled_commit_is_not_repeated():
    patience, tries = Patience(LONG_S), []

    def lost() -> None:
        tries.append(1)
        error = silence()
        error.settled = False
        raise error

    with pytest.raises(CatalogUnavailableError):
        patience.insist(lost)
    assert len(tries) == 1


@pytest.mark.parametrize("end", ["close", "without"])
def test_waiting_ends_with_the_catalog(end: str):
    patience, begun = Patience(3600.0), threading.Event()

    def never() -> None:
        begun.set()
        raise silence()

    def wait() -> None:
        with patience.without() if end == "without" else contextlib.nullcontext():
            patience.insist(never)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert begun.wait(150)
        if end == "close":
            patience.end()
        with pytest.raises(CatalogUnavailableError):
            waiting.result(timeout=150)


# ---- restarts -------------------------------------------------------------------------------------------

WRITERS = 3


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """One of these tests' own, which keeps what it has acknowledged also when it is killed."""
    with PostgresServer(durable=True) as own:
        yield own


def test_nothing_waits_for_a_server_that_is_gone_when_told_not_to(server: PostgresServer, tmp_path: Path):
    with server.database() as url:
        database = ebla.connect(url, storage_root=str(tmp_path / "data"))
        database.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        server.stop()
        try:
            started = time.monotonic()
            database.close()
            assert time.monotonic() - started < database.context.catalog.patience.limit_s
            says = r"expected a database that answers, found: .*refused; check the address and that the server runs"
            with pytest.raises(CatalogUnavailableError, match=says) as caught:
                ebla.connect(url, storage_root=str(tmp_path / "data"), catalog_retry_s=0)
            assert caught.value.retryable
        finally:
            server.start()


def test_writers_go_on_through_restarts_and_crashes_of_the_server(server: PostgresServer, tmp_path: Path):
    """No write fails, none is lost, none is done twice. Rows have no key: one that is written twice is there twice."""
    with server.database() as url, ebla.connect(url, storage_root=str(tmp_path / "data")) as database:
        database.sql("CREATE TABLE log (writer INT, number INT)")
        enough = threading.Event()

        def write(writer: int) -> int:
            number = 0
            while not enough.is_set():
                database.table("log").upsert([{"writer": writer, "number": number}])
                number += 1
            return number

        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(write, number) for number in range(WRITERS)]
            try:
                for mode in ("fast", "immediate", "fast", None):
                    wait_for_commits(database, 5, writers)
                    if mode is not None:
                        server.stop(mode)
                        server.start()
            finally:
                enough.set()
            acknowledged = {(w, n) for w, writer in enumerate(writers) for n in range(writer.result(timeout=150))}
        rows = database.query("log", limit=10_000).rows()
        assert len(rows) == len(acknowledged)
        assert set(rows) == acknowledged


def wait_for_commits(database: ebla.Database, count: int, writers: Sequence[Future[int]]) -> None:
    wanted, deadline = database.version + count, time.monotonic() + 120
    while database.version < wanted:
        assert time.monotonic() < deadline
        failed = [writer.exception() for writer in writers if writer.done()]
        assert not failed, failed


@pytest.mark.postgres
def test_the_time_is_that_of_the_server_whatever_clock_the_node_has(postgres_url: str, monkeypatch):
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 60 * 10**9)
    before = real_ns() // 1000
    with contextlib.closing(Catalog.open(postgres_url)) as catalog:
        later = catalog.clock()
        after = real_ns() // 1000
        trip = (after - before) // 2 + 1000  # the server answers at some moment of it, and is taken for its middle
        assert before - trip <= later <= after + trip
        later = catalog.clock()
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        assert catalog.clock() >= later


@pytest.mark.postgres
def test_a_process_that_is_stopped_does_not_keep_the_commit_lock(postgres_url: str, monkeypatch):
    with (
        contextlib.closing(Catalog.open(postgres_url)) as stopped,
        contextlib.closing(Catalog.open(postgres_url)) as other,
    ):
        put_nodes(other)
        before = other.version()

        def change_late() -> None:
            with contextlib.ExitStack() as stack:
                with monkeypatch.context() as patch:  # the other one may take its time
                    patch.setattr(database, "_LOCK", database._LOCK.replace(f"{database.LOCK_IDLE_S}s", "100ms"))
                    connection = stack.enter_context(stopped.writing())
                create(other, "t")  # waits for the lock, and gets it
                connection.execute(s.history.delete())

        with pytest.raises(CatalogUnavailableError, match="idle-in-transaction"):
            change_late()
        assert other.version() > before
        assert history(stopped) == history(other) != []
