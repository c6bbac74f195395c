"""Makers of the simulated nodes that tests put into a control plane."""

from __future__ import annotations

from collections.abc import Mapping

from tests.control_plane.client import Object

BLOCK_LABEL = "topology.queue-manager.io/block"
RACK_LABEL = "topology.queue-manager.io/rack"
HOST_LABEL = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"

DOWN_LABEL = "test.queue-manager.io/down"
"""A node with this label keeps the conditions that the test gave it: the simulated kubelet leaves it alone."""


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    taints: list[Object] | None = None,
    unschedulable: bool = False,
) -> Object:
    """A ready node; ``resources`` (default 96 CPUs, 1 TiB, 110 pods) are its capacity and all of it allocatable."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", **(resources or {})}
    spec: Object = {}
    if taints:
        spec["taints"] = taints
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOST_LABEL: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", **(labels or {})},
        },
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated node is ready"}
            ],
        },
    }


def gpu_fleet(
    blocks: int = 2,
    racks: int = 4,
    hosts: int = 8,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
) -> list[Object]:
    """Nodes of GPU servers in racks in blocks (default 2 blocks x 4 racks x 8 hosts x 8 GPUs).

    Numbers start at 1. A block is called ``b1``, its racks ``b1-r1`` ... (unique in the cluster, so that one label
    names one rack) and their hosts ``b1-r1-n1`` ...; each node has these under the block, rack and host label keys.
    """
    places = [
        (block, f"{block}-r{rack}", f"{block}-r{rack}-n{host}")
        for block in (f"b{number}" for number in range(1, blocks + 1))
        for rack in range(1, racks + 1)
        for host in range(1, hosts + 1)
    ]
    return [
        node(
            name,
            labels={BLOCK_LABEL: block, RACK_LABEL: rack, **(labels or {})},
            resources={GPU: str(gpus), **(resources or {})},
        )
        for block, rack, name in places
    ]
