"""The webhook's parts against the simulated cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CRDS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    TRAIN_JOBS,
    VALIDATING_WEBHOOKS,
    ApiError,
    PatchType,
)
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.simulated.clock import VirtualClock
from queue_manager.kinds.registry import KINDS
from queue_manager.webhook.callbacks import Callbacks
from queue_manager.webhook.certificate_stores import SecretStore
from queue_manager.webhook.certificates import ensure_certificates, renewal_time
from queue_manager.webhook.decide import Decider
from queue_manager.webhook.registration import NAME, Service, register, unregister
from queue_manager.webhook.rules import Rules
from tests.webhook.fakes import CATALOGUE, OURSELVES, TEAM_QUEUE, job

NOW = datetime(2026, 11, 29, tzinfo=UTC)


class DirectLookup:
    """Looks straight into the simulated API server's storage."""

    kueue_keys = False

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._state = cluster.state

    def get(self, resource, namespace, name):
        try:
            return self._state.get(resource, namespace, name)
        except ApiError:
            return None

    def schema(self, resource):
        crd = self.get(CRDS, "", f"{resource.plural}.{resource.group}")
        return crd and crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.fixture
def cluster():
    """A simulated cluster that asks our decisions at each write."""
    made = SimulatedCluster(VirtualClock(NOW))
    lookup = DirectLookup(made)
    rules = Rules(frozenset({OURSELVES}), catalogue=lambda: CATALOGUE)
    kinds = {(kind.resource.group, kind.resource.kind): kind for kind in KINDS}
    made.state.create(NAMESPACES, "", {"metadata": {"name": "ml"}}, manager="kubectl")
    callbacks = Callbacks(Decider(kinds, lookup, rules), managed=lambda namespace: False)
    made.state.mutators.append(callbacks.mutator)
    made.state.validators.append(callbacks.validator)
    return made


def replicated(name):
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    obj = job(name, kind="JobSet", labels=TEAM_QUEUE)
    obj["spec"] = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]}
    return obj


async def test_job_waits_and_its_children_are_left_alone(cluster):
    alice = cluster.as_user("alice", ("nlp",))
    stored = await alice.create(JOB_SETS, "ml", replicated("set"))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"]["queue-manager.io/user-groups"] == "nlp"
    while cluster.step():
        pass
    children = (await cluster.list(JOBS)).items
    assert [child["spec"]["suspend"] for child in children] == [True]
    assert "queue-manager.io/user" not in children[0]["metadata"].get("annotations", {})


async def test_train_job_gets_our_entry(cluster):
    runtime = {"metadata": {"name": "torch-distributed"}, "spec": {"template": {"spec": replicated("r")["spec"]}}}
    cluster.state.create(CLUSTER_TRAINING_RUNTIMES, "", runtime, manager="kubectl")
    obj = job("train", kind="TrainJob", labels=TEAM_QUEUE)
    obj["spec"] = {"runtimeRef": {"name": "torch-distributed"}}
    stored = await cluster.as_user("alice").create(TRAIN_JOBS, "ml", obj)
    assert stored["spec"]["suspend"] is True
    assert [entry["manager"] for entry in stored["spec"]["runtimePatches"]] == ["queue-manager.io/manager"]


async def test_queue_of_an_admitted_job(cluster):
    alice, ourselves = cluster.as_user("alice"), cluster.as_user(OURSELVES)
    await alice.create(JOB_SETS, "ml", replicated("set"))
    await ourselves.patch(JOB_SETS, "ml", "set", {"spec": {"suspend": False}}, PatchType.MERGE)
    moved = {"metadata": {"labels": {"queue-manager.io/queue": "research"}}}
    with pytest.raises(ApiError, match="the job is admitted from queue 'team'"):
        await alice.patch(JOB_SETS, "ml", "set", moved, PatchType.MERGE)
    await ourselves.patch(JOB_SETS, "ml", "set", moved, PatchType.MERGE)


async def test_registration_and_certificates_live_in_it(cluster):
    cluster.state.create(NAMESPACES, "", {"metadata": {"name": "queue-manager"}}, manager="kubectl")
    store = SecretStore(cluster, "queue-manager")
    made = await ensure_certificates(store, NOW, ["localhost"])
    assert await register(cluster, Service("queue-manager"), made.bundle)
    rotated = await ensure_certificates(store, renewal_time(made.authority), ["localhost"])
    assert await register(cluster, Service("queue-manager"), rotated.bundle)
    assert not await register(cluster, Service("queue-manager"), rotated.bundle)
    await unregister(cluster)
    with pytest.raises(ApiError):
        await cluster.get(VALIDATING_WEBHOOKS, "", NAME)
