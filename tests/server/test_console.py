"""What the console stands on: its files, events, the user, the path of a query, and results as files."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sqlalchemy import event

import ebla
from ebla.catalog import history as commits
from ebla.catalog import pulse
from ebla.catalog import schema as s
from server.conftest import Node

TRANSFER_MAX = 500_000


def test_the_console_is_served_with_a_strict_policy(client: httpx.Client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert 'data-users="false"' in page.text
    names = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page.text)
    assert names
    for name in names:
        answer = client.get(f"/{name}")
        assert answer.status_code == httpx.codes.OK
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
    for answer in (page, client.get(f"/{names[0]}")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/assets/none.js").status_code == httpx.codes.NOT_FOUND
    assert client.get("/assets/..%2findex.html").status_code == httpx.codes.NOT_FOUND


def test_all_files_of_the_console_are_small_together(client: httpx.Client):
    from ebla.server.console import ASSETS

    total = len(client.get("/").content)
    for file in ASSETS.iterdir():
        with client.stream("GET", f"/assets/{file.name}") as answer:
            total += sum(len(part) for part in answer.iter_raw())
    assert total <= TRANSFER_MAX


def test_the_page_of_a_node_with_users_says_so(node: Node):
    with httpx.Client(base_url=node(), timeout=150) as client:
        assert 'data-users="true"' in client.get("/").text
        assert client.get("/v1/me").status_code == httpx.codes.UNAUTHORIZED
        assert client.get("/v1/events").status_code == httpx.codes.UNAUTHORIZED


def test_a_user_learns_what_it_may(db: ebla.Database, node: Node, tokens: dict[str, str], caller: Any):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.sql("GRANT OWN ON t TO the_reader")
    url = node()
    assert caller(url, tokens["reader"]).http.get("/v1/me").json() == {
        "name": "the_reader", "role": "reader", "token": True, "rights": {"t": "OWN"},
    }  # fmt: skip
    assert caller(url, tokens["admin"]).http.get("/v1/me").json()["role"] == "admin"


# ---- events ---------------------------------------------------------------------------------------------


def numbers(lines: Iterator[str]) -> dict[str, Any]:
    """The numbers of the next event."""
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
    return found


def test_events_tell_of_a_commit(db: ebla.Database, client: httpx.Client):
    with client.stream("GET", "/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        first = numbers(lines)
        assert first["version"] == db.version
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        assert numbers(lines)["version"] == db.version


def test_many_listeners_cost_one_statement_a_period(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    reads: list[float] = []
    real = pulse.read

    def counted(connection: Any, now: int) -> dict[str, int]:
        reads.append(now / 1e6)
        return real(connection, now)

    monkeypatch.setattr(pulse, "read", counted)
    with client.stream("GET", "/v1/events") as one, client.stream("GET", "/v1/events") as other:
        lines = [one.iter_lines(), other.iter_lines()]
        assert numbers(lines[0]) == numbers(lines[1])
        client.post("/v1/sql", json={"sql": "CREATE TABLE t (id BIGINT PRIMARY KEY)"})
        assert numbers(lines[0])["version"] == numbers(lines[1])["version"]
    assert all(after - before >= 0.9 for before, after in itertools.pairwise(reads))


# ---- queries and results --------------------------------------------------------------------------------


def test_a_query_tells_its_path_when_asked(db: ebla.Database, client: httpx.Client):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    db.table("t").upsert([{"id": number, "word": f"w{number % 7}"} for number in range(5000)])
    for by, sort in (("id", False), ("word", True)):
        found = client.post("/v1/query", json={"relation": "t", "order_by": by, "explain": True}).json()
        assert (found["plan"]["path"], found["plan"]["sort"]) == ("t", sort)
        assert found["took_ms"] > 0
    assert "plan" not in client.post("/v1/query", json={"relation": "t"}).json()


def test_a_result_is_fetched_whole_as_csv_and_parquet(client: httpx.Client):
    for text in (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING, price DECIMAL(8,2), day DATE, tags ARRAY<STRING>)",
        "INSERT INTO t VALUES (1, 'a \"b\", c', 1.50, DATE'2026-11-18', NULL), (2, NULL, NULL, NULL, NULL), "
        "(3, '', 0.00, DATE'1999-01-01', NULL)",
    ):
        assert client.post("/v1/sql", json={"sql": text}).status_code == httpx.codes.OK
    asked = {"sql": "SELECT * FROM t ORDER BY id LIMIT 10", "page_rows": 100}
    answer = client.post("/v1/sql", json=asked, headers={"Ebla-Request": "one"})
    assert answer.json()["rows_total"] == 3
    csv = client.get("/v1/results/one", headers={"Accept": "text/csv"})
    assert csv.text.splitlines() == [
        '"id","word","price","day","tags"', '1,"a ""b"", c","1.50","2026-11-18",', "2,,,,", '3,"","0.00","1999-01-01",',
    ]  # fmt: skip
    assert pa_csv.read_csv(io.BytesIO(csv.content)).num_rows == 3
    parquet = client.get("/v1/results/one", headers={"Accept": "application/vnd.apache.parquet"})
    table = pq.read_table(io.BytesIO(parquet.content))
    assert table.num_rows == 3
    assert str(table.schema.field("price").type) == "decimal128(8, 2)"


# ---- the cluster and the history ------------------------------------------------------------------------


def test_tablets_say_their_nodes_by_position(db: ebla.Database, client: httpx.Client):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING) WITH (tablets = 8)")
    db.sql("CREATE TABLE gone (id BIGINT PRIMARY KEY)")
    db.sql("DROP TABLE gone")
    db.sql("CREATE INDEX t_by_word ON t (word)")
    db.table("t").upsert([{"id": number, "word": "w"} for number in range(100)])
    found = client.get("/v1/tablets").json()
    assert found["relations"] == [{"name": "t", "tablets": [[0]] * 8}]
    assert found["transitions"] == {"columns": [], "rows": []}
    [node] = found["nodes"]
    assert (node["state"], node["tablets"]) == ("normal", 8)
    assert node["runs"] > 0
    assert node["bytes"] > 0


def fill_history(db: ebla.Database, count: int) -> None:
    """Rows as of commits of long ago: only their number matters."""
    with db.context.catalog.writing() as connection:
        base = db.version + 1
        connection.execute(
            s.history.insert(),
            [
                {
                    "version": base + number,
                    "kind": "data",
                    "reason": f"write {number} of 100%_sure 'Ada' \\ née" if number % 1000 == 0 else f"write {number}",
                    "committed_at": number,
                    "node_id": "n",
                }
                for number in range(count)
            ],
        )


def history(client: httpx.Client, **asked: Any) -> tuple[list[int], list[str], str | None]:
    answer = client.get("/v1/history", params=asked)
    assert answer.status_code == httpx.codes.OK, answer.text
    found = answer.json()
    return [row[0] for row in found["rows"]], [row[2] for row in found["rows"]], found.get("next")


def test_the_history_is_searched_and_paged(db: ebla.Database, client: httpx.Client):
    """Words are taken as they are: no character of theirs is a pattern, or ends a text of SQL."""
    fill_history(db, 5000)
    versions, reasons, rest = history(client)
    assert versions == sorted(versions, reverse=True)
    assert len(versions) == 100
    assert reasons[0] == "write 4999"
    again, _, _ = history(client, before=rest)
    assert again[0] == versions[-1] - 1
    for words in ("100%_SURE", "'ada'", "\\", " née", "of 100%_sure 'Ada' \\ née"):
        versions, reasons, rest = history(client, words=words)
        assert (len(versions), rest) == (5, None), words
    for words in ("100__sure", "w%4", "' OR 1=1 --", "write 4\0x"):
        assert history(client, words=words)[0] == [], words
    seen: list[int] = []
    rest = None
    while True:
        found, _, rest = history(client, words="write 1", limit=300, **({} if rest is None else {"before": rest}))
        seen += found
        if rest is None:
            break
    assert len(seen) == len(set(seen)) == 1111
    assert client.get("/v1/history", params={"limit": 100_000}).status_code == httpx.codes.BAD_REQUEST


def test_a_page_of_a_long_history_reads_that_page(db: ebla.Database):
    """Of 100,000 commits a page is read along the primary key, and neither sorted nor made of all others."""
    fill_history(db, 100_000)
    asked: list[tuple[str, Any]] = []
    with db.context.catalog.reading() as connection:
        event.listen(connection, "before_cursor_execute", lambda *of: asked.append((of[2], of[3])))
        for given in ({}, {"words": "write 99"}, {"before": 900}, {"of_builds": True}):
            commits.newest(connection, 100, **given)
        for text, values in list(asked):
            steps = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all())
            assert "TEMP B-TREE" not in steps
            assert "sqlite_autoindex_history_1" in steps  # that of the primary key
            assert "LIMIT" in text
    assert len(asked) >= 4


def test_the_history_of_builds_leaves_out_the_rest(db: ebla.Database, client: httpx.Client):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING)")
    db.table("t").upsert([{"id": 1, "word": "w"}])
    db.sql("CREATE INDEX t_by_word ON t (word)")
    _, reasons, _ = history(client, builds=True)
    assert "create index t_by_word on t" in reasons
    assert not [one for one in reasons if one.startswith(("create table", "upsert"))]


def test_epochs_of_a_view_need_the_right_to_read_it(db: ebla.Database, node: Node, tokens: dict[str, str], caller: Any):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.sql("REVOKE SELECT ON t FROM the_reader")
    url = node()
    answers = {role: caller(url, tokens[role]).http.get("/v1/views/t/epochs") for role in ("reader", "admin")}
    assert answers["reader"].status_code == httpx.codes.FORBIDDEN
    assert answers["admin"].status_code == httpx.codes.NOT_FOUND
    assert "expected a view, found a table" in answers["admin"].json()["detail"]


def test_names_are_those_that_a_statement_may_hold(db: ebla.Database, client: httpx.Client):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, word STRING, gone STRING)")
    db.sql("CREATE INDEX t_by_word ON t (word)")
    db.sql("ALTER TABLE t DROP COLUMN gone")
    db.sql("CREATE TABLE dropped (id BIGINT PRIMARY KEY)")
    db.sql("DROP TABLE dropped")
    found = client.get("/v1/names").json()
    assert {name: columns for name, columns in found.items() if not name.startswith("system.")} == {"t": ["id", "word"]}
    assert found["system.history"] == [one["name"] for one in column_rows(client, "SELECT * FROM system.history")]
    assert {"system.views", "system.caches"} <= found.keys()


def column_rows(client: httpx.Client, text: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = client.post("/v1/sql", json={"sql": f"{text} LIMIT 1"}).json()["columns"]
    return rows
