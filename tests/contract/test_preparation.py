"""Opening: what is ours is recognized, what is not is refused and left alone, and every message says what to do."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.engine import make_url

from ebla.base.ids import NodeId, RelationId
from ebla.catalog import build_tasks, migrations, processes
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog, is_postgres
from ebla.errors import CatalogError
from ebla.model import changes as c
from support.catalogs import add, create, dump, relation, run
from support.processes import Processes

SECRET = "kept-secret"


@contextmanager
def refused(says: str, secret: str = SECRET) -> Iterator[None]:
    with pytest.raises(CatalogError, match=says) as caught:
        yield
    assert secret not in "".join(traceback.format_exception(caught.value))


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a directory, by its content."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def reopened(url: str, *, create: bool = True) -> int:
    catalog = Catalog.open(url, create=create)
    version = catalog.version()
    catalog.close()
    return version


# ---- ours -----------------------------------------------------------------------------------------------


def test_a_catalog_is_there_after_it_was_closed(catalog_url: str):
    catalog = Catalog.open(catalog_url)
    target = create(catalog, "orders")
    add(catalog, run(target.id))
    before = dump(catalog)
    catalog.close()
    again = Catalog.open(catalog_url, create=False)
    assert dump(again) == before
    assert relation(again, "orders") == target
    again.close()


def test_an_empty_place_is_not_created_when_not_asked_to(catalog_url: str):
    for _ in range(2):
        with refused("expected an Ebla (catalog|warehouse), found none; create it with"):
            Catalog.open(catalog_url, create=False)
    assert reopened(catalog_url) == 0
    assert reopened(catalog_url, create=False) == 0


def test_a_catalog_of_a_newer_release_is_refused(catalog_url: str):
    catalog = Catalog.open(catalog_url)
    with catalog.writing() as connection:
        connection.execute(insert(s.migrations), {"number": 999, "name": "of the future", "applied_at": 0})
    before = dump(catalog)
    for allowed in (True, False):
        with refused(r"expected a catalog of schema \d+ or older, found 999; .* upgrade this one"):
            Catalog.open(catalog_url, create=allowed)
    assert dump(catalog) == before
    catalog.close()


def test_migrations_are_recorded(catalog_url: str):
    catalog = Catalog.open(catalog_url)
    with catalog.reading() as connection:
        found = connection.execute(select(s.migrations.c.number, s.migrations.c.name)).all()
    assert [tuple(row) for row in found] == [(m.number, m.name) for m in migrations.MIGRATIONS]
    catalog.close()


def test_a_catalog_of_an_older_release_gets_the_columns_that_it_lacks(catalog_url: str):
    catalog = Catalog.open(catalog_url)
    with catalog.writing() as connection:
        connection.execute(insert(s.view_builds), {"view_id": 7, "base_id": 1, "created_version": 3})
        for column in ("concurrency", "on_hold"):
            connection.execute(text(f"ALTER TABLE view_builds DROP COLUMN {column}"))
        connection.execute(text("DROP INDEX history_by_commit"))
        connection.execute(text("ALTER TABLE history DROP COLUMN commit_id"))
        connection.execute(delete(s.migrations).where(s.migrations.c.number >= 5))
    catalog.close()
    again = Catalog.open(catalog_url, create=False)
    with again.reading() as connection:
        build = build_tasks.builds(connection)[RelationId(7)]
    assert (build.concurrency, build.on_hold, build.rate) == (None, False, None)
    again.close()


def test_processes_of_an_older_release_say_nothing_of_their_machines(catalog_url: str):
    catalog = Catalog.open(catalog_url)
    with catalog.writing() as connection:
        for column in ("load_1m", "cores", "disks"):
            connection.execute(text(f"ALTER TABLE processes DROP COLUMN {column}"))
        connection.execute(
            text(
                "INSERT INTO processes (holder, node_id, host, pid, role, maintains, doing, started_at, seen_at, "
                "expires_at, hosts) VALUES ('old', 'n', 'h', 1, 'node', TRUE, '[]', 1, 1, 1, '[\"n\"]')"
            )
        )
        connection.execute(delete(s.migrations).where(s.migrations.c.number >= 22))
    catalog.close()
    again = Catalog.open(catalog_url, create=False)
    with again.reading() as connection:
        assert processes.machines(connection, {"old"}) == {NodeId("n"): processes.UNKNOWN}
    again.close()


@pytest.mark.process
def test_several_processes_open_an_empty_catalog_at_once(catalog_url: str, processes: Processes, tmp_path: Path):
    gate = tmp_path / "gate"
    children = [processes.start("support.catalog_tasks:open_only", catalog_url, str(gate)) for _ in range(4)]
    gate.touch()
    assert [child.finish() for child in children] == [["0"]] * 4
    catalog = Catalog.open(catalog_url, create=False)
    with catalog.reading() as connection:
        for table, rows in (
            (s.migrations, len(migrations.MIGRATIONS)),
            (s.counters, len(migrations.COUNTERS)),
            (s.meta, 2),
        ):
            assert connection.execute(select(func.count()).select_from(table)).scalar() == rows
    catalog.close()


def test_threads_open_an_empty_catalog_at_once(catalog_url: str):
    gate = threading.Barrier(4)

    def one(number: int) -> int:
        gate.wait()
        return reopened(catalog_url)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [0] * 4


# ---- a directory ----------------------------------------------------------------------------------------


def test_a_missing_directory_is_made_only_when_asked_to(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    with refused("expected an Ebla warehouse, found none; create it with ebla.connect"):
        Catalog.open(str(folder), create=False)
    assert not folder.exists()
    assert reopened(str(folder)) == 0


def test_a_directory_with_other_files_is_refused(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("not ours")
    before = fingerprint(tmp_path)
    with refused("expected an Ebla warehouse or an empty directory, found other files; choose another directory"):
        Catalog.open(str(tmp_path))
    assert fingerprint(tmp_path) == before


def test_a_directory_with_only_data_is_accepted(tmp_path: Path):
    (tmp_path / "data").mkdir()
    assert reopened(str(tmp_path)) == 0


def test_a_directory_in_which_another_process_just_began_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The catalog's file appears between the look for it and the look at the directory."""
    reopened(str(tmp_path))
    exists, looks = Path.exists, []

    def blind_at_first(path: Path) -> bool:
        looks.append(path)
        return len(looks) > 1 and exists(path)

    monkeypatch.setattr(Path, "exists", blind_at_first)
    assert reopened(str(tmp_path)) == 0


