"""The command `simulate`: files and folders, forms of output, errors, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from queue_manager.cli.main import app
from tests.simulate.build import flavor, local_queue, queue, workload, write

SMALL = (flavor(), queue("q"), local_queue("q"), workload("a", cpu=3), workload("b", cpu=3, created=1))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def lines(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_one_file_prints_one_object(tmp_path: Path):
    result = run(str(write(tmp_path / "s.json", *SMALL)))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["admitted"] == {
        "default/a": {
            "clusterQueue": "q",
            "podSets": {"main": {"count": 1, "flavors": {"cpu": "default"}, "topology": None}},
        }
    }
    assert found["pending"]["default/b"]["reason"] == "WaitingForQuota"
    assert "2 cpu short in queue q" in found["pending"]["default/b"]["message"]
    assert found["evictions"] == []


def test_several_files_print_a_line_each_with_the_file_first(tmp_path: Path):
    paths = [str(write(tmp_path / name, *SMALL)) for name in ("one.json", "two.json")]
    result = run(*paths)
    assert result.exit_code == 0
    assert [line["file"] for line in lines(result)] == paths
    assert all(line.startswith('{"file": ') for line in result.stdout.splitlines())


def test_a_folder_is_searched_for_json_at_any_depth(tmp_path: Path):
    deep = write(tmp_path / "x" / "y" / "deep.json", *SMALL)
    top = write(tmp_path / "top.json", *SMALL)
    (tmp_path / "notes.txt").write_text("not a scenario")
    result = run(str(tmp_path))
    assert [line["file"] for line in lines(result)] == [str(top), str(deep)]


def test_a_folder_with_one_file_prints_a_line_with_the_file(tmp_path: Path):
    write(tmp_path / "only.json", *SMALL)
    [line] = lines(run(str(tmp_path)))
    assert line["file"] == str(tmp_path / "only.json")


def test_a_folder_without_scenarios_is_told_of(tmp_path: Path):
    result = run(str(tmp_path))
    assert result.exit_code == 1
    assert lines(result) == [{"file": str(tmp_path), "error": "no .json file in this folder"}]


BAD = {
    "text.json": ("no json", "is not JSON: Expecting value in line 1, column 1"),
    "list.json": (
        "[]",
        "must be a JSON object whose field objects is a list of objects of Kueue and Kubernetes",
    ),
    "latin.json": (b'{"name": "\xe4"}', "is not UTF-8 text: the first wrong byte is at 10"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_is_told_of_and_the_rest_goes_on(tmp_path: Path, name: str):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    good = write(tmp_path / "z.json", *SMALL)
    result = run(str(tmp_path))
    assert result.exit_code == 1
    bad, line = lines(result)
    assert bad == {"file": str(tmp_path / name), "error": message}
    assert line["file"] == str(good)
    assert line["admitted"]


def test_a_file_that_does_not_exist(tmp_path: Path):
    path = str(tmp_path / "none.json")
    result = run(path)
    assert result.exit_code == 1
    assert lines(result) == [{"file": path, "error": "can't be read: No such file or directory"}]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (["x"], "objects[0]: must be an object with apiVersion, kind and metadata"),
        ([{"apiVersion": "v1", "metadata": {"name": "x"}}], "objects[0]: kind: is missing"),
        ([{"apiVersion": "v1", "kind": "Nod", "metadata": {"name": "x"}}], "unknown kind 'Nod' (did you mean 'Node'?)"),
        ([{"apiVersion": "v1", "kind": "Node"}], "objects[0]: Node: metadata.name: is missing"),
        ([queue("q", cohrt="x")], "Queue q: spec.cohrt: unknown field 'cohrt' (did you mean 'cohort'?)"),
        ([queue("q", {"default": {"cpu": "1x"}})], "Queue q: spec.resourceGroups[0].flavors[0].resources[0]"),
        ([workload("a"), workload("a")], "Workload default/a: metadata.name: is given twice (remove one)"),
        ([workload("a", queueName=7)], "Workload default/a: spec.queueName must be a string"),
        (
            [workload("a", metadata={"creationTimestamp": "noon"})],
            "Workload default/a: metadata.creationTimestamp must be a time such as 2026-01-31T12:00:00Z",
        ),
        ([workload("a", namespace=["x"])], "objects[0]: Workload: metadata.namespace: must be a string"),
        (
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": "Ready"}}],
            "Node n: status.conditions must be a list",
        ),
        (
            [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": "x"}],
            "Pod default/p: spec must be an object",
        ),
        ([workload("a", podSets=[{"count": -1}])], "Workload default/a: spec.podSets[0].count must be zero or more"),
    ],
)
def test_an_error_names_object_and_field(tmp_path: Path, objects: list, message: str):
    path = write(tmp_path / "s.json", *objects)
    result = run(str(path))
    assert result.exit_code == 1
    [line] = lines(result)
    assert message in line["error"]


@pytest.mark.parametrize("arguments", [(), ("x.json", "--semantics", "slurm"), ("x.json", "-o", "xml")])
def test_bad_use_ends_with_2(arguments: tuple[str, ...]):
    assert run(*arguments).exit_code == 2


def test_semantics_of_kueue_turn_own_policies_off(tmp_path: Path):
    """Direct use of a queue's name is ours; Kueue knows local queues only."""
    path = str(write(tmp_path / "s.json", flavor(), queue("q"), workload("a", created=5)))
    assert list(json.loads(run(path).stdout)["admitted"]) == ["default/a"]
    found = json.loads(run(path, "--semantics", "kueue").stdout)
    assert found["pending"]["default/a"]["reason"] == "Misconfigured"


def test_tables_of_several_files_stand_one_after_another(tmp_path: Path):
    write(tmp_path / "one.json", *SMALL, name="first")
    write(tmp_path / "two.json", *SMALL, name="second")
    (tmp_path / "x.json").write_text("[]")
    result = run(str(tmp_path), "-o", "table")
    assert result.exit_code == 1
    told = result.stdout.splitlines()
    assert [line for line in told if line in ("first", "second")] == ["first", "second"]
    assert told.count("Pass 1") == 2
    assert told[-1].startswith(f"{tmp_path}/x.json can't be played: must be a JSON object whose field objects")
