"""The webhook as a real API server calls it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.transport import ApiServer
from queue_manager.controller.view import WATCHED_BY_WEBHOOK, ClusterView
from queue_manager.kinds.registry import KINDS
from queue_manager.webhook.certificate_stores import FolderStore
from queue_manager.webhook.registration import Selection, Url, register
from queue_manager.webhook.run import Options, run_webhook
from tests.control_plane.client import JOB, JOB_SET, POD, VALIDATING_WEBHOOK, ApiError, Client, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import gpu_fleet
from tests.webhook.fakes import CATALOGUE, OURSELVES

pytestmark = pytest.mark.cluster

QUEUE = {"queue-manager.io/queue": "team"}
USER = "queue-manager.io/user"
SELECTION = Selection(identities=(OURSELVES,))


@contextmanager
def webhook(control_plane: ControlPlane, folder: Path, *, keep_registered: bool = False) -> Iterator[int]:
    """Runs the role in a thread until the block ends; gives its port once the API server knows it."""
    loop, ports, problems = asyncio.new_event_loop(), [], []

    async def run() -> None:
        cluster = ApiServer(Credentials.kubeconfig(str(control_plane.kubeconfig)))
        clock, kinds = SystemClock(), {(kind.resource.group, kind.resource.kind): kind for kind in KINDS}
        view = ClusterView(cluster, clock, Random(1), lambda *_: None, WATCHED_BY_WEBHOOK)
        synced = asyncio.Event()
        options = Options(
            names=("127.0.0.1",),
            host="127.0.0.1",
            port=0,
            target=lambda port: Url(f"https://127.0.0.1:{port}"),
            selection=SELECTION,
            leave_registered=keep_registered,
        )
        watching = asyncio.create_task(view.run())
        try:
            role = run_webhook(
                cluster,
                kinds,
                view,
                FolderStore(folder),
                lambda: CATALOGUE,
                clock,
                options,
                synced.is_set,
                ports.append,
            )
            running = asyncio.create_task(role)
            await view.synced()
            synced.set()
            await running
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await cluster.close()

    task = loop.create_task(run())

    def work() -> None:
        try:
            loop.run_until_complete(task)
        except Exception as error:
            problems.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        control_plane.client.wait(
            lambda: ports and called(control_plane.client, ports[0]), "the webhook is registered and called"
        )
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(30)
        assert not thread.is_alive()
        assert problems == []


def called(client: Client, port: int) -> bool:
    """Whether the API server asks the webhook at this port by now (it reads registrations with a delay)."""
    found = client.find(VALIDATING_WEBHOOK, "queue-manager.io")
    if found is None or f":{port}/" not in found["webhooks"][0]["clientConfig"].get("url", ""):
        return False
    probe = job("probe", labels={"queue-manager.io/queue": "Not"})
    try:
        client.request("POST", client.path(JOB, None, "default"), probe, query={"dryRun": "All"})
    except ApiError as error:
        return "is not a name" in error.message
    return False


def job(name: str = "job", *, labels: Object | None = None, suspend: bool = False, **spec: object) -> Object:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"suspend": suspend, "template": template, **spec},
    }


def job_set(name: str = "set", *, labels: Object | None = None) -> Object:
    template = {"spec": job()["spec"]}
    del template["spec"]["suspend"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]},
    }


def train_job(name: str = "train", *, labels: Object | None = None) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 1}},
    }


def annotations(obj: Object) -> Object:
    return obj["metadata"].get("annotations") or {}


@pytest.mark.parametrize("make", [job, job_set, train_job])
def test_managed_job_is_created_suspended_and_its_children_are_left_alone(cluster, tmp_path, make):
    namespace = cluster.new_namespace()
    with webhook(cluster, tmp_path):
        alice = cluster.client.as_user("alice", ["system:masters", "nlp"])
        stored = alice.create(make(labels=QUEUE), namespace)
        assert stored["spec"]["suspend"] is True
        assert annotations(stored)[USER] == "alice"
        assert "nlp" in annotations(stored)["queue-manager.io/user-groups"].split(",")
        if make is not job:
            children = cluster.client.wait(lambda: cluster.client.list(JOB, namespace), "child Jobs appear")
            if make is train_job:
                children += cluster.client.list(JOB_SET, namespace)
            assert all(child["spec"]["suspend"] and USER not in annotations(child) for child in children)


def test_newer_train_job_gets_our_entry_once(cluster_stand_in, tmp_path):
    cluster = cluster_stand_in
    namespace = cluster.new_namespace()
    with webhook(cluster, tmp_path):
        stored = cluster.client.create(train_job(labels=QUEUE), namespace)
        assert [entry["manager"] for entry in stored["spec"]["runtimePatches"]] == ["queue-manager.io/manager"]
        copy = {**stored, "metadata": {"name": "copy", "labels": QUEUE, "annotations": annotations(stored)}}
        again = cluster.client.create(copy, namespace)
        assert [entry["manager"] for entry in again["spec"]["runtimePatches"]] == ["queue-manager.io/manager"]


def test_only_managed_jobs_are_touched(cluster, tmp_path):
    plain, managed = cluster.new_namespace(), cluster.new_namespace(labels={"queue-manager.io/managed": "true"})
    with webhook(cluster, tmp_path):
        untouched = cluster.client.create(job(), plain)
        assert untouched["spec"]["suspend"] is False
        assert USER not in annotations(untouched)
        stored = cluster.client.create(job(), managed)
        assert stored["spec"]["suspend"] is True
        assert stored["metadata"]["labels"]["queue-manager.io/queue"] == "default"
        train = cluster.client.create(train_job(), managed)
        child = cluster.client.wait(lambda: cluster.client.find(JOB_SET, "train", managed), "its JobSet appears")
        assert train["spec"]["suspend"] is True
        assert USER not in annotations(child)
        assert "queue-manager.io/queue" not in child["metadata"].get("labels", {})


def test_queue_of_an_admitted_job_changes_by_our_move_only(cluster, tmp_path):
    namespace = cluster.new_namespace()
    with webhook(cluster, tmp_path):
        cluster.client.create(job(labels=QUEUE), namespace)
        ourselves = cluster.client.as_user(OURSELVES, ["system:masters"])
        ourselves.patch(JOB, "job", {"spec": {"suspend": False}}, namespace)
        moved = {"metadata": {"labels": {"queue-manager.io/queue": "research"}}}
        for patch in (moved, {"metadata": {"labels": {"queue-manager.io/queue": None}}}):
            with pytest.raises(ApiError, match=r"metadata\.labels\[queue-manager\.io/queue\]: the job is admitted"):
                cluster.client.patch(JOB, "job", patch, namespace)
        with pytest.raises(ApiError, match=r"metadata\.annotations\[queue-manager\.io/user\]"):
            cluster.client.patch(JOB, "job", {"metadata": {"annotations": {USER: "bob"}}}, namespace)
        assert (
            ourselves.patch(JOB, "job", moved, namespace)["metadata"]["labels"]["queue-manager.io/queue"] == "research"
        )


def test_impossible_wishes_are_refused_with_the_field(cluster, tmp_path):
    namespace = cluster.new_namespace()
    with webhook(cluster, tmp_path):
        for wish, value in (("required-topology", "topology/rak"), ("min-count", "1")):
            obj = job_set(labels=QUEUE)
            obj["metadata"]["annotations"] = {f"queue-manager.io/{wish}": value}
            with pytest.raises(ApiError, match=rf"metadata\.annotations\[queue-manager\.io/{wish}\]"):
                cluster.client.create(obj, namespace)
        cluster.client.create(job_set(labels={"queue-manager.io/queue": "unknown"}), namespace)


def test_while_the_webhook_is_down_nothing_managed_starts_and_everything_else_goes_on(cluster, tmp_path):
    client, namespace = cluster.client, cluster.new_namespace()
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    ourselves = client.as_user(OURSELVES, ["system:masters"])
    with webhook(cluster, tmp_path, keep_registered=True):
        for name in ("running", "waiting"):
            client.create(job_set(name, labels=QUEUE), namespace)
    for obj in (job("new", labels=QUEUE), job_set("new", labels=QUEUE), train_job("new", labels=QUEUE)):
        with pytest.raises(ApiError, match="failed calling webhook"):
            client.create(obj, namespace)
    with pytest.raises(ApiError, match="failed calling webhook"):
        client.patch(JOB_SET, "waiting", {"spec": {"suspend": False}}, namespace)
    client.create(job("plain"), namespace)
    # Our controller goes on: it starts an admitted job, whose children are made, run, and are deleted with it.
    ourselves.patch(JOB_SET, "running", {"spec": {"suspend": False}}, namespace)
    client.wait(lambda: len(client.list(POD, namespace)) == 3, "pods of the admitted and of the plain job")
    client.delete(JOB_SET, "running", namespace, propagation="Foreground")
    client.wait(lambda: client.find(JOB_SET, "running", namespace) is None, "the job is deleted")


def test_restart_takes_the_registration_over_and_a_second_look_writes_nothing(cluster, tmp_path):
    with webhook(cluster, tmp_path, keep_registered=True):
        pass
    with webhook(cluster, tmp_path) as port:
        before = cluster.client.get(VALIDATING_WEBHOOK, "queue-manager.io")

        async def again() -> bool:
            api = ApiServer(Credentials.kubeconfig(str(cluster.kubeconfig)))
            try:
                return await register(
                    api, Url(f"https://127.0.0.1:{port}"), (tmp_path / "ca.crt").read_bytes(), SELECTION
                )
            finally:
                await api.close()

        assert asyncio.run(again()) is False
        after = cluster.client.get(VALIDATING_WEBHOOK, "queue-manager.io")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert cluster.client.find(VALIDATING_WEBHOOK, "queue-manager.io") is None
