"""Pod sets of TrainJobs for the runtimes that Trainer ships and others, in every generation (workloads.md 1.6).

Written by hand from what the controllers do; `test_real_controllers` holds the v2.0 column against the real ones.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from queue_manager.cluster.port import (
    CONFIG_MAPS,
    JOB_SETS,
    LIMIT_RANGES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Object,
    Resource,
)
from queue_manager.engine.workload import GroupPolicy, PodSet, TopologyMode, TopologyRequest
from queue_manager.kinds.kind import MANAGER, Resolved, Unresolvable
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.world import (
    NAMESPACE,
    VERSIONS,
    World,
    container,
    job_set,
    owned,
    pod_template,
    replicated_job,
    runtime,
    schema,
    train_job,
)

GPU = "nvidia.com/gpu"
MPI = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}}

Shape = dict[str, tuple[int, dict[str, int]]]


def node(**resources: Any) -> Any:
    return pod_template(container("node", **resources))


def torch(name: str = "torch-distributed", **resources: Any) -> tuple[Resource, Object]:
    return runtime(
        name, replicated_job("node", node(**resources), ancestor="trainer"), policy={"numNodes": 1, "torch": {}}
    )


def torchtune() -> tuple[Resource, Object]:
    """Model after dataset, trainer after both, as shipped."""
    return runtime(
        "torchtune-llama3.2-1b",
        replicated_job(
            "dataset-initializer", pod_template(container("dataset-initializer")), ancestor="dataset-initializer"
        ),
        replicated_job(
            "model-initializer",
            pod_template(container("model-initializer")),
            ancestor="model-initializer",
            depends_on=[("dataset-initializer", "Complete")],
        ),
        replicated_job(
            "node", node(limits={GPU: 2}), ancestor="trainer", depends_on=[("model-initializer", "Complete")]
        ),
        policy={"numNodes": 1, "torch": {}},
    )


def mpi(name: str, *, policy: Any = MPI) -> tuple[Resource, Object]:
    """DeepSpeed, MLX and plain MPI ship the same shape: a launcher that is the trainer, and nodes with sshd."""
    return runtime(
        name,
        replicated_job("launcher", node(), ancestor="trainer"),
        replicated_job("node", node()),
        policy=policy,
        job_set={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]}},
    )


def resolve(version: str, template: tuple[Resource, Object], *more: tuple[Resource, Object], **spec: Any) -> Resolved:
    resource, obj = train_job(template[1]["metadata"]["name"], **spec)
    world = World(template, (resource, obj), *more, schema=schema(version))
    return TrainJobKind().resolve(obj, world)


def pod_sets(resolved: Resolved) -> dict[str, PodSet]:
    return {pod_set.name: pod_set for group in resolved.pod_groups for pod_set in group.pod_sets}


def shape(resolved: Resolved) -> Shape:
    return {name: (pod_set.count, dict(pod_set.requests)) for name, pod_set in pod_sets(resolved).items()}


def trainer(nodes: int | None = None, gpus: int | None = None) -> Any:
    found: Any = {} if nodes is None else {"numNodes": nodes}
    if gpus is not None:
        found["resourcesPerNode"] = {"limits": {GPU: gpus}}
    return found


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryGeneration:
    def test_torch(self, version: str) -> None:
        resolved = resolve(version, torch(), trainer=trainer(100, 4))
        assert shape(resolved) == {"node": (100, {GPU: 4})}
        assert resolved.pod_groups[0].policy is GroupPolicy.GANG
        assert resolved.pod_groups[0].minimum is None

    def test_torch_with_nothing_given(self, version: str) -> None:
        assert shape(resolve(version, torch())) == {"node": (1, {})}

    def test_resources_of_the_runtime(self, version: str) -> None:
        resolved = resolve(version, torch(limits={GPU: "8", "cpu": "16"}, requests={"cpu": "500m"}), trainer=trainer(2))
        assert shape(resolved) == {"node": (2, {GPU: 8, "cpu": 500})}

    def test_torchtune_runs_its_initializers_first(self, version: str) -> None:
        resolved = resolve(version, torchtune(), trainer=trainer(8), initializer={"dataset": {}, "model": {}})
        assert shape(resolved) == {"dataset-initializer": (1, {}), "model-initializer": (1, {}), "node": (8, {GPU: 2})}
        assert [pod_set.stages for pod_set in pod_sets(resolved).values()] == [(0, 0), (1, 1), (2, 2)]

    @pytest.mark.parametrize("name", ["deepspeed-distributed", "mlx-distributed", "mpi-distributed"])
    def test_mpi_with_the_launcher_as_a_node(self, version: str, name: str) -> None:
        resolved = resolve(version, mpi(name), trainer=trainer(4, 8))
        # v2.0 gives resourcesPerNode to the job with the trainer label alone, later ones to both.
        nodes = {} if version == "v2.0" else {GPU: 8}
        assert shape(resolved) == {"launcher": (1, {GPU: 8}), "node": (3, nodes)}

    def test_mpi_launcher_as_a_node_with_one_node_makes_two_pods(self, version: str) -> None:
        """trainer#3954."""
        resolved = resolve(version, mpi("deepspeed-distributed"), trainer=trainer(1, 8))
        nodes = {} if version == "v2.0" else {GPU: 8}
        assert shape(resolved) == {"launcher": (1, {GPU: 8}), "node": (1, nodes)}

    def test_mpi_with_its_own_launcher(self, version: str) -> None:
        policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": False}}
        resolved = resolve(version, mpi("mpi-distributed", policy=policy), trainer=trainer(50, 8))
        assert shape(resolved) == {"launcher": (1, {GPU: 8}), "node": (50, {})}

    def test_mpi_runtime_with_many_nodes_has_many_launchers(self, version: str) -> None:
        policy = {"numNodes": 3, "mpi": {}}
        assert shape(resolve(version, mpi("mpi", policy=policy))) == {"launcher": (3, {}), "node": (1, {})}

    @pytest.mark.parametrize("source", ["jax", "xgboost", "flux"])
    def test_jax_xgboost_and_flux(self, version: str, source: str) -> None:
        template = runtime(
            source, replicated_job("node", node(), ancestor="trainer"), policy={"numNodes": 2, source: {}}
        )
        assert shape(resolve(version, template)) == {"node": (2, {})}
        assert shape(resolve(version, template, trainer=trainer(7, 1))) == {"node": (7, {GPU: 1})}

    def test_plain_runtime_without_policy(self, version: str) -> None:
        template = runtime("plain", replicated_job("node", node(limits={"cpu": 1}), ancestor="trainer", parallelism=3))
        assert shape(resolve(version, template)) == {"node": (3, {"cpu": 1000})}
        replaced = {"cpu": 1000} if version == "v2.3" else {GPU: 1}
        assert shape(resolve(version, template, trainer=trainer(5, 1))) == {"node": (5, replaced)}

    def test_unlabelled_jobs_keep_their_replicas(self, version: str) -> None:
        template = runtime(
            "mixed",
            replicated_job("side", pod_template(container("side")), replicas=3, parallelism=2, completions=7),
            replicated_job("node", node(), ancestor="trainer", replicas=4),
            policy={"numNodes": 2, "torch": {}},
        )
        assert shape(resolve(version, template)) == {"side": (6, {}), "node": (2, {})}

    def test_container_of_another_name_gets_no_resources(self, version: str) -> None:
        template = runtime(
            "odd",
            replicated_job("node", pod_template(container("worker", limits={GPU: 1})), ancestor="trainer"),
            policy={"torch": {}},
        )
        assert shape(resolve(version, template, trainer=trainer(2, 8))) == {"node": (2, {GPU: 1})}

    def test_no_nodes(self, version: str) -> None:
        assert shape(resolve(version, torch(), trainer=trainer(0, 8))) == {"node": (0, {GPU: 8})}

    def test_fewer_than_no_nodes(self, version: str) -> None:
        with pytest.raises(Unresolvable, match="zero or more") as found:
            resolve(version, torch(), trainer=trainer(-1))
        assert found.value.field == "spec.trainer.numNodes"

    def test_runtime_that_is_not_there(self, version: str) -> None:
        _, obj = train_job("missing")
        with pytest.raises(Unresolvable, match="no ClusterTrainingRuntime 'missing'") as found:
            TrainJobKind().resolve(obj, World(schema=schema(version)))
        assert (found.value.reason, found.value.field) == ("RuntimeNotFound", "spec.runtimeRef.name")

    def test_runtime_of_the_namespace(self, version: str) -> None:
        _, template = torch("own")
        template["kind"] = "TrainingRuntime"
        _, obj = train_job("own")
        obj["spec"]["runtimeRef"]["kind"] = "TrainingRuntime"
        resolved = TrainJobKind().resolve(obj, World((TRAINING_RUNTIMES, template), schema=schema(version)))
        assert list(resolved.inputs) == ["TrainingRuntime/own"]

    def test_runtime_of_an_unknown_kind(self, version: str) -> None:
        _, obj = train_job("own")
        obj["spec"]["runtimeRef"]["kind"] = "OtherRuntime"
        with pytest.raises(Unresolvable) as found:
            TrainJobKind().resolve(obj, World(schema=schema(version)))
        assert found.value.reason == "UnknownRuntimeKind"

    def test_doubled_job_names(self, version: str) -> None:
        template = runtime("double", replicated_job("node", node()), replicated_job("node", node()))
        with pytest.raises(Unresolvable) as found:
            resolve(version, template)
        assert found.value.reason == "DuplicateName"
        assert found.value.field == "ClusterTrainingRuntime/double: spec.template.spec.replicatedJobs[1].name"

    @pytest.mark.parametrize("policy", ["coscheduling", "volcano"])
    def test_pod_group_of_jobs_in_sequence_never_forms(self, version: str, policy: str) -> None:
        template = torchtune()
        template[1]["spec"]["podGroupPolicy"] = {policy: {}}
        with pytest.raises(Unresolvable, match="never form") as found:
            resolve(version, template)
        assert found.value.field == f"ClusterTrainingRuntime/torchtune-llama3.2-1b: spec.podGroupPolicy.{policy}"

    def test_pod_group_of_jobs_at_once(self, version: str) -> None:
        template = torch()
        template[1]["spec"]["podGroupPolicy"] = {"coscheduling": {}}
        assert shape(resolve(version, template, trainer=trainer(2))) == {"node": (2, {})}

    def test_limit_range_fills_what_nobody_gave(self, version: str) -> None:
        limits = {
            "metadata": {"name": "defaults"},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]},
        }
        resolved = resolve(version, torch(), (LIMIT_RANGES, limits), trainer=trainer(2, 8))
        assert shape(resolved) == {"node": (2, {GPU: 8, "cpu": 2000})}
        assert sorted(resolved.inputs) == ["ClusterTrainingRuntime/torch-distributed", "LimitRange/defaults"]

    def test_job_set_of_that_name_which_is_not_its_own(self, version: str) -> None:
        with pytest.raises(Unresolvable) as found:
            resolve(version, torch(), job_set(name="job"))
        assert (found.value.reason, found.value.field) == ("JobSetNameTaken", "metadata.name")

    def test_admins_policy_on_the_runtime(self, version: str) -> None:
        """Golden case 4: the user gives numNodes and a queue; the rest is the runtime's."""
        template = torch(limits={GPU: 8})
        template[1]["metadata"]["annotations"] = {"queue-manager.io/required-topology": "topology/rack"}
        pod = template[1]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        pod["spec"]["nodeSelector"] = {"gpu": "h100"}
        resolved = resolve(version, template, trainer=trainer(2))
        assert resolved.topology == TopologyRequest(TopologyMode.REQUIRED, "topology/rack")
        assert pod_sets(resolved)["node"].node_selector == {"gpu": "h100"}


