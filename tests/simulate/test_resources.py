"""What workloads of a scenario are counted as: settings, limit ranges, and devices of the cluster's own objects."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.simulate.build import flavor, local_queue, play, pod_set, queue, ran, reasons, workload

Object = dict[str, Any]
BOTH = pytest.mark.parametrize("semantics", list(Semantics))
QUOTA = {"default": {"cpu": 100, "gpus": 4, "credits": 10}}
TREE = (flavor(), queue("q", QUOTA), local_queue("q"))


def configuration(**resources: Any) -> Object:
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resources": resources}


def named(kind: str, name: str, **more: Any) -> Object:
    return {"kind": kind, "metadata": {"name": name}, **more}


def asks(name: str, count: int = 1) -> Object:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": name, "count": count}}]}}


def job(name: str, created: int = 0, **more: Any) -> Object:
    return workload(name, created=created, podSets=[pod_set(**more)])


MAPPED = configuration(deviceClassMappings=[{"name": "gpus", "deviceClassNames": ["h100"]}])
TEMPLATE = named("ResourceClaimTemplate", "two", spec={"spec": asks("h100", 2)})
PODS = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "two"}]}


@BOTH
def test_transformations_of_kueues_configuration_count(semantics: Semantics):
    rules = configuration(transformations=[{"input": "gpu", "strategy": "Replace", "outputs": {"credits": 4}}])
    jobs = [job(name, created, requests={"gpu": 1}) for created, name in enumerate("abc")]
    found = play(*TREE, rules, *jobs, semantics=semantics)
    assert ran(found) == ["a", "b"]
    assert "2 credits short" in found["pending"]["default/c"]["message"]


@BOTH
def test_what_is_not_declared_is_ignored_where_the_configuration_says_so(semantics: Semantics):
    jobs = (job("a", requests={"cpu": 1, "disk": 5}),)
    assert reasons(play(*TREE, *jobs, semantics=semantics)) == {"a": "NoMatchingFlavor"}
    rules = configuration(quotaCheckStrategy="IgnoreUndeclared")
    assert ran(play(*TREE, rules, *jobs, semantics=semantics)) == ["a"]


@BOTH
def test_devices_of_a_template_are_counted_for_each_pod(semantics: Semantics):
    jobs = (job("a", count=2, pod=PODS), job("b", 1, pod=PODS))
    found = play(*TREE, MAPPED, TEMPLATE, *jobs, semantics=semantics)
    assert ran(found) == ["a"]
    assert found["admitted"]["default/a"]["podSets"]["main"]["flavors"] == {"cpu": "default", "gpus": "default"}
    assert "2 gpus short" in found["pending"]["default/b"]["message"]


@BOTH
def test_without_mapping_or_template_it_waits_and_says_which(semantics: Semantics):
    unmapped = play(*TREE, TEMPLATE, job("a", pod=PODS), semantics=semantics)
    assert reasons(unmapped) == {"a": "Misconfigured"}
    assert "DeviceClass h100" in unmapped["pending"]["default/a"]["message"]
    missing = play(*TREE, MAPPED, job("a", pod=PODS), semantics=semantics)
    assert reasons(missing) == {"a": "Misconfigured"}
    assert "there is no ResourceClaimTemplate two" in missing["pending"]["default/a"]["message"]


def test_a_claim_that_pods_share_is_counted_once_and_refused_by_kueue():
    claim = named("ResourceClaim", "fabric", spec=asks("h100", 3))
    shared = {"resourceClaims": [{"name": "a", "resourceClaimName": "fabric"}]}
    objects = (*TREE, MAPPED, claim, job("a", count=5, pod=shared))
    assert ran(play(*objects)) == ["a"]
    assert reasons(play(*objects, semantics=Semantics.KUEUE)) == {"a": "Misconfigured"}


@BOTH
def test_an_extended_resource_of_a_class_is_counted_as_the_class(semantics: Semantics):
    served = named("DeviceClass", "h100", spec={"extendedResourceName": "nvidia.com/gpu"})
    jobs = [job(name, created, requests={"nvidia.com/gpu": 3}) for created, name in enumerate("ab")]
    found = play(*TREE, MAPPED, served, *jobs, semantics=semantics)
    assert ran(found) == ["a"]
    assert "2 gpus short" in found["pending"]["default/b"]["message"]


@BOTH
def test_a_limit_range_that_refuses_the_pods_is_named_with_the_field(semantics: Semantics):
    limits = named("LimitRange", "l", spec={"limits": [{"type": "Container", "min": {"cpu": 2}}]})
    found = play(*TREE, limits, job("a"), semantics=semantics)
    assert reasons(found) == {"a": "Misconfigured"}
    assert "containers[0].resources requests 1 of cpu" in found["pending"]["default/a"]["message"]
