"""Devices that pods get by resource claims, resolved from the cluster's own objects."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.port import (
    DEVICE_CLASSES,
    LIMIT_RANGES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Object,
    Resource,
)
from queue_manager.engine.workload import Devices, SharedClaim
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Resolved, Unresolvable
from tests.kinds.world import World, container, job, job_set, pod_template, replicated_job

Placed = tuple[Resource, Object]


def asks(*requests: Any) -> Any:
    return {"devices": {"requests": [{"name": f"r{i}", **request} for i, request in enumerate(requests)]}}


def exactly(device_class: str, **more: Any) -> Any:
    return {"exactly": {"deviceClassName": device_class, **more}}


def template(name: str, *requests: Any) -> Placed:
    return RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": asks(*requests)}}


def claim(name: str, *requests: Any) -> Placed:
    return RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": asks(*requests)}


def device_class(name: str, resource: str = "", created: str = "2026-01-01T00:00:00Z") -> Placed:
    spec = {"extendedResourceName": resource} if resource else {}
    return DEVICE_CLASSES, {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


def pods(*claims: Any, requests: Any = None) -> Any:
    return pod_template(container("main", requests), resourceClaims=list(claims))


def from_template(name: str, of: str) -> Any:
    return {"name": name, "resourceClaimTemplateName": of}


def resolve(pod: Any, *objects: Placed, **spec: Any) -> Resolved:
    resource, obj = job(pod, **spec)
    return JobKind().resolve(obj, World((resource, obj), *objects))


def devices(pod: Any, *objects: Placed, **spec: Any) -> Devices:
    return resolve(pod, *objects, **spec).pod_groups[0].pod_sets[0].devices


def test_a_template_gives_devices_to_every_pod() -> None:
    gpus = template("gpus", exactly("h100", count=2), exactly("h100"), exactly("nic", allocationMode="ExactCount"))
    found = resolve(pods(from_template("a", "gpus"), from_template("b", "gpus")), gpus)
    assert found.pod_groups[0].pod_sets[0].devices == Devices({"h100": 6, "nic": 2})
    assert set(found.inputs) == {"ResourceClaimTemplate/gpus"}


def test_a_claim_by_name_is_shared_and_counted_once() -> None:
    shared = {"resourceClaimName": "fabric"}
    found = devices(pods({"name": "a", **shared}, {"name": "b", **shared}), claim("fabric", exactly("nic", count=4)))
    assert found == Devices(shared=(SharedClaim("fabric", {"nic": 4}),))


def test_a_claim_is_one_for_all_replicated_jobs_that_name_it() -> None:
    pod = pods({"name": "a", "resourceClaimName": "fabric"})
    resource, obj = job_set(replicated_job("driver", pod), replicated_job("node", pod, replicas=4))
    found = JobSetKind().resolve(obj, World((resource, obj), claim("fabric", exactly("nic"))))
    assert [p.devices.shared for p in found.pod_groups[0].pod_sets] == [(SharedClaim("fabric", {"nic": 1}),)] * 2


def test_a_claim_of_the_pod_group_is_not_made_for_each_pod() -> None:
    entry = from_template("fabric", "nics")
    nics = template("nics", exactly("nic", count=2))
    found = devices(pods(entry, from_template("own", "nics")), nics, scheduling={"resourceClaims": [entry]})
    assert found.each == {"nic": 2}
    assert [dict(each.devices) for each in found.shared] == [{"nic": 2}]
    other = devices(pods(entry), nics, scheduling={"resourceClaims": [from_template("fabric", "others")]})
    assert other == Devices({"nic": 2})


def test_each_child_job_of_a_job_set_has_a_pod_group_of_its_own() -> None:
    entry = from_template("fabric", "nics")
    child = replicated_job("node", pods(entry), replicas=3, scheduling={"resourceClaims": [entry]})
    resource, obj = job_set(child)
    found = JobSetKind().resolve(obj, World((resource, obj), template("nics", exactly("nic", count=2))))
    assert [dict(each.devices) for each in found.pod_groups[0].pod_sets[0].devices.shared] == [{"nic": 6}]


def test_looking_at_devices_of_others_takes_none() -> None:
    assert (
        devices(pods(from_template("a", "monitor")), template("monitor", exactly("h100", adminAccess=True, count=8)))
        == Devices()
    )


@pytest.mark.parametrize(
    ("request_", "field", "says"),
    [
        (exactly("h100", allocationMode="All"), "exactly.allocationMode", "is All"),
        ({"firstAvailable": [{"name": "x", "deviceClassName": "h100"}]}, "firstAvailable", "several kinds of device"),
    ],
)
def test_what_can_not_be_counted_beforehand_is_refused(request_: Any, field: str, says: str) -> None:
    with pytest.raises(Unresolvable, match=says) as found:
        resolve(pods(from_template("a", "odd")), template("odd", request_))
    assert found.value.reason == "UnsupportedDevices"
    assert found.value.field == f"ResourceClaimTemplate/odd: spec.spec.devices.requests[0].{field}"


@pytest.mark.parametrize(
    ("entry", "reason", "field"),
    [
        (from_template("a", "gone"), "ResourceClaimTemplateNotFound", "resourceClaimTemplateName"),
        ({"name": "a", "resourceClaimName": "gone"}, "ResourceClaimNotFound", "resourceClaimName"),
    ],
)
def test_without_its_claim_a_job_is_held(entry: Any, reason: str, field: str) -> None:
    with pytest.raises(Unresolvable, match="held until there is") as found:
        resolve(pods(entry))
    assert found.value.reason == reason
    assert found.value.field == f"spec.template.spec.resourceClaims[0].{field}"


def test_bad_entries_name_their_field() -> None:
    for pod in (
        pods({"name": "a"}),
        pod_template({"name": "one", "resources": {"claims": [{"name": "gpu"}]}}),
    ):
        with pytest.raises(Unresolvable) as found:
            resolve(pod)
        assert found.value.reason == "Malformed"
        assert "laims[0]" in found.value.field
    with pytest.raises(Unresolvable) as found:
        resolve(pods(from_template("a", "b")), template("b", exactly("")))
    assert found.value.field.endswith("requests[0].exactly.deviceClassName")


class TestExtendedResources:
    def test_served_by_a_class(self) -> None:
        pod = pod_template(container("main", {"cpu": 1, "nvidia.com/gpu": 2, "example.com/fpga": 1}))
        found = resolve(pod, device_class("h100", "nvidia.com/gpu"), device_class("other"))
        pod_set = found.pod_groups[0].pod_sets[0]
        assert pod_set.devices == Devices(backed={"nvidia.com/gpu": "h100"})
        assert pod_set.requests["nvidia.com/gpu"] == 2
        assert set(found.inputs) == {"DeviceClass/h100"}

    def test_served_by_several_the_youngest_is_taken(self) -> None:
        pod = pod_template(container("main", {"nvidia.com/gpu": 2}))
        later = "2026-02-02T00:00:00Z"
        classes = (
            device_class("a", "nvidia.com/gpu"),
            device_class("c", "nvidia.com/gpu", later),
            device_class("b", "nvidia.com/gpu", later),
        )
        assert devices(pod, *classes).backed == {"nvidia.com/gpu": "b"}

    def test_by_the_name_of_the_class(self) -> None:
        pod = pod_template(container("main", {"deviceclass.resource.kubernetes.io/h100": 1}))
        assert devices(pod).backed == {"deviceclass.resource.kubernetes.io/h100": "h100"}

    def test_of_an_init_container_count_by_the_peak(self) -> None:
        pod = pod_template(
            container("main", {"nvidia.com/gpu": 1}), initContainers=[container("warm", {"nvidia.com/gpu": 4})]
        )
        pod_set = resolve(pod, device_class("h100", "nvidia.com/gpu")).pod_groups[0].pod_sets[0]
        assert pod_set.requests == {"nvidia.com/gpu": 4}


def test_a_limit_range_still_speaks_of_such_pods() -> None:
    limits = LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": 2}}]}}
    with pytest.raises(Unresolvable, match="wants 2 at least"):
        resolve(pods(from_template("a", "gpus"), requests={"cpu": 1}), template("gpus", exactly("h100")), limits)
