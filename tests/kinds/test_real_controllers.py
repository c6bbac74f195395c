"""The kinds against the real controllers: what they say a job will ask for is what its pods then ask for."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.pods import effective_requests
from queue_manager.cluster.port import JOB_SETS, JOBS, TRAIN_JOBS, Object, Resource
from queue_manager.kinds.kind import PodPlacement
from queue_manager.kinds.registry import BY_RESOURCE
from tests.control_plane.client import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import BLOCK_LABEL, GPU, RACK_LABEL, gpu_fleet
from tests.kinds.live import Live
from tests.kinds.world import container, job, job_set, pod_template, replicated_job, runtime, train_job

pytestmark = pytest.mark.cluster

SHIPPED = (
    "torch-distributed",
    "torchtune-llama3.2-1b",
    "torchtune-llama3.2-3b",
    "deepspeed-distributed",
    "mlx-distributed",
    "mpi-distributed",
)
NO_PLACEMENT = PodPlacement(0)


def check(live: Live, name: str) -> None:
    """Starts a job and holds its pods, stage by stage, against its pod sets as told before any pod was there."""
    told = live.pod_sets(name)
    live.start(name, {})
    last = max(pod_set.stages[1] for pod_set in told.values())
    for stage in range(last + 1):
        now = {key: pod_set for key, pod_set in told.items() if pod_set.stages[0] <= stage <= pod_set.stages[1]}
        counts = {key: pod_set.count - pod_set.reclaimed for key, pod_set in now.items()}
        for key, pods in live.running(name, counts).items():
            for pod in pods:
                found = effective_requests(pod["spec"])
                assert found == dict(now[key].requests), f"{key}: the pod asks for {found}"
                assert (pod["spec"].get("nodeSelector") or {}) == dict(now[key].node_selector)
        for key, pod_set in now.items():
            if pod_set.stages[1] == stage < last:
                selector = f"jobset.sigs.k8s.io/replicatedjob-name={key}"
                live.cluster.finish_pods(live.namespace, selector)
    live.stop(name)


def claim(live: Live, name: str) -> None:
    """The volume that torchtune's runtimes mount."""
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    live.client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{live.namespace}-{name}"},
            "spec": {
                **spec,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/none"},
                "claimRef": {"namespace": live.namespace, "name": name},
            },
        }
    )
    live.client.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": live.namespace},
            "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{live.namespace}-{name}"},
        }
    )


class TestTrainJob:
    @pytest.mark.parametrize("name", SHIPPED)
    def test_every_runtime_that_trainer_v2_0_0_ships(self, cluster: ControlPlane, name: str) -> None:
        cluster.create_nodes(gpu_fleet(1, 1, 8))
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        if name.startswith("torchtune"):
            claim(live, name)
        resources = {"limits": {GPU: 2, "cpu": "3"}, "requests": {"cpu": "1500m"}}
        for number, trainer in enumerate(
            (
                None,
                {"numNodes": 1, "resourcesPerNode": resources},
                {"numNodes": 3, "resourcesPerNode": {"requests": {"memory": "1Gi"}}},
            )
        ):
            made = train_job(name, name=f"job-{number}", **({"trainer": trainer} if trainer else {}))
            check(live, live.create(made))

    def test_shipped_are_all_known(self, cluster: ControlPlane) -> None:
        found = cluster.client.list("trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime")
        assert sorted(item["metadata"]["name"] for item in found) == sorted(SHIPPED)

    @pytest.mark.parametrize(
        ("made", "trainer"),
        [
            (
                runtime(
                    "replicas",
                    replicated_job("side", pod_template(container("side", {"cpu": 1})), replicas=2, parallelism=2),
                    replicated_job("node", pod_template(container("node", {"cpu": 2}, {"cpu": 4})), ancestor="trainer"),
                    policy={"numNodes": 2, "torch": {}},
                ),
                {"resourcesPerNode": {"limits": {"memory": "1Gi"}}},
            ),
            (
                runtime(
                    "two-trainers",
                    replicated_job("node", pod_template(container("node")), ancestor="trainer"),
                    replicated_job("more", pod_template(container("node")), ancestor="trainer"),
                    policy={"numNodes": 2, "torch": {}},
                ),
                {"numNodes": 3},
            ),
            (
                runtime(
                    "plain", replicated_job("node", pod_template(container("node")), ancestor="trainer", parallelism=2)
                ),
                {"resourcesPerNode": {"limits": {"cpu": 1}}},
            ),
            (
                runtime(
                    "own-launcher",
                    replicated_job("launcher", pod_template(container("node", {"cpu": 1})), ancestor="trainer"),
                    replicated_job("node", pod_template(container("node", {"cpu": 2}))),
                    policy={"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI", "sshAuthMountPath": "/x"}},
                ),
                {"numNodes": 3, "resourcesPerNode": {"limits": {GPU: 1}}},
            ),
        ],
        ids=["replicas", "two-trainers", "plain", "own-launcher"],
    )
    def test_runtimes_of_our_own(self, cluster: ControlPlane, made: tuple[Resource, Object], trainer: Any) -> None:
        cluster.create_nodes(gpu_fleet(1, 1, 8))
        cluster.client.create({**made[1], "metadata": {"name": made[1]["metadata"]["name"]}})
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        check(live, live.create(train_job(made[1]["metadata"]["name"], trainer=trainer)))

    def test_overrides_of_the_user(self, cluster: ControlPlane) -> None:
        cluster.create_nodes(gpu_fleet(1, 1, 2))
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        overrides = [{"targetJobs": [{"name": "node"}], "nodeSelector": {RACK_LABEL: "b1-r1"}}]
        name = live.create(train_job("torch-distributed", trainer={"numNodes": 2}, podSpecOverrides=overrides))
        check(live, name)
        assert live.get(name)["spec"]["podSpecOverrides"] == overrides


