"""Pictures of the console for the README and the guides, from the shop of the tests.

PYTHONPATH=tests python -m browser.screenshots docs/images
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from support import console

PICTURES = {
    "console-explorer": ("explore/card", False, 1280, 720),
    "console-views": ("views/card", False, 1280, 1000),
    "console-builds": ("builds", False, 1280, 560),
    "console-cluster": ("cluster", True, 1280, 800),
}


def take(shop: console.Shop, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with console.chromium() as browser:
        for name, (place, dark, width, height) in PICTURES.items():
            with console.visit(browser, shop.url, width=width, height=height, dark=dark) as visit:
                visit.sign_in(shop.tokens["admin"])
                visit.open(place)
                visit.page.wait_for_timeout(3000)
                visit.page.screenshot(path=directory / f"{name}.png")


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
        "CREATE ASYNC MATERIALIZED VIEW doubles WITH (rows_per_minute = 6000, chunk_rows = 300) AS "
        "SELECT id, total * 2 AS twice FROM orders"
    )
    shop.wait("SHOW PROGRESS doubles", lambda rows: float(rows[0][3]) > 20, seconds=180)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, console.shop(Path(folder) / "shop") as made:
        prepare(made)
        take(made, Path(sys.argv[1]))
