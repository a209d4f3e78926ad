/** The cluster: nodes, tablets, what moves, what was asked, who leads, and every decision. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Row, type Rows, type Value, get, isAdmin, literal, objects, sql } from "../api";
import { Cells, type Cell } from "../cells";
import { ChangeButton } from "../change";
import { type Loaded, useLive } from "../live";
import { History } from "../history";
import { Badge, Failure, Listing, Panel, type Tone } from "../ui";
import { bytes, number, plural, seconds, since, text, time } from "../words";

const STATES: { [state: string]: Tone } = { normal: "good", left: "calm", done: "good", failed: "bad", queued: "warn", running: "busy", cancelled: "calm", stopped: "warn", waiting: "warn", ERROR: "bad", SUCCESS: "good" };

/** The picture is asked for first, and the rest when it is there: what a node answers together, it answers later. */
export function Cluster() {
  const tablets = useLive(() => get<Places>("/v1/tablets"), []);
  const asked = tablets.data !== null || tablets.error !== null;
  const [down, markDown] = useState(NONE);
  const [lacking, markLacking] = useState(NONE);
  return (
    <>
      {asked && <Needs />}
      {asked ? <Nodes places={tablets.data} mark={markDown} /> : <NodeList nodes={[]} places={null} />}
      <Tablets found={tablets} down={down} lacking={lacking} />
      {asked && (
        <>
          <Requests />
          <Missing mark={markLacking} />
          <Work />
          <History title="History of decisions" label="Search reasons" />
        </>
      )}
    </>
  );
}

/** Names as one text, which tells whether they are others than before: the picture is drawn again only then. */
type Names = string;
const NONE: Names = "";
const asNames = (names: string[]): Names => names.sort().join("\n");

/** What this cluster cannot mend by itself. */
function Needs() {
  const found = useLive(async () => (await get<{ needs: Row[] }>("/v1/status")).needs, [], 30_000);
  if (found.data === null || found.data.length === 0) return null;
  return (
    <Panel title="Needs a person">
      <Listing
        rows={found.data}
        label="Needs a person"
        mark={() => "bad"}
        columns={[
          { name: "subject", title: "what", of: subject },
          { name: "reason", title: "why" },
          { name: "hint", title: "what to do" },
        ]}
      />
    </Panel>
  );
}

/** `view card`: with a link to its page. */
function subject(row: Row) {
  const [kind, name] = text(row.subject).split(" ");
  return kind === "view" && name ? <a href={`#/views/${encodeURIComponent(name)}`}>{text(row.subject)}</a> : <strong>{text(row.subject)}</strong>;
}

/** Nodes with the process of each, and which of them leads. */
async function loadNodes(): Promise<Row[]> {
  const [nodes, processes, leases] = await Promise.all([
    sql("SELECT host_id, name, node_state, datacenter, rack, topology_request FROM system.topology ORDER BY name"),
    sql("SELECT holder, hosts, doing, seen_at, load_1m, cores, disks, expires_at > current_timestamp() AS alive FROM system.processes"),
    sql("SELECT name, holder, term FROM system.leases"),
  ]);
  const living = new Set(processes.filter((one) => one.alive).map((one) => one.holder));
  const led = ["topology", "sys$coordinator", "view_building"].map((name) => leases.find((one) => one.name === name));
  const leader = led.find((one) => one !== undefined && living.has(one.holder!));
  return nodes.map((node) => {
    const mine = processes.filter((one) => text(one.hosts).includes(text(node.host_id)));
    const process = mine.find((one) => one.alive) ?? mine[0];
    const leads = process !== undefined && leader?.holder === process.holder;
    const { load_1m = null, cores = null, disks = null } = process?.alive ? process : {};
    const found = { alive: process?.alive ?? false, doing: process?.doing ?? null, seen_at: process?.seen_at ?? null, load_1m, cores, disk: diskOf(disks, text(node.host_id)) };
    return { ...node, ...found, term: leads ? leader!.term! : null };
  });
}

function Nodes({ places, mark }: { places: Places | null; mark: (down: Names) => void }) {
  const nodes = useLive(loadNodes, [], 5000);
  const down = asNames((nodes.data ?? []).filter(isDown).map((row) => text(row.name)));
  useEffect(() => mark(down), [down]);
  return (
    <>
      <Failure problem={nodes.error} />
      <NodeList nodes={nodes.data ?? []} places={places} />
    </>
  );
}