class TestDifferences:
    def test_resources_replace_or_merge(self) -> None:
        template = torch(limits={GPU: 1, "cpu": 4}, requests={"memory": "1Gi"})
        replaced = {"node": (1, {GPU: 8})}
        assert [shape(resolve(version, template, trainer=trainer(gpus=8))) for version in VERSIONS] == [
            replaced,
            replaced,
            replaced,
            {"node": (1, {GPU: 8, "cpu": 4000, "memory": 2**30})},
        ]

    def test_several_trainer_jobs(self) -> None:
        """v2.0 gives all of them the first one's count, later versions only that one."""
        template = runtime(
            "two",
            replicated_job("node", node(), ancestor="trainer"),
            replicated_job("more", node(), ancestor="trainer"),
            policy={"numNodes": 2, "torch": {}},
        )
        counts = [
            [count for count, _ in shape(resolve(version, template, trainer=trainer(5))).values()]
            for version in VERSIONS
        ]
        assert counts == [[5, 5], [5, 2], [5, 2], [5, 2]]

    def test_flux_adds_an_init_container(self) -> None:
        """It asks for nothing, but a LimitRange's default can be more than the containers together."""
        limits = {
            "metadata": {"name": "defaults"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]},
        }
        template = runtime(
            "flux",
            replicated_job("node", node(requests={"cpu": "100m"}), ancestor="trainer"),
            policy={"numNodes": 2, "flux": {}},
        )
        assert shape(resolve("v2.3", template, (LIMIT_RANGES, limits))) == {"node": (2, {"cpu": 2000})}


