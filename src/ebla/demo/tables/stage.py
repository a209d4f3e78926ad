"""How the demonstration speaks: chapters, statements, small tables, and claims that are checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from ebla.cli.output import Sheet, text_lines


class Stage:
    """Prints what happens and keeps count of what was claimed."""

    def __init__(self) -> None:
        # A pipe has no width, and lines that wrap at 80 columns are hard to search.
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
        self._began = time.perf_counter()
        self._chapter = 0
        self.claims = 0
        self.failures: list[str] = []

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._began

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self._console.print(f"\n{self._chapter}. {title}", style="bold", markup=False, end="")
        self._console.print(f"  [{self.elapsed_s:.0f} s]", style="dim", markup=False)

    def say(self, text: str) -> None:
        self._console.print(f"   {text}", markup=False)

    def statement(self, text: str) -> None:
        """A statement as it is about to run."""
        for number, line in enumerate(text.strip().splitlines()):
            self._console.print(f"   {'>' if number == 0 else ' '} {line.strip()}", style="cyan", markup=False)

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        for line in text_lines(Sheet(columns=columns, rows=rows)):
            self._console.print(f"     {line}", markup=False, no_wrap=True, overflow="ellipsis")

    def claim(self, text: str, found: object, expected: object = True) -> None:
        """Say something and check it. A claim that fails is shown, counted, and does not stop the rest."""
        self.claims += 1
        if found == expected:
            self._console.print(f"   ok      {text}", style="green", markup=False)
            return
        self.failures.append(text)
        self._console.print(
            f"   FAILED  {text}: expected {_short(expected)}, found {_short(found)}", style="red", markup=False
        )

    @contextmanager
    def timed(self, text: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.say(f"{text} in {time.perf_counter() - began:.1f} s")

    def end(self) -> int:
        """The last word; returns the exit code."""
        if self.failures:
            self._console.print(
                f"\n{len(self.failures)} of {self.claims} claims FAILED after {self.elapsed_s:.0f} s:", style="bold red"
            )
            for text in self.failures:
                self.say(text)
            return 1
        self._console.print(f"\nAll {self.claims} claims hold. {self.elapsed_s:.0f} s in total.", style="bold green")
        return 0


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
