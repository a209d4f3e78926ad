"""One suite of behaviour for a warehouse that is open here and for one that is asked over HTTP."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ebla

Make = Callable[..., Any]

CREATE = (
    "CREATE TABLE t (id BIGINT, name STRING, total DECIMAL(12,2), day DATE, at TIMESTAMP, raw BINARY, f DOUBLE, "
    "tags ARRAY<STRING>, PRIMARY KEY (id))"
)
ROW = {
    "id": 1,
    "name": "Ada",
    "total": Decimal("10.50"),
    "day": dt.date(2026, 11, 18),
    "at": dt.datetime(2026, 11, 18, 6, 0, 0, 123456, tzinfo=dt.UTC),
    "raw": b"\x00\xff",
    "f": float("inf"),
    "tags": ["a", None],
}


@pytest.fixture(params=["embedded", "remote"])
def place(request: pytest.FixtureRequest, db: ebla.Database) -> Iterator[ebla.Database]:
    if request.param == "embedded":
        yield db
        return
    node: Make = request.getfixturevalue("node")
    tokens: dict[str, str] = request.getfixturevalue("tokens")
    with ebla.connect(node(), token=tokens["admin"]) as remote:
        yield remote


def test_rows_come_back_as_they_went_in(place: ebla.Database):
    place.sql(CREATE)
    table = place.table("T")
    assert table.name == "t"
    written = table.upsert([ROW, {"id": 2}])
    assert (written.rows, written.version) == (2, place.version)
    first, second = place.query("t", order_by="id").rows()
    assert dict(zip(place.query("t").columns, first, strict=True)) == ROW
    assert second == (2, *[None] * 7)
    assert place.tables() == ["t"]
    assert table.version == place.version


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "name": "x"}],
        pa.table({"id": [1], "name": ["x"]}),
        pa.record_batch({"id": [1], "name": ["x"]}),
        pd.DataFrame({"ID": [1], "name": ["x"]}),
    ],
    ids=["dicts", "table", "batch", "pandas"],
)
def test_rows_are_given_in_every_form(place: ebla.Database, rows: Any):
    place.sql(CREATE)
    assert place.table("t").upsert(rows).rows == 1
    assert place.query("t", columns=["id", "name"]).one() == (1, "x")
    assert place.table("t").delete(rows).rows == 1
    assert place.query("t").rows() == []


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("id", 1),
        ("total", Decimal("10.50")),
        ("day", dt.date(2026, 11, 18)),
        ("day", ebla.between(dt.date(2026, 1, 1), None)),
        ("at", ebla.between(None, dt.datetime(2027, 1, 1, tzinfo=dt.UTC))),
        ("name", ebla.prefix("A")),
        ("name", ebla.one_of("Ada", "Bob")),
        ("name", ebla.not_null()),
        ("raw", b"\x00\xff"),
        ("f", float("inf")),
        ("id", [ebla.between(0, None), ebla.between(None, 1)]),
    ],
)
def test_conditions_of_every_type_find_the_row(place: ebla.Database, column: str, condition: Any):
    place.sql(CREATE)
    place.table("t").upsert([ROW, {"id": 2}])
    assert place.query("t", where={column: condition}, columns=["id"]).rows() == [(1,)]


def test_pages_follow_each_other(place: ebla.Database):
    place.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    place.table("t").upsert([{"id": number} for number in range(5)])
    found, after = [], None
    while True:
        page = place.query("t", order_by="-id", limit=2, after=after)
        found += page.rows()
        after = page.next
        if after is None:
            break
    assert found == [(4,), (3,), (2,), (1,), (0,)]


def test_statements_take_parameters_of_every_type(place: ebla.Database):
    place.sql(CREATE)
    place.table("t").upsert([ROW])
    for column in ("id", "name", "total", "day", "at"):
        found = place.sql(f"SELECT id FROM t WHERE {column} = :it ORDER BY id LIMIT 1", it=ROW[column])
        assert found.one() == (1,), column
    assert place.sql("SELECT version FROM system.history ORDER BY version LIMIT 1").columns == ["version"]
    changed = place.sql("UPDATE t SET name = :name WHERE id = 1", name="Eve")
    assert changed.one() == (1, place.version)


ERRORS = [
    (lambda place: place.sql("SHOW\n NOTHING"), ebla.SqlError),
    (lambda place: place.sql(""), ebla.SqlError),
    (lambda place: place.table("nothing"), ebla.UnknownNameError),
    (lambda place: place.query("t", where={"no": 1}), ebla.UnknownNameError),
    (lambda place: place.query("t", limit=0), ebla.UsageError),
    (lambda place: place.query("t", where={"id": "x"}), ebla.TypeMismatchError),
    (lambda place: place.table("t").upsert([{"id": "x"}]), ebla.TypeMismatchError),
    (lambda place: place.table("t").upsert([{"id": None}]), ebla.TypeMismatchError),
    (lambda place: place.table("t").upsert(7), ebla.TypeMismatchError),
    (lambda place: place.table("t").upsert(["x"]), ebla.TypeMismatchError),
    (lambda place: place.sql("INSERT INTO t (id) VALUES (1)"), ebla.DuplicateKeyError),
    (lambda place: place.sql("CREATE TABLE t (id INT)"), ebla.DuplicateNameError),
    (lambda place: place.sql("SELECT id FROM t VERSION AS OF 999"), ebla.SnapshotError),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_are_of_the_same_class(place: ebla.Database, number: int):
    place.sql(CREATE)
    place.table("t").upsert([ROW])
    use, kind = ERRORS[number]
    before = place.version
    with pytest.raises(kind) as caught:
        use(place)
    assert isinstance(caught.value, ebla.UsageError)
    assert place.version == before
    if type(caught.value) is ebla.SqlError and "NOTHING" in str(caught.value):
        assert (caught.value.line, caught.value.column) == (2, 2)
    if "row" in str(caught.value) and isinstance(caught.value, ebla.TypeMismatchError) and caught.value.refused:
        assert caught.value.refused.column == "id"


def test_a_result_is_arrow_and_pandas_and_rows(place: ebla.Database):
    place.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); INSERT INTO t VALUES (1)")
    found = place.query("t")
    assert found.to_arrow().to_pydict() == {"id": [1]}
    assert (found.one(), len(found), list(found)) == ((1,), 1, [(1,)])


def test_what_needs_the_warehouse_itself_is_refused_by_name(node: Make):
    with ebla.connect(node(users=False)) as remote, pytest.raises(ebla.UsageError, match="spark: expected a call"):
        _ = remote.spark