@pytest.mark.parametrize("name", ["torch-distributed", "deepspeed-distributed"])
def test_newer_api_on_the_stand_in(cluster_stand_in: ControlPlane, name: str) -> None:
    """Not Trainer itself, but another reading of the same rules (v2.3), with the real JobSet under it."""
    cluster_stand_in.create_nodes(gpu_fleet(1, 1, 4))
    live = Live(cluster_stand_in, BY_RESOURCE[TRAIN_JOBS])
    pod = {"nodeSelector": {RACK_LABEL: "b1-r1"}, "tolerations": [{"key": "own", "operator": "Exists"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    entries = [{"manager": "someone.io/else", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {GPU: 2}}}
    check(live, live.create(train_job(name, trainer=trainer, runtimePatches=entries)))


DEFAULTS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults"},
    "spec": {
        "limits": [{"type": "Container", "default": {"cpu": "8"}, "defaultRequest": {"cpu": "500m", "memory": "64Mi"}}]
    },
}
KATA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata-of-kinds"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}},
}
TEMPLATES: dict[str, Any] = {
    "limits": pod_template(container("a", None, {GPU: 1, "cpu": "1500m"}), container("b", {"memory": "1Gi"})),
    "sidecars": pod_template(
        container("a", {"cpu": 2}),
        initContainers=[
            container("first", {"cpu": 3}),
            container("side", {"cpu": 1, "memory": "1Gi"}, restartPolicy="Always"),
            container("later", {"cpu": 3}),
        ],
    ),
    "overhead": pod_template(container("a", {"cpu": 1}), runtimeClassName="kata-of-kinds"),
    "whole-pod": pod_template(container("a", {"cpu": 1}), resources={"limits": {"cpu": 16, "memory": "2Gi"}}),
    "nothing": pod_template(container("a")),
}


@pytest.mark.parametrize("defaults", [False, True], ids=["", "limit-range"])
@pytest.mark.parametrize("resource", [JOBS, JOB_SETS], ids=["Job", "JobSet"])
def test_pod_templates(cluster: ControlPlane, resource: Resource, defaults: bool) -> None:
    cluster.create_nodes(gpu_fleet(1, 1, 4))
    live = Live(cluster, BY_RESOURCE[resource])
    if cluster.client.find("node.k8s.io/v1/RuntimeClass", "kata-of-kinds") is None:
        cluster.client.create(KATA)
    if defaults:
        cluster.client.create(DEFAULTS, live.namespace)
    for name, given in TEMPLATES.items():
        template = {"spec": {"restartPolicy": "Never", **given["spec"]}}
        made = (
            job(template, name=name, parallelism=2, completions=3)
            if resource == JOBS
            else job_set(
                replicated_job("a", template, replicas=2, parallelism=2, completions=1),
                replicated_job("b", template, parallelism=1, completions=2),
                name=name,
            )
        )
        check(live, live.create(made))


class TestJobCounts:
    def test_resumes_with_what_is_left(self, cluster: ControlPlane) -> None:
        """Golden case 9, kueue#10487."""
        cluster.create_nodes(gpu_fleet(1, 1, 2))
        live = Live(cluster, BY_RESOURCE[JOBS])
        template = pod_template(container("a", {"cpu": 1}), restartPolicy="Never")
        name = live.create(job(template, parallelism=4, completions=4, completionMode="Indexed"))
        live.start(name, {"main": NO_PLACEMENT})
        live.running(name, {"main": 4})
        live.cluster.finish_pods(live.namespace, "batch.kubernetes.io/job-completion-index=1")
        live.running(name, {"main": 3})
        live.stop(name)
        told = live.pod_sets(name)["main"]
        assert (told.count, told.reclaimed) == (4, 1)
        live.start(name, {"main": NO_PLACEMENT})
        live.running(name, {"main": 3})


def remove_runtime(live: Live, runtime_name: str, job_name: str) -> None:
    """Deletes a runtime that a TrainJob uses, past Trainer's finalizer, and waits until Trainer has noticed."""
    kind = "trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime"
    live.client.delete(kind, runtime_name)
    if live.client.find(kind, runtime_name) is not None:
        live.client.patch(kind, runtime_name, {"metadata": {"finalizers": None}})
    live.client.wait_gone(kind, runtime_name)

    def refused() -> bool:
        path = live.client.path("trainer.kubeflow.org/v1alpha1/TrainJob", job_name, live.namespace)
        change = {"metadata": {"labels": {"probe": "x"}}}
        try:
            live.client.request(
                "PATCH", path, change, content_type="application/merge-patch+json", query={"dryRun": "All"}
            )
        except ApiError as error:
            return error.status == 403
        return False

    live.client.wait(refused, "Trainer refuses updates of the TrainJob")


class TestPlacement:
    def places(self, live: Live, name: str, counts: dict[str, int]) -> set[str]:
        """Racks on which the job's pods run."""
        nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in live.client.list("v1/Node")}
        pods = live.running(name, counts)
        return {nodes[pod["spec"]["nodeName"]][RACK_LABEL] for group in pods.values() for pod in group}

    def run(self, live: Live, name: str, counts: dict[str, int]) -> None:
        """In one rack, then another, then a block (other keys), then anywhere."""
        before = live.get(name)["spec"]
        for rack in ("b1-r2", "b1-r1"):
            live.start(name, {key: PodPlacement(count, {RACK_LABEL: rack}) for key, count in counts.items()})
            assert self.places(live, name, counts) == {rack}
            live.stop(name)
        live.start(name, {key: PodPlacement(count, {BLOCK_LABEL: "b2"}) for key, count in counts.items()})
        assert self.places(live, name, counts) <= {"b2-r1", "b2-r2"}
        live.stop(name)
        live.start(name, {key: PodPlacement(count) for key, count in counts.items()})
        live.running(name, counts)
        live.stop(name)
        after = live.get(name)["spec"]
        for spec in (before, after):
            for entry in spec.get("runtimePatches", []):
                entry.pop("time", None)
        assert {key: value for key, value in after.items() if value != []} == before

    def test_train_job_of_v2_0(self, cluster: ControlPlane) -> None:
        cluster.create_nodes(gpu_fleet(2, 2, 2))
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        name = live.create(train_job("torch-distributed", trainer={"numNodes": 2}))
        self.run(live, name, {"node": 2})
        assert not [line for line in live.says if line.startswith("refused")], live.says

    def test_train_job_with_runtime_patches(self, cluster_stand_in: ControlPlane) -> None:
        cluster_stand_in.create_nodes(gpu_fleet(2, 2, 2))
        live = Live(cluster_stand_in, BY_RESOURCE[TRAIN_JOBS])
        others = {"manager": "someone.io/else"}
        entries = [others, {"manager": "queue-manager.io/manager"}]
        name = live.create(train_job("torch-distributed", trainer={"numNodes": 2}, runtimePatches=entries))
        self.run(live, name, {"node": 2})

    def test_job_set(self, cluster: ControlPlane) -> None:
        cluster.create_nodes(gpu_fleet(2, 2, 2))
        live = Live(cluster, BY_RESOURCE[JOB_SETS])
        template = pod_template(container("a", {"cpu": 1}))
        name = live.create(job_set(replicated_job("a", template), replicated_job("b", template, replicas=2)))
        self.run(live, name, {"a": 1, "b": 2})

    def test_job(self, cluster: ControlPlane) -> None:
        cluster.create_nodes(gpu_fleet(2, 2, 2))
        live = Live(cluster, BY_RESOURCE[JOBS])
        template = pod_template(container("a", {"cpu": 1}), restartPolicy="Never")
        self.run(live, live.create(job(template, parallelism=2, completions=2)), {"main": 2})

    def test_runtime_gone_while_it_runs(self, cluster: ControlPlane) -> None:
        """Golden case 10: Trainer refuses the TrainJob's update, its JobSet is suspended."""
        cluster.create_nodes(gpu_fleet(1, 1, 2))
        made = runtime("short-lived", replicated_job("node", pod_template(container("node")), ancestor="trainer"))
        cluster.client.create(made[1])
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        name = live.create(train_job("short-lived"))
        live.start(name, {})
        live.running(name, {"node": 1})
        remove_runtime(live, "short-lived", name)
        live.stop(name)
        assert any("suspends the JobSet" in line for line in live.says), live.says
        assert live.get(name)["spec"]["suspend"] is False

    def test_runtime_edited_while_it_waits(self, cluster: ControlPlane) -> None:
        """trainer#3008: v2.0 has no snapshots, and its JobSet can't take another image."""
        cluster.create_nodes(gpu_fleet(1, 1, 2))
        template = pod_template(container("node"))
        made = runtime("edited", replicated_job("node", template, ancestor="trainer"))
        cluster.client.create({**made[1], "metadata": {"name": "edited"}})
        live = Live(cluster, BY_RESOURCE[TRAIN_JOBS])
        name = live.create(train_job("edited"))
        cluster.client.wait_object("jobset.x-k8s.io/v1alpha2/JobSet", name, live.namespace)
        cluster.client.patch(
            "trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime",
            "edited",
            [
                {
                    "op": "replace",
                    "path": "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image",
                    "value": "example.org/node:2",
                }
            ],
            form="json",
        )
        live.start(name, {"node": PodPlacement(1, {RACK_LABEL: "b1-r1"})})
        pods = live.running(name, {"node": 1})["node"]
        assert pods[0]["spec"]["containers"][0]["image"] == "example.org/node:2"
