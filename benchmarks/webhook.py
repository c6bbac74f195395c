"""What one call of our webhook costs: AdmissionReviews of a load's Jobs, posted again and again to its process."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.load.loads import LOADS, Class, Load, configuration, job_body, queue_name
from benchmarks.machine import Meter
from benchmarks.report import Report
from benchmarks.world import BARE, World, create_all, world
from queue_manager.webhook.certificate_stores import FolderStore
from queue_manager.webhook.certificates import ensure_certificates
from queue_manager.webhook.registration import Url, configurations
from queue_manager.webhook.tls import Tls
from tests.control_plane.client import JOB
from tests.e2e.product import WEBHOOKS, wait_for

SIZES = {"full": (10_000, 500, 2_000), "small": (500, 50, 100)}
"""Calls over kept connections; new connections of one call each; Jobs created with and without our webhook."""

CONNECTIONS = 25
"""Idle connections that an API server keeps to one address."""
BURST = 30
"""Jobs that are created at once: one in each queue of `baseline`."""
RECORDER = "a-recorder.example"
"""Its name comes before ours, so it is asked before we have changed anything."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the API server sent it. `allowed` is in each right answer."""

    path: str
    head: bytes
    body: bytes

    def named(self, number: int) -> bytes:
        """The same for another Job, whose name is as long."""
        name = msgspec.json.decode(self.body)["request"]["name"].encode()
        other = name[: name.rindex(b"-") + 1] + f"{number % 10_000:04}".encode()
        return self.head + self.body.replace(name, other)


