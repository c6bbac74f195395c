"""Which pod sets can run at the same time: intervals of stages from `dependsOn` (design, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import Unresolvable


@dataclass(frozen=True, slots=True)
class Dependency:
    """One `dependsOn` entry: the dependant starts once `on` is ready, or complete."""

    on: str
    complete: bool


def dependencies(job: View) -> tuple[Dependency, ...]:
    """The `dependsOn` list of a replicated job."""
    return tuple(
        Dependency(entry["name"].text(), entry["status"].text() == "Complete") for entry in job["dependsOn"].items()
    )


def intervals(graph: Mapping[str, Iterable[Dependency]], path: str) -> dict[str, tuple[int, int]]:
    """Pod set name -> first and last stage in which its pods can run.

    Only Complete edges part stages: a pod set that waits for Ready, or for its turn in `startupPolicy: InOrder`, runs
    beside the earlier ones. `path` names the replicated jobs in errors. Raises Unresolvable on unknown names and on
    cycles.
    """
    edges = {name: tuple(entries) for name, entries in graph.items()}
    first = _first_stages(edges, path)
    later = {name: _strictly_after(name, edges) for name in edges}
    return {
        name: (first[name], max(first[other] for other in edges if other == name or other not in later[name]))
        for name in edges
    }


def _first_stages(edges: Mapping[str, tuple[Dependency, ...]], path: str) -> dict[str, int]:
    """The longest path of Complete edges into each pod set; a Ready edge keeps the stage of what it waits for."""
    first: dict[str, int] = {}
    while len(first) < len(edges):
        free = [
            name
            for name, entries in edges.items()
            if name not in first and all(entry.on in first or entry.on not in edges for entry in entries)
        ]
        if not free:
            stuck = ", ".join(name for name in edges if name not in first)
            raise Unresolvable("DependencyCycle", path, f"{path}: {stuck} wait for each other (dependsOn)")
        for name in free:
            for entry in edges[name]:
                if entry.on not in edges:
                    raise Unresolvable(
                        "UnknownDependency", path, f"{path}: {name} depends on {entry.on}, which is not there"
                    )
            first[name] = max((first[entry.on] + entry.complete for entry in edges[name]), default=0)
    return first


def _strictly_after(name: str, edges: Mapping[str, tuple[Dependency, ...]]) -> set[str]:
    """All that can't start before `name` has completed: its Complete dependants and whatever waits for those."""
    found = {other for other, entries in edges.items() if any(entry.on == name and entry.complete for entry in entries)}
    waiting = list(found)
    while waiting:
        current = waiting.pop()
        for other, entries in edges.items():
            if other not in found and any(entry.on == current for entry in entries):
                found.add(other)
                waiting.append(other)
    return found
