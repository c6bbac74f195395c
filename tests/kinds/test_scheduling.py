"""Pod groups by `spec.scheduling` of a runtime, a JobSet and a Job: the three levels, and what they can't do."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queue_manager.cluster.port import CONFIG_MAPS, Object, Resource
from queue_manager.engine.workload import (
    DisruptionMode,
    GroupPolicy,
    PodGroup,
    SliceLayer,
    TopologyMode,
    TopologyRequest,
)
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Resolved, Unresolvable
from queue_manager.kinds.trainjob import TrainJobKind
from tests.kinds.world import (
    World,
    container,
    job,
    job_set,
    owned,
    pod_template,
    replicated_job,
    runtime,
    schema,
    train_job,
)

GPU = "nvidia.com/gpu"
ZONE, BLOCK, RACK = "topology.kubernetes.io/zone", "cloud.provider.com/topology-block", "topology.kubernetes.io/rack"
GANG, BASIC, SINGLE, ALL = GroupPolicy.GANG, GroupPolicy.BASIC, DisruptionMode.SINGLE, DisruptionMode.ALL

Facts = list[tuple[str, list[tuple[str, int]], GroupPolicy, int | None, str, DisruptionMode]]


def key(name: str) -> Any:
    return {"topology": [{"key": name}]}


def node(name: str = "node", **pod: Any) -> Any:
    return pod_template(container(name, limits={GPU: 4}), **pod)


def torch(scheduling: Any, **spec: Any) -> tuple[Resource, Object]:
    trainer = replicated_job("node", node(), ancestor="trainer")
    return runtime("torch", trainer, policy={"numNodes": 1, "torch": {}}, scheduling=scheduling, **spec)


def mpi(scheduling: Any, **spec: Any) -> tuple[Resource, Object]:
    """A launcher, which is the trainer, and nodes."""
    jobs = (replicated_job("launcher", node(), ancestor="trainer"), replicated_job("node", node()))
    return runtime("mpi", *jobs, policy={"numNodes": 1, "mpi": {}}, scheduling=scheduling, **spec)


def torchtune(scheduling: Any, **spec: Any) -> tuple[Resource, Object]:
    """Two initializers, and the trainer after them."""
    loads = [
        replicated_job(name, pod_template(container(name)), ancestor=name)
        for name in ("dataset-initializer", "model-initializer")
    ]
    after = [("dataset-initializer", "Complete"), ("model-initializer", "Complete")]
    trainer = replicated_job("node", node(), ancestor="trainer", depends_on=after)
    return runtime("tune", *loads, trainer, policy={"numNodes": 1, "torch": {}}, scheduling=scheduling, **spec)


def resolve(template: tuple[Resource, Object], nodes: int = 100, **more: Any) -> Resolved:
    resource, obj = train_job(template[1]["metadata"]["name"], trainer={"numNodes": nodes}, **more)
    return TrainJobKind().resolve(obj, World(template, (resource, obj), schema=schema("v2.3")))


def facts(resolved: Resolved) -> Facts:
    return [
        (
            group.name,
            [(pod_set.name, pod_set.count) for pod_set in group.pod_sets],
            group.policy,
            group.minimum,
            group.topology.level if group.topology else "",
            group.disruption,
        )
        for group in resolved.pod_groups
    ]


def refusal(template: tuple[Resource, Object], **more: Any) -> Unresolvable:
    with pytest.raises(Unresolvable) as caught:
        resolve(template, **more)
    assert caught.value.field in caught.value.message
    return caught.value


class TestLevels:
    def test_whole_train_job_of_100_nodes_with_4_gpus(self) -> None:
        resolved = resolve(torch({"schedulingPolicy": {"gang": {}}, "schedulingConstraints": key(ZONE)}))
        assert facts(resolved) == [("main", [("node", 100)], GANG, 100, ZONE, SINGLE)]
        (pod_set,) = resolved.pod_groups[0].pod_sets
        assert pod_set.count * pod_set.requests[GPU] == 400
        assert resolved.topology is None

    def test_an_empty_scheduling_is_a_gang_of_all(self) -> None:
        assert facts(resolve(torch({}), nodes=3)) == [("main", [("node", 3)], GANG, 3, "", SINGLE)]

    def test_without_scheduling_nothing_is_computed(self) -> None:
        assert facts(resolve(torch(None), nodes=3)) == [("main", [("node", 3)], GANG, None, "", SINGLE)]

    def test_basic_whole_train_job_keeps_its_key(self) -> None:
        resolved = resolve(mpi({"schedulingPolicy": {"basic": {}}, "schedulingConstraints": key(ZONE)}), nodes=50)
        assert facts(resolved) == [("main", [("launcher", 1), ("node", 50)], BASIC, None, ZONE, SINGLE)]

    def test_launcher_and_nodes_share_a_group(self) -> None:
        entry = {
            "targetReplicatedJobs": ["launcher", "node"],
            "schedulingPolicy": {"gang": {}},
            "schedulingConstraints": key(BLOCK),
            "disruptionMode": {"all": {}},
        }
        resolved = resolve(mpi({"replicatedJobs": [entry]}), nodes=50)
        assert facts(resolved) == [("launcher-node", [("launcher", 1), ("node", 50)], GANG, 51, BLOCK, ALL)]

    def test_basic_initializers_beside_a_gang(self) -> None:
        entries = [
            {
                "targetReplicatedJobs": ["dataset-initializer", "model-initializer"],
                "schedulingPolicy": {"basic": {}},
            },
            {"targetReplicatedJobs": ["node"], "schedulingConstraints": key(BLOCK)},
        ]
        resolved = resolve(torchtune({"replicatedJobs": entries}), nodes=8)
        initializers = [("dataset-initializer", 1), ("model-initializer", 1)]
        assert facts(resolved) == [
            ("dataset-initializer-model-initializer", initializers, BASIC, None, "", SINGLE),
            ("node", [("node", 8)], GANG, 8, BLOCK, SINGLE),
        ]
        assert [p.stages for group in resolved.pod_groups for p in group.pod_sets] == [(0, 0), (0, 0), (1, 1)]

    def test_each_child_job(self) -> None:
        each = {"schedulingConstraints": key(RACK), "disruptionMode": {"all": {}}}
        entries = [{"targetReplicatedJobs": ["launcher"]}, {"targetReplicatedJobs": ["node"], "job": each}]
        resolved = resolve(mpi({"replicatedJobs": entries}), nodes=8)
        assert facts(resolved) == [
            ("launcher", [("launcher", 1)], GANG, 1, "", SINGLE),
            ("node", [("node", 8)], GANG, 8, RACK, ALL),
        ]

    def test_sequenced_jobs_are_a_group_each(self) -> None:
        scheduling = {"schedulingConstraints": key(ZONE), "disruptionMode": {"all": {}}}
        resolved = resolve(torchtune(scheduling), nodes=8)
        assert [(f[0], f[3], f[4], f[5]) for f in facts(resolved)] == [
            ("dataset-initializer", 1, ZONE, ALL),
            ("model-initializer", 1, ZONE, ALL),
            ("node", 8, ZONE, ALL),
        ]

    def test_in_order_start_is_sequenced(self) -> None:
        template = mpi({}, job_set={"startupPolicy": {"startupPolicyOrder": "InOrder"}})
        assert [f[0] for f in facts(resolve(template))] == ["launcher", "node"]
        template = mpi({}, job_set={"startupPolicy": {"startupPolicyOrder": "AnyOrder"}})
        assert [f[0] for f in facts(resolve(template))] == ["main"]

    def test_annotations_lie_around_and_inside(self) -> None:
        template = mpi({"replicatedJobs": [{"targetReplicatedJobs": ["launcher", "node"]}]})
        template[1]["spec"]["scheduling"]["replicatedJobs"][0]["schedulingConstraints"] = key(BLOCK)
        pods = template[1]["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
        pods["metadata"] = {"annotations": {"queue-manager.io/required-topology": RACK}}
        around = {"annotations": {"queue-manager.io/required-topology": ZONE}}
        resolved = resolve(template, nodes=4, metadata=around)
        (group,) = resolved.pod_groups
        assert resolved.topology == TopologyRequest(TopologyMode.REQUIRED, ZONE)
        assert group.topology == TopologyRequest(TopologyMode.REQUIRED, BLOCK)
        assert [p.topology and p.topology.level for p in group.pod_sets] == [None, RACK]

    def test_snapshot_goes_before_the_runtime(self) -> None:
        live = torch({"schedulingConstraints": key(RACK)})
        resource, obj = train_job("torch", trainer={"numNodes": 4})
        world = World(live, (resource, obj), schema=schema("v2.3"))
        saved = copy.deepcopy(live[1])
        saved["spec"]["scheduling"] = {"schedulingConstraints": key(ZONE)}
        snapshot = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job-runtime-snapshot"}}
        world.add(CONFIG_MAPS, owned({**snapshot, "data": {"runtime": str(saved)}}, obj))
        assert facts(TrainJobKind().resolve(obj, world))[0][4] == ZONE

    def test_forms_of_kubernetes_1_36(self) -> None:
        assert facts(resolve(torch({"disruptionMode": "PodGroup"})))[0][5] is ALL
        assert facts(resolve(torch({"disruptionMode": "Pod"})))[0][5] is SINGLE

    def test_size_is_noted_for_a_gang_only(self) -> None:
        assert resolve(torch({}), nodes=7).inputs["spec.trainer.numNodes"] == "7"
        assert "spec.trainer.numNodes" not in resolve(torch({"schedulingPolicy": {"basic": {}}})).inputs
        assert "spec.trainer.numNodes" not in resolve(torch(None)).inputs


class TestLimits:
    @pytest.mark.parametrize("field", ["schedulingPolicy", "schedulingConstraints", "disruptionMode"])
    def test_levels_exclude_each_other(self, field: str) -> None:
        value = {"schedulingPolicy": {"gang": {}}, "schedulingConstraints": key(ZONE), "disruptionMode": {"all": {}}}
        both = {field: value[field], "replicatedJobs": [{"targetReplicatedJobs": ["node"]}]}
        error = refusal(torch(both))
        assert (error.reason, error.field) == (
            "SchedulingConflict",
            f"ClusterTrainingRuntime/torch: spec.scheduling.{field}",
        )
        entry = {"targetReplicatedJobs": ["node"], "job": {}, field: value[field]}
        error = refusal(torch({"replicatedJobs": [entry]}))
        assert error.field.endswith(f"replicatedJobs[0].{field}")

    def test_each_replicated_job_is_of_one_entry(self) -> None:
        error = refusal(mpi({"replicatedJobs": [{"targetReplicatedJobs": ["node"]}]}))
        assert "launcher is the target of no entry" in error.message
        twice = [{"targetReplicatedJobs": ["launcher", "node"]}, {"targetReplicatedJobs": ["node"]}]
        assert "node is a target of" in refusal(mpi({"replicatedJobs": twice})).message
        assert (
            "no replicated job 'worker'"
            in refusal(mpi({"replicatedJobs": [{"targetReplicatedJobs": ["worker"]}]})).message
        )
        assert "targetReplicatedJobs" in refusal(mpi({"replicatedJobs": [{}]})).field

    def test_job_level_has_one_target(self) -> None:
        error = refusal(mpi({"replicatedJobs": [{"targetReplicatedJobs": ["launcher", "node"], "job": {}}]}))
        assert error.field.endswith("replicatedJobs[0].job")

    def test_several_replicas_need_kubernetes_1_38(self) -> None:
        jobs = (replicated_job("slice", node(), replicas=3),)
        each = {"targetReplicatedJobs": ["slice"], "job": {"schedulingConstraints": key(RACK)}}
        error = refusal(runtime("slices", *jobs, scheduling={"replicatedJobs": [each]}))
        assert error.reason == "PodGroupPerReplica"
        assert "1.38" in error.message
        assert "3 replicas of slice" in error.message

    def test_more_than_eight_groups(self) -> None:
        jobs = [replicated_job(f"j{i}", node()) for i in range(9)]
        entries = [{"targetReplicatedJobs": [f"j{i}"]} for i in range(9)]
        error = refusal(runtime("wide", *jobs, scheduling={"replicatedJobs": entries}))
        assert (error.reason, "9 pod groups" in error.message) == ("TooManyPodGroups", True)
        sequence = [replicated_job(f"j{i}", node(), depends_on=[(f"j{i - 1}", "Ready")] if i else ()) for i in range(9)]
        assert refusal(runtime("long", *sequence, scheduling={})).reason == "TooManyPodGroups"
        entries = [
            {"targetReplicatedJobs": [f"j{i}" for i in range(5)]},
            {"targetReplicatedJobs": ["j5", "j6", "j7", "j8"]},
        ]
        assert len(resolve(runtime("wide", *jobs, scheduling={"replicatedJobs": entries})).pod_groups) == 2

    @pytest.mark.parametrize("level", ["all", "entry", "job"])
    def test_given_minimum_is_refused(self, level: str) -> None:
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        entry = {"targetReplicatedJobs": ["node"], **(policy if level == "entry" else {"job": policy})}
        error = refusal(torch(policy if level == "all" else {"replicatedJobs": [entry]}))
        assert error.reason == "MinimumGiven"
        assert error.field.endswith("schedulingPolicy.gang.minCount")
        assert "numNodes" in error.message

    @pytest.mark.parametrize(
        ("where", "value"),
        [
            ("podGroupPolicy", {"coscheduling": {}}),
            ("template.spec.scheduling", {}),
            ("template.spec.replicatedJobs[0].template.spec.scheduling", {}),
            ("template.spec.replicatedJobs[0].template.spec.template.spec.schedulingGroup", {"podGroupName": "mine"}),
        ],
    )
    def test_excluded_beside_other_ways_to_make_groups(self, where: str, value: Any) -> None:
        template = torch({})
        place: Any = template[1]["spec"]
        *steps, last = where.replace("[0]", ".0").split(".")
        for step in steps:
            place = place[int(step) if step.isdecimal() else step]
        place[last] = value
        error = refusal(template)
        assert (error.reason, error.field) == ("SchedulingConflict", f"ClusterTrainingRuntime/torch: spec.{where}")

    def test_what_can_not_be_read(self) -> None:
        for scheduling in (
            {"schedulingPolicy": {}},
            {"schedulingPolicy": {"basic": {}, "gang": {}}},
            {"schedulingConstraints": {"topology": [{"key": ZONE}, {"key": RACK}]}},
            {"schedulingConstraints": {"topology": [{"key": "no key"}]}},
            {"schedulingConstraints": {"topology": "zone"}},
            {"disruptionMode": {}},
            {"disruptionMode": {"all": {}, "single": {}}},
            {"disruptionMode": "Some"},
            {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
            "gang",
            {"replicatedJobs": [7]},
            {"replicatedJobs": [{"targetReplicatedJobs": [7]}]},
        ):
            assert refusal(torch(scheduling)).field.startswith("ClusterTrainingRuntime/torch: spec.scheduling")

    def test_unknown_fields_are_named(self) -> None:
        entry = {
            "targetReplicatedJobs": ["node"],
            "colour": 1,
            "job": {"schedulingConstraints": {**key(RACK), "topologyRequest": {}}},
        }
        messages = resolve(torch({"replicatedJobs": [entry], "compositePolicy": {}})).messages
        start = "ClusterTrainingRuntime/torch: spec.scheduling."
        assert [message.partition(" is not known")[0] for message in messages] == [
            start + "replicatedJobs[0].colour",
            start + "replicatedJobs[0].job.schedulingConstraints.topologyRequest",
            start + "compositePolicy",
        ]
        assert resolve(torch({"schedulingPolicy": {"gang": {}}, "schedulingConstraints": key(RACK)})).messages == ()


def groups_of(scheduling: Any, *jobs: Any, **spec: Any) -> tuple[PodGroup, ...]:
    resource, obj = job_set(*jobs, scheduling=scheduling, **spec)
    return JobSetKind().resolve(obj, World((resource, obj))).pod_groups


class TestJobSet:
    def test_minimum_may_be_given(self) -> None:
        (group,) = groups_of({"schedulingPolicy": {"gang": {"minCount": 3}}}, replicated_job("a", node(), replicas=4))
        assert (group.minimum, group.policy) == (3, GANG)
        with pytest.raises(Unresolvable, match="is 5, but the group has 4 pods"):
            groups_of({"schedulingPolicy": {"gang": {"minCount": 5}}}, replicated_job("a", node(), replicas=4))

    def test_minimum_can_not_hold_for_jobs_in_sequence(self) -> None:
        jobs = replicated_job("a", node()), replicated_job("b", node(), depends_on=[("a", "Ready")])
        assert [group.minimum for group in groups_of({}, *jobs)] == [1, 1]
        with pytest.raises(Unresolvable, match="one after another"):
            groups_of({"schedulingPolicy": {"gang": {"minCount": 2}}}, *jobs)

    def test_each_of_several_child_jobs_in_a_rack(self) -> None:
        each = {"targetReplicatedJobs": ["slice"], "job": {"schedulingConstraints": key(RACK)}}
        (group,) = groups_of(
            {"replicatedJobs": [each]}, replicated_job("slice", node(), replicas=4, parallelism=2, completions=2)
        )
        assert (group.topology, group.minimum) == (None, 2)
        (pod_set,) = group.pod_sets
        assert pod_set.count == 8
        assert pod_set.topology == TopologyRequest(TopologyMode.UNCONSTRAINED, "", (SliceLayer(RACK, 2),))

    def test_eight_groups_at_most_replicas_counted(self) -> None:
        each = {"targetReplicatedJobs": ["slice"], "job": {}}
        with pytest.raises(Unresolvable, match="9 pod groups"):
            groups_of({"replicatedJobs": [each]}, replicated_job("slice", node(), replicas=9))

    def test_shared_claims_are_counted_once_a_group(self) -> None:
        from queue_manager.cluster.port import RESOURCE_CLAIM_TEMPLATES

        claims = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
        pods = node(resourceClaims=claims)
        template = {
            "metadata": {"name": "nic"},
            "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "roce"}}]}}},
        }

        def devices(level: Any) -> Any:
            resource, obj = job_set(
                replicated_job("w", pods, replicas=3, parallelism=2, completions=2),
                scheduling={"replicatedJobs": [{"targetReplicatedJobs": ["w"], **level}]},
            )
            world = World((resource, obj), (RESOURCE_CLAIM_TEMPLATES, copy.deepcopy(template)))
            (group,) = JobSetKind().resolve(obj, world).pod_groups
            return [dict(claim.devices) for claim in group.pod_sets[0].devices.shared]

        assert devices({"resourceClaims": claims}) == [{"roce": 1}]
        assert devices({"job": {"resourceClaims": claims}}) == [{"roce": 3}]

    def test_a_group_of_its_own_stands_not_beside_it(self) -> None:
        with pytest.raises(Unresolvable, match=r"schedulingGroup can't stand beside spec.scheduling"):
            groups_of({}, replicated_job("a", node(schedulingGroup={"podGroupName": "mine"})))


class TestJob:
    def resolve(self, scheduling: Any, annotations: Any = None, template: Any = None, **spec: Any) -> Resolved:
        metadata = {"annotations": annotations or {}}
        resource, obj = job(template or node(), metadata=metadata, scheduling=scheduling, **spec)
        return JobKind().resolve(obj, World((resource, obj)))

    def test_gang_in_a_rack(self) -> None:
        scheduling = {
            "schedulingPolicy": {"gang": {}},
            "schedulingConstraints": key(RACK),
            "disruptionMode": {"all": {}},
        }
        resolved = self.resolve(scheduling, parallelism=4, completions=4)
        assert facts(resolved) == [("main", [("main", 4)], GANG, 4, RACK, ALL)]
        assert facts(self.resolve({"schedulingPolicy": {"gang": {"minCount": 2}}}, parallelism=4))[0][3] == 2

    def test_without_a_policy_it_is_basic(self) -> None:
        assert facts(self.resolve({"schedulingConstraints": key(RACK)}))[0][2:] == (BASIC, None, RACK, SINGLE)

    def test_what_it_can_not_have(self) -> None:
        gang = {"schedulingPolicy": {"gang": {}}}
        with pytest.raises(Unresolvable, match="min-count"):
            self.resolve(gang, {"queue-manager.io/min-count": "1"}, parallelism=4)
        with pytest.raises(Unresolvable, match="schedulingGroup"):
            self.resolve(gang, template=node(schedulingGroup={"podGroupName": "mine"}))
        with pytest.raises(Unresolvable, match="could never start"):
            self.resolve({"schedulingPolicy": {"gang": {"minCount": 9}}}, parallelism=4)

    def test_unknown_fields_are_named(self) -> None:
        assert self.resolve({"size": 1}).messages == ("spec.scheduling.size is not known, it is not acted on",)


def test_pod_set_group_with_a_level_of_its_own() -> None:
    annotations = {
        "queue-manager.io/podset-group": "crew",
        "queue-manager.io/podset-group-required-topology": BLOCK,
        "queue-manager.io/required-topology": RACK,
    }
    pods = pod_template(container("node"), metadata={"annotations": annotations})
    (group,) = groups_of(None, replicated_job("a", pods))
    (pod_set,) = group.pod_sets
    assert pod_set.group_topology == TopologyRequest(TopologyMode.REQUIRED, BLOCK)
    assert pod_set.topology == TopologyRequest(TopologyMode.REQUIRED, RACK)
    del annotations["queue-manager.io/podset-group"]
    with pytest.raises(Unresolvable, match="podset-group-required-topology"):
        groups_of(None, replicated_job("a", pods))
