/** SQL: statements, their results, and those of before. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, type Rows, ask, get } from "../api";
import type { Editor, Names, Statement } from "../editor";
import { BEFORE, TEXT } from "../kept";
import { numbers } from "../live";
import { Badge, Empty, Failure, Panel } from "../ui";
import { firstLine, plural, seconds } from "../words";
import { Grid } from "./explorer";

const BEFORE_MAX = 100;
const PAGE_ROWS = 500;

interface Result {
  id: string;
  statement: Statement;
  rows: Rows | null;
  problem: Problem | null;
  /** Why the rest of its rows did not come: the node keeps a result for a while. */
  rest: Problem | null;
  took_ms: number;
}

export function Statements() {
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const running = useRef<string | null>(null);
  const stopped = useRef(false);
  const [ready, begin] = useState(false);
  const [busy, work] = useState(false);
  const [results, show] = useState<Result[]>([]);
  const [before, remember] = useState<string[]>(() => JSON.parse(localStorage.getItem(BEFORE) ?? "[]"));
  const run = useRef(() => {});
  run.current = () => void runAll();

  useEffect(() => {
    let over = false;
    void import("../editor").then(({ Editor }) => {
      if (over || place.current === null) return;
      const text = localStorage.getItem(TEXT) ?? "SHOW TABLES;\nSELECT * FROM system.history ORDER BY version DESC LIMIT 20;\n";
      editor.current = new Editor(place.current, text, () => run.current(), (now) => localStorage.setItem(TEXT, now));
      begin(true);
    });
    return () => {
      over = true;
      editor.current?.close();
    };
  }, []);

  const tables = numbers.value?.exclusive_version; // grows with every table that is made, changed or dropped
  useEffect(() => {
    if (ready) void get<Names>("/v1/names").then((found) => editor.current?.complete(found), () => {});
  }, [ready, tables]);

  async function runAll(): Promise<void> {
    const statements = editor.current?.statements() ?? [];
    if (busy || statements.length === 0) return;
    editor.current?.unmark();
    work(true);
    stopped.current = false;
    const text = statements.map((one) => one.text).join(";\n");
    const kept = [text, ...before.filter((one) => one !== text)].slice(0, BEFORE_MAX);
    remember(kept);
    localStorage.setItem(BEFORE, JSON.stringify(kept));
    const done: Result[] = [];
    show([]);
    for (const statement of statements) {
      const result = await one(statement);
      done.push(result);
      show([...done]);
      if (result.problem !== null) {
        editor.current?.mark(statement, result.problem.message, result.problem.line, result.problem.column);
        break;
      }
      if (stopped.current) break;
    }
    work(false);
  }

  async function one(statement: Statement): Promise<Result> {
    const id = crypto.randomUUID().replaceAll("-", "");
    running.current = id;
    const began = performance.now();
    const told = { id, statement, rest: null, took_ms: 0 };
    try {
      const answer = await ask("/v1/sql", { body: { sql: statement.text, page_rows: PAGE_ROWS }, id });
      const rows: Rows = await answer.json();
      return { ...told, rows, problem: null, took_ms: performance.now() - began };
    } catch (error) {
      return { ...told, rows: null, problem: error as Problem, took_ms: performance.now() - began };
    } finally {
      running.current = null;
    }
  }

  /** The node may not know the request yet: it is asked until it does, or until the statement has ended. */
  async function cancel(): Promise<void> {
    stopped.current = true;
    for (const id = running.current; id !== null && id === running.current; ) {
      const known = await get<{ id: string }[]>("/v1/requests").catch(() => []);
      if (known.some((one) => one.id === id)) await ask(`/v1/requests/${id}`, { method: "DELETE" }).catch(() => {});
      await new Promise((done) => setTimeout(done, 300));
    }
  }

  async function more(result: Result): Promise<Rows> {
    const next: Rows = await (await ask(result.rows!.next_page!)).json();
    const rows = { ...next, rows: [...result.rows!.rows, ...next.rows] };
    if (next.next_page === undefined) delete rows.next_page;
    return rows;
  }

  /** Ask for more of a result, whose panel says so if the node has it no more. */
  async function fetchMore(result: Result, fetch: () => Promise<Rows | undefined>): Promise<void> {
    let [rows, rest] = [result.rows, null as Problem | null];
    try {
      rows = (await fetch()) ?? rows;
    } catch (error) {
      rest = error instanceof Problem ? error : new Problem({ detail: String(error) });
    }
    show((all) => all.map((one) => (one.id === result.id ? { ...one, rows, rest } : one)));
  }

  return (
    <>
      <Panel title="Statements" more={<span class="muted">Ctrl + Enter runs what is selected, or all. Esc, then Tab, leaves the editor.</span>}>
        <div ref={place} class="editor" />
        <div class="row">
          <button type="button" class="primary" disabled={busy || !ready} onClick={() => void runAll()}>
            Run
          </button>
          <button type="button" disabled={!busy} onClick={() => void cancel()}>
            Cancel
          </button>
          {busy && <Badge tone="busy">running</Badge>}
          <label class="end history">
            <span class="sr">History</span>
            <select
              value=""
              disabled={before.length === 0}
              onChange={(event) => {
                editor.current?.put(before[Number(event.currentTarget.value)] ?? "");
                event.currentTarget.value = "";
              }}
            >
              <option value="">History</option>
              {before.map((text, at) => (
                <option key={at} value={at}>
                  {firstLine(text).slice(0, 80)}
                </option>
              ))}
            </select>
          </label>
        </div>
      </Panel>
      {results.map((result, at) => (
        <Panel key={result.id} title={`Result ${at + 1}`} id={`result-${at + 1}`} more={<Exports result={result} save={(as) => void fetchMore(result, () => save(result, as))} />}>
          <pre class="sql small">{firstLine(result.statement.text.trim())}</pre>
          <Failure problem={result.problem ?? result.rest} />
          {result.rows && (
            <>
              <p class="muted">
                {plural(result.rows.rows_total ?? result.rows.rows.length, "row")} in {seconds(result.took_ms / 1000)}
              </p>
              {result.rows.columns.length > 0 ? <Grid rows={result.rows} label={`Rows of result ${at + 1}`} /> : <Empty>Done.</Empty>}
              {result.rows.next_page && (
                <button type="button" onClick={() => void fetchMore(result, () => more(result))}>
                  More rows
                </button>
              )}
            </>
          )}
        </Panel>
      ))}
    </>
  );
}

interface Format {
  name: string;
  accept: string;
  suffix: string;
}

const FORMATS: Format[] = [
  { name: "CSV", accept: "text/csv", suffix: "csv" },
  { name: "Parquet", accept: "application/vnd.apache.parquet", suffix: "parquet" },
];

function Exports({ result, save }: { result: Result; save: (as: Format) => void }) {
  if (!result.rows || result.rows.rows.length === 0) return null;
  return (
    <>
      {FORMATS.map((one) => (
        <button key={one.name} type="button" class="quiet" onClick={() => save(one)}>
          {one.name}
        </button>
      ))}
    </>
  );
}

/** All rows of a result as a file: the node has kept them. */
async function save(result: Result, { accept, suffix }: Format): Promise<undefined> {
  const answer = await ask(`/v1/results/${result.id}`, { accept });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `result.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