@pytest.mark.parametrize("allowed", [True, False])
def test_a_file_instead_of_a_directory_is_refused(tmp_path: Path, allowed: bool):
    file = tmp_path / "warehouse"
    file.write_text("not ours")
    with refused("warehouse: expected a directory, found a file; choose another place"):
        Catalog.open(str(file), create=allowed)
    assert file.read_text() == "not ours"


def test_a_place_below_a_file_is_refused(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("not ours")
    with refused("expected a directory to keep a warehouse in, found"):
        Catalog.open(str(file / "warehouse"))


@pytest.mark.parametrize("content", [b"not a database, but long enough to look like one" * 100, b"short"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "catalog.db").write_bytes(content)
    before = fingerprint(tmp_path)
    for allowed in (True, False):
        with refused("expected an Ebla catalog, found: file is not a database"):
            Catalog.open(str(tmp_path), create=allowed)
    assert fingerprint(tmp_path) == before


def test_an_empty_file_is_an_empty_catalog(tmp_path: Path):
    """What a crash right after the first open leaves."""
    (tmp_path / "catalog.db").touch()
    with refused("expected an Ebla catalog, found none"):
        Catalog.open(str(tmp_path), create=False)
    assert reopened(str(tmp_path)) == 0


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE songs (title TEXT)", "INSERT INTO songs VALUES ('Layla')"],
        ["CREATE TABLE meta (version INT)", "CREATE TABLE migrations (id INT)", "INSERT INTO meta VALUES (1)"],
        ["CREATE TABLE meta (key TEXT, value TEXT)", "CREATE TABLE migrations (number INT, name TEXT, applied_at INT)"],
    ],
    ids=["other tables", "our names", "our names and columns"],
)
def test_the_database_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path, statements: list[str]):
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    before = fingerprint(tmp_path)
    for allowed in (True, False):
        with refused("expected an Ebla catalog, found a database with tables .*; connect to another place"):
            Catalog.open(str(tmp_path), create=allowed)
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("name", ["postgres-data", "postgresql", "100%41", "a?mode=ro", "x#y", "ü b", "~"])
def test_directories_may_have_any_name(tmp_path: Path, name: str):
    folder = tmp_path / name
    assert reopened(str(folder)) == 0
    assert (folder / "catalog.db").exists()
    assert reopened(str(folder), create=False) == 0


