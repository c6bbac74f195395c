"""batch/v1 Job: width and what is left of it, start, stop."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, Object, PatchType
from queue_manager.engine.workload import PodSet, Toleration, TopologyMode
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.kind import Done, PodPlacement, Unresolvable, Wait, Write
from tests.kinds.world import NAMESPACE, World, container, job, json_patch, pod_template

KIND = JobKind()
RACK = "topology/rack"


def pod_set(status: Any = None, metadata: Any = None, **spec: Any) -> PodSet:
    resource, obj = job(pod_template(container("a", {"cpu": 1})), status=status, metadata=metadata, **spec)
    return KIND.resolve(obj, World((resource, obj))).pod_groups[0].pod_sets[0]


def needed(status: Any = None, **spec: Any) -> int:
    found = pod_set(status, **spec)
    return found.count - found.reclaimed


def make(template: Any = None, **spec: Any) -> World:
    return World(job(template or pod_template(container("a")), **{"parallelism": 4, **spec}))


def current(world: World) -> Object:
    found = world.get(JOBS, NAMESPACE, "job")
    assert found is not None
    return found


def on(rack: str, count: int = 4) -> dict[str, PodPlacement]:
    return {"main": PodPlacement(count, {RACK: rack}, (Toleration("gpu", "Exists"),))}


def terms(obj: Object) -> Any:
    affinity = obj["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


class TestWidth:
    @pytest.mark.parametrize(
        ("spec", "count"),
        [
            ({}, 1),
            ({"parallelism": 4}, 4),
            ({"parallelism": 4, "completions": 10}, 4),
            ({"parallelism": 10, "completions": 4}, 4),
            ({"completions": 4}, 1),
            ({"parallelism": 0}, 0),
        ],
    )
    def test_at_first(self, spec: Any, count: int) -> None:
        found = pod_set(**spec)
        assert (found.count, found.reclaimed, found.requests) == (count, 0, {"cpu": 1000})

    @pytest.mark.parametrize(("succeeded", "left"), [(0, 4), (5, 4), (7, 3), (10, 0), (12, 0)])
    def test_after_successes(self, succeeded: int, left: int) -> None:
        assert needed({"succeeded": succeeded}, parallelism=4, completions=10) == left

    def test_indexed_resumes_with_what_is_left(self) -> None:
        """kueue#10487: 8 pods come, so the gang and the charge are 8."""
        spec = {"parallelism": 10, "completions": 10, "completionMode": "Indexed"}
        assert needed({"succeeded": 2, "completedIndexes": "0,1"}, **spec) == 8

    def test_failed_indexes_are_done_too(self) -> None:
        spec = {"parallelism": 10, "completions": 10, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
        assert needed({"completedIndexes": "0-2,5", "failedIndexes": "3,7-8"}, **spec) == 3

    def test_completions_lowered_below_what_is_done(self) -> None:
        """kueue#13117."""
        spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
        found = pod_set({"succeeded": 7, "completedIndexes": "0-6"}, **spec)
        assert (found.count, found.reclaimed) == (4, 4)

    def test_work_queue_winds_down_after_its_first_success(self) -> None:
        assert needed({"succeeded": 0, "active": 4}, parallelism=4) == 4
        assert needed({"succeeded": 1, "active": 2}, parallelism=4) == 2
        assert needed({"succeeded": 1}, parallelism=4) == 0

    @pytest.mark.parametrize("indexes", ["a", "1-", "1-2-3", "-1", 5, "9" * 5000])
    def test_indexes_that_can_not_be_read(self, indexes: Any) -> None:
        spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
        if indexes == "1-":
            assert needed({"completedIndexes": indexes}, **spec) == 3
            return
        with pytest.raises(Unresolvable) as found:
            needed({"completedIndexes": indexes}, **spec)
        assert found.value.field == "status.completedIndexes"

    def test_huge_ranges_cost_nothing(self) -> None:
        spec = {"parallelism": 2, "completions": 3, "completionMode": "Indexed"}
        assert needed({"completedIndexes": "1-4000000000"}, **spec) == 1

    def test_reclaimable_is_the_same(self) -> None:
        _, obj = job(pod_template(container("a")), parallelism=4, completions=10, status={"succeeded": 8, "active": 2})
        assert KIND.reclaimable(obj, World()) == {"main": 2}

    def test_min_count_and_topology(self) -> None:
        annotations = {"queue-manager.io/min-count": "2", "queue-manager.io/required-topology": RACK}
        _, obj = job(pod_template(container("a")), parallelism=4, metadata={"annotations": annotations})
        resolved = KIND.resolve(obj, World())
        assert resolved.pod_groups[0].pod_sets[0].min_count == 2
        assert resolved.topology is not None
        assert resolved.topology.mode is TopologyMode.REQUIRED


class TestStart:
    def test_required_affinity_and_unsuspended_in_one_write(self) -> None:
        world = make()
        writes = world.run_start(KIND, "job", on("r1"))
        assert [write.says for write in writes] == ["starts the Job with its placement"]
        assert terms(current(world)) == [{"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r1"]}]}]
        assert current(world)["spec"]["suspend"] is False
        assert isinstance(world.start(KIND, "job", on("r1")), Done)

    def test_every_term_of_the_user_gets_it(self) -> None:
        """Terms are alternatives; preferred ones and pod affinity stay as they are."""
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        affinity = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": [zone]}, {}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
            },
            "podAffinity": {"x": "y"},
        }
        world = make(pod_template(container("a"), affinity=copy.deepcopy(affinity)))
        world.run_start(KIND, "job", on("r1"))
        ours = {"key": RACK, "operator": "In", "values": ["r1"]}
        assert terms(current(world)) == [
            {"matchExpressions": [zone, ours]},
            {"matchFields": [zone], "matchExpressions": [ours]},
        ]
        placed = current(world)["spec"]["template"]["spec"]["affinity"]
        assert placed["podAffinity"] == affinity["podAffinity"]
        assert len(placed["nodeAffinity"]) == 2
        world.run_stop(KIND, "job")
        assert current(world)["spec"]["template"]["spec"]["affinity"] == affinity

    def test_terms_that_no_node_fits(self) -> None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
        world = make(pod_template(container("a"), affinity={"nodeAffinity": required}))
        with pytest.raises(Unresolvable) as found:
            world.start(KIND, "job", on("r1"))
        assert found.value.reason == "NoNodeMatches"

    def test_stop_restores_what_the_user_gave(self) -> None:
        template = pod_template(container("a"), tolerations=[{"key": "own", "operator": "Exists"}])
        world = make(template)
        before = copy.deepcopy(current(world)["spec"])
        world.run_start(KIND, "job", on("r1"))
        assert [write.says for write in world.run_stop(KIND, "job", drained=False)] == ["suspends the Job"]
        assert isinstance(KIND.next_stop(current(world), world, drained=False), Wait)
        world.run_stop(KIND, "job")
        assert current(world)["spec"] == before
        assert [KIND.next_stop(current(world), world, drained=True) for _ in range(3)] == [Done()] * 3

    def test_start_time_goes_before_the_template(self) -> None:
        """kueue#2691: it fixes the template before Kubernetes 1.35."""
        world = make()
        world.run_start(KIND, "job", on("r1"))
        current(world)["status"] = {"startTime": "2026-01-01T00:00:00Z"}
        writes = world.run_stop(KIND, "job")
        assert [(write.subresource, write.patch_type) for write in writes] == [
            ("", PatchType.JSON),
            ("status", PatchType.MERGE),
            ("", PatchType.JSON),
        ]
        assert writes[1].body == {"status": {"startTime": None}}

    def test_start_that_an_old_start_time_has_refused(self) -> None:
        world = make()
        current(world)["status"] = {"startTime": "2026-01-01T00:00:00Z"}
        step = world.start(KIND, "job", on("r1"), refused="field is immutable")
        assert isinstance(step, Write)
        assert step.subresource == "status"
        world.perform(step)
        assert len(world.run_start(KIND, "job", on("r1"))) == 1

    def test_labels_that_the_job_controller_adds_stay(self) -> None:
        world = make(pod_template(container("a"), metadata={"labels": {"job-name": "job"}}))
        placement = {"main": PodPlacement(4, labels={"team": "x"})}
        world.run_start(KIND, "job", placement)
        assert current(world)["spec"]["template"]["metadata"]["labels"] == {"job-name": "job", "team": "x"}
        assert isinstance(world.start(KIND, "job", placement), Done)
        world.run_stop(KIND, "job")
        assert current(world)["spec"]["template"]["metadata"]["labels"] == {"job-name": "job"}

    def test_fewer_pods(self) -> None:
        world = make(completions=8)
        world.run_start(KIND, "job", on("r1", 3))
        assert current(world)["spec"]["parallelism"] == 3
        assert isinstance(world.start(KIND, "job", on("r1", 3)), Done)
        found = KIND.resolve(current(world), world).pod_groups[0].pod_sets[0]
        assert found.count == 4, "what it asks for is still the full width"
        world.run_stop(KIND, "job")
        assert current(world)["spec"]["parallelism"] == 4

    def test_what_has_finished_makes_it_smaller_by_itself(self) -> None:
        world = make(completions=4, status={"succeeded": 2})
        world.run_start(KIND, "job", on("r1", 2))
        assert current(world)["spec"]["parallelism"] == 4
        assert KIND.reclaimable(current(world), world) == {"main": 2}

    def test_fewer_pods_than_are_left(self) -> None:
        world = make(completions=4, status={"succeeded": 1})
        world.run_start(KIND, "job", on("r1", 2))
        assert current(world)["spec"]["parallelism"] == 2
        assert KIND.reclaimable(current(world), world) == {"main": 1}
        current(world)["status"]["succeeded"] = 3
        assert KIND.reclaimable(current(world), world) == {"main": 2}
        assert isinstance(world.start(KIND, "job", on("r1", 2)), Done), "it keeps its parallelism"
        world.run_stop(KIND, "job")
        assert current(world)["spec"]["parallelism"] == 4
        assert KIND.reclaimable(current(world), world) == {"main": 3}

    def test_refused_once_takes_two(self) -> None:
        world = make()
        step = world.start(KIND, "job", on("r1"), refused="no")
        assert isinstance(step, Write)
        assert step.says == "writes the placement into the suspended Job"
        world.perform(step)
        assert [write.says for write in world.run_start(KIND, "job", on("r1"))] == ["starts the Job"]

    def test_unsuspended_by_somebody_else(self) -> None:
        world = make(suspend=False)
        step = world.start(KIND, "job", on("r1"))
        assert isinstance(step, Write)
        assert step.body[-1] == {"op": "add", "path": "/spec/suspend", "value": True}
        assert isinstance(world.start(KIND, "job", {"main": PodPlacement(4)}), Done)

    def test_conflict_with_the_users_selector(self) -> None:
        world = make(pod_template(container("a"), nodeSelector={RACK: "r7"}))
        with pytest.raises(Unresolvable) as found:
            world.start(KIND, "job", on("r1"))
        assert found.value.field == f"spec.template.spec.nodeSelector.{RACK}"

    def test_webhook(self) -> None:
        _, obj = job(pod_template(container("a")), suspend=False)
        assert json_patch(obj, KIND.suspend_on_create(obj, World()))["spec"]["suspend"] is True


