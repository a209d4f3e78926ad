"""The description of the API: every endpoint has an example, and the examples look like the answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import ebla

BINARY = ("application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "text/csv")
"""Other forms of the rows that the example in JSON has."""


def examples(described: dict[str, Any], media: dict[str, Any]) -> list[Any]:
    if "example" in media:
        return [media["example"]]
    schema = media.get("schema", {})
    name = schema.get("$ref", "").removeprefix("#/components/schemas/")
    schema = described["components"]["schemas"][name] if name else schema
    return list(schema.get("examples", ())) or [one for one in [schema.get("example")] if one is not None]


def test_every_body_and_every_answer_has_an_example(client: httpx.Client):
    described = client.get("/openapi.json").json()
    without = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            of_body = operation.get("requestBody", {}).get("content", {})
            answers = {code: one.get("content", {}) for code, one in operation["responses"].items()}
            found = {("body", kind): media for kind, media in of_body.items()}
            found |= {(code, kind): media for code, content in answers.items() for kind, media in content.items()}
            without += [
                (method, path, *name)
                for name, media in found.items()
                if name[1] not in BINARY and not examples(described, media)
            ]
            assert any(kind for code, kind in found if code.startswith("2")), f"{method} {path} says no answer"
    assert without == []


@pytest.mark.parametrize(
    "path",
    ["/health/live", "/health/ready", "/v1/tables", "/v1/tables/orders", "/v1/version", "/v1/me", "/v1/status"],
)
def test_an_example_looks_like_the_answer(db: ebla.Database, client: httpx.Client, path: str):
    db.sql("CREATE TABLE orders (id BIGINT, PRIMARY KEY (id)); INSERT INTO orders VALUES (1)")
    described = client.get("/openapi.json").json()
    operation = described["paths"][path.replace("/orders", "/{table}")]["get"]
    [example] = examples(described, operation["responses"]["200"]["content"]["application/json"])
    answer = client.get(path).json()
    assert type(example) is type(answer)
    if isinstance(answer, dict):
        assert example.keys() - {"reason"} <= answer.keys()
