"""A node dies, with its disk, at a stage of a tablet that leaves it or comes to it.

Three copies of each tablet lie on four nodes. The leader has two of the nodes, the tablet's source and its target have
a process each. The leader kills one of these when the tablet comes to the stage.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from chaos.clusters import Cluster, fill
from chaos.kills import Written, assert_sound
from ebla.model.lifecycle.tablet import Stage, goes_back
from ebla.topology.run_copies import repair
from ebla.topology.tablets import CAN_GO_BACK
from support.processes import Child, Processes
from support.topology_tasks import FULL

S = Stage
STAGES = (
    S.ALLOW_WRITE_BOTH_READ_OLD,
    S.WRITE_BOTH_READ_OLD,
    S.STREAMING,
    S.WRITE_BOTH_READ_NEW,
    S.USE_NEW,
    S.CLEANUP,
    S.CLEANUP_TARGET,
    S.REVERT_MIGRATION,
)
"""Those of a move that ends well, and those of one whose copies fail."""
NODES = ("a", "b", "source", "target")
VICTIMS = NODES[2:]


def spread(cluster: Cluster) -> None:
    """Tablet 0 on all nodes but one, which is called the target."""
    fill(cluster, NODES, tablets=2, replication=3)
    with cluster.open(*NODES) as db:
        [held] = [row["replicas"] for row in db.sql("SHOW TABLETS OF t").to_arrow().to_pylist() if row["tablet"] == 0]
        assert "target" not in held.split(", ")


@dataclass(slots=True, kw_only=True)
class Death:
    """One move of a tablet during which a node dies. A context manager: it ends the processes that it starts."""

    cluster: Cluster
    processes: Processes
    stage: str
    victim: str
    written: Written = field(default_factory=Written)
    _serving: dict[str, Child] = field(default_factory=dict)

    def __enter__(self) -> Death:
        for name in VICTIMS:
            self._serving[name] = self._start("serve", self.cluster.settings(name))
            assert self._serving[name].line() == "serves", self._serving[name].errors()
        return self

    def __exit__(self, *raised: object) -> None:
        for child in self._serving.values():
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.close()

    def _start(self, task: str, *arguments: object) -> Child:
        return self.processes.start(f"support.topology_tasks:{task}", self.cluster.where, *arguments)

    def check(self) -> None:
        """Let the tablet move and the node die: the move settles, and nothing is lost or left over."""
        root, away = self.cluster.folder / self.victim, self.cluster.folder / "away"
        victim = {"pid": self._serving[self.victim].pid, "root": str(root), "away": str(away)}
        move = "MOVE TABLET 0 OF t FROM 'source' TO 'target'"
        child = self._start(
            "move_beside_the_dead", self.cluster.settings("a", "b"), move, self.stage, victim, self.written.next
        )
        lines = child.finish()
        self.written.follow(lines)
        assert f"killed {self.stage}" in lines
        self._compare(next(line for line in lines if line.startswith("result")))
        self.__exit__()
        self._serving.clear()
        away.rename(root)
        with self.cluster.open(*NODES) as db:
            repair(db.context)
            assert_sound(db, self.written)

    def _compare(self, result: str) -> None:
        if goes_back(S(self.stage)):
            assert result.endswith(f"it went back: {FULL}")
        elif self.victim == "target" and self.stage in CAN_GO_BACK:
            assert "it went back: node target, which the tablet comes to, is down" in result
        else:
            assert result == "result tablet 0 has moved"
