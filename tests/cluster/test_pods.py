"""Effective requests as kube-scheduler counts them, and the projection."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster import nodes, pods
from queue_manager.engine.workload import Taint


def container(name: str = "c", *, limits: dict[str, str] | None = None, always: bool = False, **requests: str) -> Any:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests, "limits": limits or {}}}
    return made | ({"restartPolicy": "Always"} if always else {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": [container(cpu="1500m"), container(cpu="1", memory="1Gi")]}, {"cpu": 2500, "memory": 1 << 30}),
        # Limits stand for requests, resource by resource.
        (
            {"containers": [container(limits={"cpu": "2", "nvidia.com/gpu": "8"}, cpu="1")]},
            {"cpu": 1000, "nvidia.com/gpu": 8},
        ),
        # Init containers run one after another: only the greatest counts.
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="2"), container(cpu="3")]},
            {"cpu": 3000},
        ),
        # A sidecar runs on with the containers, and beside the init containers after it.
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="1", always=True), container(cpu="4")],
            },
            {"cpu": 5000},
        ),
        (
            {
                "containers": [container(cpu="3")],
                "initContainers": [container(cpu="3"), container(cpu="1", always=True)],
            },
            {"cpu": 4000},
        ),
        (
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "1Ki"}},
            {"cpu": 1250, "memory": 1024},
        ),
        # Requests of the whole pod.
        (
            {"containers": [container(cpu="1", memory="1Ki")], "resources": {"requests": {"cpu": "5"}}},
            {"cpu": 5000, "memory": 1024},
        ),
    ],
)
def test_effective_requests(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pods.effective_requests(spec) == expected


def test_an_amount_that_is_no_quantity_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        pods.effective_requests({"containers": [container(cpu="lots")]})


def test_projection_keeps_what_decides_and_drops_the_rest() -> None:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "5",
            "labels": {"a": "b"},
            "managedFields": [{}],
            "ownerReferences": [
                {"kind": "Other", "name": "o", "uid": "x"},
                {"kind": "Job", "name": "j", "uid": "y", "controller": True, "blockOwnerDeletion": True},
            ],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                container(cpu="1") | {"env": [{"name": "A"}], "ports": [{"containerPort": 1, "hostPort": 80}]}
            ],
            "volumes": [{"name": "big"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]},
    }
    small = pods.project(pod)
    assert small["metadata"]["ownerReferences"] == [{"kind": "Job", "name": "j", "uid": "y", "controller": True}]
    assert small["spec"] == {"nodeName": "node-1"}
    assert small["requests"] == {"cpu": 1000}
    assert small["hostPorts"] == [80]
    assert "managedFields" not in small["metadata"]
    assert pods.usage(small) == {"cpu": 1000, "pods": 1, "hostPort/80": 1} == pods.usage(pod)
    assert pods.is_ready(small)
    assert pods.node_of(small) == "node-1"


def test_gone_means_deleted_succeeded_or_failed() -> None:
    def pod(phase: str, **metadata: str) -> dict[str, Any]:
        return {"metadata": {"name": "p", **metadata}, "spec": {}, "status": {"phase": phase}}

    assert pods.is_gone(None)
    assert pods.is_gone(pod("Succeeded"))
    assert pods.is_gone(pod("Failed"))
    assert not pods.is_gone(pod("Running", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert pods.total_usage([pod("Running"), pod("Failed"), pod("Pending")]) == {"pods": 2}


def test_nodes() -> None:
    node: dict[str, Any] = {
        "metadata": {"name": "n1", "labels": {"rack": "r1"}, "uid": "u", "resourceVersion": "1"},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": True, "podCIDR": "10.0.0.0/24"},
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "True", "message": "x"},
                {"type": "DiskPressure", "status": "False"},
            ],
            "images": [{"names": ["a"]}],
        },
    }
    small = nodes.project(node)
    assert "images" not in small["status"]
    made = nodes.engine_node(small, {"cpu": 100})
    assert made == nodes.engine_node(node, {"cpu": 100})
    assert made.allocatable == {"cpu": 96_000, "memory": 1 << 40, "pods": 110}
    assert made.taints == (Taint("gpu", "", "NoSchedule"),)
    assert made.ready
    assert made.unschedulable
    assert made.foreign == {"cpu": 100}
    del node["status"]["conditions"]
    assert not nodes.engine_node(node).ready


def test_the_ports_of_a_pod_on_the_network_of_its_host_are_ports_of_the_host() -> None:
    containers = [{"ports": [{"containerPort": 8471}, {"containerPort": 80, "hostPort": 8080}]}]
    assert pods.host_ports({"containers": containers}) == [8080]
    assert pods.host_ports({"containers": containers, "hostNetwork": True}) == [8080, 8471]
