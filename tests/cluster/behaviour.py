"""How job controllers behave, as far as our product depends on it: same steps on a simulated and a real cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from queue_manager.cluster import pods as pod_facts
from queue_manager.cluster.port import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    ApiError,
    Cluster,
    Object,
    PatchType,
    Query,
    Resource,
)
from queue_manager.cluster.simulated.documents import read
from queue_manager.cluster.simulated.fleet import BLOCK_LABEL, RACK_LABEL
from queue_manager.cluster.simulated.objects import is_true
from tests.cluster.world import MANAGER, RESUME, SUSPEND, entry, job, job_set, placement, start, suspended

_names = itertools.count()
PATIENCE = 30.0


class Site:
    """One namespace of a cluster with nodes and runtimes."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def create(self, resource: Resource, body: Object) -> Object:
        return await self.cluster.create(resource, self.namespace, body)

    async def patch(self, resource: Resource, name: str, *operations: Object) -> Object:
        return await self.cluster.patch(resource, self.namespace, name, list(operations), PatchType.JSON)

    async def find(self, resource: Resource, name: str) -> Object | None:
        try:
            return await self.cluster.get(resource, self.namespace, name)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.cluster.get(resource, self.namespace, name)

    async def pods(self) -> list[Object]:
        return (await self.cluster.list(PODS, Query(namespace=self.namespace))).items

    async def until(self, happened: Callable[[], Awaitable[Any]]) -> Any:
        """Looks every twentieth of a second; what it waits for must come by itself."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await happened()):  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.05)
        return found

    async def running(self, count: int) -> list[Object]:
        """Waits until exactly `count` pods are there, all ready."""

        async def check() -> list[Object] | None:
            found = await self.pods()
            return found if len(found) == count and all(pod_facts.is_ready(pod) for pod in found) else None

        return await self.until(check)  # type: ignore[no-any-return]

    async def drained(self) -> None:
        async def check() -> bool:
            return not await self.pods()

        await self.until(check)

    async def gone(self, resource: Resource, name: str) -> None:
        async def check() -> bool:
            return await self.find(resource, name) is None

        await self.until(check)

    async def status(self, resource: Resource, name: str, *path: Any, value: Any) -> None:
        """Waits until a field of the status has the value."""

        async def check() -> bool:
            return bool(read(await self.get(resource, name), "status", *path) == value)

        await self.until(check)

    async def condition(self, resource: Resource, name: str, kind: str) -> Object:
        async def check() -> Object | None:
            found = await self.get(resource, name)
            return found if is_true(found, kind) else None

        return await self.until(check)  # type: ignore[no-any-return]

    async def exists(self, resource: Resource, name: str) -> Object:
        return await self.until(lambda: self.find(resource, name))  # type: ignore[no-any-return]


class Behaviour:
    """Subclasses provide the fixtures `cluster` and `rack` (the name of a rack with two free nodes) and `block`."""

    @pytest.fixture
    async def site(self, cluster: Cluster) -> AsyncIterator[Site]:
        namespace = f"behaviour-{next(_names)}"
        await cluster.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        made = Site(cluster, namespace)
        yield made
        # The namespace controller takes seconds for what the garbage collector does at once.
        for resource in (TRAIN_JOBS, JOB_SETS, JOBS):
            for found in (await cluster.list(resource, Query(namespace=namespace))).items:
                with suppress(ApiError):
                    await cluster.delete(resource, namespace, found["metadata"]["name"])
        await made.drained()
        await cluster.delete(NAMESPACES, "", namespace)

    async def test_job_suspends_with_grace_and_resumes(self, site: Site) -> None:
        await site.create(JOBS, job("a", parallelism=2, completions=2, completionMode="Indexed"))
        for pod in await site.running(2):
            assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
            assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] in "01"
            assert pod["metadata"]["ownerReferences"][0]["controller"] is True
        await site.status(JOBS, "a", "ready", value=2)
        assert read(await site.get(JOBS, "a"), "status", "active") == 2
        await site.patch(JOBS, "a", SUSPEND)
        await site.drained()
        stopped = await site.condition(JOBS, "a", "Suspended")
        assert not read(stopped, "status", "active")
        assert not read(stopped, "status", "failed")
        await site.patch(JOBS, "a", RESUME)
        await site.running(2)

    async def test_a_held_pod_counts_as_terminating_not_as_active(self, site: Site) -> None:
        await site.create(JOBS, job("a"))
        (pod,) = await site.running(1)
        name = pod["metadata"]["name"]
        await site.patch(PODS, name, {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold"})
        await site.patch(JOBS, "a", SUSPEND)
        await site.status(JOBS, "a", "terminating", value=1)
        held = await site.get(PODS, name)
        assert held["metadata"]["deletionTimestamp"]
        assert not read(await site.get(JOBS, "a"), "status", "active")
        found = [one for one in held["metadata"]["finalizers"] if one != "example.com/hold"]
        await site.patch(PODS, name, {"op": "replace", "path": "/metadata/finalizers", "value": found})
        await site.drained()

    async def test_suspended_job_set_makes_suspended_jobs_except_dependants(self, site: Site, rack: str) -> None:
        late = {**entry("late"), "dependsOn": [{"name": "first", "status": "Ready"}]}
        await site.create(JOB_SETS, job_set("a", entry("first", replicas=2), late, suspend=True))
        child = await site.exists(JOBS, "a-first-1")
        await site.exists(JOBS, "a-first-0")
        assert child["spec"]["suspend"] is True
        assert child["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "first"
        await site.condition(JOB_SETS, "a", "Suspended")
        assert await site.find(JOBS, "a-late-0") is None
        assert await site.pods() == []
        select = {"op": "add", "path": f"{_POD_OF_FIRST}/spec/nodeSelector", "value": {RACK_LABEL: rack}}
        await site.patch(JOB_SETS, "a", select, RESUME)
        pods = await site.running(3)
        assert {read(p, "spec", "nodeSelector", RACK_LABEL, default="") for p in pods} == {rack, ""}
        labels = pods[0]["metadata"]["labels"]
        assert labels["jobset.sigs.k8s.io/jobset-name"] == "a"
        assert labels["jobset.sigs.k8s.io/restart-attempt"] == "0"

    async def test_directives_of_a_second_start_are_merged(self, site: Site, rack: str, block: str) -> None:
        await site.create(JOB_SETS, job_set("a", entry("first"), suspend=True))
        path = f"{_POD_OF_FIRST}/spec/nodeSelector"
        await site.exists(JOBS, "a-first-0")
        await site.patch(JOB_SETS, "a", {"op": "add", "path": path, "value": {RACK_LABEL: rack}}, RESUME)
        await site.running(1)
        await site.patch(JOB_SETS, "a", SUSPEND)
        await site.drained()
        await site.patch(JOB_SETS, "a", {"op": "add", "path": path, "value": {BLOCK_LABEL: block}}, RESUME)
        (pod,) = await site.until(site.pods)
        assert pod["spec"]["nodeSelector"] == {RACK_LABEL: rack, BLOCK_LABEL: block}
        child = await site.get(JOBS, "a-first-0")
        assert child["spec"]["template"]["spec"]["nodeSelector"] == {RACK_LABEL: rack, BLOCK_LABEL: block}

    async def test_train_job_starts_in_one_write_and_stops(self, site: Site, rack: str, block: str) -> None:
        await site.create(TRAIN_JOBS, suspended("a", seconds=600))
        child = await site.exists(JOBS, "a-node-0")
        assert child["spec"]["suspend"] is True
        made = await site.get(JOB_SETS, "a")
        assert made["metadata"]["ownerReferences"][0]["name"] == "a"
        assert await site.find(CONFIG_MAPS, "a-runtime-snapshot")
        await site.condition(TRAIN_JOBS, "a", "Suspended")
        after = await site.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector={RACK_LABEL: rack})))
        assert after["spec"]["runtimePatches"][0]["manager"] == MANAGER
        assert after["spec"]["runtimePatches"][0]["time"]
        pods = await site.running(2)
        assert all(pod["spec"]["nodeSelector"] == {RACK_LABEL: rack} for pod in pods)
        assert all(pod_facts.effective_requests(pod["spec"])["nvidia.com/gpu"] == 8 for pod in pods)
        counts = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        await site.status(TRAIN_JOBS, "a", "jobsStatus", value=[counts])
        clear = {"op": "remove", "path": "/spec/runtimePatches/0/trainingRuntimeSpec"}
        with pytest.raises(ApiError) as active:
            await site.patch(TRAIN_JOBS, "a", SUSPEND, clear)
        assert active.value.refused
        await site.patch(TRAIN_JOBS, "a", SUSPEND)
        await site.drained()
        await site.status(TRAIN_JOBS, "a", "jobsStatus", value=[{**counts, "ready": 0, "active": 0, "suspended": 1}])
        await site.patch(TRAIN_JOBS, "a", clear)
        await site.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector={BLOCK_LABEL: block, RACK_LABEL: rack})))
        pods = await site.running(2)
        assert pods[0]["spec"]["nodeSelector"] == {BLOCK_LABEL: block, RACK_LABEL: rack}

    async def test_a_deleted_train_job_takes_everything_with_it(self, site: Site) -> None:
        body = suspended("a", seconds=600)
        body["spec"]["suspend"] = False
        await site.create(TRAIN_JOBS, body)
        await site.running(2)
        await site.cluster.delete(TRAIN_JOBS, site.namespace, "a")
        await site.drained()
        await site.gone(JOB_SETS, "a")
        await site.gone(JOBS, "a-node-0")
        await site.gone(CONFIG_MAPS, "a-runtime-snapshot")

    async def test_a_job_set_deleted_under_a_suspended_train_job_is_made_anew(self, site: Site) -> None:
        await site.create(TRAIN_JOBS, suspended("a"))
        await site.exists(JOBS, "a-node-0")
        old = (await site.get(JOB_SETS, "a"))["metadata"]["uid"]
        await site.cluster.delete(JOB_SETS, site.namespace, "a", uid=old, propagation="Foreground")

        async def renewed() -> bool:
            found = await site.find(JOB_SETS, "a")
            return found is not None and found["metadata"]["uid"] != old

        await site.until(renewed)
        await site.exists(JOBS, "a-node-0")


_POD_OF_FIRST = "/spec/replicatedJobs/0/template/spec/template"
