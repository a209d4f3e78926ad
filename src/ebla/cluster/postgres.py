"""A PostgreSQL of the cluster's own, from the installed programs: for trying out and for tests.

It listens on loopback alone, with a password that only files of mode 600 hold. PostgreSQL refuses to run as root: then
its programs run as the user `postgres`, in a directory that this user can enter.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebla.base.system_processes import has_ended, is_there
from ebla.errors import MissingDependencyError, NodeUnavailableError

USER = "ebla"
DATABASE = "postgres"
START_S = 60
STOP_S = 30
START_ATTEMPTS = 10
RETRY_S = 0.5


def programs() -> Path:
    """The directory of `initdb` and `pg_ctl`: the one on PATH, else Debian's newest."""
    on_path = shutil.which("initdb")
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()],
        reverse=True,
    )
    for directory in [Path(on_path).parent, *debian] if on_path else debian:
        if all(os.access(directory / program, os.X_OK) for program in ("initdb", "pg_ctl")):
            return directory
    raise MissingDependencyError(
        "PostgreSQL: expected initdb and pg_ctl on PATH or in /usr/lib/postgresql, found none; "
        "install it (Debian: apt-get install postgresql), or start nodes with a catalog of your own"
    )


def _owner() -> pwd.struct_passwd | None:
    """Whom to run the server as; `None` is the caller, who is not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        raise MissingDependencyError("PostgreSQL: expected a user `postgres` to run it as, found root alone") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    directory: Path
    port: int
    password: str

    @classmethod
    def create(cls, wanted: Path, port: int, password: str) -> Postgres:
        """Make the data directory, there or, where the server's user may not enter, in a temporary place.

        Nothing is left of one that cannot be made.
        """
        owner = _owner()
        directory = wanted.absolute()
        if owner is not None and not all(one.stat().st_mode & 0o001 for one in directory.parents):
            directory = Path(tempfile.mkdtemp(prefix="ebla-pg-", dir="/tmp"))
        directory.mkdir(mode=0o700, exist_ok=True)
        if owner is not None:
            os.chown(directory, owner.pw_uid, owner.pw_gid)
        made = cls(directory=directory, port=port, password=password)
        try:
            made._initialize(owner)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return made

    def _initialize(self, owner: pwd.struct_passwd | None) -> None:
        secret = self.directory / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        if owner is not None:
            os.chown(secret, owner.pw_uid, owner.pw_gid)
        self._run(
            "initdb", "-D", str(self.data), "--username", USER, "--pwfile", str(secret), "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        secret.unlink()
        settings: Mapping[str, str] = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "timezone": "UTC",
            "port": str(self.port),
            "max_connections": "200",
        }
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int | None:
        """Of its process, if it runs."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if is_there(pid) else None

    def start(self) -> None:
        """Start the server, unless it runs. Processes of one that was killed may still be ending: it is tried again."""
        log = str(self.directory / "server.log")
        for attempt in range(1, START_ATTEMPTS + 1):
            if self.pid is not None:
                return
            # A server that was killed leaves it, and the next one believes it as long as no parent has noticed the end.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            try:
                self._run("pg_ctl", "start", "-w", "-t", str(START_S), "-D", str(self.data), "-l", log)
            except NodeUnavailableError:
                if attempt == START_ATTEMPTS:
                    raise
                time.sleep(RETRY_S)

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is a crash: the next start recovers from the log. The server's process has ended on return."""
        pid = self.pid
        if pid is None:
            return
        self._run("pg_ctl", "stop", "-w", "-t", str(STOP_S), "-D", str(self.data), "-m", mode)
        # It waits for the file with the process id, which the server removes a moment before it ends.
        if not has_ended(pid, STOP_S):
            raise NodeUnavailableError(f"PostgreSQL: expected process {pid} to end within {STOP_S} s, found it running")

    def _run(self, program: str, *arguments: str) -> None:
        # The server's user may not enter the caller's working directory or home, so neither is passed on.
        owner, drop = _owner(), dict[str, Any]()
        if owner is not None:
            drop = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [programs() / program, *arguments],
            cwd=self.directory,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **drop,
        )
        if done.returncode != 0:
            raise NodeUnavailableError(f"{program}: expected success, found status {done.returncode}: {done.stdout}")
