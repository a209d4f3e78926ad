"""The console in a real browser, over a real node with real data."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from support import console
from support.console import Shop, Visit
from support.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.slow]

AXE = Path(__file__).resolve().parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ("explore/orders", "sql", "views", "views/card", "builds", "cluster")
LONG_MS = 150_000


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
        one.open("explore/events")
        add_filter(page, "weight", "=", "7")
        expect(page.locator(".path")).to_contain_text("scan")
        expect(page.get_by_role("button", name="Create an index for this")).to_have_count(0)
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


def test_a_writer_may_repair_what_it_owns(browser: Browser, shop: Shop):
    """The page follows what is granted and revoked."""
    with console.visit(browser, shop.url) as one:
        one.sign_in(shop.tokens["writer"])
        one.open("views/card")
        check, repair = (one.page.get_by_role("button", name=name) for name in ("Check", "Repair"))
        expect(check).to_be_visible()
        expect(repair).to_have_count(0)
        shop.sql("GRANT OWN ON card TO the_writer")
        expect(repair).to_be_visible()
        shop.sql("REVOKE OWN ON card FROM the_writer")
        expect(repair).to_have_count(0)


@pytest.mark.parametrize("signs_out", [True, False])
def test_the_next_user_does_not_see_what_was_written(browser: Browser, shop: Shop, signs_out: bool):
    with console.visit(browser, shop.url) as one:
        page = one.page
        one.sign_in(shop.tokens["admin"])
        one.open("sql")
        write(page, "SHOW TABLES LIKE 'secret%'")
        page.get_by_role("button", name="Run").click()
        expect(part(page, "result-1")).to_contain_text("0 rows")
        if signs_out:
            page.get_by_role("button", name="Sign out").click()
            assert "secret" not in page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
        else:
            page.evaluate("sessionStorage.clear()")  # as when the browser is closed
            page.reload()
        one.sign_in(shop.tokens["reader"])
        one.open("sql")
        expect(page.get_by_label("SQL", exact=True)).to_contain_text("SHOW TABLES;")
        expect(page.get_by_label("History")).not_to_contain_text("secret")
        expect(page.get_by_label("History")).to_be_disabled()


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


def test_one_of_takes_values_with_commas(shop: Shop, visit: Visit):
    page, label = visit.page, "First rows of customers"
    shop.sql("UPSERT INTO customers VALUES (1000, 'Ada, of Ur', 'Ur'), (1001, '', 'Ur'), (1002, 'it''s', 'Ur')")
    visit.open("explore/customers")
    for text, names in (
        ("'Ada, of Ur', Customer 3,", {"Ada, of Ur", "Customer 3"}),
        (""" "Ada, of Ur" , '', 'it''s' """, {"Ada, of Ur", "", "it's"}),
        ("it's", {"it's"}),
    ):
        add_filter(page, "name", "one of", text)
        shown = settled(page, label, lambda row, names=names: row[1] in names)  # type: ignore[misc]
        assert {row[1] for row in shown} == names
        page.get_by_role("button", name=re.compile("^Remove")).click()


def test_rows_are_sorted_by_several_columns_with_the_keyboard(visit: Visit):
    page, label = visit.page, "First rows of orders"
    visit.open("explore/orders")
    columns = page.get_by_role("group", name=label)
    columns.get_by_role("button", name="status").press("Enter")
    columns.get_by_role("button", name="status").press("Enter")
    expect(columns.get_by_role("columnheader", name="status")).to_have_attribute("aria-sort", "descending")
    columns.get_by_role("button", name="customer").press("Shift+Enter")
    expect(columns.get_by_role("columnheader", name="customer")).to_have_attribute("aria-sort", "ascending")
    shown = settled(page, label, lambda row: row[4] == "sent" and int(row[1]) <= 5)
    assert [int(row[1]) for row in shown] == sorted(int(row[1]) for row in shown)


def test_a_relation_shows_its_columns_key_size_and_freshness(visit: Visit):
    page = visit.page
    visit.open("explore/card")
    relations = page.get_by_role("complementary", name="Relations")
    expect(relations.get_by_role("link", name=re.compile(r"orders (≤ )?[\d,]+ · [\d.]+ [KM]iB"))).to_be_visible()
    expect(relations.get_by_role("link", name=re.compile(r"card .*(up to date|old)"))).to_be_visible()
    page.get_by_text(re.compile(r"5 columns, \d index")).click()
    columns = page.locator("details.columns")
    expect(columns.get_by_text("id bigint key")).to_be_visible()
    expect(columns.get_by_text("total decimal(12,2)")).to_be_visible()
    page.get_by_label("Find a relation").fill("cust")
    expect(relations.get_by_role("link")).to_have_count(1)


def test_rows_that_were_written_twice_are_an_upper_bound(visit: Visit):
    """The node's answer, as it is before a compaction."""

    def answer(route: Route) -> None:
        found = route.fetch().json()
        for one in found["tables"]:
            one["rows_exact"] = one["table"] != "orders"
        route.fulfill(json=found)

    page = visit.page
    page.route("**/v1/status", answer)
    visit.open("explore/orders")
    relations = page.get_by_role("complementary", name="Relations")
    expect(relations.get_by_role("link", name=re.compile(r"orders ≤ [\d,]+ · "))).to_be_visible()
    expect(relations.get_by_role("link", name=re.compile(r"events [\d,]+ · "))).to_be_visible()
    expect(page.locator(".title")).to_contain_text(re.compile(r"≤ [\d,]+ rows"))


