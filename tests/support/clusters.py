"""Statements for the nodes of a cluster of processes, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

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
