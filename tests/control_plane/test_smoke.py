"""Does the test control plane behave as the tests that build on it expect?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control_plane import kwok, versions
from tests.control_plane.client import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    JOB,
    JOB_SET,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    TRAIN_JOB,
    ApiError,
    Object,
    wait,
)
from tests.control_plane.cluster import OUR_NAMESPACE, ControlPlane, pod_phase
from tests.control_plane.fixtures import require_binaries
from tests.control_plane.nodes import GPU, RACK_LABEL, gpu_fleet, node

pytestmark = pytest.mark.cluster

MANAGER = "test.queue-manager.io/manager"


def train_job(name: str = "train", *, nodes: int = 2, gpus: int = 8, suspend: bool = True) -> Object:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "suspend": suspend,
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": nodes, "resourcesPerNode": resources},
        },
    }


def job(name: str = "job", *, pods: int = 1, annotations: dict[str, str] | None = None) -> Object:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations or {}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def nodes_of(pods: list[Object]) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


def condition(obj: Object, kind: str) -> str | None:
    found = obj.get("status", {}).get("conditions", [])
    return next((item["status"] for item in found if item["type"] == kind), None)


def wait_jobs(cluster: ControlPlane, namespace: str, **counts: int) -> None:
    """Waits until the JobSet counts its child Jobs so (Trainer v2.0 never fills its own ``jobsStatus``)."""

    def agrees(obj: Object) -> bool:
        status = obj["status"]["replicatedJobsStatus"][0]
        return all(status[key] == value for key, value in counts.items())

    cluster.client.wait_object(JOB_SET, "train", namespace, agrees, what=f"has {counts}")


def suspend(cluster: ControlPlane, namespace: str, name: str, value: bool) -> None:
    cluster.client.patch(TRAIN_JOB, name, {"spec": {"suspend": value}}, namespace)


def pin(cluster: ControlPlane, namespace: str, name: str, rack: str) -> None:
    """Writes a node selector for the pods of a suspended TrainJob, in the field of its API's generation."""
    selector = {RACK_LABEL: rack}
    spec = patch_field(cluster)
    value: list[Object]
    if spec == "runtimePatches":
        pods = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
        jobs = [{"name": "node", "template": pods}]
        value = [{"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    elif spec == "podTemplateOverrides":
        value = [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": selector}}]
    else:
        value = [{"targetJobs": [{"name": "node"}], "nodeSelector": selector}]
    cluster.client.patch(TRAIN_JOB, name, {"spec": {spec: value}}, namespace)


def patch_field(cluster: ControlPlane) -> str:
    """The name of the field that patches the runtime, from the CRD."""
    crd = cluster.client.get("apiextensions.k8s.io/v1/CustomResourceDefinition", "trainjobs.trainer.kubeflow.org")
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return next(name for name in ("runtimePatches", "podTemplateOverrides", "podSpecOverrides") if name in fields)


def test_suspended_train_job_has_no_pods_and_runs_once_it_is_resumed(cluster_of_each_trainer: ControlPlane) -> None:
    cluster = cluster_of_each_trainer
    cluster.create_nodes(gpu_fleet(1, 2, 2))
    namespace = cluster.new_namespace()
    cluster.client.create(train_job(), namespace)

    stored = cluster.client.wait_object(JOB, "train-node-0", namespace)
    assert stored["spec"]["suspend"] is True
    assert cluster.client.get(JOB_SET, "train", namespace)["spec"]["suspend"] is True
    assert cluster.pods(namespace) == []

    suspend(cluster, namespace, "train", False)
    pods = cluster.wait_pods(namespace, 2)
    assert len(nodes_of(pods)) == 2
    assert {pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in pods} == {"8"}

    suspend(cluster, namespace, "train", True)
    cluster.wait_no_pods(namespace)


def test_placement_written_while_suspended_reaches_the_pods(cluster_of_each_trainer: ControlPlane) -> None:
    cluster = cluster_of_each_trainer
    cluster.create_nodes(gpu_fleet(1, 3, 2))
    namespace = cluster.new_namespace()
    cluster.client.create(train_job(), namespace)
    cluster.client.wait_object(JOB_SET, "train", namespace)

    for rack in ("b1-r2", "b1-r3"):
        pin(cluster, namespace, "train", rack)
        suspend(cluster, namespace, "train", False)
        pods = cluster.wait_pods(namespace, 2)
        assert nodes_of(pods) == {f"{rack}-n1", f"{rack}-n2"}
        suspend(cluster, namespace, "train", True)
        cluster.wait_no_pods(namespace)
        wait_jobs(cluster, namespace, active=0)


def test_finished_pods_complete_the_train_job(cluster_of_each_trainer: ControlPlane) -> None:
    cluster = cluster_of_each_trainer
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    namespace = cluster.new_namespace()
    cluster.client.create(train_job(suspend=False), namespace)
    cluster.wait_pods(namespace, 2)
    wait_jobs(cluster, namespace, ready=1)
    assert condition(cluster.client.get(TRAIN_JOB, "train", namespace), "Suspended") is None

    assert len(cluster.finish_pods(namespace)) == 2
    cluster.client.wait_object(TRAIN_JOB, "train", namespace, lambda obj: condition(obj, "Complete") == "True")


def test_failed_pods_fail_the_train_job(cluster_of_each_trainer: ControlPlane) -> None:
    cluster = cluster_of_each_trainer
    runtime = cluster.client.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
    template = runtime["spec"]["template"]
    template["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 0
    cluster.apply(
        {
            "apiVersion": runtime["apiVersion"],
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "no-retry", "labels": runtime["metadata"].get("labels", {})},
            "spec": {"mlPolicy": runtime["spec"]["mlPolicy"], "template": template},
        }
    )
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    namespace = cluster.new_namespace()
    failing = train_job(suspend=False)
    failing["spec"]["runtimeRef"]["name"] = "no-retry"
    cluster.client.create(failing, namespace)
    cluster.wait_pods(namespace, 2)

    cluster.fail_pods(namespace, "batch.kubernetes.io/job-completion-index=0", exit_code=3)
    cluster.client.wait_object(TRAIN_JOB, "train", namespace, lambda obj: condition(obj, "Failed") == "True")


def test_real_trainer_refuses_patch_and_resume_in_one_write(cluster: ControlPlane) -> None:
    if patch_field(cluster) == "runtimePatches":
        pytest.skip("this Trainer allows it")
    namespace = cluster.new_namespace()
    cluster.client.create(train_job(), namespace)
    cluster.client.wait_object(JOB_SET, "train", namespace)
    override = {"targetJobs": [{"name": "node"}], "nodeSelector": {RACK_LABEL: "b1-r1"}}

    with pytest.raises(ApiError, match="can only be modified when the TrainJob is suspended"):
        cluster.client.patch(
            TRAIN_JOB, "train", {"spec": {"podSpecOverrides": [override], "suspend": False}}, namespace
        )


class TestStandIn:
    """What the stand-in for newer Trainers promises of its API."""

    def test_patch_and_resume_in_one_write(self, cluster_stand_in: ControlPlane) -> None:
        cluster = cluster_stand_in
        cluster.create_nodes(gpu_fleet(1, 2, 2))
        namespace = cluster.new_namespace()
        created = train_job()
        created["spec"]["runtimePatches"] = [{"manager": "user.example.com/patch"}, {"manager": MANAGER}]
        stored = cluster.client.create(created, namespace)
        assert all("time" in entry for entry in stored["spec"]["runtimePatches"])
        cluster.client.wait_object(JOB_SET, "train", namespace)

        pods = {"spec": {"template": {"spec": {"nodeSelector": {RACK_LABEL: "b1-r2"}}}}}
        template = {"spec": {"replicatedJobs": [{"name": "node", "template": pods}]}}
        patched = cluster.client.patch(
            TRAIN_JOB,
            "train",
            [
                {"op": "test", "path": "/spec/runtimePatches/1/manager", "value": MANAGER},
                {"op": "add", "path": "/spec/runtimePatches/1/trainingRuntimeSpec", "value": {"template": template}},
                {"op": "replace", "path": "/spec/suspend", "value": False},
            ],
            namespace,
            form="json",
        )
        assert patched["spec"]["runtimePatches"][0] == stored["spec"]["runtimePatches"][0]
        assert nodes_of(cluster.wait_pods(namespace, 2)) == {"b1-r2-n1", "b1-r2-n2"}

    def test_patches_of_running_jobs_are_refused(self, cluster_stand_in: ControlPlane) -> None:
        cluster = cluster_stand_in
        cluster.create_nodes(gpu_fleet(1, 1, 2))
        namespace = cluster.new_namespace()
        cluster.client.create(train_job(suspend=False), namespace)
        cluster.wait_pods(namespace, 2)

        with pytest.raises(ApiError, match="suspended before or after the update"):
            pin(cluster, namespace, "train", "b1-r1")
        wait_jobs(cluster, namespace, active=1)
        both = {"spec": {"suspend": True, "runtimePatches": [{"manager": MANAGER}]}}
        with pytest.raises(ApiError, match="ReplicatedJob node is still active"):
            cluster.client.patch(TRAIN_JOB, "train", both, namespace)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"trainer": {"numNodes": 3}}, "field is immutable"),
            ({"managedBy": "kueue.x-k8s.io/multikueue"}, "field is immutable"),
            ({"runtimeRef": {"name": "other"}}, "field is immutable"),
            ({"runtimePatches": [{"manager": "unprefixed"}]}, "domain-prefixed path"),
        ],
    )
    def test_immutable_fields(self, cluster_stand_in: ControlPlane, change: Object, message: str) -> None:
        cluster = cluster_stand_in
        namespace = cluster.new_namespace()
        cluster.client.create(train_job(), namespace)

        with pytest.raises(ApiError, match=message):
            cluster.client.patch(TRAIN_JOB, "train", {"spec": change}, namespace)

    def test_snapshot_of_the_runtime_decides_from_the_first_reconcile_on(self, cluster_stand_in: ControlPlane) -> None:
        cluster = cluster_stand_in
        runtime = cluster.client.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
        own = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "metadata": {"name": "own"}}
        cluster.apply({**own, "spec": runtime["spec"]})
        namespace = cluster.new_namespace()
        created = train_job()
        created["spec"]["runtimeRef"]["name"] = "own"
        cluster.client.create(created, namespace)
        snapshot = cluster.client.wait_object(CONFIG_MAP, "train-runtime-snapshot", namespace)
        assert snapshot["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
        cluster.client.wait_object(JOB_SET, "train", namespace)

        cluster.client.delete(CLUSTER_TRAINING_RUNTIME, "own")
        with pytest.raises(ApiError, match="must be created before the TrainJob is created"):
            suspend(cluster, namespace, "train", False)


def test_older_stand_in_has_pod_template_overrides_and_wants_two_writes(tmp_path: Path) -> None:
    require_binaries()
    with ControlPlane.start(tmp_path, trainer="stand-in", stand_in_generation="v2.1") as cluster:
        cluster.create_nodes(gpu_fleet(1, 2, 2))
        namespace = cluster.new_namespace()
        created = train_job()
        created["spec"]["runtimePatches"] = [{"manager": MANAGER}]
        stored = cluster.client.create(created, namespace)
        assert "runtimePatches" not in stored["spec"], "an older API server drops the unknown field silently"
        cluster.client.wait_object(JOB_SET, "train", namespace)
        override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {RACK_LABEL: "b1-r2"}}}
        with pytest.raises(ApiError, match="can only be modified when the TrainJob is suspended"):
            cluster.client.patch(
                TRAIN_JOB, "train", {"spec": {"podTemplateOverrides": [override], "suspend": False}}, namespace
            )
        pin(cluster, namespace, "train", "b1-r2")
        suspend(cluster, namespace, "train", False)
        assert nodes_of(cluster.wait_pods(namespace, 2)) == {"b1-r2-n1", "b1-r2-n2"}


