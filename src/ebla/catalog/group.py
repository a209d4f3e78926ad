"""Group commit: changes that threads of one process want to make at the same moment share one database transaction.

Theory of operation. One thread at a time writes, the leader. A thread that comes meanwhile queues its change and waits.
Behind the leader one of those that wait leads, and carries out all that is queued, in order: one lock, one flush. So a
lone change is made at once by its own thread, and a group is made of what would wait anyway.

Each change has its own outcome. Those of a group have a savepoint each, so that one which is refused is undone alone.
If the database fails, the group is rolled back, and each change gets a transaction of its own; whether one happened
whose answer was lost, it finds out itself (`Catalog.commit`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from ebla.catalog import memory
from ebla.errors import CatalogUnavailableError

log = logging.getLogger("ebla.catalog")

Done = TypeVar("Done")


@dataclass(slots=True, eq=False)
class _QueuedChange:
    change: Callable[[Connection], Any]
    over: bool = False
    value: Any = None
    error: Exception | None = None

    def end(self, value: Any = None, error: Exception | None = None) -> None:
        self.over, self.value, self.error = True, value, error


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was carried out in groups since the catalog was opened."""

    changes: int
    transactions: int


class Queue:
    """Changes of one catalog. `transaction`: one database transaction, alone among processes."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._transaction = transaction
        self._changed = threading.Condition()
        self._waiting: list[_QueuedChange] = []
        self._leader: int | None = None
        """The thread that carries out changes."""
        self._changes = self._transactions = 0

    @property
    def waiting(self) -> int:
        """How many changes wait for the leader to end."""
        with self._changed:
            return len(self._waiting)

    @property
    def counts(self) -> Counts:
        with self._changed:
            return Counts(changes=self._changes, transactions=self._transactions)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Connection]:
        """A transaction without others of this process."""
        self._require_outside()
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._leader is None)
                self._leader = threading.get_ident()
            with self._transaction() as connection:
                yield connection
        finally:
            self._leave()

    def run(self, change: Callable[[Connection], Done]) -> Done:
        """Carry out a change, with those of others that wait at the same moment; what it returns or raises."""
        self._require_outside()
        mine = _QueuedChange(change)
        group: list[_QueuedChange] = []
        try:
            with self._changed:
                self._waiting.append(mine)
                self._changed.wait_for(lambda: mine.over or self._leader is None)
                if not mine.over:
                    self._leader = threading.get_ident()
                    group, self._waiting = self._waiting, []
            self._carry_out(group)
        finally:
            mine.over = True
            self._leave(group)
        if mine.error is not None:
            raise mine.error
        done: Done = mine.value
        return done

    def _require_outside(self) -> None:
        """A change that began another one would wait for itself, and all of the process with it."""
        if self._leader == threading.get_ident():
            raise RuntimeError("expected one change of the catalog at a time, found one that begins within another")

    def _leave(self, group: Sequence[_QueuedChange] = ()) -> None:
        """If this thread leads, another one may. What an interrupted leader did not come to in its group is queued."""
        with self._changed:
            self._waiting = [one for one in (*group, *self._waiting) if not one.over]
            if self._leader == threading.get_ident():
                self._leader = None
                self._changed.notify_all()

    def _carry_out(self, group: Sequence[_QueuedChange]) -> None:
        if len(group) > 1 and self._share(group):
            return
        unavailable: CatalogUnavailableError | None = None
        for one in group:
            if unavailable is None:
                self._by_itself(one)
                unavailable = one.error if isinstance(one.error, CatalogUnavailableError) else None
            else:
                one.end(error=unavailable)  # the others need not ask one after the other

    def _share(self, group: Sequence[_QueuedChange]) -> bool:
        """Carry out a group in one transaction; whether the database did it."""
        try:
            with self._transaction() as connection:
                tried = [(one, *_in_savepoint(connection, one)) for one in group]
        except Exception as error:
            log.debug("a group of %d changes is carried out one by one reason=%s", len(group), error)
            return False
        self._count(len(group))
        for one, value, refusal in tried:
            one.end(value, refusal)
        return True

    def _by_itself(self, one: _QueuedChange) -> None:
        try:
            with self._transaction() as connection:
                value = one.change(connection)
            self._count(1)
            one.end(value)
        except Exception as error:
            one.end(error=error)

    def _count(self, changes: int) -> None:
        with self._changed:
            self._changes += changes
            self._transactions += 1


def _in_savepoint(connection: Connection, one: _QueuedChange) -> tuple[Any, Exception | None]:
    """Carry out a change of a group: what it returns, or why it was refused and left nothing behind."""
    savepoint = connection.begin_nested()
    try:
        value = one.change(connection)
    except SQLAlchemyError:
        raise
    except Exception as error:
        savepoint.rollback()
        memory.undone(connection)
        return None, error
    savepoint.commit()
    return value, None
