"""The program's own client, with failures that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from queue_manager.cli.errors import CommandError
from queue_manager.client import ApiError, ClientError, NotOursError, Retry, UnreachableError
from queue_manager.client import Client as Connected
from queue_manager.client.call import NOTHING, Call, Page, Query

T = TypeVar("T")
DEFAULT_SERVER = "http://127.0.0.1:8080"
PATIENCE = Retry(attempts=3, longest=10.0, connect=False)
"""People at a terminal would rather know than wait."""
_HOW_TO_START = "start one with `queue-manager up`, or name another with --server URL, QM_SERVER or --profile NAME"
_OTHER_SERVER = "is this the URL of a Queue Manager? See --server"


class ApiProblem(CommandError):
    """The server's problem document; `errors` is its list of findings."""

    def __init__(self, error: ApiError, hint: str = "") -> None:
        super().__init__(str(error), hint)
        self.status = error.status
        self.errors: list[Mapping[str, Any]] = list(error.errors)
        self.error_count = error.error_count


class Client(Connected):
    """One server. Every failure is a CommandError that says what to do."""

    def __init__(self, server: str, token: str = "", **more: Any) -> None:
        self._has_token = bool(token)
        try:
            super().__init__(server, token, **{"retry": PATIENCE, **more})
        except ValueError as error:
            hint = f"write it like {DEFAULT_SERVER}" if "URL" in str(error) else "check --token or QM_TOKEN"
            raise CommandError(str(error).partition(": write")[0], hint) from None

    def send(self, call: Call[T]) -> T:
        """The value that a call answers with."""
        return self._told(lambda: super(Client, self).send(call))

    def get(self, path: str, query: Query = NOTHING, **more: Any) -> Any:
        """JSON of a GET."""
        return super().get(path, {**query, **more})

    def listed(self, call: Call[Page[T]], at_most: int = 0) -> Iterator[T]:
        """Items of a list, page after page; `at_most` 0 is all."""
        for count, item in enumerate(self.items(call), 1):
            yield item
            if count == at_most:
                return

    def _told(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except ClientError as error:
            raise self._explained(error) from None

    def _explained(self, error: ClientError) -> CommandError:
        server = self.connection.server
        match error:
            case ApiError(status=401):
                given = "the token is not known here, or no longer" if self._has_token else "no token was given"
                return ApiProblem(error, f"{given}: give one with --token, QM_TOKEN or `queue-manager profile set`")
            case ApiError(status=429):
                return ApiProblem(
                    error, "the server answers only so many requests a second of one token: ask less often"
                )
            case ApiError():
                return ApiProblem(error)
            case UnreachableError(refused=True, reason="nothing answers there"):
                return CommandError(f"no server answers at {server}", _HOW_TO_START)
            case UnreachableError(slow=True, refused=False):
                return CommandError(f"{server} did not answer within {self.connection.timeout:.0f} s", _SLOW)
            case UnreachableError():
                return CommandError(str(error), "check --server, QM_SERVER or --profile")
            case NotOursError():
                return CommandError(str(error), _OTHER_SERVER)
        return CommandError(str(error))


_SLOW = "is the database reachable?"
