"""What the API server is told to send us, and that it stays so."""

import base64

import pytest

from queue_manager.cluster.port import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from queue_manager.webhook.registration import (
    NAME,
    Selection,
    Service,
    Url,
    configurations,
    register,
    unregister,
)
from tests.webhook.fakes import OURSELVES, FakeCluster

TARGET = Service("queue-manager")
SELECTION = Selection(identities=(OURSELVES,))


def entries(resource, target=TARGET, selection=SELECTION):
    return {entry["name"]: entry for entry in configurations(target, b"CA", selection)[resource]["webhooks"]}


@pytest.mark.parametrize("resource", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS])
def test_selects_a_label_or_a_managed_namespace_and_nothing_else(resource):
    found = entries(resource)
    by_label, by_namespace = found["label.jobs.queue-manager.io"], found["namespace.jobs.queue-manager.io"]
    assert by_label["objectSelector"] == {"matchExpressions": [{"key": "queue-manager.io/queue", "operator": "Exists"}]}
    assert by_namespace["objectSelector"]["matchExpressions"][0]["operator"] == "DoesNotExist"
    managed = {"key": "queue-manager.io/managed", "operator": "In", "values": ["true"]}
    assert managed in by_namespace["namespaceSelector"]["matchExpressions"]
    for entry in found.values():
        system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "queue-manager"]}
        assert system in entry["namespaceSelector"]["matchExpressions"]
        assert entry["failurePolicy"] == "Fail"
        assert entry["sideEffects"] == "None"


def test_operations_and_reinvocation():
    operations = {tuple(rule["operations"]) for e in entries(MUTATING_WEBHOOKS).values() for rule in e["rules"]}
    assert operations == {("CREATE",)}
    assert {e["reinvocationPolicy"] for e in entries(MUTATING_WEBHOOKS).values()} == {"IfNeeded"}
    assert all("reinvocationPolicy" not in e for e in entries(VALIDATING_WEBHOOKS).values())


def test_another_label_that_names_queues_gets_its_own_entry():
    selection = Selection(queue_labels=("queue-manager.io/queue", "kueue.x-k8s.io/queue-name"))
    found = entries(MUTATING_WEBHOOKS, selection=selection)
    assert found["label-1.jobs.queue-manager.io"]["objectSelector"]["matchExpressions"] == [
        {"key": "queue-manager.io/queue", "operator": "DoesNotExist"},
        {"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"},
    ]
    assert len(found["namespace.jobs.queue-manager.io"]["objectSelector"]["matchExpressions"]) == 2


def test_paths():
    by_url = entries(VALIDATING_WEBHOOKS, Url("https://127.0.0.1:9443/"))
    assert by_url["label.jobs.queue-manager.io"]["clientConfig"]["url"] == "https://127.0.0.1:9443/validate"
    service = entries(MUTATING_WEBHOOKS)["namespace.jobs.queue-manager.io"]["clientConfig"]
    assert service["service"]["path"] == "/mutate/namespace"
    assert base64.b64decode(service["caBundle"]) == b"CA"


def test_mutating_and_validating_calls_have_connections_of_their_own():
    bundles = {
        base64.b64decode(entry["clientConfig"]["caBundle"])
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for entry in entries(resource, Url("https://127.0.0.1:9443")).values()
    }
    assert bundles == {b"CA", b"CA\n"}


def test_no_bundle_is_said_before_there_is_one():
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for entry in configurations(TARGET, b"", SELECTION)[resource]["webhooks"]:
            assert "caBundle" not in entry["clientConfig"]


async def test_registers_once_and_repairs():
    cluster = FakeCluster()
    assert await register(cluster.port, TARGET, b"CA", SELECTION)
    assert not await register(cluster.port, TARGET, b"CA", SELECTION)
    assert len(cluster.writes) == 2
    assert await register(cluster.port, TARGET, b"CA and old CA", SELECTION)
    stored = cluster.objects[MUTATING_WEBHOOKS.plural, "", NAME]
    stored["webhooks"][0]["failurePolicy"] = "Ignore"
    assert await register(cluster.port, TARGET, b"CA and old CA", SELECTION)
    assert cluster.objects[MUTATING_WEBHOOKS.plural, "", NAME]["webhooks"][0]["failurePolicy"] == "Fail"
    await cluster.delete(VALIDATING_WEBHOOKS, "", NAME)
    assert await register(cluster.port, TARGET, b"CA and old CA", SELECTION)
    assert not await register(cluster.port, TARGET, b"CA and old CA", SELECTION)


async def test_unregisters_what_is_there():
    cluster = FakeCluster()
    await register(cluster.port, TARGET, b"CA", SELECTION)
    await unregister(cluster.port)
    await unregister(cluster.port)
    assert cluster.objects == {}
