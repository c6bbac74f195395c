"""Plain pods as a kind: what a group asks for, when it is over, what stops it, what a pod gets when let through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from queue_manager.cluster.pods import project
from queue_manager.cluster.port import Object
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.workload import PodSet, SpreadRule, Toleration, TopologyMode
from queue_manager.kinds.gates import release, release_to
from queue_manager.kinds.kind import Done, Finished, Outcome, PodPlacement, Several, Unresolvable, Wait
from queue_manager.kinds.plain_pods import LONE_PODS, MOST_NOTED, PLAIN_GROUPS, PlainPods, gate_on_create
from queue_manager.kinds.plain_shapes import POD_SET, SHAPE, WORKLOAD, shaped
from tests.kinds.world import World

KIND, ALONE = PlainPods(PLAIN_GROUPS), PlainPods(LONE_PODS)
PREFIX = "queue-manager.io/"
UID = "group"


def pod(number: int, *, size: int = 4, gpus: int = 1, phase: str = "Pending", attempt: int = 0, **more: Any) -> Object:
    """A pod of the group as the caches keep it. `attempt`: let through by that admission; `leaving`: being deleted."""
    annotations = {PREFIX + "pod-group-size": str(size)} if size else {}
    annotations |= {PREFIX + key.replace("_", "-"): value for key, value in more.pop("annotations", {}).items()}
    labels = {PREFIX + "queue": "team", PREFIX + "pod-group": "g", **more.pop("labels", {})}
    metadata = {"name": f"p{number}", "namespace": "team", "uid": f"uid-{number}", "labels": labels}
    metadata |= {"creationTimestamp": f"2026-01-01T00:00:{number:02}Z", "resourceVersion": "7"}
    if more.pop("leaving", False):
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    spec: Object = {"containers": [{"name": "main", "resources": {"limits": {"gpu": str(gpus)}}}], **more}
    if attempt:
        annotations |= {WORKLOAD: f"{UID}/{attempt}", POD_SET: "workers"}
    else:
        spec["schedulingGates"] = [{"name": PREFIX + "admission"}]
    made = {"metadata": {**metadata, "annotations": annotations}, "spec": spec, "status": {"phase": phase}}
    return shaped(project(made), made)


def group(pods: Sequence[Object], **spec: Any) -> Object:
    """The object that the controller makes of them."""
    oldest = min(pods, key=lambda found: str(found["metadata"]["creationTimestamp"]))
    metadata = {**oldest["metadata"], "name": "g", "uid": UID}
    return {"metadata": metadata, "spec": {"pods": list(pods), "suspend": True, "attempt": 1, **spec}}


def resolve(*pods: Object) -> Any:
    return KIND.resolve(group(pods), World())


def refusal(*pods: Object) -> Unresolvable:
    with pytest.raises(Unresolvable) as caught:
        resolve(*pods)
    return caught.value


class TestResolve:
    def test_pods_that_ask_for_the_same_are_a_pod_set_in_the_order_of_the_oldest(self) -> None:
        found = resolve(pod(1), pod(0, gpus=2), pod(2), pod(3, gpus=2))
        [one] = found.pod_groups
        assert [(p.count, p.requests["gpu"]) for p in one.pod_sets] == [(2, 2), (2, 1)]
        assert len({p.name for p in one.pod_sets}) == 2

    @pytest.mark.parametrize(
        "other",
        [
            {"nodeSelector": {"zone": "a"}},
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            {"priorityClassName": "other"},
            {"hostNetwork": True},
            {"affinity": {"nodeAffinity": {}}},
        ],
    )
    def test_what_decides_where_a_pod_may_run_makes_it_another_shape(self, other: Object) -> None:
        assert pod(0, **other)[SHAPE] != pod(0)[SHAPE]

    def test_what_decides_nothing_does_not(self) -> None:
        named = pod(1, labels={"statefulset.kubernetes.io/pod-name": "p1"}, hostname="p1", nodeName="n1")
        assert named[SHAPE] == pod(0)[SHAPE]

    def test_pods_that_lack_are_counted(self) -> None:
        error = refusal(pod(0), pod(1), pod(2, leaving=True), pod(3, phase="Failed"))
        assert (error.reason, error.message) == ("PodsMissing", "2 of 4 pods exist")

    def test_more_than_the_size_are_left_out_the_youngest_first(self) -> None:
        found = resolve(*(pod(number, size=2, gpus=1 + number) for number in range(3)))
        assert [p.requests["gpu"] for p in found.pod_groups[0].pod_sets] == [1, 2]

    def test_pods_that_succeeded_before_it_was_stopped_need_not_be_made_again(self) -> None:
        done = {**pod(0, phase="Succeeded", attempt=1), SHAPE: pod(1)[SHAPE]}
        [pod_set] = resolve(done, pod(1), pod(2), pod(3)).pod_groups[0].pod_sets
        assert (pod_set.count, pod_set.reclaimed) == (4, 1)

    def test_topology_is_that_of_the_whole_group(self) -> None:
        found = resolve(*(pod(number, annotations={"required_topology": "rack"}) for number in range(4)))
        assert (found.topology.mode, found.topology.level) == (TopologyMode.REQUIRED, "rack")
        assert found.pod_groups[0].pod_sets[0].topology is None

    def test_min_count_is_taken(self) -> None:
        found = resolve(*(pod(number, annotations={"min_count": "2"}) for number in range(4)))
        assert found.pod_groups[0].pod_sets[0].min_count == 2

    @pytest.mark.parametrize(
        ("pods", "field", "says"),
        [
            ([pod(0, size=0)], "metadata.annotations[queue-manager.io/pod-group-size]", "is missing"),
            (
                [pod(0, size=2), pod(1)],
                "metadata.annotations[queue-manager.io/pod-group-size]",
                "'2' on p0 and '4' on p1",
            ),
            (
                [pod(0, labels={PREFIX + "queue": "other"}), *map(pod, range(1, 4))],
                "metadata.labels[queue-manager.io/queue]",
                "'other' on p0 and 'team' on p1",
            ),
            (
                [pod(n, annotations={"min_count": "5"}) for n in range(4)],
                "metadata.annotations[queue-manager.io/min-count]",
                "must not be above",
            ),
            (
                [pod(n, gpus=1 + n % 2, annotations={"min_count": "2"}) for n in range(4)],
                "metadata.annotations[queue-manager.io/min-count]",
                "all alike",
            ),
            (
                [pod(n, annotations={"pod_group_size": "many"}) for n in range(4)],
                "metadata.annotations[queue-manager.io/pod-group-size]",
                "'many'",
            ),
        ],
    )
    def test_bad_input_names_the_field_and_what_is_wrong(self, pods: list[Object], field: str, says: str) -> None:
        error = refusal(*pods)
        assert error.field == field
        assert says in error.message

    def test_a_size_without_a_group_is_refused(self) -> None:
        alone = pod(0)
        del alone["metadata"]["labels"][PREFIX + "pod-group"]
        with pytest.raises(Unresolvable, match=r"needs metadata\.labels"):
            ALONE.resolve(group([alone]), World())


def ruled(number: int, app: str = "a", **more: Any) -> Object:
    """One of two pods of a group that want to be apart from all pods of their `app`."""
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": app}}, **more.pop("term", {})}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(number, size=2, affinity=anti, labels={"app": "a", **more.pop("labels", {})}, **more)


class TestRules:
    OF_GROUP: ClassVar[Object] = {"matchLabelKeys": [PREFIX + "pod-group"]}

    def test_spread_and_affinity_among_its_pods_are_planned(self) -> None:
        found = resolve(*(ruled(n, term=self.OF_GROUP) for n in range(2)))
        [pod_set] = found.pod_groups[0].pod_sets
        assert (pod_set.rules.apart, found.messages) == (("host",), ())
        selector = {"matchLabels": {"app": "a"}}
        spread = [
            {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        ]
        pods = (pod(n, size=2, labels={"app": "a"}, topologySpreadConstraints=spread) for n in range(2))
        [pod_set] = resolve(*pods).pod_groups[0].pod_sets
        assert pod_set.rules.spread == (SpreadRule("rack", 1),)

    def test_pods_of_the_same_labels_elsewhere_are_told_of(self) -> None:
        found = resolve(ruled(0), ruled(1))
        assert found.pod_groups[0].pod_sets[0].rules.apart == ("host",)
        [message] = found.messages
        assert message.endswith("are not planned: add matchLabelKeys with queue-manager.io/pod-group")

    def test_what_is_about_pods_of_others_is_refused(self) -> None:
        error = refusal(ruled(0, "b"), ruled(1, "b"))
        assert error.reason == "PodRulesOfOthers"
        assert error.message.startswith(
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector selects none"
        )

    @pytest.mark.parametrize("other", [{"gpus": 2}, {"gpus": 2, "labels": {"app": "a", "more": "x"}}])
    def test_other_pods_of_the_group_that_are_selected_too_are_named(self, other: Any) -> None:
        labels = {"app": "a", **other.get("labels", {})}
        error = refusal(ruled(0), pod(1, size=2, gpus=2, labels=labels))
        assert "selects the pods of pods-" in error.message
        assert "(such as p1) too: add a label that only" in error.message
        found = resolve(ruled(0), pod(1, size=2, gpus=2, labels={"app": "b"}))
        assert [pod_set.rules.apart for pod_set in found.pod_groups[0].pod_sets] == [("host",), ()]

    def test_labels_that_rules_ask_for_part_pod_sets_and_others_do_not(self) -> None:
        assert ruled(0)[SHAPE] != ruled(0, labels={"app": "b"})[SHAPE]
        assert ruled(0)[SHAPE] == ruled(0, labels={"other": "b"})[SHAPE]
        assert pod(0, labels={"app": "a"})[SHAPE] == pod(0)[SHAPE]

    def test_those_that_have_ended_are_in_nobodys_way(self) -> None:
        done = {**pod(0, size=2, phase="Succeeded", attempt=1, labels={"app": "a"}), SHAPE: "done"}
        [pod_set] = resolve(done, ruled(1)).pod_groups[0].pod_sets
        assert pod_set.rules.apart == ("host",)


class TestEnd:
    def end(self, *phases: str, **spec: Any) -> Finished | None:
        pods = [pod(n, phase=phase, attempt=1) for n, phase in enumerate(phases)]
        return KIND.finished(group([*pods, *spec.pop("more", ())], **spec))

    def test_it_succeeds_once_enough_pods_have(self) -> None:
        assert self.end("Succeeded", "Succeeded", "Succeeded", "Running") is None
        found = self.end(*["Succeeded"] * 4)
        assert found == Finished(Outcome.SUCCEEDED, "4 of 4 pods succeeded")

    def test_one_that_failed_may_be_replaced_until_all_have_ended(self) -> None:
        three = ["Succeeded", "Succeeded", "Succeeded", "Failed"]
        assert self.end("Succeeded", "Succeeded", "Running", "Failed") is None
        assert self.end(*three) == Finished(Outcome.FAILED, "3 of 4 pods succeeded, 1 failed")
        assert self.end(*three, more=[pod(4)]) is None
        assert self.end(*three, "Succeeded") == Finished(Outcome.SUCCEEDED, "4 of 4 pods succeeded")

    def test_pods_that_end_because_they_are_deleted_do_not_end_it(self) -> None:
        going = [pod(n, phase="Failed", attempt=1, leaving=True) for n in range(4)]
        assert KIND.finished(group(going)) is None

    def test_failures_of_an_earlier_run_do_not_count(self) -> None:
        earlier = pod(9, phase="Failed", attempt=1)
        assert self.end(*["Succeeded"] * 3, more=[earlier], attempt=2) is None


class TestStop:
    def test_pods_past_their_gate_are_deleted_by_uid_and_the_others_stay(self) -> None:
        step = KIND.next_stop(
            group([pod(0, attempt=1), pod(1, attempt=1, leaving=True), pod(2)]), World(), drained=False
        )
        assert isinstance(step, Several)
        assert [(w.verb, w.name, w.uid) for w in step.writes] == [("delete", "p0", "uid-0")]

    def test_what_is_going_is_waited_for(self) -> None:
        going = group([pod(1, attempt=1, leaving=True), pod(2)])
        assert isinstance(KIND.next_stop(going, World(), drained=False), Wait)

    def test_nothing_is_deleted_of_a_group_that_is_not_charged(self) -> None:
        assert KIND.next_stop(group([pod(0, attempt=1)]), World(), drained=True) == Done()
        assert KIND.next_stop(group([pod(0)]), World(), drained=False) == Done()


class TestLetThrough:
    PLACEMENT = PodPlacement(1, {"rack": "r1"}, (Toleration("gpu", "Exists", "", "NoSchedule"),))

    def test_one_write_gives_it_its_place_notes_whose_it_is_and_takes_the_gate_off(self) -> None:
        waiting = pod(0, nodeSelector={"zone": "a"}, tolerations=[{"key": "own", "operator": "Exists"}])
        write = release(waiting, KIND.passage(waiting, self.PLACEMENT, f"{UID}/3"))
        done = {operation["path"]: operation.get("value") for operation in write.body}
        assert done["/metadata/annotations/queue-manager.io~1workload"] == f"{UID}/3"
        assert done["/metadata/annotations/queue-manager.io~1pod-set"] == waiting[SHAPE]
        assert done["/spec/nodeSelector"] == {"zone": "a", "rack": "r1"}
        assert [t["key"] for t in done["/spec/tolerations"]] == ["own", "gpu"]
        assert write.body[-1] == {"op": "remove", "path": "/spec/schedulingGates/0"}
        assert (done["/metadata/uid"], done["/metadata/resourceVersion"]) == ("uid-0", "7")

    def test_a_pinned_pod_without_annotations_gets_them_all_at_once(self) -> None:
        waiting = pod(0, size=0)
        waiting["metadata"].pop("annotations", None)
        write = release_to(waiting, 5, {}, KIND.passage(waiting, self.PLACEMENT, f"{UID}/3"))
        noted = [o["value"] for o in write.body if o["path"] == "/metadata/annotations"]
        assert noted == [{PREFIX + "slot": "5", WORKLOAD: f"{UID}/3", POD_SET: waiting[SHAPE]}]

    def test_what_it_is_of_is_read_back_whatever_was_written_into_it(self) -> None:
        assert pod(0, attempt=1, nodeSelector={"rack": "r1"})[SHAPE] == "workers"

    def test_a_pod_at_its_gate_can_not_say_itself_what_it_is_of(self) -> None:
        forged = pod(0, annotations={"pod_set": "workers", "workload": f"{UID}/1"})
        assert forged[SHAPE] == pod(1)[SHAPE]
        assert not KIND.occupies(group([forged]), forged)

    @pytest.mark.parametrize(
        ("wanted", "admitted", "succeeded", "may_run"),
        [(4, 4, 0, 4), (4, 4, 3, 1), (4, 2, 0, 2), (4, 2, 3, 1), (4, 2, 2, 2)],
    )
    def test_no_more_run_than_are_admitted_and_have_yet_to_succeed(
        self, wanted: int, admitted: int, succeeded: int, may_run: int
    ) -> None:
        pods = [pod(n, phase="Succeeded", attempt=1) for n in range(succeeded)]
        pod_set, assigned = PodSet("workers", wanted, {}), PodSetAssignment("workers", admitted, {})
        assert KIND.most_running(pod_set, assigned, pods) == may_run
        obj = group(pods or [pod(0)], admitted={"workers": (wanted, admitted, 0)})
        assert admitted - KIND.reclaimable(obj, World()).get("workers", 0) == may_run


def test_the_gate_is_put_on_once_beside_others() -> None:
    other = {"metadata": {}, "spec": {"schedulingGates": [{"name": "other"}]}}
    assert gate_on_create(other)[0]["value"] == [{"name": "other"}, {"name": PREFIX + "admission"}]
    assert gate_on_create({"metadata": {}, "spec": {"schedulingGates": [{"name": PREFIX + "admission"}]}}) == []


def test_only_the_oldest_pods_of_a_large_group_are_written_to() -> None:
    noted = KIND.noted_on(group([pod(n) for n in reversed(range(30))]))
    assert [found["metadata"]["name"] for _, found in noted] == [f"p{n}" for n in range(MOST_NOTED)]


def test_pods_are_asked_for_by_the_label_of_the_group_or_by_name() -> None:
    obj = group([pod(0)])
    assert KIND.pods_query(obj).label_selector == "queue-manager.io/pod-group=g"
    assert ALONE.pods_query(obj).field_selector == "metadata.name=g"
