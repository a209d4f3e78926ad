"""The console in a real browser, over a real node with real data."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from support import console
from support.console import Shop, Visit
from support.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.slow]

AXE = Path(__file__).resolve().parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ("explore/orders", "sql", "views", "views/card", "builds", "cluster")
LONG_MS = 60_000


def part(page: Page, name: str) -> Locator:
    """A panel of the page."""
    return page.locator(f"[data-part='{name}']")


def rows_of(page: Page, label: str) -> list[list[str]]:
    table = page.get_by_role("group", name=label)
    found: list[list[str]] = table.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found


# ---- the user -------------------------------------------------------------------------------------------


def test_a_user_signs_in_and_sees_what_its_role_may(browser: Browser, shop: Shop):
    with console.visit(browser, shop.url) as one:
        page = one.page
        one.known.append("status of 401")
        page.goto(shop.url)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("TokenError")
        one.sign_in(shop.tokens["reader"])
        one.open("views/card")
        expect(page.get_by_role("button", name="Check")).to_be_visible()
        expect(page.get_by_role("button", name="Repair")).to_have_count(0)
        one.open("cluster")
        expect(part(page, "nodes")).to_contain_text("n1")
        expect(page.get_by_role("button", name="Decommission")).to_have_count(0)
        page.reload()
        expect(part(page, "nodes")).to_contain_text("n1")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        one.sign_in(shop.tokens["admin"])
        one.open("cluster")
        expect(page.get_by_role("button", name="Decommission").first).to_be_visible()


# ---- explorer -------------------------------------------------------------------------------------------


def add_filter(page: Page, column: str, condition: str, *values: str) -> None:
    form = page.get_by_role("form", name="Add a filter")
    form.get_by_label("Column").select_option(column)
    form.get_by_label("Condition").select_option(label=condition)
    for label, value in zip(("Value", "Upper value"), values, strict=False):
        form.get_by_label(label, exact=True).fill(value)
    form.get_by_role("button", name="Filter").click()


def test_rows_are_filtered_sorted_and_paged(visit: Visit):
    page = visit.page
    visit.open("explore/orders")
    expect(page.locator(".title")).to_contain_text(re.compile(r"\d,\d\d\d rows"))
    label = "First rows of orders"
    for column, condition, values, where in (
        ("status", "=", ["paid"], lambda row: row[4] == "paid"),
        ("id", "between", ["100", "3000"], lambda row: 100 <= int(row[0]) <= 3000),
        ("note", "begins with", ["note 1"], lambda row: row[5].startswith("note 1")),
        ("customer", "one of", ["1, 2, 3, 4, 5"], lambda row: int(row[1]) <= 5),
        ("day", "≥", ["2026-01-15"], lambda row: row[3] >= "2026-01-15"),
    ):
        add_filter(page, column, condition, *values)
        assert settled(page, label, where)
    for remove in page.get_by_role("button", name=re.compile("^Remove")).all()[::-1]:
        remove.click()
    add_filter(page, "note", "is NULL")
    assert settled(page, label, lambda row: row[5] == "NULL")
    page.get_by_role("button", name=re.compile("^Remove")).click()
    page.get_by_role("group", name=label).get_by_role("button", name="total").click()
    page.get_by_role("group", name=label).get_by_role("button", name="total").click()
    shown = settled(page, label, lambda row: float(row[2]) > 800)
    assert [float(row[2]) for row in shown] == sorted((float(row[2]) for row in shown), reverse=True)
    last = float(shown[-1][2])
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("Page 2")).to_be_visible()
    shown = settled(page, label, lambda row: float(row[2]) <= last)
    assert len(shown) == 100


def test_an_answer_that_comes_late_replaces_no_later_one(visit: Visit):
    """The answer to the first order is held back until the answer to the second one is on the page."""
    page, label = visit.page, "First rows of orders"
    visit.open("explore/orders")
    assert settled(page, label, lambda row: True)
    page.evaluate(
        """() => {
            const real = window.fetch;
            window.release = () => {};
            window.fetch = async (path, asked) => {
                const answer = await real(path, asked);
                if (asked?.body?.includes('"order_by":["total"]')) {
                    await new Promise((released) => (window.release = released));
                    setTimeout(() => (window.released = true), 100);
                }
                return answer;
            };
        }"""
    )
    by_total = page.get_by_role("group", name=label).get_by_role("button", name="total")
    by_total.click()
    page.wait_for_function("window.release.length === 1")
    by_total.click()
    assert settled(page, label, lambda row: float(row[2]) > 800)
    page.evaluate("window.release()")
    page.wait_for_function("window.released")
    assert all(float(row[2]) > 800 for row in rows_of(page, label))


def settled(page: Page, label: str, where: Callable[[list[str]], bool]) -> list[list[str]]:
    """The rows once all of them are as asked for."""
    found: list[list[str]] = []
    for _ in range(600):
        found = rows_of(page, label)
        if found and all(where(row) for row in found):
            return found
        page.wait_for_timeout(50)
    raise AssertionError(f"expected other rows, found {found[:3]}")


def test_an_index_is_created_and_the_path_changes(visit: Visit):
    page = visit.page
    visit.open("explore/events")
    add_filter(page, "kind", "=", "kind 7")
    page.get_by_role("group", name="First rows of events").get_by_role("button", name="weight").click()
    expect(page.locator(".path")).to_contain_text("scan")
    page.get_by_role("button", name="Create an index for this").click()
    assert visit.confirm() == "CREATE ASYNC INDEX events_by_kind_weight ON events (kind, weight)"
    expect(page.locator(".path")).to_contain_text("index events_by_kind_weight", timeout=LONG_MS)
    expect(page.locator(".path")).to_contain_text(re.compile(r"\d ms"))
    expect(page.get_by_role("button", name="Create an index for this")).to_have_count(0)
    visit.open("explore/card")
    expect(page.locator(".path")).to_contain_text(re.compile(r"applied version \d+, (up to date|.* old)"))


# ---- statements -----------------------------------------------------------------------------------------


def write(page: Page, text: str) -> None:
    editor = page.get_by_label("SQL", exact=True)
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def test_statements_run_one_after_the_other_and_are_saved(visit: Visit):
    page = visit.page
    visit.known.append("status of 400")
    visit.open("sql")
    write(page, "SHOW TABLES;\nSELECT id, total, note FROM orders ORDER BY id LIMIT 700;\nSELEC nothing")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("group", name="Rows of result 1")).to_contain_text("orders")
    expect(part(page, "result-2")).to_contain_text("700 rows")
    expect(part(page, "result-3").get_by_role("alert")).to_contain_text("SqlError")
    expect(page.locator(".cm-lint-marker-error")).to_be_visible()
    assert len(rows_of(page, "Rows of result 2")) == 500
    page.get_by_role("button", name="More rows").click()
    expect(page.get_by_role("group", name="Rows of result 2").locator("tbody tr")).to_have_count(700)
    with page.expect_download() as csv:
        part(page, "result-2").get_by_role("button", name="CSV").click()
    lines = Path(csv.value.path()).read_text().splitlines()
    assert lines[:2] == ['"id","total","note"', '0,"2.00",']
    assert len(lines) == 701
    with page.expect_download() as parquet:
        part(page, "result-2").get_by_role("button", name="Parquet").click()
    assert pq.read_table(io.BytesIO(Path(parquet.value.path()).read_bytes())).num_rows == 700
    page.reload()
    expect(page.get_by_label("History")).to_contain_text("SHOW TABLES")


def test_names_are_completed(visit: Visit):
    page = visit.page
    visit.open("sql")
    write(page, "SELECT * FROM custo")
    page.keyboard.press("Control+Space")
    page.locator(".cm-tooltip-autocomplete li", has_text="customers").click()
    expect(page.get_by_label("SQL", exact=True)).to_contain_text("SELECT * FROM customers")


def test_a_statement_is_cancelled(visit: Visit):
    page = visit.page
    visit.known.append("status of 409")
    visit.open("sql")
    write(page, "SELECT count(*) FROM range(1000000000) a CROSS JOIN range(1000) b WHERE a.id * b.id % 7 = 8")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("running").wait_for()
    page.get_by_role("button", name="Cancel").click()
    expect(part(page, "result-1").get_by_role("alert")).to_contain_text("cancelled", timeout=LONG_MS)


# ---- views ----------------------------------------------------------------------------------------------


def test_a_view_shows_how_it_is_kept(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("views")
    graph = page.get_by_role("group", name="Dependencies of tables, views and indexes")
    graph.get_by_role("link", name="cities").click()
    expect(page).to_have_title("cities · Views · Ebla")
    graph.get_by_role("link", name="card, view").click()
    expect(part(page, "definition")).to_contain_text("JOIN customers")
    flow = part(page, "how-its-inputs-are-followed")
    expect(flow).to_contain_text("recompute rows whose (id) is affected", timeout=LONG_MS)
    expect(flow.locator(".flow")).to_have_count(2)
    [[version]] = shop.sql("SELECT max(version) FROM system.history")
    shop.sql(f"UPSERT INTO customers VALUES (3, 'Renamed at {version}', 'Ur')")
    told = re.compile(rf"epoch of card to version {version + 1}: incremental, \+\d+ -\d+")
    expect(part(page, "epochs")).to_contain_text(told, timeout=LONG_MS)
    expect(page.get_by_role("img", name=re.compile("Age of the view"))).to_be_visible()
    page.get_by_role("button", name="Check").click()
    assert visit.confirm() == "CHECK VIEW card"
    expect(page.get_by_role("status")).to_contain_text("Check card: done")


def test_a_view_breaks_and_is_resumed(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("views/ratio")
    status = part(page, "view")
    expect(status).to_contain_text("ready")
    shop.sql("UPSERT INTO orders VALUES (77, 1, 1.00, DATE'2026-02-02', 'open', 'free')")
    expect(status.get_by_role("alert")).to_contain_text("The view has stopped", timeout=LONG_MS)
    expect(status.get_by_role("alert")).to_contain_text("id = 77")
    shop.sql("ALTER HANDLER default SET (should_run = false)")  # else it goes on by itself when the row is mended
    try:
        shop.sql("UPSERT INTO orders VALUES (77, 1, 5.00, DATE'2026-02-02', 'open', 'paid for')")
        status.get_by_role("button", name="Resume").click()
        assert visit.confirm() == "FLUSH ratio"
        expect(status).to_contain_text("ready")
        expect(status.get_by_role("alert")).to_have_count(0)
    finally:
        shop.sql("ALTER HANDLER default SET (should_run = true)")
    assert float(shop.sql("SELECT share FROM ratio WHERE id = 77 LIMIT 1")[0][0]) == 25


# ---- builds ---------------------------------------------------------------------------------------------


def test_a_build_is_watched_paused_retuned_and_cancelled(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("builds")
    expect(page.get_by_text("Nothing is being built.")).to_be_visible()
    shop.sql(
        "CREATE ASYNC MATERIALIZED VIEW doubles WITH (rows_per_minute = 1200, chunk_rows = 50) AS "
        "SELECT id, total * 2 AS twice FROM orders"
    )
    build = part(page, "build-doubles")
    expect(build).to_contain_text("scanning", timeout=LONG_MS)
    expect(build.get_by_role("img", name=re.compile("Tablets of orders"))).to_be_visible()
    expect(build.get_by_text(re.compile(r"^[1-9]\d* of "))).to_be_visible(timeout=LONG_MS)
    build.get_by_role("button", name="Pause").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles PAUSE"
    expect(build).to_contain_text("paused")
    build.get_by_label("Rows a minute").fill("2400")
    build.get_by_role("button", name="Retune").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles SET (rows_per_minute = 2400)"
    build.get_by_role("button", name="Resume").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles RESUME"
    expect(build.get_by_role("button", name="Pause")).to_be_visible()
    build.get_by_role("button", name="Cancel").click()
    assert visit.confirm() == "CANCEL BUILD doubles"
    expect(build).to_have_count(0)
    expect(part(page, "history")).to_contain_text("cancel the build of doubles")


# ---- the connection, and how all pages are --------------------------------------------------------------


def test_a_lost_connection_is_shown_and_taken_up_again(browser: Browser, shop: Shop):
    with Proxy(shop.cluster.nodes[0].port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with console.visit(browser, url) as one:
            page = one.page
            one.known.append("net::ERR_")
            one.sign_in(shop.tokens["admin"])
            one.open("cluster")
            expect(page.get_by_text(re.compile(r"^version \d+"))).to_be_visible()
            with proxy.silence():
                expect(page.get_by_role("alert").first).to_contain_text("connection to the node is lost")
                shop.sql("COMMENT ON TABLE customers IS 'while it was away'")
            expect(page.get_by_text("connection to the node is lost")).to_have_count(0)
            expect(page.get_by_text(re.compile(r"^version \d+"))).to_be_visible()
            expect(part(page, "history-of-decisions")).to_contain_text("comment on table customers")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_pages_are_accessible_and_fit(browser: Browser, shop: Shop, width: int, dark: bool):
    if not AXE.exists():
        console.missing("axe-core is not installed: accessibility was NOT tested. Run `make setup` with Node.js.")
    with console.visit(browser, shop.url, width=width, dark=dark) as one:
        page = one.page
        found: list[str] = []
        page.goto(shop.url)
        page.get_by_label("Token").wait_for()
        found += serious(page, "sign-in")
        one.sign_in(shop.tokens["admin"])
        for place in PAGES:
            one.open(place)
            page.locator(".panel, .grid").first.wait_for()
            found += serious(page, place)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found += [f"{place}: {wide} pixels too wide"] if wide > 0 else []
        assert found == []


def serious(page: Page, place: str) -> list[str]:
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{place}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def test_the_pages_are_reached_by_keyboard(visit: Visit):
    page = visit.page
    visit.open("explore/orders")
    page.locator("body").press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    for title in ("Explorer", "SQL", "Views"):
        assert page.evaluate("document.activeElement.textContent") == title
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Builds · Ebla")


# ---- last, for it changes the cluster -------------------------------------------------------------------


def test_a_node_joins_and_tablets_move_on_screen(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("cluster")
    picture = page.get_by_role("img", name=re.compile("Tablets over nodes"))
    expect(picture).to_have_accessible_name(re.compile(r"n1 · \d\d tablets$"))
    shop.cluster = shop.cluster.added("n2", spark=False)
    shop.cluster.write()
    shop.cluster.wait("n2", shop.cluster.start("n2"))
    expect(part(page, "nodes")).to_contain_text("n2")
    expect(picture).to_have_accessible_name(re.compile(r"n2 · [1-9]\d* tablets"), timeout=LONG_MS)
    expect(part(page, "requests")).to_contain_text("node n2 joined")
    page.get_by_label("Search reasons").fill("n2")
    expect(part(page, "history-of-decisions")).to_contain_text("n2")
