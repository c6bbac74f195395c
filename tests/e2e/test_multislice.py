"""The JAX multislice JobSet: replicas on node pools of their own, in user's shape, through failures to the end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.control_plane.nodes import node
from tests.e2e.product import HOST, JOB, JOB_SET, NODE, POD, TRAIN_JOB, Product, config, train_job
from tests.e2e.record import admissions
from tests.e2e.runtimes import job_set, of, replicated_job, runtime
from tests.e2e.test_pinned import rank, seated, slot
from tests.e2e.watching import catch_up, pods_of

pytestmark = pytest.mark.cluster

POOL = "cloud.google.com/gke-nodepool"
SHAPE = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
TPU = "google.com/tpu"


def pool(name: str, *, shape: str = "2x4", hosts: int = 2) -> list[Object]:
    """A node pool of TPU hosts with 4 chips each."""
    labels = {**SHAPE, "cloud.google.com/gke-tpu-topology": shape, POOL: name}
    return [node(f"{name}-{n}", labels=labels, resources={TPU: "4"}) for n in range(1, hosts + 1)]


def prepare(product: Product, pools: Iterable[list[Object]]) -> str:
    """These pools, a queue for all of their chips; the namespace for a test."""
    product.cluster.create_nodes(one for nodes in pools for one in nodes)
    resources = [{"name": TPU, "nominalQuota": 1000}]
    group = {"coveredResources": [TPU], "flavors": [{"name": "tpus", "resources": resources}]}
    product.configure(
        config("Topology", "pools", {"levels": [{"nodeLabel": POOL}, {"nodeLabel": HOST}]}),
        config("Flavor", "tpus", {"topologyName": "pools"}),
        config("Queue", "team", {"namespaceSelector": {}, "resourceGroups": [group]}),
    )
    return str(product.cluster.new_namespace())


def multislice(replicas: int = 4) -> Object:
    """As its user writes it."""
    slices = replicated_job("slice", 0, replicas=replicas, parallelism=2)
    slices["template"]["spec"]["template"]["spec"] = {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "nodeSelector": dict(SHAPE),
        "containers": [
            {
                "name": "jax",
                "image": "example",
                "ports": [{"containerPort": 8471}, {"containerPort": 8080}],
                "securityContext": {"privileged": True},
                "resources": {"limits": {TPU: "4"}},
            }
        ],
    }
    found = job_set("multislice", "team", slices, failurePolicy={"maxRestarts": 3})
    found["metadata"]["annotations"] = {EXCLUSIVE: POOL}
    return found


def pool_of(product: Product, pod: Object) -> str:
    return str(product.client.get(NODE, pod["spec"]["nodeName"])["metadata"]["labels"][POOL])


def pools_by_replica(product: Product, pods: list[Object]) -> dict[int, set[str]]:
    """The pools on which the pods of each replica run."""
    found: dict[int, set[str]] = {}
    for pod in pods:
        found.setdefault(rank(pod, 2) // 2, set()).add(pool_of(product, pod))
    return found


def test_each_slice_has_a_pool_of_its_own_and_comes_back_to_it_until_the_fourth_failure(product: Product) -> None:
    big, odd = pool("big", shape="4x4", hosts=8), pool("odd", shape="2x2")
    namespace = prepare(product, [*(pool(f"p{n}") for n in range(1, 6)), big, odd])
    product.client.create(with_host_port("p2-1", 8471), namespace)
    product.client.wait(lambda: product.cluster.pods(namespace)[0]["status"]["phase"] == "Running", "the port is taken")
    catch_up(product)

    product.client.create(multislice(), namespace)
    pods = product.cluster.wait_pods(namespace, 8, selector=of("multislice"))
    row = product.wait_state(namespace, "multislice", State.RUNNING)
    assert product.charged("team", TPU) == 32
    before = seated(pods)
    found = pools_by_replica(product, pods)
    assert sorted(name for names in found.values() for name in names) == ["p1", "p3", "p4", "p5"]
    assert all(slot(pod) == rank(pod, 2) for pod in pods)
    assert all(pod["spec"]["nodeSelector"].items() >= SHAPE.items() for pod in pods)
    # Decided by us: JobSet's own webhook has given them nothing.
    stored = product.client.get(JOB_SET, "multislice", namespace)
    assert stored["metadata"]["annotations"]["queue-manager.io/exclusive-topology"] == POOL
    assert EXCLUSIVE not in stored["metadata"]["annotations"]
    assert not any({"podAffinity", "podAntiAffinity"} & pod["spec"]["affinity"].keys() for pod in pods)

    for restarts in (1, 2, 3):
        gone = {pod["metadata"]["uid"] for pod in pods}
        product.cluster.fail_pods(namespace, f"{of('multislice')},{INDEX}=1,{REPLICA}={restarts}")
        pods = product.cluster.wait_pods(namespace, 8, selector=f"{of('multislice')},{ATTEMPT}={restarts}", timeout=60)
        assert gone.isdisjoint(pod["metadata"]["uid"] for pod in pods)
        assert seated(pods) == before
        assert product.client.get(JOB_SET, "multislice", namespace)["status"]["restarts"] == restarts
        assert product.charged("team", TPU) == 32
    assert product.row(namespace, "multislice").attempt == row.attempt  # type: ignore[union-attr]
    assert admissions(product, namespace, "multislice") == 1

    product.cluster.fail_pods(namespace, f"{of('multislice')},{INDEX}=0,{REPLICA}=0")
    product.wait_state(namespace, "multislice", State.FAILED, timeout=60)
    assert product.charged("team", TPU) == 0


INDEX, REPLICA = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


def with_host_port(host: str, port: int) -> Object:
    """A pod of somebody else that takes a port of a node."""
    ports = [{"containerPort": port, "hostPort": port}]
    spec = {"nodeName": host, "containers": [{"name": "main", "image": "example", "ports": ports}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}, "spec": spec}


def test_without_enough_pools_it_waits_and_starts_whole_when_one_is_free(product: Product) -> None:
    namespace = prepare(product, [pool(f"p{n}") for n in range(1, 5)])
    product.client.create(with_host_port("p2-1", 8080), namespace)
    product.client.wait(lambda: product.cluster.pods(namespace)[0]["status"]["phase"] == "Running", "the port is taken")
    catch_up(product)
    product.client.create(multislice(), namespace)
    product.wait_state(namespace, "multislice", State.WAITING, reason="TopologyPlacementFailed")
    assert product.cluster.pods(namespace, of("multislice")) == []
    assert product.charged("team", TPU) == 0
    product.client.delete(POD, "foreign", namespace, grace_seconds=0)
    pods = product.cluster.wait_pods(namespace, 8, selector=of("multislice"), timeout=60)
    assert len({name for names in pools_by_replica(product, pods).values() for name in names}) == 4


def test_where_a_runtime_asks_for_it_leaders_go_first_to_their_committed_pools_and_followers_after_them(
    product: Product,
) -> None:
    """The JobSet is made by Trainer from its template, and keeps JobSet's annotation: followers are refused until their
    leader is scheduled."""
    namespace = prepare(product, [pool(f"p{n}") for n in range(1, 5)])
    slices = replicated_job("slice", 0, replicas=3, parallelism=2)
    limits = {TPU: "4"}
    slices["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    made = runtime("slices", slices)
    made["spec"]["template"]["metadata"] = {"annotations": {EXCLUSIVE: POOL}}
    product.client.create(made)
    job = train_job("gang", "team", nodes=1, runtime="slices")
    job["spec"]["trainer"] = {}
    product.client.create(job, namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of("gang"), timeout=60)
    product.wait_state(namespace, "gang", State.RUNNING)
    assert product.client.get(TRAIN_JOB, "gang", namespace)["spec"]["suspend"] is False
    assert product.client.get(JOB_SET, "gang", namespace)["metadata"]["annotations"][EXCLUSIVE] == POOL
    assert all(slot(pod) == rank(pod, 2) for pod in pods)
    found = pools_by_replica(product, pods)
    assert sorted(len(names) for names in found.values()) == [1, 1, 1]
    assert len({name for names in found.values() for name in names}) == 3
    assert len(product.client.list(JOB, namespace)) == 3
