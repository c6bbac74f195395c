"""The client against a server that answers as told: what is sent, what is tried again, what is raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime

import httpx2
import pytest

from queue_manager.client import ApiError, AsyncClient, Client, NotOursError, Retry, UnreachableError
from queue_manager.client.retry import retry_after

SERVER = "http://queues.example"
Handler = Callable[[httpx2.Request], httpx2.Response]
PROBLEM = {"title": "Database unavailable", "detail": "try again", "status": 503}


class Told:
    """A transport that gives answers one after another, and keeps requests and pauses."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.requests: list[httpx2.Request] = []
        self.pauses: list[float] = []
        self._answers = iter(answers)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more: object) -> Client:
        named = {"jitter": lambda: 0.0, **more}
        return Client(SERVER, "qm_secret", transport=httpx2.MockTransport(self), sleep=self.pauses.append, **named)

    def asynchronous(self) -> AsyncClient:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        return AsyncClient(SERVER, "qm_secret", transport=httpx2.MockTransport(self), sleep=sleep, jitter=lambda: 0.0)


def answer(body: object, status: int = 200, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json=body, headers=named)


def test_what_is_sent():
    told = Told(answer({"items": [], "next": None}))
    assert list(told.client().workloads(state=["waiting", "held"], queue="a b", limit=7)) == []
    [request] = told.requests
    assert request.headers["authorization"] == "Bearer qm_secret"
    assert str(request.url) == f"{SERVER}/api/v1/workloads?queue=a+b&state=waiting&state=held&limit=7"


@pytest.mark.parametrize("name", ["a/b", "...", "a?b", "ä", "%2e"])
def test_a_name_stays_one_step_of_the_path(name: str):
    told = Told(answer({}))
    told.client().workload("team", name)
    path = told.requests[0].url.raw_path.decode()
    assert path.count("/") == 5
    assert path.startswith("/api/v1/workloads/team/")


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_what_would_be_another_path_is_no_name(name: str):
    with pytest.raises(ValueError, match="no name"):
        Told().client().workload("team", name)
    with pytest.raises(ValueError, match="no name"):
        Told().client().queue_usage(f"a/{name}/b")


def test_pages_are_read_one_after_another_and_only_as_needed():
    pages = [answer({"items": [1, 2], "next": "c"}), answer({"items": [3], "next": None})]
    told = Told(*pages)
    items = told.client().revisions()
    assert next(items) == 1
    assert len(told.requests) == 1
    assert list(items) == [2, 3]
    assert told.requests[1].url.params["cursor"] == "c"


def test_the_asynchronous_client_does_the_same():
    told = Told(
        answer(PROBLEM, 503, retry_after="2"), answer({"items": [1], "next": "c"}), answer({"items": [2], "next": None})
    )

    async def run() -> list[object]:
        async with told.asynchronous() as client:
            return [item async for item in client.revisions()]

    assert asyncio.run(run()) == [1, 2]
    assert told.pauses == [2.0]


def test_who_is_asked_to_wait_waits_that_long():
    told = Told(
        answer({"title": "Too many"}, 429, retry_after="3"), answer(PROBLEM, 503, retry_after="1"), answer({"a": 1})
    )
    assert told.client().get("/x") == {"a": 1}
    assert told.pauses == [3.0, 1.0]


def test_pauses_without_a_word_of_the_server_grow_and_end():
    told = Told(*[answer(PROBLEM, 503) for _ in range(4)])
    with pytest.raises(ApiError) as error:
        told.client(retry=Retry(attempts=4, first=1.0, longest=3.0)).get("/x")
    assert (error.value.status, error.value.detail) == (503, "try again")
    assert told.pauses == [0.5, 1.0, 1.5]


def test_nobody_waits_longer_than_wanted():
    told = Told(answer(PROBLEM, 503, retry_after="3600"))
    with pytest.raises(ApiError):
        told.client().get("/x")
    assert told.pauses == []


def test_what_may_have_been_done_is_not_sent_twice():
    told = Told(answer(PROBLEM, 503))
    with pytest.raises(ApiError):
        told.client().patch_object("Queue", "a", {"spec": {}}, if_match='"1"')
    assert len(told.requests) == 1


