"""What one pod of a template asks for, as the API server and the scheduler will count it once the pod exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from queue_manager.cluster.port import LIMIT_RANGES, RUNTIME_CLASSES
from queue_manager.engine.workload import PodSet, Requirement, SelectorTerm, Toleration
from queue_manager.kinds import annotations as keys
from queue_manager.kinds.fields import View, identity
from queue_manager.kinds.kind import Lookup, Unresolvable

Amounts = dict[str, int]
CPU_AND_MEMORY = ("cpu", "memory")
MOST_PODS = 2**31 - 1
"""Of one pod set: what Kubernetes and the database count with."""


@dataclass(slots=True)
class Defaults:
    """What a namespace adds to pods on admission. `inputs` collects the objects that were read."""

    lookup: Lookup
    namespace: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod set without its number of pods, and the priority class its template names."""

    pod_set: PodSet
    priority_class: str


def namespace_defaults(lookup: Lookup, namespace: str) -> Defaults:
    """Container defaults of the namespace's LimitRanges. Raises Unresolvable on malformed ones.

    The first LimitRange that says something wins, as in the LimitRanger, whose order is not defined; ours is by name.
    """
    defaults = Defaults(lookup, namespace)
    for limit_range in sorted(lookup.list(LIMIT_RANGES, namespace), key=lambda item: str(item["metadata"].get("name"))):
        name = f"LimitRange/{limit_range['metadata'].get('name', '')}"
        for item in View(limit_range, f"{name}: ").at("spec", "limits").items():
            if item["type"].text() == "Container":
                _add_missing(item, defaults)
                defaults.inputs[name] = identity(limit_range)
    return defaults


def _add_missing(item: View, defaults: Defaults) -> None:
    """Defaults of one LimitRange item, its own gaps filled as the API server fills them when it stores the object."""
    greatest = item["max"].amounts()
    limits = greatest | item["default"].amounts()
    requests = item["min"].amounts() | limits | item["defaultRequest"].amounts()
    defaults.limits |= {name: amount for name, amount in limits.items() if name not in defaults.limits}
    defaults.maximum |= {name: min(amount, defaults.maximum.get(name, amount)) for name, amount in greatest.items()}
    defaults.requests |= {name: amount for name, amount in requests.items() if name not in defaults.requests}


def pod_shape(template: View, name: str, defaults: Defaults) -> PodShape:
    """The pod set of a pod template, with count 0 to be filled in. Raises Unresolvable.

    `template` is a PodTemplateSpec (metadata and spec).
    """
    spec = template["spec"]
    if not spec.given:
        raise spec.malformed("given")
    _refuse_claims(spec)
    overhead, runtime_selector, runtime_tolerations = _runtime_class(spec, defaults)
    pod_set = PodSet(
        name=name,
        count=0,
        requests=_sum(_pod_requests(spec, defaults), overhead),
        node_selector=spec["nodeSelector"].texts() | runtime_selector,
        node_affinity=required_terms(spec),
        tolerations=tuple(dict.fromkeys((*tolerations(spec["tolerations"]), *runtime_tolerations))),
        topology=keys.topology_request(template["metadata"]),
        podset_group=keys.podset_group(template["metadata"]),
        host_ports=_host_ports(spec),
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
    terms = spec.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
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


def _refuse_claims(spec: View) -> None:
    """A pod whose devices come from resource claims must not be admitted as if it asked for none."""
    claims = [spec["resourceClaims"], spec.at("resources", "claims")]
    for kind in ("containers", "initContainers"):
        claims += [container.at("resources", "claims") for container in spec[kind].items()]
    for claim in claims:
        if any(True for _ in claim.items()):
            raise Unresolvable(
                "ResourceClaimsNotCounted", claim.path, f"{claim.path}: resource claims are not counted yet"
            )


def _pod_requests(spec: View, defaults: Defaults) -> Amounts:
    """Requests of one pod without overhead: the sum of what runs together, or its greatest moment before that."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec["initContainers"].items():
        requests = _container_requests(container, defaults)
        if container["restartPolicy"].text() == "Always":
            sidecars = _sum(sidecars, requests)
            peak = _maximum(peak, sidecars)
        else:
            peak = _maximum(peak, _sum(sidecars, requests))
    running = sidecars
    for container in spec["containers"].items():
        running = _sum(running, _container_requests(container, defaults))
    counted = _maximum(peak, running)
    return counted | _pod_level(spec["resources"], counted)


def _container_requests(container: View, defaults: Defaults) -> Amounts:
    """Limits stand for missing requests (API defaulting), then the LimitRange fills what is still missing."""
    limits = container.at("resources", "limits").amounts()
    requests = defaults.requests | limits | container.at("resources", "requests").amounts()
    _refuse_beyond_limits(container["resources"], requests, defaults.limits | limits, defaults.maximum)
    return requests


def _refuse_beyond_limits(resources: View, requests: Amounts, limits: Amounts, maximum: Amounts) -> None:
    """No pod can be made of a container that asks for more than its limit, be it one that a LimitRange gave it."""
    for name in sorted(requests.keys() | limits.keys()):
        if requests.get(name, 0) > limits.get(name, requests.get(name, 0)):
            message = f"{resources.path} requests more {name} than the limit it has or gets from a LimitRange"
            raise Unresolvable("BeyondLimit", resources.path, f"{message}: no pod can be made")
        if limits.get(name, 0) > maximum.get(name, limits.get(name, 0)):
            message = f"{resources.path} has a limit of {name} above the maximum of a LimitRange"
            raise Unresolvable("BeyondLimit", resources.path, f"{message}: no pod can be made")


def _pod_level(resources: View, containers: Amounts) -> Amounts:
    """Pod-level `spec.resources`: they replace the sum of the containers for CPU, memory and huge pages.

    A pod-level limit stands for a request that neither the pod nor a container has (Kubernetes 1.37: LimitRange first).
    """
    limits = resources["limits"].amounts()
    requests = resources["requests"].amounts()
    if limits:
        requests = limits | {name: amount for name, amount in containers.items() if name in CPU_AND_MEMORY} | requests
    return {
        name: amount for name, amount in requests.items() if name in CPU_AND_MEMORY or name.startswith("hugepages-")
    }


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


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}


def _maximum(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}
