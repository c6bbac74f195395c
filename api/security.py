"""What keeps foreign pages from reaching the server by a browser, and an unauthenticated server on loopback."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import problem_response

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(host: str) -> None:
    """Raises ValueError with the reason when a server without authentication may not listen on `host`."""
    if not is_loopback(host):
        raise ValueError(
            f"refused to listen on {host!r}: without authentication the API listens on loopback only. "
            "Use --auth required, or --host 127.0.0.1 and reach it by an SSH tunnel or kubectl port-forward"
        )


def _host_name(value: str) -> str:
    if value.startswith("["):
        return value.partition("]")[0].strip("[")
    return value.rpartition(":")[0] if ":" in value else value


class Guard:
    """ASGI middleware: adds security headers; refuses foreign Host names (DNS rebinding) and cross-site writes."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] = frozenset()) -> None:
        """`hosts` are names that requests may be for, beside those of this machine; "*" is any."""
        self.app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if b"\0" in scope.get("raw_path", b"") or "\0" in scope["path"] or b"%00" in scope["query_string"]:
            # PostgreSQL's text has no NUL, so nothing can have such a name.
            await problem_response(400, "Bad request", "a NUL character is in the URL")(
                scope, receive, send_with_headers
            )
            return
        refusal = _refusal(Headers(scope=scope), scope["method"], self._hosts)
        if refusal:
            await problem_response(403, "Forbidden", refusal)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)


def _refusal(headers: Headers, method: str, hosts: frozenset[str]) -> str:
    host = headers.get("host", "")
    name = _host_name(host).lower()
    if not (is_loopback(name) or name in hosts or ("*" in hosts and name)):
        if hosts:
            return f"host {host!r} is not one that this server answers to; see --allowed-host"
        return f"host {host!r} is not this machine; without authentication the API answers to localhost only"
    if method not in SAFE_METHODS and _is_foreign(headers):
        return "a page of another site may not change anything here"
    return ""


def _is_foreign(headers: Headers) -> bool:
    """Whether a browser says that the request comes from a page of another site."""
    if "sec-fetch-site" in headers:
        return headers["sec-fetch-site"] not in ("none", "same-origin")
    origin = headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
