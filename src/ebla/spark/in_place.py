"""Rows that lie in the tablet of the row that they come of, written without a shuffle.

Plan: a scan of which each file, one tablet's, is a partition; joins with inputs that are broadcast; a sort inside each
partition; the write. One job, and one for each broadcast. Whether a query has such a plan, Spark says: `streams` asks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ebla.base.ids import TabletId
from ebla.model.relation import Relation
from ebla.spark.session import java_class, writer_session
from ebla.storage.files import Root
from ebla.values import token as tokens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHOLE_FILES = 2**40
"""A file of fewer bytes is not split, and shares its partition with no other."""
MEMORY_PARTS = 64
"""An input that Spark takes for less than this part of its memory is broadcast: it becomes several times larger."""
_KEEPS_ROWS = ("WholeStageCodegen", "InputAdapter", "Project", "Filter", "Sort", "ColumnarToRow")
"""Nodes of a plan whose partitions are those of their one child."""


def in_place_session(session: SparkSession) -> SparkSession:
    """A sibling session that writes as `writer_session`, reads each file in one partition, and replans nothing."""
    sibling = writer_session(session)
    memory = int(java_class(session, "java.lang.Runtime").getRuntime().maxMemory())
    sibling.conf.set("spark.sql.files.maxPartitionBytes", str(WHOLE_FILES))
    sibling.conf.set("spark.sql.files.openCostInBytes", str(WHOLE_FILES))
    sibling.conf.set("spark.sql.adaptive.enabled", "false")
    sibling.conf.set("spark.sql.autoBroadcastJoinThreshold", str(memory // MEMORY_PARTS))
    return sibling


def streams(frame: DataFrame, names: Collection[str]) -> bool:
    """Whether the frame's partitions are those of a scan of the files with these names, and of nothing else."""
    node = frame._jdf.queryExecution().executedPlan()
    while not node.children().isEmpty():
        below = _below(node)
        if below is None:
            return False
        node = below
    if not str(node.nodeName()).startswith("Scan parquet"):
        return False
    return {str(path).rsplit("/", 1)[-1] for path in node.relation().location().inputFiles()} == set(names)


def _below(node: Any) -> Any:
    """The child whose partitions a node of a plan has; `None` if it makes others."""
    name = str(node.nodeName()).split(" ", maxsplit=1)[0]
    if name == "BroadcastHashJoin":
        return node.left() if str(node.buildSide().toString()) == "BuildRight" else node.right()
    return node.children().apply(0) if name in _KEEPS_ROWS else None


def tablet_of_file(root: Root, path: str, relation: Relation) -> TabletId | None:
    """The tablet that all rows of a file lie in; `None` if they lie in several. Reads the key."""
    file, names = root.open_parquet(path), [c.physical for c in relation.placed_by]
    found: set[int] = set()
    for group in range(file.metadata.num_row_groups):
        rows = file.read_row_group(group, columns=names)
        found |= set(np.unique(tokens.tablets_of(tokens.tokens(rows, names), relation.tablets)).tolist())
    return TabletId(min(found, default=0)) if len(found) <= 1 else None
