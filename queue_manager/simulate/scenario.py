"""A scenario file as the engine's configuration, nodes, workloads and admissions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queue_manager.config.compiled import Compiled, to_engine
from queue_manager.config.parse import parse_objects
from queue_manager.engine.configuration import Configuration, FairSharing, FairStrategy, Node
from queue_manager.engine.decision import Admission
from queue_manager.engine.workload import MICROSECONDS, Workload
from queue_manager.kinds.fields import View
from queue_manager.kinds.kind import Unresolvable
from queue_manager.simulate.admissions import AdmissionReader
from queue_manager.simulate.checks import check_levels, check_recorded
from queue_manager.simulate.cluster import read_nodes
from queue_manager.simulate.fields import moment
from queue_manager.simulate.objects import Objects, label, objects_in, sort_objects
from queue_manager.simulate.problem import ScenarioError
from queue_manager.simulate.semantics import Semantics
from queue_manager.simulate.states import Stage, Standing, Variants, standing_of
from queue_manager.simulate.text import read_json
from queue_manager.simulate.workloads import WorkloadReader

REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
FIRST_PASS_AFTER = 61 * MICROSECONDS
"""From the latest time in a scenario to its first pass."""


@dataclass(frozen=True, slots=True)
class Job:
    """One workload of a scenario at the start. Only what runs has an admission: what is going is gone at once.

    `replaces` is the key of the workload slice that this one is to replace, "" for none.
    """

    key: str
    workload: Workload
    standing: Standing
    admission: Admission | None = None
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario says. `now` is the time of the first pass, in microseconds; `jobs` are sorted by key."""

    name: str
    description: str
    semantics: Semantics
    configuration: Configuration
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    now: int


def read_file(path: Path, semantics: Semantics) -> Scenario:
    """The scenario in a JSON file. Raises ScenarioError."""
    return read_scenario(read_json(path), semantics)


def read_scenario(content: Any, semantics: Semantics) -> Scenario:
    """A decoded scenario. Raises ScenarioError."""
    objects = sort_objects(objects_in(content))
    check_levels(objects.configuration)
    compiled = _configuration(objects)
    try:
        nodes = read_nodes(objects)
        jobs = _jobs(objects, compiled, nodes, semantics)
        now = _latest(objects) + FIRST_PASS_AFTER
    except Unresolvable as error:
        raise ScenarioError(error.message) from None
    fair = _fair_sharing(content) or compiled.configuration.fair_sharing
    configuration = replace(compiled.configuration, policies=semantics.policies, fair_sharing=fair)
    text = {key: str(content.get(key) or "") for key in ("name", "description")}
    return Scenario(text["name"], text["description"], semantics, configuration, tuple(nodes), tuple(jobs), now)


def _fair_sharing(content: dict[str, Any]) -> FairSharing | None:
    """Fair sharing as the file itself asks for it; a Configuration among the objects may ask for it, too."""
    named = content.get("fairSharingStrategies")
    if not content.get("fairSharing"):
        return None
    if named is None:
        return FairSharing()
    allowed = ", ".join(FairStrategy)
    if not isinstance(named, list) or not named or not set(named) <= set(FairStrategy):
        raise ScenarioError(f"fairSharingStrategies: must be a list of {allowed}")
    return FairSharing(tuple(map(FairStrategy, named)))


def _configuration(objects: Objects) -> Compiled:
    result = parse_objects(objects.configuration, any_name=True)
    if result.errors:
        raise ScenarioError("; ".join(str(problem) for problem in result.errors))
    return to_engine(result.objects)


def _jobs(objects: Objects, compiled: Compiled, nodes: list[Node], semantics: Semantics) -> list[Job]:
    found = sorted(objects.of("Workload"), key=label)
    reader = WorkloadReader(objects, compiled, semantics)
    admissions = AdmissionReader(compiled.configuration, nodes)
    variants = Variants(found)
    uids = Counter(o["metadata"].get("uid") for o in found)
    jobs = []
    for o in found:
        uid = o["metadata"].get("uid")
        asked = reader.read(o, str(uid) if uid and uids[uid] == 1 else label(o))
        view = View(o, f"Workload {asked.key}: ")
        standing = standing_of(view, asked.problem, variants)
        runs = standing.stage is Stage.RUNNING
        replaces = view.at("metadata", "annotations")[REPLACES].text()
        if runs:
            check_recorded(view, asked.workload)
        admission = admissions.read(view, asked.workload) if runs else None
        jobs.append(Job(asked.key, asked.workload, standing, admission, replaces))
    return jobs


def _latest(objects: Objects) -> int:
    """The latest time that an object carries: creations, and changes of the conditions of workloads."""
    latest = 0
    for o in objects.of("Workload"):
        view = View(o, f"Workload {label(o)}: ")
        latest = max(latest, moment(view["metadata"]["creationTimestamp"]))
        for entry in view.at("status", "conditions").items():
            latest = max(latest, moment(entry["lastTransitionTime"]))
    return latest