SELECTOR = {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "own", "operator": "Exists"}]}


class TestPatchesOfOthers:
    def entry(self, version: str) -> Any:
        if version == "v2.0":
            return {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], **SELECTOR}]}
        if version == "v2.1":
            return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": SELECTOR}]}
        return {"runtimePatches": [patch("someone.io/else", "node", {"spec": SELECTOR})]}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_are_laid_over_the_runtime(self, version: str) -> None:
        template = torch()
        job = template[1]["spec"]["template"]["spec"]["replicatedJobs"][0]
        job["template"]["spec"]["template"]["spec"] |= {
            "nodeSelector": {"gpu": "h100", "zone": "b"},
            "tolerations": [{"key": "runtime", "operator": "Exists"}],
        }
        before = copy.deepcopy(template[1]["spec"])
        found = pod_sets(resolve(version, template, **self.entry(version)))["node"]
        assert found.node_selector == {"gpu": "h100", "zone": "a"}
        assert [toleration.key for toleration in found.tolerations] == ["own"], "the list is replaced whole"
        assert template[1]["spec"] == before, "the runtime in the cache is not touched"

    def test_pod_metadata_carries_our_annotations(self) -> None:
        metadata = {"annotations": {"queue-manager.io/required-topology": "topology/block"}}
        override = {"targetJobs": [{"name": "node"}], "metadata": metadata}
        old = resolve("v2.1", torch(), podTemplateOverrides=[override])
        new = resolve("v2.3", torch(), runtimePatches=[patch("someone.io/else", "node", {"metadata": metadata})])
        wanted = TopologyRequest(TopologyMode.REQUIRED, "topology/block")
        assert [pod_sets(found)["node"].topology for found in (old, new)] == [wanted, wanted]

    def test_ours_is_no_wish_of_the_user(self) -> None:
        mine = patch(MANAGER, "node", {"spec": {"nodeSelector": {"topology/rack": "r1"}}})
        assert pod_sets(resolve("v2.3", torch(), runtimePatches=[mine]))["node"].node_selector == {}

    def test_unknown_job(self) -> None:
        with pytest.raises(Unresolvable) as found:
            resolve("v2.3", torch(), runtimePatches=[patch("someone.io/else", "nodes", {"spec": {}})])
        assert found.value.reason == "UnknownReplicatedJob"
        path = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name"
        assert found.value.field == path