def test_a_relative_directory_whose_name_begins_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert not is_postgres("postgres-data")
    assert reopened("postgres-data") == 0
    assert (tmp_path / "postgres-data" / "catalog.db").exists()


def test_the_log_is_written_ahead_and_flushed(tmp_path: Path):
    """Readers must not wait for writers, and what was acknowledged must survive a power cut."""
    catalog = Catalog.open(str(tmp_path / "w"))
    with catalog.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    with catalog.reading() as connection:
        before = connection.execute(select(func.count()).select_from(s.history)).scalar()
        create(catalog, "orders")  # while the reader looks
        assert connection.execute(select(func.count()).select_from(s.history)).scalar() == before
    catalog.close()


# ---- an address -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (f"mysql://me:{SECRET}@host/db", "expected a directory or a postgresql:// address"),
        (f"sqlite:///warehouse?password={SECRET}", "expected a directory or a postgresql:// address"),
        (f"postgresql://me:{SECRET}@host:port/db", "expected postgresql://user:password@host:port/database"),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db", r"127.0.0.1:1/db: expected a database that answers, found: .*; "),
        (f"postgres://127.0.0.1:1/db?password={SECRET}", r"expected a database that answers, found: .*; check the"),
        (f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/db", "expected a database that answers, found: .*refused"),
    ],
)
def test_an_address_where_nothing_is(address: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with refused(says):
        Catalog.open(address)
    assert list(tmp_path.iterdir()) == []


def administer(url: str, *statements: str | sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def disconnect_all(url: str) -> None:
    administer(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def with_user(url: str, user: str, password: str) -> str:
    return make_url(url).set(username=user, password=password).render_as_string(hide_password=False)


def test_a_database_that_does_not_exist(postgres_url: str):
    missing = make_url(postgres_url).set(database="nowhere").render_as_string(hide_password=False)
    password = make_url(postgres_url).password
    assert password
    says = (
        r"ebla:\*\*\*@.*: expected a database of this name that takes connections, "
        r'found: .*"nowhere" does not exist; create it with createdb, or correct the address'
    )
    with refused(says, secret=password):
        Catalog.open(missing)


def test_a_wrong_password(postgres_url: str):
    says = "expected a user and a password that the server accepts, found: .*password authentication failed.*; check"
    with refused(says):
        Catalog.open(with_user(postgres_url, "ebla", SECRET))


@pytest.mark.parametrize("table", ["songs (title TEXT)", "meta (version INT)"])
def test_a_schema_that_another_program_uses_is_refused(postgres_url: str, table: str):
    administer(
        postgres_url, "CREATE SCHEMA ebla", f"CREATE TABLE ebla.{table}", "CREATE TABLE ebla.migrations (id INT)"
    )
    for allowed in (True, False):
        with refused("expected an Ebla catalog, found a database with tables .*'migrations'.*; connect to another"):
            Catalog.open(postgres_url, create=allowed)
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'ebla'").fetchone()
    assert found == (2,)


def test_a_database_can_be_shared_with_other_programs(postgres_url: str):
    administer(postgres_url, "CREATE TABLE public.meta (version INT)", "CREATE TABLE public.runs (id INT)")
    catalog = Catalog.open(postgres_url)
    add(catalog, run(create(catalog, "orders").id))
    catalog.close()
    assert reopened(postgres_url, create=False) == 2
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM public.runs").fetchone() == (0,)


def test_not_creating_leaves_a_database_untouched(postgres_url: str):
    with refused("expected an Ebla catalog, found none"):
        Catalog.open(postgres_url, create=False)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'ebla'").fetchone() is None


def test_a_user_who_may_only_use_the_catalog(postgres_url: str):
    """Rights on the database itself are needed to create the catalog, not to open it."""
    user = make_url(postgres_url).database or ""
    guest = with_user(postgres_url, user, SECRET)
    administer(postgres_url, sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(user), SECRET))
    try:
        with refused("expected an Ebla catalog, found: permission denied"):
            Catalog.open(guest)
        assert reopened(postgres_url) == 0
        administer(
            postgres_url,
            sql.SQL("GRANT USAGE ON SCHEMA ebla TO {}").format(sql.Identifier(user)),
            sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA ebla TO {}").format(sql.Identifier(user)),
        )
        catalog = Catalog.open(guest)
        create(catalog, "orders")
        catalog.close()
    finally:
        administer(
            postgres_url,
            sql.SQL("DROP OWNED BY {}").format(sql.Identifier(user)),
            sql.SQL("DROP ROLE {}").format(sql.Identifier(user)),
        )


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_stricter_default_isolation_does_not_break_commits(postgres_url: str, isolation: str):
    """A writer that waited for the lock must see what the one before it committed."""
    name = sql.Identifier(make_url(postgres_url).database or "")
    administer(
        postgres_url, sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}").format(name, isolation)
    )
    catalog = Catalog.open(postgres_url)
    target = create(catalog, "orders")
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda _: add(catalog, run(target.id)), range(24)))
    assert sorted(versions) == list(range(2, 26))
    catalog.close()


