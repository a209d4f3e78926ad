/** The cluster: nodes, tablets, what moves, what was asked, who leads, and every decision. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Row, isAdmin, literal, sql } from "../api";
import { Cells, type Cell } from "../cells";
import { ChangeButton } from "../change";
import { useLive } from "../live";
import { Badge, Failure, Listing, Panel, type Tone } from "../ui";
import { bytes, number, plural, seconds, since, text, time } from "../words";

const STATES: { [state: string]: Tone } = { normal: "good", left: "calm", done: "good", failed: "bad", queued: "warn", running: "busy", cancelled: "calm", stopped: "warn", waiting: "warn", ERROR: "bad", SUCCESS: "good" };

export function Cluster() {
  const [drawn, draw] = useState(false);
  const nodes = useLive(loadNodes, [], 5000);
  return (
    <>
      <Failure problem={nodes.error} />
      <Nodes nodes={nodes.data ?? []} />
      <Tablets drawn={() => draw(true)} />
      {drawn && (
        <>
          <Requests nodes={nodes.data ?? []} />
          <Missing />
          <Work />
          <Decisions />
        </>
      )}
    </>
  );
}

/** Nodes with the process, the tablets and the bytes of each. */
async function loadNodes(): Promise<Row[]> {
  const [nodes, processes, sizes, counts, leases] = await Promise.all([
    sql("SELECT host_id, name, node_state, datacenter, rack, topology_request FROM system.topology ORDER BY name"),
    sql("SELECT holder, hosts, doing, seen_at, expires_at > current_timestamp() AS alive FROM system.processes"),
    sql("SELECT host_id, count(*) AS runs, sum(bytes) AS bytes FROM system.runs GROUP BY host_id"),
    sql("SELECT host_id, count(*) AS tablets FROM system.tablets GROUP BY host_id"),
    sql("SELECT name, holder, term FROM system.leases"),
  ]);
  const living = new Set(processes.filter((one) => one.alive).map((one) => one.holder));
  const led = ["topology", "sys$coordinator", "view_building"].map((name) => leases.find((one) => one.name === name));
  const leader = led.find((one) => one !== undefined && living.has(one.holder!));
  return nodes.map((node) => {
    const mine = processes.filter((one) => text(one.hosts).includes(text(node.host_id)));
    const process = mine.find((one) => one.alive) ?? mine[0];
    const leads = process !== undefined && leader?.holder === process.holder;
    return {
      ...node,
      ...sizes.find((one) => one.host_id === node.host_id),
      ...counts.find((one) => one.host_id === node.host_id),
      alive: process?.alive ?? false,
      doing: process?.doing ?? null,
      seen_at: process?.seen_at ?? null,
      term: leads ? leader!.term! : null,
    };
  });
}

function Nodes({ nodes }: { nodes: Row[] }) {
  return (
    <Panel title="Nodes">
      <Listing
        rows={nodes}
        label="Nodes"
        mark={(row) => (row.alive === false && row.node_state !== "left" ? "bad" : null)}
        columns={[
          { name: "name", of: (row) => <strong>{text(row.name)}</strong> },
          { name: "node_state", title: "state", of: (row) => <Badge tone={STATES[text(row.node_state)] ?? "busy"}>{text(row.node_state)}</Badge> },
          { name: "alive", title: "liveness", of: (row) => (row.node_state === "left" ? "–" : row.alive ? <Badge tone="good">alive</Badge> : <Badge tone="bad">{row.seen_at === null ? "down" : `silent for ${seconds(since(row.seen_at))}`}</Badge>) },
          { name: "leads", title: "", of: (row) => (row.term !== null ? <Badge tone="busy">leads, term {number(row.term)}</Badge> : "") },
          { name: "rack", title: "place", of: (row) => `${text(row.datacenter)} / ${text(row.rack)}` },
          { name: "tablets", align: "right", of: (row) => number(row.tablets ?? 0) },
          { name: "bytes", title: "disk", align: "right", of: (row) => `${bytes(row.bytes ?? 0)} in ${plural(Number(row.runs ?? 0), "run")}` },
          { name: "doing", title: "load", of: (row) => doing(row.doing) },
          { name: "topology_request", title: "request", of: (row) => text(row.topology_request) },
          { name: "buttons", title: "", of: (row) => <NodeButtons node={row} /> },
        ]}
      />
    </Panel>
  );
}

function doing(value: Row[string] | undefined): string {
  const found: string[] = value ? JSON.parse(text(value)) : [];
  return found.join(", ") || "idle";
}

function NodeButtons({ node }: { node: Row }) {
  if (!isAdmin() || node.node_state !== "normal" || node.topology_request !== null) return null;
  const name = text(node.name);
  return node.alive ? (
    <ChangeButton label="Decommission" danger title={`Decommission ${name}`} sql={`ALTER CLUSTER DECOMMISSION NODE ${literal(name)}`} />
  ) : (
    <ChangeButton label="Remove" danger title={`Remove ${name}`} sql={`ALTER CLUSTER REMOVE NODE ${literal(name)}`} />
  );
}

