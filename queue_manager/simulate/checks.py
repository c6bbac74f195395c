"""What Kubernetes would not store, told before anything is made of it: shapes of pods, pod sets, ranks, the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queue_manager.cluster.port import Object
from queue_manager.engine.workload import Workload
from queue_manager.kinds.fields import View
from queue_manager.simulate.problem import ScenarioError

MOST_LEVELS = 32
"""Of cohorts above each other, as in the configuration."""
LEAST_INT32, MOST_INT32 = -(2**31), 2**31 - 1
MAIN = "main"
"""The name of a pod set that has none, as Kueue's API has it."""


def int32(view: View, default: int = 0) -> int:
    """A whole number as Kubernetes stores it. Raises Unresolvable."""
    number = view.integer(default)
    if not LEAST_INT32 <= number <= MOST_INT32:
        raise view.malformed(f"a whole number from {LEAST_INT32} to {MOST_INT32}")
    return number


def check_pod_sets(view: View) -> None:
    """Names and counts of a Workload's pod sets. Raises Unresolvable."""
    pod_sets = view.at("spec", "podSets")
    items = list(pod_sets.items())
    if not items:
        raise pod_sets.malformed("a list of at least one pod set")
    seen: set[str] = set()
    for item in items:
        if not item.given:
            raise item.malformed("an object")
        name = item["name"].text(MAIN)
        if name in seen:
            raise item["name"].malformed(f"another name: {name!r} is given twice")
        seen.add(name)
        count = item["count"].count(1)
        int32(item["count"])
        if item["minCount"].count(0) > count:
            raise item["minCount"].malformed(f"at most count ({count})")


def check_recorded(view: View, workload: Workload) -> None:
    """Names in `status.admission`. Its counts may be above those of now: a job may have shrunk since.

    Raises Unresolvable.
    """
    names = {pod_set.name for pod_set in workload.pod_sets}
    for entry in view.at("status", "admission", "podSetAssignments").items():
        name = entry["name"].text(MAIN)
        if name not in names:
            raise entry["name"].malformed(f"the name of a pod set in spec.podSets, not {name!r}")


def check_pod(view: View) -> None:
    """The parts of a pod that say what it takes. Raises Unresolvable."""
    spec = view["spec"]
    for containers in (spec["initContainers"], spec["containers"]):
        for container in containers.items():
            if not container.given:
                raise container.malformed("an object")
            _check_resources(container["resources"])
            for port in container["ports"].items():
                port["hostPort"].count(0)
    _check_resources(spec["resources"])
    spec["overhead"].amounts()
    spec["nodeName"].text()


def _check_resources(resources: View) -> None:
    for key in ("requests", "limits"):
        resources[key].amounts()


def check_levels(configuration: Iterable[Object]) -> None:
    """Refuses a tree that is too high, before anything follows it down. Raises ScenarioError."""
    parents = {o["metadata"]["name"]: _parent(o) for o in configuration if o["kind"] == "Cohort"}
    levels: dict[str, int] = {"": 0}
    for name in parents:
        if _levels(name, parents, levels) > MOST_LEVELS:
            raise ScenarioError(f"Cohort {name}: lies too deep in the tree: at most {MOST_LEVELS} levels of cohorts")


def _levels(name: str, parents: Mapping[str, str], levels: dict[str, int]) -> int:
    """Levels from a cohort up; 0 in a cycle, which is told of elsewhere. What is found is kept in `levels`."""
    way: list[str] = []
    seen: set[str] = set()
    while name not in levels:
        if name in seen:
            levels.update(dict.fromkeys(way, 0))
            return 0
        way.append(name)
        seen.add(name)
        name = parents.get(name, "")
    levels.update({each: height for height, each in enumerate(reversed(way), levels[name] + 1)})
    return levels[way[0]] if way else levels[name]


def _parent(cohort: Object) -> str:
    spec = cohort.get("spec")
    found = (spec.get("parentName") or spec.get("parent")) if isinstance(spec, dict) else ""
    return found if isinstance(found, str) else ""