@pytest.mark.parametrize("first", [answer(PROBLEM, 503), httpx2.ReadError("gone")])
def test_an_action_is_sent_again_under_the_same_key(first: httpx2.Response | Exception):
    told = Told(first, answer({"state": "held"}))
    told.client().hold("team", "job", reason="because")
    one, two = told.requests
    assert one.headers["idempotency-key"] == two.headers["idempotency-key"] != ""
    assert json.loads(two.content) == {"reason": "because"}


def test_two_actions_have_two_keys():
    told = Told(answer({}), answer({}))
    client = told.client()
    for _ in range(2):
        client.hold("team", "job", reason="because")
    assert len({request.headers["idempotency-key"] for request in told.requests}) == 2


def test_a_problem_keeps_its_findings():
    finding = {"field": "spec.cohrt", "message": "unknown field", "hint": "did you mean 'cohort'?", "line": 4}
    told = Told(answer({"title": "Not valid", "detail": "1 problem", "errors": [finding], "errorCount": 7}, 422))
    with pytest.raises(ApiError) as error:
        told.client().apply("x")
    assert error.value.errors == [finding]
    assert error.value.error_count == 7
    assert str(error.value) == "Not valid: 1 problem"


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, text="<html>"),
        httpx2.Response(502, text="Bad gateway"),
        httpx2.Response(302, headers={"location": "https://elsewhere.example/login"}),
    ],
)
def test_somebody_else_answers(response: httpx2.Response):
    told = Told(response)
    with pytest.raises(NotOursError):
        told.client().tree()
    assert len(told.requests) == 1  # a redirect would carry the token to wherever it points


def test_what_is_not_reached():
    refused = httpx2.ConnectError("no")
    told = Told(refused, refused)
    with pytest.raises(UnreachableError) as error:
        told.client(retry=Retry(attempts=2)).tree()
    assert error.value.refused
    told = Told(refused)
    with pytest.raises(UnreachableError):
        told.client(retry=Retry(connect=False)).tree()


@pytest.mark.parametrize(
    ("server", "token"),
    [("ftp://x", ""), ("http://", ""), ("x", ""), ("http://[::1", ""), (SERVER, "a\nb"), (SERVER, "ä")],
)
def test_what_is_no_server_or_no_token(server: str, token: str):
    with pytest.raises(ValueError, match=r"server|token"):
        Client(server, token)


def test_the_token_is_in_no_text_of_the_client():
    assert "qm_secret" not in repr(Told().client().connection)


def document(revision: int) -> httpx2.Response:
    body = {"apiVersion": "v1", "kind": "Cohort", "metadata": {"name": "a"}, "spec": {"n": revision}}
    return answer(body, etag=f'"{revision}"')


STALE = {"title": "Changed in between"}


def test_a_change_begins_anew_where_somebody_was_faster():
    told = Told(document(1), answer(STALE, 412), document(2), document(3))
    found = told.client().change("Cohort", "a", lambda old: {**old, "spec": {"n": old["spec"]["n"] + 10}})
    assert found["spec"] == {"n": 3}
    put = [request for request in told.requests if request.method == "PUT"]
    assert [request.headers["if-match"] for request in put] == ['"1"', '"2"']
    assert [json.loads(request.content)["spec"] for request in put] == [{"n": 11}, {"n": 12}]


def test_a_change_gives_up():
    told = Told(document(1), answer(STALE, 412))
    with pytest.raises(ApiError):
        told.client().change("Cohort", "a", lambda old: old, attempts=1)


def test_a_new_object_replaces_none():
    told = Told(document(1))
    told.client().put_object({"apiVersion": "v1", "kind": "Cohort", "metadata": {"name": "a"}, "spec": {}})
    assert told.requests[0].headers["if-none-match"] == "*"
    assert "if-match" not in told.requests[0].headers


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("٣", None),
    ],
)
def test_how_long_the_server_asks_to_wait(value: str, seconds: float | None):
    assert retry_after({"retry-after": value}, datetime(2026, 11, 29, 12, tzinfo=UTC)) == seconds


