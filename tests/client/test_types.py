"""The client's types are true: for a type checker, and by the API's own document."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest

from api.app import create_app
from queue_manager.client import types
from queue_manager.client.operations import PLURALS, Operations
from queue_manager.store.database import make_engine
from queue_manager.store.records import State
from queue_manager.store.store import Store

ROOT = Path(__file__).parents[2]
NAMES = {"Cell": "CellUsage", "Tree": "TreeUsage", "Revision": "RevisionEntry"}
"""Types that the API calls otherwise."""
TYPED = {name: each for name, each in vars(types).items() if is_typeddict(each)}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    engine = make_engine("postgresql://127.0.0.1:9/none")  # never connected to
    return create_app(Store(engine)).openapi()


@pytest.mark.parametrize("name", TYPED)
def test_every_field_is_one_of_the_api(document: dict[str, Any], name: str):
    schema = document["components"]["schemas"][NAMES.get(name, name)]["properties"]
    for field, hint in get_type_hints(TYPED[name]).items():
        assert field in schema
        nullable = any(each.get("type") == "null" for each in schema[field].get("anyOf", ()))
        untyped = set(schema[field]) <= {"title", "description", "default"}
        assert untyped or nullable == (type(None) in get_args(hint)), field


def test_the_states_are_those_of_the_store():
    assert set(get_args(types.State)) == {state.value for state in State}


GIVEN: dict[str, Any] = {
    "state": ["waiting"],
    "number": 1,
    "limit": 5,
    "prune": True,
    "action": "hold",
    "patch": {},
    "document": {"apiVersion": "v1", "kind": "Queue", "metadata": {"name": "n"}, "spec": {}},
    "requeue_after": 5,
    "force": True,
    "id": 1,
    "scopes": [],
    "expires_in": 5,
    "revoked": True,
}
"""Values of parameters that are no plain text."""


@pytest.mark.parametrize("name", [name for name in vars(Operations) if not name.startswith("_")])
def test_every_method_asks_for_what_the_api_has(document: dict[str, Any], name: str):
    describe = getattr(Operations, name)
    parameters = [each for each in signature(describe).parameters.values() if each.kind is not each.VAR_KEYWORD]
    given = {each.name: GIVEN.get(each.name, "x") for each in parameters}
    if name.endswith(("object", "objects")) and "kind" in given:
        given |= {"kind": "Queue"} | ({"namespace": ""} if "namespace" in given else {})
    call = describe(**given)
    [operation] = [
        methods[call.method.lower()]
        for path, methods in document["paths"].items()
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", path), call.path) and call.method.lower() in methods
    ]
    documented = {each["name"] for each in operation.get("parameters", ())}
    assert {key for key, _ in call.pairs()} <= documented
    assert bool(call.body) == ("requestBody" in operation)


def test_every_kind_has_a_path(document: dict[str, Any]):
    for plural in PLURALS.values():
        assert f"/api/v1/{plural}" in document["paths"]


def test_a_type_checker_knows_what_methods_take_and_answer():
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--follow-imports=silent",
        "tests/client/typed.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