def test_a_name_that_does_not_exist_is_said_to_be_none(visit: Visit):
    page = visit.page
    visit.known.append("status of 404")
    visit.open("explore/%")
    expect(page.get_by_role("alert")).to_contain_text("%")
    visit.open("views/nothing")
    expect(page.get_by_role("alert")).to_have_text("There is no view nothing.")
    expect(part(page, "views")).to_contain_text("card")


def test_a_change_is_left_with_the_keyboard(shop: Shop, visit: Visit):
    """A change asks before it happens; Escape, and *Leave it*, change nothing."""
    page = visit.page
    visit.open("views/card")
    page.get_by_role("button", name="Repair").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text("REPAIR VIEW card")
    assert serious(page, "a change") == []
    [[before]] = shop.sql("SELECT max(version) FROM system.history")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Repair").press("Enter")
    dialog.get_by_role("button", name="Leave it").press("Enter")
    expect(dialog).to_have_count(0)
    assert shop.sql(f"SELECT reason FROM system.history WHERE version > {before} AND reason LIKE '%repair%'") == []


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
    until(page, "() => window.release.length === 1")
    by_total.click()
    assert settled(page, label, lambda row: float(row[2]) > 800)
    page.evaluate("() => window.release()")
    until(page, "() => window.released === true")
    assert all(float(row[2]) > 800 for row in rows_of(page, label))


def until(page: Page, condition: str) -> None:
    """Playwright's own way to wait for a condition evaluates text, which the page's policy forbids."""
    for _ in range(1800):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"expected {condition}, found that it does not hold")


def settled(page: Page, label: str, where: Callable[[list[str]], bool]) -> list[list[str]]:
    """The rows once all of them are as asked for."""
    found: list[list[str]] = []
    for _ in range(1800):
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
    assert serious(page, "a scan") == []
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
    expect(page.locator(".cm-tooltip-autocomplete")).to_have_count(0)
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


def test_a_result_that_the_node_has_dropped_says_so(visit: Visit):
    """The node's answer about a result that it keeps no more."""
    page = visit.page
    visit.known.append("status of 404")
    visit.open("sql")
    write(page, "SELECT id FROM orders ORDER BY id LIMIT 700")
    page.keyboard.press("Control+Enter")
    result = part(page, "result-1")
    expect(result).to_contain_text("700 rows")
    for button in ("More rows", "CSV", "Parquet"):
        page.route("**/v1/results/*", lambda route: route.continue_(url=f"{visit.url}/v1/results/gone"))
        result.get_by_role("button", name=button).click()
        expect(result.get_by_role("alert")).to_contain_text("run the statement again")
        page.unroute_all()
        with page.expect_download():
            result.get_by_role("button", name="CSV").click()
        expect(result.get_by_role("alert")).to_have_count(0)
    assert len(rows_of(page, "Rows of result 1")) == 500


def test_an_error_is_marked_at_its_place(visit: Visit):
    page = visit.page
    visit.known += ["status of 400", "status of 404"]
    visit.open("sql")
    for text, place in (
        ("SHOW TABLES;\nSELECT id,\n  totl FROM orders", "totl"),
        ("SELECT id FROM orders;\n\nSELECT *\nFROM ordrs LIMIT 5", "ordrs"),
        ("SELECT id\nFROM orders\nWHERE id =\n  ) 5", ")"),
    ):
        write(page, text)
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.locator(".cm-lintRange-error")).to_have_text(place)
        expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    assert serious(page, "an error in a statement") == []
    colour = page.evaluate(KEYWORD_COLOUR)
    assert colour != page.evaluate("() => getComputedStyle(document.body).color")
    expect(page.locator(".cm-content span", has_text="SELECT").first).to_have_css("color", colour)


KEYWORD_COLOUR = """() => {
    const one = document.body.appendChild(document.createElement('span'));
    one.style.color = 'var(--sql-keyword)';
    const colour = getComputedStyle(one).color;
    one.remove();
    return colour;
}"""