class Stream(httpx2.SyncByteStream):
    """Chunks of an answer, then maybe a break."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def events(*chunks: bytes | Exception) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream(*chunks))


def test_events_go_on_after_a_break_where_they_were():
    told = Told(
        events(b"retry: 3000\nid: 1\ndata: a\n\nid: 2\ndata: lo", httpx2.ReadError("gone")),
        httpx2.ReadTimeout("silence"),
        events(b"id: 2\ndata: b\n\n"),
    )
    found = told.client().events({"kinds": "workload"})
    assert [next(found).data, next(found).data] == ["a", "b"]
    assert "last-event-id" not in told.requests[0].headers
    assert [request.headers["last-event-id"] for request in told.requests[1:]] == ["1", "1"]
    assert told.pauses == [3.0, 3.0]


def test_a_server_without_events_says_so_at_once():
    told = Told(answer({"title": "Not found"}, 404))
    with pytest.raises(ApiError) as error:
        next(told.client().events())
    assert error.value.status == 404


class Slow(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """Gives parts of a body one after another, and notes how many were asked for; a None breaks the connection."""

    def __init__(self, *parts: bytes | None) -> None:
        self.parts = parts
        self.given = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            if part is None:
                raise httpx2.ReadError("gone")
            self.given += 1
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


def test_an_export_is_given_in_parts_as_they_come():
    body = Slow(b'{"who":"\xc3', b'\xa4da"}\n', b"{}\n")
    told = Told(httpx2.Response(200, stream=body))
    parts = told.client().export_audit(who="ada", since="7d")
    first = next(parts)
    assert body.given < 3
    assert first + "".join(parts) == '{"who":"äda"}\n{}\n'
    assert str(told.requests[0].url) == f"{SERVER}/api/v1/audit/export?format=ndjson&who=ada&from=7d"


def test_an_export_is_asked_for_again_before_its_first_part_only():
    told = Told(answer(PROBLEM, 503), httpx2.Response(200, stream=Slow(b"a", b"b")))
    assert "".join(told.client().export_audit()) == "ab"
    assert len(told.pauses) == 1
    broken = Told(httpx2.Response(200, stream=Slow(b"a", None)), answer({}))
    parts = broken.client().export_audit()
    assert next(parts) == "a"
    with pytest.raises(UnreachableError):
        next(parts)
    assert broken.pauses == []


def test_an_export_that_is_refused():
    told = Told(answer({"title": "Forbidden", "status": 403}, 403))
    with pytest.raises(ApiError, match="Forbidden"):
        list(told.client().export_audit())


def test_an_export_for_asyncio():
    async def read() -> list[str]:
        told = Told(answer(PROBLEM, 503), httpx2.Response(200, stream=Slow(b"a", b"b")))
        return [part async for part in told.asynchronous().export_audit(format="csv")]

    assert "".join(asyncio.run(read())) == "ab"


USAGE_URL = f"{SERVER}/api/v1/usage?by=user&by=queue&from=last-month&to=this-month&step=1d&level=2&resource=gpu"


def test_usage_over_time_is_asked_for_by_both_clients():
    query = {"by": ["user", "queue"], "since": "last-month", "until": "this-month", "step": "1d", "level": 2}
    body = {"from": "", "to": "", "step": "1d", "by": [], "keptSince": None, "items": []}
    told = Told(answer(body), answer(body))
    assert told.client().usage(**query, resource="gpu") == body
    assert asyncio.run(awaited(told.asynchronous().usage(**query, resource="gpu"))) == body
    assert [str(request.url) for request in told.requests] == [USAGE_URL, USAGE_URL]


async def awaited(value: Awaitable[object]) -> object:
    return await value


def test_revisions_are_filtered_and_paged():
    told = Told(answer({"items": [{"number": 3}], "next": "3"}), answer({"items": [{"number": 1}], "next": None}))
    found = told.client().revisions(author="ada", since="7d", object="Queue/nlp", fields="number")
    assert list(found) == [{"number": 3}, {"number": 1}]
    query = "author=ada&from=7d&object=Queue%2Fnlp&fields=number&limit=50"
    urls = [str(request.url).partition("?")[2] for request in told.requests]
    assert urls == [query, f"{query}&cursor=3"]
