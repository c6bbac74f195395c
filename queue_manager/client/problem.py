"""What can go wrong with a request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Anything that keeps a request from being answered. `str` is one sentence for people."""


class UnreachableError(ClientError):
    """No answer: nothing listens there, the name is not known, TLS failed, or it took too long.

    `refused` is whether certainly nothing was done: the connection was not even made. `slow` is whether time ran out.
    """

    def __init__(self, server: str, reason: str, *, refused: bool = False, slow: bool = False) -> None:
        super().__init__(f"can't reach {server}: {reason}")
        self.server = server
        self.reason = reason
        self.refused = refused
        self.slow = slow


class NotOursError(ClientError):
    """Something answered that is no Queue Manager: another program, a proxy, a redirect to a login page."""


class ApiError(ClientError):
    """The server's problem document (RFC 9457).

    `errors` are its findings, each with what it has of `file`, `line`, `kind`, `name`, `field`, `message` and `hint`;
    `error_count` is how many were found where not all were sent. `retry_after` are the seconds that the server asked
    to wait, None if it did not.
    """

    def __init__(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.title = str(document.get("title", "error"))
        self.detail = str(document.get("detail", ""))
        self.errors: Sequence[Mapping[str, Any]] = list(document.get("errors", ()))
        self.error_count = int(document.get("errorCount", len(self.errors)))
        self.document = document
        self.headers: Mapping[str, str] = headers or {}
        super().__init__(f"{self.title}: {self.detail}" if self.detail else self.title)

    @property
    def request_id(self) -> str:
        """What the server's log calls this request; "" where it does not say."""
        return str(self.headers.get("x-request-id", ""))


def problem_of(status: int, content: bytes, headers: Mapping[str, str]) -> ApiError | None:
    """The problem in an answer; None if it is none, so that somebody else must have answered."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    if not isinstance(document, dict) or "title" not in document:
        return None
    return ApiError(status, document, headers)
