"""The barrier: when a new state holds for all that is at work.

It is the only one: the columns and constraints of a table, the permission states of its indexes and the stages of its
tablets all wait for it.

Theory of operation. A writer plans with a state, and its commit may come one state later. So a step that must not meet
work of the state before the last one waits until nothing at work was planned with an older state than the last one:

- no *transaction* is open that began under an older state. Work in an open session, such as copies, is not waited for:
  its commits require the session, which the step that ends its stage closes. A transaction whose session is closed is
  waited for like any other;
- each live *node* follows the state, where processes keep what they have read of it between transactions. That is so
  for the topology. Columns, constraints and index states are read by each transaction when it begins, so for those the
  transactions tell it all.

The wait is bounded. What is in the way for longer than a grace period, counted from the commit of the state, is
aborted; its commit fails, and its client starts over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ebla.base.ids import TransactionId, Version


class Open(NamedTuple):
    """An open transaction, as the barrier sees it."""

    transaction: TransactionId
    began_under: int
    """The number of the state that it was planned with, in the count of the state that is waited for: a version of the
    catalog, or a schema's."""
    reason: str = ""
    holder: str = ""

    def __str__(self) -> str:
        return f"transaction {self.transaction} ({self.reason}, {self.holder})"


def blockers(found: Iterable[Open], state: int) -> list[Open]:
    """The transactions that began under an older state."""
    return [one for one in found if one.began_under < state]


def is_over(stepped_us: int, now_us: int, grace_us: int) -> bool:
    """Whether a state has waited long enough for what is in its way."""
    return now_us >= stepped_us + grace_us


def late(found: Iterable[Open], state: int, stepped_us: int, now_us: int, grace_us: int) -> list[TransactionId]:
    """The transactions that have kept the barrier of a state waiting for too long: they are to be aborted."""
    if not is_over(stepped_us, now_us, grace_us):
        return []
    return [one.transaction for one in blockers(found, state)]


def holds_up_to(follows: Iterable[Version], oldest_open: Version | None, newest: Version) -> Version:
    """The newest step that all that is at work knows: each live node, by the version that it `follows`, and each open
    transaction. `newest` where nothing is at work."""
    newest_seen = min(follows, default=newest)
    return newest_seen if oldest_open is None else min(newest_seen, oldest_open)
