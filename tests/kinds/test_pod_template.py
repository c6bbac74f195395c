"""What one pod asks for."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.port import LIMIT_RANGES, RUNTIME_CLASSES, Object, Resource
from queue_manager.engine.workload import PodSet, Requirement, SelectorTerm, Toleration, TopologyMode
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.kind import Resolved, Unresolvable
from tests.kinds.world import World, container, job, pod_template

GI = 2**30


def resolve(template: Any, *objects: tuple[Resource, Object]) -> Resolved:
    resource, obj = job(template)
    return JobKind().resolve(obj, World((resource, obj), *objects))


def pod_set(template: Any, *objects: tuple[Resource, Object]) -> PodSet:
    return resolve(template, *objects).pod_groups[0].pod_sets[0]


def requests(template: Any, *objects: tuple[Resource, Object]) -> dict[str, int]:
    return dict(pod_set(template, *objects).requests)


def limit_range(name: str, **item: Any) -> tuple[Resource, Object]:
    return LIMIT_RANGES, {"metadata": {"name": name}, "spec": {"limits": [{"type": "Container"} | item]}}


class TestRequests:
    def test_containers_are_added(self) -> None:
        template = pod_template(
            container("one", {"cpu": "500m", "memory": "1Gi"}), container("two", {"cpu": 1.5, "nvidia.com/gpu": "2"})
        )
        assert requests(template) == {"cpu": 2000, "memory": GI, "nvidia.com/gpu": 2}

    def test_limits_stand_for_missing_requests(self) -> None:
        template = pod_template(container("one", {"cpu": "1"}, {"cpu": "4", "google.com/tpu": 4}))
        assert requests(template) == {"cpu": 1000, "google.com/tpu": 4}

    def test_nothing(self) -> None:
        assert requests(pod_template(container("one"))) == {}

    def test_init_containers_run_alone_before(self) -> None:
        template = pod_template(
            container("main", {"cpu": 2, "memory": "1Gi"}),
            initContainers=[container("a", {"cpu": 3}), container("b", {"cpu": 1, "memory": "4Gi"})],
        )
        assert requests(template) == {"cpu": 3000, "memory": 4 * GI}

    def test_sidecars_run_beside_later_ones(self) -> None:
        template = pod_template(
            container("main", {"cpu": 2}),
            initContainers=[
                container("first", {"cpu": 5}),
                container("side", {"cpu": 1}, restartPolicy="Always"),
                container("later", {"cpu": 5}),
            ],
        )
        assert requests(template) == {"cpu": 6000}
        assert requests(
            pod_template(
                container("main", {"cpu": 2}), initContainers=[container("side", {"cpu": 1}, restartPolicy="Always")]
            )
        ) == {"cpu": 3000}

    def test_overhead(self) -> None:
        assert requests(pod_template(container("one", {"cpu": 1}), overhead={"cpu": "250m"})) == {"cpu": 1250}

    def test_overhead_of_the_runtime_class(self) -> None:
        kata = {
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}},
            "scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
        }
        found = pod_set(
            pod_template(container("one", {"cpu": 1}), runtimeClassName="kata", nodeSelector={"gpu": "h100"}),
            (RUNTIME_CLASSES, kata),
        )
        assert found.requests == {"cpu": 1250, "memory": GI // 8}
        assert found.node_selector == {"gpu": "h100", "kata": "true"}
        assert found.tolerations == (Toleration("kata", "Exists"),)

    def test_runtime_class_that_is_not_there(self) -> None:
        with pytest.raises(Unresolvable) as found:
            resolve(pod_template(container("one"), runtimeClassName="kata"))
        assert (found.value.reason, found.value.field) == (
            "RuntimeClassNotFound",
            "spec.template.spec.runtimeClassName",
        )

    @pytest.mark.parametrize(
        ("resources", "expected"),
        [
            ({"requests": {"cpu": 1}}, {"cpu": 1000, "memory": 2 * GI, "nvidia.com/gpu": 1}),
            ({"limits": {"cpu": 8}}, {"cpu": 4000, "memory": 2 * GI, "nvidia.com/gpu": 1}),
            (
                {"limits": {"hugepages-2Mi": "4Mi"}},
                {"cpu": 4000, "memory": 2 * GI, "nvidia.com/gpu": 1, "hugepages-2Mi": 2**22},
            ),
        ],
    )
    def test_of_the_pod_itself(self, resources: Any, expected: dict[str, int]) -> None:
        template = pod_template(container("one", {"cpu": 4, "memory": "2Gi", "nvidia.com/gpu": 1}), resources=resources)
        assert requests(template) == expected

    @pytest.mark.parametrize("quantity", ["many", "-1", True, [], "1 Gi"])
    def test_that_are_no_quantities(self, quantity: Any) -> None:
        with pytest.raises(Unresolvable) as found:
            resolve(pod_template(container("one", {"memory": quantity})))
        assert found.value.field == "spec.template.spec.containers[0].resources.requests.memory"


class TestLimitRange:
    def test_default_request_before_default(self) -> None:
        limits = limit_range("one", defaultRequest={"cpu": "500m"}, default={"cpu": 2, "memory": "1Gi"})
        template = pod_template(container("a"), container("b", {"cpu": 1}), initContainers=[container("c")])
        assert requests(template, limits) == {"cpu": 1500, "memory": 2 * GI}

    def test_what_the_user_gave_stands(self) -> None:
        limits = limit_range("one", defaultRequest={"cpu": "500m"})
        assert requests(pod_template(container("a", None, {"cpu": 3})), limits) == {"cpu": 3000}

    def test_maximum_and_minimum_stand_in(self) -> None:
        assert requests(pod_template(container("a")), limit_range("one", max={"cpu": 4}, min={"cpu": 1})) == {
            "cpu": 4000
        }
        assert requests(pod_template(container("a")), limit_range("one", min={"memory": "1Gi"})) == {"memory": GI}

    def test_first_of_several_by_name(self) -> None:
        found = requests(
            pod_template(container("a")),
            limit_range("b", defaultRequest={"cpu": 2, "memory": 1}),
            limit_range("a", defaultRequest={"cpu": 1}),
        )
        assert found == {"cpu": 1000, "memory": 1}

    @pytest.mark.parametrize(
        ("resources", "item", "says"),
        [
            (({"cpu": 3},), {"default": {"cpu": 2}}, "more cpu than the limit"),
            (({"cpu": 3},), {"max": {"cpu": 2}}, "more cpu than the limit"),
            (
                (None, {"cpu": 3}),
                {"default": {"cpu": 1}, "max": {"cpu": 2}},
                "limit of 3 of cpu, a LimitRange allows 2",
            ),
            (({"cpu": "500m"},), {"min": {"cpu": 1}}, "requests 0.5 of cpu, a LimitRange wants 1 at least"),
            (({"cpu": 1}, {"cpu": 4}), {"maxLimitRequestRatio": {"cpu": "2.5"}}, "more than 2.5 times its request"),
            (({"cpu": 1},), {"maxLimitRequestRatio": {"cpu": 2}}, "more than 2 times its request"),
        ],
    )
    def test_that_lets_no_pod_be_made(self, resources: Any, item: Any, says: str) -> None:
        """Seen on a real API server: a default limit below the request makes every pod invalid."""
        with pytest.raises(Unresolvable, match="no pod can be made") as found:
            resolve(pod_template(container("a", *resources)), limit_range("one", **item))
        assert (found.value.reason, found.value.field) == (
            "Misconfigured",
            "spec.template.spec.containers[0].resources",
        )
        assert says in found.value.message

    def test_the_strictest_of_several_holds(self) -> None:
        ranges = (limit_range("a", min={"cpu": 1}), limit_range("b", min={"cpu": 2}))
        with pytest.raises(Unresolvable, match="wants 2 at least"):
            resolve(pod_template(container("a", {"cpu": "1500m"})), *ranges)

    @pytest.mark.parametrize(
        ("item", "says"),
        [
            ({"max": {"cpu": 3}}, "limit of 4 of cpu, a LimitRange allows 3"),
            ({"max": {"memory": "1Gi"}}, "no limit of memory"),
            ({"min": {"cpu": 4}}, "requests 3 of cpu, a LimitRange wants 4"),
            ({"maxLimitRequestRatio": {"cpu": "1.2"}}, "more than 1.2 times"),
        ],
    )
    def test_of_the_whole_pod(self, item: Any, says: str) -> None:
        template = pod_template(container("a", {"cpu": 2}, {"cpu": 3}), container("b", {"cpu": 1}, {"cpu": 1}))
        with pytest.raises(Unresolvable, match="no pod can be made") as found:
            resolve(template, limit_range("one", type="Pod", **item))
        assert (found.value.reason, found.value.field) == ("Misconfigured", "spec.template.spec")
        assert says in found.value.message

    def test_bounds_that_hold(self) -> None:
        template = pod_template(container("a", {"cpu": 2}, {"cpu": 4}))
        item = {"min": {"cpu": 2}, "max": {"cpu": 4}, "maxLimitRequestRatio": {"cpu": 2}}
        limits = limit_range("a", **item), limit_range("b", type="Pod", **item)
        assert requests(template, *limits) == {"cpu": 2000}

    def test_of_other_types(self) -> None:
        other = limit_range("claims", type="PersistentVolumeClaim", max={"storage": "1Gi"})
        assert requests(pod_template(container("a")), other) == {}


# Rows of component-helpers/resource: name, init containers, containers, spec of the pod, what the pod requests.
Row = tuple[list[Any], list[Any], dict[str, Any], dict[str, int]]
SIDE = {"restartPolicy": "Always"}
HELPER: dict[str, Row] = {
    "containers are summed": ([], [{"cpu": 1}, {"cpu": 2}], {}, {"cpu": 3000}),
    "one init container above the sum": ([{"cpu": 9}], [{"cpu": 1}, {"cpu": 2}], {}, {"cpu": 9000}),
    "one init container below the sum": ([{"cpu": 2}], [{"cpu": 1}, {"cpu": 2}], {}, {"cpu": 3000}),
    "init containers run one by one": ([{"cpu": 4}, {"cpu": 5}], [{"cpu": 3}], {}, {"cpu": 5000}),
    "each resource has its own peak": (
        [{"cpu": 4, "memory": 1}],
        [{"cpu": 1, "memory": 7}],
        {},
        {"cpu": 4000, "memory": 7},
    ),
    "a sidecar runs beside the containers": ([{"cpu": 1, **SIDE}], [{"cpu": 1}], {}, {"cpu": 2000}),
    "a sidecar runs beside later init containers": (
        [{"cpu": 10, **SIDE}, {"cpu": 200}],
        [{"cpu": 1}],
        {},
        {"cpu": 210000},
    ),
    "a sidecar does not run beside earlier ones": (
        [{"cpu": 200}, {"cpu": 10, **SIDE}],
        [{"cpu": 1}],
        {},
        {"cpu": 200000},
    ),
    "sidecars add up in their order": (
        [{"cpu": 1, **SIDE}, {"cpu": 5}, {"cpu": 2, **SIDE}, {"cpu": 5}, {"cpu": 4, **SIDE}],
        [{"cpu": 3}],
        {},
        {"cpu": 10000},
    ),
    "the last init container decides": (
        [{"cpu": 1, **SIDE}, {"cpu": 2, **SIDE}, {"cpu": 9}],
        [{"cpu": 3}],
        {},
        {"cpu": 12000},
    ),
    "overhead is on top of the peak": (
        [{"cpu": 9}],
        [{"cpu": 1}],
        {"overhead": {"cpu": 1, "memory": 5}},
        {"cpu": 10000, "memory": 5},
    ),
    "the pod's own request stands for the sum": (
        [{"cpu": 9}],
        [{"cpu": 1, "memory": 3}],
        {"resources": {"requests": {"cpu": 4}}},
        {"cpu": 4000, "memory": 3},
    ),
    "overhead is on top of the pod's own request": (
        [],
        [{"cpu": 1}],
        {"resources": {"requests": {"cpu": 4}}, "overhead": {"cpu": "500m"}},
        {"cpu": 4500},
    ),
    "devices can't be asked for by the whole pod": (
        [],
        [{"nvidia.com/gpu": 1}],
        {"resources": {"requests": {"nvidia.com/gpu": 4, "hugepages-2Mi": 2}}},
        {"nvidia.com/gpu": 1, "hugepages-2Mi": 2},
    ),
    "a limit of the pod stands where nobody requests": (
        [],
        [{"memory": 3}],
        {"resources": {"limits": {"cpu": 4, "memory": 8}}},
        {"cpu": 4000, "memory": 3},
    ),
    "a zero counts as said": ([], [{"cpu": 0}], {}, {"cpu": 0}),
}


@pytest.mark.parametrize("row", HELPER.values(), ids=HELPER)
def test_a_pod_requests_what_kubernetes_counts(row: Row) -> None:
    first, then, spec, expected = row

    def made(name: str, amounts: Any) -> Any:
        policy = {"restartPolicy": amounts["restartPolicy"]} if "restartPolicy" in amounts else {}
        return container(name, {r: a for r, a in amounts.items() if r != "restartPolicy"}, **policy)

    init = [made(f"i{index}", amounts) for index, amounts in enumerate(first)]
    containers = [made(f"c{index}", amounts) for index, amounts in enumerate(then)]
    assert requests(pod_template(*containers, initContainers=init, **spec)) == expected


class TestPlacementWishes:
    def test_are_read(self) -> None:
        expression = {"key": "gpu", "operator": "In", "values": ["h100", "h200"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}, {"matchFields": [expression]}]}
        template = pod_template(
            container("one", ports=[{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]),
            nodeSelector={"zone": "a"},
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "a", "value": "b"}],
            priorityClassName="high",
            metadata={
                "annotations": {
                    "queue-manager.io/required-topology": "topology/rack",
                    "queue-manager.io/podset-group": "gang",
                }
            },
        )
        resolved = resolve(template)
        found = resolved.pod_groups[0].pod_sets[0]
        requirement = Requirement("gpu", "In", ("h100", "h200"))
        assert found.node_selector == {"zone": "a"}
        assert found.node_affinity == (SelectorTerm(labels=(requirement,)), SelectorTerm(fields=(requirement,)))
        assert found.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"), Toleration("a", "Equal", "b"))
        assert found.host_ports == (8080,)
        assert found.topology is not None
        assert (found.topology.mode, found.topology.level) == (TopologyMode.REQUIRED, "topology/rack")
        assert found.podset_group == "gang"
        assert resolved.pod_priority_class == "high"

    def test_every_port_is_the_hosts_in_its_network(self) -> None:
        template = pod_template(
            container("one", ports=[{"containerPort": 80}, {"containerPort": 22}]), hostNetwork=True
        )
        assert pod_set(template).host_ports == (22, 80)

    def test_ports_of_init_containers_count_where_they_go_on_running(self) -> None:
        goes_on = {**container("proxy", ports=[{"containerPort": 1, "hostPort": 1}]), "restartPolicy": "Always"}
        ends = container("setup", ports=[{"containerPort": 2, "hostPort": 2}])
        template = pod_template(container("one", ports=[{"hostPort": 3}]), initContainers=[goes_on, ends])
        assert pod_set(template).host_ports == (1, 3)
