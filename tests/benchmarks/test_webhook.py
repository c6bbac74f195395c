"""What the figure of the webhook posts is what was recorded, and what is not allowed is counted."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import msgspec

from benchmarks.webhook import Call, _post, _recorder
from queue_manager.webhook.certificates import renew
from queue_manager.webhook.server import WebhookServer, application
from queue_manager.webhook.tls import Tls
from tests.webhook.fakes import decider

HEAD = b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"


def call(name: str = "small-0000") -> Call:
    """A call as a recorder keeps it."""
    request = {"uid": "1", "name": name, "object": {"metadata": {"name": name}}}
    body = msgspec.json.encode({"request": request})
    return Call("/mutate", HEAD % len(body), body)


def test_each_call_is_about_another_job_of_the_same_length() -> None:
    asked = call()
    sent = asked.named(10_042)
    body = msgspec.json.decode(sent.removeprefix(asked.head))
    assert body["request"]["name"] == body["request"]["object"]["metadata"]["name"] == "small-0042"
    assert len(sent) == len(asked.head) + len(asked.body)


async def test_recorded_is_the_first_call_of_each_job_and_all_are_allowed() -> None:
    certificates = renew(None, datetime.now(UTC), ("127.0.0.1",))
    tls = Tls()
    tls.load(certificates)
    found: dict[tuple[str, str], Call] = {}
    trusting = ssl.create_default_context(cadata=certificates.bundle.decode())
    with _recorder(tls.context, found) as port:
        for kept in (True, False):
            assert await _post(port, trusting, [call("small-0000"), call("large-0000")], 40, kept) == 0
    assert ("small-0000", "/mutate") in found
    kept_call = found["small-0000", "/mutate"]
    assert kept_call.body == call().body
    assert kept_call.head == call().head


async def test_calls_that_are_not_allowed_are_counted() -> None:
    certificates = renew(None, datetime.now(UTC), ("127.0.0.1",))
    tls = Tls()
    tls.load(certificates)
    trusting = ssl.create_default_context(cadata=certificates.bundle.decode())
    server = WebhookServer(application(decider(), lambda: True), tls, "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    try:
        assert await _post(server.port, trusting, [call()], 3, True) == 3  # no AdmissionReview: answered with 400
    finally:
        server.stop()
        await serving
