"""What every implementation of the port must do; run against the simulated cluster and a real API server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from queue_manager.cluster.port import (
    CONFIG_MAPS,
    EVERYTHING,
    JOBS,
    NAMESPACES,
    PODS,
    ApiError,
    Cluster,
    EventType,
    Object,
    PatchType,
    Query,
    Resource,
    WatchEvent,
)

_names = itertools.count()
UNKNOWN = Resource("nobody.example.com", "v1", "widgets", "Widget")


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def job(name: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "example.com/none", "resources": {"limits": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


async def collect(cluster: Cluster, version: str, count: int, query: Query) -> list[WatchEvent]:
    """The first `count` events of ConfigMaps after `version`, bookmarks left out."""
    events: list[WatchEvent] = []
    stream: Any = cluster.watch(CONFIG_MAPS, version, query)
    async with aclosing(stream):
        async for event in stream:
            if event.type is not EventType.BOOKMARK:
                events.append(event)
            if len(events) == count:
                break
    return events


class Conformance:
    """Subclasses provide the fixture `cluster`."""

    @pytest.fixture
    async def namespace(self, cluster: Cluster) -> AsyncIterator[str]:
        name = f"conformance-{next(_names)}"
        await cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
        yield name
        await cluster.delete(NAMESPACES, "", name)

    async def test_create_fills_in_what_the_server_owns(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
        assert made["kind"] == "ConfigMap"
        assert made["apiVersion"] == "v1"
        assert made["data"] == {"x": "1"}
        metadata = made["metadata"]
        assert metadata["namespace"] == namespace
        assert metadata["uid"]
        assert metadata["resourceVersion"]
        assert metadata["creationTimestamp"]
        assert await cluster.get(CONFIG_MAPS, namespace, "a") == made

    async def test_generated_names_differ(self, cluster: Cluster, namespace: str) -> None:
        body = {"metadata": {"generateName": "pre-"}}
        made = [await cluster.create(CONFIG_MAPS, namespace, body) for _ in range(3)]
        names = {obj["metadata"]["name"] for obj in made}
        assert len(names) == 3
        assert all(name.startswith("pre-") for name in names)

    async def test_errors_of_names(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(CONFIG_MAPS, namespace, config_map("a"))
        with pytest.raises(ApiError) as twice:
            await cluster.create(CONFIG_MAPS, namespace, config_map("a"))
        assert (twice.value.status, twice.value.reason) == (409, "AlreadyExists")
        for attempt in (
            cluster.get(CONFIG_MAPS, namespace, "b"),
            cluster.delete(CONFIG_MAPS, namespace, "b"),
            cluster.patch(CONFIG_MAPS, namespace, "b", {"data": {}}, PatchType.MERGE),
            cluster.create(CONFIG_MAPS, "no-such-namespace", config_map("a")),
        ):
            with pytest.raises(ApiError) as missing:
                await attempt
            assert missing.value.not_found
            assert missing.value.reason == "NotFound"

    async def test_serves(self, cluster: Cluster) -> None:
        assert await cluster.serves(CONFIG_MAPS)
        assert await cluster.serves(JOBS)
        assert not await cluster.serves(UNKNOWN)
        with pytest.raises(ApiError) as missing:
            await cluster.list(UNKNOWN)
        assert missing.value.not_found

    async def test_pages_cover_the_collection(self, cluster: Cluster, namespace: str) -> None:
        for number in range(5):
            await cluster.create(CONFIG_MAPS, namespace, config_map(f"m{number}", {"part": "of-the-test"}))
        query = Query(namespace=namespace, limit=2, label_selector="part=of-the-test")
        page, names, pages = await cluster.list(CONFIG_MAPS, query), [], 1
        names += [item["metadata"]["name"] for item in page.items]
        while page.continue_token:
            page = await cluster.list(CONFIG_MAPS, query, page.continue_token)
            names += [item["metadata"]["name"] for item in page.items]
            pages += 1
        assert names == [f"m{number}" for number in range(5)]
        assert pages == 3
        assert all(item["kind"] == "ConfigMap" and item["apiVersion"] == "v1" for item in page.items)

    async def test_selectors(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(CONFIG_MAPS, namespace, config_map("a", {"team": "nlp"}))
        await cluster.create(CONFIG_MAPS, namespace, config_map("b", {"team": "vision", "gpu": "yes"}))

        async def names(labels: str = "", fields: str = "") -> list[str]:
            query = Query(namespace=namespace, label_selector=labels, field_selector=fields)
            found = [item["metadata"]["name"] for item in (await cluster.list(CONFIG_MAPS, query)).items]
            return [name for name in found if name in ("a", "b")]

        assert await names("team=nlp") == ["a"]
        assert await names("team!=nlp") == ["b"]
        assert await names("team in (nlp, vision)") == ["a", "b"]
        assert await names("team notin (nlp),gpu") == ["b"]
        assert await names("!gpu,team") == ["a"]
        assert await names(fields="metadata.name=b") == ["b"]
        with pytest.raises(ApiError) as refused:
            await names(fields="data.x=1")
        assert refused.value.status == 400

    async def test_merge_patch(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1", y="2"))
        body: Object = {"data": {"x": None, "z": "3"}, "metadata": {"labels": {"new": "one"}}}
        after = await cluster.patch(CONFIG_MAPS, namespace, "a", body, PatchType.MERGE)
        assert after["data"] == {"y": "2", "z": "3"}
        assert after["metadata"]["labels"]["new"] == "one"
        assert after["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]

    async def test_a_patch_that_changes_nothing_writes_nothing(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
        after = await cluster.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "1"}}, PatchType.MERGE)
        assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    async def test_json_patch_with_test(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
        swap: list[Object] = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "replace", "path": "/data/x", "value": "2"},
            {"op": "add", "path": "/metadata/annotations", "value": {"example.com/slash": "yes"}},
            {"op": "replace", "path": "/metadata/annotations/example.com~1slash", "value": "no"},
        ]
        after = await cluster.patch(CONFIG_MAPS, namespace, "a", swap, PatchType.JSON)
        assert after["data"] == {"x": "2"}
        assert after["metadata"]["annotations"]["example.com/slash"] == "no"
        with pytest.raises(ApiError) as refused:
            await cluster.patch(CONFIG_MAPS, namespace, "a", swap, PatchType.JSON)
        assert refused.value.conflict
        assert refused.value.status == 422
        assert not refused.value.refused
        with pytest.raises(ApiError) as missing:
            await cluster.patch(CONFIG_MAPS, namespace, "a", [{"op": "remove", "path": "/data/none"}], PatchType.JSON)
        assert missing.value.conflict

    async def test_an_old_resource_version_conflicts(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
        version = made["metadata"]["resourceVersion"]
        body: Object = {"metadata": {"resourceVersion": version}, "data": {"x": "2"}}
        await cluster.patch(CONFIG_MAPS, namespace, "a", body, PatchType.MERGE)
        body = {"metadata": {"resourceVersion": version}, "data": {"x": "3"}}
        with pytest.raises(ApiError) as refused:
            await cluster.patch(CONFIG_MAPS, namespace, "a", body, PatchType.MERGE)
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")

    async def test_server_side_apply(self, cluster: Cluster, namespace: str) -> None:
        async def apply(manager: str, data: dict[str, str], *, force: bool = False) -> Object:
            return await cluster.patch(
                CONFIG_MAPS, namespace, "a", {"data": data}, PatchType.APPLY, field_manager=manager, force=force
            )

        assert (await apply("one", {"x": "1", "y": "1"}))["data"] == {"x": "1", "y": "1"}
        assert (await apply("two", {"z": "2"}))["data"] == {"x": "1", "y": "1", "z": "2"}
        with pytest.raises(ApiError) as refused:
            await apply("two", {"z": "2", "x": "2"})
        assert refused.value.status == 409
        assert (await apply("two", {"z": "2", "x": "2"}, force=True))["data"]["x"] == "2"
        # One no longer says y, so it goes; x belongs to two now and stays.
        assert (await apply("one", {}))["data"] == {"x": "2", "z": "2"}

    async def test_apply_keeps_what_others_wrote(self, cluster: Cluster, namespace: str) -> None:
        await cluster.create(CONFIG_MAPS, namespace, config_map("a", {"theirs": "yes"}, x="1"))
        body = {"metadata": {"labels": {"ours": "yes"}}}
        after = await cluster.patch(CONFIG_MAPS, namespace, "a", body, PatchType.APPLY)
        assert after["metadata"]["labels"] == {"theirs": "yes", "ours": "yes"}
        with pytest.raises(ApiError) as refused:
            await cluster.patch(
                CONFIG_MAPS, namespace, "a", {"data": {"x": "2"}}, PatchType.APPLY, field_manager="other"
            )
        assert refused.value.status == 409

    async def test_status_is_apart(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(JOBS, namespace, job("a") | {"status": {"active": 3}})
        assert not (made.get("status") or {}).get("active")
        assert made["metadata"]["generation"] == 1
        body: Object = {"status": {"ready": 7}, "spec": {"parallelism": 2}}
        after = await cluster.patch(JOBS, namespace, "a", body, PatchType.MERGE)
        assert after["spec"]["parallelism"] == 2
        assert (after.get("status") or {}).get("ready") != 7
        assert after["metadata"]["generation"] == 2
        body = {"metadata": {"annotations": {"note": "x"}}}
        after = await cluster.patch(JOBS, namespace, "a", body, PatchType.MERGE)
        assert after["metadata"]["generation"] == 2

    async def test_job_templates_change_only_while_suspended(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(JOBS, namespace, job("a", parallelism=2))
        assert made["spec"]["suspend"] is True
        assert made["spec"]["completionMode"] == "NonIndexed"
        container = made["spec"]["template"]["spec"]["containers"][0]
        assert "requests" not in container["resources"], "limits become requests in pods only"
        image: list[Object] = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "b"}]
        with pytest.raises(ApiError) as fixed:
            await cluster.patch(JOBS, namespace, "a", image, PatchType.JSON)
        assert fixed.value.refused
        place: list[Object] = [
            {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"rack": "r1"}},
            {"op": "replace", "path": "/spec/suspend", "value": False},
        ]
        after = await cluster.patch(JOBS, namespace, "a", place, PatchType.JSON)
        assert after["spec"]["template"]["spec"]["nodeSelector"] == {"rack": "r1"}
        move: list[Object] = [{"op": "replace", "path": "/spec/template/spec/nodeSelector/rack", "value": "r2"}]
        with pytest.raises(ApiError) as running:
            await cluster.patch(JOBS, namespace, "a", move, PatchType.JSON)
        assert running.value.refused

    async def test_limits_become_requests_in_pods(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(PODS, namespace, {"metadata": {"name": "a"}, **job("a")["spec"]["template"]})
        assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
        assert made["status"]["phase"] == "Pending"

    async def test_delete_by_uid(self, cluster: Cluster, namespace: str) -> None:
        made = await cluster.create(CONFIG_MAPS, namespace, config_map("a"))
        with pytest.raises(ApiError) as refused:
            await cluster.delete(CONFIG_MAPS, namespace, "a", uid="00000000-0000-0000-0000-000000000000")
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        await cluster.delete(CONFIG_MAPS, namespace, "a", uid=made["metadata"]["uid"])
        with pytest.raises(ApiError) as missing:
            await cluster.get(CONFIG_MAPS, namespace, "a")
        assert missing.value.not_found

    async def test_finalizers_hold_an_object(self, cluster: Cluster, namespace: str) -> None:
        body = config_map("a")
        body["metadata"]["finalizers"] = ["example.com/wait"]
        await cluster.create(CONFIG_MAPS, namespace, body)
        await cluster.delete(CONFIG_MAPS, namespace, "a")
        held = await cluster.get(CONFIG_MAPS, namespace, "a")
        assert held["metadata"]["deletionTimestamp"]
        free: list[Object] = [{"op": "remove", "path": "/metadata/finalizers"}]
        await cluster.patch(CONFIG_MAPS, namespace, "a", free, PatchType.JSON)
        with pytest.raises(ApiError) as missing:
            await cluster.get(CONFIG_MAPS, namespace, "a")
        assert missing.value.not_found

    async def test_watch_from_a_list(self, cluster: Cluster, namespace: str) -> None:
        query = Query(namespace=namespace, label_selector="watched=yes")
        await cluster.create(CONFIG_MAPS, namespace, config_map("before", {"watched": "yes"}))
        page = await cluster.list(CONFIG_MAPS, query)
        seen = asyncio.create_task(collect(cluster, page.resource_version, 5, query))
        await cluster.create(CONFIG_MAPS, namespace, config_map("other"))
        await cluster.create(CONFIG_MAPS, namespace, config_map("a", {"watched": "yes"}, x="1"))
        await cluster.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "2"}}, PatchType.MERGE)
        unlabel = {"metadata": {"labels": {"watched": "no"}}}
        await cluster.patch(CONFIG_MAPS, namespace, "a", unlabel, PatchType.MERGE)
        relabel = {"metadata": {"labels": {"watched": "yes"}}}
        await cluster.patch(CONFIG_MAPS, namespace, "a", relabel, PatchType.MERGE)
        await cluster.delete(CONFIG_MAPS, namespace, "a")
        events = await asyncio.wait_for(seen, 10)
        assert [event.type.value for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        assert [event.object["metadata"]["name"] for event in events] == ["a"] * 5
        versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(versions)
        assert len(set(versions)) == 5

    async def test_watch_goes_on_where_it_ended(self, cluster: Cluster, namespace: str) -> None:
        query = Query(namespace=namespace, field_selector="metadata.name=a")
        version = (await cluster.list(CONFIG_MAPS, query)).resource_version
        await cluster.create(CONFIG_MAPS, namespace, config_map("a", x="1"))
        await cluster.patch(CONFIG_MAPS, namespace, "a", {"data": {"x": "2"}}, PatchType.MERGE)
        first = await asyncio.wait_for(collect(cluster, version, 1, query), 10)
        again = first[0].object["metadata"]["resourceVersion"]
        second = await asyncio.wait_for(collect(cluster, again, 1, query), 10)
        assert (first[0].type, second[0].type) == (EventType.ADDED, EventType.MODIFIED)

    async def test_the_port_changes_no_argument(self, cluster: Cluster, namespace: str) -> None:
        body = config_map("a", x="1")
        operations: list[Object] = [{"op": "add", "path": "/data/y", "value": "2"}]
        await cluster.create(CONFIG_MAPS, namespace, body)
        await cluster.patch(CONFIG_MAPS, namespace, "a", operations, PatchType.JSON)
        assert body == config_map("a", x="1")
        assert operations == [{"op": "add", "path": "/data/y", "value": "2"}]
        assert (await cluster.list(CONFIG_MAPS, EVERYTHING)).items