def test_names_are_completed(shop: Shop, visit: Visit):
    """Those of tables, of their columns, of system tables, and of a table that was made a moment ago."""
    page = visit.page
    with page.expect_response("**/v1/names"):
        visit.open("sql")
    completed(page, "SELECT * FROM custo", "customers", "SELECT * FROM customers")
    completed(page, "SELECT orders.cust", "customer", "SELECT orders.customer")
    completed(page, "SELECT * FROM system.hist", "history", "SELECT * FROM system.history")
    with page.expect_response("**/v1/names"):
        shop.sql("CREATE TABLE made_later (id BIGINT PRIMARY KEY)")
    try:
        completed(page, "SELECT * FROM made_l", "made_later", "SELECT * FROM made_later")
    finally:
        shop.sql("DROP TABLE made_later")


def completed(page: Page, text: str, proposal: str, whole: str) -> None:
    write(page, text)
    page.keyboard.press("Control+Space")
    option = page.locator(".cm-tooltip-autocomplete li", has_text=re.compile(rf"^t?{proposal}$|{proposal}")).first
    editor = page.get_by_label("SQL", exact=True)
    expect(option).to_be_visible()
    for _ in range(60):  # a list that is being made anew, since names have come, takes no click
        with contextlib.suppress(PlaywrightTimeout):  # it is gone since it was clicked
            option.click(timeout=1_000)
        with contextlib.suppress(AssertionError):
            return expect(editor).to_have_text(whole, timeout=1_000)
    expect(editor).to_have_text(whole)


def test_the_editor_is_left_with_the_keyboard(visit: Visit):
    """Tab indents; the page says how to go on."""
    page = visit.page
    visit.open("sql")
    write(page, "SHOW TABLES")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    expect(page.get_by_label("SQL", exact=True)).to_have_text(re.compile(r"^\s+SHOW TABLES$"))
    expect(part(page, "statements")).to_contain_text("Esc, then Tab, leaves the editor")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()


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
    epoch = part(page, "epochs").get_by_role("row", name=told)
    expect(epoch).to_have_accessible_name(re.compile(r"^[\d,]+ [\d:]{8} [\d.]+ m?s epoch of card"))
    expect(page.get_by_role("img", name=re.compile("Age of the view"))).to_be_visible()
    page.get_by_role("button", name="Check").click()
    assert visit.confirm() == "CHECK VIEW card"
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"card has the rows of its query at version \d"))
    page.get_by_role("button", name="Repair").click()
    assert visit.confirm() == "REPAIR VIEW card"
    expect(page.get_by_role("status")).to_contain_text("card has the rows of its query")


def test_a_view_says_why_it_was_recomputed_and_how_it_is_followed_now(shop: Shop, visit: Visit):
    page = visit.page
    shop.sql("CREATE MATERIALIZED VIEW parts AS SELECT id, ntile(4) OVER (ORDER BY id) AS part FROM customers")
    try:
        visit.open("views/parts")
        flow = part(page, "how-its-inputs-are-followed")
        expect(flow.locator(".badge")).to_have_text("full refresh", timeout=LONG_MS)
        shop.sql("UPSERT INTO customers VALUES (2000, 'New', 'Ur'); FLUSH parts")
        [[reason]] = shop.sql("SELECT last_reason FROM system.views WHERE name = 'parts'")
        expect(part(page, "view").locator(".fact", has_text="why").locator("dd")).to_have_text(str(reason))
        expect(part(page, "epochs")).to_contain_text(f"full refresh ({reason}), +")
        shop.sql("CREATE OR REPLACE MATERIALIZED VIEW parts AS SELECT id, name FROM customers")
        expect(flow.locator(".badge")).to_have_text("incremental", timeout=LONG_MS)
        visit.open("views")
        expect(part(page, "views").get_by_role("columnheader", name="why")).to_be_visible()
    finally:
        shop.sql("DROP MATERIALIZED VIEW parts; DELETE FROM customers WHERE id = 2000")


AGE_S = 5.0


def test_the_age_of_a_view_grows_while_nothing_is_committed(visit: Visit):
    """The node's answers, in which the view is always of the same age: the page itself knows that time passes."""

    def sql(route: Route) -> None:
        if "FROM system.views" in (route.request.post_data or ""):
            found = route.fetch().json()
            names = [column["name"] for column in found["columns"]]
            for row in found["rows"]:
                row[names.index("age_s")] = AGE_S
            route.fulfill(json=found)
        else:
            route.continue_()

    def query(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "age_s": AGE_S})

    page = visit.page
    page.route("**/v1/sql", sql)
    page.route("**/v1/query", query)
    visit.open("views/card")
    node = page.get_by_role("link", name=re.compile("card, view: "))
    for place in (part(page, "view").locator(".fact", has_text="freshness").locator("dd"), node):
        grows(page, place)
    visit.open("explore/card")
    grows(page, page.locator(".path"))