def test_pods_end_as_their_annotations_say(cluster: ControlPlane) -> None:
    cluster.create_nodes([node("n1")])
    namespace = cluster.new_namespace()
    cluster.client.create(job("good", annotations={kwok.COMPLETE_AFTER: "100ms"}), namespace)
    cluster.client.create(job("bad", annotations={kwok.FAIL_AFTER: "100ms"}), namespace)
    cluster.client.create(job("endless"), namespace)

    cluster.client.wait_object(JOB, "good", namespace, lambda obj: condition(obj, "Complete") == "True")
    cluster.client.wait_object(JOB, "bad", namespace, lambda obj: condition(obj, "Failed") == "True")
    assert condition(cluster.client.get(JOB, "endless", namespace), "Complete") is None


def test_deleted_pods_of_a_stopped_node_stay_terminating(cluster: ControlPlane) -> None:
    cluster.create_nodes([node("n1")])
    namespace = cluster.new_namespace()
    cluster.client.create(job(), namespace)
    cluster.wait_pods(namespace, 1)

    cluster.node_down("n1")
    cluster.client.wait_object(
        NODE,
        "n1",
        None,
        lambda obj: any(taint["key"] == "node.kubernetes.io/unreachable" for taint in obj["spec"].get("taints", [])),
        what="is tainted",
    )
    cluster.client.patch(JOB, "job", {"spec": {"suspend": True}}, namespace)
    cluster.client.wait_object(JOB, "job", namespace, lambda obj: obj["status"].get("terminating") == 1)
    assert [pod_phase(pod) for pod in cluster.pods(namespace)] == ["Terminating"]

    cluster.node_up("n1")
    cluster.wait_no_pods(namespace)


