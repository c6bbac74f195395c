"""Lists of revisions: filters, pages, and what a filter finds of what its caller may not see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.store.store import Store
from tests.api.callers import bearer, server, token
from tests.api.world import SMALL, document, queue


def revised(client: TestClient, **query: Any) -> list[int]:
    """Numbers of the revisions that a list has, over all its pages."""
    found: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get("/api/v1/revisions", params={**query, "cursor": cursor, "limit": 2})
        assert answer.status_code == 200, answer.text
        found += [item["number"] for item in answer.json()["items"]]
        cursor = answer.json()["next"]
    return found


@pytest.fixture
def five_revisions(store: Store, client: TestClient) -> TestClient:
    """1 to 5, at noon of November 1st to 5th: what each touches, and who made it, stands below."""
    day = datetime(2026, 11, 1, 12, tzinfo=UTC)
    made: tuple[tuple[str, list[dict[str, Any]]], ...] = (
        ("ada", SMALL),
        ("ada", [queue("nlp", "research", 128)]),
        ("bob", [queue("vision", "research", 16)]),
        ("ada", [document("LocalQueue", "default", {"queue": "vision"}, "team-nlp")]),
        ("bob", [queue("nlp", "research", 64)]),
    )
    for number, (author, documents) in enumerate(made):
        store.apply_configuration(
            stored_objects(parse_objects(documents).objects),
            author=author,
            reason="",
            now=day + timedelta(days=number),
            source="test",
        )
    return client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"author": "ada"}, [4, 2, 1]),
        ({"from": "2026-11-02T12:00:00Z", "to": "2026-11-04T12:00:00Z"}, [3, 2]),
        ({"from": "2026-11-04"}, [5, 4]),
        ({"object": "Queue/nlp"}, [5, 2, 1]),
        ({"object": "LocalQueue/team-nlp/default"}, [4, 1]),
        ({"kind": "LocalQueue"}, [4, 1]),
        ({"kind": "Queue", "author": "bob", "from": "2026-11-04"}, [5]),
        ({"author": "nobody"}, []),
        ({"sort": "number"}, [1, 2, 3, 4, 5]),
        ({"sort": "number", "author": "ada", "from": "2026-11-02"}, [2, 4]),
    ],
)
def test_revisions_are_filtered_and_paged(five_revisions: TestClient, query: dict[str, str], expected: list[int]):
    assert revised(five_revisions, **query) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"kind": "queue"}, "query.kind"),
        ({"object": "nlp"}, "query.object"),
        ({"object": "Que/nlp"}, "query.object"),
        ({"from": "yesteryear"}, "query.from"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "query.from"),
    ],
)
def test_filters_of_revisions_that_can_fit_nothing_are_refused(client: TestClient, query: dict[str, str], field: str):
    answer = client.get("/api/v1/revisions", params=query)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_no_filter_finds_what_is_hidden(store: Store, five_revisions: TestClient):
    settings = parse_objects([document("Settings", "default", {"access": {"outside": "Hidden"}})]).objects
    store.apply_configuration(
        stored_objects(settings), author="ada", reason="", now=datetime(2026, 11, 6, tzinfo=UTC), source="test"
    )
    client = server(store)
    client.headers.update(bearer(token(store, "viewer", "vision")))
    assert revised(client, object="Queue/nlp") == []
    assert revised(client, object="Queue/vision") == [3, 1]
    assert revised(client, kind="Queue") == [3, 1]
    assert revised(client, kind="LocalQueue") == []  # it led to nlp before
