/** Small parts that all pages are made of. */
import type { ComponentChildren } from "preact";
import type { Problem, Row, Value } from "./api";
import { useClock } from "./live";
import { seconds, since, text } from "./words";

export type Tone = "good" | "warn" | "bad" | "calm" | "busy";

export function Badge({ tone = "calm", children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export function Panel(given: { title?: string; id?: string; more?: ComponentChildren; children: ComponentChildren }) {
  const name = given.id ?? given.title?.toLowerCase().replaceAll(/[^a-z]+/g, "-");
  return (
    <section class="panel" aria-labelledby={given.title && `${name}-title`} data-part={name}>
      {given.title !== undefined && (
        <header>
          <h2 id={`${name}-title`}>{given.title}</h2>
          <div class="row end">{given.more}</div>
        </header>
      )}
      {given.children}
    </section>
  );
}

export function Failure({ problem }: { problem: Problem | null }) {
  if (problem === null) return null;
  return (
    <div class="failure" role="alert">
      <strong>{problem.title}</strong>
      <span>{problem.message}</span>
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** The age of a view as it was at a time of the browser's clock. It grows until the node tells of an epoch. */
export function Freshness({ age, at }: { age: Value | undefined; at: number }) {
  const grown = useAge(age, at);
  if (grown === null) return <Badge>not yet</Badge>;
  if (grown === 0) return <Badge tone="good">up to date</Badge>;
  return <Badge tone={grown < 60 ? "good" : grown < 600 ? "warn" : "bad"}>{seconds(grown)} old</Badge>;
}

const LEAST_S = 0.001;

/** Zero is "up to date"; null, "no rows yet". */
export function useAge(age: Value | undefined, at: number): number | null {
  const grows = typeof age === "number" && age >= LEAST_S;
  const now = useClock(grows);
  if (typeof age !== "number") return null;
  return grows ? age + Math.max(0, now - at) / 1000 : 0;
}

/** How long ago a time was. */
export function Since({ time }: { time: Value | undefined }) {
  useClock(true);
  return <>{seconds(since(time))}</>;
}

export function Cell({ value }: { value: Value | undefined }) {
  if (value === null || value === undefined) return <span class="null">NULL</span>;
  return <>{text(value)}</>;
}

export interface Shown {
  name: string;
  title?: string;
  align?: "right";
  of?: (row: Row) => ComponentChildren;
}

const SHORT = ["disk", "load"];
const SENTENCES = ["reason", "last_reason", "result", "message", "waits_for", "error"];

function kindOf(column: string): string | undefined {
  return column.endsWith("_at") || SHORT.includes(column) ? "line" : SENTENCES.includes(column) ? "text" : undefined;
}

/** A table for people: a few chosen columns. */
export function Listing(given: { rows: Row[]; columns: Shown[]; label: string; empty?: string; mark?: (row: Row) => Tone | null }) {
  if (given.rows.length === 0) return <Empty>{given.empty ?? "Nothing."}</Empty>;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={given.label}>
      <table class="listing">
        <thead>
          <tr>
            {given.columns.map((one) => (
              <th key={one.name} scope="col" class={one.align}>
                {one.title ?? one.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {given.rows.map((row, at) => (
            <tr key={at} class={given.mark?.(row) ?? undefined}>
              {given.columns.map((one) => (
                <td key={one.name} class={one.align ?? kindOf(one.name)}>
                  {one.of ? one.of(row) : <Cell value={row[one.name]} />}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
