/** Builds: those that run, and those of before. */
import { useState } from "preact/hooks";
import { type Row, may, quoted, sql } from "../api";
import { Cells, type Cell } from "../cells";
import { ChangeButton, change } from "../change";
import { History } from "../history";
import { useLive } from "../live";
import { Badge, Empty, Fact, Failure, Panel, type Tone } from "../ui";
import { number, seconds, text } from "../words";

const PHASES: { [phase: string]: Tone } = { waiting: "warn", failed: "bad", scanning: "busy", "catching up": "busy", validating: "busy", refreshing: "busy" };
const RUNNING_MS = 1000;

export function Builds() {
  const [busy, setBusy] = useState(false);
  const builds = useLive(async () => {
    const found = await load();
    setBusy(found.length > 0);
    return found;
  }, [], busy ? RUNNING_MS : undefined);
  return (
    <>
      <Failure problem={builds.error} />
      {builds.data?.map((one) => (
        <Build key={String(one.row.name)} build={one} />
      ))}
      {builds.data?.length === 0 && (
        <Panel title="Running">
          <Empty>Nothing is being built.</Empty>
        </Panel>
      )}
      <History title="History" label="Search builds" builds />
    </>
  );
}

interface Running {
  row: Row;
  kind: string;
  base: string;
  paused: boolean;
  tablets: Cell[];
}

/** Builds that have not ended, with how far each tablet of their base is. */
async function load(): Promise<Running[]> {
  const rows = (await sql("SELECT * FROM system.build_progress")).filter((row) => row.phase !== "readable");
  if (rows.length === 0) return [];
  const [relations, builds, segments, tasks] = await Promise.all([
    sql("SELECT relation_id, name, kind, tablets FROM system.relations WHERE dropped_version IS NULL"),
    sql("SELECT view_id, base_id, on_hold FROM system.view_builds"),
    sql("SELECT view_id, token_min, token_max, up_to FROM system.view_building_segments"),
    sql("SELECT view_id, base_tablet_id FROM system.view_building_tasks WHERE NOT aborted"),
  ]);
  return rows.map((row) => {
    const relation = relations.find((one) => one.name === row.name || one.name === `sys$replacement$${row.name}`);
    const build = builds.find((one) => one.view_id === relation?.relation_id);
    const base = relations.find((one) => one.relation_id === build?.base_id);
    const mine = (one: Row) => one.view_id === relation?.relation_id;
    const waiting = new Set(tasks.filter(mine).map((one) => Number(one.base_tablet_id)));
    const tablets = strip(Number(base?.tablets ?? 0), segments.filter(mine), waiting);
    return { row, kind: String(relation?.kind ?? "view"), base: String(base?.name ?? row.base ?? ""), paused: build?.on_hold === true, tablets };
  });
}

const TOKENS = 2 ** 64;
/** How strongly a tablet is filled that is nearly covered. */
const PARTLY = 0.9;

/** A cell for each tablet of the base, as full as the tablet is covered. */
function strip(tablets: number, segments: Row[], waiting: Set<number>): Cell[] {
  const width = TOKENS / Math.max(1, tablets);
  const covered = new Array<number>(tablets).fill(0);
  for (const one of segments) {
    const low = Number(one.token_min) + TOKENS / 2;
    const high = one.up_to === null ? Number(one.token_max) + TOKENS / 2 : Number(BigInt(`0x${one.up_to}`));
    for (let at = Math.floor(low / width); at < tablets && at * width < high; at++)
      covered[at] = Math.max(covered[at]!, Math.min(1, (high - at * width) / width));
  }
  return covered.map((part, at) => ({ key: String(at), lane: 0, heat: part > 0.999 ? 1 : part * PARTLY, hue: 24, moving: part < 0.999 && waiting.has(at) && part > 0 }));
}

const LANE = [""];

function covered(one: Cell): string {
  return `tablet ${one.key}: ${one.heat === 1 ? 100 : Math.min(99, Math.round((one.heat / PARTLY) * 100))} % covered`;
}

