/** Views: what depends on what, and of one view how it is kept. */
import { useMemo } from "preact/hooks";
import { type Row, type Rows, type Value, get, literal, may, nodeTime, objects, quoted, sql } from "../api";
import { ChangeButton, type Said } from "../change";
import { Chart } from "../chart";
import { ageOverTime } from "../freshness";
import { type Edge, Graph, type Node } from "../graph";
import { useClock, useLive } from "../live";
import { Badge, Empty, Fact, Failure, Freshness, Listing, Panel, type Tone } from "../ui";
import { firstLine, number, seconds, text, time } from "../words";

const TONES: { [status: string]: Tone } = { ready: "good", building: "busy", failed: "bad" };

export function Views({ name }: { name?: string | undefined }) {
  const views = useLive(() => sql("SELECT * FROM system.views ORDER BY name"), []);
  const graph = useLive(dependencies, []);
  const now = useClock(views.data?.some((row) => Number(row.age_s) > 0) ?? false);
  const shown = views.data?.find((row) => String(row.name).toLowerCase() === name?.toLowerCase());
  return (
    <>
      <Panel title="Dependencies">
        <Failure problem={graph.error} />
        {graph.data && (
          <Graph
            nodes={graph.data.nodes.map((one) => marked(one, views.data, now - views.at))}
            edges={graph.data.edges}
            shown={name}
            href={(node) => (node.kind === "view" ? `#/views/${encodeURIComponent(node.name)}` : `#/explore/${encodeURIComponent(node.note && node.kind === "index" ? (graph.data!.bases.get(node.id) ?? node.name) : node.name)}`)}
          />
        )}
      </Panel>
      <Failure problem={views.error} />
      {name && views.data && !shown && <p class="failure" role="alert">There is no view {name}.</p>}
      {shown ? <View key={String(shown.name)} view={shown} at={views.at} /> : views.data && <All views={views.data} at={views.at} />}
    </>
  );
}

/** With the age of a view, which has grown since it was asked for. */
function marked(node: Node, views: Row[] | null, passed_ms: number): Node {
  const view = node.kind === "view" ? views?.find((row) => row.name === node.name) : undefined;
  if (view === undefined) return node;
  const age = typeof view.age_s === "number" && view.age_s > 0.001 ? `${seconds(view.age_s + Math.max(0, passed_ms) / 1000)} old` : "up to date";
  return { ...node, tone: TONES[String(view.status)] ?? "calm", note: view.status === "ready" ? age : String(view.status) };
}

interface Dependencies {
  nodes: Node[];
  edges: Edge[];
  bases: Map<number, string>;
}

async function dependencies(): Promise<Dependencies> {
  const [relations, inputs, indexes] = await Promise.all([
    sql("SELECT relation_id, name, kind FROM system.relations WHERE dropped_version IS NULL ORDER BY name"),
    sql("SELECT relation_id, input_id FROM system.dependencies"),
    sql("SELECT index_id, base_id, state FROM system.index_states"),
  ]);
  const names = new Map(relations.map((row) => [Number(row.relation_id), String(row.name)]));
  const edges = [
    ...inputs.map((row) => ({ from: Number(row.input_id), to: Number(row.relation_id) })),
    ...indexes.map((row) => ({ from: Number(row.base_id), to: Number(row.index_id) })),
  ];
  const states = new Map(indexes.map((row) => [Number(row.index_id), String(row.state)]));
  const nodes = relations.map((row): Node => {
    const state = states.get(Number(row.relation_id));
    const tone = state === undefined ? {} : { tone: (state === "read_write_and_delete" ? "good" : "busy") as Tone, note: state === "read_write_and_delete" ? "index" : `index, ${state.replaceAll("_", " ")}` };
    return { id: Number(row.relation_id), name: String(row.name), kind: String(row.kind), ...tone };
  });
  return { nodes, edges, bases: new Map(indexes.map((row) => [Number(row.index_id), names.get(Number(row.base_id)) ?? ""])) };
}