def test_a_browser_with_another_clock_shows_the_times_of_the_node(shop: Shop, visit: Visit):
    """An hour off, a write of this moment is of this moment, and a view that follows it is not an hour old."""
    page = visit.page
    shop.sql("UPSERT INTO customers VALUES (4, 'Customer 4', 'Ur')")
    page.add_init_script("{ const real = Date.now; Date.now = () => real() + 3_600_000; }")
    page.goto(visit.url)
    visit.open("explore/customers")
    expect(page.locator(".title")).to_contain_text(re.compile(r"written [\d.]+ (ms|s|min) ago"))
    visit.open("cluster")
    expect(part(page, "nodes")).to_contain_text("alive")


def grows(page: Page, place: Locator) -> None:
    """The age in a text is soon two seconds more than the node said."""
    for _ in range(1800):
        found = re.search(r"([\d.]+) (s|min) old", place.text_content() or "")
        if found is not None and float(found[1]) * (1 if found[2] == "s" else 60) > AGE_S + 2:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"expected an age of more than {AGE_S + 2} s, found {place.text_content()}")


COMPARED = {"view": "card", "version": 7, "missing": 2, "spurious": 0, "different": 1, "repaired": False}


def test_a_check_says_what_it_found_until_it_is_closed(visit: Visit):
    """The node's answer, with the row that a check of a wrong view returns."""

    def answer(route: Route) -> None:
        asked = route.request.post_data or ""
        repaired = "REPAIR VIEW card" in asked
        if repaired or "CHECK VIEW card" in asked:
            route.fulfill(json=as_rows({**COMPARED, "repaired": repaired}))
        else:
            route.continue_()

    page = visit.page
    page.route("**/v1/sql", answer)
    visit.open("views/card")
    page.get_by_role("button", name="Check").click()
    visit.confirm()
    outcome = page.get_by_role("status")
    wrong = "card: rows that are not those of its query at version 7: 2 missing, 1 different"
    expect(outcome.locator(".bad")).to_contain_text(wrong)
    outcome.get_by_role("button", name="Close").press("Enter")
    expect(outcome).to_be_empty()
    page.get_by_role("button", name="Repair").click()
    visit.confirm()
    expect(outcome.locator(".good")).to_contain_text("2 missing, 1 different; repaired")


