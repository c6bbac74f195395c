"""The transport on a real API server keeps the port's contract, and so does the simulated server's idea of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from random import Random
from typing import Any

import pytest

from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import (
    CONFIG_MAPS,
    JOB_SETS,
    NAMESPACES,
    NODES,
    PODS,
    ApiError,
    Cluster,
    EventType,
    PatchType,
    Query,
)
from queue_manager.cluster.reflector import Reflector
from queue_manager.cluster.transport import ApiServer
from tests.cluster.conformance import Conformance, config_map
from tests.control_plane.cluster import ControlPlane

pytestmark = pytest.mark.cluster


class TestReal(Conformance):
    @pytest.fixture
    async def cluster(self, control_plane: ControlPlane) -> AsyncIterator[Cluster]:
        server = ApiServer(Credentials.kubeconfig(str(control_plane.kubeconfig)))
        yield server
        await server.close()

    async def test_client_certificates(self, control_plane: ControlPlane) -> None:
        path = control_plane.kubeconfig_for_user("somebody", ["system:masters"])
        server = ApiServer(Credentials.kubeconfig(str(path)))
        assert await server.serves(NODES)
        assert (await server.list(NAMESPACES)).items
        await server.close()

    async def test_forbidden(self, control_plane: ControlPlane) -> None:
        path = control_plane.kubeconfig_for_user("nobody")
        server = ApiServer(Credentials.kubeconfig(str(path)))
        with pytest.raises(ApiError) as forbidden:
            await server.list(PODS)
        assert (forbidden.value.status, forbidden.value.reason) == (403, "Forbidden")
        assert not forbidden.value.refused
        await server.close()

    async def test_an_untrusted_server(self, control_plane: ControlPlane) -> None:
        server = ApiServer(Credentials.token(control_plane.server, control_plane.token))
        with pytest.raises(ApiError) as untrusted:
            await server.list(PODS)
        assert (untrusted.value.status, untrusted.value.reason) == (0, "Unreachable")
        assert control_plane.token not in str(untrusted.value)
        await server.close()

    async def test_a_watch_ends_in_time_with_a_bookmark(self, cluster: Cluster, namespace: str) -> None:
        version = (await cluster.list(CONFIG_MAPS, Query(namespace=namespace))).resource_version
        query = Query(namespace=namespace, options={"timeoutSeconds": "2", "allowWatchBookmarks": "true"})
        stream: Any = cluster.watch(CONFIG_MAPS, version, query)
        async with aclosing(stream):
            events = [event async for event in stream]
        assert all(event.type is EventType.BOOKMARK or event.object["metadata"]["name"] for event in events)

    async def test_reflector(self, cluster: Cluster, namespace: str) -> None:
        changed = asyncio.Event()
        reflector = Reflector(
            cluster,
            CONFIG_MAPS,
            clock=SystemClock(),
            random=Random(1),
            query=Query(namespace=namespace, limit=2, label_selector="ours=yes"),
            on_event=lambda *event: changed.set(),
        )
        for number in range(5):
            await cluster.create(CONFIG_MAPS, namespace, config_map(f"m{number}", {"ours": "yes"}))
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert len(reflector.cache) == 5
        assert all("managedFields" not in obj["metadata"] for obj in reflector.cache)
        changed.clear()
        await cluster.patch(CONFIG_MAPS, namespace, "m3", {"data": {"x": "1"}}, PatchType.MERGE)
        await asyncio.wait_for(changed.wait(), 10)
        seen = reflector.cache.get(namespace, "m3")
        assert seen is not None
        assert seen["data"] == {"x": "1"}
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def test_webhooks_and_schemas_refuse(self, cluster: Cluster, namespace: str) -> None:
        container = {"name": "c", "image": "example.com/none"}
        template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
        body = {
            "metadata": {"name": "a"},
            "spec": {"suspend": True, "replicatedJobs": [{"name": "n", "template": template}]},
        }
        made = await cluster.create(JOB_SETS, namespace, body)
        assert made["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"
        grow = [{"op": "replace", "path": "/spec/replicatedJobs/0/replicas", "value": 2}]
        with pytest.raises(ApiError) as refused:
            await cluster.patch(JOB_SETS, namespace, "a", grow, PatchType.JSON)
        assert refused.value.refused
        assert refused.value.status in (403, 422)
