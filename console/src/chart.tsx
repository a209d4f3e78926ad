/** A line over time. */
import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { clockTime, seconds } from "./words";

export interface Point {
  /** Seconds since 1970. */
  at: number;
  value: number;
}

export function Chart({ points, label }: { points: Point[]; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const newest = useRef(points);
  newest.current = points;

  useEffect(() => {
    let over = false;
    const draw = async (): Promise<void> => {
      const { default: Plot } = await import("./plot");
      if (over || place.current === null) return;
      plot.current?.destroy();
      plot.current = new Plot(options(place.current), data(newest.current), place.current);
    };
    void draw();
    const resized = new ResizeObserver(() => place.current && plot.current?.setSize({ width: place.current.clientWidth, height: 180 }));
    resized.observe(place.current!);
    const redraw = () => void draw();
    addEventListener("ebla-theme", redraw);
    return () => {
      over = true;
      resized.disconnect();
      removeEventListener("ebla-theme", redraw);
      plot.current?.destroy();
    };
  }, []);

  useEffect(() => plot.current?.setData(data(points)), [points]);

  const most = Math.max(0, ...points.map((one) => one.value));
  return <div ref={place} class="chart" role="img" aria-label={`${label}: at most ${seconds(most)}`} />;
}

function data(points: Point[]): uPlot.AlignedData {
  return [points.map((one) => one.at), points.map((one) => one.value)];
}

function options(place: HTMLElement): uPlot.Options {
  const looks = getComputedStyle(place);
  const colour = (name: string) => looks.getPropertyValue(name).trim();
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: place.clientWidth,
    height: 180,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [{ ...axis, size: 30, space: 84, values: (_, ticks) => ticks.map((tick) => clockTime(tick)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => seconds(tick)) }],
    series: [{}, { stroke: colour("--accent"), width: 1.5, fill: colour("--wash"), points: { show: false } }],
  };
}
