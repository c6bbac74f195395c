"""What is asked to find out whose plain pods are: nothing twice that can't have changed."""

from __future__ import annotations

from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, Object
from queue_manager.controller.plain_groups import PlainGroups
from queue_manager.controller.rows import Rows
from queue_manager.kinds.plain_pods import PLAIN_GROUPS
from tests.controller.test_plain_pods import QUEUE, plain


class Cluster:
    """Pods and one Job, and how often they were asked for."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.job: Object = {"metadata": {"name": "job", "namespace": "ns", "uid": "job", "labels": {QUEUE: "team"}}}
        self.asked = self.read = 0
        lookup: Any = self
        self.groups = PlainGroups(lookup, self.pod, Rows(), self.is_managed)

    def get(self, resource: object, namespace: str, name: str) -> Object | None:
        """As in `Lookup`."""
        return self.job if (resource, name) == (JOBS, "job") else None

    def pod(self, uid: str) -> Object | None:
        """One pod by uid."""
        self.read += 1
        return self.pods.get(uid)

    def is_managed(self, obj: Object) -> bool:
        """Whether it names a queue."""
        self.asked += 1
        return QUEUE in obj["metadata"]["labels"]

    def put(self, number: int, name: str = "", *, owned: bool = False, **metadata: Any) -> set[str]:
        """A pod came, or is another one now."""
        pod = plain(name or f"p{number:03}", "g", 100)
        pod["metadata"] |= {"uid": f"u{number:03}", "namespace": "ns", "creationTimestamp": f"2026-01-01T{number:06}Z"}
        if owned:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
            pod["metadata"]["ownerReferences"] = [owner]
        pod["metadata"] |= metadata
        self.pods[pod["metadata"]["uid"]] = pod
        return self.groups.note(pod, deleted=False)

    def delete(self, number: int) -> set[str]:
        """A pod is gone."""
        return self.groups.note(self.pods.pop(f"u{number:03}"), deleted=True)

    def name(self) -> str:
        """The uid of the group."""
        (uid,) = self.groups.collections()[PLAIN_GROUPS].uids()
        return uid


def test_a_group_is_named_without_a_look_at_all_its_pods_for_each_of_them() -> None:
    cluster = Cluster()
    (name,) = cluster.put(0)
    for number in range(1, 100):
        assert cluster.put(number) == {name}
        assert cluster.groups.root(cluster.pods[f"u{number:03}"]) == name
    assert cluster.read < 500


@pytest.mark.parametrize(
    "leaves",
    [
        lambda cluster: cluster.delete(1),
        lambda cluster: cluster.put(1, deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["deleted", "leaving"],
)
def test_a_group_is_named_after_its_oldest_pod_as_it_is_now(leaves: Any) -> None:
    cluster = Cluster()
    names = {number: "".join(cluster.put(number)) for number in (3, 2, 1)}
    assert len(set(names.values())) == 3, "each of them was the oldest"
    assert cluster.name() == names[1]
    assert leaves(cluster) == {names[2]}
    assert cluster.name() == names[2]
    cluster.put(0)
    assert cluster.name() not in names.values()
    cluster.delete(0)
    assert cluster.name() == names[2]


def test_an_owner_is_asked_once_for_all_its_pods_and_only_what_changes_is_told() -> None:
    cluster = Cluster()
    for number in range(50):
        assert cluster.put(number, owned=True) == set()
    cluster.asked = 0
    assert cluster.groups.reconsider(["job"]) == []
    assert cluster.asked == 1
    cluster.job["metadata"]["labels"] = {}
    assert len(cluster.groups.reconsider(["job"])) == 50
    for pod in cluster.pods.values():
        cluster.groups.note(pod, deleted=False)
    cluster.asked = 0
    assert cluster.groups.reconsider(["job"]) == []
    assert cluster.asked == 1


def test_a_pod_that_came_while_its_owner_was_another_one_is_told_of_too() -> None:
    cluster = Cluster()
    cluster.put(0, owned=True)
    labels, cluster.job["metadata"]["labels"] = cluster.job["metadata"]["labels"], {}
    cluster.put(1, owned=True)
    cluster.job["metadata"]["labels"] = labels
    assert cluster.groups.reconsider(["job"]) == [cluster.pods["u001"]]
