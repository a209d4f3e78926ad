"""Rights: who may read and write a warehouse's files, and what a user without them can do and is told."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

import ebla
from ebla.catalog import engines, failures
from ebla.catalog.store import Catalog
from ebla.errors import CatalogError, CatalogUnavailableError, NodeConflictError, StorageFullError, UsageError
from ebla.model import changes as c
from support.catalogs import add, create, put_nodes, run
from support.postgres import PostgresServer
from support.reader import allow_writing, forbid_writing, open_directory, run_as_reader

# ---- modes ----------------------------------------------------------------------------------------------


def modes(folder: Path) -> set[tuple[str, int]]:
    places = (folder, *folder.rglob("*"))
    return {("d" if p.is_dir() else "f", stat.S_IMODE(p.stat().st_mode)) for p in places}


@pytest.fixture
def wide_mask() -> Iterator[None]:
    """A process that lets every user read and write what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("umask", "expected"),
    [(None, {("d", 0o700), ("f", 0o600)}), ("027", {("d", 0o750), ("f", 0o640)})],
    ids=["default", "027"],
)
def test_files_are_for_their_owner_alone_unless_told_otherwise(
    tmp_path: Path, wide_mask: None, umask: str | None, expected: set[tuple[str, int]]
):
    folder = tmp_path / "a" / "w"
    second = tmp_path / "disk2" / "data"
    widened: dict[str, Any] = {} if umask is None else {"file_umask": umask}
    with ebla.connect(str(folder), nodes={"node2": str(second)}, replication=2, **widened) as db:
        db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id)); CREATE INDEX by_name ON t (name)")
        db.table("t").upsert([{"id": n, "name": f"n{n}"} for n in range(50)])
        assert modes(tmp_path / "a") == expected
        assert modes(tmp_path / "disk2") == expected
        assert {p.name for p in folder.iterdir()} >= {"catalog.db", "catalog.db-wal", "data"}
    assert modes(tmp_path / "a") == expected


def test_a_directory_that_is_there_keeps_its_rights(tmp_path: Path):
    folder = tmp_path / "w"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    Catalog.open(str(folder)).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "catalog.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("wrong", ["8", "rw", "0777777", ""])
def test_a_mask_is_three_octal_digits(tmp_path: Path, wrong: str):
    with pytest.raises(UsageError, match="setting file_umask"):
        ebla.connect(str(tmp_path / "w"), file_umask=wrong)


# ---- a refused open leaves nothing ----------------------------------------------------------------------


def test_a_refused_open_leaves_no_catalog_behind(tmp_path: Path):
    ebla.connect(str(tmp_path / "one")).close()
    theirs = str(tmp_path / "one" / "data")
    for place in (tmp_path / "two", tmp_path / "three"):
        if place.name == "three":
            place.mkdir()
        with pytest.raises(NodeConflictError, match=r"a storage root of its own, found .* of another warehouse"):
            ebla.connect(str(place), storage_root=theirs)
        assert not place.exists() or list(place.iterdir()) == []
    with pytest.raises(NodeConflictError, match=r"found .* in that of node"):
        ebla.connect(str(tmp_path / "two"), nodes={"b": str(tmp_path / "x"), "c": str(tmp_path / "x" / "y")})
    assert not (tmp_path / "two").exists()


