"""The transport against a server that misbehaves, and its credentials."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp import web

from queue_manager.cluster.credentials import Credentials, CredentialsError
from queue_manager.cluster.port import (
    CONFIG_MAPS,
    JOBS,
    NODES,
    PODS,
    ApiError,
    EventType,
    PatchType,
    Query,
    WatchEvent,
)
from queue_manager.cluster.simulated import VirtualClock
from queue_manager.cluster.transport import ApiServer
from tests.cluster import stub as stubs
from tests.cluster.stub import Stub, event, says, status, streams
from tests.control_plane.certificates import Authority


class Sleepless(VirtualClock):
    """Notes the pauses instead of making them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with stubs.stub_server() as made:
        yield made


@pytest.fixture
async def server(stub: Stub) -> AsyncIterator[ApiServer]:
    made = ApiServer(Credentials.token(stub.url, "s3cret"), clock=Sleepless(), random=Random(1), timeout=5)
    yield made
    await made.close()


async def watched(server: ApiServer, **options: str) -> list[WatchEvent]:
    stream: Any = server.watch(PODS, "7", Query(options=options))
    async with aclosing(stream):
        return [one async for one in stream]


async def test_paths_parameters_and_headers(stub: Stub, server: ApiServer) -> None:
    stub.answers = [says({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"metadata": {}}]})]
    page = await server.list(PODS, Query(namespace="n", label_selector="a=b", field_selector="c=d", limit=5), "next")
    assert (page.resource_version, page.continue_token) == ("9", "more")
    assert page.items == [{"metadata": {}, "apiVersion": "v1", "kind": "Pod"}]
    request = stub.seen[0]
    assert request.path == "/api/v1/namespaces/n/pods"
    assert dict(request.query) == {"labelSelector": "a=b", "fieldSelector": "c=d", "limit": "5", "continue": "next"}
    assert request.headers["Authorization"] == "Bearer s3cret"
    stub.answers = [says({})]
    await server.patch(JOBS, "n", "j", {"spec": {}}, PatchType.APPLY, force=True, subresource="status")
    await server.patch(JOBS, "n", "j", [{"op": "remove", "path": "/a"}], PatchType.JSON, field_manager="m")
    await server.create(NODES, "", {"metadata": {"name": "x"}})
    await server.delete(CONFIG_MAPS, "n", "c", uid="u", propagation="Foreground")
    apply, patch, create, delete = stub.seen[1:]
    assert apply.path == "/apis/batch/v1/namespaces/n/jobs/j/status"
    assert dict(apply.query) == {"fieldManager": "queue-manager", "force": "true"}
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert json.loads(stub.bodies[1]) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {},
        "metadata": {"name": "j"},
    }
    assert dict(patch.query) == {"fieldManager": "m"}
    assert patch.headers["Content-Type"] == "application/json-patch+json"
    assert create.path == "/api/v1/nodes"
    assert json.loads(stub.bodies[3])["kind"] == "Node"
    assert delete.method == "DELETE"
    body = json.loads(stub.bodies[4])
    assert (body["propagationPolicy"], body["preconditions"]) == ("Foreground", {"uid": "u"})


async def test_errors_carry_the_status_body(stub: Stub, server: ApiServer) -> None:
    stub.answers = [says(status(409, "AlreadyExists", "there is one"), 409)]
    with pytest.raises(ApiError) as conflict:
        await server.create(PODS, "n", {})
    assert (conflict.value.status, conflict.value.reason, conflict.value.message) == (
        409,
        "AlreadyExists",
        "there is one",
    )
    stub.answers = [says("<html>bad gateway</html>", 502)]
    with pytest.raises(ApiError) as gateway:
        await server.get(PODS, "n", "a")
    assert gateway.value.transient
    assert "bad gateway" in gateway.value.message
    stub.answers = [says("not json")]
    with pytest.raises(ApiError) as garbled:
        await server.get(PODS, "n", "a")
    assert (garbled.value.status, garbled.value.reason) == (0, "Undecodable")


