"""Rules of pod templates, with kube-scheduler as the judge: every pod is bound, and lies where its rules want it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.control_plane.nodes import gpu_fleet
from tests.e2e.product import FLAVOR, RACK, TOPOLOGY, Product, job, queue
from tests.e2e.runtimes import job_set, replicated_job
from tests.e2e.watching import pods_of, pods_of_job, racks_of

pytestmark = pytest.mark.cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
APP: Object = {"matchLabels": {"app": "train"}}


def ruled(name: str, pods: int, gpus: int, **spec: Any) -> Object:
    made = job(name, "team", parallelism=pods, gpus=gpus, completionMode="Indexed")
    made["spec"]["template"]["metadata"] = {"labels": {"app": "train"}}
    made["spec"]["template"]["spec"] |= spec
    return made


def term(key: str, **more: Any) -> Object:
    keys = ["batch.kubernetes.io/job-name"]
    return {"topologyKey": key, "labelSelector": APP, "matchLabelKeys": keys, **more}


def per_rack(product: Product, pods: list[Object]) -> list[int]:
    return sorted(Counter(rack for pod in pods for rack in racks_of(product, [pod])).values())


def test_spread_together_and_apart(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 2, 4))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1000))
    namespace = product.cluster.new_namespace()

    apart = {"podAntiAffinity": {REQUIRED: [term(HOSTNAME)]}}
    product.client.create(ruled("apart", 6, 1, affinity=apart), namespace)
    pods = product.cluster.wait_pods(namespace, 6, selector=pods_of_job("apart"))
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 6

    constraint = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term(RACK)}
    product.client.create(ruled("spread", 5, 1, topologySpreadConstraints=[constraint]), namespace)
    assert per_rack(product, product.cluster.wait_pods(namespace, 5, selector=pods_of_job("spread"))) == [2, 3]

    together = {"podAffinity": {REQUIRED: [term(RACK)]}}
    product.client.create(ruled("together", 6, 3, affinity=together), namespace)
    assert per_rack(product, product.cluster.wait_pods(namespace, 6, selector=pods_of_job("together"))) == [6]

    own = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "set"}}
    workers = replicated_job("workers", 1, replicas=2, parallelism=1)
    workers["template"]["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {REQUIRED: [{"topologyKey": RACK, "labelSelector": own}]}
    }
    product.client.create(job_set("set", "team", workers), namespace)
    assert per_rack(product, product.cluster.wait_pods(namespace, 2, selector=pods_of("set"))) == [1, 1]


def test_a_rule_that_can_not_be_kept_is_named(product: Product) -> None:
    product.cluster.create_nodes(gpu_fleet(1, 2, 4))
    product.configure(TOPOLOGY, FLAVOR, queue("team", 1000))
    namespace = product.cluster.new_namespace()
    others = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "web"}}}
    product.client.create(ruled("others", 2, 1, affinity={"podAffinity": {REQUIRED: [others]}}), namespace)
    row = product.wait_state(namespace, "others", State.HELD)
    assert "spec.template.spec.affinity.podAffinity" in row.message
    assert "it is about pods of others" in row.message
    crowded = ruled("crowded", 3, 1, affinity={"podAntiAffinity": {REQUIRED: [term(RACK)]}})
    crowded["metadata"]["annotations"] = {"queue-manager.io/required-topology": RACK}
    product.client.create(crowded, namespace)

    def told() -> bool:
        found = product.row(namespace, "crowded")
        return found is not None and "allows one pod per " + RACK in found.message

    product.client.wait(told, "the contradiction is named")
