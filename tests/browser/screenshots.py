"""Pictures of the console for the README and the guides, from the shop of the tests.

PYTHONPATH=tests python -m browser.screenshots docs/images           those that the documents show
PYTHONPATH=tests python -m browser.screenshots /tmp/console --every  every page: wide and narrow, light and dark
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from support import console

Picture = tuple[str, bool, int, int]
"""The page, whether it is dark, the width and the height of the window."""

PICTURES: dict[str, Picture] = {
    "console-explorer": ("explore/card", False, 1280, 720),
    "console-views": ("views/card", False, 1280, 1000),
    "console-builds": ("builds", False, 1280, 560),
    "console-cluster": ("cluster", True, 1280, 800),
}
PAGES = ("builds", "explore/card", "sql", "views", "views/card", "cluster")
EVERY: dict[str, Picture] = {
    f"{place.replace('/', '-')}-{width}-{'dark' if dark else 'light'}": (place, dark, width, 900)
    for place in PAGES
    for width in (1280, 390)
    for dark in (False, True)
}
SETTLED_MS = 3000
"""When answers have come, and lines and colours have stopped to move."""


def take(shop: console.Shop, directory: Path, pictures: Mapping[str, Picture], *, whole: bool = False) -> None:
    """`whole`: also what lies below the edge of the window."""
    directory.mkdir(parents=True, exist_ok=True)
    with console.chromium() as browser:
        for name, (place, dark, width, height) in pictures.items():
            with console.visit(browser, shop.url, width=width, height=height, dark=dark) as visit:
                visit.sign_in(shop.tokens["admin"])
                visit.page.mouse.move(0, 0)  # no row is lit
                visit.open(place)
                if place == "sql":
                    visit.page.get_by_role("button", name="Run").click()
                visit.page.wait_for_timeout(SETTLED_MS)
                visit.page.screenshot(path=directory / f"{name}.png", full_page=whole)


def prepare(shop: console.Shop) -> None:
    """Something to see: two nodes, an index, epochs, and a build that runs."""
    shop.cluster = shop.cluster.added("n2", spark=False)
    shop.cluster.write()
    shop.cluster.wait("n2", shop.cluster.start("n2"))
    shop.sql("CREATE INDEX card_by_name ON card (name, total DESC)")
    for number in range(8):
        shop.sql(f"UPSERT INTO customers VALUES ({number}, 'Customer number {number}', 'Ur')")
        time.sleep(1 + number % 3)
    shop.sql(
        "CREATE ASYNC MATERIALIZED VIEW doubles WITH (rows_per_minute = 2400, chunk_rows = 300) AS "
        "SELECT id, total * 2 AS twice FROM orders"
    )
    shop.wait("SHOW PROGRESS doubles", lambda rows: float(rows[0][3]) > 20, seconds=180)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--every", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, console.shop(Path(folder) / "shop") as made:
        prepare(made)
        take(made, given.directory, EVERY if given.every else PICTURES, whole=given.every)
