"""The program's own client, with failures that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from queue_manager.cli.errors import CommandError
from queue_manager.client import ApiError, ClientError, Event, NotOursError, Retry, UnreachableError, operations
from queue_manager.client import Client as Connected
from queue_manager.client.call import NOTHING, Call, Page, Query
from queue_manager.client.types import TreeNode

if TYPE_CHECKING:
    from queue_manager.cli.commanding import Job

T = TypeVar("T")
DEFAULT_SERVER = "http://127.0.0.1:8080"
NEAR = 500
"""Names that are looked at for a near one."""
PATIENCE = Retry(attempts=3, longest=10.0, connect=False)
"""People at a terminal would rather know than wait."""
_HOW_TO_START = "start one with `queue-manager up`, or name another with --server URL, QM_SERVER or --profile NAME"
_OTHER_SERVER = "is this the URL of a Queue Manager? See --server"


class ApiProblem(CommandError):
    """The server's problem document; `errors` is its list of findings, `title` what they have in common."""

    def __init__(self, error: ApiError, hint: str = "") -> None:
        super().__init__(str(error), hint)
        self.status = error.status
        self.title = error.title
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

    def events(self, query: Query = NOTHING, **more: Any) -> Iterator[Event]:
        """What happens, for ever."""
        try:
            yield from super().events(query, **more)
        except ClientError as error:
            raise self._explained(error) from None

    def parts(self, call: Call[str]) -> Iterator[str]:
        """The text that a call answers with, part by part."""
        try:
            yield from super().parts(call)
        except ClientError as error:
            raise self._explained(error) from None

    def nodes(self) -> Iterator[TreeNode]:
        """All queues and cohorts of the tree."""
        found = list(self.tree()["items"])
        for node in found:
            found.extend(node["children"])
            yield node

    def node_names(self, kind: str) -> Iterator[str]:
        """Names of all queues, or of all cohorts."""
        return (node["name"] for node in self.nodes() if node["kind"] == kind)

    def kind_of(self, name: str) -> str:
        """Whether a name or path is one of a queue or of a cohort; an error with the nearest where it is neither."""
        known = {}
        for node in self.nodes():
            if name in (node["path"], node["name"]):
                return node["kind"]
            known[node["name"]] = node["kind"]
        raise CommandError(f"there is no queue or cohort {name!r}", self.nearest(name, known).removeprefix("; "))

    @staticmethod
    def nearest(name: str, known: Iterable[str]) -> str:
        """`; did you mean ...?`, or "" where nothing is near."""
        found = get_close_matches(name, list(known), 3)
        return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""

    @contextmanager
    def naming(self, job: Job) -> Iterator[None]:
        """While a job is asked for: where there is none of that name, the error says which ones are near."""
        try:
            yield
        except ApiProblem as problem:
            if problem.status != 404 or "workload" not in problem.message:
                raise
            problem.hint = self._near(job)
            raise

    def _near(self, job: Job) -> str:
        try:
            calls = [operations.workloads(namespace=job.namespace, limit=NEAR), operations.workloads(limit=NEAR)]
            for call in calls:
                names = [f"{each['namespace']}/{each['name']}" for each in self.listed(call, NEAR)]
                if found := self.nearest(str(job), dict.fromkeys(names)):
                    return found.removeprefix("; ")
        except CommandError:
            pass
        return "`queue-manager workloads` lists those that are there"

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
                return ApiProblem(error, f"{given}; give one with --token, QM_TOKEN or in a profile")
            case ApiError(status=429):
                return ApiProblem(error, "so many requests a second are too many for one token: ask less often")
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
