"""The writers' time on a terminal: one frame drawn from one snapshot, or one line of it where there is no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ebla.demo.shop.watch import TRAIL, EpochRow, ViewRow
from ebla.demo.shop.writers import Count, total

BARS = "▁▂▃▄▅▆▇█"
PROGRESS_WIDTH = 20
ROOMY_WIDTH = 100
WRITES_WIDTH = 37
VIEWS_WIDTH = 73
"""What the table of views takes without the trail of ages."""
EPOCHS_MAX = 8
"""As many lines as the writes have: the two panels are of one height, and nothing jumps."""
PLAN_STYLES = {"incremental": "green", "full refresh": "yellow", "unchanged": "dim", "failed": "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopDisplay:
    """Everything that a frame shows."""

    elapsed_s: float
    seconds: float
    version: int
    counts: Mapping[str, Count]
    commits_per_s: float
    views: Sequence[ViewRow]
    epochs: Sequence[EpochRow] = ()
    trails: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.seconds - self.elapsed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRow:
    """How far a view or an index is."""

    name: str
    phase: str
    percent: float
    rows: int = 0
    tablets: str | None = None
    rows_per_s: float | None = None
    detail: str | None = None

    @property
    def words(self) -> str:
        """Everything but the percentage, as far as it is known."""
        said = [self.phase if self.phase != "waiting" else f"waiting for {self.detail}"]
        if self.rows:
            said.append(f"{self.rows:,} rows")
        if self.tablets is not None and self.phase == "scanning":
            said.append(f"tablets {self.tablets}")
        if self.rows_per_s is not None and self.phase == "scanning":
            said.append(f"{self.rows_per_s:,.0f} rows/s")
        return ", ".join(said)


def build_frame(seen: Sequence[BuildRow], counts: Mapping[str, Count]) -> RenderableType:
    """A bar for each build, over what the writers do meanwhile."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=18)
    table.add_column(no_wrap=True, width=PROGRESS_WIDTH)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for one in seen:
        table.add_row(Text(f"  {one.name}", style="bold"), _bar(one.percent / 100), f"{one.percent:.0f} %", one.words)
    done = total(counts)
    table.add_row("  writers", "", "", Text(f"{done.commits:,} commits of {done.rows:,} rows", style="dim"))
    return table


def build_line(seen: Sequence[BuildRow], counts: Mapping[str, Count]) -> str:
    """The picture in one line of plain text."""
    builds = "; ".join(f"{one.name} {one.percent:.0f} % {one.words}" for one in seen)
    return f"{builds}; writers: {total(counts).commits:,} commits"


def frame(snapshot: ShopDisplay, width: int = 110) -> RenderableType:
    """The whole picture. From 80 columns on nothing is cut; where there are more, more is printed."""
    is_roomy = width >= ROOMY_WIDTH
    middle = Table.grid(expand=True)
    middle.add_column(width=WRITES_WIDTH + (8 if is_roomy else 0))
    middle.add_column(ratio=1)
    middle.add_row(
        _panel(f"writes, {snapshot.commits_per_s:.0f} commits a second", _writes(snapshot)),
        _panel("epochs", _epochs(snapshot, is_roomy)),
    )
    return Group(_head(snapshot), middle, _panel("views", _views(snapshot, width)))


def line(snapshot: ShopDisplay) -> str:
    """The picture in one line of plain text."""
    done = total(snapshot.counts)
    ages = ", ".join(f"{view.name} {seconds(view.age_s)}" for view in snapshot.views)
    return (
        f"{snapshot.elapsed_s:4.0f} s  {done.commits:,} commits of {done.rows:,} rows, "
        f"epochs: {len(snapshot.epochs):,}, age: {ages}"
    )


# ---- parts ----------------------------------------------------------------------------------------------


def _panel(title: str, inside: RenderableType) -> Panel:
    return Panel(inside, title=title, title_align="left", box=ROUNDED, border_style="dim", padding=(0, 1))


