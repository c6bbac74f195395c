"""The stand-in's way from runtime and TrainJob to JobSet, and what its webhook writes; needs no control plane."""

from __future__ import annotations

import pytest

from tests.control_plane.client import Object
from tests.control_plane.trainer_stand_in import ANCESTOR_LABEL, resolve, stamp, strategic_merge


def replicated_job(name: str, ancestor: str | None = None, *, container: str = "node", **job_spec: object) -> Object:
    labels = {"metadata": {"labels": {ANCESTOR_LABEL: ancestor}}} if ancestor else {}
    pods = {"spec": {"containers": [{"name": container, "image": "runtime"}]}}
    return {"name": name, "template": {**labels, "spec": {"template": pods, **job_spec}}}


def runtime(policy: Object | None, *jobs: Object) -> Object:
    return {**({"mlPolicy": policy} if policy else {}), "template": {"spec": {"replicatedJobs": list(jobs)}}}


def train_job(**spec: object) -> Object:
    return {"spec": {"suspend": True, **spec}}


def counts(job_set: Object) -> dict[str, int]:
    jobs = job_set["spec"]["replicatedJobs"]
    return {job["name"]: job.get("replicas", 1) * job["template"]["spec"]["parallelism"] for job in jobs}


TORCH = {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}
MPI = {"numNodes": 1, "mpi": {}}
MPI_LAUNCHER_AS_NODE = {"numNodes": 1, "mpi": {"runLauncherAsNode": True}}


@pytest.mark.parametrize(
    ("spec", "nodes", "expected"),
    [
        pytest.param(runtime(TORCH, replicated_job("node", "trainer")), 100, {"node": 100}, id="torch"),
        pytest.param(runtime(TORCH, replicated_job("node", "trainer")), None, {"node": 1}, id="torch by default"),
        pytest.param(
            runtime(MPI_LAUNCHER_AS_NODE, replicated_job("launcher", "trainer"), replicated_job("node")),
            4,
            {"launcher": 1, "node": 3},
            id="launcher as node",
        ),
        pytest.param(
            runtime(MPI_LAUNCHER_AS_NODE, replicated_job("launcher", "trainer"), replicated_job("node")),
            1,
            {"launcher": 1, "node": 1},
            id="launcher as the only node still has a node",
        ),
        pytest.param(
            runtime(MPI, replicated_job("launcher", "trainer"), replicated_job("node")),
            50,
            {"launcher": 1, "node": 50},
            id="launcher beside the nodes",
        ),
        pytest.param(
            runtime(
                TORCH,
                replicated_job("dataset-initializer", "dataset-initializer", container="dataset-initializer"),
                replicated_job("model-initializer", "model-initializer", container="model-initializer"),
                replicated_job("node", "trainer"),
            ),
            8,
            {"dataset-initializer": 1, "model-initializer": 1, "node": 8},
            id="initializers",
        ),
        pytest.param(
            runtime(None, replicated_job("workers", parallelism=3)), 8, {"workers": 3}, id="no policy: numNodes is void"
        ),
    ],
)
def test_pod_counts(spec: Object, nodes: int | None, expected: dict[str, int]) -> None:
    trainer = {"trainer": {"numNodes": nodes}} if nodes is not None else {}
    assert counts(resolve(spec, train_job(**trainer), "v2.3")) == expected


def test_resources_go_to_the_containers_named_node_of_trainer_jobs() -> None:
    spec = runtime(MPI, replicated_job("launcher", "trainer"), replicated_job("node"))
    spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"].append(
        {"name": "sidecar"}
    )
    wanted = {"requests": {"nvidia.com/gpu": "8"}}
    job_set = resolve(spec, train_job(trainer={"resourcesPerNode": wanted}), "v2.3")
    launcher, node = (job["template"]["spec"]["template"]["spec"] for job in job_set["spec"]["replicatedJobs"])
    assert [container.get("resources") for container in launcher["containers"]] == [wanted, None]
    assert "resources" not in node["containers"][0]


def test_patches_are_merged_in_order_and_tolerations_replaced() -> None:
    spec = runtime(TORCH, replicated_job("node", "trainer"))
    pod = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["tolerations"] = [{"key": "runtime"}]

    def patch(manager: str, **pod_spec: object) -> Object:
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod_spec}}}}]
        return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}

    patches = [
        patch("a.example.com/x", nodeSelector={"pool": "a", "disk": "ssd"}, schedulingGates=[{"name": "one"}]),
        {"manager": "empty.example.com/x"},
        patch(
            "b.example.com/x", nodeSelector={"pool": "b"}, tolerations=[{"key": "b"}], schedulingGates=[{"name": "two"}]
        ),
    ]
    job_set = resolve(spec, train_job(runtimePatches=patches), "v2.3")
    merged = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert merged["nodeSelector"] == {"pool": "b", "disk": "ssd"}
    assert merged["schedulingGates"] == [{"name": "one"}, {"name": "two"}]
    assert merged["tolerations"] == [{"key": "b"}]
    assert merged["containers"][0]["image"] == "runtime"
    assert pod["tolerations"] == [{"key": "runtime"}], "the runtime itself is untouched"


def test_overrides_of_the_older_generation_reach_their_target_jobs_only() -> None:
    spec = runtime(MPI, replicated_job("launcher", "trainer"), replicated_job("node"))
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"rack": "r1"}}}
    job_set = resolve(spec, train_job(podTemplateOverrides=[override]), "v2.1")
    launcher, node = (job["template"]["spec"]["template"]["spec"] for job in job_set["spec"]["replicatedJobs"])
    assert "nodeSelector" not in launcher
    assert node["nodeSelector"] == {"rack": "r1"}


def test_strategic_merge_removes_with_null() -> None:
    assert strategic_merge({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None}}) == {"labels": {"b": "2"}}


def test_only_new_and_changed_patches_get_a_new_time() -> None:
    old = train_job(runtimePatches=[{"manager": "a.b/c", "time": "T1"}, {"manager": "d.e/f", "time": "T1"}])
    new = train_job(
        runtimePatches=[
            {"manager": "a.b/c"},
            {"manager": "d.e/f", "time": "T1", "trainingRuntimeSpec": {}},
            {"manager": "g.h/i"},
        ]
    )
    assert [operation["value"] for operation in stamp(old, new, "T2")] == ["T1", "T2", "T2"]
