"""A cluster of node processes: statements for them over HTTP, and what is between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

import support
from ebla.cluster.local_cluster import LocalCluster


def sql(cluster: LocalCluster, node: str, text: str) -> Any:
    """The rows that a node answers."""
    answer = httpx.post(
        f"{cluster.node(node).url}/v1/sql",
        json={"sql": text},
        headers={"Authorization": f"Bearer {cluster.token}"},
        timeout=120,
    )
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()["rows"]


def imported_first(folder: str) -> str:
    """Where Python looks for modules, with a folder of `tests/support` before all others."""
    return os.pathsep.join(filter(None, [str(Path(support.__path__[0]) / folder), os.environ.get("PYTHONPATH")]))


def refusing(file: Path) -> dict[str, str]:
    """The environment of a node to which the network refuses the ports that a file names."""
    return {"PYTHONPATH": imported_first("refusing"), "EBLA_TEST_REFUSED": str(file)}


def ports_between(cluster: LocalCluster, groups: Sequence[set[str]]) -> dict[str, list[int]]:
    """By node, the ports of the nodes of other groups."""
    ports = {one.name: one.port for one in cluster.nodes}
    return {name: [ports[other] for other in ports if not {name, other} <= group] for group in groups for name in group}