def patch(manager: str, job: str, template: Any) -> Any:
    jobs = [{"name": job, "template": {"spec": {"template": template}}}]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


class TestSnapshot:
    def world(self, owner_uid: str) -> tuple[World, Object]:
        """A runtime that was edited from 2 to 5 nodes after the snapshot."""
        _, saved = torch()
        saved["spec"]["mlPolicy"]["numNodes"] = 2
        live = torch()
        live[1]["spec"]["mlPolicy"]["numNodes"] = 5
        resource, obj = train_job("torch-distributed", metadata={"uid": "uid-job"})
        owner = {"apiVersion": obj["apiVersion"], "kind": "TrainJob", "metadata": {"name": "job", "uid": owner_uid}}
        snapshot = owned(
            {"metadata": {"name": "job-runtime-snapshot"}, "data": {"runtime": yaml.safe_dump(saved)}}, owner
        )
        return World(live, (resource, obj), (CONFIG_MAPS, snapshot), schema=schema("v2.3")), obj

    def test_counts_where_the_controller_works_from_it(self) -> None:
        world, obj = self.world("uid-job")
        resolved = TrainJobKind().resolve(obj, world)
        assert shape(resolved) == {"node": (2, {})}
        assert list(resolved.inputs) == ["ConfigMap/job-runtime-snapshot"]

    def test_of_an_earlier_train_job_of_that_name_is_ignored(self) -> None:
        world, obj = self.world("uid-earlier")
        assert shape(TrainJobKind().resolve(obj, world)) == {"node": (5, {})}

    def test_is_no_thing_of_older_trainers(self) -> None:
        world, obj = self.world("uid-job")
        world.train_job_schema = schema("v2.2")
        assert shape(TrainJobKind().resolve(obj, world)) == {"node": (5, {})}

    def test_outlives_the_runtime(self) -> None:
        world, obj = self.world("uid-job")
        world.drop(next(key[0] for key in world.objects if key[2] == "torch-distributed"), "torch-distributed")
        assert shape(TrainJobKind().resolve(obj, world)) == {"node": (2, {})}

    def test_that_is_no_yaml(self) -> None:
        world, obj = self.world("uid-job")
        world.objects[(CONFIG_MAPS, NAMESPACE, "job-runtime-snapshot")]["data"]["runtime"] = "a: [1"
        with pytest.raises(Unresolvable, match="YAML"):
            TrainJobKind().resolve(obj, world)


