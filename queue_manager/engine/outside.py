"""Why a workload is not in the order of its queue at all, and why what runs must go although nobody needs its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from queue_manager.engine.configuration import Cell, Configuration, StopPolicy
from queue_manager.engine.decision import BlockerType, EvictionReason, Reason
from queue_manager.engine.selectors import meets_all
from queue_manager.engine.workload import Workload


@dataclass(frozen=True, slots=True)
class Outside:
    """What keeps a workload out; it comes back when the configuration or its namespace changes. `node` is a queue."""

    reason: Reason
    type: BlockerType
    message: str
    node: str


def outsides_of(workload: Workload, configuration: Configuration, broken: Mapping[str, str]) -> Iterator[Outside]:
    """All that keeps a workload out, what counts first. `broken` says what is wrong with a queue's cohorts."""
    name = workload.queue
    queue = configuration.queues.get(name)
    if queue is None:
        message = f"queue {name} does not exist" if name else "no queue is named"
        yield Outside(Reason.MISCONFIGURED, BlockerType.QUEUE_INACTIVE, message, name)
        return
    inactive = queue.inactive or broken.get(name, "")
    if inactive:
        yield Outside(Reason.INACTIVE, BlockerType.QUEUE_INACTIVE, f"queue {name} is inactive: {inactive}", name)
    if queue.stop_policy is not StopPolicy.NONE:
        message = stopped_words(f"queue {name}", queue.stop_policy, queue.stopped)
        yield Outside(Reason.INACTIVE, BlockerType.QUEUE_STOPPED, message, name)
    local = configuration.local_queues.get(workload.local_queue)
    if local is not None and local.stop_policy is not StopPolicy.NONE:
        message = stopped_words(f"local queue {workload.local_queue}", local.stop_policy, local.stopped)
        yield Outside(Reason.INACTIVE, BlockerType.QUEUE_STOPPED, message, name)
    if queue.namespace_selector is None:
        yield Outside(Reason.MISCONFIGURED, BlockerType.NAMESPACE, f"queue {name} takes no namespace", name)
    elif not meets_all(queue.namespace_selector, workload.namespace_labels):
        message = f"queue {name} does not take namespace {workload.namespace}"
        yield Outside(Reason.MISCONFIGURED, BlockerType.NAMESPACE, message, name)


def stopped_words(what: str, policy: StopPolicy, by: str) -> str:
    """What people read of something that is stopped; `by` says who stopped it, if anybody but the configuration."""
    return f"{what} is stopped ({policy.value}){' ' + by if by else ''}"


def drained_by(
    workload: Workload, queue: str, charge: Iterable[Cell], configuration: Configuration
) -> tuple[EvictionReason, str] | None:
    """Reason and message if what the workload runs in, `queue`, or a flavor that it is charged is stopped with
    HoldAndDrain; None if it may stay."""
    found = configuration.queues.get(queue)
    if found is not None and found.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        message = stopped_words(f"queue {queue}", found.stop_policy, found.stopped)
        return EvictionReason.CLUSTER_QUEUE_STOPPED, message
    local = configuration.local_queues.get(workload.local_queue)
    if local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        message = stopped_words(f"local queue {workload.local_queue}", local.stop_policy, local.stopped)
        return EvictionReason.LOCAL_QUEUE_STOPPED, message
    for name in sorted({cell.flavor for cell in charge}):
        flavor = configuration.flavors.get(name)
        if flavor is not None and flavor.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return EvictionReason.FLAVOR_STOPPED, stopped_words(f"flavor {name}", flavor.stop_policy, flavor.stopped)
    return None
