"""Each kind of object in a scenario, and each field that changes an outcome."""

from __future__ import annotations

import random
from typing import Any

import pytest

from queue_manager.simulate.semantics import Semantics
from tests.simulate.build import (
    KUEUE,
    Object,
    admitted,
    flavor,
    groups,
    local_queue,
    node,
    play,
    pod_set,
    queue,
    ran,
    reasons,
    workload,
)

QUEUE = [flavor(), queue("q"), local_queue("q")]


def thing(version: str, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **({"spec": spec} if spec else {}), **more}


def with_pod(**pod: Any) -> list[Object]:
    return [pod_set(pod=pod)]


# ---- flavors


def flavors(*found: Object) -> list[Object]:
    quota = {each["metadata"]["name"]: {"cpu": 4} for each in found}
    return [*found, queue("q", quota), local_queue("q")]


def taken(found: Object, name: str = "a") -> str:
    return found["admitted"][f"default/{name}"]["podSets"]["main"]["flavors"]["cpu"]


SPOT, FIRM = flavor("spot", nodeLabels={"kind": "spot"}), flavor("firm", nodeLabels={"kind": "firm"})


def test_node_labels_of_a_flavor_meet_the_node_selector():
    found = play(*flavors(SPOT, FIRM), workload("a", podSets=with_pod(nodeSelector={"kind": "firm"})))
    assert taken(found) == "firm"