function Build({ build: { row, kind, base, paused, tablets } }: { build: Running }) {
  const name = String(row.name);
  const done = Math.round(Number(row.percent ?? 0));
  const mine = may("OWN", kind === "index" ? base : name);
  const what = `ALTER ${kind === "index" ? "INDEX" : "MATERIALIZED VIEW"} ${quoted(name)}`;
  const failed = row.phase === "failed";
  return (
    <Panel title={name} id={`build-${name}`} more={mine && <Buttons name={name} what={what} paused={paused} failed={failed} />}>
      <dl class="facts">
        <Fact name="phase">
          <Badge tone={paused ? "warn" : PHASES[String(row.phase)]}>{paused ? "paused" : String(row.phase)}</Badge>
        </Fact>
        <Fact name="of">{base || "–"}</Fact>
        <Fact name="rows">
          {number(row.rows)} of {number(row.rows_expected)}
        </Fact>
        <Fact name="rate">{typeof row.rows_per_s === "number" ? `${number(row.rows_per_s)} rows/s` : "–"}</Fact>
        <Fact name="time left">{seconds(row.eta_s)}</Fact>
        <Fact name="tablets">{String(row.tablets ?? "–")}</Fact>
      </dl>
      <div class="bar">
        <progress value={done} max={100} aria-label={`${name}: ${done} %`} />
        <span>{done} %</span>
      </div>
      {tablets.length > 0 && <Cells cells={tablets} lanes={LANE} tip={covered} label={`Tablets of ${base}: ${tablets.filter((one) => one.heat === 1).length} of ${tablets.length} covered`} />}
      {row.detail !== null && <p class="muted">{String(row.detail)}</p>}
      {row.culprit !== null && <p class="failure">{String(row.culprit)}</p>}
      {mine && !failed && <Pace name={name} what={what} row={row} />}
    </Panel>
  );
}

function Buttons({ name, what, paused, failed }: { name: string; what: string; paused: boolean; failed: boolean }) {
  return (
    <>
      {!failed &&
        (paused ? (
          <ChangeButton label="Resume" title={`Resume the build of ${name}`} sql={`${what} RESUME`} primary />
        ) : (
          <ChangeButton label="Pause" title={`Pause the build of ${name}`} sql={`${what} PAUSE`} />
        ))}
      <ChangeButton label={failed ? "Dismiss" : "Cancel"} title={`Cancel the build of ${name}`} sql={`CANCEL BUILD ${quoted(name)}`} danger />
    </>
  );
}

const PACE = [
  { option: "rows_per_minute", label: "Rows a minute", least: 0 },
  { option: "chunk_rows", label: "Rows of a chunk", least: 1 },
  { option: "concurrency", label: "Tablets at a time", least: 1 },
];

/** How fast it is built: what was set, until something else is typed. An empty field is no limit. */
function Pace({ name, what, row }: { name: string; what: string; row: Row }) {
  const [typed, type] = useState<{ [option: string]: string }>({});
  const isSet = (option: string) => text(row[option]);
  const given = PACE.filter(({ option }) => typed[option] !== undefined && typed[option].trim() !== isSet(option));
  const said = given.map(({ option }) => `${option} = ${typed[option]!.trim() === "" ? "NULL" : Number(typed[option])}`).join(", ");

  function retune(event: Event): void {
    event.preventDefault();
    change({ title: `Retune the build of ${name}`, sql: `${what} SET (${said})`, done: () => type({}) });
  }

  return (
    <form class="row pace" onSubmit={retune} aria-label={`Pace of ${name}`}>
      {PACE.map(({ option, label, least }) => (
        <label key={option}>
          {label}
          <input
            type="number"
            min={least}
            step="1"
            placeholder="not set"
            value={typed[option] ?? isSet(option)}
            onInput={(event) => {
              const value = event.currentTarget.value;
              type((before) => ({ ...before, [option]: value }));
            }}
          />
        </label>
      ))}
      <button type="submit" disabled={given.length === 0}>
        Retune
      </button>
    </form>
  );
}