function isDown(node: Row): boolean {
  return node.alive === false && node.node_state !== "left";
}

function NodeList({ nodes, places }: { nodes: Row[]; places: Places | null }) {
  const held = new Map(places?.nodes.map((one) => [one.host_id, one]));
  return (
    <Panel title="Nodes">
      <Listing
        rows={nodes}
        label="Nodes"
        empty="One moment…"
        mark={(row) => (isDown(row) ? "bad" : null)}
        columns={[
          { name: "name", of: (row) => <strong>{text(row.name)}</strong> },
          { name: "node_state", title: "state", of: (row) => <Badge tone={STATES[text(row.node_state)] ?? "busy"}>{text(row.node_state)}</Badge> },
          { name: "alive", title: "liveness", of: liveness },
          { name: "rack", title: "place", of: (row) => `${text(row.datacenter)} / ${text(row.rack)}` },
          { name: "tablets", align: "right", of: (row) => number(held.get(text(row.host_id))?.tablets ?? 0) },
          { name: "bytes", title: "data", align: "right", of: (row) => data(held.get(text(row.host_id))) },
          { name: "disk", of: (row) => <Disk disk={row.disk} /> },
          { name: "load", of: (row) => <Load load={row.load_1m} cores={row.cores} /> },
          { name: "doing", of: (row) => doing(row.doing) },
          ...(nodes.some((row) => row.topology_request !== null) ? [{ name: "topology_request", title: "request", of: (row: Row) => text(row.topology_request) }] : []),
          { name: "buttons", title: "", of: (row) => <NodeButtons node={row} /> },
        ]}
      />
    </Panel>
  );
}

function liveness(node: Row) {
  if (node.node_state === "left") return "–";
  const silent = node.seen_at === null ? "down" : `silent for ${seconds(since(node.seen_at))}`;
  return (
    <>
      {node.alive ? <Badge tone="good">alive</Badge> : <Badge tone="bad">{silent}</Badge>} {node.term !== null && <Badge tone="busy">leads, term {number(node.term)}</Badge>}
    </>
  );
}

function data(node: PlacedNode | undefined): string {
  return `${bytes(node?.bytes ?? 0)} in ${plural(node?.runs ?? 0, "run")}`;
}

/** The free and all bytes of the disk of a node's root. */
function diskOf(disks: Value, node: string): Value {
  const found: { [node: string]: Value } = JSON.parse(text(disks) || "{}");
  return found[node] ?? null;
}

const FULL = { warn: 0.1, bad: 0.03 };

function Disk({ disk }: { disk: Value | undefined }) {
  if (!Array.isArray(disk)) return <>–</>;
  const [free, total] = disk as [number, number];
  const part = free / total;
  const said = `${bytes(free)} free of ${bytes(total)}`;
  return part >= FULL.warn ? <>{said}</> : <Badge tone={part < FULL.bad ? "bad" : "warn"}>{said}</Badge>;
}

