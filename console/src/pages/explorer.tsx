/** Relations, and the first rows of one. */
import { useState } from "preact/hooks";
import { type Plan, type Row, type Rows, ask, get, may, quoted } from "../api";
import { ChangeButton } from "../change";
import { useLive } from "../live";
import { Badge, Cell, Empty, Failure, Freshness, Since, useAge } from "../ui";
import { bytes, number, plural, seconds } from "../words";
import { type Filter, Filters, asFilters, asWhere, suggestIndex } from "./filters";

interface Status {
  tables: Row[];
  views: Row[];
  indexes: Row[];
}

interface Described {
  name: string;
  kind: string;
  columns: { name: string; type: string; nullable: boolean; key: boolean }[];
  version: number;
}

export function Explorer({ name, where }: { name?: string | undefined; where?: string | undefined }) {
  const status = useLive(() => get<Status>("/v1/status"), []);
  const [sought, seek] = useState("");
  const first = String(status.data?.tables[0]?.table ?? status.data?.views[0]?.view ?? "");
  const shown = name || first;
  return (
    <div class="split">
      <aside class="relations" aria-label="Relations">
        <input type="search" placeholder="Find a relation" aria-label="Find a relation" value={sought} onInput={(event) => seek(event.currentTarget.value)} />
        <Failure problem={status.error} />
        {status.data && (
          <>
            <Group title="Tables" rows={status.data.tables} at={status.at} by="table" shown={shown} sought={sought} />
            <Group title="Views" rows={status.data.views} at={status.at} by="view" shown={shown} sought={sought} />
          </>
        )}
      </aside>
      <div class="content">
        {shown ? <Relation key={`${shown}/${where ?? ""}`} name={shown} where={where} status={status.data} at={status.at} /> : status.data && <Empty>There are no tables yet: CREATE TABLE makes one, on the page SQL.</Empty>}
      </div>
    </div>
  );
}

function Group({ title, rows, at, by, shown, sought }: { title: string; rows: Row[]; at: number; by: string; shown: string; sought: string }) {
  const found = rows.filter((row) => String(row[by]).toLowerCase().includes(sought.toLowerCase()));
  if (found.length === 0) return null;
  return (
    <>
      <h2>{title}</h2>
      <ul>
        {found.map((row) => {
          const name = String(row[by]);
          return (
            <li key={name}>
              <a href={`#/explore/${encodeURIComponent(name)}`} aria-current={name.toLowerCase() === shown.toLowerCase() ? "true" : undefined}>
                <span class="name">{name}</span>
                <span class="muted size">
                  {atMost(row)}
                  {number(row.rows)} · {bytes(row.bytes)}
                </span>
                {by === "view" && (row.status === "failed" ? <Badge tone="bad">failed</Badge> : <Freshness age={row.age_s} at={at} />)}
              </a>
            </li>
          );
        })}
      </ul>
    </>
  );
}

/** Rows that were written several times are counted several times, until a compaction merges them. */
function atMost(row: Row): string {
  return row.rows_exact === false ? "≤ " : "";
}

function Relation({ name, where, status, at }: { name: string; where: string | undefined; status: Status | null; at: number }) {
  const described = useLive(() => get<Described>(`/v1/tables/${encodeURIComponent(name)}`), [name]);
  if (described.data === null) return <Failure problem={described.error} />;
  const is = (row: Row, by: string) => String(row[by]).toLowerCase() === name.toLowerCase();
  const table = status?.tables.find((row) => is(row, "table"));
  const view = status?.views.find((row) => is(row, "view"));
  const indexes = status?.indexes.filter((row) => is(row, "relation")) ?? [];
  return (
    <>
      <header class="title">
        <h2>{described.data.name}</h2>
        <Badge>{described.data.kind}</Badge>
        {view?.status === "failed" && <Badge tone="bad">failed</Badge>}
        {view && <Freshness age={view.age_s} at={at} />}
        <span class="muted">
          {(view ?? table) && `${atMost((view ?? table)!)}${plural(Number((view ?? table)!.rows ?? 0), "row")} · ${bytes((view ?? table)!.bytes)}`}
          {table && table.written_at !== null && (
            <>
              {" · written "}
              <Since time={table.written_at} /> ago
            </>
          )}
        </span>
        {view && <a href={`#/views/${encodeURIComponent(described.data.name)}`}>How it is kept</a>}
      </header>
      <details class="columns">
        <summary>
          {plural(described.data.columns.length, "column")}, {plural(indexes.length, "index", "indexes")}
        </summary>
        <ul class="chips">
          {described.data.columns.map((one) => (
            <li key={one.name} class={one.key ? "key" : ""}>
              {one.name} <span class="muted">{one.type}</span>
              {one.key && <span class="muted"> key</span>}
              {!one.nullable && !one.key && <span class="muted"> not null</span>}
            </li>
          ))}
          {indexes.map((one) => (
            <li key={String(one.index)} class="index">
              {String(one.index)} <span class="muted">index, {one.percent === 100 ? bytes(one.bytes) : `${number(one.percent)} %`}</span>
            </li>
          ))}
        </ul>
      </details>
      <FirstRows relation={described.data} where={where} indexes={indexes.map((one) => String(one.index))} />
    </>
  );
}

// ---- the first rows --------------------------------------------------------------------------------------

interface Answer {
  rows: Rows;
  latency_ms: number;
}

