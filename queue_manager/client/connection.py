"""What both clients share: the address, the headers, and what an answer or a failure means."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx2

from queue_manager.client.call import Answer, Call
from queue_manager.client.problem import ApiError, ClientError, NotOursError, UnreachableError, problem_of
from queue_manager.client.retry import BUSY, UNAVAILABLE, Retry, retry_after

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EXAMPLE = "https://queues.example.com"


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and how to talk to it. Raises ValueError where `server` is no URL or the token none."""

    server: str
    token: str = field(default="", repr=False)
    timeout: float = 60.0
    retry: Retry = field(default_factory=Retry)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.server)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, brackets around no address
            usable = False
        if not usable:
            raise ValueError(f"{self.server!r} is not the URL of a server: write it like {EXAMPLE}")
        if not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("the token has characters that no token has")

    @property
    def base(self) -> str:
        """The URL without a slash at its end."""
        return self.server.rstrip("/")

    def options(self) -> dict[str, Any]:
        """What httpx clients are made with. Redirects are not followed: they would carry the token elsewhere."""
        headers = {"Accept": "application/json, application/yaml", "User-Agent": "queue-manager-client", **self.headers}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return {
            "headers": headers,
            "timeout": self.timeout,
            "follow_redirects": False,
            # Proxies of the environment are for the world outside.
            "trust_env": urlsplit(self.server).hostname not in LOOPBACK,
            "verify": self.tls if self.tls is not None else True,
        }

    def arguments(self, call: Call[Any]) -> dict[str, Any]:
        """What httpx sends for a call."""
        return {
            "method": call.method,
            "url": self.base + call.path,
            "params": call.pairs(),
            "content": call.body,
            "headers": dict(call.headers),
        }

    def stream_arguments(self, call: Call[Any], last_id: str) -> dict[str, Any]:
        """What httpx sends for a stream of events. A server that has nothing to tell says so from time to time."""
        arguments = self.arguments(call)
        arguments["headers"] = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        return arguments

    def streams(self, response: httpx2.Response) -> None:
        """Raises as `answered` does where this is no stream of events."""
        if not response.is_success:
            self.answered(response)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise NotOursError(f"{self.server} answered with something else than events")

    def answered(self, response: httpx2.Response) -> Answer:
        """The answer; raises ApiError for a problem, NotOursError for what no Queue Manager would say."""
        if response.is_success:
            return Answer(response.status_code, response.headers, response.content)
        problem = problem_of(response.status_code, response.content, response.headers)
        if problem is not None:
            raise problem
        raise NotOursError(f"{self.server} answered {response.status_code}, and not as a Queue Manager does")

    def read(self, call: Call[Any], answer: Answer) -> Any:
        """The value of an answer."""
        try:
            return call.read(answer)
        except ValueError:
            raise NotOursError(f"{self.server} did not answer in JSON") from None

    def failed(self, error: httpx2.TransportError | httpx2.InvalidURL) -> NoReturn:
        """Raises what a failure below HTTP means."""
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            cause = _cause(error)
            reason = "nothing answers there" if isinstance(cause, ConnectionRefusedError) else str(cause) or "no answer"
            raise UnreachableError(self.server, reason, refused=True) from error
        if isinstance(error, httpx2.TimeoutException):
            raise UnreachableError(self.server, f"no answer within {self.timeout:.0f} s", slow=True) from error
        if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" not in str(error):
            raise NotOursError(f"{self.server} does not speak HTTP as it should: {error}") from error
        raise UnreachableError(self.server, str(error) or type(error).__name__) from error

    def again_after(self, call: Call[Any], error: ClientError, failures: int) -> float | None:
        """Seconds until the call is sent again; None: the error stands."""
        asked = None
        match error:
            case ApiError(status=status) if status == BUSY or (status == UNAVAILABLE and call.repeatable):
                asked = retry_after(error.headers, datetime.now(UTC))
            case UnreachableError(refused=True) if self.retry.connect:
                pass
            case UnreachableError(refused=False, slow=False) if call.repeatable:
                pass
            case _:
                return None
        return self.retry.pause(failures, asked, self.jitter())


class Attempts:
    """How often one call has failed so far, and whether it is sent again."""

    def __init__(self, connection: Connection, call: Call[Any]) -> None:
        self._connection = connection
        self._call = call
        self._failures = 0

    def pause(self, error: ClientError, *, begun: bool = False) -> float:
        """Seconds until the call is sent again; raises the error where it stands, as it does once the answer has
        `begun` to be used."""
        self._failures += 1
        pause = None if begun else self._connection.again_after(self._call, error, self._failures)
        if pause is None:
            raise error
        return pause

    def reconnects(self, error: ClientError | None, asked: float | None) -> float:
        """The same for a stream of events that has ended, by an error or not; `asked` is what the server wants. Silence
        is no reason to give up."""
        silent = error is None or (isinstance(error, UnreachableError) and error.slow and not error.refused)
        pause = self._connection.retry.first if error is None or silent else self.pause(error)
        return max(pause, asked or 0.0)

    def went_well(self) -> None:
        """What failed before counts no more."""
        self._failures = 0


def _cause(error: BaseException) -> BaseException:
    """The operating system's word below what the libraries say."""
    deepest: BaseException = error
    while (below := deepest.__cause__ or deepest.__context__) is not None:
        deepest = below
    if isinstance(deepest, OSError):
        return deepest
    return error
