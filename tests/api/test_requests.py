"""Request ids, limits of rate and size, and requests that are sent again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from api.requests import SMALL, RateLimit
from queue_manager.store.records import Wish
from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store
from tests.api.world import SMALL as OBJECTS
from tests.api.world import configure, document, small_company
from tests.store.builders import NOW

ALL = "/api/v1/workloads"
HOLD = f"{ALL}/team-nlp/blocked/hold"


@pytest.fixture
def company(store: Store, client: TestClient) -> TestClient:
    small_company(store)
    return client


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        yield lines


def test_a_request_keeps_its_id_in_answer_problem_and_log(company: TestClient, logged: list[Any]):
    answer = company.get(f"{ALL}/team-nlp/nobody", headers={"X-Request-Id": "trace-7/a"})
    assert answer.status_code == 404
    assert answer.headers["x-request-id"] == answer.json()["requestId"] == "trace-7/a"
    [line] = [line for line in logged if line["event"] == "request"]
    assert (line["request_id"], line["method"], line["status"]) == ("trace-7/a", "GET", 404)
    assert line["path"] == f"{ALL}/team-nlp/nobody"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'quote"', "a\tb"])
def test_a_request_without_a_usable_id_gets_one(company: TestClient, given: str):
    seen = {company.get(ALL, headers={"X-Request-Id": given}).headers["x-request-id"] for _ in range(2)}
    assert len(seen) == 2
    assert given not in seen


def test_an_error_of_the_server_has_the_id_that_its_log_has(company: TestClient, store: Store, logged: list[Any]):
    store.page_of_workloads = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    answer = company.get(ALL)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    [line] = [line for line in logged if line["event"] == "request failed"]
    assert line["request_id"] == answer.json()["requestId"] == answer.headers["x-request-id"]


class Clocked:
    """The limiter over an application that lets in whoever has the token `good`."""

    def __init__(self, rate: int = 10, burst: int = 3) -> None:
        self.now = 0.0
        self.limits = (rate, burst)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            known = (b"authorization", b"good") in scope["headers"] or not scope["headers"]
            await send({"type": "http.response.start", "status": 200 if known else 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        self.limiter = RateLimit(app, lambda: self.limits, lambda: self.now)

    async def ask(self, token: str = "", client: str = "10.0.0.1", path: str = "/api/v1/tree") -> int:
        headers = [(b"authorization", token.encode())] if token else []
        scope = {"type": "http", "path": path, "headers": headers, "client": (client, 1), "method": "GET"}
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        await self.limiter(scope, receive, send)
        self.headers = dict(sent[0]["headers"])
        return int(sent[0]["status"])


async def test_more_than_the_burst_waits_until_the_rate_allows_it():
    clocked = Clocked()
    assert [await clocked.ask() for _ in range(5)] == [200, 200, 200, 429, 429]
    assert clocked.headers[b"retry-after"] == b"1"
    clocked.now += 0.2
    assert [await clocked.ask() for _ in range(3)] == [200, 200, 429]
    clocked.limits = (1000, 2000)
    clocked.now += 1.0
    assert [await clocked.ask() for _ in range(900)] == [200] * 900
    assert await clocked.ask(path="/healthz") == 200


async def test_who_has_a_token_is_counted_by_it_and_who_makes_one_up_by_its_address():
    clocked = Clocked()
    assert await clocked.ask("good") == 200
    assert [await clocked.ask("good", client=f"10.0.0.{n}") for n in range(4)] == [200, 200, 200, 429]
    assert await clocked.ask(client="10.0.0.9") == 200
    assert [await clocked.ask(f"made-up-{n}", client="10.0.0.9") for n in range(4)] == [401, 401, 429, 429]


def test_the_rate_is_a_setting_that_holds_at_once(store: Store):
    configure(store, [*OBJECTS, document("Settings", "default", {"rateLimit": {"requestsPerSecond": 1, "burst": 5}})])
    app = create_app(store, now=lambda: NOW, registry=CollectorRegistry())
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        codes = [client.get("/api/v1/tree").status_code for _ in range(12)]
    assert set(codes) == {200, 429}
    assert codes.index(429) <= 7


def test_a_body_is_as_large_as_it_could_be_right_and_no_larger(company: TestClient):
    answer = company.post(HOLD, content=b'{"reason":"' + b"x" * SMALL + b'"}')
    assert (answer.status_code, answer.json()["detail"]) == (413, "at most 1 MiB are read here")
    for path in ("queues/nlp/stop", "queues/nlp/stop/plan", "local-queues/team-nlp/default/stop"):
        answer = company.post(f"/api/v1/{path}", headers={"Content-Length": str(SMALL + 1)}, content=b" ")
        assert (answer.status_code, answer.json()["detail"]) == (413, "at most 1 MiB are read here"), path
    chunks = (b"x" * 2**16 for _ in range(20))
    answer = company.post(HOLD, content=chunks, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    answer = company.put("/api/v1/config", content=b" ", headers={"Content-Length": str(50 * 2**20 + 1)})
    assert answer.status_code == 413
    for path in ("/api/v1/config", "/api/v1/config/plan", "/api/v1/queues/nlp"):
        method = "POST" if path.endswith("plan") else "PUT"
        assert company.request(method, path, content=b"#" * (2 * SMALL)).status_code != 413


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"reason":' * 50_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000]
)
def test_a_body_that_is_nested_deeply_is_refused(company: TestClient, content: bytes):
    for method, path in (("POST", HOLD), ("PUT", "/api/v1/queues/nlp"), ("PATCH", "/api/v1/queues/nlp")):
        answer = company.request(method, path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), (path, answer.text[:300])
        assert answer.headers["content-type"] == "application/problem+json"


def wishes(store: Store) -> list[Wish]:
    return [each.wish for each in store.pending_instructions()]


def again(client: TestClient, key: str = "k-1", reason: str = "because", path: str = HOLD) -> Any:
    return client.post(path, json={"reason": reason}, headers={"Idempotency-Key": key})


def test_a_request_sent_again_is_answered_as_before_and_done_once(company: TestClient, store: Store):
    first = again(company)
    second = again(company)
    assert first.status_code == second.status_code == 202
    assert first.content == second.content
    assert second.headers["content-type"] == first.headers["content-type"]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert wishes(store) == [Wish.HOLD]
    again(company, "k-2")
    assert wishes(store) == [Wish.HOLD, Wish.HOLD]


def test_a_key_that_was_used_for_something_else_is_refused(company: TestClient, store: Store):
    again(company)
    for answer in (again(company, reason="another"), again(company, path=f"{ALL}/team-nlp/later/hold")):
        assert (answer.status_code, answer.json()["title"]) == (422, "Idempotency-Key used before")
    assert wishes(store) == [Wish.HOLD]


def test_a_refusal_is_an_answer_too(company: TestClient, store: Store):
    path = f"{ALL}/team-nlp/nobody/hold"
    first, second = again(company, path=path), again(company, path=path)
    assert (first.status_code, second.status_code) == (404, 404)
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["content-type"] == "application/problem+json"


def test_while_the_first_is_worked_on_the_second_is_asked_to_wait(company: TestClient, store: Store):
    instruct = store.instruct
    seen: list[Any] = []

    def slow(*arguments: Any, **named: Any) -> Any:
        seen.append(again(company))
        return instruct(*arguments, **named)

    store.instruct = slow  # type: ignore[method-assign]
    assert again(company).status_code == 202
    assert [(each.status_code, each.headers["retry-after"]) for each in seen] == [(409, "1")]
    assert wishes(store) == [Wish.HOLD]


def test_an_error_of_the_server_is_not_kept(company: TestClient, store: Store):
    instruct = store.instruct
    store.instruct = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert again(company).status_code == 500
    store.instruct = instruct  # type: ignore[method-assign]
    answer = again(company)
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (202, False)


def test_keys_are_those_of_one_caller_and_end(store: Store):
    kept = RequestStore(store.engine)
    assert kept.begin_replay("ada", "k", b"1" * 32, NOW) is None
    assert kept.begin_replay("eve", "k", b"2" * 32, NOW) is None
    found = kept.begin_replay("ada", "k", b"1" * 32, NOW)
    assert found is not None
    assert found.status is None
    # Whoever worked on it is dead: it may be done again, by the same request alone.
    later = NOW + timedelta(minutes=2)
    assert kept.begin_replay("ada", "k", b"3" * 32, later) is not None
    assert kept.begin_replay("ada", "k", b"1" * 32, later) is None
    kept.finish_replay("ada", "k", 202, "application/json", b"{}")
    found = kept.begin_replay("ada", "k", b"1" * 32, later + timedelta(hours=1))
    assert found is not None
    assert (found.status, found.body) == (202, b"{}")
    kept.purge(NOW, later + timedelta(hours=23))
    assert kept.begin_replay("ada", "k", b"1" * 32, later + timedelta(hours=23)) is not None
    assert kept.begin_replay("ada", "k", b"9" * 32, later + timedelta(hours=25)) is None


@pytest.mark.parametrize("key", ["a b", "x" * 256, "ä"])
def test_a_key_that_can_be_none_is_refused(company: TestClient, key: str):
    answer = company.post(HOLD, json={"reason": "because"}, headers={"Idempotency-Key": key.encode()})
    assert answer.status_code in (400, 422)
