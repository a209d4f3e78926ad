"""What the catalog says of a cluster: who leads, its nodes, transitions, copies that are missing, and jobs."""

from __future__ import annotations

import contextlib
from typing import Any

from ebla.api.statements.cluster import nodes as nodes_table
from ebla.catalog import processes, topology, transactions
from ebla.catalog.store import Catalog
from ebla.model.jobs import COORDINATOR
from ebla.relations import copies, jobs
from ebla.topology import loader


def read(url: str, report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the catalog says of nodes, by name; leader, transitions, copies that are missing and jobs go to `report`."""
    catalog = Catalog.open(url, create=False)
    with contextlib.closing(catalog), catalog.reading() as connection:
        now = catalog.clock()
        living = processes.alive(connection, now)
        state = loader.load(connection, now)
        members: list[dict[str, Any]] = nodes_table(connection, state).to_pylist()
        by_id = {one["host_id"]: one for one in members}
        for process in living:
            if process.role is processes.Role.NODE and process.node in by_id:
                by_id[process.node]["load"] = list(process.doing)
        running = jobs.jobs_table(connection, now).to_pylist()
        led = next((one["identity"] for one in running if one["name"] == COORDINATOR), None)
        led_last = (transactions.leader(connection, lease, -1) for lease in ("view_building", "topology", COORDINATOR))
        holder = next((one for one in led_last if one in {process.holder for process in living}), None)
        names = {process.holder: by_id.get(process.node, {}).get("name") for process in living}
        report["leader"] = names.get(holder or "") or (None if led is None else led.split()[0].removeprefix("node="))
        report["cluster"] = topology.cluster_name(connection)
        report["version"] = int(topology.version(connection))
        report["transitions"] = len(topology.transitions(connection))
        report["under_replicated"] = copies.table(connection).num_rows
        report["jobs"] = [{"name": one["name"], "state": one["state"], "runs_on": one["identity"]} for one in running]
    return {one["name"]: one for one in members}
