"""Every block of every guide, of the tutorial and of the README is run, in the order of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.cli.main import run

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *GUIDES]
POSTGRES = "postgresql://ebla:secret@db.example/ebla"
FENCE = re.compile(r"^```(python|sql|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAID = re.compile(r"^(?:print\(.*\))?  ?# ?([(\['\d].*)$|^# ([(\[].*)$", re.MULTILINE)
OTHER_PROGRAMS = ("make", "python", "createuser", "createdb", "mkdir", "cd", ".")
FROM_THE_DEMO = "./shop"
SPARKS = ("./warehouse", "in/", "orders-copy", "checkpoints/")
"""Paths that Spark reads: it does not know the directory that the reader is in."""
STEADY = {"building.md"}
"""Guides whose builds must not end by themselves before the page stops them."""
TELLS_OF_TABLETS = {"tutorial.md"}
"""Pages that print the number of tablets. The others get few: each is a Spark task of every build and compaction."""


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Language, text and line of each block."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


def commands(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("$ "):
            for part in line[2:].split("  # ")[0].split(" && "):
                words = shlex.split(part, comments=True)
                if words[0] not in OTHER_PROGRAMS and FROM_THE_DEMO not in words:
                    yield words


class Reader:
    """One who types a page from its beginning to its end, in one directory."""

    def __init__(self, replaced: dict[str, str], folder: Path) -> None:
        self._names: dict[str, object] = {"__name__": "guide"}
        self._replaced = replaced
        self._folder = folder
        self._own: ebla.Database | None = None
        self.opened: list[ebla.Database] = []

    def run(self, language: str, text: str, place: str) -> None:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        for path in SPARKS:
            text = re.sub(rf"(?<=[\"']){re.escape(path)}", f"{self._folder}/{path.removeprefix('./')}", text)
        match language:
            case "python":
                exec(compile(text, place, "exec"), self._names)
            case "sql":
                if self._own is None:
                    self._own = ebla.connect(str(self._folder / "warehouse"))
                self._own.sql(text).rows()
            case _:
                with pytest.MonkeyPatch.context() as environment:
                    for words in commands(text):
                        if words[0] == "export":
                            for name, _, value in (word.partition("=") for word in words[1:]):
                                environment.setenv(name, value)
                            continue
                        assert words[0] == "ebla", f"{place}: {words}"
                        if words[1:2] != ["check"]:  # of a file that only the reader has
                            assert run(words[1:]) in (0, 1), f"{place}: {words}"

    def close(self) -> None:
        for found in (*self.opened, *filter(None, [self._own])):
            found.close()


def said(text: str) -> list[str]:
    """What comments of a block say that is printed; what stands behind a colon explains it."""
    found = [one[1] or one[2] for one in SAID.finditer(text)]
    return [re.sub(r"(?<=[)\]]): .*$", "", one) for one in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs(
    page: Path,
    spark: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
):
    replaced = {"/mnt/": f"{tmp_path}/mnt/"}
    if POSTGRES in page.read_text(encoding="utf-8"):
        replaced[POSTGRES] = request.getfixturevalue("postgres_url")
    monkeypatch.chdir(tmp_path)
    tablets = "16" if page.name in TELLS_OF_TABLETS else "2"
    for name, value in {"EPOCH_PERIOD_S": "0.1", "FSYNC": "false", "TABLETS": tablets, "AUTO_COMPACT": "false"}.items():
        monkeypatch.setenv(f"EBLA_{name}", value)
    if page.name in STEADY:
        monkeypatch.setenv("EBLA_AUTO_REFRESH", "false")
    reader = Reader(replaced, tmp_path)
    connect = ebla.connect

    def connected(*given: Any, **settings: Any) -> Any:
        """A page may give two databases the same name, one after the other."""
        reader.opened.append(connect(*given, **settings))
        return reader.opened[-1]

    monkeypatch.setattr(ebla, "connect", connected)
    try:
        for language, text, line in blocks(page):
            reader.run(language, text, f"{page.name}:{line}")
            printed = capsys.readouterr().out
            if language == "python":
                missing = [one for one in said(text) if one not in printed]
                assert not missing, f"{page.name}:{line}: expected {missing}, found {printed}"
    finally:
        reader.close()
