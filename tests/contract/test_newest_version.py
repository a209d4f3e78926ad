"""The newest version by one statement: as new as the moment in which it was asked for, for every thread that asks."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, event

from ebla.catalog.database import CatalogDatabase
from ebla.catalog.newest_version import AGAIN_S, NewestVersion
from ebla.catalog.store import Catalog
from support.catalogs import create, statements
from support.warehouse import eventually


def test_it_is_asked_for_by_one_statement_and_follows_commits_of_every_process(catalog: Catalog):
    with contextlib.closing(Catalog.open(catalog.where)) as elsewhere:
        for number, at in enumerate((catalog, elsewhere, catalog)):
            made = create(at, f"t{number}")
            with statements(catalog) as sent:
                assert catalog.newest_version() == made.created_version
            assert len(sent) == 1


def test_a_thread_gets_no_answer_to_a_question_from_before_it_came(catalog: Catalog):
    """Each commits and then asks: an older answer than its own commit would be one of before."""

    def commit_and_ask(number: int) -> bool:
        made = create(catalog, f"t{number}").created_version
        found = catalog.newest_version()
        return found is not None and found >= made

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(commit_and_ask, range(40)))


def test_threads_that_come_while_one_asks_share_the_next_question(catalog: Catalog):
    asked, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            asked.release()
            assert go_on.acquire(timeout=250)

    newest = NewestVersion(catalog._connect_alone)
    event.listen(catalog.engine, "before_cursor_execute", wait)
    with contextlib.closing(newest), ThreadPoolExecutor(6) as pool:
        first = pool.submit(newest.ask)
        assert asked.acquire(timeout=150)
        others = [pool.submit(newest.ask) for _ in range(5)]
        eventually(lambda: len(newest._changed._waiters) == 5)  # type: ignore[attr-defined]
        go_on.release()
        assert asked.acquire(timeout=150)
        go_on.release()
        assert {one.result(150) for one in (first, *others)} == {1}
        assert not asked.acquire(blocking=False), "a third question"
    event.remove(catalog.engine, "before_cursor_execute", wait)


def test_a_database_that_does_not_answer_is_left_to_a_read_for_a_while(catalog: Catalog):
    now, tries = [0.0], [0]

    def connect() -> Connection:
        tries[0] += 1
        connection = catalog._connect_alone()
        if tries[0] == 1:
            connection.exec_driver_sql("SELECT 1")
            connection.close()
        return connection

    newest = NewestVersion(connect, lambda: now[0])
    with contextlib.closing(newest):
        assert [newest.ask(), newest.ask(), tries[0]] == [None, None, 1]
        now[0] += AGAIN_S
        assert [newest.ask(), newest.ask(), tries[0]] == [1, 1, 2]
    assert newest.ask() is None, "it is closed"


def test_a_reader_without_write_permission_is_told_nothing(catalog: Catalog):
    guest: CatalogDatabase = Catalog(catalog.engine, catalog.where, read_only="no write permission")
    assert guest.newest_version() is None
