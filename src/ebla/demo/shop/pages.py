"""First-100 queries of `card`: how long they take, by which path, and an index that must be refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebla.demo.shop import data, schema
from ebla.errors import DuplicateKeyError

if TYPE_CHECKING:
    from ebla.api.database import Database

LIMIT = 100
QUERIES = 48
FEW = 6
"""As many of the slow ones, without the index."""
NAMES = tuple(f"{first} {last}" for first in data.FIRST_NAMES for last in data.LAST_NAMES)
COLUMNS = ("order_id", "line", "customer", "amount", "product", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCheck:
    """The row of CHECK INDEX."""

    version: int
    missing: int
    spurious: int
    different: int
    seconds: float

    @property
    def right(self) -> bool:
        return not (self.missing or self.spurious or self.different)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What the index brought."""

    build_s: float
    path: str
    """The line of EXPLAIN that names the index."""
    before_s: Sequence[float]
    """Queries without the index."""
    open_s: Sequence[float]
    """Through it, while the writers write."""
    refused: str
    """Why the unique index was not made."""
    closed_s: Sequence[float] = ()
    """Through it, while no writer is at work."""
    checked: PageCheck | None = None

    @property
    def taken(self) -> bool:
        """Whether queries take the index."""
        return schema.INDEX_NAME in self.path


def timed(db: Database, count: int = QUERIES) -> list[float]:
    """Seconds of this many queries, each for another customer's name; each was asked once before, so that it is
    warm."""
    names = [NAMES[i * len(NAMES) // count] for i in range(count)]
    for name in names:
        page(db, name)
    found = []
    for name in names:
        began = time.perf_counter()
        page(db, name)
        found.append(time.perf_counter() - began)
    return found


def page(db: Database, name: str) -> list[Any]:
    """The dearest lines of everyone of that name."""
    return db.query("card", where={"customer": name}, order_by="-amount", limit=LIMIT, columns=COLUMNS).rows()


def statement(name: str = NAMES[0]) -> str:
    """The page's request in SQL."""
    return f"SELECT {', '.join(COLUMNS)} FROM card WHERE customer = '{name}' ORDER BY amount DESC LIMIT {LIMIT}"


def explained(db: Database) -> str:
    """The line of EXPLAIN that says which path is taken."""
    text = "\n".join(str(row[0]) for row in db.sql(f"EXPLAIN {statement()}").rows())
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith("path: ")]
    return line


def refused(db: Database) -> str:
    """Ask for a unique index that cannot be, since more customers than names were made; the error's words."""
    try:
        db.sql(schema.UNIQUE_INDEX)
    except DuplicateKeyError as error:
        left = [row["name"] for row in db.sql("SHOW INDEXES").to_arrow().to_pylist()]
        if left != [schema.INDEX_NAME]:
            raise RuntimeError(f"refused index: expected nothing left of it, found indexes {left}") from error
        return str(error)
    raise RuntimeError(f"expected {schema.UNIQUE_INDEX} to be refused, found it made")


def check_pages(db: Database) -> PageCheck:
    began = time.perf_counter()
    (row,) = db.sql(f"CHECK INDEX {schema.INDEX_NAME}").to_arrow().to_pylist()
    return PageCheck(
        version=row["version"],
        missing=row["missing"],
        spurious=row["spurious"],
        different=row["different"],
        seconds=time.perf_counter() - began,
    )
