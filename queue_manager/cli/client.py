"""A small client of the REST API on the standard library, so that commands start fast."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from queue_manager.cli.errors import CommandError

DEFAULT_SERVER = "http://127.0.0.1:8080"
Query = Mapping[str, Any]
NO_QUERY: Query = {}
_HOW_TO_START = "start one with `queue-manager up`, or name another with --server URL or QM_SERVER"
_OTHER_SERVER = "is this the URL of a Queue Manager? See --server"


class ApiProblem(CommandError):
    """The server's problem document; `errors` is its list of findings."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        title = str(document.get("title", "error"))
        detail = str(document.get("detail", ""))
        super().__init__(f"{title}: {detail}" if detail else title)
        self.status = status
        self.errors: list[Mapping[str, Any]] = list(document.get("errors", ()))
        self.error_count = int(document.get("errorCount", len(self.errors)))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        # A redirect would carry the token to wherever it points.
        return None


class Client:
    """One server. Every failure is a CommandError that says what to do."""

    def __init__(self, server: str, token: str = "", timeout: float = 60.0) -> None:
        try:
            parts = urlsplit(server)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, brackets around no address
            usable = False
        if not usable:
            raise CommandError(f"{server!r} is not the URL of a server", f"write it like {DEFAULT_SERVER}")
        if not (token.isascii() and token.isprintable()):
            raise CommandError("the token has characters that no token has", "check --token or QM_TOKEN")
        self.server = server.rstrip("/")
        self._token = token
        self._timeout = timeout
        handlers: list[Any] = [_NoRedirects(), urllib.request.HTTPSHandler(context=ssl.create_default_context())]
        if parts.hostname in ("localhost", "127.0.0.1", "::1"):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, query: Query = NO_QUERY, **more: Any) -> Any:
        """JSON of a GET; empty query values are left out, lists are repeated."""
        return self._json("GET", path, {**query, **more})

    def text(self, path: str, query: Query = NO_QUERY) -> str:
        """Text of a GET."""
        return self._request("GET", path, query).decode()

    def put(self, path: str, body: str, media_type: str, query: Query = NO_QUERY) -> Any:
        """JSON of a PUT."""
        return self._json("PUT", path, query, body.encode(), media_type)

    def post(self, path: str, body: Mapping[str, Any], query: Query = NO_QUERY) -> Any:
        """JSON of a POST of JSON."""
        return self._json("POST", path, query, json.dumps(body).encode(), "application/json")

    def post_text(self, path: str, body: str, media_type: str, query: Query = NO_QUERY) -> Any:
        """JSON of a POST of text."""
        return self._json("POST", path, query, body.encode(), media_type)

    def items(self, path: str, query: Query = NO_QUERY, at_most: int = 0) -> Iterator[Any]:
        """Items of a list, page after page; `at_most` 0 is all."""
        cursor, count = "", 0
        while True:
            page = self.get(path, {**query, "cursor": cursor})
            for item in page["items"]:
                yield item
                count += 1
                if count == at_most:
                    return
            cursor = page["next"]
            if not cursor:
                return

    def _json(self, method: str, path: str, query: Query, body: bytes | None = None, media: str = "") -> Any:
        content = self._request(method, path, query, body, media)
        try:
            return json.loads(content)
        except ValueError:
            raise CommandError(f"{self.server} did not answer in JSON", _OTHER_SERVER) from None

    def _request(self, method: str, path: str, query: Query, body: bytes | None = None, media: str = "") -> bytes:
        pairs = [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, values in query.items()
            for value in (values if isinstance(values, list | tuple) else [values])
            if value not in ("", None)
        ]
        url = f"{self.server}{quote(path)}" + (f"?{urlencode(pairs)}" if pairs else "")
        headers = {"Accept": "application/json, application/yaml"}
        if media:
            headers["Content-Type"] = media
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                content: bytes = response.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise self._problem(error.code, error.read()) from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None
        except (TimeoutError, ConnectionError) as error:
            raise self._unreachable(error) from None
        except http.client.HTTPException:
            raise CommandError(f"{self.server} does not speak HTTP as it should", _OTHER_SERVER) from None

    def _problem(self, status: int, content: bytes) -> CommandError:
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict) or "title" not in document:
            return CommandError(f"{self.server} answered {status}", _OTHER_SERVER)
        return ApiProblem(status, document)

    def _unreachable(self, reason: object) -> CommandError:
        if isinstance(reason, ConnectionRefusedError):
            return CommandError(f"no server answers at {self.server}", _HOW_TO_START)
        if isinstance(reason, TimeoutError):
            return CommandError(
                f"{self.server} did not answer within {self._timeout:.0f} s", "is the database reachable?"
            )
        return CommandError(f"can't reach {self.server}: {reason}", "check --server or QM_SERVER")
