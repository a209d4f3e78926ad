/** The dependency graph: tables on the left, what reads them to the right. */
import type { Tone } from "./ui";

export interface Node {
  id: number;
  name: string;
  kind: string;
  tone?: Tone;
  note?: string;
}

export interface Edge {
  from: number;
  to: number;
}

interface Placed extends Node {
  x: number;
  y: number;
}

const WIDTH = 184;
const HEIGHT = 40;
const GAP_X = 72;
const GAP_Y = 16;
const EDGE = 8;

/** Where each node is drawn: in the column behind all that it reads, near the middle of these. */
export function place(nodes: Node[], edges: Edge[]): Placed[] {
  const inputs = new Map<number, number[]>(nodes.map((one) => [one.id, []]));
  for (const edge of edges) if (inputs.has(edge.from)) inputs.get(edge.to)?.push(edge.from);
  const depth = new Map<number, number>();
  const depthOf = (id: number): number => {
    if (!depth.has(id)) {
      depth.set(id, 0); // a cycle cannot be; if there were one, it would end here
      depth.set(id, Math.max(-1, ...(inputs.get(id) ?? []).map(depthOf)) + 1);
    }
    return depth.get(id)!;
  };
  const columns: Node[][] = [];
  for (const one of nodes) (columns[depthOf(one.id)] ??= []).push(one);
  const rank = new Map<number, number>();
  const middle = (one: Node) => {
    const read = (inputs.get(one.id) ?? []).map((id) => rank.get(id) ?? 0);
    return read.length === 0 ? 0 : read.reduce((a, b) => a + b, 0) / read.length;
  };
  return columns.flatMap((column, x) => {
    const sorted = x === 0 ? column : column.toSorted((a, b) => middle(a) - middle(b) || a.name.localeCompare(b.name));
    return sorted.map((one, y) => {
      rank.set(one.id, y);
      return { ...one, x: EDGE + x * (WIDTH + GAP_X), y: EDGE + y * (HEIGHT + GAP_Y) };
    });
  });
}

export function Graph(given: { nodes: Node[]; edges: Edge[]; shown?: string | undefined; href: (node: Node) => string }) {
  const placed = place(given.nodes, given.edges);
  const at = new Map(placed.map((one) => [one.id, one]));
  const width = Math.max(...placed.map((one) => one.x), 0) + WIDTH + EDGE;
  const height = Math.max(...placed.map((one) => one.y), 0) + HEIGHT + EDGE;
  return (
    <div class="scroll graph" tabIndex={0} role="group" aria-label="Dependencies of tables, views and indexes">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        {given.edges.map((edge) => {
          const from = at.get(edge.from);
          const to = at.get(edge.to);
          if (!from || !to) return null;
          const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
          const bend = Math.max(24, (x2 - x1) / 2);
          const lit = from.name === given.shown || to.name === given.shown;
          return <path key={`${edge.from}-${edge.to}`} class={lit ? "edge lit" : "edge"} d={`M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`} />;
        })}
        {placed.map((one) => (
          <a key={one.id} href={given.href(one)} aria-current={one.name === given.shown ? "true" : undefined} class={`node ${one.kind} ${one.tone ?? ""}`}>
            <title>{`${one.name}, ${one.kind}${one.note ? `: ${one.note}` : ""}`}</title>
            <rect x={one.x} y={one.y} width={WIDTH} height={HEIGHT} rx={one.kind === "index" ? 20 : 7} />
            <circle cx={one.x + 16} cy={one.y + HEIGHT / 2} r="4" />
            <text x={one.x + 28} y={one.y + 17}>
              {cut(one.name)}
            </text>
            <text x={one.x + 28} y={one.y + 31} class="kind">
              {cut(one.note ?? one.kind)}
            </text>
          </a>
        ))}
      </svg>
    </div>
  );
}

function cut(text: string): string {
  return text.length > 19 ? `${text.slice(0, 18)}…` : text;
}
