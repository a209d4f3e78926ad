/** Requests to the node that served this page, with the user's token. */
import { signal } from "@preact/signals";
import { forget, keepFor } from "./kept";

export type Value = string | number | boolean | null | Value[] | { [name: string]: Value };
export type Row = { [column: string]: Value };

export interface Column {
  name: string;
  type: string;
}

export interface Rows {
  columns: Column[];
  rows: Value[][];
  next?: string;
  next_page?: string;
  rows_total?: number;
  version?: number;
  applied_version?: number;
  age_s?: number;
  plan?: Plan;
  took_ms?: number;
}

/** Which path answered a query, as `POST /v1/query` explains it. */
export interface Plan {
  relation: string;
  path: string;
  way: "scan" | "seek";
  leading_columns: number;
  filters: string[];
  sort: boolean;
  runs_read: number;
  runs: number;
  row_groups_read: number;
  row_groups: number;
  level0_rows: number;
}

export interface Me {
  name: string;
  role: "reader" | "writer" | "admin";
  token: boolean;
  rights: { [relation: string]: string };
}

/** An error of the node: the problem document (RFC 9457) that it answered with. */
export class Problem extends Error {
  readonly status: number;
  readonly title: string;
  readonly line: number | undefined;
  readonly column: number | undefined;

  constructor(document: { status?: number; title?: string; detail?: string; line?: number; column?: number }) {
    super(document.detail ?? document.title ?? "the node did not answer");
    this.status = document.status ?? 0;
    this.title = document.title ?? "Error";
    this.line = document.line;
    this.column = document.column;
  }
}

const KEPT = "ebla-token";

export const token = signal<string | null>(sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT));
export const me = signal<Me | null>(null);
/** Whether the node wants a token that this page does not have. */
export const refused = signal(document.documentElement.dataset.users === "true" && token.value === null);

export function headers(more: Record<string, string> = {}): Record<string, string> {
  return token.value === null ? more : { Authorization: `Bearer ${token.value}`, ...more };
}

/** How far the node's clock is ahead of the browser's. Its answers tell whole seconds: less than that is nothing. */
let ahead_ms = 0;
const AHEAD_LEAST_MS = 1500;

function compareClocks(answer: Response): void {
  const ahead = Date.parse(answer.headers.get("Date") ?? "") + 500 - Date.now();
  if (!Number.isNaN(ahead)) ahead_ms = Math.abs(ahead) < AHEAD_LEAST_MS ? 0 : ahead;
}

/** The time of the node, in milliseconds: what it tells of is compared with this. */
export function nodeTime(browser_ms = Date.now()): number {
  return browser_ms + ahead_ms;
}

export interface Asked {
  method?: string;
  body?: unknown;
  accept?: string;
  id?: string;
}

export async function ask(path: string, asked: Asked = {}): Promise<Response> {
  const more: Record<string, string> = { Accept: asked.accept ?? "application/json" };
  if (asked.body !== undefined) more["Content-Type"] = "application/json";
  if (asked.id !== undefined) more["Ebla-Request"] = asked.id;
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: asked.method ?? (asked.body === undefined ? "GET" : "POST"),
      headers: headers(more),
      body: asked.body === undefined ? undefined : JSON.stringify(asked.body),
    });
  } catch {
    throw new Problem({ title: "NoConnection", detail: "The node does not answer. Is it running?" });
  }
  compareClocks(answer);
  if (answer.ok) return answer;
  if (answer.status === 401) refused.value = true;
  throw new Problem(await answer.json().catch(() => ({ status: answer.status, title: answer.statusText })));
}

export async function get<T>(path: string): Promise<T> {
  return (await ask(path)).json();
}

/** The rows of the last statement, as objects. */
export async function sql(text: string): Promise<Row[]> {
  return objects(await (await ask("/v1/sql", { body: { sql: text } })).json());
}

export function objects(found: Rows): Row[] {
  const names = found.columns.map((one) => one.name);
  return found.rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at] ?? null])));
}

export async function signIn(given: string, keep: boolean): Promise<void> {
  token.value = given;
  await start();
  refused.value = false;
  (keep ? localStorage : sessionStorage).setItem(KEPT, given);
}

/** Learn who the user is and what it may. */
export async function start(): Promise<void> {
  const given = token.value;
  const found = await get<Me>("/v1/me");
  if (token.value !== given) return; // another user has signed in meanwhile, or this one out
  keepFor(found.name);
  if (JSON.stringify(found) !== JSON.stringify(me.value)) me.value = found;
}

export function signOut(): void {
  forget();
  sessionStorage.removeItem(KEPT);
  localStorage.removeItem(KEPT);
  token.value = null;
  me.value = null;
  refused.value = true;
}

// ---- rights ----------------------------------------------------------------------------------------------

const LEVELS = ["NONE", "SELECT", "WRITE", "OWN"];
const OF_ROLE = { reader: "SELECT", writer: "WRITE", admin: "OWN" };

/** Whether the user may do something with a relation: buttons that the node would refuse are not shown. */
export function may(right: "SELECT" | "WRITE" | "OWN", relation: string): boolean {
  const user = me.value;
  if (user === null) return false;
  const has = user.role === "admin" ? "OWN" : (user.rights[relation] ?? OF_ROLE[user.role]);
  return LEVELS.indexOf(has) >= LEVELS.indexOf(right);
}

export function isAdmin(): boolean {
  return me.value?.role === "admin";
}

/** A name as SQL has it. */
export function quoted(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;
}

export function literal(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