def test_node_labels_of_a_flavor_meet_the_node_affinity():
    terms = [{"matchExpressions": [{"key": "kind", "operator": "NotIn", "values": ["spot"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert taken(play(*flavors(SPOT, FIRM), workload("a", podSets=with_pod(affinity=affinity)))) == "firm"


TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}


def test_taints_of_a_flavor_need_a_toleration():
    fleet = flavors(flavor("spot", nodeTaints=[TAINT]), flavor("firm"))
    tolerant = {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert taken(play(*fleet, workload("a"))) == "firm"
    assert taken(play(*fleet, workload("a", podSets=with_pod(tolerations=[tolerant])))) == "spot"


def test_tolerations_of_a_flavor_are_its_pods_tolerations():
    assert (
        taken(play(*flavors(flavor("spot", nodeTaints=[TAINT], tolerations=[{"operator": "Exists"}])), workload("a")))
        == "spot"
    )


# ---- the quota tree


@pytest.mark.parametrize(
    ("version", "up", "parent"), [("v1beta2", "cohortName", "parentName"), ("v1beta1", "cohort", "parent")]
)
def test_quota_is_lent_through_the_tree_in_both_versions(version: str, up: str, parent: str):
    kueue = f"kueue.x-k8s.io/{version}"
    top = {"resourceGroups": groups({"default": {"cpu": 6}})}
    objects = [
        flavor(),
        thing(kueue, "Cohort", "top", top),
        thing(kueue, "Cohort", "low", {parent: "top"}),
        {**queue("q", {"default": {"cpu": 1}}, **{up: "low"}), "apiVersion": kueue},
        {**local_queue("q"), "apiVersion": kueue},
    ]
    assert ran(play(*objects, workload("fits", cpu=7))) == ["fits"]
    assert reasons(play(*objects, workload("huge", cpu=8))) == {"huge": "ExceedsMaxQuota"}


@pytest.mark.parametrize(
    ("lender", "borrower", "cpu"),
    [
        ({"nominalQuota": 4}, {"nominalQuota": 1}, 5),
        ({"nominalQuota": 4, "lendingLimit": 2}, {"nominalQuota": 1}, 3),
        ({"nominalQuota": 4}, {"nominalQuota": 1, "borrowingLimit": 1}, 2),
    ],
)
def test_limits_bound_what_is_borrowed(lender: Object, borrower: Object, cpu: int):
    objects = [
        flavor(),
        queue("lender", {"default": {"cpu": lender}}, cohortName="c"),
        queue("q", {"default": {"cpu": borrower}}, cohortName="c"),
        local_queue("q"),
    ]
    assert ran(play(*objects, workload("fits", cpu=cpu))) == ["fits"]
    assert ran(play(*objects, workload("huge", cpu=cpu + 1))) == []


# ---- queues


@pytest.mark.parametrize(("policy", "left"), [("None", ["new", "old"]), ("Hold", ["old"]), ("HoldAndDrain", [])])
@pytest.mark.parametrize("where", ["ClusterQueue", "LocalQueue"])
def test_a_stop_policy_holds_and_drains(policy: str, left: list[str], where: str):
    stop = {"stopPolicy": policy}
    objects = [
        flavor(),
        queue("q", **(stop if where == "ClusterQueue" else {})),
        local_queue("q", **(stop if where == "LocalQueue" else {})),
    ]
    found = play(*objects, workload("old", status=admitted()), workload("new", created=1))
    assert ran(found) == left
    assert set(reasons(found).values()) <= {"Inactive"}
    assert [name for name, _, _ in found["evictions"]] == ([] if "old" in left else ["default/old"])


def test_a_selector_takes_namespaces_by_their_labels():
    selected = {"matchLabels": {"dep": "eng"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    objects = [flavor(), queue("q", namespaceSelector=selected), local_queue("q")]
    space = thing("v1", "Namespace", "default", metadata={"labels": {"dep": "eng"}})
    assert ran(play(*objects, space, workload("a"))) == ["a"]
    assert reasons(play(*objects, workload("a"))) == {"a": "Inactive"} or reasons(play(*objects, workload("a"))) == {
        "a": "Misconfigured"
    }


def test_a_namespace_has_its_name_as_label():
    selected = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    assert ran(play(flavor(), queue("q", namespaceSelector=selected), local_queue("q"), workload("a"))) == ["a"]


def test_a_queue_without_selector_takes_no_namespace():
    closed = queue("q")
    del closed["spec"]["namespaceSelector"]
    assert ran(play(flavor(), closed, local_queue("q"), workload("a"))) == []


@pytest.mark.parametrize(("strategy", "started"), [("StrictFIFO", []), ("BestEffortFIFO", ["small"])])
def test_a_strict_queue_is_blocked_by_its_head(strategy: str, started: list[str]):
    objects = [flavor(), queue("q", queueingStrategy=strategy), local_queue("q")]
    assert ran(play(*objects, workload("large", cpu=5), workload("small", created=1))) == started


def test_an_unknown_flavor_makes_a_queue_inactive():
    found = play(queue("q"), local_queue("q"), workload("a"))
    assert reasons(found) == {"a": "Inactive"}
    assert "flavor default does not exist" in found["pending"]["default/a"]["message"]


@pytest.mark.parametrize(("when", "expected"), [("MayStopSearch", "first"), ("TryNextFlavor", "second")])
def test_flavor_fungibility_decides_between_borrowing_and_the_next_flavor(when: str, expected: str):
    quota = {"first": {"cpu": 1}, "second": {"cpu": 4}}
    objects = [
        flavor("first"),
        flavor("second"),
        queue("lender", {"first": {"cpu": 4}}, cohortName="c"),
        queue("q", quota, cohortName="c", flavorFungibility={"whenCanBorrow": when}),
        local_queue("q"),
    ]
    assert taken(play(*objects, workload("a", cpu=2))) == expected


def test_names_of_v1beta1_fungibility_are_read():
    old = {**queue("q", flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"})}
    assert ran(play(flavor(), {**old, "apiVersion": "kueue.x-k8s.io/v1beta1"}, local_queue("q"), workload("a"))) == [
        "a"
    ]


# ---- rank


@pytest.mark.parametrize(
    "rank",
    [
        {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}},
        {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "pods"}},
        {"priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priorityClassName": "high"},
        {"priorityClassSource": "scheduling.k8s.io/priorityclass", "priorityClassName": "pods"},
        {"priority": 10},
    ],
)
def test_a_rank_comes_from_the_class_or_the_number(rank: Object):
    classes = [
        thing(KUEUE, "WorkloadPriorityClass", "high", value=10, description="d"),
        thing("scheduling.k8s.io/v1", "PriorityClass", "pods", value=10),
    ]
    ranked = workload("late", cpu=4, created=9, **rank)
    if "priority" not in rank:
        del ranked["spec"]["priority"]
    assert ran(play(*QUEUE, *classes, workload("early", cpu=4), ranked)) == ["late"]


def test_a_priority_class_that_never_preempts_is_ahead_and_evicts_nobody():
    never = thing("scheduling.k8s.io/v1", "PriorityClass", "calm", value=10, preemptionPolicy="Never")
    objects = [flavor(), queue("q", preemption={"withinClusterQueue": "LowerPriority"}), local_queue("q"), never]
    calm = workload("calm", cpu=4, created=9, priorityClassRef={"kind": "PriorityClass", "name": "calm"})
    del calm["spec"]["priority"]
    running = workload("old", cpu=4, status=admitted(cpu=4))
    assert ran(play(*objects, running, calm)) == ["old"]
    assert ran(play(*objects, running, calm, semantics=Semantics.KUEUE)) == ["calm"]


# ---- what pods ask for


def test_limits_stand_for_missing_requests():
    containers = [{"name": "c", "resources": {"limits": {"cpu": "5"}}}]
    assert reasons(play(*QUEUE, workload("a", podSets=with_pod(containers=containers)))) == {"a": "ExceedsMaxQuota"}


def test_a_limit_range_gives_what_a_container_leaves_open():
    limits = thing(
        "v1", "LimitRange", "l", {"limits": [{"type": "Container", "defaultRequest": {"cpu": "5"}}]}, "default"
    )
    bare = workload("a", podSets=with_pod(containers=[{"name": "c"}]))
    assert ran(play(*QUEUE, bare)) == ["a"]
    assert reasons(play(*QUEUE, limits, bare)) == {"a": "ExceedsMaxQuota"}


def test_a_runtime_class_adds_its_overhead():
    runtime = thing("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", overhead={"podFixed": {"cpu": "4"}})
    heavy = workload("a", podSets=with_pod(runtimeClassName="kata"))
    assert reasons(play(*QUEUE, runtime, heavy)) == {"a": "ExceedsMaxQuota"}


def test_reclaimable_pods_are_not_counted():
    half = {**admitted(count=4, cpu=4), "reclaimablePods": [{"name": "main", "count": 3}]}
    old = workload("old", podSets=[pod_set(count=4)], status=half)
    assert ran(play(*QUEUE, old, workload("new", cpu=3))) == ["new", "old"]
    assert ran(play(*QUEUE, old, workload("new", cpu=4))) == ["old"]


def test_pods_that_a_running_workload_no_longer_asks_for_are_not_charged():
    runs = admitted(cpu=4, count=4)
    fewer = workload("runs", podSets=[pod_set(count=3)], status=runs)
    assert ran(play(*QUEUE, fewer, workload("one"))) == ["one", "runs"]
    assert ran(play(*QUEUE, workload("runs", podSets=[pod_set(count=4)], status=runs), workload("one"))) == ["runs"]


def test_a_pod_set_with_a_least_count_shrinks():
    found = play(*QUEUE, workload("a", podSets=[pod_set(count=9, minCount=2)]))
    assert found["admitted"]["default/a"]["podSets"]["main"]["count"] == 4


def test_pod_sets_without_a_name_or_a_template_are_read():
    assert ran(play(*QUEUE, workload("a", podSets=[{"count": 2}]))) == ["a"]


# ---- nodes


LEVELS = thing(KUEUE, "Topology", "t", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]})
RACKS = [LEVELS, flavor(topologyName="t"), queue("q", {"default": {"cpu": 99}}), local_queue("q")]
TOGETHER = {"topologyRequest": {"required": "rack"}}


def gang(name: str = "a", count: int = 2, cpu: int = 8, **more: Any) -> Object:
    return workload(name, podSets=[pod_set(count=count, requests={"cpu": str(cpu)}, **TOGETHER)], **more)


def two_nodes(**changes: Any) -> list[Object]:
    second = node("n2", {"rack": "r1"})
    second["spec"] = changes.pop("spec", {})
    second["status"] = {**second["status"], **changes}
    return [node("n1", {"rack": "r1"}), second]


def places(found: Object, name: str = "a") -> Any:
    return found["admitted"][f"default/{name}"]["podSets"]["main"]["topology"]


def test_a_topology_places_pods_and_names_hosts_alone():
    assert places(play(*RACKS, *two_nodes(), gang())) == [[["n1"], 1], [["n2"], 1]]


def test_all_levels_are_named_where_hosts_are_none():
    racks = thing(KUEUE, "Topology", "t", {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]})
    nodes = [node("n1", {"block": "b1", "rack": "r1"})]
    assert places(play(racks, *RACKS[1:], *nodes, gang(count=1))) == [[["b1", "r1"], 1]]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"conditions": []},
        {"allocatable": {"cpu": "7", "pods": "110"}},
        {"allocatable": {"cpu": "8", "pods": "0"}},
    ],
)
def test_a_node_that_cannot_take_a_pod_is_left_out(change: Object):
    assert reasons(play(*RACKS, *two_nodes(**change), gang())) == {"a": "TopologyPlacementFailed"}


def pod(cpu: int, phase: str = "Running", **metadata: Any) -> Object:
    spec = {"nodeName": "n2", "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
    return thing("v1", "Pod", "p", spec, "kube-system", status={"phase": phase}, metadata=metadata)


def test_a_foreign_pod_takes_room_on_its_node():
    assert reasons(play(*RACKS, *two_nodes(), gang(), pod(1))) == {"a": "TopologyPlacementFailed"}


@pytest.mark.parametrize(
    "harmless",
    [
        pod(1, "Succeeded"),
        pod(1, "Failed"),
        pod(1, annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}),
        pod(1, annotations={"queue-manager.io/required-topology": "rack"}),
    ],
)
def test_a_pod_that_is_over_or_was_placed_by_its_workload_takes_none(harmless: Object):
    assert ran(play(*RACKS, *two_nodes(), gang(), harmless)) == ["a"]


def placed(assignment: Object) -> Object:
    return gang("old", 1, status=admitted(cpu=8, topologyAssignment=assignment))


@pytest.mark.parametrize(
    "assignment",
    [
        {"levels": ["kubernetes.io/hostname"], "domains": [{"values": ["n2"], "count": 1}]},
        {"levels": ["rack", "kubernetes.io/hostname"], "domains": [{"values": ["r1", "n2"], "count": 1}]},
        {
            "levels": ["kubernetes.io/hostname"],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "n2"}], "podCounts": {"universal": 1}}],
        },
        {
            "levels": ["kubernetes.io/hostname"],
            "slices": [
                {
                    "domainCount": 1,
                    "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["2"], "suffix": ""}}],
                    "podCounts": {"individual": [1]},
                }
            ],
        },
    ],
)
def test_what_runs_takes_room_where_it_was_placed(assignment: Object):
    found = play(*RACKS, *two_nodes(), placed(assignment), gang(count=1, created=1))
    assert places(found, "old") == [[["n2"], 1]]
    assert places(found) == [[["n1"], 1]]