// ---- tablets ---------------------------------------------------------------------------------------------

interface Placed {
  nodes: Row[];
  names: Map<number, string>;
  tablets: Row[];
  moves: Row[];
}

async function loadTablets(): Promise<Placed> {
  const [nodes, relations, tablets, moving] = await Promise.all([
    sql("SELECT host_id, name, node_state FROM system.topology WHERE node_state <> 'left' ORDER BY name"),
    sql("SELECT relation_id, name FROM system.relations WHERE dropped_version IS NULL AND kind <> 'index' ORDER BY relation_id"),
    sql("SELECT relation_id, tablet_id, host_id FROM system.tablets ORDER BY relation_id, tablet_id"),
    sql("SELECT count(*) AS moving FROM system.tablet_transitions"),
  ]);
  const moves = moving[0]!.moving === 0 ? [] : await sql("SHOW TRANSITIONS");
  return { nodes, names: new Map(relations.map((row) => [Number(row.relation_id), text(row.name)])), tablets, moves };
}

function Tablets({ drawn }: { drawn: () => void }) {
  const found = useLive(loadTablets, []);
  useEffect(() => {
    if (found.data !== null || found.error !== null) drawn();
  }, [found.data, found.error]);
  const data = found.data;
  const [cells, lanes] = useMemo((): [Cell[], string[]] => {
    if (data === null) return [[], []];
    const lane = new Map(data.nodes.map((row, at) => [row.host_id, at]));
    const moving = new Set(data.moves.map((row) => `${text(row.relation)}/${text(row.tablet)}`));
    const hues = huesOf(data.names);
    const counts = data.nodes.map(() => 0);
    const ordinal = new Map<string, number>();
    const cells = data.tablets.flatMap((row): Cell[] => {
      const at = lane.get(row.host_id ?? "");
      const name = data.names.get(Number(row.relation_id));
      if (at === undefined || name === undefined) return [];
      counts[at]!++;
      const tablet = `${name}/${text(row.tablet_id)}`;
      const replica = ordinal.get(tablet) ?? 0;
      ordinal.set(tablet, replica + 1);
      return [{ key: `${tablet}/${replica}`, lane: at, heat: 0.75, hue: hues.get(Number(row.relation_id))!, moving: moving.has(tablet) }];
    });
    return [cells, data.nodes.map((row, at) => `${text(row.name)} · ${plural(counts[at]!, "tablet")}${row.node_state === "normal" ? "" : ` · ${text(row.node_state)}`}`)];
  }, [data]);
  return (
    <Panel title="Tablets over nodes" more={data && <Legend names={data.names} />}>
      <Failure problem={found.error} />
      {lanes.length > 0 && <Cells cells={cells} lanes={lanes} label={`Tablets over nodes: ${lanes.join("; ")}`} />}
      <h3>Transitions</h3>
      <Listing
        rows={data?.moves ?? []}
        label="Transitions"
        empty="No tablet moves."
        columns={[{ name: "relation" }, { name: "tablet", align: "right" }, { name: "kind" }, { name: "stage", of: (row) => <Badge tone="busy">{text(row.stage)}</Badge> }, { name: "leaving" }, { name: "pending" }, { name: "waits_for", title: "waits for" }, { name: "failure" }]}
      />
    </Panel>
  );
}

/** Neighbours in the list are far apart in colour. */
function huesOf(names: Map<number, string>): Map<number, number> {
  return new Map([...names.keys()].map((id, at) => [id, (24 + at * 137.5) % 360]));
}

function Legend({ names }: { names: Map<number, string> }) {
  if (names.size > 12) return null;
  const hues = huesOf(names);
  return (
    <ul class="legend">
      {[...names].map(([id, name]) => (
        <li key={id}>
          <span class="swatch" style={{ background: `hsl(${hues.get(id)} 38% 58%)` }} aria-hidden="true" />
          {name}
        </li>
      ))}
    </ul>
  );
}

// ---- requests, copies, jobs ------------------------------------------------------------------------------

function Requests({ nodes }: { nodes: Row[] }) {
  const found = useLive(
    () =>
      sql(
        "SELECT q.id, q.kind, q.state, q.host_id, r.name AS relation, q.requested_at, q.ended_at, q.result, q.message FROM system.topology_requests q " +
          "LEFT JOIN system.relations r ON r.relation_id = q.relation_id ORDER BY q.id DESC LIMIT 50",
      ),
    [],
  );
  return (
    <Panel title="Requests">
      <Failure problem={found.error} />
      <Listing
        rows={found.data ?? []}
        label="Requests"
        empty="Nothing was asked of the cluster."
        columns={[
          { name: "id", align: "right" },
          { name: "kind" },
          { name: "host_id", title: "of", of: (row) => text(nodes.find((one) => one.host_id === row.host_id)?.name) || text(row.relation) },
          { name: "state", of: (row) => <Badge tone={STATES[text(row.state)]}>{text(row.state)}</Badge> },
          { name: "requested_at", title: "asked", of: (row) => time(row.requested_at) },
          { name: "ended_at", title: "ended", of: (row) => time(row.ended_at) },
          { name: "result", of: (row) => text(row.message) || text(row.result) },
          { name: "buttons", title: "", of: (row) => row.state === "queued" && isAdmin() && <ChangeButton label="Cancel" danger title={`Cancel request ${text(row.id)}`} sql={`ALTER CLUSTER CANCEL REQUEST ${Number(row.id)}`} /> },
        ]}
      />
    </Panel>
  );
}