def test_a_restart_of_the_server_is_survived(postgres_url: str):
    catalog = Catalog.open(postgres_url)
    create(catalog, "orders")
    disconnect_all(postgres_url)
    assert catalog.version() == 1
    disconnect_all(postgres_url)
    create(catalog, "customers")
    assert catalog.version() == 2
    catalog.close()


def test_a_server_that_falls_silent_is_reported_in_our_words(postgres_url: str):
    catalog = Catalog.open(postgres_url)
    create(catalog, "orders")
    with refused("expected a database that answers, found: .*; check the address"), catalog.writing() as connection:
        connection.execute(insert(s.progress), {"name": "p", "value": "1", "version": 1})
        disconnect_all(postgres_url)
        connection.execute(insert(s.progress), {"name": "q", "value": "1", "version": 1})
    assert dump(catalog)["progress"] == []
    name = sql.Identifier(make_url(postgres_url).database or "")
    other = make_url(postgres_url).set(database="postgres").render_as_string(hide_password=False)
    administer(
        other,
        sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name),
        sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(
            name.as_string()[1:-1]
        ),
    )
    for use in (catalog.version, lambda: catalog.commit(c.Decision(reason="test", updates=()))):
        with refused("that takes connections, found: .*not currently accepting connections"):
            use()
    administer(other, sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    assert catalog.version() == 1
    catalog.close()


def test_a_program_that_ends_without_closing_says_nothing(tmp_path: Path) -> None:
    program = """if True:
        import sys
        import ebla
        db = ebla.connect(sys.argv[1])
        db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 1}])
        print(db.query("t").rows())
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "w")], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[(1,)]\n", "")
