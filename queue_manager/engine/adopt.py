"""Jobs that ran before there was a queue: flavors for what they take, whatever the quota (design, section 5)."""

from __future__ import annotations

from queue_manager.engine.ask import StageSums, ask_of
from queue_manager.engine.configuration import Cell, labels_of
from queue_manager.engine.decision import Admission, PodSetAssignment
from queue_manager.engine.placing import flavors_of
from queue_manager.engine.prepared import prepare
from queue_manager.engine.state import State
from queue_manager.engine.workload import Workload


def adopt(state: State, workload: Workload, now: int) -> Admission | None:
    """An admission of a running workload: the first flavor of each resource group that its pods can use, at full size.

    None when its queue does not exist or offers no usable flavor for a resource it takes. Places are not planned: its
    pods count where they are bound. Changes nothing.
    """
    queue = state.configuration.queues.get(workload.queue)
    if queue is None:
        return None
    prepared = prepare(ask_of(workload, state.configuration), queue, state.configuration)
    if prepared.uncovered or prepared.unmapped:
        return None
    flavors: list[dict[str, str]] = [{} for _ in prepared.ask.pod_sets]
    for need in prepared.needs:
        usable = next((option.flavor for option in need.options if not option.refusal), None)
        if usable is None:
            return None
        for index in need.pod_sets:
            flavors[index].update({r: usable for r in need.resources if r in prepared.requests[index]})
    sums = StageSums(pod_set.stages for pod_set in prepared.ask.pod_sets)
    assigned = []
    for index, pod_set in enumerate(prepared.ask.pod_sets):
        for resource, flavor in flavors[index].items():
            for stages, amount in pod_set.needs(resource, pod_set.count):
                sums.add(Cell(flavor, resource), stages, amount)
        taken = flavors_of(state.configuration, flavors[index])
        assigned.append(
            PodSetAssignment(
                name=pod_set.name,
                count=pod_set.count,
                flavors=flavors[index],
                selector=labels_of(taken),
                tolerations=tuple(dict.fromkeys(t for flavor in taken for t in flavor.tolerations)),
                reclaimed=pod_set.pod_set.reclaimed,
            )
        )
    return Admission(workload.uid, workload.queue, tuple(assigned), sums.charge(), now)
