/** Tablets as cells on a canvas, which draws ten thousand of them in milliseconds, and shows how they move. */
import { useEffect, useRef } from "preact/hooks";

export interface Cell {
  /** The same cell keeps its key when it moves. */
  key: string;
  lane: number;
  /** From 0 to 1: how strongly it is filled. */
  heat: number;
  hue: number;
  moving?: boolean;
  bad?: boolean;
}

const MOVE_MS = 700;
const NOWHERE = { x: -Infinity, y: -Infinity };

interface Spot {
  x: number;
  y: number;
}

/** Lanes one below the other, each with its cells in rows. */
export function Cells(given: { cells: Cell[]; lanes: string[]; label: string; tip: (cell: Cell) => string; size?: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const seen = useRef(new Map<string, Spot>());

  useEffect(() => {
    const element = canvas.current!;
    const parent = element.parentElement!;
    let frame = 0;
    let width = parent.clientWidth;
    const draw = (animated: boolean) => {
      cancelAnimationFrame(frame);
      const layout = arrange(given.cells, given.lanes, width, given.size ?? sizeFor(given.cells.length));
      const scale = devicePixelRatio;
      element.width = width * scale;
      element.height = layout.height * scale;
      element.style.height = `${layout.height}px`;
      const from = seen.current; // a cell that still moves goes on from where it is
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      const moved = animated && !still && given.cells.length <= 3000 && [...layout.spots].some(([key, to]) => differs(from.get(key), to));
      const began = performance.now();
      const paintAt = (now: number) => {
        const part = moved ? Math.min(1, Math.max(0, now - began) / MOVE_MS) : 1;
        seen.current = part < 1 ? between(from, layout.spots, ease(part)) : layout.spots;
        paint(element, scale, given, layout, seen.current);
        if (part < 1) frame = requestAnimationFrame(paintAt);
        else element.dataset.drawn = String(given.cells.length);
      };
      paintAt(began);
    };
    draw(true);
    const redraw = () => draw(false);
    const resized = new ResizeObserver(() => {
      if (parent.clientWidth === width) return; // it tells of the first width too, and of each height
      width = parent.clientWidth;
      redraw();
    });
    resized.observe(parent);
    addEventListener("ebla-theme", redraw);
    return () => {
      cancelAnimationFrame(frame);
      resized.disconnect();
      removeEventListener("ebla-theme", redraw);
    };
  }, [given.cells, given.lanes]);

  /** The browser shows the title of what the pointer rests on. */
  function point(event: PointerEvent): void {
    const size = given.size ?? sizeFor(given.cells.length);
    const inside = ({ x, y }: Spot) => event.offsetX >= x && event.offsetX < x + size && event.offsetY >= y && event.offsetY < y + size;
    const found = given.cells.find((one) => inside(seen.current.get(one.key) ?? NOWHERE));
    canvas.current!.title = found === undefined ? "" : given.tip(found);
  }

  return (
    <div class="cells">
      <canvas ref={canvas} role="img" aria-label={given.label} onPointerMove={point} />
    </div>
  );
}

interface Layout {
  spots: Map<string, Spot>;
  lanes: { y: number; name: string }[];
  size: number;
  height: number;
}

function sizeFor(count: number): number {
  return count <= 200 ? 22 : count <= 1000 ? 14 : count <= 4000 ? 9 : 6;
}

function arrange(cells: Cell[], lanes: string[], width: number, size: number): Layout {
  const pitch = size + (size > 10 ? 3 : 1);
  const perRow = Math.max(1, Math.floor(width / pitch));
  const counts = lanes.map(() => 0);
  for (const one of cells) counts[one.lane]!++;
  const named = lanes.some((name) => name !== "");
  const tops: { y: number; name: string }[] = [];
  let y = 0;
  lanes.forEach((name, lane) => {
    tops.push({ y, name });
    y += (named ? 22 : 0) + Math.max(1, Math.ceil(counts[lane]! / perRow)) * pitch + (named ? 10 : 0);
  });
  const placed = lanes.map(() => 0);
  const spots = new Map<string, Spot>();
  for (const one of cells) {
    const number = placed[one.lane]!++;
    spots.set(one.key, { x: (number % perRow) * pitch, y: tops[one.lane]!.y + (named ? 22 : 0) + Math.floor(number / perRow) * pitch });
  }
  return { spots, lanes: tops, size, height: Math.max(size, y) };
}

function paint(element: HTMLCanvasElement, scale: number, given: { cells: Cell[] }, layout: Layout, spots: Map<string, Spot>): void {
  const context = element.getContext("2d")!;
  const looks = getComputedStyle(element);
  const colour = (name: string) => looks.getPropertyValue(name).trim();
  const dark = colour("--dark") === "1";
  const [ink, accent, bad] = [colour("--muted"), colour("--accent"), colour("--bad")];
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, element.width, element.height);
  context.fillStyle = ink;
  context.font = "600 12px system-ui, sans-serif";
  for (const lane of layout.lanes) if (lane.name) context.fillText(lane.name, 0, lane.y + 14);
  const { size } = layout;
  for (const one of given.cells) {
    const { x, y } = spots.get(one.key)!;
    const light = dark ? 30 + 32 * one.heat : 90 - 38 * one.heat;
    context.fillStyle = one.bad ? bad : `hsl(${one.hue} ${dark ? 32 : 38}% ${light}%)`;
    if (size > 10) {
      context.beginPath();
      context.roundRect(x, y, size, size, 4);
      context.fill();
    } else {
      context.fillRect(x, y, size, size);
    }
    if (one.moving) {
      context.strokeStyle = accent;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }
}

/** Where cells are on their way; new ones are there at once. */
function between(old: Map<string, Spot>, spots: Map<string, Spot>, part: number): Map<string, Spot> {
  const found = new Map<string, Spot>();
  for (const [key, to] of spots) {
    const from = old.get(key) ?? to;
    found.set(key, { x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part });
  }
  return found;
}

function differs(from: Spot | undefined, to: Spot): boolean {
  return from !== undefined && (from.x !== to.x || from.y !== to.y);
}

function ease(part: number): number {
  return 1 - (1 - part) ** 3;
}
