"""The HTTPS server for real, on the loopback address."""

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import ssl
from datetime import UTC, datetime

import pytest

from queue_manager.webhook.certificates import renew, renewal_time
from queue_manager.webhook.owners import nothing_to_read
from queue_manager.webhook.review import Verdict
from queue_manager.webhook.server import BODY_LIMIT, WebhookServer, application, nothing_newer
from queue_manager.webhook.tls import Tls
from tests.webhook.fakes import ALICE_ANNOTATIONS, TEAM_QUEUE, decider, job

NAMES = ("localhost", "127.0.0.1")


def review(obj, operation="CREATE", old=None):
    """An AdmissionReview as an API server posts it, with fields that we don't read."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "requestKind": {"group": "batch", "version": "v1", "kind": "Job"},
        "name": obj["metadata"]["name"],
        "namespace": "ml",
        "operation": operation,
        "userInfo": {"username": "alice", "uid": "7", "groups": ["nlp", "system:authenticated"], "extra": {"a": ["b"]}},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "kubectl-create"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Client:
    """Posts to the server from a thread, trusting one CA bundle."""

    def __init__(self, port: int, bundle: bytes) -> None:
        self.port = port
        self.context = ssl.create_default_context(cadata=bundle.decode())

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method, path, body):
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=10, context=self.context)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    async def review(self, path: str, posted: dict) -> dict:
        status, body = await self.ask("POST", path, json.dumps(posted).encode())
        assert status == 200, body
        answer = json.loads(body)
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert answer["response"]["uid"] == posted["request"]["uid"]
        return answer["response"]


@contextlib.asynccontextmanager
async def serving(decisions=None, ready=lambda: True, refresh=nothing_newer, read=nothing_to_read):
    """A running server; gives a client that trusts it, and its TLS with the certificates."""
    now = datetime.now(UTC)
    certificates = renew(None, now, NAMES)
    tls = Tls()
    tls.load(certificates)
    server = WebhookServer(application(decisions or decider(), ready, refresh, read), tls, "127.0.0.1", 0)
    task = asyncio.create_task(server.serve())
    try:
        yield Client(server.port, certificates.bundle), tls, certificates
    finally:
        server.stop()
        await task


async def test_mutates():
    async with serving() as (client, _, _):
        response = await client.review("/mutate", review(job(labels=TEAM_QUEUE)))
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
    operations = json.loads(base64.b64decode(response["patch"]))
    assert {"op": "add", "path": "/spec/suspend", "value": True} in operations
    assert {"op": "add", "path": "/metadata/annotations", "value": ALICE_ANNOTATIONS} in operations


def test_no_answer_waits_for_an_acknowledgement():
    server = WebhookServer(application(decider(), lambda: True), Tls(), "127.0.0.1", 0)
    with server._socket, socket.create_connection(("127.0.0.1", server.port)):
        accepted, _ = server._socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_path_tells_that_the_namespace_is_managed():
    async with serving() as (client, _, _):
        assert "patch" not in await client.review("/mutate", review(job()))
        assert "patch" in await client.review("/mutate/namespace", review(job()))


async def test_refuses_with_the_field():
    new = job(labels={"queue-manager.io/queue": "research"}, suspend=False)
    async with serving() as (client, _, _):
        response = await client.review("/validate", review(new, "UPDATE", job(labels=TEAM_QUEUE, suspend=False)))
    assert not response["allowed"]
    assert response["status"]["message"].startswith("metadata.labels[queue-manager.io/queue]: ")
    assert response["status"]["code"] == 422


@pytest.mark.parametrize("newer", [True, False])
async def test_what_a_job_names_may_have_been_made_a_moment_ago(newer):
    levels = set()

    class Names:
        def mutate(self, request):
            return Verdict()

        def validate(self, request):
            return Verdict() if "rack" in levels else Verdict(refused="'rack' is no level of any topology")

    async def refresh():
        if newer:
            levels.add("rack")
        return newer

    async with serving(Names(), refresh=refresh) as (client, _, _):
        response = await client.review("/validate", review(job(labels=TEAM_QUEUE)))
    assert response["allowed"] is newer


async def test_warns():
    async with serving() as (client, _, _):
        response = await client.review("/validate", review(job(labels={"queue-manager.io/queue": "teem"})))
    assert response["allowed"]
    assert "did you mean 'team'?" in response["warnings"][0]


async def test_probes():
    ready = False
    async with serving(ready=lambda: ready) as (client, _, _):
        assert (await client.ask("GET", "/healthz"))[0] == 200
        assert (await client.ask("GET", "/readyz"))[0] == 503
        ready = True
        assert (await client.ask("GET", "/readyz"))[0] == 200
        assert (await client.ask("GET", "/mutate"))[0] == 405


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "1"}}']
)
async def test_what_is_no_review_is_a_bad_request(body):
    async with serving() as (client, _, _):
        assert (await client.ask("POST", "/validate", body))[0] == 400


async def test_endless_body_is_refused():
    async with serving() as (client, _, _):
        assert (await client.ask("POST", "/mutate", b" " * (BODY_LIMIT + 1)))[0] == 413


async def test_failure_of_a_decision_allows_nothing():
    class Broken:
        def mutate(self, request):
            return Verdict()

        def validate(self, request):
            raise KeyError("spec")

    async with serving(Broken()) as (client, _, _):
        status, body = await client.ask("POST", "/validate", json.dumps(review(job())).encode())
    assert status == 500
    assert b"allowed" not in body


async def test_new_certificate_is_served_without_a_restart():
    async with serving() as (client, tls, certificates):
        assert (await client.ask("GET", "/healthz"))[0] == 200
        other = renew(None, datetime.now(UTC), NAMES)
        assert tls.load(other)
        assert not tls.load(other)
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.ask("GET", "/healthz")
        assert (await Client(client.port, other.bundle).ask("GET", "/healthz"))[0] == 200
        rotated = renew(certificates, renewal_time(certificates.authority), NAMES)
        assert rotated.old_authority == certificates.authority
