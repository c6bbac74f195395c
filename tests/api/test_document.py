"""The OpenAPI document: an example on each operation, and an API that does what the document says, whatever is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from prometheus_client import CollectorRegistry
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from api.app import create_app
from queue_manager.store.database import conninfo, make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.store import Store
from tests.api.world import small_company
from tests.store.builders import NOW

EXAMPLES = 8
"""Requests made up for each operation: all of them together stay below half a minute on an idle machine."""
STREAM = "/api/v1/events"
HOST = {"Host": "127.0.0.1"}


@pytest.fixture(scope="module")
def app(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[FastAPI]:
    """The application over a company of its own, which requests may change as they like."""
    name = f"document_{os.getpid()}"
    administration = conninfo(postgres_server.url_of("postgres"))
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}")  # type: ignore[call-overload]
    engine = make_engine(postgres_server.url_of(name))
    store = Store(engine)
    small_company(store)
    made = create_app(store, now=lambda: NOW, registry=CollectorRegistry(), patience=0.0)
    made.state.context.limits = lambda: (10**6, 10**6)
    yield made
    made.state.context.close()
    engine.dispose()
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


MADE_UP = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]


def test_whatever_is_sent_is_answered_as_documented(app: FastAPI):
    """No error of the server, no status and no media type that the document does not name."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HOST)
    names, wrong = set(), []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == STREAM:
            continue  # a stream has no end
        names.add(operation.label)

        @MADE_UP
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, headers=HOST)

        try:
            ask()
        except Exception as error:
            wrong.append(f"{operation.label}: {error}")
        except BaseExceptionGroup as group:
            wrong.append(f"{operation.label}: {group.exceptions}")
    assert len(names) > 60
    assert wrong == [], "\n\n".join(wrong)


def operations(app: FastAPI) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_operation_has_an_example_of_what_is_sent_and_answered(app: FastAPI):
    lacking = []
    for name, operation in operations(app):
        bodies = {"body": operation.get("requestBody", {})}
        bodies.update((code, answer) for code, answer in operation["responses"].items() if code.startswith("2"))
        for what, body in bodies.items():
            contents = body.get("content", {})
            if contents and not any("example" in each or "examples" in each for each in contents.values()):
                lacking.append(f"{name}: {what}")
    assert lacking == []


def test_operations_are_told_apart_by_their_ids(app: FastAPI):
    ids = [operation["operationId"] for _, operation in operations(app)]
    assert len(ids) == len(set(ids))
