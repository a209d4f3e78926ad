"""What every contract test starts from: a fresh catalog with a clock that stands still, on both databases.

Tests of the catalog's rules run on dictionaries as well (`support.tables`), where the simulation has its catalog.

Creating tables takes longer than most of these tests. So a catalog is created once for each database, and made
fresh again for each test: a copy of the file, or the rows of the first day put back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import select

from ebla.catalog import schema
from ebla.catalog.store import Catalog
from support.catalogs import Clock, put_nodes
from support.postgres import PostgresServer
from support.tables import MemoryCatalog

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]

DISCONNECT_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture(scope="session")
def emptied_database(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.fixture(params=BOTH)
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place. As in `tests/conftest.py`, but the PostgreSQL database is emptied instead of made anew."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("emptied_database")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DISCONNECT_OTHERS)
            connection.execute("DROP SCHEMA IF EXISTS ebla CASCADE")
        return url
    directory = tmp_path / "catalog"
    directory.mkdir()
    return str(directory)


class FirstDay:
    """A catalog as it is right after it was created, and how to get back there."""

    def __init__(self, url: str) -> None:
        self.url = url
        catalog = Catalog.open(url)
        with catalog.reading() as connection:
            self._rows = {
                table: [tuple(row) for row in connection.execute(select(table))]
                for table in schema.metadata.sorted_tables
            }
        catalog.close()

    def copy_to(self, directory: Path) -> str:
        return str(shutil.copytree(self.url, directory))

    def put_back(self) -> str:
        with psycopg.connect(self.url) as connection:
            connection.execute(DISCONNECT_OTHERS)
            for table in reversed(schema.metadata.sorted_tables):
                connection.execute(sql.SQL("DELETE FROM ebla.{}").format(sql.Identifier(table.name)))
            for table, rows in self._rows.items():
                for row in rows:
                    values = sql.SQL(", ").join(map(sql.Literal, row))
                    into = sql.SQL("INSERT INTO ebla.{} VALUES ({})").format(sql.Identifier(table.name), values)
                    connection.execute(into)
        return self.url


@pytest.fixture(scope="session")
def sqlite_first_day(tmp_path_factory: pytest.TempPathFactory) -> FirstDay:
    return FirstDay(str(tmp_path_factory.mktemp("first-day")))


@pytest.fixture(scope="session")
def postgres_first_day(postgres_server: PostgresServer) -> Iterator[FirstDay]:
    with postgres_server.database() as url:
        yield FirstDay(url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules that say `IN_MEMORY = True` run on dictionaries, too, but for tests of what only a database has."""
    if "created_url" in metafunc.fixturenames:
        in_memory = getattr(metafunc.module, "IN_MEMORY", False) and not any(
            mark.name in ("database", "process") for mark in metafunc.definition.iter_markers()
        )
        metafunc.parametrize("created_url", [*BOTH, "memory"] if in_memory else BOTH, indirect=True)


@pytest.fixture
def created_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a catalog in which nothing has happened yet."""
    if request.param == "memory":
        return "memory"
    first_day: FirstDay = request.getfixturevalue(f"{request.param}_first_day")
    return first_day.put_back() if request.param == "postgres" else first_day.copy_to(tmp_path / "catalog")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def empty_catalog(created_url: str, clock: Clock) -> Iterator[Catalog]:
    in_memory = created_url == "memory"
    catalog = MemoryCatalog(clock) if in_memory else Catalog.open(created_url, create=False, clock=clock)
    yield catalog
    catalog.close()


@pytest.fixture
def catalog(empty_catalog: Catalog) -> Catalog:
    """One node is registered, so the first version of a test's own is 2."""
    put_nodes(empty_catalog, "node1")
    return empty_catalog
