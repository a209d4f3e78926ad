"""A cluster with a shop in it, and a browser that looks at its console."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from ebla.cluster.local_cluster import LocalCluster
from ebla.demo.cluster.story import started

SHOP = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, city STRING);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2), day DATE, status STRING, note STRING)
    WITH (tablets = 8);
INSERT INTO customers
    SELECT id, concat('Customer ', id), element_at(array('Ebla', 'Ur', 'Mari', 'Nippur'), CAST(id % 4 + 1 AS INT))
    FROM range(40);
INSERT INTO orders
    SELECT id, id % 40, CAST((id * 37 % 9000) / 10.0 + 2 AS DECIMAL(12,2)),
        date_add(DATE'2026-01-01', CAST(id % 300 AS INT)),
        element_at(array('open', 'paid', 'sent'), CAST(id % 3 + 1 AS INT)),
        if(id % 7 = 0, NULL, concat('note ', id))
    FROM range(4000);
CREATE TABLE events (id BIGINT PRIMARY KEY, kind STRING, weight INT) WITH (tablets = 2);
INSERT INTO events SELECT id, concat('kind ', id % 50), CAST(id * 7919 % 1000 AS INT) FROM range(200000);
CREATE MATERIALIZED VIEW card AS
    SELECT o.id, o.total, o.day, c.name, c.city FROM orders o JOIN customers c ON o.customer = c.id;
CREATE MATERIALIZED VIEW cities AS SELECT city, count(*) AS orders, sum(total) AS total FROM card GROUP BY city;
CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 / (total - 1) AS share FROM orders
"""


def missing(what: str) -> NoReturn:
    """Something that tests need is not there: skip loudly, and fail with CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@dataclass
class Shop:
    """A real node with real data. Other nodes may join."""

    cluster: LocalCluster
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.cluster.nodes[0].url

    def sql(self, text: str) -> list[list[Any]]:
        answer = httpx.post(
            f"{self.url}/v1/sql", json={"sql": text}, timeout=150,
            headers={"Authorization": f"Bearer {self.cluster.token}"},
        )  # fmt: skip
        assert answer.status_code == httpx.codes.OK, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def wait(self, text: str, holds: Callable[[list[list[Any]]], bool], seconds: float = 150) -> list[list[Any]]:
        """The rows of a statement once they fulfil something."""
        until = time.monotonic() + seconds
        while not holds(rows := self.sql(text)):
            assert time.monotonic() < until, f"{text}: still {rows}"
            time.sleep(0.1)
        return rows


@contextlib.contextmanager
def shop(directory: Path) -> Iterator[Shop]:
    with started(directory, nodes=1) as cluster:
        made = Shop(cluster)
        made.sql(SHOP)
        made.tokens = {
            role: str(made.sql(f"CREATE USER the_{role} ROLE {role}")[0][2]) for role in ("reader", "writer")
        }
        made.tokens["admin"] = str(cluster.token)
        yield made


# ---- the browser ----------------------------------------------------------------------------------------


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    found = find_chromium()
    assert found is not None, "Chromium is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page of the console, and what went wrong in it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Parts of errors that are meant: a browser writes every answer that is an error to its console."""

    def open(self, place: str) -> None:
        self.page.goto(f"{self.url}/#/{place}")

    def sign_in(self, token: str) -> None:
        self.page.goto(self.url)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("navigation", name="Pages").wait_for()

    def confirm(self) -> str:
        """Let the change that is asked about happen; the SQL that was shown."""
        dialog = self.page.get_by_role("dialog")
        text = dialog.locator("pre").inner_text()
        dialog.get_by_role("button", name="Run it").click()
        dialog.wait_for(state="detached", timeout=60_000)
        return text


@contextlib.contextmanager
def visit(
    browser: Browser, url: str, *, width: int = 1280, height: int = 860, dark: bool = False, motion: bool = False
) -> Iterator[Visit]:
    """A new browser window. It ends with an assertion: no error in the console but known ones, no other host.

    `motion`: what moves is seen to move; else pictures change at once.
    """
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="no-preference" if motion else "reduce",
    )
    context.set_default_timeout(90_000)
    made = Visit(context.new_page(), url)
    made.page.on("console", lambda said: made.errors.append(said.text) if said.type == "error" else None)
    made.page.on("pageerror", lambda error: made.errors.append(str(error)))
    made.page.on(
        "request",
        lambda asked: None if asked.url.startswith((url, "blob:", "data:")) else made.foreign.append(asked.url),
    )
    try:
        yield made
    finally:
        made.page.unroute_all(behavior="ignoreErrors")  # an answer may be on its way through the test
        context.close()
    assert [one for one in made.errors if not any(part in one for part in made.known)] == []
    assert made.foreign == []
