"""What Kubernetes would not store, and what cannot be read or printed: told with the object and the field."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_manager.cli.options import ScenarioView
from queue_manager.cli.simulate import run_simulate
from queue_manager.simulate.problem import ScenarioError
from queue_manager.simulate.scenario import read_file, read_scenario
from queue_manager.simulate.semantics import Semantics
from tests.simulate.build import (
    KUEUE,
    Object,
    admitted,
    flavor,
    local_queue,
    play,
    pod_set,
    queue,
    ran,
    workload,
    write,
)

QUEUE = [flavor(), queue("q"), local_queue("q")]


def error_of(*objects: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        read_scenario({"objects": [*QUEUE, *objects]}, Semantics.OWN)
    return str(caught.value)


def other(kind: str, **more: Any) -> Object:
    return {"kind": kind, "metadata": {"name": "p"}, **more}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (other("DeviceClass", spec="x"), "DeviceClass p: spec must be an object"),
        (other("Pod", spec={"nodeName": "n", "containers": "x"}), "Pod default/p: spec.containers must be a list"),
        (other("Pod", spec={"containers": ["x"]}), "Pod default/p: spec.containers[0] must be an object"),
        (other("PriorityClass", value="x"), "PriorityClass p: value must be a whole number"),
        ({"kind": 3, "apiVersion": "v1"}, "objects[3]: kind: must be a string"),
        ({"kind": "Node", "metadata": {"name": ""}}, "objects[3]: Node: metadata.name: must not be empty"),
        (workload("a", podSets=[None]), "spec.podSets[0] must be an object"),
        (workload("a", podSets=[pod_set(), pod_set()]), "spec.podSets[1].name must be another name"),
        (workload("a", podSets=[pod_set(minCount=2)]), "spec.podSets[0].minCount must be at most count (1)"),
        (workload("a", priority=2**31), "spec.priority must be a whole number from -2147483648 to 2147483647"),
        (workload("a", status=admitted(name="b")), "podSetAssignments[0].name must be the name of a pod set"),
    ],
)
def test_what_cannot_be_is_told_with_object_and_field(given: Object, message: str):
    assert message in error_of(given)


def test_a_workload_has_at_least_one_pod_set():
    empty = workload("a")
    empty["spec"]["podSets"] = []
    assert error_of(empty) == "Workload default/a: spec.podSets must be a list of at least one pod set"


@pytest.mark.parametrize("levels", [32, 33, 3000])
def test_a_tree_has_at_most_32_levels_of_cohorts(levels: int):
    cohorts = [
        {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": f"c{i}"}, "spec": {"parentName": f"c{i + 1}"}}
        for i in range(levels - 1)
    ]
    if levels > 32:
        assert error_of(*cohorts) == "Cohort c0: lies too deep in the tree: at most 32 levels of cohorts"
    else:
        assert ran(play(*QUEUE, *cohorts, workload("a"))) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r'{"objects": [{"metadata": {"name": "a\ud800"}}]}', "objects[0].metadata.name: has half of a surrogate pair"),
        (f'{{"objects": [{"1" * 5000}]}}', "objects[0]: has more than 1000 digits"),
    ],
)
def test_values_that_cannot_be_printed_or_converted_are_found(tmp_path: Path, text: str, message: str):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read_file(path, Semantics.OWN)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("form", ["json", "table"])
def test_names_that_the_output_cannot_hold_are_escaped(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    view = ScenarioView(form)
    assert run_simulate([str(write(tmp_path / "x.json", *QUEUE, workload("tr\xe4n")))], "own", view)
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert ran(json.loads(text)) == ["tr\xe4n"] if view is not ScenarioView.TABLE else r"tr\xe4n" in text


def test_lists_as_kubectl_prints_them_are_unpacked():
    listed = {"apiVersion": "v1", "kind": "List", "items": [*QUEUE, workload("a")]}
    for content in (listed, {"objects": [listed]}):
        assert [job.key for job in read_scenario(json.loads(json.dumps(content)), Semantics.OWN).jobs] == ["default/a"]
