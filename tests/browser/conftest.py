"""One node with a shop for all tests of the console, and one browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support import console
from support.postgres import find_binaries

expect.set_options(timeout=90_000)  # how long a page takes says more about the machine than about the code

NO_BROWSER = (
    "Chromium or PostgreSQL is not installed: the console was NOT tested. "
    "Run `make setup`, or install them (Debian: apt-get install chromium postgresql)."
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if console.find_chromium() is None or find_binaries() is None:
        console.missing(NO_BROWSER)
    with console.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[console.Shop]:
    with console.shop(tmp_path_factory.mktemp("console") / "shop") as made:
        yield made


@pytest.fixture
def visit(browser: Browser, shop: console.Shop) -> Iterator[console.Visit]:
    """The console, signed in as an administrator."""
    with console.visit(browser, shop.url) as opened:
        opened.sign_in(shop.tokens["admin"])
        yield opened
