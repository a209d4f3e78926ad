"""Statements over HTTP: rows as JSON and Arrow, and errors as problem documents."""

from __future__ import annotations

import httpx
import pyarrow as pa

import ebla
from ebla.server.formats import ARROW
from support.warehouse import unchanged


def sql(client: httpx.Client, text: str, **parameters: object) -> httpx.Response:
    return client.post("/v1/sql", json={"sql": text, "parameters": parameters})


def test_a_node_lives_and_is_ready(client: httpx.Client):
    assert client.get("/health/live").json()["status"] == "live"
    assert client.get("/health/ready").json() == {"status": "ready"}


def test_statements_are_carried_out_and_answered_as_json(client: httpx.Client):
    text = "CREATE TABLE t (id BIGINT, d DECIMAL(8,2), PRIMARY KEY (id)); INSERT INTO t VALUES (1, 2.5)"
    assert sql(client, text).json()["rows"][0][0] == 1
    found = sql(client, "SELECT * FROM t WHERE id = :id ORDER BY id LIMIT 5", id=1).json()
    assert found["columns"] == [{"name": "id", "type": "bigint"}, {"name": "d", "type": "decimal(8,2)"}]
    assert found["rows"] == [[1, "2.50"]]


def test_rows_come_as_an_arrow_stream_where_the_client_asks_for_it(client: httpx.Client, db: ebla.Database):
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); INSERT INTO t VALUES (1), (2)")
    found = client.post("/v1/sql", json={"sql": "SELECT * FROM t ORDER BY id LIMIT 9"}, headers={"Accept": ARROW})
    assert found.headers["content-type"] == ARROW
    assert pa.ipc.open_stream(found.content).read_all().to_pylist() == [{"id": 1}, {"id": 2}]


def test_an_error_is_a_problem_with_its_class_and_its_place(client: httpx.Client):
    found = sql(client, "SHOW\n  NOTHING")
    assert (found.status_code, found.headers["content-type"]) == (400, "application/problem+json")
    problem = found.json()
    assert (problem["title"], problem["line"], problem["column"]) == ("SqlError", 2, 3)
    assert problem["instance"] == f"/v1/requests/{found.headers['Ebla-Request']}"


def test_malformed_json_is_refused_with_its_place(client: httpx.Client):
    found = client.post("/v1/sql", content=b'{"sql": "SELECT 1",}')
    assert found.status_code == 400
    assert "expected JSON" in found.json()["detail"]
    assert "character 19" in found.json()["detail"]


def test_malformed_rows_are_refused_with_their_place_and_change_nothing(client: httpx.Client, db: ebla.Database):
    db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    one, sink = pa.record_batch({"id": pa.array(range(1000), pa.int64())}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, one.schema) as writer:
        writer.write_batch(one)
        writer.write_batch(one)
    stream = sink.getvalue().to_pybytes()
    for content, kind, place in (
        (b"no stream at all", ARROW, "in batch 1, "),
        (stream[: len(stream) - 500], ARROW, "in batch 2, "),
        (b'{"rows": [{"id": 1},]}', "application/json", "at character "),
        (b'{"rows": [{"id": "x"}]}', "application/json", "row 1"),
    ):
        with unchanged(db):
            found = client.post("/v1/tables/t/rows", content=content, headers={"Content-Type": kind})
        assert found.status_code == 400, found.text
        assert place in found.json()["detail"]
    client.post("/v1/tables/t/rows", content=stream, headers={"Content-Type": ARROW})
    assert db.query("t", limit=2000).rows() == [(number,) for number in range(1000)]
    assert client.post("/v1/tables/nothing/rows", json={"rows": [{"id": 1}]}).status_code == 404


def test_an_unknown_table_is_not_found(client: httpx.Client):
    assert sql(client, "DROP TABLE nothing").status_code == 404
