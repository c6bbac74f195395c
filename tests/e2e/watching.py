"""Looking at pods and the nodes they run on, and at what the controller has seen by now."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from queue_manager.store.records import State
from tests.control_plane.client import Object, Objects
from tests.e2e.product import BLOCK, NODE, POD, RACK, Product, container, job

FINALIZER = "test.queue-manager.io/hold"
_numbers = itertools.count(1)


def pods_of(name: str) -> str:
    """Selector of the pods of a TrainJob or JobSet."""
    return f"jobset.sigs.k8s.io/jobset-name={name}"


def pods_of_job(name: str) -> str:
    """Selector of the pods of a batch/v1 Job."""
    return f"batch.kubernetes.io/job-name={name}"


def nodes_of(pods: Iterable[Object]) -> list[str]:
    """Names of the nodes that pods are bound to, one a pod, sorted."""
    return sorted(pod["spec"]["nodeName"] for pod in pods)


def racks_of(product: Product, pods: Iterable[Object]) -> set[str]:
    """The racks of these nodes, by the nodes' labels."""
    racks = {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in product.client.list(NODE)}
    return {racks[name] for name in nodes_of(pods)}


def placed_by_label(pods: Iterable[Object]) -> list[Object]:
    """What the pods' node selectors say of blocks and racks, one a pod."""
    selectors = [pod["spec"].get("nodeSelector") or {} for pod in pods]
    return [{key: selector[key] for key in (BLOCK, RACK) if key in selector} for selector in selectors]


def hold(product: Product, pod: Object) -> None:
    """Keeps a pod terminating, once it is deleted, until `let_go`."""
    metadata = pod["metadata"]
    finalizers = [*(metadata.get("finalizers") or []), FINALIZER]
    product.client.patch(POD, metadata["name"], {"metadata": {"finalizers": finalizers}}, metadata["namespace"])


def let_go(product: Product, pod: Object) -> None:
    """Takes our finalizer off again."""
    metadata = product.client.get(POD, pod["metadata"]["name"], pod["metadata"]["namespace"])["metadata"]
    finalizers = [name for name in metadata["finalizers"] if name != FINALIZER]
    product.client.patch(POD, metadata["name"], {"metadata": {"finalizers": finalizers}}, metadata["namespace"])


def foreign_pod(product: Product, node: str, gpus: int) -> Object:
    """A pod that nobody manages, on this node; it is running when this returns."""
    namespace = product.cluster.new_namespace("foreign")
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign"},
        "spec": {"nodeName": node, "containers": [container("main", gpus)]},
    }
    product.client.create(pod, namespace)
    return product.cluster.wait_pods(namespace, 1)[0]


def seen_ready(product: Product, namespace: str, name: str) -> bool:
    """Whether the controller itself has seen all pods of the workload ready, on the nodes they run on."""
    row = product.row(namespace, name)
    return row is not None and row.admission is not None and row.admission.ready_at is not None


def catch_up(product: Product) -> None:
    """Returns once the controller has decided about something that happened after this call began."""
    namespace, name = product.cluster.new_namespace("probe"), f"probe-{next(_numbers)}"
    product.client.create(job(name, "no-such-queue"), namespace)
    product.wait_state(namespace, name, State.WAITING, State.HELD, reason="UnknownQueue")


def names(objects: Objects) -> list[str]:
    """Their names, in order."""
    return [item["metadata"]["name"] for item in objects]