def test_a_catalog_that_cannot_be_filled_leaves_nothing(tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises((CatalogError, StorageFullError), match=r"catalog\.db.*(disk|room)"):
            Catalog.open(str(tmp_path / "w"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert list((tmp_path / "w").iterdir()) == []
    Catalog.open(str(tmp_path / "w")).close()


def test_of_two_who_create_a_catalog_the_first_wins(tmp_path: Path):
    with engines.new_file(tmp_path, 0o077) as mine:
        mine.write_bytes(b"mine")
        with engines.new_file(tmp_path, 0o077) as theirs:
            theirs.write_bytes(b"theirs")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("catalog.db", b"theirs")]


# ---- a reader without the right to write ----------------------------------------------------------------

READS = """
from ebla.cli.main import run
with ebla.connect(warehouse) as db:
    # also
    print(db.query("t", where={"name": "n3"}).rows(), db.tables(), db.version)
    print([row[0] for row in db.sql("SHOW TABLES").rows()])
    for statement in ("UPSERT INTO t VALUES (1, 'x')", "DROP TABLE t", "CREATE TABLE u (id BIGINT)"):
        try:
            db.sql(statement)
        except ebla.EblaError as error:
            print(type(error).__name__, error)
    try:
        db.table("t").upsert([{"id": 1, "name": "x"}])
    except ebla.EblaError as error:
        print(type(error).__name__, error)
for command in (["status", "--json"], ["query", "t", "-W", "name=n3"], ["metrics"]):
    print(command[0], run(["-w", warehouse, *command]))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A warehouse that every user may read and only its owner may write."""
    with open_directory() as folder:
        warehouse = folder / "w"
        with ebla.connect(str(warehouse), file_umask="022") as db:
            db.sql("CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id)); CREATE INDEX by_name ON t (name)")
            db.table("t").upsert([{"id": n, "name": f"n{n}"} for n in range(10)])
        yield warehouse
        allow_writing(warehouse)


def check_reader(warehouse: Path, also: str = "print(True)") -> None:
    if os.geteuid() != 0:
        forbid_writing(warehouse)
    done = run_as_reader(READS.replace("# also", also), warehouse)
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "True"
    assert lines[0].startswith("[(3, 'n3')] ['t'] "), (lines, done.stderr)
    assert lines[1] == "['t']"
    for line in lines[2:6]:
        assert line.startswith("CatalogError "), lines
        assert "expected a catalog that this user may write, found it read-only" in line
        assert "no write permission for catalog.db" in line
    assert [line for line in lines if line.startswith(("status ", "query ", "metrics "))] == [
        "status 0",
        "query 0",
        "metrics 0",
    ], done.stderr


def test_a_reader_without_write_permission_reads_a_warehouse_that_nobody_has_open(shared: Path):
    before = sorted(p.name for p in shared.iterdir())
    check_reader(shared)
    assert sorted(p.name for p in shared.iterdir()) == before == ["catalog.db", "data"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_reader_without_write_permission_reads_beside_a_writer(shared: Path):
    with ebla.connect(str(shared), file_umask="022") as db:
        db.table("t").upsert([{"id": 11, "name": "new"}])
        check_reader(shared, "print(db.query('t', where={'id': 11}).rows() == [(11, 'new')])")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_reader_sees_what_a_killed_writer_had_committed(shared: Path):
    """The log is still there, and no process to fold it."""
    program = f"""
import os, ebla
db = ebla.connect({str(shared)!r}, file_umask="022")
db.table("t").upsert([{{"id": 12, "name": "last"}}])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (shared / "catalog.db-wal").stat().st_size > 0
    done = run_as_reader("print(ebla.connect(warehouse).query('t', where={'id': 12}).rows())", shared)
    assert (done.stdout, done.returncode) == ("[(12, 'last')]\n", 0), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root may read everything")
def test_a_private_warehouse_says_that_it_may_not_be_opened(tmp_path: Path):
    with open_directory() as folder:
        Catalog.open(str(folder / "w")).close()
        (folder / "w").chmod(0o755)
        program = """
try:
    ebla.connect(warehouse)
except ebla.CatalogError as error:
    print(error)
"""
        done = run_as_reader(program, folder / "w")
        assert "expected a file that this user may open, found: unable to open database file; check" in done.stdout


def test_what_was_read_while_a_writer_came_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Read as it stands, a file may change under the reader: then the read is done again."""
    catalog = Catalog.open(str(tmp_path / "w"))
    put_nodes(catalog, "node1")
    target = create(catalog, "orders")
    catalog.close()
    monkeypatch.setattr(engines, "may_write", lambda folder: False)
    reader = Catalog.open(str(tmp_path / "w"), create=False, retry_s=60)
    monkeypatch.undo()
    assert reader.read_only
    writer = Catalog.open(str(tmp_path / "w"), create=False)
    writer.close()
    seen: list[int] = []

    def use(connection: object) -> int:
        if not seen:
            other = Catalog.open(str(tmp_path / "w"), create=False)
            add(other, run(target.id))
            other.close()  # the last one folds the log into the file
        seen.append(1)
        return int(connection.exec_driver_sql("SELECT count(*) FROM runs").scalar())  # type: ignore[attr-defined]

    assert reader.read(use) == 1
    assert len(seen) == 2
    reader.close()


def test_a_reader_of_an_older_catalog_is_told_who_can_bring_it_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    catalog = Catalog.open(str(tmp_path))
    with catalog.writing() as connection:
        connection.execute(text("DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)"))
    catalog.close()
    monkeypatch.setattr(engines, "may_write", lambda folder: False)
    with pytest.raises(CatalogError, match=r"expected a catalog of schema \d+, found \d+, .* let a user who may write"):
        Catalog.open(str(tmp_path), create=False)


def test_a_user_of_postgresql_who_may_only_select(postgres_url: str, tmp_path: Path):
    root = str(tmp_path / "data")
    with ebla.connect(postgres_url, storage_root=root) as db:
        db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
        db.table("t").upsert([{"id": 1}])
    user = make_url(postgres_url).database or ""
    name = sql.Identifier(user)
    guest = make_url(postgres_url).set(username=user, password="secret").render_as_string(hide_password=False)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(name))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA ebla TO {}").format(name))
        connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA ebla TO {}").format(name))
    try:
        with ebla.connect(guest, storage_root=root) as db:
            assert db.query("t").rows() == [(1,)]
            with pytest.raises(CatalogError, match=r"found it read-only \(no right to change its tables\)"):
                db.table("t").upsert([{"id": 2}])
        standby = f"{postgres_url}?options=-c%20default_transaction_read_only%3Don"
        with ebla.connect(standby, storage_root=root) as db:
            assert db.query("t").rows() == [(1,)]
            with pytest.raises(CatalogError, match=r"found it read-only \(the server is a standby, or the session may"):
                db.sql("DROP TABLE t")
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
            connection.execute(sql.SQL("DROP ROLE {}").format(name))


# ---- causes ---------------------------------------------------------------------------------------------


class Said(psycopg.OperationalError):
    def __init__(self, sqlstate: str | None, words: str) -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


POSTGRES_CAUSES = [
    (None, 'connection failed: FATAL:  password authentication failed for user "x"', CatalogError, "check the user"),
    (None, 'connection failed: FATAL:  no pg_hba.conf entry for host "1.2.3.4"', CatalogError, "pg_hba.conf"),
    (None, 'connection failed: FATAL:  role "x" does not exist', CatalogError, "check the user"),
    (None, 'connection failed: FATAL:  database "x" does not exist', CatalogError, "create it with createdb"),
    (None, "failed to resolve host 'x'", CatalogError, "correct the address"),
    (
        None,
        "failed to resolve host 'x': [Errno -3] Temporary failure in name resolution",
        CatalogUnavailableError,
        "run",
    ),
    (None, "connection failed: Connection refused", CatalogUnavailableError, "that the server runs"),
    (None, "connection failed: FATAL:  the database system is starting up", CatalogUnavailableError, "server runs"),
    (None, "consuming input failed: server closed the connection", CatalogUnavailableError, "server runs"),
    ("57P01", "terminating connection due to administrator command", CatalogUnavailableError, "server runs"),
    ("08006", "connection failure", CatalogUnavailableError, "server runs"),
    ("53300", "too many clients already", CatalogUnavailableError, "server runs"),
    ("53100", "could not extend file: No space left on device", StorageFullError, "free space and retry"),
    ("25006", "cannot execute INSERT in a read-only transaction", CatalogError, "found it read-only"),
    ("42501", "permission denied for table runs", CatalogError, "GRANT"),
    ("57014", "canceling statement due to statement timeout", CatalogError, "raise statement_timeout"),
    ("XX000", "something else", CatalogError, "see the server's log"),
]


@pytest.mark.parametrize(("state", "words", "kind", "todo"), POSTGRES_CAUSES, ids=lambda v: str(v)[:40])
def test_each_cause_of_postgresql_has_its_class_and_what_to_do(
    state: str | None, words: str, kind: type[ebla.EblaError], todo: str
):
    said = OperationalError("SELECT 1", {}, Said(state, words))
    found = failures.translated(said, "postgresql://me:hidden@host/db")
    assert type(found) is kind
    assert todo in str(found)
    assert "hidden" not in str(found)
    assert "postgresql://me:***@host/db" in str(found)


@pytest.mark.parametrize(
    "why", ["[Errno -2] Name or service not known", "[Errno -5] No address associated with hostname"]
)
def test_a_host_that_answered_before_is_waited_for_when_its_name_is_not_known(why: str):
    """As where a name service forgets a server that restarts. Of a host that never answered, the address is wrong."""
    said = OperationalError("SELECT 1", {}, Said(None, f"failed to resolve host 'x': {why}"))
    assert type(failures.translated(said, "postgresql://host/db")) is CatalogError
    assert type(failures.translated(said, "postgresql://host/db", has_answered=True)) is CatalogUnavailableError
    denied = OperationalError("SELECT 1", {}, Said(None, "FATAL:  password authentication failed"))
    assert type(failures.translated(denied, "postgresql://host/db", has_answered=True)) is CatalogError


def test_an_open_catalog_waits_for_a_host_name_that_comes_back(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    """The catalog is opened by a name; then the name is unknown for two connections."""
    real, refusals = psycopg.connect, ["first", "second"]
    catalog = Catalog.open(postgres_url, retry_s=30)
    catalog.engine.dispose()

    def connect(*args: Any, **named: Any) -> Any:
        if refusals:
            refusals.pop()
            raise psycopg.OperationalError("failed to resolve host 'x': [Errno -2] Name or service not known")
        return real(*args, **named)

    monkeypatch.setattr(catalog.engine.dialect.dbapi, "connect", connect)
    assert catalog.version() >= 0
    assert refusals == []
    catalog.close()


def test_a_mistake_of_ours_stays_what_it_is():
    assert failures.translated(IntegrityError("INSERT", {}, sqlite3.IntegrityError("NOT NULL")), "w") is None
    said: DBAPIError = DataError("SELECT 1", {}, psycopg.DataError("invalid input syntax"))
    assert failures.translated(said, "postgresql://host/db") is None


def test_a_lock_that_another_process_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Catalog.open(str(tmp_path)).close()
    monkeypatch.setattr(engines, "BUSY_TIMEOUT_S", 0.05)
    catalog = Catalog.open(str(tmp_path), retry_s=30)
    holder = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogUnavailableError, match=r"catalog\.db: expected its lock within .*held by another"):
        catalog.commit(c.Decision(reason="test", updates=()))
    assert catalog.version() == 0  # readers go on
    holder.close()
    catalog.close()


def test_a_full_disk_under_the_catalog(tmp_path: Path):
    catalog = Catalog.open(str(tmp_path))
    with catalog.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit = f"PRAGMA max_page_count = {pages}"
    event.listen(catalog.engine, "begin", lambda connection: connection.exec_driver_sql(limit))
    large = tuple(c.SetProgress(name=f"p{n}", value="x" * 9000) for n in range(9))
    says = r"catalog\.db: expected room for the catalog, found the disk full; nothing was committed: free space"
    with pytest.raises(StorageFullError, match=says):
        catalog.commit(c.Decision(reason="large", updates=large))
    assert catalog.version() == 0
    catalog.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda db: db.table("a\0b"),
        lambda db: db.query("a\0b"),
        lambda db: db.sql("DROP TABLE `a\0b`"),
        lambda db: db.sql("CREATE TABLE `a\0b` (id BIGINT)"),
        lambda db: db.sql("CREATE TABLE n (id BIGINT) COMMENT 'a\0b'"),
        lambda db: db.sql("SHOW PROGRESS `a\0b`"),
    ],
    ids=["table", "query", "drop", "create", "comment", "progress"],
)
def test_text_with_nul_is_refused_in_words(postgres_db: ebla.Database, use: Callable[[ebla.Database], object]):
    """PostgreSQL cannot keep the character. SQLite can, and so what is not there is not found."""
    with pytest.raises(UsageError):
        use(postgres_db)


@pytest.fixture(scope="module")
def postgres_db(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ebla.Database]:
    root = str(tmp_path_factory.mktemp("data"))
    with postgres_server.database() as url, ebla.connect(url, storage_root=root) as db:
        yield db
