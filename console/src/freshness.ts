/** How old a view was over time: from the commits of its inputs, and of its epochs. */
import type { Row } from "./api";
import type { Point } from "./chart";

interface Write {
  version: number;
  at: number;
}

interface Epoch extends Write {
  /** The version that it has read. */
  read: number;
}

const LEAST_S = 1e-3;

function seconds(value: unknown): number {
  return Date.parse(String(value)) / 1000;
}

/**
 * Points of the age: it is zero while nothing is unread, grows from the oldest unread write on, and falls when an epoch
 * commits. `now` is the end of the line.
 */
export function ageOverTime(writes: Row[], epochs: Row[], now: number): Point[] {
  const written = writes.map((row): Write => ({ version: Number(row.version), at: seconds(row.committed_at) })).sort(byVersion);
  const done = epochs
    .filter((row) => row.snapshot_version !== null)
    .map((row): Epoch => ({ version: Number(row.version), at: seconds(row.committed_at), read: Number(row.snapshot_version) }))
    .sort(byVersion);
  if (done.length === 0) return [];
  const points: Point[] = [];
  let read = done[0]!.read;
  put(points, done[0]!.at, 0);
  for (const epoch of [...done.slice(1), { version: Infinity, at: now, read: Infinity }]) {
    const oldest = written.find((one) => one.version > read && one.at <= epoch.at);
    if (oldest !== undefined) {
      put(points, oldest.at, 0);
      put(points, epoch.at, epoch.at - oldest.at);
    } else {
      put(points, epoch.at, 0);
    }
    if (epoch.version === Infinity) break;
    read = Math.max(read, epoch.read);
    const left = written.find((one) => one.version > read && one.at <= epoch.at);
    put(points, epoch.at, left === undefined ? 0 : epoch.at - left.at);
  }
  return points;
}

/** Times grow strictly: what falls at one moment is drawn a little later. */
function put(points: Point[], at: number, value: number): void {
  const last = points.at(-1);
  points.push({ at: last === undefined ? at : Math.max(at, last.at + LEAST_S), value });
}

function byVersion(a: Write, b: Write): number {
  return a.version - b.version;
}
