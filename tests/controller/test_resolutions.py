"""Jobs of one template are worked out once, and whatever differs is worked out for itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queue_manager.cluster.port import JOB_SETS, JOBS, Object
from queue_manager.controller.resolutions import MOST, Resolutions
from queue_manager.kinds.batch_job import JobKind
from queue_manager.kinds.jobset import JobSetKind
from queue_manager.kinds.kind import Kind, Lookup, Resolved, Unresolvable
from tests.kinds.world import World, container, job, pod_template

AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}


def made(name: str = "one", **spec: Any) -> Object:
    """A Job as the API server stores it: with labels of its own in its pods."""
    [_, obj] = job(pod_template(container("main", {"cpu": "2"})), name=name, parallelism=3, completions=3, **spec)
    uid = f"uid-of-{name}"
    template = copy.deepcopy(obj["spec"]["template"])
    template["metadata"] = {"labels": {"batch.kubernetes.io/controller-uid": uid, "job-name": name, "app": "train"}}
    spec = {**obj["spec"], "template": template, "selector": {"matchLabels": {"controller-uid": uid}}}
    metadata = {**obj["metadata"], "uid": uid, "labels": {"queue-manager.io/queue": "team"}}
    return {**obj, "metadata": metadata, "spec": spec, "status": {}}


class Counted(JobKind):
    """Counts how often something is worked out."""

    def __init__(self) -> None:
        self.calls = 0

    def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
        self.calls += 1
        return super().resolve(obj, lookup)


def calls(*objects: Object, lookup: World | None = None) -> int:
    """How many of these are worked out; each answer is what its kind says."""
    resolutions, kind, world = Resolutions(), Counted(), lookup or World()
    for obj in objects:
        assert resolutions.resolve(obj, kind, world) == JobKind().resolve(obj, world)
    return kind.calls


def with_pods(obj: Object, **fields: Any) -> Object:
    changed = copy.deepcopy(obj)
    changed["spec"]["template"]["spec"].update(fields)
    return changed


def with_metadata(obj: Object, **fields: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **fields}}


def test_jobs_of_one_template_are_worked_out_once() -> None:
    assert calls(made("one"), made("two"), made("three")) == 1


def test_messages_and_conditions_are_no_difference() -> None:
    told = with_metadata(made("two"), annotations={"queue-manager.io/state": "waiting"})
    told["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    assert calls(made("one"), told) == 1


@pytest.mark.parametrize(
    "other",
    [
        with_pods(made("two"), containers=[container("main", {"cpu": "4"})]),
        with_pods(made("two"), nodeSelector={"zone": "a"}),
        with_pods(made("two"), priorityClassName="high"),
        {**made("two"), "spec": {**made("two")["spec"], "parallelism": 2}},
        {**made("two"), "status": {"succeeded": 1}},
        with_metadata(made("two"), namespace="elsewhere"),
        with_metadata(made("two"), annotations={"queue-manager.io/required-topology": "rack"}),
        with_metadata(made("two"), annotations={"queue-manager.io/min-count": "2"}),
    ],
)
def test_whatever_else_differs_is_worked_out(other: Object) -> None:
    assert calls(made("one"), other) == 2


def test_rules_of_pods_may_count_by_the_name_of_the_job() -> None:
    assert calls(with_pods(made("one"), affinity=AFFINITY), with_pods(made("two"), affinity=AFFINITY)) == 2


def test_it_is_worked_out_again_when_something_else_has_changed() -> None:
    resolutions, kind, world = Resolutions(), Counted(), World()
    resolutions.resolve(made("one"), kind, world)
    resolutions.forget()
    resolutions.resolve(made("two"), kind, world)
    assert kind.calls == 2


def test_kueues_keys_count_from_when_they_are_read() -> None:
    resolutions, kind = Resolutions(), Counted()
    resolutions.resolve(made("one"), kind, World())
    resolutions.resolve(made("two"), kind, World(kueue_keys=True))
    assert kind.calls == 2


def test_what_can_not_be_read_is_told_each_time() -> None:
    resolutions, broken = Resolutions(), {**made("one"), "spec": {"suspend": True}}
    for _ in range(2):
        with pytest.raises(Unresolvable):
            resolutions.resolve(broken, JobKind(), World())


def test_other_kinds_are_left_to_themselves() -> None:
    class Fixed(JobSetKind):
        resource = JOB_SETS

        def resolve(self, obj: Object, lookup: Lookup) -> Resolved:
            return Resolved(pod_groups=(), topology=None, inputs={"name": obj["metadata"]["name"]})

    kind: Kind = Fixed()
    resolutions = Resolutions()
    found = [resolutions.resolve(made(name), kind, World()).inputs["name"] for name in ("one", "two")]
    assert found == ["one", "two"]


def test_no_more_templates_are_kept_than_that() -> None:
    resolutions, kind, world = Resolutions(), Counted(), World()
    assert kind.resource == JOBS
    for number in range(MOST + 1):
        resolutions.resolve(with_metadata(made(), annotations={"a": str(number)}), kind, world)
    resolutions.resolve(with_metadata(made(), annotations={"a": "0"}), kind, world)
    assert kind.calls == MOST + 2
