"""What is read of PodGroups of Kubernetes, and what they make of a workload's pod groups."""

from __future__ import annotations

from typing import Any

from queue_manager.engine.workload import (
    DisruptionMode,
    GroupPolicy,
    PodGroup,
    PodSet,
    SliceLayer,
    TopologyMode,
    TopologyRequest,
)
from queue_manager.kinds.kubernetes_groups import (
    Covering,
    KubernetesGroup,
    controller_reference,
    group_name,
    noted,
    read_group,
    remembered,
    with_groups,
    workload_of,
)

RACK = "topology.kubernetes.io/rack"
IN_A_RACK = TopologyRequest(TopologyMode.REQUIRED, RACK)


def pod_group(spec: Any, status: Any = None) -> Any:
    return {"metadata": {"name": "g", "uid": "u"}, "spec": spec, "status": status or {}}


def test_both_versions_say_the_same() -> None:
    common = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
        "priorityClassName": "batch",
        "priority": 7,
    }
    beta = pod_group(
        {**common, "disruptionMode": {"all": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}}
    )
    link = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    alpha = pod_group({**common, "disruptionMode": "PodGroup", "podGroupTemplateRef": link})
    gang, every = GroupPolicy.GANG, DisruptionMode.ALL
    assert read_group(beta) == read_group(alpha) == KubernetesGroup("u", "g", gang, 4, RACK, every, 7, "batch")
    assert workload_of(beta) == workload_of(alpha) == "w"


def test_conditions_of_both_versions() -> None:
    def told(kind: str, status: str) -> Any:
        condition = {"type": kind, "status": status, "reason": "R", "message": "M", "lastTransitionTime": "T"}
        return read_group(pod_group({}, {"conditions": [condition]}))

    for name in ("PodGroupInitiallyScheduled", "PodGroupScheduled"):
        assert (told(name, "False").reason, told(name, "False").message) == ("R", "M")
        assert told(name, "True").reason == ""
    assert (told("DisruptionTarget", "True").disrupted, told("DisruptionTarget", "True").disrupted_at) == ("M", "T")
    assert told("DisruptionTarget", "False").disrupted_at == ""


def test_what_can_not_be_read_is_not_given() -> None:
    for odd in (None, 7, [], {}, {"gang": 7}, {"topology": 7}, {"topology": [7]}):
        spec = {"schedulingPolicy": odd, "schedulingConstraints": odd, "disruptionMode": odd, "workloadRef": odd}
        found = read_group(pod_group(spec, {"conditions": odd}))
        assert (found.level, found.minimum, found.disruption) == ("", None, DisruptionMode.SINGLE)
        assert workload_of(pod_group(spec)) == ""
        assert controller_reference({"spec": {"controllerRef": odd}}) == ("", "", "")
        assert group_name({"spec": {"schedulingGroup": odd}}) == ""


def pod_set(name: str, count: int = 1, **more: Any) -> PodSet:
    return PodSet(name, count, {}, **more)


def names(groups: tuple[PodGroup, ...]) -> list[tuple[str, list[str], str]]:
    return [(g.name, [p.name for p in g.pod_sets], g.topology.level if g.topology else "") for g in groups]


def covering(*pod_sets: str, level: str = RACK, each: bool = False, **more: Any) -> Covering:
    return Covering(pod_sets, KubernetesGroup("u", "g", GroupPolicy.GANG, 3, level, **more), each)


def test_a_group_over_the_same_pod_sets_says_what_holds() -> None:
    groups = (PodGroup("main", (pod_set("a"), pod_set("b"))),)
    (found,) = with_groups(groups, [covering("a", "b", disruption=DisruptionMode.ALL)])
    assert (found.name, found.minimum, found.topology, found.disruption) == ("main", 3, IN_A_RACK, DisruptionMode.ALL)
    assert with_groups(groups, [covering("others")]) == groups


def test_a_group_over_some_pod_sets_parts_them_from_the_rest() -> None:
    groups = (PodGroup("main", (pod_set("a"), pod_set("b"), pod_set("c"))),)
    found = with_groups(groups, [covering("a", "b"), covering("c", level="")])
    assert names(found) == [("a-b", ["a", "b"], RACK), ("main", ["c"], "")]
    found = with_groups((PodGroup("x", (pod_set("a"),)), PodGroup("y", (pod_set("b"),))), [covering("a", "b")])
    assert names(found) == [("x", ["a", "b"], RACK)]


def test_groups_of_each_child_job_are_slices() -> None:
    groups = (PodGroup("main", (pod_set("a", 8, replica_size=2),)),)
    ((found,),) = [
        group.pod_sets for group in with_groups(groups, [covering("a", each=True), covering("a", each=True)])
    ]
    assert found.topology == TopologyRequest(TopologyMode.UNCONSTRAINED, "", (SliceLayer(RACK, 2),))
    wider = TopologyRequest(TopologyMode.UNCONSTRAINED, "", (SliceLayer("block", 4), SliceLayer("host", 1)))
    groups = (PodGroup("main", (pod_set("a", 8, replica_size=2, topology=wider),)),)
    ((found,),) = [group.pod_sets for group in with_groups(groups, [covering("a", each=True)])]
    assert found.topology is not None
    assert [layer.size for layer in found.topology.slices] == [4, 2, 1]


def test_notes_read_back() -> None:
    coverings = [covering("a", "b", disruption=DisruptionMode.ALL), covering("c", level="", each=True, priority=7)]
    groups = (PodGroup("main", (pod_set("a"), pod_set("b"), pod_set("c"))),)
    kept = remembered(noted(coverings))
    again = with_groups(groups, kept)
    assert again == with_groups(groups, coverings)
    assert (again[0].minimum, again[0].disruption) == (3, DisruptionMode.ALL)
    assert [one.group.priority for one in kept] == [None, 7]
    assert remembered({"PodGroup/a": "{", "PodGroup/b": "{}", "LimitRange/x": "u/1"}) == []


def test_notes_of_an_earlier_version_have_no_minimum() -> None:
    note = {"PodGroup/a": '{"disruption": "all", "each": false, "level": "rack", "policy": "gang"}'}
    assert [(one.group.minimum, one.group.priority, one.group.level) for one in remembered(note)] == [
        (None, None, "rack")
    ]
