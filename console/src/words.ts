/** Numbers, sizes and times as people read them. */
import { type Value, nodeTime } from "./api";

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function number(value: Value | undefined): string {
  return typeof value === "number" ? count.format(value) : "–";
}

export function bytes(value: Value | undefined): string {
  if (typeof value !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let left = value;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at++;
  }
  return `${at === 0 || left >= 100 ? left.toFixed(0) : left.toFixed(1)} ${units[at]}`;
}

export function seconds(value: Value | undefined): string {
  if (typeof value !== "number") return "–";
  if (value < 0.0005) return "0 s";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 90) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 5400) return `${(value / 60).toFixed(0)} min`;
  if (value < 129_600) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86_400).toFixed(0)} days`;
}

/** A time: the clock today, with the day before that. */
export function time(value: Value | undefined): string {
  if (typeof value !== "string") return "–";
  const at = new Date(value);
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

export function clockTime(seconds: number): string {
  return clock.format(new Date(seconds * 1000));
}

/** How long ago a time was, in seconds. */
export function since(value: Value | undefined): number | null {
  return typeof value === "string" ? Math.max(0, (nodeTime() - Date.parse(value)) / 1000) : null;
}

export function text(value: Value | undefined): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count.format(number)} ${number === 1 ? one : many}`;
}

/** The first line of a message, for places with little room. */
export function firstLine(message: string): string {
  return message.split("\n", 1)[0] ?? message;
}