def run(size: str, keep: Path | None) -> list[Report]:
    """One report: our side alone, then what the calls cost the API server."""
    calls, fresh, created = SIZES[size]
    load = LOADS["baseline"]
    report = Report(f"webhook: processor time of a call, Jobs of {load.name}")
    with world(keep, **BARE) as made:
        names = [queue_name(number) for number in range(load.queues)]
        spaces = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names)
        create_all(made.cluster, spaces)
        made.product.configure_all(configuration(load))
        with made.product.running():
            recorded = _record(made, load)
            sizes = ", ".join(f"{call.path} {len(call.body)} bytes" for call in recorded[:2])
            report.note(f"{len(recorded)} requests recorded of the API server: {sizes}")
            process = made.processes()["our webhook"]
            for path in sorted({call.path for call in recorded}):
                chosen = [call for call in recorded if call.path == path]
                _replay(report, made, process, f"{path}, {CONNECTIONS} kept connections", chosen, calls // 2)
            _replay(report, made, process, "the same, a new connection for each call", recorded, fresh, kept=False)
            _creations(report, made, load, created)
    return [report]


# --- recording ----------------------------------------------------------------------------------------------------


def _record(made: World, load: Load) -> Sequence[Call]:
    """What the API server posts for the creation of one Job of each class."""
    folder = made.product.folder / "recorder"
    certificates = asyncio.run(ensure_certificates(FolderStore(folder), datetime.now(UTC), ("127.0.0.1",)))
    tls = Tls()
    tls.load(certificates)
    found: dict[tuple[str, str], Call] = {}
    with _recorder(tls.context, found) as port:
        url = Url(f"https://127.0.0.1:{port}")
        for registered in configurations(url, certificates.bundle).values():
            made.cluster.client.create({**registered, "metadata": {"name": RECORDER}})
        try:
            wait_for(lambda: _dry(made, load, load.classes[0]) or len(found) == 2, "the recorder is asked")
            for each in load.classes:
                _dry(made, load, each)
        finally:
            for kind in WEBHOOKS:
                made.cluster.client.delete(kind, RECORDER)
    return [found[key] for key in sorted(found)]


def _dry(made: World, load: Load, each: Class, number: int = 0) -> None:
    client = made.cluster.client
    path = client.path(JOB, namespace=queue_name(number % load.queues))
    body = job_body(f"{each.name}-{number:04}", each, each.shapes[0])
    client.request("POST", path, body, query={"dryRun": "All"})


@contextmanager
def _recorder(context: ssl.SSLContext, found: dict[tuple[str, str], Call]) -> Iterator[int]:
    """A webhook that allows everything and keeps the first call of each Job name and path; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
            path, asked = self.path.partition("?")[0], msgspec.json.decode(body)["request"]
            found.setdefault((asked["name"], path), Call(path, "\r\n".join(lines).encode(), body))
            answer = msgspec.json.encode(_allowed(asked["uid"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _allowed(uid: str) -> Mapping[str, Any]:
    response = {"uid": uid, "allowed": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


# --- replaying ----------------------------------------------------------------------------------------------------


def _replay(
    report: Report, made: World, process: list[int], what: str, calls: Sequence[Call], count: int, *, kept: bool = True
) -> None:
    """Posts the calls to our webhook, which is asked by nobody else meanwhile."""
    webhooks = made.cluster.client.get(WEBHOOKS[0], "queue-manager.io")["webhooks"]
    port = int(webhooks[0]["clientConfig"]["url"].split(":")[2].partition("/")[0])
    context = ssl.create_default_context(cafile=str(_bundle(made, webhooks)))
    asyncio.run(_post(port, context, calls, 20 * len(calls), kept))
    meter = Meter({"webhook": process})
    failed = asyncio.run(_post(port, context, calls, count, kept))
    passed, spent = meter.read()
    value = f"{1000 * spent['webhook'] / count:.3f} ms of processor time ({count / passed:.0f} calls/s)"
    report.value(what, value, "<= 0.5 ms" if kept else "")
    if failed:
        report.note(f"{what}: {failed} of {count} calls were not allowed")


def _bundle(made: World, webhooks: Sequence[Mapping[str, Any]]) -> Path:
    path: Path = made.product.folder / "bundle.pem"
    path.write_bytes(msgspec.json.decode(f'"{webhooks[0]["clientConfig"]["caBundle"]}"'.encode(), type=bytes))
    return path


async def _post(port: int, context: ssl.SSLContext, calls: Sequence[Call], count: int, kept: bool) -> int:
    """Sends `count` calls; how many were not answered with an allowance."""
    numbered = enumerate(islice(cycle(calls), count))
    failed = 0

    async def one(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> None:
        nonlocal failed
        reader, writer = streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        failed += b'"allowed":true' not in await reader.readexactly(length)

    async def connection() -> None:
        streams = None
        for number, call in numbered:
            if streams is None:
                streams = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await one(streams, call.named(number))
            if not kept:
                streams = await _closed(streams)
        if streams is not None:
            await _closed(streams)

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return failed


async def _closed(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    streams[1].close()
    await streams[1].wait_closed()


# --- the API server -----------------------------------------------------------------------------------------------


def _creations(report: Report, made: World, load: Load, count: int) -> None:
    """Dry runs of creations, so that etcd and controller have no part in it: with us, then without."""
    parts = {name: pids for name, pids in made.processes().items() if name in ("kube-apiserver", "our webhook")}
    each = load.classes[0]

    def burst(pool: ThreadPoolExecutor, first: int) -> None:
        list(pool.map(lambda number: _dry(made, load, each, number), range(first, first + BURST)))

    with ThreadPoolExecutor(BURST) as pool:
        for what in (f"creations (dry), {BURST} at once, asking us twice each", "the same without our webhook"):
            if "without" in what:
                made.product.remove_webhooks()
                time.sleep(2)  # the API server notices
            burst(pool, 0)
            meter = Meter(parts)
            for first in range(0, count, BURST):
                burst(pool, first)
            _, spent = meter.read()
            done = len(range(0, count, BURST)) * BURST
            costs = ", ".join(f"{name} {1000 * used / done:.2f}" for name, used in spent.items())
            report.value(what, f"{costs} ms of processor time for each Job")
