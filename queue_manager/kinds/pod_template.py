"""What one pod of a template asks for, as the API server and the scheduler will count it once the pod exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from queue_manager.cluster.port import RUNTIME_CLASSES
from queue_manager.engine.quantities import added
from queue_manager.engine.workload import PodSet, Requirement, SelectorTerm, Toleration
from queue_manager.kinds import annotations as keys
from queue_manager.kinds.device_claims import devices_of
from queue_manager.kinds.fields import View, identity
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.limit_ranges import Amounts, Defaults, beyond
from queue_manager.kinds.names import REQUIRED

CPU_AND_MEMORY = ("cpu", "memory")
MOST_PODS = 2**31 - 1
"""Of one pod set: what Kubernetes and the database count with."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod set without its number of pods, and the priority class its template names."""

    pod_set: PodSet
    priority_class: str


def pod_shape(
    template: View, name: str, defaults: Defaults, group_claims: View | None = None, groups: int = 1
) -> PodShape:
    """The pod set of a pod template, with count 0 to be filled in. Raises Unresolvable.

    `template` is a PodTemplateSpec (metadata and spec). For the last two see `devices_of`.
    """
    spec = template["spec"]
    if not spec.given:
        raise spec.malformed("given")
    overhead, runtime_selector, runtime_tolerations = _runtime_class(spec, defaults)
    requests = added(_pod_requests(spec, defaults), overhead)
    pod_set = PodSet(
        name=name,
        count=0,
        requests=requests,
        node_selector=spec["nodeSelector"].texts() | runtime_selector,
        node_affinity=required_terms(spec),
        tolerations=tuple(dict.fromkeys((*tolerations(spec["tolerations"]), *runtime_tolerations))),
        topology=keys.topology_request(template["metadata"]),
        podset_group=keys.podset_group(template["metadata"]),
        group_topology=keys.podset_group_topology(template["metadata"]),
        host_ports=_host_ports(spec),
        devices=devices_of(spec, requests, defaults, group_claims or View(None), groups),
    )
    return PodShape(pod_set, spec["priorityClassName"].text())


def with_count(shape: PodShape, count: int, stages: tuple[int, int] = (0, 0), reclaimed: int = 0) -> PodSet:
    """The pod set of that shape; `reclaimed` is kept within `count`. Raises Unresolvable beyond `MOST_PODS`."""
    if count > MOST_PODS:
        message = f"{shape.pod_set.name}: {count} pods are more than the {MOST_PODS} that can be counted"
        raise Unresolvable("TooManyPods", "spec", message)
    return replace(shape.pod_set, count=count, stages=stages, reclaimed=max(0, min(reclaimed, count)))


def tolerations(view: View) -> tuple[Toleration, ...]:
    """The tolerations of a list, in order. `tolerationSeconds` plays no part in where a pod may run."""
    return tuple(
        Toleration(
            entry["key"].text(), entry["operator"].text() or "Equal", entry["value"].text(), entry["effect"].text()
        )
        for entry in view.items()
    )


def required_terms(spec: View) -> tuple[SelectorTerm, ...]:
    """The terms of the required node affinity; a pod fits where one of them holds."""
    terms = spec.at("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    return tuple(
        SelectorTerm(_requirements(term["matchExpressions"]), _requirements(term["matchFields"]))
        for term in terms.items()
    )


def _requirements(view: View) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            entry["key"].text(), entry["operator"].text(), tuple(value.text() for value in entry["values"].items())
        )
        for entry in view.items()
    )


@dataclass(slots=True)
class _Totals:
    """Amounts of a pod's containers: what runs together is summed, what runs alone before it counts by its greatest
    moment (component-helpers/resource, PodRequests)."""

    running: Amounts = field(default_factory=dict)
    sidecars: Amounts = field(default_factory=dict)
    peak: Amounts = field(default_factory=dict)

    def add_init(self, amounts: Amounts, *, stays: bool) -> None:
        """The next init container; a sidecar stays and runs beside all that come later."""
        if stays:
            self.sidecars = added(self.sidecars, amounts)
        self.peak = _maximum(self.peak, self.sidecars if stays else added(self.sidecars, amounts))

    def add(self, amounts: Amounts) -> None:
        """A container of the pod's own."""
        self.running = added(self.running, amounts)

    def total(self) -> Amounts:
        """What the pod needs."""
        return _maximum(self.peak, added(self.running, self.sidecars))