async def test_throttling_is_waited_out_and_given_up_in_the_end(stub: Stub, server: ApiServer) -> None:
    slow_down = says(status(429, "TooManyRequests"), 429, **{"Retry-After": "7"})
    stub.answers = [slow_down, says({"metadata": {"name": "a"}})]
    assert await server.get(PODS, "n", "a") == {"metadata": {"name": "a"}}
    clock: Any = server._clock
    assert len(clock.pauses) == 1
    assert 7 <= clock.pauses[0] < 8
    stub.answers = [slow_down]
    with pytest.raises(ApiError) as throttled:
        await server.patch(PODS, "n", "a", {}, PatchType.MERGE)
    assert (throttled.value.status, throttled.value.retry_after) == (429, 7.0)
    assert throttled.value.transient
    assert len(stub.seen) == 2 + 3


async def test_a_server_error_is_not_repeated(stub: Stub, server: ApiServer) -> None:
    stub.answers = [says(status(500, "InternalError", "boom"), 500)]
    with pytest.raises(ApiError) as failed:
        await server.create(PODS, "n", {})
    assert failed.value.transient
    assert len(stub.seen) == 1


async def test_no_server_and_no_answer(stub: Stub) -> None:
    nobody = ApiServer(Credentials.token("http://127.0.0.1:1"))
    with pytest.raises(ApiError) as refused:
        await nobody.get(PODS, "n", "a")
    assert (refused.value.status, refused.value.reason) == (0, "Unreachable")
    await nobody.close()

    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    stub.answers = [never]
    patient = ApiServer(Credentials.token(stub.url), timeout=0.1)
    with pytest.raises(ApiError) as silent:
        await patient.get(PODS, "n", "a")
    assert (silent.value.status, silent.value.reason) == (0, "Timeout")
    await patient.close()
    with pytest.raises(ApiError) as closed:
        await patient.get(PODS, "n", "a")
    assert closed.value.reason == "Closed"


async def test_redirects_are_not_followed(stub: Stub, server: ApiServer) -> None:
    stub.answers = [says("", 302, Location="http://elsewhere.example.com/")]
    with pytest.raises(ApiError) as refused:
        await server.get(PODS, "n", "a")
    assert refused.value.status == 302


async def test_events_survive_any_chunking(stub: Stub, server: ApiServer) -> None:
    text = event("ADDED", "a", "8") + event("MODIFIED", "a", "9", note="ü" * 5000) + event("BOOKMARK", "b", "10")
    chunks = [text[start : start + 997] for start in range(0, len(text), 997)]
    stub.answers = [streams(*chunks, b"\n")]
    events = await watched(server, timeoutSeconds="5")
    assert [one.type for one in events] == [EventType.ADDED, EventType.MODIFIED, EventType.BOOKMARK]
    assert events[1].object["note"] == "ü" * 5000
    query = dict(stub.seen[0].query)
    assert query == {"watch": "true", "resourceVersion": "7", "allowWatchBookmarks": "true", "timeoutSeconds": "5"}


IN_STREAM = b'{"type":"ERROR","object":{"code":%d,"reason":"%s"}}\n'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (says(status(410, "Expired", "too old"), 410), (410, "Expired")),
        (streams(event("ADDED"), IN_STREAM % (410, b"Expired")), (410, "Expired")),
        (streams(event("ADDED"), IN_STREAM % (500, b"InternalError")), (500, "InternalError")),
        (streams(event("ADDED"), b'{"type":"ADD'), (0, "Disconnected")),
        (streams(event("ADDED"), b'{"type":"ADD', cut=True), (0, "Unreachable")),
        (streams(event("ADDED"), b"what?\n"), (0, "Undecodable")),
        (says(status(404, "NotFound"), 404), (404, "NotFound")),
    ],
)
async def test_how_a_watch_goes_wrong(stub: Stub, server: ApiServer, answer: Any, expected: tuple[int, str]) -> None:
    stub.answers = [answer]
    with pytest.raises(ApiError) as failed:
        await watched(server)
    assert (failed.value.status, failed.value.reason) == expected
    assert failed.value.gone is (expected[0] == 410)


