/** Commits with their reasons: the newest first, searched and turned by pages. */
import { useState } from "preact/hooks";
import { type Row, type Rows, get, objects } from "./api";
import { useLive } from "./live";
import { Badge, Failure, Listing, Panel } from "./ui";
import { number, time } from "./words";

const PAGE_ROWS = 100;
const SEARCH_MS = 200;

interface Page {
  rows: Row[];
  next: string | undefined;
}

/** `builds`: only what tells how builds went. */
export function History(given: { title: string; label: string; builds?: boolean }) {
  const [sought, seek] = useSearch();
  const [pages, turn] = useState<string[]>([]);
  const before = pages.at(-1);
  const found = useLive(() => load(sought, before, given.builds ?? false), [sought, before]);

  return (
    <Panel
      title={given.title}
      more={
        <input
          type="search"
          placeholder={given.label}
          aria-label={given.label}
          maxLength={200}
          onInput={(event) => {
            turn([]);
            seek(event.currentTarget.value);
          }}
        />
      }
    >
      <Failure problem={found.error} />
      <Listing
        rows={found.data?.rows ?? []}
        label={given.title}
        empty={found.data === null ? "One moment…" : sought ? "No reason has these words." : "Nothing yet."}
        columns={[
          { name: "version", align: "right", of: (row) => number(row.version) },
          { name: "committed_at", title: "when", of: (row) => time(row.committed_at) },
          { name: "reason", title: given.builds ? "what" : "reason" },
          ...(given.builds ? [] : [{ name: "kind", of: (row: Row) => (row.kind === "exclusive" ? <Badge tone="warn">exclusive</Badge> : "data") }]),
        ]}
      />
      {(pages.length > 0 || found.data?.next) && (
        <div class="row pager">
          <button type="button" disabled={pages.length === 0} onClick={() => turn(pages.slice(0, -1))}>
            Newer
          </button>
          <span class="muted">Page {pages.length + 1}</span>
          <button type="button" disabled={!found.data?.next} onClick={() => turn([...pages, found.data!.next!])}>
            Older
          </button>
        </div>
      )}
    </Panel>
  );
}

/** What is typed, once the typing rests: each search reads the history. */
function useSearch(): [string, (text: string) => void] {
  const [sought, put] = useState("");
  const [timer, keep] = useState<ReturnType<typeof setTimeout>>();
  const seek = (text: string) => {
    clearTimeout(timer);
    keep(setTimeout(() => put(text.trim()), SEARCH_MS));
  };
  return [sought, seek];
}

async function load(words: string, before: string | undefined, builds: boolean): Promise<Page> {
  const asked = new URLSearchParams({ limit: String(PAGE_ROWS) });
  if (words) asked.set("words", words);
  if (before !== undefined) asked.set("before", before);
  if (builds) asked.set("builds", "true");
  const found = await get<Rows>(`/v1/history?${asked}`);
  return { rows: objects(found), next: found.next };
}
