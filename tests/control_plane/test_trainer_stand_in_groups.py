"""The stand-in's pod groups by the KEP's text; needs no control plane."""

from __future__ import annotations

from tests.control_plane.client import Object
from tests.control_plane.trainer_stand_in_groups import (
    group_of_pod,
    has_gang,
    pod_group_name,
    templates,
    widen,
    workload_name,
)


def jobs(*counts: tuple[str, int, int], after: str = "") -> Object:
    """(name, replicas, parallelism) of replicated jobs; the last waits for `after`."""
    found: list[Object] = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods}}}
        for name, replicas, pods in counts
    ]
    if after:
        found[-1]["dependsOn"] = [{"name": after, "status": "Complete"}]
    return {"replicatedJobs": found}


def counted(scheduling: Object, spec: Object) -> dict[str, object]:
    """Template name -> minCount, None in a basic one."""
    found = templates(scheduling, spec, "job")
    return {template["name"]: template["schedulingPolicy"].get("gang", {}).get("minCount") for template, _ in found}


def test_minimum_of_each_level() -> None:
    mpi = jobs(("launcher", 1, 1), ("node", 1, 50))
    assert counted({}, mpi) == {"job": 51}
    assert counted({"schedulingPolicy": {"basic": {}}}, mpi) == {"job": None}
    assert counted({"replicatedJobs": [{"targetReplicatedJobs": ["launcher", "node"]}]}, mpi) == {"launcher-node": 51}
    each = {"targetReplicatedJobs": ["node"], "job": {}}
    assert counted({"replicatedJobs": [each]}, jobs(("node", 3, 4))) == {"node-0": 4, "node-1": 4, "node-2": 4}
    assert counted({}, jobs(("load", 1, 1), ("node", 1, 8), after="load")) == {"load": 1, "node": 8}


def test_names_fit_and_differ() -> None:
    long = {"metadata": {"name": "n" * 63, "namespace": "ns", "uid": "u"}}
    names = {workload_name(long), *(pod_group_name(long, t) for t in ("n" * 63, "t" * 60 + "-0", "t" * 60 + "-1"))}
    assert len(names) == 4
    assert max(map(len, names)) <= 63
    again = {"metadata": {**long["metadata"], "uid": "another"}}
    assert workload_name(again) != workload_name(long)
    short = {"metadata": {"name": "train", "namespace": "ns", "uid": "u"}}
    assert pod_group_name(short, "train").rpartition("-")[0] == workload_name(short), "its template is left out"


def test_what_is_a_gang() -> None:
    assert not has_gang(None)
    assert has_gang({})
    assert not has_gang({"schedulingPolicy": {"basic": {}}})
    basic = {"targetReplicatedJobs": ["a"], "schedulingPolicy": {"basic": {}}}
    assert not has_gang({"replicatedJobs": [basic]})
    assert has_gang({"replicatedJobs": [basic, {"targetReplicatedJobs": ["b"], "job": {}}]})


def test_pods_get_the_group_of_their_replicated_job() -> None:
    group = {"podGroupName": "g"}
    spec = jobs(("a", 1, 1), ("b", 1, 1))
    spec["replicatedJobs"][1]["template"]["spec"]["template"] = {"spec": {"schedulingGroup": group}}
    spec["replicatedJobs"][0]["template"]["spec"]["template"] = {"spec": {}}

    class Found:
        def find(self, kind: str, name: str, namespace: str) -> Object:
            assert (name, namespace) == ("set", "ns")
            return {"spec": spec}

    def pod(name: str) -> Object:
        labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": name}
        return {"metadata": {"labels": labels}}

    patch = [{"op": "add", "path": "/spec/schedulingGroup", "value": group}]
    assert group_of_pod(Found(), pod("b"), "ns") == patch  # type: ignore[arg-type]
    assert group_of_pod(Found(), pod("a"), "ns") == []  # type: ignore[arg-type]


def test_pod_templates_of_a_crd_are_widened() -> None:
    pod = {"properties": {"schedulingGates": {}, "nodeSelector": {}, "containers": {}}}
    assert "schedulingGroup" in widen({"items": [pod]})["items"][0]["properties"]
    assert widen({"properties": {"containers": {}}}) == {"properties": {"containers": {}}}