async def test_a_silent_watch_is_taken_for_dead(stub: Stub, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_manager.cluster.transport.QUIET_MARGIN", 0.2)
    stub.answers = [streams(event("ADDED"), 30.0)]
    with pytest.raises(ApiError) as dead:
        await asyncio.wait_for(watched(server, timeoutSeconds="0"), 5)
    assert (dead.value.status, dead.value.reason) == (0, "Timeout")


async def test_leaving_a_watch_closes_its_connection(stub: Stub, server: ApiServer) -> None:
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED"))
        try:
            while True:
                await asyncio.sleep(0.01)
                await response.write(b"\n")
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    stub.answers = [answer]
    stream: Any = server.watch(PODS, "7")
    async with aclosing(stream):
        async for _ in stream:
            break
    await asyncio.wait_for(gone.wait(), 5)


async def test_discovery_is_remembered_for_a_while(stub: Stub, server: ApiServer) -> None:
    clock: Any = server._clock
    stub.answers = [says({"resources": [{"name": "pods"}, {"name": "pods/status"}]})]
    assert await server.serves(PODS)
    assert await server.serves(PODS)
    assert not await server.serves(CONFIG_MAPS)
    assert len(stub.seen) == 1
    clock._passed += 3  # a no is forgotten sooner than a yes
    assert await server.serves(PODS)
    assert len(stub.seen) == 1
    assert not await server.serves(CONFIG_MAPS)
    assert len(stub.seen) == 2
    clock._passed += 60
    stub.answers = [says(status(404, "NotFound"), 404)]
    assert not await server.serves(PODS)
    stub.answers = [says(status(503, "ServiceUnavailable"), 503)]
    clock._passed += 60
    with pytest.raises(ApiError):
        await server.serves(PODS)


def kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> str:
    path = folder / "config"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def seen_authorization(stub: Stub, credentials: Credentials) -> list[str | None]:
    server = ApiServer(credentials, clock=Sleepless())
    await server.get(PODS, "n", "a")
    await server.close()
    return [request.headers.get("Authorization") for request in stub.seen]


async def test_kubeconfig_with_a_token(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [says({})]
    path = kubeconfig(tmp_path, stub.url + "/prefix", {"token": "abc"})
    assert await seen_authorization(stub, Credentials.kubeconfig(path)) == ["Bearer abc"]
    assert stub.seen[0].path == "/prefix/api/v1/namespaces/n/pods/a"


async def test_kubeconfig_with_an_exec_plugin(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [says({})]
    plugin = tmp_path / "plugin"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    setting = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    path = kubeconfig(tmp_path, stub.url, {"exec": setting})
    assert await seen_authorization(stub, Credentials.kubeconfig(path)) == ["Bearer made"]


async def test_a_token_file_that_rotated_is_read_again_after_401(stub: Stub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    path = kubeconfig(tmp_path, stub.url, {"tokenFile": str(token)})

    async def guard(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer new":
            return web.json_response({})
        token.write_text("new")
        return web.json_response(status(401, "Unauthorized"), status=401)

    stub.answers = [guard]
    assert await seen_authorization(stub, Credentials.kubeconfig(path)) == ["Bearer old", "Bearer new"]


async def test_a_401_that_stays_is_an_error(stub: Stub, server: ApiServer) -> None:
    stub.answers = [says(status(401, "Unauthorized", "who are you"), 401)]
    with pytest.raises(ApiError) as refused:
        await server.get(PODS, "n", "a")
    assert refused.value.status == 401
    assert len(stub.seen) == 2
    with pytest.raises(ApiError) as unwatched:
        await watched(server)
    assert unwatched.value.status == 401


async def test_unusable_credentials_are_a_clear_error(tmp_path: Path) -> None:
    missing = Credentials.kubeconfig(str(tmp_path / "none"))
    with pytest.raises(CredentialsError, match="none"):
        missing.access()
    server = ApiServer(missing)
    with pytest.raises(ApiError) as refused:
        await server.get(PODS, "n", "a")
    assert (refused.value.status, refused.value.reason) == (0, "Credentials")
    await server.close()


def test_the_token_of_a_service_account_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    ca.write_bytes(Authority("test").certificate)
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    credentials = Credentials.default()
    before = credentials.access()
    assert (before.host, before.authorization) == ("https://10.0.0.1:443", "bearer first")
    assert before.tls is not None
    assert before.tls.verify_mode is ssl.CERT_REQUIRED
    token.write_text("second\n")
    after = credentials.reload()
    assert after.authorization == "bearer second"
    assert after.tls is before.tls  # equal files, so pooled connections stay usable


def test_secrets_stay_out_of_representations(tmp_path: Path) -> None:
    access = Credentials.token("http://h", "s3cret").access()
    assert access.authorization == "Bearer s3cret"
    assert "s3cret" not in repr(access)
