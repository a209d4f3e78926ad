"""A picture of a run: one strip for each figure over time, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from bench.steady.figures import quantile
from bench.steady.second import Second

WIDTH, HEIGHT, LEFT, GAP = 900, 110, 70, 34
POINTS_MAX = 600

STRIPS: tuple[tuple[str, Callable[[Second], float]], ...] = (
    ("rows written per second", lambda s: s.rows),
    ("oldest commit not yet visible, s", lambda s: s.lag_s),
    ("first-100 query, median, ms", lambda s: 1e3 * quantile(s.query_s, 0.5) if s.query_s else 0.0),
    ("memory of Python, MiB", lambda s: s.python_mib),
    ("memory of the JVM, MiB", lambda s: s.jvm_mib),
    ("Parquet files", lambda s: s.files),
    ("catalog, MiB", lambda s: s.catalog_mib),
)


def svg(seconds: Sequence[Second], title: str) -> str:
    step = max(1, len(seconds) // POINTS_MAX)
    shown = seconds[::step]
    height = GAP + len(STRIPS) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, of) in enumerate(STRIPS):
        parts += _strip(name, shown, [of(s) for s in shown], GAP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _strip(name: str, seconds: Sequence[Second], values: Sequence[float], top: int) -> list[str]:
    most, end = max([*values, 1e-9]), max(seconds[-1].at, 1e-9)
    bottom = top + HEIGHT
    points = " ".join(
        f"{LEFT + (WIDTH - LEFT - 20) * s.at / end:.1f},{bottom - (HEIGHT - 16) * value / most:.1f}"
        for s, value in zip(seconds, values, strict=True)
    )
    minutes = f"{end / 60:.0f} min"
    return [
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 20}" y2="{bottom}" stroke="#999"/>',
        f'<text x="{LEFT}" y="{top + 10}" font-size="11" fill="#333">{escape(name)}</text>',
        f'<text x="{LEFT - 6}" y="{top + 22}" font-size="10" text-anchor="end" fill="#555">{most:.4g}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" font-size="10" text-anchor="end" fill="#555">0</text>',
        f'<text x="{WIDTH - 20}" y="{bottom + 12}" font-size="10" text-anchor="end" fill="#555">{minutes}</text>',
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.2"/>',
    ]