def test_service_account_has_exactly_its_rights(cluster: ControlPlane) -> None:
    namespace = cluster.new_namespace()
    cluster.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": namespace}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "robot", "namespace": namespace},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "robot", "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
            },
        ]
    )
    kubeconfig = cluster.kubeconfig_for_service_account(namespace, "robot")
    listed = kubectl(kubeconfig, "get", "pods", "-n", namespace, "-o", "name")
    assert listed.returncode == 0, listed.stderr
    refused = kubectl(kubeconfig, "get", "nodes")
    assert f"system:serviceaccount:{namespace}:robot" in refused.stderr

    as_alice = kubectl(cluster.kubeconfig_for_user("alice@example.com", ["team-a"]), "auth", "whoami", "-o", "json")
    assert '"alice@example.com"' in as_alice.stdout
    assert '"team-a"' in as_alice.stdout
    with pytest.raises(ApiError, match='User "bob" cannot list'):
        cluster.client.as_user("bob", ["team-b"]).list(POD, namespace)


def kubectl(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [versions.binary_path("kubectl"), "--kubeconfig", kubeconfig, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_reset_leaves_nothing_behind(cluster: ControlPlane) -> None:
    cluster.create_nodes(gpu_fleet(1, 1, 2))
    namespace = cluster.new_namespace()
    cluster.client.create(train_job(suspend=False), namespace)
    cluster.wait_pods(namespace, 2)
    pod = cluster.pods(namespace)[0]["metadata"]["name"]
    cluster.client.patch(POD, pod, {"metadata": {"finalizers": ["test.queue-manager.io/stuck"]}}, namespace)

    cluster.reset()

    for kind in (TRAIN_JOB, JOB_SET, JOB, POD, NODE):
        assert cluster.client.list(kind) == [], kind


def test_reset_empties_the_namespace_of_our_processes(cluster: ControlPlane) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OUR_NAMESPACE}})
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ours", "namespace": OUR_NAMESPACE}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": made["metadata"]}
    cluster.apply([made, lease])

    cluster.reset()

    assert "deletionTimestamp" not in cluster.client.get(NAMESPACE, OUR_NAMESPACE)["metadata"]
    for kind in (SECRET, LEASE):
        assert cluster.client.list(kind, OUR_NAMESPACE) == [], kind


def test_control_plane_ends_with_its_parent(tmp_path: Path) -> None:
    require_binaries()
    script = (
        "import sys, time\n"
        "from tests.control_plane.cluster import ControlPlane\n"
        "cluster = ControlPlane.start(sys.argv[1], scheduler=False, kwok=False, jobset=False, trainer=False)\n"
        "print(*(process.pid for process in cluster.processes.values()), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        parent.send_signal(signal.SIGKILL)
    wait(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids), "all parts are gone", timeout=10)
    assert os.path.exists(tmp_path / "etcd.log")
