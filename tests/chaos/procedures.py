"""What a cluster can be asked to become, and how it looks when that has ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ebla
from chaos.clusters import NODES, Cluster, fill, folded, folded_in_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """One request, and the processes that carry it out."""

    name: str
    kind: str
    """As `system.topology_requests` has it."""
    result: str
    """What a request says that has ended well."""
    statement: str = ""
    """What asks; without one the nodes of a process ask when it opens."""
    nodes: tuple[str, ...] = NODES
    """Those of the process that asks and leads,"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """and its settings."""
    without: tuple[str, ...] = NODES
    """The nodes of a process that follows one whose new node was refused."""
    make: Callable[[Cluster], None] = fill
    after: Mapping[str, Any]
    """What is true of `shape` when it has ended."""
    steps: int
    """The fewest commits that it takes."""
    dies_at: str = ""
    """What its processes pass beside the failpoints of a leader, and are killed at instead."""
    uses_spark: bool = False
    """Whether its processes, or what makes its cluster, fold runs."""
    merges: bool = False
    """Whether runs of level 0 are merged behind each write."""

    @property
    def asks_by_opening(self) -> bool:
        return not self.statement


def without_c(cluster: Cluster) -> None:
    """A node whose machine is gone."""
    fill(cluster)
    shutil.rmtree(cluster.folder / "c")


def damaged(cluster: Cluster) -> None:
    """A node whose files are gone, but for one that is cut short."""
    fill(cluster)
    for number, file in enumerate(sorted((cluster.folder / "c").rglob("*.parquet"))):
        file.unlink() if number else file.write_bytes(b"cut")


PROCEDURES = (
    Procedure(
        name="join",
        steps=2,
        kind="join",
        nodes=("a", "b", "c", "d"),
        result="node d joined",
        after={"nodes": {"a", "b", "c", "d"}},
    ),
    Procedure(
        name="leave",
        steps=8,
        kind="leave",
        statement="ALTER CLUSTER DECOMMISSION NODE c",
        result="node c left",
        after={"nodes": {"a", "b"}, "replicas": 2},
    ),
    Procedure(
        name="remove",
        steps=8,
        kind="remove",
        nodes=("a", "b"),
        make=without_c,
        statement="ALTER CLUSTER REMOVE NODE c",
        result="node c was removed",
        after={"nodes": {"a", "b"}, "replicas": 2},
    ),
    Procedure(
        name="replace",
        steps=8,
        kind="replace",
        nodes=("a", "b", "d"),
        settings={"replaces": {"d": "c"}},
        without=("a", "b"),
        make=without_c,
        result="node d replaced c",
        after={"nodes": {"a", "b", "d"}, "replicas": 2},
    ),
    Procedure(
        name="rebuild",
        steps=2,
        kind="rebuild",
        make=damaged,
        statement="ALTER CLUSTER REBUILD NODE c",
        result="node c has all of its copies",
        after={"nodes": {"a", "b", "c"}, "replicas": 2},
    ),
    Procedure(
        name="move",
        steps=7,
        kind="move",
        statement="MOVE TABLET 0 OF t FROM 'a' TO 'c'",
        result="tablet 0 has moved",
        after={"nodes": {"a", "b", "c"}, "replicas": 2, "tablet 0": {"b", "c"}},
    ),
    Procedure(
        name="split",
        steps=3,
        kind="resize",
        statement="ALTER TABLE t SET (tablets = 8)",
        result="t has 8 tablets",
        after={"tablets": 8, "replicas": 2},
    ),
    Procedure(
        name="merge",
        steps=3,
        kind="resize",
        statement="ALTER TABLE t SET (tablets = 2)",
        result="t has 2 tablets",
        after={"tablets": 2, "replicas": 2},
    ),
    Procedure(
        name="replication up",
        steps=8,
        kind="replication",
        statement="ALTER TABLE t SET (replication = 3)",
        result="t has 3 copies of each tablet",
        after={"replicas": 3},
    ),
    Procedure(
        name="replication down",
        steps=8,
        kind="replication",
        statement="ALTER TABLE t SET (replication = 1)",
        result="t has 1 copies of each tablet",
        after={"replicas": 1},
    ),
    Procedure(
        name="streams",
        steps=2,
        kind="new_cdc_generation",
        statement="ALTER CLUSTER NEW CDC GENERATION OF t",
        result="new generations of change streams of t",
        after={"replicas": 2, "generations": 2},
    ),
)

NAMED = {one.name: one for one in PROCEDURES}

OF_FILES = (
    replace(NAMED["split"], name="split of folded runs", make=folded, dies_at="cut.files_written", uses_spark=True),
    replace(
        NAMED["merge"],
        name="merge of tablets folded in part",
        make=folded_in_part,
        dies_at="compact.files_written",
        uses_spark=True,
    ),
    *(
        replace(NAMED[name], name=f"{name} beside merges of runs", dies_at="merge.files_written", merges=True)
        for name in ("split", "merge", "leave")
    ),
)
"""Procedures whose processes write other runs than copies, and die with these."""


def shape(db: ebla.Database) -> dict[str, Any]:
    """How a cluster looks: what `Procedure.after` is compared with."""
    tablets = db.sql("SHOW TABLETS OF t").to_arrow().to_pylist()
    held = {row["tablet"]: set(row["replicas"].split(", ")) for row in tablets}
    nodes = db.sql("SELECT name FROM system.topology WHERE node_state = 'normal'").rows()
    generations = db.sql("SELECT generation_id FROM system.cdc_generations").rows()
    [replicas] = {len(those) for those in held.values()}
    return {
        "nodes": {name for (name,) in nodes},
        "tablets": len(held),
        "replicas": replicas,
        "generations": len(generations),
        **{f"tablet {tablet}": those for tablet, those in held.items()},
    }
