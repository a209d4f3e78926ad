"""The catalog's tables. Readable by users as `SELECT … FROM system.<name>`.

Times are microseconds since 1970 in UTC. `end_version` is 2⁶² for what has not ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    FromClause,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
    false,
)

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

JOB_TABLES = "job_tables"
"""The row of `meta` with the names of tables of jobs that are not the usual ones: a JSON object, setting to name."""

migrations = Table(
    "migrations",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

history = Table(
    "history",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("node_id", Text, nullable=False),
    Column("transaction_id", BigInteger),
    Column("relation_id", BigInteger),
    Column("commit_id", Text),
    Column("work", Text),
    Index("history_by_time", "committed_at"),
    Index("history_by_relation", "relation_id", "version"),
)
history_by_commit = Index("history_by_commit", history.c.commit_id)

# The seed's columns come first; storage_root is where the node's runs lie.
topology = Table(
    "topology",
    metadata,
    Column("key", Text, nullable=False, default="topology"),
    Column("host_id", Text, nullable=False),
    Column("datacenter", Text, nullable=False),
    Column("rack", Text, nullable=False),
    Column("shard_count", Integer, nullable=False),
    Column("node_state", Text, nullable=False),
    Column("release_version", Text, nullable=False),
    Column("num_tokens", Integer),
    Column("tokens", Text),
    Column("ignore_msb", Integer),
    Column("topology_request", Text),
    Column("rebuild_option", Text),
    Column("replaced_id", Text),
    Column("ignore_nodes", Text),
    Column("storage_root", Text, nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    Column("name", Text),
    Column("address", Text),
    Column("features", Text),
    PrimaryKeyConstraint("key", "host_id"),
)

# One row, for the cluster as a whole. The first six columns are the seed's static ones.
topology_state = Table(
    "topology_state",
    metadata,
    Column("key", Text, primary_key=True),
    Column("transition_state", Text),
    Column("current_cdc_generation_timestamp", BigInteger),
    Column("current_cdc_generation_uuid", Text),
    Column("unpublished_cdc_generations", Text),
    Column("global_topology_request", Text),
    Column("new_cdc_generation_data_uuid", Text),
    Column("topology_version", BigInteger, nullable=False),
    Column("balancing", Boolean, nullable=False),
)

# What was asked of the topology, and how it ended; rows stay.
topology_requests = Table(
    "topology_requests",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("host_id", Text),
    Column("relation_id", BigInteger),
    Column("parameters", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("begun_version", BigInteger),
    Column("ended_version", BigInteger),
    Column("ended_at", BigInteger),
    Column("result", Text),
    Column("code", Text),
    Column("message", Text),
    Index("topology_requests_by_state", "state"),
)

# Tablets of tables and views that move or are rebuilt. A tablet without a row is at rest.
tablet_transitions = Table(
    "tablet_transitions",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("tablet_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("leaving_host", Text),
    Column("leaving_shard", Integer),
    Column("pending_host", Text),
    Column("pending_shard", Integer),
    Column("session_id", Text),
    Column("request_id", BigInteger),
    Column("begun_version", BigInteger, nullable=False),
    Column("stage_version", BigInteger, nullable=False),
    Column("failure", Text),
    PrimaryKeyConstraint("relation_id", "tablet_id"),
)

# Decisions to split or merge tablets; the number grows with each and stays when a resize has ended.
tablet_resizes = Table(
    "tablet_resizes",
    metadata,
    Column("relation_id", BigInteger, primary_key=True, autoincrement=False),
    Column("resize_type", Text, nullable=False),
    Column("resize_seq_number", BigInteger, nullable=False),
    Column("tablets", Integer, nullable=False),
    Column("request_id", BigInteger),
)

# Which resize a replica has cut its runs for.
resize_reports = Table(
    "resize_reports",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("tablet_id", BigInteger, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("resize_seq_number", BigInteger, nullable=False),
    PrimaryKeyConstraint("relation_id", "tablet_id", "host_id"),
)

# The streams of changes that a table has from a version on.
cdc_generations = Table(
    "cdc_generations",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("begin_version", BigInteger, nullable=False),
    Column("generation_id", Text, nullable=False),
    Column("timestamp", BigInteger, nullable=False),
    Column("published", Boolean, nullable=False),
    PrimaryKeyConstraint("relation_id", "begin_version"),
)

cdc_streams = Table(
    "cdc_streams",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("generation_id", Text, nullable=False),
    Column("stream_id", Text, nullable=False),
    Column("token_min", BigInteger, nullable=False),
    Column("token_max", BigInteger, nullable=False),
    PrimaryKeyConstraint("relation_id", "generation_id", "stream_id"),
)

relations = Table(
    "relations",
    metadata,
    Column("relation_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("folded_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tablets", Integer, nullable=False),
    Column("replication", Integer, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("placement_version", Integer, nullable=False),
    Column("horizon", BigInteger, nullable=False),
    Column("created_version", BigInteger, nullable=False),
    Column("dropped_version", BigInteger),
    Column("comment", Text),
    Column("options", Text, nullable=False),
    Column("map_version", BigInteger, nullable=False, server_default="0"),
)
# A dropped relation keeps its row until its files are gone; only living names are unique. Their case is folded by us:
# SQLite folds ASCII only, and PostgreSQL what the database's locale says.
relations_by_name = Index(
    "relations_by_name",
    relations.c.folded_name,
    unique=True,
    sqlite_where=relations.c.dropped_version.is_(None),
)


@event.listens_for(metadata, "before_create")
def _on_postgres(target: MetaData, connection: Connection, **_: Any) -> None:
    """Only living names are unique there, too. Said sooner, it would import what SQLAlchemy knows of PostgreSQL."""
    if connection.dialect.name == "postgresql":
        relations_by_name.dialect_kwargs["postgresql_where"] = relations.c.dropped_version.is_(None)


def folded(name: str) -> str:
    """What two spellings of one name have in common."""
    return name.lower()


# Which relations a view reads.
dependencies = Table(
    "dependencies",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("input_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("relation_id", "input_id"),
    Index("dependencies_by_input", "input_id"),
)

# The last exclusive commit in each scope (`ebla.model.scopes`).
guards = Table(
    "guards",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

columns = Table(
    "columns",
    metadata,
    Column("relation_id", BigInteger, ForeignKey("relations.relation_id"), nullable=False),
    Column("physical", Text, nullable=False),
    Column("begin_version", BigInteger, nullable=False),
    Column("end_version", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("nullable", Boolean, nullable=False),
    Column("key_position", Integer),
    Column("hidden", Boolean, nullable=False),
    Column("comment", Text),
    Column("default_text", Text),
    Column("default_value", Text),
    PrimaryKeyConstraint("relation_id", "physical", "begin_version"),
)

tablets = Table(
    "tablets",
    metadata,
    Column("relation_id", BigInteger, ForeignKey("relations.relation_id"), nullable=False),
    Column("tablet_id", BigInteger, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    PrimaryKeyConstraint("relation_id", "tablet_id", "host_id"),
)

# Into how many tablets the tokens of a relation are cut, from a version on.
tablet_maps = Table(
    "tablet_maps",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("begin_version", BigInteger, nullable=False),
    Column("tablets", Integer, nullable=False),
    PrimaryKeyConstraint("relation_id", "begin_version"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("relation_id", BigInteger, nullable=False),
    Column("level", Integer, nullable=False),
    Column("token_min", BigInteger, nullable=False),
    Column("token_max", BigInteger, nullable=False),
    Column("key_min", Text),
    Column("key_max", Text),
    Column("row_count", BigInteger, nullable=False),
    Column("tombstones", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("transaction_id", BigInteger, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("begin_version", BigInteger, nullable=False),
    Column("end_version", BigInteger, nullable=False),
    Column("fork", BigInteger, nullable=False, server_default="0"),
    Column("newest_version", BigInteger),
    Column("spread", Text),
    PrimaryKeyConstraint("run_id", "host_id"),
    # `source` before `begin_version`: SQLite must not take it for a way to a tablet, and the last write is one seek.
    Index("runs_by_begin", "relation_id", "source", "begin_version"),
)
# One tablet's snapshot is a few short ranges of this index, whatever else the manifest holds (`ebla.catalog.forks`).
runs_by_fork = Index("runs_by_fork", runs.c.relation_id, runs.c.fork, runs.c.end_version, runs.c.begin_version)

folds = Table(
    "folds",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("token_min", BigInteger, nullable=False),
    Column("token_max", BigInteger, nullable=False),
    Column("begin_version", BigInteger, nullable=False),
    Column("cutoff", BigInteger, nullable=False),
    PrimaryKeyConstraint("relation_id", "token_min", "token_max", "begin_version"),
)

truncations = Table(
    "truncations",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    PrimaryKeyConstraint("relation_id", "version"),
)

transactions = Table(
    "transactions",
    metadata,
    Column("transaction_id", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("relation_id", BigInteger),
    Column("host_id", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("snapshot_version", BigInteger, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("topology_version", BigInteger, nullable=False),
    Column("session_id", Text),
    Column("started_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("committed_version", BigInteger),
    Column("work", Text),
    Index("transactions_by_state", "state"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("opened_version", BigInteger, nullable=False),
    Column("closed_version", BigInteger),
)

progress = Table(
    "progress",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
)

pins = Table(
    "pins",
    metadata,
    Column("pin_id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# The seed's columns. What a handler processes and how lies in `job_settings`, a JSON object.
mv_handlers = Table(
    "mv_handlers",
    metadata,
    Column("job_name", Text, primary_key=True),
    Column("job_settings", Text, nullable=False),
    Column("should_run", Boolean, nullable=False),
)

# The seed's columns; `permanent` and the lease are ours. Runners renew their own rows.
mv_runners = Table(
    "mv_runners",
    metadata,
    Column("runner_id", Text, primary_key=True),
    Column("runner_identity", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("permanent", Boolean, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

# What each runner runs.
mv_runner_jobs = Table(
    "mv_runner_jobs",
    metadata,
    Column("runner_id", Text, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("job_settings", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("runner_id", "job_name"),
)

# The coordinator adds rows; the runner changes the status and the diagnosis.
mv_commands = Table(
    "mv_commands",
    metadata,
    Column("runner_id", Text, nullable=False),
    Column("command_no", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("command_type", Text, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("job_settings", Text, nullable=False),
    Column("command_status", Text, nullable=False),
    Column("command_diag", Text),
    PrimaryKeyConstraint("runner_id", "command_no"),
)

# What changed in inputs that are read as BATCH, commit by commit, until every view has read it.
mv_dictionary_changes = Table(
    "mv_dictionary_changes",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("row_key", Text, nullable=False),
    Column("changed_columns", Text, nullable=False),
    PrimaryKeyConstraint("relation_id", "version", "row_key"),
)

# The seed's columns. `created_version` says whose turn it is, the tokens which rows of the base it is about; the number
# of the tablet that holds these is for people. Only unfinished tasks are here.
view_building_tasks = Table(
    "view_building_tasks",
    metadata,
    Column("key", Text, nullable=False, default="view_building"),
    Column("id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("aborted", Boolean, nullable=False),
    Column("base_id", BigInteger, nullable=False),
    Column("view_id", BigInteger),
    Column("base_tablet_id", BigInteger, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("created_version", BigInteger, nullable=False),
    Column("token_min", BigInteger, nullable=False, server_default="0"),
    Column("token_max", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("key", "id"),
    Index("view_building_tasks_by_view", "view_id"),
    Index("view_building_tasks_by_base", "base_id"),
)

# Views and indexes that are not built yet.
view_builds = Table(
    "view_builds",
    metadata,
    Column("view_id", BigInteger, primary_key=True, autoincrement=False),
    Column("base_id", BigInteger, nullable=False),
    Column("rows_per_minute", BigInteger),
    Column("chunk_rows", BigInteger),
    Column("created_version", BigInteger, nullable=False),
    Column("concurrency", BigInteger),
    Column("on_hold", Boolean, nullable=False, server_default=false()),
)

# Not a part of the tasks: a covered tablet has no task any more, and epochs need its version until the view is built.
view_building_segments = Table(
    "view_building_segments",
    metadata,
    Column("view_id", BigInteger, nullable=False),
    Column("token_min", BigInteger, nullable=False),
    Column("token_max", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("up_to", Text),
    Column("since_version", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    PrimaryKeyConstraint("view_id", "token_min", "token_max", "ordinal"),
)

# Who may read an index and who maintains it. What it indexes lies in the options of its relation.
index_states = Table(
    "index_states",
    metadata,
    Column("index_id", BigInteger, primary_key=True, autoincrement=False),
    Column("base_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("since_version", BigInteger, nullable=False),
    Column("read_version", BigInteger),
    Column("message", Text),
    Index("index_states_by_base", "base_id"),
)

# Whether queries may read a view, and what stopped it. How far it is lies in `progress`.
view_states = Table(
    "view_states",
    metadata,
    Column("view_id", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("since_version", BigInteger, nullable=False),
    Column("code", Text),
    Column("message", Text),
    Column("culprit_relation", Text),
    Column("culprit_key", Text),
    Column("failed_at", BigInteger),
)

built_views = Table(
    "built_views",
    metadata,
    Column("view_id", BigInteger, primary_key=True, autoincrement=False),
    Column("built_version", BigInteger, nullable=False),
)

# What keeps a relation from going on, one row for each kind of work, removed when the work succeeds. A failed build
# stays here though its relation is gone, until it is dismissed or the name is used again.
troubles = Table(
    "troubles",
    metadata,
    Column("relation_id", BigInteger, nullable=False),
    Column("work", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("code", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("culprit", Text),
    Column("culprit_relation", Text),
    Column("traceback", Text),
    Column("attempts", Integer, nullable=False),
    Column("holder", Text, nullable=False),
    Column("first_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("retry_at", BigInteger),
    PrimaryKeyConstraint("relation_id", "work"),
)

# The processes that have the catalog open, each under a lease, and what each is doing.
processes = Table(
    "processes",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("node_id", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("maintains", Boolean, nullable=False),
    Column("doing", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("seen_version", BigInteger, nullable=False, server_default="0"),
    Column("hosts", Text),
    Column("load_1m", Float),
    Column("cores", Integer),
    Column("disks", Text),
)


def name_of(connection: Connection, table: FromClause) -> str:
    """What the database calls a table, for those who do not ask by a statement: see `ebla.catalog.job_tables`."""
    others: Mapping[str, str] = getattr(connection.dialect.identifier_preparer, JOB_TABLES, {})
    return others.get(table.description, table.description)
