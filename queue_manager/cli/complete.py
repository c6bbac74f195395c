"""Values that the shell completes, asked of the server. What can't be asked is not completed: never an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queue_manager.cli.client import Client

PATIENCE = 2.0
"""Seconds that somebody who pressed tab waits."""
MOST = 500
SEARCHED = 3
GROUPS = ("queue", "cohort", "namespace", "user", "flavor", "kind", "priority-class")
STATES = ("waiting", "reserved", "held", "starting", "running", "draining", "finished", "failed", "deactivated")


def _ask(context: Any, question: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    from queue_manager.cli.errors import CommandError
    from queue_manager.cli.target import Target, connect

    typed = context.params or {}
    options = {name: typed.get(name) or "" for name in ("server", "token", "profile", "context", "kubeconfig")}
    try:
        return [name for name in question(connect(Target(**options), timeout=PATIENCE)) if name.startswith(incomplete)]
    except (CommandError, OSError):
        return []


def workloads(ctx: Any, incomplete: str) -> list[str]:
    """`namespace/name` of jobs that are not over, or their names where -n is given."""
    from queue_manager.client import operations

    namespace, slash, name = incomplete.partition("/")
    inside = (ctx.params or {}).get("namespace") or (namespace if slash else "")

    def names(client: Client) -> Iterator[str]:
        # The server searches for three characters at least, of the namespace, too.
        text = f"{inside}/{name if slash else incomplete}" if inside else ""
        call = operations.workloads(namespace=inside, text=text if len(text) >= SEARCHED else "", limit=MOST)
        for job in client.listed(call, MOST):
            if job["finished"] is None:
                yield f"{job['namespace']}/{job['name']}" if slash or not inside else job["name"]

    return sorted(set(_ask(ctx, names, incomplete)))


def _nodes(kind: str) -> Callable[[Any, str], list[str]]:
    def of_tree(nodes: Iterable[Any]) -> Iterator[str]:
        for node in nodes:
            if kind in ("", node["kind"]):
                yield node["name"]
            yield from of_tree(node["children"])

    def names(ctx: Any, incomplete: str) -> list[str]:
        return _ask(ctx, lambda client: of_tree(client.tree()["items"]), incomplete)

    return names


queues = _nodes("Queue")
cohorts = _nodes("Cohort")
nodes = _nodes("")


def _objects(kind: str) -> Callable[[Any, str], list[str]]:
    def names(ctx: Any, incomplete: str) -> list[str]:
        def metadata(client: Client) -> Iterator[str]:
            for each in client.objects(kind):
                space = each["metadata"].get("namespace", "")
                yield f"{space}/{each['metadata']['name']}" if space else each["metadata"]["name"]

        return _ask(ctx, metadata, incomplete)

    return names


flavors = _objects("Flavor")
priority_classes = _objects("PriorityClass")
_STOPPED = {"queue": queues, "cohort": cohorts, "flavor": flavors, "local-queue": _objects("LocalQueue")}


def stoppable(ctx: Any, incomplete: str) -> list[str]:
    """Names of what `stop --kind` says; of queues where it says nothing yet."""
    return _STOPPED[(ctx.params or {}).get("kind") or "queue"](ctx, incomplete)


def tokens(ctx: Any, incomplete: str) -> list[str]:
    """Names of tokens that may be revoked."""
    return _ask(ctx, lambda client: [each["name"] for each in client.tokens()], incomplete)


def profiles(incomplete: str) -> list[str]:
    """Names of profiles."""
    from queue_manager.cli import profiles
    from queue_manager.cli.errors import CommandError

    try:
        return [name for name in sorted(profiles.load().named) if name.startswith(incomplete)]
    except CommandError:
        return []


def states(incomplete: str) -> list[str]:
    """States of a workload."""
    return [state for state in STATES if state.startswith(incomplete)]


def groups(incomplete: str) -> list[str]:
    """What usage is grouped by."""
    return [group for group in GROUPS if group.startswith(incomplete)]