function All({ views, at }: { views: Row[]; at: number }) {
  return (
    <Panel title="Views">
      <Listing
        rows={views}
        label="Views"
        empty="There are no views yet: CREATE MATERIALIZED VIEW makes one, on the page SQL."
        mark={(row) => (row.status === "failed" ? "bad" : null)}
        columns={[
          { name: "name", of: (row) => <a href={`#/views/${encodeURIComponent(String(row.name))}`}>{String(row.name)}</a> },
          { name: "status", of: (row) => <Badge tone={TONES[String(row.status)]}>{String(row.status)}</Badge> },
          { name: "age_s", title: "freshness", of: (row) => <Freshness age={row.age_s} at={at} /> },
          { name: "handler" },
          { name: "rows_changed", title: "rows changed", align: "right", of: (row) => number(row.rows_changed) },
          { name: "epochs", align: "right", of: (row) => number(row.epochs) },
          { name: "last_plan", title: "last epoch", of: lastEpoch },
          { name: "last_reason", title: "why", of: (row) => text(row.last_reason) },
          { name: "message", title: "trouble", of: (row) => (row.message === null ? "" : firstLine(String(row.message))) },
        ]}
      />
    </Panel>
  );
}

function lastEpoch(view: Row): string {
  return view.last_plan === null ? "–" : `${view.last_plan}, ${seconds(view.last_epoch_s)}`;
}

// ---- one view --------------------------------------------------------------------------------------------

function View({ view, at }: { view: Row; at: number }) {
  const name = String(view.name);
  const of = quoted(name);
  return (
    <>
      <Panel
        title={name}
        id="view"
        more={
          <>
            <a href={`#/explore/${encodeURIComponent(name)}`}>Rows</a>
            {may("SELECT", name) && <ChangeButton label="Check" title={`Check ${name}`} sql={`CHECK VIEW ${of}`} tells={(rows) => compared(name, rows[0])} />}
            {may("OWN", name) && <ChangeButton label="Repair" title={`Repair ${name}`} sql={`REPAIR VIEW ${of}`} tells={(rows) => compared(name, rows[0])} />}
          </>
        }
      >
        <dl class="facts">
          <Fact name="status">
            <Badge tone={TONES[String(view.status)]}>{String(view.status)}</Badge>
          </Fact>
          <Fact name="freshness">
            <Freshness age={view.age_s} at={at} />
          </Fact>
          <Fact name="applied version">{number(view.applied_version)}</Fact>
          <Fact name="handler">{String(view.handler)}</Fact>
          <Fact name="epochs">{number(view.epochs)}</Fact>
          <Fact name="full refreshes">{number(view.full_refreshes)}</Fact>
          <Fact name="rows changed">{number(view.rows_changed)}</Fact>
          <Fact name="last epoch">{lastEpoch(view)}</Fact>
          {view.last_reason !== null && <Fact name="why">{String(view.last_reason)}</Fact>}
        </dl>
        {view.message !== null && <Stopped view={view} />}
      </Panel>
      <Panel title="Definition">
        <pre class="sql">{String(view.definition)}</pre>
      </Panel>
      <Followed name={name} definition={String(view.definition)} />
      <Epochs name={name} age={view.age_s} />
    </>
  );
}

/** What CHECK and REPAIR found: how many rows of the view are not those of its query. */
function compared(name: string, found: Row | undefined): Said {
  const wrong = ["missing", "spurious", "different"].filter((one) => Number(found?.[one]) > 0).map((one) => `${number(found![one])} ${one}`);
  const at = `at version ${number(found?.version)}`;
  if (wrong.length === 0) return { text: `${name} has the rows of its query ${at}`, tone: "good" };
  const rows = `${name}: rows that were not those of its query ${at}: ${wrong.join(", ")}`;
  return found?.repaired === true ? { text: `${rows}; repaired`, tone: "good" } : { text: rows.replace("were", "are"), tone: "bad" };
}

