"""A loopback proxy between one of our processes and the API server that strikes at a chosen request.

The process talks plain HTTP to it; it passes every byte on over TLS. `arm` names a request and a moment: "before" it
reaches the API server, or "after" the API server has done it and before the process has heard so.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import yaml

from tests.e2e.product import Product

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the process."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    raw: bytes


class Breaker:
    """Runs from `with` to its end, on a thread of its own; `struck` is set once the armed request came and `action` was
    done."""

    def __init__(self, server: str, ca_file: str) -> None:
        parts = urlsplit(server)
        self._upstream = (str(parts.hostname), int(parts.port or 443))
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._match: Callable[[Request], bool] | None = None
        self._when: When = "before"
        self._action: Callable[[], None] = lambda: None
        self.struck = threading.Event()
        self.url = ""

    def __enter__(self) -> Breaker:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def arm(self, match: Callable[[Request], bool], when: When, action: Callable[[], None]) -> None:
        """Strikes once, at the next request that matches."""
        self.struck.clear()
        self._when, self._action, self._match = when, action, match

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the process, with one of its own to the API server."""
        upstream, forward = await asyncio.open_connection(*self._upstream, ssl=self._tls, limit=1 << 20)
        back = asyncio.create_task(_pump(upstream, writer))
        try:
            while (request := await _read(reader)) is not None:
                if self._match is None or not self._match(request):
                    forward.write(request.raw)
                    await forward.drain()
                    continue
                self._match = None
                if self._when == "after":
                    # The answer goes nowhere.
                    back.cancel()
                    await asyncio.wait({back})
                    forward.write(request.raw)
                    await upstream.read(1)
                await asyncio.to_thread(self._action)
                self.struck.set()
                return
        except OSError:
            return
        finally:
            back.cancel()
            for stream in (writer, forward):
                stream.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Passes answers on until the API server ends the connection."""
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection, None at its end. Our own processes send bodies with a length, never chunked."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines if line)}
        assert "transfer-encoding" not in headers, first
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body, head + body)


@contextmanager
def through_breaker(product: Product, directory: Path) -> Iterator[Breaker]:
    """The product's controller reaches the API server through a breaker, once it is started."""
    cluster, command = product.cluster, product.controller.command
    with Breaker(cluster.server, str(cluster.ca_file)) as breaker:
        place = command.index("--kubeconfig") + 1
        kubeconfig = yaml.safe_load(Path(command[place]).read_text())
        kubeconfig["clusters"][0]["cluster"] = {"server": breaker.url}
        path = directory / "through-breaker.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        command[place] = str(path)
        yield breaker
