"""What a transaction or a commit is for. Its reason is for people; nothing is read in that."""

from __future__ import annotations

from enum import StrEnum


class WorkKind(StrEnum):
    """Transactions have one of the first kinds; a commit has that of its transaction, or says another one.

    Commits of topology, tables and handlers have none, and so has what an older release wrote.
    """

    WRITE = "write"
    """Rows as a user gave them."""
    COMPACTION = "compaction"
    """The same rows in other runs."""
    EPOCH = "epoch"
    """Brings a view to newer versions of its inputs; a step of a refresh, too."""
    CHUNK = "chunk"
    """Brings rows of a part of the base to a view that is being built."""
    INDEX_FILL = "index_fill"
    """Brings entries of indexes; its relation is their base, whose rows it reads."""
    COPY = "copy"
    """Copies of runs for nodes that lack them."""
    BUILD = "build"
    """How the build of a view or an index goes, without rows: it was asked for, altered, cancelled, is done or gone."""
    EPOCH_FAILURE = "epoch_failure"
    """Stops a view: a row or its query is to blame."""
    BUILD_FAILURE = "build_failure"
    """Stops the build of a view."""


ROWS_AS_THEY_WERE = (WorkKind.COMPACTION, WorkKind.EPOCH_FAILURE, WorkKind.BUILD_FAILURE)
"""Commits that leave the rows of their relation as they were."""
