"""Admission callbacks: where our webhook plugs into the simulated API server."""

from __future__ import annotations

from random import Random

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.port import CONFIG_MAPS, JOBS, ApiError, Object, PatchType
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.simulated.admission import AdmissionRequest, denied
from tests.cluster.world import job


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(SystemClock(), Random(1))


async def test_a_mutator_suspends_jobs_and_knows_the_user(cluster: SimulatedCluster) -> None:
    seen: list[AdmissionRequest] = []

    def suspend(request: AdmissionRequest) -> list[Object]:
        if request.resource != JOBS or request.operation != "CREATE":
            return []
        seen.append(request)
        return [
            {"op": "replace", "path": "/spec/suspend", "value": True},
            {"op": "add", "path": "/metadata/annotations", "value": {"user": request.user}},
        ]

    cluster.state.mutators.append(suspend)
    made = await cluster.as_user("ada", ("nlp",)).create(JOBS, "default", job("a"))
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["annotations"] == {"user": "ada"}
    assert (seen[0].user, seen[0].groups, seen[0].namespace, seen[0].name) == ("ada", ("nlp",), "default", "a")
    after = await cluster.patch(JOBS, "default", "a", {"spec": {"suspend": False}}, PatchType.MERGE)
    assert after["spec"]["suspend"] is False


async def test_a_validator_refuses_with_its_message(cluster: SimulatedCluster) -> None:
    def fixed(request: AdmissionRequest) -> None:
        old, new = request.old_object, request.object
        if old is not None and new is not None and old.get("data") != new.get("data"):
            raise denied("queue-manager.io", "data: may not change")

    cluster.state.validators.append(fixed)
    await cluster.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    with pytest.raises(ApiError) as refused:
        await cluster.patch(CONFIG_MAPS, "default", "a", {"data": {"x": "2"}}, PatchType.MERGE)
    assert refused.value.refused
    assert refused.value.status == 403
    assert 'webhook "queue-manager.io" denied the request: data: may not change' in refused.value.message
    assert (await cluster.get(CONFIG_MAPS, "default", "a"))["data"] == {"x": "1"}


async def test_stored_objects_are_not_touched_by_later_writes(cluster: SimulatedCluster) -> None:
    first = await cluster.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    operations: list[Object] = [{"op": "replace", "path": "/data/x", "value": "2"}]
    await cluster.patch(CONFIG_MAPS, "default", "a", operations, PatchType.JSON)
    await cluster.patch(CONFIG_MAPS, "default", "a", {"data": {"y": "3"}}, PatchType.APPLY, force=True)
    assert first["data"] == {"x": "1"}