function FirstRows({ relation, where: given, indexes }: { relation: Described; where: string | undefined; indexes: string[] }) {
  const [filters, filter] = useState<Filter[]>(() => asFilters(given ?? ""));
  const [order, sort] = useState<string[]>([]);
  const [pages, turn] = useState<string[]>([]);
  const after = pages.at(-1);
  const where = asWhere(filters);
  const asked = JSON.stringify([where, order, after]);

  async function load(): Promise<Answer> {
    const began = performance.now();
    const body = { relation: relation.name, where, order_by: order.length ? order : null, after: after ?? null, limit: 100, explain: true };
    const rows: Rows = await (await ask("/v1/query", { body })).json();
    return { rows, latency_ms: performance.now() - began };
  }

  const live = useLive(load, [relation.name, asked]);
  const { data: answer, error: problem } = live;

  function sorted(column: string, more: boolean): void {
    turn([]);
    sort((order) => {
      const before = order.find((one) => one.replace(/^-/, "") === column);
      const next = before === undefined ? [column] : before.startsWith("-") ? [] : [`-${column}`];
      const others = more ? order.filter((one) => one.replace(/^-/, "") !== column) : [];
      return [...others, ...next];
    });
  }

  return (
    <>
      <Filters
        columns={relation.columns}
        filters={filters}
        change={(given) => {
          turn([]);
          filter(given);
        }}
      />
      <Failure problem={problem} />
      {answer && (
        <>
          <Path answer={answer} at={live.at} relation={relation} indexes={indexes} filters={filters} order={order} created={live.reload} />
          <Grid rows={answer.rows} order={order} sort={sorted} label={`First rows of ${relation.name}`} />
          <div class="row pager">
            <button type="button" disabled={pages.length === 0} onClick={() => turn(pages.slice(0, -1))}>
              Previous page
            </button>
            <span class="muted">
              Page {pages.length + 1}, {plural(answer.rows.rows.length, "row")}
            </span>
            <button type="button" disabled={!answer.rows.next} onClick={() => turn([...pages, answer.rows.next!])}>
              Next page
            </button>
          </div>
        </>
      )}
    </>
  );
}

function Path(given: { answer: Answer; at: number; relation: Described; indexes: string[]; filters: Filter[]; order: string[]; created: () => void }) {
  const { answer, relation } = given;
  const { plan, took_ms, applied_version, age_s, version } = answer.rows;
  const age = useAge(age_s, given.at);
  if (plan === undefined) return null;
  const columns = isScan(plan) ? suggestIndex(given.filters, given.order) : [];
  const name = [relation.name, "by", ...columns.map((one) => one.replace(/ DESC$/, ""))].join("_").replaceAll(/[^A-Za-z0-9_]/g, "_");
  const statement = `CREATE ASYNC INDEX ${quoted(name)} ON ${quoted(relation.name)} (${columns.map(columnOf).join(", ")})`;
  return (
    <p class="path">
      <Badge tone={isScan(plan) ? "warn" : "good"}>{pathOf(plan, relation)}</Badge>
      <span title={`${answer.latency_ms.toFixed(1)} ms with the way to the browser`}>{seconds((took_ms ?? 0) / 1000)}</span>
      <span class="muted">
        {plan.row_groups > 0 ? `${plan.row_groups_read} of ${plural(plan.row_groups, "row group")}` : `${plural(plan.level0_rows, "row")} in memory`}
      </span>
      {applied_version !== undefined ? (
        <span>
          applied version {number(applied_version)}, {age ? `${seconds(age)} old` : "up to date"}
        </span>
      ) : (
        <span>version {number(version)}</span>
      )}
      {columns.length > 0 && given.indexes.includes(name) && <span class="muted">the scan costs less than {name}, or it is being built</span>}
      {columns.length > 0 && !given.indexes.includes(name) && may("OWN", relation.name) && (
        <ChangeButton label="Create an index for this" title={`Create an index of ${relation.name}`} sql={statement} done={given.created} />
      )}
    </p>
  );
}

function columnOf(one: string): string {
  return one.endsWith(" DESC") ? `${quoted(one.slice(0, -5))} DESC` : quoted(one);
}

/** Whether no path led to the rows: they are all read, to be filtered or sorted. */
function isScan(plan: Plan): boolean {
  return plan.way === "scan" || (plan.leading_columns === 0 && (plan.sort || plan.filters.length > 0));
}

function pathOf(plan: Plan, relation: Described): string {
  if (isScan(plan)) return "scan";
  if (plan.path === relation.name) return "primary key";
  return `index ${plan.path}`;
}

/** Rows as they came. Headers sort if `sort` is given. */
export function Grid(given: { rows: Rows; order?: string[]; sort?: (column: string, more: boolean) => void; label: string }) {
  const { columns, rows } = given.rows;
  const numeric = columns.map((one) => /int|decimal|double|float/.test(one.type));
  return (
    <div class="scroll grid" tabIndex={0} role="group" aria-label={given.label}>
      <table>
        <thead>
          <tr>
            {columns.map((one, at) => {
              const by = given.order?.find((name) => name.replace(/^-/, "") === one.name);
              const direction = by === undefined ? undefined : by.startsWith("-") ? "descending" : "ascending";
              return (
                <th key={at} scope="col" aria-sort={direction} class={numeric[at] ? "right" : ""}>
                  {given.sort ? (
                    <button type="button" class="sort" title={`${one.type}. Sorts; with Shift, besides what is sorted by already.`} onClick={(event) => given.sort!(one.name, event.shiftKey)}>
                      {one.name}
                      <span aria-hidden="true">{direction === "ascending" ? " ↑" : direction === "descending" ? " ↓" : ""}</span>
                    </button>
                  ) : (
                    <span title={one.type}>{one.name}</span>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number}>
              {row.map((value, at) => (
                <td key={at} class={numeric[at] ? "right" : ""}>
                  <Cell value={value} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <Empty>No rows.</Empty>}
    </div>
  );
}