/** How many processes run or wait to run on the machine, over a minute. */
function Load({ load, cores }: { load: Value | undefined; cores: Value | undefined }) {
  if (typeof load !== "number") return <>–</>;
  const said = `${load.toFixed(2)} on ${typeof cores === "number" ? plural(cores, "core") : "its cores"}`;
  return typeof cores === "number" && load > 2 * cores ? <Badge tone="warn">{said}</Badge> : <>{said}</>;
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

interface PlacedNode {
  host_id: string;
  name: string;
  state: string;
  tablets: number;
  runs: number;
  bytes: number;
}

/** Of each relation by tablet, the positions of its nodes in `nodes`. */
interface Places {
  nodes: PlacedNode[];
  relations: { name: string; tablets: number[][] }[];
  transitions: Rows;
}

const HEAT = 0.75;

/** A cell for each replica. The first replica of a tablet keeps its key wherever it lies, so that it is seen to move. */
function cellsOf(data: Places, moving: Set<string>, lacking: Set<string>): Cell[] {
  const cells: Cell[] = [];
  const lacks = (key: string, lane: number) => lacking.size > 0 && lacking.has(`${key}/${data.nodes[lane]!.name}`);
  data.relations.forEach(({ name, tablets }, at) => {
    const hue = hueOf(at);
    tablets.forEach((nodes, tablet) => {
      const key = `${name}/${tablet}`;
      const moves = moving.size > 0 && moving.has(key);
      nodes.forEach((lane, replica) => cells.push({ key: `${key}/${replica}`, lane, heat: HEAT, hue, moving: moves, bad: lacks(key, lane) }));
    });
  });
  return cells;
}

function Tablets({ found, down, lacking }: { found: Loaded<Places>; down: Names; lacking: Names }) {
  const data = found.data;
  const [cells, lanes, moves] = useMemo((): [Cell[], string[], Row[]] => {
    if (data === null) return [[], [], []];
    const moves = objects(data.transitions);
    const moving = new Set(moves.map((row) => `${text(row.relation)}/${text(row.tablet)}`));
    const dead = new Set(down.split("\n"));
    const lanes = data.nodes.map((one) => [one.name, plural(one.tablets, "tablet"), ...(one.state === "normal" ? [] : [one.state]), ...(dead.has(one.name) ? ["down"] : [])].join(" · "));
    return [cellsOf(data, moving, new Set(lacking === NONE ? [] : lacking.split("\n"))), lanes, moves];
  }, [data, down, lacking]);
  const tip = (one: Cell) => {
    const [relation, tablet] = splitKey(one.key);
    return `${relation}, tablet ${tablet} on ${data?.nodes[one.lane]?.name}${one.moving ? ", moves" : ""}${one.bad ? ", lacks runs" : ""}`;
  };
  return (
    <Panel title="Tablets over nodes" more={data && <Legend names={data.relations.map((one) => one.name)} />}>
      <Failure problem={found.error} />
      {lanes.length > 0 && <Cells cells={cells} lanes={lanes} tip={tip} label={`Tablets over nodes: ${lanes.join("; ")}`} />}
      <h3>Transitions</h3>
      <Listing
        rows={moves}
        label="Transitions"
        empty="No tablet moves."
        columns={[{ name: "relation" }, { name: "tablet", align: "right" }, { name: "kind" }, { name: "stage", of: (row) => <Badge tone="busy">{text(row.stage)}</Badge> }, ...["leaving", "pending", "waits_for", "failure"].map((name) => ({ name, title: name.replace("_", " "), of: (row: Row) => text(row[name]) }))]}
      />
    </Panel>
  );
}

/** The relation and the tablet of a cell: a name may hold a slash. */
function splitKey(key: string): string[] {
  return /^(.*)\/(\d+)\/\d+$/s.exec(key)?.slice(1) ?? [];
}

/** Neighbours in the list are far apart in colour. */
function hueOf(at: number): number {
  return (24 + at * 137.5) % 360;
}

function Legend({ names }: { names: string[] }) {
  if (names.length > 12) return null;
  return (
    <ul class="legend">
      {names.map((name, at) => (
        <li key={name}>
          <span class="swatch" style={{ background: `hsl(${hueOf(at)} 38% 58%)` }} aria-hidden="true" />
          {name}
        </li>
      ))}
    </ul>
  );
}

// ---- requests, copies, jobs ------------------------------------------------------------------------------

function Requests() {
  const found = useLive(
    () =>
      sql(
        "SELECT q.id, q.kind, q.state, n.name AS node, r.name AS relation, q.requested_at, q.ended_at, q.result, q.message FROM system.topology_requests q " +
          "LEFT JOIN system.relations r ON r.relation_id = q.relation_id LEFT JOIN system.topology n ON n.host_id = q.host_id ORDER BY q.id DESC LIMIT 50",
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
          { name: "node", title: "of", of: (row) => text(row.node) || text(row.relation) },
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

function Missing({ mark }: { mark: (lacking: Names) => void }) {
  const found = useLive(() => sql("SELECT * FROM system.under_replicated"), []);
  const lacking = asNames((found.data ?? []).map((row) => `${text(row.relation)}/${text(row.tablet)}/${text(row.node)}`));
  useEffect(() => mark(lacking), [lacking]);
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