def test_a_view_breaks_and_is_resumed(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("views/ratio")
    status = part(page, "view")
    expect(status).to_contain_text("ready")
    shop.sql("UPSERT INTO orders VALUES (77, 1, 1.00, DATE'2026-02-02', 'open', 'free')")
    expect(status.get_by_role("alert")).to_contain_text("The view has stopped", timeout=LONG_MS)
    assert serious(page, "a failed view") == []
    visit.open("views")
    expect(part(page, "views").get_by_role("row", name=re.compile("^ratio failed"))).to_contain_text("DIVIDE_BY_ZERO")
    visit.open("explore/ratio")
    expect(page.locator(".title")).to_contain_text("failed")
    relations = page.get_by_role("complementary", name="Relations")
    expect(relations.get_by_role("link", name=re.compile("^ratio.*failed"))).to_be_visible()
    visit.open("cluster")
    needs = part(page, "needs-a-person").get_by_role("row", name=re.compile("^view ratio "))
    expect(needs).to_contain_text("DIVIDE_BY_ZERO")
    expect(needs).to_contain_text("mend the row")
    needs.get_by_role("link", name="view ratio").click()
    status.get_by_role("alert").get_by_role("link", name="orders id = 77").click()
    assert settled(page, "First rows of orders", lambda row: row[0] == "77")[0][5] == "free"
    visit.open("views/ratio")
    shop.sql("ALTER HANDLER default SET (should_run = false)")  # else it goes on by itself when the row is mended
    try:
        shop.sql("UPSERT INTO orders VALUES (77, 1, 5.00, DATE'2026-02-02', 'open', 'paid for')")
        status.get_by_role("button", name="Resume").click()
        assert visit.confirm() == "FLUSH ratio"
        expect(status).to_contain_text("ready")
        expect(status.get_by_role("alert")).to_have_count(0)
        visit.open("cluster")
        expect(part(page, "history-of-decisions").locator("tbody tr").first).to_be_visible()
        expect(part(page, "needs-a-person")).to_have_count(0)
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
    expect(build.get_by_role("img", name=re.compile(r"^Tablets of orders: \d of 8 covered$"))).to_be_visible()
    expect(build.get_by_text(re.compile(r"^[1-9]\d* of "))).to_be_visible(timeout=LONG_MS)
    expect(build.get_by_text(re.compile(r"^[\d,]+ rows/s$"))).to_be_visible(timeout=LONG_MS)
    expect(build.get_by_role("progressbar")).to_have_accessible_name(re.compile(r"doubles: \d+ %"))
    left = build.locator(".fact", has=page.get_by_text("time left", exact=True)).locator("dd")
    expect(left).to_have_text(re.compile(r"^[\d.]+ (s|min)$"), timeout=LONG_MS)
    assert serious(page, "a build that runs") == []
    assert [one for one in tips(page, build.locator("canvas"), 8) if re.fullmatch(r"tablet \d: \d+ % covered", one)]
    build.get_by_role("button", name="Pause").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles PAUSE"
    expect(build).to_contain_text("paused")
    expect(build.get_by_role("button", name="Retune")).to_be_disabled()
    expect(build.get_by_label("Rows of a chunk")).to_have_value("50")
    expect(build.get_by_text("Rows of a chunk")).to_be_visible()
    build.get_by_label("Rows a minute").fill("2400")
    build.get_by_role("button", name="Retune").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles SET (rows_per_minute = 2400)"
    build.get_by_label("Rows of a chunk").fill("")
    build.get_by_label("Tablets at a time").fill("2")
    build.get_by_role("button", name="Retune").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles SET (chunk_rows = NULL, concurrency = 2)"
    [found] = shop.sql(
        "SELECT rows_per_minute, chunk_rows, concurrency FROM system.build_progress WHERE name = 'doubles'"
    )
    assert found == [2400, None, 2]
    build.get_by_role("button", name="Resume").click()
    assert visit.confirm() == "ALTER MATERIALIZED VIEW doubles RESUME"
    expect(build.get_by_role("button", name="Pause")).to_be_visible()
    build.get_by_role("button", name="Cancel").click()
    assert visit.confirm() == "CANCEL BUILD doubles"
    expect(build).to_have_count(0)
    expect(part(page, "history")).to_contain_text("cancel the build of doubles")


def test_a_build_that_fails_is_in_the_history_of_builds(shop: Shop, visit: Visit):
    page = visit.page
    visit.open("builds")
    shop.sql("CREATE ASYNC MATERIALIZED VIEW broken AS SELECT id, 1 / (id - 3) AS part FROM customers")
    try:
        expect(part(page, "history")).to_contain_text("build of broken failed", timeout=LONG_MS)
        visit.open("views/broken")
        alert = part(page, "view").get_by_role("alert")
        expect(alert).to_contain_text("DIVIDE_BY_ZERO")
        expect(alert.get_by_role("link", name="customers id = 3")).to_be_visible()
    finally:
        shop.sql("CANCEL BUILD broken")


def tips(page: Page, canvas: Locator, cells: int, top: int = 0) -> list[str]:
    """What the first cells of a picture say of themselves."""
    found = []
    for number in range(cells):
        canvas.hover(position={"x": number * CELL_PX + CELL_PX // 2, "y": top + CELL_PX // 2})
        found.append(str(canvas.get_attribute("title")))
    return found


CELL_PX = 25
"""A cell with the gap to the next one, where there are few."""


# ---- the cluster ----------------------------------------------------------------------------------------


def test_the_cluster_shows_who_leads_and_what_runs(visit: Visit):
    page = visit.page
    visit.open("cluster")
    nodes = part(page, "nodes")
    for text in (
        re.compile(r"leads, term \d"),
        "normal",
        "alive",
        re.compile(r"[\d.]+ MiB in \d+ runs"),
        re.compile(r"[\d.]+ [GT]iB free of [\d.]+ [GT]iB"),
        re.compile(r"\d+\.\d\d on \d+ cores?"),
    ):
        expect(nodes).to_contain_text(text)
    expect(part(page, "jobs")).to_contain_text("default")
    expect(part(page, "runners")).to_contain_text("n1")
    expect(part(page, "leaders")).to_contain_text("sys$coordinator")
    expect(part(page, "under-replicated-tablets")).to_contain_text("Every run lies on every replica")


RARE: dict[str, dict[str, Any]] = {
    "system.under_replicated": {
        "relation": "orders", "kind": "table", "tablet": 3, "node": "n1", "runs": 2, "bytes": 2048,
    },
    "system.mv_commands": {
        "created_at": "2026-11-18T06:00:00Z", "command_type": "RUN", "job_name": "default", "command_status": "ERROR",
        "command_diag": "Traceback: the disk is full",
    },
}  # fmt: skip
MOVE = {
    "relation": "orders", "tablet": 3, "kind": "migration", "stage": "streaming", "leaving": "n1", "pending": "n9",
    "waits_for": "the copy of n9", "failure": None,
}  # fmt: skip


def as_rows(row: dict[str, Any]) -> dict[str, Any]:
    return {"columns": [{"name": name, "type": "string"} for name in row], "rows": [list(row.values())]}


def with_little_room(found: dict[str, Any]) -> dict[str, Any]:
    """Rows of processes whose nodes have disks of 100 GiB with 1 GiB left."""
    names = [column["name"] for column in found["columns"]]
    for row in found["rows"]:
        nodes = json.loads(row[names.index("hosts")])
        row[names.index("disks")] = json.dumps({node: [2**30, 100 * 2**30] for node in nodes})
    return found


def let_the_cluster_go_wrong(page: Page) -> None:
    """The node's answers, with a row each of what is rare: a lacking copy, a failed command, a moving tablet, a view
    that has stopped; and with a disk that is nearly full."""

    def answer(route: Route) -> None:
        asked = route.request.post_data or ""
        found = next((row for table, row in RARE.items() if table in asked), None)
        if "system.processes" in asked:
            route.fulfill(json=with_little_room(route.fetch().json()))
        elif "SELECT * FROM system.views" in asked:
            route.fulfill(json=with_a_stopped_view(route.fetch().json()))
        elif found is None:
            route.continue_()
        else:
            route.fulfill(json=as_rows(found))

    def move(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "transitions": as_rows(MOVE)})

    def need(route: Route) -> None:
        needs = [{"subject": "view card", "reason": "the disk is full", "hint": "mend the cause"}]
        route.fulfill(json={**route.fetch().json(), "needs": needs})

    page.route("**/v1/sql", answer)
    page.route("**/v1/tablets", move)
    page.route("**/v1/status", need)


def with_a_stopped_view(found: dict[str, Any]) -> dict[str, Any]:
    names = [column["name"] for column in found["columns"]]
    for row in found["rows"]:
        if row[names.index("name")] == "card":
            row[names.index("status")] = "failed"
            row[names.index("message")] = "the disk is full"
    return found


LANE_PX = 22
"""Where the cells of the first node begin, below its name."""

COLOURS = """([canvas, x, y]) => {
    const context = canvas.getContext('2d');
    const scale = canvas.width / canvas.clientWidth;
    const found = [...context.getImageData(x * scale, y * scale, 1, 1).data.slice(0, 3)];
    context.fillStyle = getComputedStyle(canvas).getPropertyValue('--bad').trim();
    const bad = [1, 3, 5].map((at) => parseInt(context.fillStyle.slice(at, at + 2), 16));
    return [found, bad];
}"""
"""The colour at a place of a picture, and that of what is bad."""


def test_what_goes_wrong_in_a_cluster_is_shown(visit: Visit):
    page = visit.page
    let_the_cluster_go_wrong(page)
    visit.open("cluster")
    expect(part(page, "needs-a-person").locator("tbody tr")).to_have_text("view cardthe disk is fullmend the cause")
    expect(part(page, "nodes").locator(".badge.bad")).to_have_text("1.0 GiB free of 100 GiB")
    expect(part(page, "under-replicated-tablets").locator("tbody tr")).to_have_text("orderstable3n122.0 KiB")
    commands = part(page, "commands")
    expect(commands).to_contain_text("ERROR")
    commands.get_by_text("Traceback", exact=True).click()
    expect(commands.get_by_text("Traceback: the disk is full")).to_be_visible()
    moves = rows_of(page, "Transitions")
    assert moves == [["orders", "3", "migration", "streaming", "n1", "n9", "the copy of n9", ""]]
    picture = part(page, "tablets-over-nodes").locator("canvas")
    count = int(re.search(r"n1 · (\d+) tablet", str(picture.get_attribute("aria-label")))[1])  # type: ignore[index]
    found = tips(page, picture, min(count, 40), LANE_PX)
    at = found.index("orders, tablet 3 on n1, moves, lacks runs")
    assert "orders, tablet 2 on n1" in found
    handle = picture.element_handle()
    for number, is_bad in ((at, True), (at - 1, False)):
        colour, bad = page.evaluate(COLOURS, [handle, number * CELL_PX + CELL_PX // 2, LANE_PX + CELL_PX // 2])
        assert (colour == bad) is is_bad


def test_decisions_are_searched_and_paged(shop: Shop, visit: Visit):
    for number in range(120):
        shop.sql(f"COMMENT ON TABLE customers IS 'number {number}'")
    page = visit.page
    visit.open("cluster")
    decisions = part(page, "history-of-decisions")
    search = page.get_by_label("Search reasons")
    search.fill("CUSTOMERS")
    expect(decisions.locator("tbody tr")).to_have_count(100)
    decisions.get_by_role("button", name="Older").click()
    expect(decisions).to_contain_text("Page 2")
    expect(decisions.locator("tbody")).to_contain_text("create table customers")
    decisions.get_by_role("button", name="Newer").click()
    expect(decisions).to_contain_text("Page 1")
    for words in ("%", "_ustomers", "no 'such", "\\"):
        search.fill(words)
        expect(decisions).to_contain_text("No reason has these words.")


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
                assert serious(page, "a lost connection") == []
                shop.sql("COMMENT ON TABLE customers IS 'while it was away'")
            expect(page.get_by_text("connection to the node is lost")).to_have_count(0)
            expect(page.get_by_text(re.compile(r"^version \d+"))).to_be_visible()
            expect(part(page, "history-of-decisions")).to_contain_text("comment on table customers")


STATES_OF_THE_CONNECTION = """() => {
    const shown = document.querySelector('header .live');
    window.states = [shown.className];
    const note = () => window.states.push(shown.className);
    new MutationObserver(note).observe(shown, { attributes: true });
}"""


def test_a_stream_that_tells_of_an_error_is_no_connection(browser: Browser, shop: Shop):
    """The console waits longer after each of them, and never says that it follows the node."""
    asked: list[float] = []

    def answer(route: Route) -> None:
        asked.append(time.monotonic())
        error = 'event: error\ndata: {"title": "CatalogUnavailableError", "status": 503}\n\n'
        route.fulfill(body=error, content_type="text/event-stream")

    with console.visit(browser, shop.url) as one:
        one.page.route("**/v1/events", answer)
        one.sign_in(shop.tokens["admin"])
        one.page.evaluate(STATES_OF_THE_CONNECTION)
        expect(one.page.get_by_role("alert").first).to_contain_text("connection to the node is lost")
        for _ in range(1800):
            if len(asked) >= 4:
                break
            one.page.wait_for_timeout(50)
        assert asked[3] - asked[0] > 0.9 * (0.5 + 1 + 2)
        assert "live live" not in one.page.evaluate("window.states")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
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
            found += looks(page, place)
        assert found == []


def looks(page: Page, place: str) -> list[str]:
    """What axe-core finds, and whether the page is wider than the window."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return serious(page, place) + ([f"{place}: {wide} pixels too wide"] if wide > 0 else [])


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_pages_are_accessible_and_fit_when_things_go_wrong(browser: Browser, shop: Shop, width: int, dark: bool):
    """Results and an error of statements, a scan, a build that is paused, a stopped view, a change that asks."""
    if not AXE.exists():
        console.missing("axe-core is not installed: accessibility was NOT tested. Run `make setup` with Node.js.")
    shop.sql("CREATE ASYNC MATERIALIZED VIEW slow WITH (rows_per_minute = 0) AS SELECT id, total FROM orders")
    with console.visit(browser, shop.url, width=width, dark=dark) as one:
        page = one.page
        one.known.append("status of 400")
        found: list[str] = []
        one.sign_in(shop.tokens["admin"])
        try:
            one.open("sql")
            write(page, "SELECT * FROM orders LIMIT 20;\nSELEC nothing")
            page.keyboard.press("Control+Enter")
            page.get_by_role("alert").wait_for()
            found += looks(page, "statements that ran")
            one.open("explore/events")
            page.locator("details.columns summary").click()
            add_filter(page, "weight", "=", "7")
            page.get_by_role("button", name="Create an index for this").wait_for()
            found += looks(page, "a scan")
            one.open("builds")
            part(page, "build-slow").get_by_role("button", name="Retune").wait_for()
            found += looks(page, "a build")
        finally:
            shop.sql("CANCEL BUILD slow")
        let_the_cluster_go_wrong(page)
        one.open("views/card")
        page.get_by_text("The view has stopped").wait_for()
        found += looks(page, "a stopped view")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").wait_for()
        found += looks(page, "a change")
        page.keyboard.press("Escape")
        one.open("cluster")
        part(page, "needs-a-person").wait_for()
        page.get_by_text("Traceback", exact=True).click()
        found += looks(page, "a cluster in trouble")
        rows = part(page, "nodes").locator("tbody tr").evaluate_all("rows => rows.map(row => row.clientHeight)")
        found += [f"a row of {height} pixels" for height in rows if height > ROW_PX]
        if width == 1280:
            hidden = part(page, "nodes").locator(".scroll").evaluate("one => one.scrollWidth - one.clientWidth")
            found += [f"{hidden} pixels of the nodes are beyond the edge"] if hidden > 0 else []
        assert found == []


ROW_PX = 70
"""Three lines: a row of which no column is as narrow as a word."""


def serious(page: Page, place: str) -> list[str]:
    """What axe-core finds; a test of its own says so if that is not installed."""
    if not AXE.exists():
        return []
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{place}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
    ]


TRANSFER_MAX = 500_000


def test_all_pages_together_transfer_little(browser: Browser, shop: Shop):
    """All bytes that come to a browser with nothing kept, data included, while each page is opened once."""
    with console.visit(browser, shop.url) as one:
        page = one.page
        network = page.context.new_cdp_session(page)
        sizes: list[float] = []
        network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        network.send("Network.enable")
        one.sign_in(shop.tokens["admin"])
        for place, shown in (
            ("explore/orders", ".grid tbody tr"), ("sql", ".cm-content"), ("views/card", ".chart canvas"),
            ("builds", "[data-part='history'] tbody tr"), ("cluster", "[data-part='commands'] tbody tr"),
        ):  # fmt: skip
            one.open(place)
            page.locator(shown).first.wait_for()
        page.wait_for_load_state("load")
        assert 150_000 < sum(sizes) <= TRANSFER_MAX


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


WATCH = """() => {
    let loads = 0;
    window.pictures = {};
    const real = window.fetch;
    window.fetch = async (path, asked) => {
        const answer = await real(path, asked);
        if (path === '/v1/tablets') loads++;
        return answer;
    };
    const look = () => {
        const canvas = document.querySelector("[data-part='tablets-over-nodes'] canvas");
        if (canvas !== null) (window.pictures[loads] ??= new Set()).add(canvas.toDataURL());
        requestAnimationFrame(look);
    };
    look();
}"""
"""Keeps the pictures of the tablets, by how often they had been loaded by then."""

FRAMES = "() => Math.max(...Object.values(window.pictures).map(one => one.size))"


def test_a_node_joins_and_tablets_move_on_screen(browser: Browser, shop: Shop):
    with console.visit(browser, shop.url, motion=True) as one:
        page = one.page
        one.sign_in(shop.tokens["admin"])
        one.open("cluster")
        picture = page.get_by_role("img", name=re.compile("Tablets over nodes"))
        expect(picture).to_have_accessible_name(re.compile(r"n1 · \d\d tablets$"))
        page.evaluate(WATCH)
        join(shop)
        expect(part(page, "nodes")).to_contain_text("n2")
        expect(picture).to_have_accessible_name(re.compile(r"n2 · [1-9]\d* tablets"), timeout=LONG_MS)
        expect(part(page, "requests")).to_contain_text("node n2 joined")
        page.get_by_label("Search reasons").fill("n2")
        expect(part(page, "history-of-decisions")).to_contain_text("n2")
        until(page, f"({FRAMES})() >= 5")  # one load draws two at most, unless cells move from one to the other


def join(shop: Shop) -> None:
    """A second node, if there is none."""
    if len(shop.cluster.nodes) == 1:
        shop.cluster = shop.cluster.added("n2", spark=False)
        shop.cluster.write()
        shop.cluster.wait("n2", shop.cluster.start("n2"))


def test_a_move_that_waits_for_a_process_says_so(shop: Shop, visit: Visit):
    """While the process of a node stands still, a tablet cannot come to it."""
    join(shop)
    page = visit.page
    shop.sql("CREATE TABLE still (id BIGINT PRIMARY KEY) WITH (tablets = 1)")
    [[_, _, source, *_]] = shop.sql("SHOW TABLETS OF still")
    target = next(name for name in ("n1", "n2") if name != source)
    visit.open("cluster")
    transitions = page.get_by_label("Transitions")
    place = shop.cluster.place("n2")
    assert place is not None
    os.kill(place.pid, signal.SIGSTOP)
    try:
        [[request]] = shop.sql(f"MOVE TABLET 0 OF still FROM '{source}' TO '{target}'")
        expect(transitions.get_by_role("row", name=re.compile("^still 0 migration"))).to_contain_text("n2")
    finally:
        os.kill(place.pid, signal.SIGCONT)
    shop.sql(f"WAIT FOR REQUEST {request}")
    expect(transitions.get_by_role("row", name=re.compile("^still"))).to_have_count(0)


def test_copies_that_a_lost_disk_lacks_are_listed_until_it_is_back(shop: Shop, visit: Visit):
    join(shop)
    page = visit.page
    visit.open("cluster")
    lacking = part(page, "under-replicated-tablets")
    expect(lacking).to_contain_text("Every run lies on every replica")
    shop.sql("CREATE TABLE copies (id BIGINT PRIMARY KEY) WITH (tablets = 1, replication = 2, min_copies = 1)")
    picture = page.get_by_role("img", name=re.compile("Tablets over nodes"))
    root = shop.cluster.root("n2")
    away = root.rename(root.with_name("away"))
    try:
        shop.sql("INSERT INTO copies VALUES (1), (2)")
        expect(lacking.get_by_role("row", name=re.compile(r"^copies table 0 n2 1 [\d.]+ "))).to_be_visible()
        expect(part(page, "nodes").get_by_role("row", name=re.compile("^n2"))).to_contain_text("down", timeout=LONG_MS)
        expect(picture).to_have_accessible_name(re.compile(r"n2 · \d+ tablets · down"))
    finally:
        away.rename(root)
    expect(lacking).to_contain_text("Every run lies on every replica", timeout=LONG_MS)
