"""How often objects are read, and that what has changed is read again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, LIMIT_RANGES, TRAIN_JOBS, Object, PatchType
from queue_manager.controller.readings import Readings
from queue_manager.kinds.batch_job import JobKind
from queue_manager.store.records import State, WorkloadRow
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job
from tests.store.builders import workload


def obj(version: str) -> Object:
    return {"metadata": {"uid": "u", "name": "j", "resourceVersion": version}}


def noted(version: str = "7") -> tuple[Readings, WorkloadRow]:
    readings, row = Readings(), workload("u")
    readings.note(row, obj(version), JOBS)
    return readings, row


def test_a_row_says_what_its_object_asks_for_until_either_changes() -> None:
    readings, row = noted()
    assert readings.is_current(row, obj("7"))
    assert not readings.is_current(row, obj("8"))
    assert readings.is_current(replace(row, version=row.version + 1, reason="WaitingForQuota"), obj("7"))
    assert not readings.is_current(replace(row, state=State.HELD), obj("7"))
    assert not readings.is_current(replace(row, queue="other"), obj("7"))
    other = replace(row, pod_groups=(*row.pod_groups[:-1], replace(row.pod_groups[-1])))
    assert not readings.has_its_pods(other, obj("7"))


def test_a_row_is_read_again_after_something_else_changed_that_it_depends_on() -> None:
    readings, row = noted()
    readings.others_changed()
    assert not readings.is_current(row, obj("7"))
    assert not readings.has_its_pods(row, obj("7"))


def test_messages_of_ours_and_conditions_of_its_controller_are_no_reason_to_read_it_again() -> None:
    readings, row = noted()
    readings.follow(obj("6"), obj("8"))
    assert not readings.is_current(row, obj("8"))
    suspended: Object = {**obj("9"), "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
    readings.follow(obj("7"), suspended)
    assert readings.is_current(row, suspended)
    told = {**suspended["metadata"], "resourceVersion": "10", "annotations": {"queue-manager.io/state": "waiting"}}
    readings.follow(suspended, {**suspended, "metadata": told})
    assert readings.is_current(row, obj("10"))


@pytest.mark.parametrize("change", [{"spec": {"parallelism": 3}}, {"status": {"succeeded": 1}}])
def test_what_it_asks_for_is_a_reason(change: Object) -> None:
    readings, row = noted()
    readings.follow(obj("7"), {**obj("8"), **change})
    assert not readings.is_current(row, obj("8"))


def test_what_has_more_to_it_than_its_object_is_read_each_time() -> None:
    readings, row = Readings(), workload("u")
    readings.note(row, obj("7"), TRAIN_JOBS)
    assert not readings.is_current(row, obj("7"))


def test_nothing_is_kept_of_what_is_over() -> None:
    readings, row = noted()
    readings.forget("u")
    assert not readings.has_its_pods(row, obj("7"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each Job is resolved."""
    found: Counter[str] = Counter()
    resolve = JobKind.resolve

    def counted(self: JobKind, job: Object, lookup: Any) -> Any:
        found[job["metadata"]["name"]] += 1
        return resolve(self, job, lookup)

    monkeypatch.setattr(JobKind, "resolve", counted)
    return found


async def test_a_job_is_read_once_from_its_arrival_to_its_end(store: Store, reads: Counter[str]) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4), JOBS)
        await world.submit(batch_job("second", 3), JOBS)
        await world.until_state("second", State.FINISHED, within=600)
        assert reads == {"first": 1, "second": 1}


async def test_a_waiting_job_is_read_again_when_it_or_its_namespace_changes(store: Store, reads: Counter[str]) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=600), JOBS)
        await world.until_state("first", State.RUNNING)
        await world.submit(batch_job("second", 4), JOBS)
        await world.until(lambda: world.state("second") is State.WAITING, "it waits")
        await world.user.patch(JOBS, "ns", "second", {"spec": {"parallelism": 2}}, PatchType.MERGE)
        await world.until(lambda: world.known_row("second").pod_groups[0].pod_sets[0].count == 2, "it is read")
        before = reads["second"]
        limits: Object = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container"}]}}
        await world.user.create(LIMIT_RANGES, "ns", limits)
        await world.until(lambda: reads["second"] > before, "read again")
