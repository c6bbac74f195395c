"""Refusals of parameters and bodies are in words of ours: every parameter and field of every operation, wrong in every
way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store.store import Store
from tests.api.world import small_company
from tests.config.test_words import PYDANTIC, RIGHT

NAMES = {"namespace": "team-nlp", "name": "big", "id": "1", "number": "0", "check": "x", "n": "0"}
WORDS = ("x" * 3000, "a b", "-1", "9" * 30, "1.5", "true")
VALUES = (None, True, -1, 10**30, 1.5, "", " ", "x" * 3000, [], [{}], [1], {}, {"a": 1}, "\x00")


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def requests(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and what is sent, of every way to get one parameter or field wrong."""
    for path, methods in document["paths"].items():
        where = re.sub(r"{(\w+)(:path)?}", lambda found: NAMES.get(found[1], "nlp"), path)
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query" and path != "/api/v1/events":
                    yield from ((method, where, {"params": {parameter["name"]: word}}) for word in WORDS)
                elif parameter["in"] == "path":
                    wrong = path.replace(f"{{{parameter['name']}}}", "9" * 30)
                    yield method, re.sub(r"{(\w+)}", lambda found: NAMES.get(found[1], "nlp"), wrong), {}
                elif parameter["in"] == "header" and path != "/api/v1/events":
                    yield method, where, {"headers": {parameter["name"]: "x" * 2000}}
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None or "/config" in path:
                continue
            body = resolved(content["schema"], document)
            example = content.get("example") or next(iter(content.get("examples", {"": {}}).values())).get("value", {})
            yield method, where, {"content": "{", "headers": {"Content-Type": "application/json"}}
            yield from ((method, where, {"json": value}) for value in VALUES if not isinstance(value, dict))
            yield method, where, {"json": {**example, "nonsense": 1}}
            for field in body.get("properties", ()):
                yield from ((method, where, {"json": {**example, field: value}}) for value in VALUES)
                yield method, where, {"json": {key: value for key, value in example.items() if key != field}}


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    client.app.state.context.limits = lambda: (10**6, 10**6)  # type: ignore[attr-defined]
    return client


def test_no_refusal_is_in_the_words_of_the_validator(company: TestClient):
    found = set()
    for method, path, sent in requests(company.get("/openapi.json").json()):
        answer = company.request(method, path, **sent)
        assert answer.status_code < 500, (method, path, sent)
        if answer.status_code == 422:
            problem = answer.json()
            errors = problem.get("errors") or [{"field": "", "message": f"{problem['title']}: {problem['detail']}"}]
            found |= {(error["field"], error["message"], error.get("hint", "")) for error in errors}
    assert len(found) > 100
    assert [each for each in found if PYDANTIC.search(f"{each[1]} {each[2]}")] == []
    assert [each for each in found if not RIGHT.search(f"{each[1]} {each[2]}")] == []