function Missing() {
  const found = useLive(() => sql("SELECT * FROM system.under_replicated"), []);
  return (
    <Panel title="Under-replicated tablets">
      <Failure problem={found.error} />
      <Listing
        rows={found.data ?? []}
        label="Under-replicated tablets"
        empty="Every run lies on every replica of its tablets."
        mark={() => "bad"}
        columns={[{ name: "relation" }, { name: "kind" }, { name: "tablet", align: "right" }, { name: "node", title: "lacking node" }, { name: "runs", align: "right" }, { name: "bytes", align: "right", of: (row) => bytes(row.bytes) }]}
      />
    </Panel>
  );
}

function Work() {
  const jobs = useLive(() => sql("SELECT * FROM system.jobs"), []);
  const runners = useLive(() => sql("SELECT runner_id, runner_identity, permanent, updated_at, expires_at FROM system.mv_runners"), []);
  const commands = useLive(() => sql("SELECT * FROM system.mv_commands ORDER BY created_at DESC LIMIT 50"), []);
  const leases = useLive(() => sql("SELECT name, holder, term FROM system.leases ORDER BY name"), []);
  return (
    <div class="pair">
      <Panel title="Jobs">
        <Failure problem={jobs.error} />
        <Listing
          rows={jobs.data ?? []}
          label="Jobs"
          columns={[{ name: "name" }, { name: "state", of: (row) => <Badge tone={STATES[text(row.state)] ?? "good"}>{text(row.state)}</Badge> }, { name: "identity", title: "runs on", of: (row) => text(row.identity) }, { name: "started_at", title: "since", of: (row) => time(row.started_at) }, { name: "error", of: (row) => text(row.error) }]}
        />
      </Panel>
      <Panel title="Leaders">
        <Failure problem={leases.error} />
        <Listing rows={leases.data ?? []} label="Leaders" columns={[{ name: "name", title: "of" }, { name: "holder" }, { name: "term", align: "right" }]} />
      </Panel>
      <Panel title="Runners">
        <Failure problem={runners.error} />
        <Listing rows={runners.data ?? []} label="Runners" columns={[{ name: "runner_id", title: "runner" }, { name: "runner_identity", title: "process" }, { name: "updated_at", title: "seen", of: (row) => time(row.updated_at) }]} />
      </Panel>
      <Panel title="Commands">
        <Failure problem={commands.error} />
        <Listing
          rows={commands.data ?? []}
          label="Commands"
          empty="No command was given."
          columns={[{ name: "created_at", title: "when", of: (row) => time(row.created_at) }, { name: "command_type", title: "command" }, { name: "job_name", title: "job" }, { name: "command_status", title: "status", of: (row) => <Badge tone={STATES[text(row.command_status)]}>{text(row.command_status)}</Badge> }, { name: "command_diag", title: "diagnosis", of: (row) => (row.command_diag ? <details><summary>Traceback</summary><pre>{text(row.command_diag)}</pre></details> : "") }]}
        />
      </Panel>
    </div>
  );
}

// ---- decisions -------------------------------------------------------------------------------------------

function Decisions() {
  const [sought, seek] = useState("");
  const pattern = literal(`%${sought.replaceAll(/[%_]/g, "")}%`);
  const found = useLive(() => sql(`SELECT version, kind, reason, committed_at, node_id FROM system.history ${sought ? `WHERE lower(reason) LIKE lower(${pattern})` : ""} ORDER BY version DESC LIMIT 100`), [sought]);
  return (
    <Panel title="History of decisions" more={<input type="search" placeholder="Search reasons" aria-label="Search reasons" value={sought} onInput={(event) => seek(event.currentTarget.value)} />}>
      <Failure problem={found.error} />
      <Listing
        rows={found.data ?? []}
        label="History of decisions"
        empty="No decision has these words."
        columns={[{ name: "version", align: "right", of: (row) => number(row.version) }, { name: "committed_at", title: "when", of: (row) => time(row.committed_at) }, { name: "kind", of: (row) => (row.kind === "exclusive" ? <Badge tone="warn">exclusive</Badge> : "data") }, { name: "reason" }]}
      />
    </Panel>
  );
}
