/** Changes: each asks once, and shows the SQL that it will run. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, type Row, sql } from "./api";
import { changes } from "./live";
import { Failure } from "./ui";

interface Change {
  title: string;
  sql: string;
  danger?: boolean;
  done?: (rows: Row[]) => void;
  /** What to say of the statement's rows; else that it is done. */
  tells?: (rows: Row[]) => Said;
}

const asked = signal<Change | null>(null);

export interface Said {
  text: string;
  tone: "good" | "bad";
}

/** What became of the last change. */
export const said = signal<Said | null>(null);

export function change(one: Change): void {
  said.value = null;
  asked.value = one;
}

export function ChangeButton(given: Change & { label: string; primary?: boolean }) {
  const kind = given.danger ? "danger" : given.primary ? "primary" : "";
  return (
    <button type="button" class={kind} onClick={() => change(given)}>
      {given.label}
    </button>
  );
}

export function ChangeDialog() {
  const one = asked.value;
  return one === null ? null : <Asking key={one.sql} change={one} />;
}

function Asking({ change: one }: { change: Change }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [running, run] = useState(false);
  const [problem, fail] = useState<Problem | null>(null);
  useEffect(() => dialog.current?.showModal(), []);

  async function confirm(): Promise<void> {
    run(true);
    fail(null);
    try {
      const rows = await sql(one.sql);
      asked.value = null;
      changes.value++;
      said.value = one.tells?.(rows) ?? { text: `${one.title}: done`, tone: "good" };
      one.done?.(rows);
    } catch (error) {
      fail(error as Problem);
      run(false);
    }
  }

  return (
    <dialog ref={dialog} onClose={() => (asked.value = null)} aria-labelledby="change-title">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          void confirm();
        }}
      >
        <h2 id="change-title">{one.title}</h2>
        <p class="muted">This statement will run:</p>
        <pre class="sql">{one.sql}</pre>
        <Failure problem={problem} />
        <div class="row end">
          <button type="button" onClick={() => (asked.value = null)}>
            Leave it
          </button>
          <button type="submit" class={one.danger ? "danger" : "primary"} disabled={running}>
            {running ? "Running…" : "Run it"}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function Outcome() {
  const one = said.value;
  useEffect(() => {
    if (one === null || one.tone === "bad") return;
    const timer = setTimeout(() => (said.value = null), 6000);
    return () => clearTimeout(timer);
  }, [one]);
  return (
    <div class="outcome" role="status">
      {one !== null && (
        <span class={one.tone}>
          {one.text}
          {one.tone === "bad" && (
            <button type="button" class="quiet" onClick={() => (said.value = null)}>
              Close
            </button>
          )}
        </span>
      )}
    </div>
  );
}
