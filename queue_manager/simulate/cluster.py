"""Nodes of a scenario, with what pods outside the queues take on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from queue_manager.cluster.pods import effective_requests, host_ports, is_gone, node_of
from queue_manager.cluster.port import Object
from queue_manager.engine.configuration import Node
from queue_manager.engine.quantities import PODS, port_resource
from queue_manager.engine.workload import Taint
from queue_manager.kinds.annotations import TOPOLOGY_KEYS
from queue_manager.kinds.fields import View
from queue_manager.simulate.checks import check_pod
from queue_manager.simulate.fields import condition
from queue_manager.simulate.objects import Objects, label
from queue_manager.simulate.problem import ScenarioError

PLACED_BY = (
    *TOPOLOGY_KEYS,
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Annotations of pods that were placed by a topology: their workload is counted on the nodes already."""


def read_nodes(objects: Objects) -> list[Node]:
    """All nodes, by name. Raises ScenarioError."""
    foreign = _foreign(objects)
    return [
        _node(View(o, f"Node {o['metadata']['name']}: "), foreign.get(o["metadata"]["name"], {}))
        for o in sorted(objects.of("Node"), key=label)
    ]


def _foreign(objects: Objects) -> dict[str, Counter[str]]:
    """What pods that no workload stands for take, by node."""
    found: dict[str, Counter[str]] = {}
    for pod in objects.of("Pod"):
        check_pod(View(pod, f"Pod {label(pod)}: "))
        try:
            if is_gone(pod) or not node_of(pod) or _is_ours(pod):
                continue
            found.setdefault(node_of(pod), Counter()).update({**effective_requests(pod["spec"]), PODS: 1})
            found[node_of(pod)].update({port_resource(port): 1 for port in host_ports(pod["spec"])})
        except (ValueError, TypeError, AttributeError) as error:
            raise ScenarioError(f"Pod {label(pod)}: spec: {error}") from None
    return found


def _is_ours(pod: Object) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return any(key in annotations for key in PLACED_BY)


def _node(view: View, foreign: Mapping[str, int]) -> Node:
    spec, metadata = view["spec"], view["metadata"]
    return Node(
        name=metadata["name"].text(),
        labels=metadata["labels"].texts(),
        allocatable=view.at("status", "allocatable").amounts(),
        taints=tuple(
            Taint(taint["key"].text(), taint["value"].text(), taint["effect"].text())
            for taint in spec["taints"].items()
        ),
        ready=condition(view, "Ready") is not None and not metadata["deletionTimestamp"].given,
        unschedulable=spec["unschedulable"].boolean(),
        foreign=dict(foreign),
    )