function Stopped({ view }: { view: Row }) {
  const name = String(view.name);
  const found = useLive(() => sql(`SELECT s.culprit_relation, s.culprit_key, s.failed_at FROM system.view_states s JOIN system.relations r ON r.relation_id = s.view_id WHERE r.name = ${literal(name)} AND r.dropped_version IS NULL`), [name]);
  const culprit = found.data?.[0];
  return (
    <div class="failure" role="alert">
      <strong>{view.status === "failed" ? "The view has stopped" : "The view waits"}</strong>
      <span>{String(view.message)}</span>
      {culprit?.culprit_relation && (
        <span>
          Culprit:{" "}
          <a href={`#/explore/${encodeURIComponent(String(culprit.culprit_relation))}/${encodeURIComponent(String(culprit.culprit_key ?? ""))}`}>
            {String(culprit.culprit_relation)} <code>{String(culprit.culprit_key)}</code>
          </a>
          <span class="muted"> at {time(culprit.failed_at)}</span>
        </span>
      )}
      {may("SELECT", name) && <ChangeButton label="Resume" primary title={`Resume ${name}`} sql={`FLUSH ${quoted(name)}`} />}
    </div>
  );
}

// ---- how inputs are followed -----------------------------------------------------------------------------

interface Step {
  step: string;
  text: string;
  pruned: boolean;
  broadcast: boolean;
}

interface Explained {
  build: { base: string | null; chunks: boolean; by: string[] | null };
  few_rows: string;
  /** A full refresh has no steps: the query runs again. */
  inputs: { [input: string]: { plan: string; way?: string; reason?: string; steps?: Step[] } };
}

function Followed({ name, definition }: { name: string; definition: string }) {
  const found = useLive(async () => JSON.parse(String((await sql(`EXPLAIN MATERIALIZED VIEW ${quoted(name)}`))[0]!.json)) as Explained, [name, definition], "never");
  return (
    <Panel title="How its inputs are followed">
      <Failure problem={found.error} />
      {found.data === null && found.error === null && <Empty>One moment…</Empty>}
      {found.data &&
        Object.entries(found.data.inputs).map(([input, plan]) => (
          <div key={input} class="flow">
            <div class="from">
              <span class="muted">a change of</span>
              <a href={`#/explore/${encodeURIComponent(input)}`}>{input}</a>
              <Badge tone={plan.plan === "incremental" ? "good" : "warn"}>{plan.plan}</Badge>
            </div>
            {plan.reason && <p class="muted">{plan.reason}</p>}
            <ol>
              {plan.steps?.map((step, at) => (
                <li key={at} class={step.step}>
                  <strong>{step.step}</strong>
                  <span>{step.text}</span>
                  {(step.pruned || step.broadcast) && <span class="muted">{[step.pruned && "pruned", step.broadcast && "broadcast"].filter(Boolean).join(", ")}</span>}
                </li>
              ))}
              <li class="target">
                <strong>{name}</strong>
              </li>
            </ol>
          </div>
        ))}
    </Panel>
  );
}

// ---- epochs and freshness --------------------------------------------------------------------------------

function Epochs({ name, age }: { name: string; age: Value | undefined }) {
  const found = useLive(() => epochs(name), [name]);
  const now = Math.max(found.at, useClock(Number(age) > 0));
  const points = useMemo(() => (found.data ? ageOverTime(found.data.writes, found.data.epochs, nodeTime(now) / 1000) : []), [found.data, now]);
  return (
    <>
      <Panel title="Freshness over time">
        <Failure problem={found.error} />
        {points.length > 1 ? <Chart points={points} label="Age of the view" /> : <Empty>No epoch has ended yet.</Empty>}
      </Panel>
      <Panel title="Epochs">
        <Listing
          rows={found.data?.epochs ?? []}
          label="Epochs"
          empty="No epoch has ended yet."
          columns={[
            { name: "version", align: "right", of: (row) => number(row.version) },
            { name: "committed_at", title: "when", of: (row) => time(row.committed_at) },
            { name: "took", align: "right", of: (row) => (row.started_at ? seconds((Date.parse(String(row.ended_at)) - Date.parse(String(row.started_at))) / 1000) : "–") },
            { name: "reason", title: "what" },
          ]}
        />
      </Panel>
    </>
  );
}

async function epochs(name: string): Promise<{ writes: Row[]; epochs: Row[] }> {
  const found = await get<{ writes: Rows; epochs: Rows }>(`/v1/views/${encodeURIComponent(name)}/epochs`);
  return { writes: objects(found.writes), epochs: objects(found.epochs) };
}
