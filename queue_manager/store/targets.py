"""What people may name when they move a workload: a local queue of its namespace, or a queue by name or path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.config.compiled import Compiled
from queue_manager.config.names import check_label_value
from queue_manager.config.problem import nearest_or_list


class NoTargetError(Exception):
    """What was named is nothing a workload can be moved to; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Target:
    """`label` is what the job's label says afterwards, `queue` the queue that means."""

    label: str
    queue: str


def target_of(
    compiled: Compiled, namespace: str, named: str, sees: Callable[[str], bool] = lambda _queue: True
) -> Target:
    """What is meant by a name or path, a local queue of the namespace before a queue of that name, as for labels. A
    queue is called by a local queue of the namespace where there is one. Of what leads to queues that who asks does not
    see nothing is known. Raises NoTargetError."""
    local_queues = compiled.configuration.local_queues
    own = local_queues.get(f"{namespace}/{named}")
    if own is not None and sees(own.queue):
        return Target(named, own.queue)
    node = compiled.tree.find("Queue", named)
    if node is None or not sees(node.name):
        shown = {key: local for key, local in local_queues.items() if sees(local.queue)}
        names = [key.partition("/")[2] for key in shown if key.startswith(f"{namespace}/")]
        hint = nearest_or_list(named, {*names, *filter(sees, compiled.tree.queues)}, "queue")
        raise NoTargetError(
            f"namespace {namespace} has no local queue {named!r}, nor is there a queue of that name; {hint}"
        )
    prefix = f"{namespace}/"
    aliases = sorted(key for key, local in local_queues.items() if local.queue == node.name and key.startswith(prefix))
    if aliases:
        return Target(aliases[0].removeprefix(prefix), node.name)
    if check_label_value(node.name) or f"{prefix}{node.name}" in local_queues:
        words = f"no label in namespace {namespace} can name queue {node.name}: make a local queue for it there"
        raise NoTargetError(words)
    return Target(node.name, node.name)
