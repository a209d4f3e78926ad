"""A private PostgreSQL server in a temporary directory.

The server listens on loopback only, on a port of its own, with a random password, and never runs as root:
when the caller is root, the server's programs run as `postgres` or `nobody`. Leaving the context stops the
server and removes its files.

    with PostgresServer() as server, server.database() as url:
        ebla.connect(url)
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql

from ebla.base.system_processes import has_ended
from ebla.cluster.postgres import programs
from ebla.errors import MissingDependencyError

USER = "ebla"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30

UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresError(RuntimeError):
    """A program of the server failed; the message carries its output."""


def find_binaries() -> Path | None:
    """The directory with `initdb` and `pg_ctl`, if there is one."""
    try:
        return programs()
    except MissingDependencyError:
        return None


class PostgresServer:
    """One server process and its data directory; a context manager.

    `durable=True` keeps fsync on: needed where a test kills the server and expects commits to survive.
    """

    def __init__(self, binaries: Path | None = None, *, durable: bool = False) -> None:
        found = binaries or find_binaries()
        if found is None:
            raise PostgresError("expected initdb and pg_ctl on PATH or in /usr/lib/postgresql/*/bin")
        self.port = 0
        self._held: socket.socket | None = None
        self._binaries = found
        self._durable = durable
        self._password = secrets.token_hex(16)
        self._owner = _unprivileged_user()
        self._directory = Path(tempfile.mkdtemp(prefix="ebla-pg-", dir=_temporary_root(self._owner)))
        self._data = self._directory / "data"
        self._log = self._directory / "server.log"

    def __enter__(self) -> PostgresServer:
        try:
            if self._owner is not None:
                os.chown(self._directory, self._owner.pw_uid, self._owner.pw_gid)
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start on a port that no other program gets as long as this object is open, also while the server is down."""
        if self._held is None:
            self._held = held_port()
            self.port = int(self._held.getsockname()[1])
        self._run(
            "pg_ctl", "start", "-w", "-t", str(START_TIMEOUT_S), "-D", str(self._data),
            "-l", str(self._log), "-o", f"-p {self.port}",
        )  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        """Stop and wait. Mode `immediate` is a crash: the next start recovers from the log."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        self._run("pg_ctl", "stop", "-w", "-t", str(STOP_TIMEOUT_S), "-D", str(self._data), "-m", mode)
        # It waits for the file, which the server removes a moment before it ends and gives its port back.
        if not has_ended(pid, STOP_TIMEOUT_S):
            raise PostgresError(f"expected the server, process {pid}, to end within {STOP_TIMEOUT_S} s")

    def close(self) -> None:
        """Stop the server if it runs, and remove its directory."""
        try:
            if (self._data / "postmaster.pid").exists():
                try:
                    self.stop()
                except PostgresError:
                    self.stop("immediate")
        finally:
            if self._held is not None:
                self._held.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Create an empty database or a copy of one, yield its URL, and drop it with whatever is still connected."""
        name = f"ebla_{secrets.token_hex(6)}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._administer(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield self.url(name)
        finally:
            self._administer(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _initialize(self) -> None:
        password_file = self._directory / "password"
        password_file.write_text(self._password)
        if self._owner is not None:
            os.chown(password_file, self._owner.pw_uid, self._owner.pw_gid)
        self._run(
            "initdb", "-D", str(self._data), "--username", USER, "--pwfile", str(password_file),
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        password_file.unlink()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._directory),
            "timezone": "UTC",
            **({} if self._durable else UNSAFE_BUT_FAST),
        }
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        # The owner may not enter the caller's working directory or home, so neither is passed on.
        drop: dict[str, Any] = {}
        if self._owner is not None:
            drop = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [self._binaries / program, *arguments],
            cwd=self._directory,
            env={**os.environ, "HOME": str(self._directory), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **drop,
        )
        if done.returncode != 0:
            raise PostgresError(f"{program} ended with status {done.returncode}:\n{done.stdout}")


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run the server as; None is the caller, who is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresError("PostgreSQL does not run as root: expected a user `postgres` or `nobody`")


def _temporary_root(owner: pwd.struct_passwd | None) -> str:
    """The usual place, unless it lies where another user may not enter, such as root's home."""
    usual = Path(tempfile.gettempdir()).resolve()
    enterable = all(directory.stat().st_mode & 0o001 for directory in (usual, *usual.parents))
    return str(usual) if owner is None or enterable else "/tmp"


def held_port() -> socket.socket:
    """Holds a port of loopback, which no other program gets until it is closed, for a listener that allows it.

    Of two sockets that both allow it one may be bound while the other does not listen. A port that was only looked for
    could be taken meanwhile.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