def test_a_place_on_a_node_that_is_gone_is_kept_and_harms_nobody():
    assignment = {"levels": ["kubernetes.io/hostname"], "domains": [{"values": ["n9"], "count": 1}]}
    found = play(*RACKS, *two_nodes(), placed(assignment), gang(created=1))
    assert places(found, "old") == [[["n9"], 1]]
    assert ran(found) == ["a", "old"]


# ---- Kueue's Configuration


def settings(**spec: Any) -> Object:
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **spec}


def test_excluded_prefixes_are_not_counted():
    asks = workload("a", podSets=[pod_set(requests={"cpu": "1", "example.com/license": "1"})])
    assert reasons(play(*QUEUE, asks)) == {"a": "NoMatchingFlavor"}
    assert ran(play(*QUEUE, asks, settings(resources={"excludeResourcePrefixes": ["example.com"]}))) == ["a"]


def test_transformations_count_other_resources():
    asks = workload("a", podSets=[pod_set(requests={"nvidia.com/mig-1g.5gb": "2"})])
    rule = {"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"cpu": "3"}}
    assert reasons(play(*QUEUE, asks, settings(resources={"transformations": [rule]}))) == {"a": "ExceedsMaxQuota"}
    rule["outputs"] = {"cpu": "2"}
    assert ran(play(*QUEUE, asks, settings(resources={"transformations": [rule]}))) == ["a"]


# ---- objects of the project


def test_objects_of_the_project_say_the_same():
    ours = "queue-manager.io/v1"
    objects = [
        thing(ours, "Flavor", "default", {"nodeLabels": {"a": "b"}}),
        thing(ours, "Cohort", "research", {"resourceGroups": groups({"default": {"cpu": 2}})}),
        thing(
            ours,
            "Queue",
            "q",
            {"cohort": "research", "namespaceSelector": {}, "resourceGroups": groups({"default": {"cpu": 1}})},
        ),
        thing(ours, "LocalQueue", "team", {"queue": "q"}, "default"),
        thing(ours, "PriorityClass", "high", {"value": 9}),
        thing(ours, "Settings", "default", {"resources": {"excludeResourcePrefixes": ["example.com"]}}),
    ]
    late = workload(
        "late", "team", cpu=3, created=9, priorityClassRef={"kind": "WorkloadPriorityClass", "name": "high"}
    )
    del late["spec"]["priority"]
    assert ran(play(*objects, late, workload("early", "team"))) == ["late"]


def test_kinds_without_a_part_are_left_out():
    others = [
        thing("v1", "ConfigMap", "c", namespace="default"),
        thing("batch/v1", "Job", "j", {}, "default"),
        thing(KUEUE, "AdmissionCheck", "check", {"controllerName": "x"}),
        thing(KUEUE, "ProvisioningRequestConfig", "p", {"provisioningClassName": "x"}),
    ]
    assert ran(play(*QUEUE, *others, workload("a"))) == ["a"]


def test_a_name_may_be_any_text():
    objects = [
        flavor("b_one"),
        queue("q_Nominal", {"b_one": {"cpu": 4}}, cohortName="ROOT"),
        local_queue("q", "q_Nominal"),
    ]
    assert ran(play(*objects, thing(KUEUE, "Cohort", "ROOT"), workload("a"))) == ["a"]


def test_a_resource_group_that_covers_nothing_says_nothing():
    hollow = queue("q")
    hollow["spec"]["resourceGroups"] += [{}, {"flavors": [{"name": "default"}]}]
    assert ran(play(flavor(), hollow, local_queue("q"), workload("a"))) == ["a"]


def test_an_object_without_a_version_is_read_by_its_kind():
    objects = [*QUEUE, workload("a")]
    for each in objects:
        del each["apiVersion"]
    assert ran(play(*objects)) == ["a"]


def test_the_order_of_the_objects_does_not_matter():
    objects = [*RACKS, *two_nodes(), node("n3", {"rack": "r2"}), pod(2), gang("a"), gang("b", 1), gang("c", 1, 6)]
    for each in objects:
        each["metadata"].pop("uid", None)
    first = play(*objects)
    assert ran(first) == ["b", "c"]
    for seed in range(10):
        random.Random(seed).shuffle(objects)
        assert play(*objects) == first
