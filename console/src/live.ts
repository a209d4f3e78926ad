/** What follows the node without a reload: one stream of events, and loads that are repeated when it tells of a change. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, headers, me, refused, start, token } from "./api";

export type Numbers = { [name: string]: number };

/** The newest numbers of the catalog; null until the first event. */
export const numbers = signal<Numbers | null>(null);
export const connection = signal<"connecting" | "live" | "lost">("connecting");

const SILENT_MS = 40_000; // the node says every 15 s that it is there
const RETRY_MS = [500, 1000, 2000, 4000];

/** Follow the events of the node for as long as the page is open, through every lost connection. */
export async function follow(): Promise<void> {
  for (let failures = 0; ; ) {
    if (me.value !== null && !refused.value) {
      await listen(() => (failures = 0));
      connection.value = "lost";
    }
    await pause(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] ?? 4000);
  }
}

/** One connection, to its end. */
async function listen(received: () => void): Promise<void> {
  const stop = new AbortController();
  const given = token.value;
  let silent = setTimeout(() => stop.abort(), SILENT_MS);
  try {
    const answer = await fetch("/v1/events", { headers: headers(), signal: stop.signal });
    if (answer.status === 401) refused.value = true;
    if (!answer.ok || answer.body === null) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done || token.value !== given) return;
      clearTimeout(silent);
      silent = setTimeout(() => stop.abort(), SILENT_MS);
      const events = (rest + value).split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) if (take(event)) received();
    }
  } catch {
    // The stream has ended; `follow` opens another.
  } finally {
    clearTimeout(silent);
    stop.abort();
  }
}

/** Whether the event says that the node serves. One that tells of an error is the last of its connection. */
function take(event: string): boolean {
  if (event.startsWith("event: error")) return false;
  connection.value = "live";
  const data = event.split("\n").find((line) => line.startsWith("data: "));
  if (data !== undefined && event.startsWith("event: numbers")) {
    const before = numbers.value;
    numbers.value = JSON.parse(data.slice(6));
    if (before?.exclusive_version !== numbers.value!.exclusive_version) askForRights();
  }
  return true;
}

const RIGHTS_MS = 1200; // a node believes for a second what it has read of a user
let asking: ReturnType<typeof setTimeout> | undefined;

/** Users, relations or the cluster have changed, and with them, perhaps, what the user may. */
function askForRights(): void {
  asking ??= setTimeout(() => {
    asking = undefined;
    if (me.value?.token) void start().catch(() => {});
  }, RIGHTS_MS);
}

/** The browser's clock. It goes while `runs`, and stands while the node is not heard: what is shown is as it was. */
export function useClock(runs: boolean): number {
  const [now, tell] = useState(Date.now);
  const goes = runs && connection.value === "live";
  useEffect(() => {
    if (!goes) return;
    const timer = setInterval(() => tell(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [goes]);
  return now;
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

// ---- loads that follow -----------------------------------------------------------------------------------

export interface Loaded<T> {
  data: T | null;
  error: Problem | null;
  /** When the data came, in milliseconds of the browser's clock. */
  at: number;
  reload: () => void;
}

const LEAST_MS = 300;
const MOST_MS = 3000;

/** Counts the changes that this page has made: what it shows is loaded again at once. */
export const changes = signal(0);

/**
 * What `load` gives: at once, when `keys` change, and when the node tells of a change. Loads do not overlap, and one
 * that is slow is repeated less often. `every` repeats it besides, for what changes without a commit; `"never"` loads it
 * once, for what is costly and does not change.
 */
export function useLive<T>(load: () => Promise<T>, keys: unknown[], every?: number | "never"): Loaded<T> {
  const [found, put] = useState<Omit<Loaded<T>, "reload">>({ data: null, error: null, at: 0 });
  const current = useRef(load);
  current.current = load;
  const again = useRef<() => void>(() => {});

  useEffect(() => {
    let over = false;
    let loading = false;
    let resting = false;
    let wanted = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    put((before) => (before.data === null ? before : { ...before, error: null }));

    async function run(): Promise<void> {
      if (loading || resting || document.hidden) {
        wanted = true;
        return;
      }
      clearTimeout(timer);
      loading = true;
      wanted = false;
      const began = performance.now();
      try {
        const data = await current.current();
        if (!over) put({ data, error: null, at: Date.now() });
      } catch (error) {
        if (!over) put((before) => ({ ...before, error: error instanceof Problem ? error : new Problem({ detail: String(error) }) }));
      }
      loading = false;
      resting = true;
      const pause = Math.min(MOST_MS, Math.max(LEAST_MS, 5 * (performance.now() - began)));
      timer = setTimeout(() => rested(pause), pause);
    }

    function rested(paused: number): void {
      resting = false;
      if (over) return;
      if (wanted) void run();
      else if (typeof every === "number") timer = setTimeout(() => void run(), Math.max(0, every - paused));
    }

    function hurry(): void {
      resting = false;
      void run();
    }

    again.current = hurry;
    const visible = () => wanted && void run();
    document.addEventListener("visibilitychange", visible);
    let first = true; // a signal tells its value at once
    const unsubscribe = [
      numbers.subscribe(() => !first && every !== "never" && void run()),
      changes.subscribe(() => !first && every !== "never" && hurry()),
    ];
    first = false;
    void run();
    return () => {
      over = true;
      clearTimeout(timer);
      unsubscribe.forEach((end) => end());
      document.removeEventListener("visibilitychange", visible);
    };
  }, [...keys, every]);

  return { ...found, reload: () => again.current() };
}