def _pod_requests(spec: View, defaults: Defaults) -> Amounts:
    """Requests of one pod without overhead. Raises Unresolvable where the namespace's LimitRanges refuse such pods."""
    requested, limited = _Totals(), _Totals()
    for container in spec["initContainers"].items():
        requests, limits = _container(container, defaults)
        stays = container["restartPolicy"].text() == "Always"
        requested.add_init(requests, stays=stays)
        limited.add_init(limits, stays=stays)
    for container in spec["containers"].items():
        requests, limits = _container(container, defaults)
        requested.add(requests)
        limited.add(limits)
    counted = requested.total()
    own = _pod_level(spec["resources"], counted)
    own_limits = {r: a for r, a in spec.at("resources", "limits").amounts().items() if _of_pods(r)}
    _refuse_beyond_limit(spec["resources"], own, own_limits)
    defaults.pod.check(spec.path, counted | own, limited.total() | own_limits)
    return counted | own


def _container(container: View, defaults: Defaults) -> tuple[Amounts, Amounts]:
    """Requests and limits. Limits stand for missing requests (API defaulting), then the LimitRange fills what is still
    missing."""
    resources = container["resources"]
    given = resources["limits"].amounts()
    requests = defaults.requests | given | resources["requests"].amounts()
    limits = defaults.limits | given
    _refuse_beyond_limit(resources, requests, limits)
    defaults.container.check(resources.path, requests, limits)
    return requests, limits


def _refuse_beyond_limit(resources: View, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
    """No pod can be made of what asks for more than its limit, be it one that a LimitRange gave it."""
    for name in sorted(requests.keys() & limits.keys()):
        if requests[name] > limits[name]:
            message = f"{resources.path} requests more {name} than the limit it has or gets from a LimitRange"
            raise beyond(resources.path, message)


def _pod_level(resources: View, containers: Amounts) -> Amounts:
    """Pod-level `spec.resources`: they replace the sum of the containers for CPU, memory and huge pages.

    A pod-level limit stands for a request that neither the pod nor a container has (Kubernetes 1.37: LimitRange first).
    """
    limits = resources["limits"].amounts()
    requests = resources["requests"].amounts()
    if limits:
        requests = limits | {name: amount for name, amount in containers.items() if name in CPU_AND_MEMORY} | requests
    return {name: amount for name, amount in requests.items() if _of_pods(name)}


def _of_pods(resource: str) -> bool:
    """Whether a resource can be asked for by the pod as a whole."""
    return resource in CPU_AND_MEMORY or resource.startswith("hugepages-")


def _runtime_class(spec: View, defaults: Defaults) -> tuple[Amounts, dict[str, str], tuple[Toleration, ...]]:
    """Overhead, node selector and tolerations that the RuntimeClass adds to the pod."""
    name = spec["runtimeClassName"].text()
    if not name:
        return spec["overhead"].amounts(), {}, ()
    found = defaults.lookup.get(RUNTIME_CLASSES, "", name)
    if found is None:
        path = spec["runtimeClassName"].path
        raise Unresolvable(
            "RuntimeClassNotFound", path, f"{path}: there is no RuntimeClass {name}, so no pod can be made"
        )
    defaults.inputs[f"RuntimeClass/{name}"] = identity(found)
    view = View(found, f"RuntimeClass/{name}: ")
    scheduling = view["scheduling"]
    return (
        view.at("overhead", "podFixed").amounts(),
        scheduling["nodeSelector"].texts(),
        tolerations(scheduling["tolerations"]),
    )


def _host_ports(spec: View) -> tuple[int, ...]:
    """Ports that pods take on their node; with `hostNetwork` every container port is one."""
    own_network = not spec["hostNetwork"].boolean()
    running = [
        container for container in spec["initContainers"].items() if container["restartPolicy"].text() == "Always"
    ]
    ports = set()
    for container in (*spec["containers"].items(), *running):
        for port in container["ports"].items():
            number = port["hostPort"].integer(0) or (0 if own_network else port["containerPort"].integer(0))
            if number:
                ports.add(number)
    return tuple(sorted(ports))


def _maximum(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}
