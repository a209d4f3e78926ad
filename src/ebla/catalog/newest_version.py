"""The newest version of a catalog, asked for by one statement that threads share.

Theory of operation. A query whose relation was read before needs one number of the catalog, which says that no commit
came since. A transaction is a ping, a beginning, the statement and an end, and on PostgreSQL each of them is a round
trip. Here the statement goes alone over a connection of its own. One thread at a time asks; threads that come meanwhile
wait for the next question, which begins after all of them came, so that its answer is right for each.

Where the database does not answer, nothing is known: a transaction says what is wrong, and finds a database that was
restarted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ebla.base.ids import Version

_STATEMENT = "SELECT value FROM counters WHERE name = 'version'"

AGAIN_S = 1.0
"""A database that did not answer is not asked again before."""


class NewestVersion:
    """Safe to use from several threads. `connect` gives a connection on which each statement is a transaction."""

    def __init__(self, connect: Callable[[], Connection], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._asks = False
        """Whether a thread asks."""
        self._begun = 0
        """Questions that were begun, and the last one that was answered, with its answer."""
        self._answered: tuple[int, Version | None] = (0, None)
        self._not_before = 0.0
        self._closed = False

    def ask(self) -> Version | None:
        """A version that was the newest after this call began; `None` where it is not known."""
        with self._changed:
            mine = self._begun + 1
            self._changed.wait_for(lambda: not self._asks or self._answered[0] >= mine)
            number, version = self._answered
            if number >= mine:
                return version
            if self._closed or self._clock() < self._not_before:
                return None
            self._asks, self._begun = True, mine
        found: Version | None = None
        try:
            found = self._read()
        finally:
            with self._changed:
                self._asks, self._answered = False, (mine, found)
                self._changed.notify_all()
        return found

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._asks)
            self._disconnect()

    def _read(self) -> Version | None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            found = self._connection.exec_driver_sql(_STATEMENT).scalar_one()
            self._connection.commit()  # of nothing, but SQLAlchemy believes in a transaction
            return Version(int(found))
        except SQLAlchemyError:
            self._disconnect()
            self._not_before = self._clock() + AGAIN_S
            return None
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            for end in (connection.invalidate, connection.close):
                with contextlib.suppress(SQLAlchemyError):
                    end()