def _head(snapshot: ShopDisplay) -> RenderableType:
    done = min(1.0, snapshot.elapsed_s / snapshot.seconds) if snapshot.seconds else 1.0
    return Text.assemble(
        (" the shop is open  ", "bold"),
        _bar(done),
        f"  {snapshot.elapsed_s:.0f} s, {snapshot.remaining_s:.0f} s to go",
        (f"  version {snapshot.version:,}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _bar(part: float) -> Text:
    full = round(part * PROGRESS_WIDTH)
    return Text.assemble(("━" * full, "green"), ("─" * (PROGRESS_WIDTH - full), "dim"))


def _writes(snapshot: ShopDisplay) -> RenderableType:
    table = _grid()
    table.add_column("", ratio=1, no_wrap=True)
    table.add_column("commits", justify="right", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True, min_width=6)
    for kind, count in snapshot.counts.items():
        table.add_row(kind, f"{count.commits:,}", f"{count.rows:,}")
    done = total(snapshot.counts)
    table.add_row("all", f"{done.commits:,}", f"{done.rows:,}", style="bold")
    return table


def _epochs(snapshot: ShopDisplay, is_roomy: bool) -> RenderableType:
    """The newest last, on as many lines as the writes take."""
    table = _grid()
    table.add_column("at", justify="right", no_wrap=True, min_width=4)
    table.add_column("view", ratio=1, no_wrap=True, min_width=10)
    table.add_column("plan", no_wrap=True, min_width=11)
    table.add_column("took", justify="right", no_wrap=True, min_width=6)
    if is_roomy:
        table.add_column("to version", justify="right", no_wrap=True, min_width=11)
    lines = max(len(snapshot.counts) + 1, EPOCHS_MAX)
    epochs = snapshot.epochs[-lines:]
    for epoch in epochs:
        table.add_row(
            f"{epoch.at_s:.0f} s",
            epoch.view,
            Text(epoch.plan, style=PLAN_STYLES.get(epoch.plan, "")),
            seconds(epoch.seconds),
            *([f"{epoch.version:,} (+{epoch.versions})"] if is_roomy else []),
        )
    for _ in range(lines - len(epochs)):
        table.add_row("")
    return table


def _views(snapshot: ShopDisplay, width: int) -> RenderableType:
    has_rows = any(view.rows is not None for view in snapshot.views)
    table = _grid()
    table.add_column("view", ratio=1, no_wrap=True, min_width=10)
    table.add_column("status", no_wrap=True)
    table.add_column("version", justify="right", no_wrap=True)
    table.add_column("behind", justify="right", no_wrap=True)
    if has_rows:
        table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("last epoch", no_wrap=True, min_width=12)
    table.add_column("took", justify="right", no_wrap=True, min_width=6)
    table.add_column("age", justify="right", no_wrap=True, min_width=6)
    trail = max(4, min(TRAIL, width - VIEWS_WIDTH - (9 if has_rows else 0)))
    table.add_column("lately", no_wrap=True, min_width=max(trail, 6))
    highest = max((age for trail in snapshot.trails.values() for age in trail), default=0.0)
    for view in snapshot.views:
        cells: list[RenderableType] = [
            Text(view.name, style="bold"),
            Text(view.status, style="green" if view.status == "ready" else "bold red"),
            number(view.applied_version),
            number(view.behind),
            *([number(view.rows)] if has_rows else []),
            Text(view.last_plan or "", style=PLAN_STYLES.get(view.last_plan or "", "")),
            seconds(view.last_epoch_s),
            seconds(view.age_s),
            Text(sparkline(list(snapshot.trails.get(view.name, ()))[-trail:], highest), style="cyan"),
        ]
        table.add_row(*cells)
    return table


def _grid() -> Table:
    """A table without lines. Its columns have least widths, so that nothing jumps when numbers grow."""
    return Table(box=None, expand=True, pad_edge=False, header_style="dim")


# ---- words ----------------------------------------------------------------------------------------------


def sparkline(values: Sequence[float], highest: float) -> str:
    """One bar for each value, from nothing to the highest; up to a second everything is low."""
    top = max(highest, 1.0)
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in values)


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
