"""What quota counts of what pods ask for, on the real API server: transformations, and devices of resource claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queue_manager.store.records import State
from tests.control_plane.client import Object
from tests.e2e.product import JOB, Product, config, job

pytestmark = pytest.mark.cluster

RESOURCE = "resource.k8s.io/v1"
MIG = "nvidia.com/mig-1g.5gb"
LONG = 90.0
GI = 2**30

SETTINGS = config(
    "Settings",
    "default",
    {
        "resources": {
            "transformations": [{"input": MIG, "strategy": "Replace", "outputs": {"gpu-memory": "5Gi"}}],
            "deviceClassMappings": [{"name": "devices", "deviceClassNames": ["h100.example.com"]}],
        }
    },
)
QUOTAS = [{"name": "devices", "nominalQuota": 8}, {"name": "gpu-memory", "nominalQuota": "20Gi"}]
QUEUE = config(
    "Queue",
    "team",
    {
        "namespaceSelector": {},
        "resourceGroups": [
            {"coveredResources": ["devices", "gpu-memory"], "flavors": [{"name": "plain", "resources": QUOTAS}]}
        ],
    },
)


@pytest.fixture
def counting(product: Product) -> Iterator[Product]:
    """The product with these settings, and a device class in the cluster."""
    product.client.create({"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": "h100.example.com"}})
    product.configure(config("Flavor", "plain"), SETTINGS, QUEUE)
    yield product
    product.client.delete(f"{RESOURCE}/DeviceClass", "h100.example.com")


def _template(count: int) -> Object:
    request = {"name": "gpus", "exactly": {"deviceClassName": "h100.example.com", "count": count}}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _job(name: str, parallelism: int, limits: Any = None, **claim: str) -> Object:
    found = job(name, "team", parallelism=parallelism)
    pod = found["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": limits} if limits else {}
    if claim:
        pod["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
        pod["resourceClaims"] = [{"name": "devices", **claim}]
    return found


def test_devices_of_claims_are_charged_and_a_missing_template_holds_the_job(counting: Product) -> None:
    product = counting
    namespace = product.cluster.new_namespace()
    product.client.create(_job("a", 3, resourceClaimTemplateName="gpus"), namespace)
    row = product.wait_state(namespace, "a", State.HELD, reason="ResourceClaimTemplateNotFound", timeout=LONG)
    assert "there is no ResourceClaimTemplate gpus" in row.message
    product.client.create(_template(2), namespace)
    product.wait_state(namespace, "a", State.RUNNING, timeout=LONG)
    assert product.charged("team", "devices") == 6

    claim = {**_template(2), "kind": "ResourceClaim", "metadata": {"name": "one"}, "spec": _template(2)["spec"]["spec"]}
    product.client.create(claim, namespace)
    product.client.create(_job("shared", 5, resourceClaimName="one"), namespace)
    product.wait_state(namespace, "shared", State.RUNNING, timeout=LONG)
    assert product.charged("team", "devices") == 8

    product.client.create(_job("b", 1, resourceClaimTemplateName="gpus"), namespace)
    row = product.wait_state(namespace, "b", State.WAITING, reason="WaitingForQuota", timeout=LONG)
    assert "2 devices short" in row.message
    product.client.delete(JOB, "shared", namespace)
    product.wait_state(namespace, "b", State.RUNNING, timeout=LONG)
    assert product.charged("team", "devices") == 8


def test_slices_of_gpus_are_charged_as_memory(counting: Product) -> None:
    product = counting
    namespace = product.cluster.new_namespace()
    product.client.create(_job("a", 3, {MIG: 1}), namespace)
    product.wait_state(namespace, "a", State.RUNNING, timeout=LONG)
    assert (product.charged("team", "gpu-memory"), product.charged("team", MIG)) == (15 * GI, 0)
    product.client.create(_job("b", 1, {MIG: 2}), namespace)
    row = product.wait_state(namespace, "b", State.WAITING, reason="WaitingForQuota", timeout=LONG)
    assert "gpu-memory short" in row.message
