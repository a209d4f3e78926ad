"""Settings, each with a default that needs no thought.

Given to `ebla.connect(url, name=value)`, or as environment variables `EBLA_<NAME>`, in that order of precedence.
"""

from __future__ import annotations

import json
import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ebla.errors import UnknownNameError, UsageError

PREFIX = "EBLA_"


JOB_TABLES = ("handlers_table", "runners_table", "runner_jobs_table", "commands_table")

TABLET_BYTES = 5 * 2**30
"""The bytes that a tablet should have at most."""


class NodeSettings(BaseModel):
    """A node that lives in a process beside its own. A storage root alone stands for a node with nothing else said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: str
    datacenter: str | None = None
    rack: str | None = None
    shards: int | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def of_root(cls, given: object) -> object:
        return {"root": given} if isinstance(given, str) else given


def _table(usual: str) -> Any:
    return Field(
        None,
        pattern="^[a-z_][a-z0-9_]{0,62}$",
        description=f"What the database calls the table `system.{usual}`: a catalog gets the name when it is created, "
        f"and a process that says another one is refused; default: that of the catalog, `{usual}` in a new one.",
    )


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str = Field("node1", description="The name of the node that this process is.")
    storage_root: str | None = Field(None, description="Where this node's runs lie; default: <warehouse>/data.")
    local_root: bool = Field(
        False, description="Only this machine reaches the storage root: other nodes fetch runs through this node."
    )
    nodes: dict[str, NodeSettings] = Field(
        default_factory=dict,
        description="More nodes that live in this process: name to storage root, or to a mapping with `root` and, "
        "where they are not those of the process, `datacenter`, `rack` and `shards`.",
    )
    replaces: dict[str, str] = Field(
        default_factory=dict, description="Of new nodes: name to the dead node in whose place it comes."
    )
    datacenter: str = Field("dc1", description="Where new nodes of this process stand.")
    rack: str = Field("rack1", description="The rack of new nodes of this process: copies go to different ones.")
    shards: int = Field(1, ge=1, description="Shards of new nodes of this process: each builds and copies by itself.")
    address: str | None = Field(None, description="Where the node of this process serves its API.")
    tablets: int = Field(16, description="Tablets of a new table, a power of two.")
    replication: int = Field(1, description="Copies of every tablet of a new table.")
    level0_rows_max: int = Field(
        200_000, ge=0, description="More level 0 rows than this are merged by Spark, not on the driver."
    )
    batch_rows_max: int = Field(
        200_000, ge=0, description="A batch of more rows than this is cut into tablets by Spark."
    )
    tablet_bytes_target: int = Field(
        TABLET_BYTES, gt=0, description="Tablets of more bytes than this, on average, are split; of much fewer, merged."
    )
    compact_runs: int = Field(
        32, ge=1, description="A relation with this many level 0 runs is compacted in the background."
    )
    auto_compact: bool = Field(True, description="Compact in the background after writes.")
    auto_refresh: bool = Field(True, description="Build views, and bring them up to date, in the background.")
    epoch_period_s: float | None = Field(
        None,
        ge=0,
        description="How long a background epoch gathers writes; default: as long as the last one took, 1 s at most, "
        "and not at all when there was none for as long.",
    )
    max_lag_s: float | None = Field(
        60.0,
        ge=0,
        description="A write is held back, 5 s at most, while epochs of any process are further behind than this.",
    )
    driver_rows_max: int = Field(
        10_000, ge=0, description="Largest number of changed rows for an epoch without Spark; 0: all run on Spark."
    )
    driver_memory_bytes: int = Field(
        2**30,
        ge=64 * 2**20,
        description="Memory of what epochs and lookups without Spark compute; they use a temporary folder beyond it.",
    )
    dictionary_period_s: float = Field(
        60.0, ge=0, description="How often changes of dictionaries are gathered and applied."
    )
    dictionary_rows_per_scan: int = Field(
        100_000, gt=0, description="A dictionary's change rewrites this many rows of a view at a time."
    )
    dictionary_rows_per_s: float | None = Field(
        None, gt=0, description="A dictionary's change rewrites at most this many rows of a view a second."
    )
    retention_s: float = Field(
        86_400.0, ge=0, description="How long vacuum keeps what newer versions replaced, and the history."
    )
    audit_retention_s: float = Field(
        2_592_000.0, ge=0, description="How long vacuum keeps the audit log of what users changed over HTTP."
    )
    vacuum_period_s: float = Field(
        600.0,
        ge=0,
        description="How often one process that maintains views vacuums in the background; 0: never.",
    )
    repair_period_s: float = Field(
        10.0,
        ge=0,
        description="How often one process looks for copies that nodes lack, and makes them; 0: never.",
    )
    transaction_lease_s: float = Field(60.0, gt=0, description="A writer silent for this long is taken for dead.")
    leader_lease_s: float = Field(5.0, gt=0, description="A leader silent for this long is followed by another one.")
    runner_lease_s: float = Field(
        15.0, gt=0, description="A process that runs jobs and is silent for this long is dead: its jobs run elsewhere."
    )
    jobs_period_s: float = Field(
        1.0, gt=0, description="How often a process that runs jobs looks for commits and commands of others."
    )
    command_timeout_s: float = Field(
        30.0, gt=0, description="A command to start or stop a job that waits for this long is given to another process."
    )
    handlers_table: str | None = _table("mv_handlers")
    runners_table: str | None = _table("mv_runners")
    runner_jobs_table: str | None = _table("mv_runner_jobs")
    commands_table: str | None = _table("mv_commands")
    barrier_grace_s: float = Field(
        10.0,
        ge=0,
        description="How long a new state of a table, an index or a tablet waits for old transactions before it aborts "
        "them.",
    )
    catalog_retry_s: float = Field(
        30.0, ge=0, description="How long reads and writes wait for a catalog whose database does not answer."
    )
    node_silence_s: float = Field(
        30.0,
        gt=0,
        description="A remote client that waits for an answer asks the next node when this one has answered nothing, "
        "not even whether it lives, for this long.",
    )
    pin_lease_s: float = Field(3600.0, gt=0, description="How long a lazy read stays protected from vacuum.")
    write_attempts: int = Field(20, ge=1, description="How often a write that lost a race is run again.")
    file_umask: str = Field(
        "077", pattern="^0?[0-7]{3}$", description="Rights that new directories and files do not give, in octal."
    )
    move_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="The part of the time that this process moves or cuts files in the background while writers or "
        "queries are at work in it; 1: all of it.",
    )
    fsync: bool = Field(True, description="Flush runs to disk before a commit names them.")
    row_group_bytes: int = Field(16 * 2**20, gt=0, description="Size of a row group before compression.")
    index_row_group_bytes: int = Field(
        2**20, gt=0, description="Size of a row group of an index: a page reads one of each tablet."
    )
    read_cache_bytes: int = Field(
        768 * 2**20, ge=0, description="What a process keeps in memory of runs and snapshots, all caches together."
    )
    file_cache_bytes: int = Field(
        10 * 2**30,
        gt=0,
        description="What a node keeps on its disk of runs that it fetched from nodes with local storage roots.",
    )
    index_tablets_per_job: int = Field(
        8, gt=0, description="The number of tablets of a table that one Spark job reads to fill its indexes."
    )
    check_rows_per_minute: int | None = Field(
        None, gt=0, description="`CHECK` and `REPAIR` look at no more rows a minute than this, unless they say so."
    )
    check_chunk_rows: int = Field(
        4_000_000, gt=0, description="`CHECK` and `REPAIR` look at about this many rows at a time."
    )
    thread_switch_s: float | None = Field(
        0.001,
        gt=0,
        description="A thread that computes in Python lets another one in after this long, unless Python's own limit "
        "is lower already: queries wait less beside epochs.",
    )
    gc_freeze: bool = Field(
        True,
        description="When Spark has started, leave what is in memory out of Python's later garbage collections "
        "(`gc.freeze`): each full one would stop all threads of the process for about 0.1 s.",
    )
    spark_memory: str = Field("4g", description="Memory of a Spark session that Ebla starts.")
    spark_cores: str = Field("*", description="Cores of a Spark session that Ebla starts.")
    spark_master: str | None = Field(
        None,
        description="Where Spark runs that Ebla starts, such as spark://host:7077; default: in this process; `none`: "
        "Ebla starts none, and what needs Spark is refused.",
    )
    spark_executor_memory: str = Field("1g", description="Memory of this process's executor on spark://….")
    spark_executor_cores: int = Field(
        1, gt=0, description="Cores that this process takes on spark://…; the others are left to other processes."
    )

    @property
    def table_names(self) -> dict[str, str]:
        """The names of tables of jobs that this process means."""
        found = {name: getattr(self, name) for name in JOB_TABLES}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def file_mask(self) -> int:
        return int(self.file_umask, 8)


def load(**given: object) -> Settings:
    """Settings from the arguments and the environment; an unknown name or a wrong value is an error that says so."""
    unknown = sorted(set(given) - set(Settings.model_fields))
    if unknown:
        names = ", ".join(sorted(Settings.model_fields))
        raise UnknownNameError(f"setting {unknown[0]}: expected one of {names}")
    try:
        return Settings(**{**_of_environment(), **given})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"])
        raise UsageError(f"setting {name}: {first['msg']}, found {first['input']!r}") from error


def _of_environment() -> dict[str, object]:
    """Values as text, which the model reads as the types of its fields; of mappings a JSON object."""
    said = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
    found: dict[str, object] = {
        name: said[PREFIX + name.upper()] for name in Settings.model_fields if PREFIX + name.upper() in said
    }
    for name in ("nodes", "replaces"):
        if name in found:
            found[name] = _json(name, str(found[name]))
    return found


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise UsageError(f"setting {name}: expected a JSON object, found {text!r}") from None
