"""Requests by chance, over the API's own description: none is a defect, and a refused one changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import ebla
from ebla.server.formats import ARROW

Make = Callable[..., Any]

STATEMENTS = [
    "SELECT * FROM t ORDER BY id LIMIT 3",
    "SELECT version FROM system.history ORDER BY version LIMIT 2",
    "INSERT INTO t (id) VALUES (1)",
    "UPSERT INTO t (id, name) VALUES (1, 'x')",
    "UPDATE t SET name = :a WHERE id = 1",
    "DELETE FROM t WHERE id = 1",
    "CREATE USER u ROLE reader",
    "GRANT SELECT ON t TO u",
    "SHOW TABLES",
    "DESCRIBE t",
    "ALTER TABLE t ADD COLUMN c INT",
    "DROP TABLE nothing",
    "LOAD INTO t FROM '/etc/hostname'",
    "TRUNCATE TABLE t",
    "SELEC",
    "",
    "';",
    "\x00",
]
NAMES = some.sampled_from(
    ["t", "T", "id", "name", "nothing", "system.users", "", " ", "a/b", "%00", "é", "`", "x" * 300]
)
VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**70), 2**70)
    | some.floats()
    | some.text(max_size=8)
    | some.sampled_from([{"$date": "x"}, {"$decimal": "1.5"}, {"$binary": "AA=="}, {"gte": 1}, {"in": []}]),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def resolved(schema: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    return described["components"]["schemas"][name] if name else schema


def of_schema(schema: dict[str, Any], described: dict[str, Any]) -> some.SearchStrategy[Any]:
    """Values that a schema describes, more or less."""
    schema = resolved(schema, described)
    if "anyOf" in schema:
        return some.one_of([of_schema(one, described) for one in schema["anyOf"]])
    match schema.get("type"):
        case "integer":
            return some.integers(schema.get("minimum", -3), schema.get("maximum", 2**40))
        case "number":
            return some.floats(min_value=0.0, max_value=1.0)
        case "boolean":
            return some.booleans()
        case "null":
            return some.none()
        case "array":
            return some.lists(of_schema(schema.get("items", {}), described), max_size=3)
        case "string":
            return NAMES | some.sampled_from(STATEMENTS)
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            parts = {name: of_schema(one, described) for name, one in schema["properties"].items()}
            return some.fixed_dictionaries(
                {name: one for name, one in parts.items() if name in required},
                optional={name: one for name, one in parts.items() if name not in required},
            )
        case "object":
            return some.dictionaries(NAMES, VALUES, max_size=3)
    return VALUES


@some.composite
def requests(draw: some.DrawFn, described: dict[str, Any]) -> dict[str, Any]:
    operations = [
        (method, path, one) for path, methods in described["paths"].items() for method, one in methods.items()
    ]
    method, path, operation = draw(some.sampled_from(operations))
    query, headers = {}, {}
    for parameter in operation.get("parameters", ()):
        value = draw(of_schema(parameter["schema"], described) | VALUES.map(str))
        text = str(value).encode("ascii", "ignore").decode()
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", text.replace("/", "") or "t")
        elif parameter["in"] == "query" and (parameter.get("required") or draw(some.booleans())):
            query[parameter["name"]] = text
    body: bytes | None = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        made = draw(of_schema(schema, described) | VALUES)
        body = json.dumps(made).encode()
        if draw(some.integers(0, 9)) == 0:
            body = draw(some.binary(max_size=20)) + body[:10]
        kinds = ["application/json", ARROW, "application/json; values=tagged", "text/plain"]
        headers["Content-Type"] = draw(some.sampled_from(kinds))
    if draw(some.booleans()):
        headers["Accept"] = ARROW
    return {"method": method.upper(), "url": path, "params": query, "content": body, "headers": headers}


@pytest.mark.slow
def test_no_request_is_a_defect_and_a_refused_one_changes_nothing(
    node: Make, db: ebla.Database, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(db.context.sessions, "_refusal", "no Spark in this test")
    db.sql("CREATE TABLE t (id BIGINT, name STRING, day DATE, PRIMARY KEY (id))")
    url = node()
    described = httpx.get(f"{url}/openapi.json", timeout=150).json()
    clients = [
        httpx.Client(base_url=url, timeout=60, headers={"Authorization": f"Bearer {one}"}) for one in tokens.values()
    ]
    clients.append(httpx.Client(base_url=url, timeout=60))

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
    @given(requests(described), some.sampled_from(clients))
    def holds(request: dict[str, Any], client: httpx.Client) -> None:
        before = db.version
        try:
            made = client.build_request(**request)
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError):
            return
        answer = client.send(made, stream=True)  # a stream of changes does not end
        if "event-stream" not in answer.headers.get("content-type", ""):
            answer.read()
        answer.close()
        assert answer.status_code not in (500, 501), (request, answer.text)
        if answer.status_code >= 400:
            assert db.version == before, (request, answer.text)
            assert answer.headers["content-type"] == "application/problem+json", (request, answer.text)

    holds()
    for client in clients:
        client.close()