class TestStatus:
    def status(self, conditions: Any = (), **status: Any) -> Object:
        _, obj = job(pod_template(container("a")), suspend=False, parallelism=4, completions=10)
        obj["status"] = {"conditions": list(conditions), **status}
        return obj

    def test_ready(self) -> None:
        assert not KIND.pods_ready(self.status(ready=3))
        assert KIND.pods_ready(self.status(ready=4))
        assert KIND.pods_ready(self.status(ready=1, succeeded=9))

    def test_completions_that_follow_each_other_are_ready_although_some_pod_always_starts(self) -> None:
        assert KIND.pods_ready(self.status(ready=3, succeeded=1))
        assert not KIND.pods_ready(self.status(ready=2, succeeded=1))

    def test_successes_of_an_earlier_start_do_not_make_this_one_ready(self) -> None:
        assert not KIND.pods_ready(self.status(ready=0, succeeded=5))

    def test_active_counts_terminating_pods(self) -> None:
        assert KIND.is_active(self.status(active=1))
        assert KIND.is_active(self.status(active=0, terminating=1))
        assert not KIND.is_active(self.status())

    def test_finished(self) -> None:
        early = {"type": "SuccessCriteriaMet", "status": "True"}
        assert KIND.finished(self.status([early])) is None
        found = KIND.finished(
            self.status([early, {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}])
        )
        assert found is not None
        assert (found.outcome, found.message) == ("failed", "BackoffLimitExceeded")

    def test_pods_by_uid(self) -> None:
        obj = self.status()
        obj["metadata"]["uid"] = "u"
        assert KIND.pod_selector(obj) == {"batch.kubernetes.io/controller-uid": "u"}
