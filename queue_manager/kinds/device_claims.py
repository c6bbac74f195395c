"""Devices that pods get by resource claims (resource.k8s.io/v1), as the scheduler will allocate them.

What is asked for in a way that can't be counted beforehand is refused, as in Kueue: it must not start for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queue_manager.cluster.port import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Object
from queue_manager.engine.workload import Devices, SharedClaim
from queue_manager.kinds.fields import View, identity
from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.limit_ranges import Defaults

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource by which every DeviceClass can be asked for."""
UNSUPPORTED = "UnsupportedDevices"

Counts = dict[str, int]


def devices_of(
    spec: View, requests: Mapping[str, int], defaults: Defaults, group_claims: View, groups: int = 1
) -> Devices:
    """Devices of pods with this spec. Raises Unresolvable.

    `group_claims` are the claims of the pods' PodGroup: a pod that names the same template under the same name gets the
    group's claim, not one of its own. There are `groups` such groups.
    """
    shared = {entry["name"].text(): entry["resourceClaimTemplateName"].text() for entry in group_claims.items()}
    each: Counts = {}
    claims: list[SharedClaim] = []
    names: set[str] = set()
    for entry in spec["resourceClaims"].items():
        name, template = entry["name"].text(), entry["resourceClaimTemplateName"].text()
        names.add(name)
        if template and shared.get(name) == template:
            counted = {c: number * groups for c, number in _template(entry, template, defaults).items()}
            claims.append(SharedClaim(f"{group_claims.path} {name}", counted))
        elif template:
            _add(each, _template(entry, template, defaults))
        else:
            claims.append(_claim(entry, defaults))
    _check_uses(spec, names)
    claims = list({claim.name: claim for claim in claims}.values())
    return Devices(each, tuple(claims), _backed(requests, defaults))


def _template(entry: View, name: str, defaults: Defaults) -> Counts:
    field = entry["resourceClaimTemplateName"]
    found = defaults.lookup.get(RESOURCE_CLAIM_TEMPLATES, defaults.namespace, name)
    if found is None:
        raise _absent(field, "ResourceClaimTemplate", name)
    defaults.inputs[f"ResourceClaimTemplate/{name}"] = identity(found)
    return _counted(View(found, f"ResourceClaimTemplate/{name}: ").at("spec", "spec"))


def _claim(entry: View, defaults: Defaults) -> SharedClaim:
    field = entry["resourceClaimName"]
    name = field.text()
    if not name:
        raise entry.malformed("a resource claim: resourceClaimName or resourceClaimTemplateName")
    found = defaults.lookup.get(RESOURCE_CLAIMS, defaults.namespace, name)
    if found is None:
        raise _absent(field, "ResourceClaim", name)
    defaults.inputs[f"ResourceClaim/{name}"] = identity(found)
    return SharedClaim(name, _counted(View(found, f"ResourceClaim/{name}: ")["spec"]))


def _absent(field: View, kind: str, name: str) -> Unresolvable:
    message = f"{field.path}: there is no {kind} {name}; the job is held until there is"
    return Unresolvable(f"{kind}NotFound", field.path, message)


def _counted(spec: View) -> Counts:
    """DeviceClass -> devices of one claim."""
    counts: Counts = {}
    for request in spec.at("devices", "requests").items():
        if request["firstAvailable"].given:
            what = "offers several kinds of device (firstAvailable), which quota can't be told from beforehand"
            raise _unsupported(request["firstAvailable"], what)
        exactly = request["exactly"]
        if not exactly.given:
            raise request.malformed("a device request with `exactly`")
        if exactly["adminAccess"].boolean():
            continue  # looks at devices that others use, and takes none
        mode = exactly["allocationMode"].text() or "ExactCount"
        if mode != "ExactCount":
            what = f"is {mode}: how many devices that is, quota can't tell beforehand"
            raise _unsupported(exactly["allocationMode"], what)
        name = exactly["deviceClassName"].text()
        if not name:
            raise exactly["deviceClassName"].malformed("given")
        _add(counts, {name: exactly["count"].count(1)})
    return counts


def _unsupported(field: View, what: str) -> Unresolvable:
    return Unresolvable(UNSUPPORTED, field.path, f"{field.path} {what}; ask for a count of one DeviceClass")


def _check_uses(spec: View, names: set[str]) -> None:
    """A container can use only claims of its pod."""
    for kind in ("initContainers", "containers"):
        for container in spec[kind].items():
            for use in container.at("resources", "claims").items():
                if use["name"].text() not in names:
                    raise use["name"].malformed("the name of an entry of the pod's resourceClaims")


def _backed(requests: Mapping[str, int], defaults: Defaults) -> dict[str, str]:
    """Extended resources among the requests that a DeviceClass serves, with that class."""
    backed: dict[str, str] = {}
    for resource in sorted(r for r, amount in requests.items() if amount and "/" in r):
        if resource.startswith(IMPLICIT):
            backed[resource] = resource.removeprefix(IMPLICIT)
            continue
        serving = [c for c in _classes(defaults) if (c.get("spec") or {}).get("extendedResourceName") == resource]
        if serving:
            chosen = _youngest(serving)
            name = str(chosen["metadata"].get("name", ""))
            defaults.inputs[f"DeviceClass/{name}"] = identity(chosen)
            backed[resource] = name
    return backed


def _classes(defaults: Defaults) -> Sequence[Object]:
    return defaults.lookup.list(DEVICE_CLASSES, "")


def _youngest(classes: Sequence[Object]) -> Object:
    """The class that Kubernetes takes where several serve one resource: made last, then first by name."""
    by_name = sorted(classes, key=lambda item: str(item["metadata"].get("name", "")))
    return max(by_name, key=lambda item: str(item["metadata"].get("creationTimestamp") or ""))


def _add(counts: Counts, more: Mapping[str, int]) -> None:
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number