class TestGeneration:
    @pytest.mark.parametrize("found", [None, {}, {"properties": {"spec": {"properties": {"suspend": {}}}}}])
    def test_that_is_not_known_holds_the_job(self, found: Object | None) -> None:
        _, obj = train_job("torch-distributed")
        with pytest.raises(Unresolvable) as error:
            TrainJobKind().resolve(obj, World(torch(), schema=found))
        assert error.value.reason == "TrainJobApiUnknown"


class TestPolicyOfTheRuntime:
    def resolve(self, kind: TrainJobKind) -> Resolved:
        template = torch()
        template[1]["metadata"]["annotations"] = {"queue-manager.io/required-topology": "topology/rack"}
        wish = {"annotations": {"queue-manager.io/preferred-topology": "topology/block"}}
        resource, obj = train_job("torch-distributed", metadata=wish)
        return kind.resolve(obj, World(template, (resource, obj), schema=schema("v2.3")))

    def test_stands_above_the_jobs_wish(self) -> None:
        resolved = self.resolve(TrainJobKind())
        assert resolved.topology == TopologyRequest(TopologyMode.REQUIRED, "topology/rack")
        assert resolved.messages == (
            "metadata.annotations[queue-manager.io/preferred-topology] is not followed: "
            "ClusterTrainingRuntime/torch-distributed says required topology/rack",
        )

    def test_unless_the_settings_let_users_override_it(self) -> None:
        resolved = self.resolve(TrainJobKind(frozenset({"preferred-topology"})))
        assert resolved.topology == TopologyRequest(TopologyMode.PREFERRED, "topology/block")
        assert resolved.messages == ()


def test_what_is_finished_of_an_evicted_job_is_not_asked_for_again() -> None:
    """workloads.md 2.4.9: completed initializers don't run again at a resume."""
    resource, obj = train_job("torchtune-llama3.2-1b", metadata={"uid": "uid-job"})
    template = torchtune()
    jobs = copy.deepcopy(template[1]["spec"]["template"]["spec"]["replicatedJobs"])
    _, child = job_set(*jobs, name="job")
    child["status"] = {"replicatedJobsStatus": [{"name": "dataset-initializer", "succeeded": 1}]}
    world = World(template, (resource, obj), (JOB_SETS, owned(child, obj)), schema=schema("v2.0"))
    found = pod_sets(TrainJobKind().resolve(obj, world))
    assert {name: pod_set.reclaimed for name, pod_set in found.items()} == {
        "dataset-initializer": 1,
        "model-initializer": 0,
        "node": 0,
    }
    assert world.get(TRAIN_JOBS, NAMESPACE, "job") is obj
