"""Identifiers. Each is a `NewType`, so that a tablet is never passed where a version is meant."""

from __future__ import annotations

from typing import NewType

RelationId = NewType("RelationId", int)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
TransactionId = NewType("TransactionId", int)
TabletId = NewType("TabletId", int)
Token = NewType("Token", int)
"""A signed 64-bit hash of a primary key, equal to Spark's `xxhash64`."""
Version = NewType("Version", int)
"""A point in the one sequence of commits that all relations share."""
Term = NewType("Term", int)
"""A leader's reign; grows by one with every change of leader."""
TaskId = NewType("TaskId", str)
"""A building task. An id is never used again: going on after an abort means a new one."""
