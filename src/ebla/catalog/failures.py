"""What a database says when something is wrong, as one of our errors: the cause, whether waiting helps, what to do.

SQLite gives a result code. PostgreSQL gives an SQLSTATE to a statement that fails, but a connection that cannot be made
has only its words, by which Ebla recognizes what waiting cannot mend. Any other refusal to connect may be a restart.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from ebla.errors import CatalogError, CatalogUnavailableError, EblaError, StorageFullError, UsageError

FILE = "catalog.db"
BUSY_TIMEOUT_S = 60.0
"""How long SQLite waits for another process's lock."""

_PASSING_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "25P03", "40001", "40P01")
"""Lost connections, a server that stops, starts or is full of clients, and transactions that it gave up by itself."""

_UNRESOLVED = ("failed to resolve host", "could not translate host name")

_WORDS: Sequence[tuple[tuple[str, ...], str, str]] = (
    (
        ("password", "no pg_hba.conf entry", "authentication", "role ", "is not permitted to log in", "certificate"),
        "a user and a password that the server accepts",
        "check the user, the password and the server's pg_hba.conf",
    ),
    (
        ('database "', "not currently accepting connections"),
        "a database of this name that takes connections",
        "create it with createdb, or correct the address",
    ),
    (
        _UNRESOLVED,
        "a host of this name",
        "correct the address",
    ),
)
"""Words of a refused connection that waiting does not change; what was expected then, and what to do."""


def translated(error: DBAPIError, where: str, *, has_answered: bool = False) -> EblaError | None:
    """Our error for the database's; `None` for one that only a mistake of Ebla's explains.

    `has_answered`: the database of this address has answered before, so that a host name without an address is not
    misspelled: some name services forget a server while it restarts.
    """
    if isinstance(error.orig, sqlite3.Error):
        return of_sqlite(error.orig, where)
    return _of_postgres(error, without_password(where), has_answered=has_answered)


# ---- SQLite ---------------------------------------------------------------------------------------------


def of_sqlite(error: sqlite3.Error, where: str) -> EblaError | None:
    said = str(error)
    file = f"{where}/{FILE}"
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return unavailable(
                f"{file}: expected its lock within {BUSY_TIMEOUT_S:g} s, found it held by another process ({said}); "
                "wait for that process or end it, and retry",
                since=time.monotonic() - BUSY_TIMEOUT_S,
            )
        case sqlite3.SQLITE_FULL:
            return full(file)
        case sqlite3.SQLITE_READONLY:
            return read_only(where, said)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return CatalogError(
                f"{file}: expected a file that this user may open, found: {said}; "
                "check the permissions of the file and of its directory"
            )
        case sqlite3.SQLITE_IOERR:
            return CatalogError(
                f"{file}: expected a disk that reads and writes, found: {said}; "
                "check the disk, its free space, and that its file system knows locks"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CatalogError(
                f"{where}: expected an Ebla catalog, found: {said}; bring {FILE} back from a backup, "
                "or choose another directory"
            )
    if isinstance(error, sqlite3.OperationalError):
        return CatalogError(f"{where}: expected an Ebla catalog, found: {said}; check the directory")
    return None


def full(file: str) -> StorageFullError:
    return StorageFullError(
        f"{file}: expected room for the catalog, found the disk full; nothing was committed: free space and retry"
    )


def read_only(where: str, said: str) -> CatalogError:
    return CatalogError(
        f"{without_password(where)}: expected a catalog that this user may write, found it read-only ({said}); "
        "get write permission, or only read"
    )


# ---- PostgreSQL -----------------------------------------------------------------------------------------


def _of_postgres(error: DBAPIError, where: str, *, has_answered: bool) -> EblaError | None:
    said = first_line(error)
    state = getattr(error.orig, "sqlstate", None)
    if state is None and "NUL (0x00)" in said:
        return UsageError("expected text without the character NUL, found one; PostgreSQL cannot keep it: remove it")
    if state is None and isinstance(error, OperationalError | InterfaceError):
        return _refused(where, said, has_answered=has_answered)
    if error.connection_invalidated or (state or "").startswith(_PASSING_STATES):
        return silent(where, said)
    match state:
        case "53100":
            return full(where)
        case "25006":
            return read_only(where, f"{said}: the server is a standby, or the session may only read")
        case "42501":
            return CatalogError(
                f"{where}: expected an Ebla catalog, found: {said}; "
                "ask its owner to GRANT USAGE ON SCHEMA ebla and the rights on its tables"
            )
        case "57014" | "55P03":
            return CatalogError(
                f"{where}: expected the server to let the catalog's statements end, found: {said}; "
                "raise statement_timeout and lock_timeout for this user, and retry"
            )
    if isinstance(error, OperationalError):
        return CatalogError(f"{where}: expected a database that works, found: {said}; see the server's log")
    return None


def _refused(where: str, said: str, *, has_answered: bool) -> CatalogError:
    unresolved = any(word in said for word in _UNRESOLVED)
    if unresolved and (has_answered or "Temporary failure" in said):
        return silent(where, said)
    for words, expected, todo in _WORDS:
        if any(word in said for word in words):
            return CatalogError(f"{where}: expected {expected}, found: {said}; {todo}")
    return silent(where, said)


def silent(where: str, said: str) -> CatalogUnavailableError:
    return unavailable(
        f"{where}: expected a database that answers, found: {said}; check the address and that the server runs"
    )


def unavailable(message: str, since: float | None = None) -> CatalogUnavailableError:
    error = CatalogUnavailableError(message)
    error.since = time.monotonic() if since is None else since
    return error


# ---- words ----------------------------------------------------------------------------------------------

SECRETS = ("password", "sslpassword")


def without_password(url: str) -> str:
    if "://" not in url:
        return url
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return url.partition("://")[0] + "://…"
    return parsed.difference_update_query(SECRETS).render_as_string(hide_password=True)


def first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if error.orig else str(error)
