"""Job, JobSet, scheduler, kubelet and garbage collector of the simulated cluster."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    ApiError,
    Object,
    PatchType,
)
from queue_manager.cluster.simulated.job_controller import parse_indexes, spelled_indexes
from queue_manager.cluster.simulated.kubelet import TERMINATION_TIME, span
from queue_manager.cluster.simulated.objects import is_true, owner_reference
from tests.cluster.world import NS, RESUME, SUSPEND, entry, job, job_set, world


def test_indexes() -> None:
    assert parse_indexes("0-2,5,7-8") == {0, 1, 2, 5, 7, 8}
    assert spelled_indexes({8, 7, 5, 2, 1, 0}) == "0-2,5,7-8"
    assert spelled_indexes([]) == ""
    assert parse_indexes("") == set()


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45.0), ("1m30s", 90.0), ("250ms", 0.25), ("", None), ("never", None), ("5x", None)]
)
def test_span(text: str, seconds: float | None) -> None:
    assert span(text) == seconds


async def test_job_runs_parallelism_pods_until_completions() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", seconds=10, parallelism=3, completions=5, completionMode="Indexed"))
        await w.until(lambda: w.running() == 3)
        await w.until(lambda: w.running() == 2)
        assert w.get(JOBS, "a")["status"]["completedIndexes"] == "0-2"
        await w.until(lambda: is_true(w.get(JOBS, "a"), "Complete"))
        status = w.get(JOBS, "a")["status"]
        assert (status["succeeded"], status["active"], status["completedIndexes"]) == (5, 0, "0-4")


async def test_resumed_job_makes_only_the_remaining_indexes() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", parallelism=4, completions=4, completionMode="Indexed"))
        await w.until(lambda: w.running() == 4)
        done = next(p for p in w.pods() if p["metadata"]["name"].startswith("a-1-"))
        status = {"status": {**done["status"], "phase": "Succeeded"}}
        await w.cluster.patch(PODS, NS, done["metadata"]["name"], status, PatchType.MERGE, subresource="status")
        await w.clock.advance(0)
        await w.patch(JOBS, "a", SUSPEND)
        await w.until(lambda: not w.running())
        state = w.get(JOBS, "a")["status"]
        assert (state["succeeded"], state.get("failed", 0), state["active"]) == (1, 0, 0)
        assert is_true(w.get(JOBS, "a"), "Suspended")
        await w.patch(JOBS, "a", RESUME)
        await w.until(lambda: w.running() == 3)
        indexes = {p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for p in w.pods("Running")}
        assert indexes == {"0", "2", "3"}


async def test_suspended_job_takes_node_affinity_with_the_start_and_gives_it_back() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", parallelism=2, completions=2, suspend=True))
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b2-r2-n4"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        affinity = {"op": "add", "path": "/spec/template/spec/affinity", "value": {"nodeAffinity": required}}
        await w.patch(JOBS, "a", affinity, RESUME)
        await w.until(lambda: w.running() == 2)
        assert {pod["spec"]["nodeName"] for pod in w.pods()} == {"b2-r2-n4"}
        remove = {"op": "remove", "path": "/spec/template/spec/affinity"}
        with pytest.raises(ApiError) as early:
            await w.patch(JOBS, "a", remove)
        assert early.value.refused
        await w.patch(JOBS, "a", SUSPEND)
        await w.until(lambda: not w.pods())
        await w.patch(JOBS, "a", remove)
        assert "affinity" not in w.get(JOBS, "a")["spec"]["template"]["spec"]


async def test_failing_pods_fail_the_job_at_its_limit() -> None:
    async with world() as w:
        body = job("a", seconds=5, backoffLimit=1)
        body["metadata"]["annotations"]["simulated.queue-manager.io/outcome"] = "Failed"
        await w.create(JOBS, body)
        await w.until(lambda: is_true(w.get(JOBS, "a"), "Failed"))
        assert w.get(JOBS, "a")["status"]["failed"] == 2


async def test_a_pod_deleted_by_others_is_replaced() -> None:
    async with world() as w:
        await w.create(JOBS, job("a"))
        await w.until(lambda: w.running() == 1)
        (pod,) = w.pods()
        await w.cluster.delete(PODS, NS, pod["metadata"]["name"])
        await w.until(lambda: w.pods("Running") and w.pods("Running")[0]["metadata"]["uid"] != pod["metadata"]["uid"])
        await w.until(lambda: len(w.pods()) == 1)


async def test_job_set_dependencies_success_policy_and_removal_of_the_rest() -> None:
    async with world() as w:
        servers = entry("ps", replicas=2)
        workers = entry("worker", replicas=2, seconds=20, parallelism=2, completions=2)
        driver = {**entry("driver", seconds=30), "dependsOn": [{"name": "ps", "status": "Ready"}]}
        policy = {"operator": "All", "targetReplicatedJobs": ["driver"]}
        await w.create(JOB_SETS, job_set("a", servers, workers, driver, successPolicy=policy))
        await w.clock.advance(0)
        assert w.find(JOBS, "a-ps-1")
        assert w.find(JOBS, "a-driver-0") is None
        await w.until(lambda: w.find(JOBS, "a-driver-0"))
        await w.until(lambda: w.running() == 7)
        await w.clock.advance(0)
        counts = {s["name"]: s["ready"] for s in w.get(JOB_SETS, "a")["status"]["replicatedJobsStatus"]}
        assert counts == {"ps": 2, "worker": 2, "driver": 1}
        await w.until(lambda: is_true(w.get(JOB_SETS, "a"), "Completed"))
        await w.until(lambda: not w.running())
        assert w.find(JOBS, "a-ps-0") is None
        assert w.find(JOBS, "a-worker-0")


async def test_restart_makes_all_jobs_anew_until_the_limit() -> None:
    async with world() as w:
        body = job_set("a", entry("good", seconds=5), entry("bad", seconds=10, outcome="Failed"))
        body["spec"]["failurePolicy"] = {"maxRestarts": 1}
        await w.create(JOB_SETS, body)
        await w.until(lambda: w.find(JOBS, "a-good-0") and is_true(w.get(JOBS, "a-good-0"), "Complete"))
        first = w.get(JOBS, "a-good-0")["metadata"]["uid"]
        await w.until(lambda: w.get(JOB_SETS, "a")["status"]["restarts"] == 1)
        await w.until(lambda: (w.find(JOBS, "a-good-0") or {"metadata": {"uid": first}})["metadata"]["uid"] != first)
        await w.until(lambda: is_true(w.get(JOB_SETS, "a"), "Failed"))
        assert w.get(JOB_SETS, "a")["status"]["restarts"] == 1


async def test_job_set_webhook() -> None:
    async with world() as w:
        await w.create(JOB_SETS, job_set("a", entry("n"), suspend=True))
        pod = "/spec/replicatedJobs/0/template/spec/template"
        select: Object = {"op": "add", "path": f"{pod}/spec/nodeSelector", "value": {"rack": "r"}}
        await w.patch(JOB_SETS, "a", select, RESUME)
        move: Object = {"op": "add", "path": f"{pod}/spec/nodeSelector", "value": {"rack": "s"}}
        with pytest.raises(ApiError) as running:
            await w.patch(JOB_SETS, "a", move)
        assert running.value.refused
        await w.patch(JOB_SETS, "a", SUSPEND, move)  # unlike a TrainJob, in the same request
        for change in (
            {"op": "add", "path": f"{pod}/spec/affinity", "value": {"nodeAffinity": {"x": 1}}},
            {"op": "replace", "path": f"{pod}/spec/containers/0/image", "value": "b"},
            {"op": "replace", "path": "/spec/replicatedJobs/0/replicas", "value": 2},
            {"op": "add", "path": "/spec/failurePolicy", "value": {"maxRestarts": 3}},
        ):
            with pytest.raises(ApiError) as fixed:
                await w.patch(JOB_SETS, "a", change)
            assert fixed.value.refused


async def test_scheduler_spreads_and_says_why_not() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", cpu="48", parallelism=16, completions=16))
        await w.until(lambda: w.running() == 16)
        assert len({pod["spec"]["nodeName"] for pod in w.pods()}) == 16
        await w.create(JOBS, job("b", cpu="60"))
        await w.clock.advance(5)
        (waiting,) = w.pods("Pending")
        condition = waiting["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
        assert condition["message"] == "0/16 nodes are available: 16 Insufficient cpu."
        await w.patch(JOBS, "a", SUSPEND)
        await w.until(lambda: w.running() == 1)


async def test_taints_cordons_and_host_ports() -> None:
    async with world() as w:
        for node in w.cluster.state.storage.all(NODES)[2:]:
            taint: Object = {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
            await w.cluster.patch(NODES, "", node["metadata"]["name"], taint, PatchType.MERGE)
        cordon: Object = {"spec": {"unschedulable": True}}
        await w.cluster.patch(
            NODES, "", w.cluster.state.storage.all(NODES)[0]["metadata"]["name"], cordon, PatchType.MERGE
        )
        port = {"containers": [{"name": "m", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
        await w.create(JOBS, job("a", pod=port, parallelism=2, completions=2))
        await w.clock.advance(5)
        assert w.running() == 1
        tolerated = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
        await w.create(JOBS, job("b", pod=tolerated, parallelism=20, completions=20))
        await w.clock.advance(5)
        assert w.running() == 21


async def test_gated_pods_wait_and_go_where_they_are_sent() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", pod={"schedulingGates": [{"name": "example.com/gate"}]}))
        await w.clock.advance(5)
        (pod,) = w.pods()
        assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b1-r2-n3"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        release = {"spec": {"schedulingGates": None, "affinity": {"nodeAffinity": required}}}
        await w.cluster.patch(PODS, NS, pod["metadata"]["name"], release, PatchType.MERGE)
        await w.until(lambda: w.running() == 1)
        assert w.pods()[0]["spec"]["nodeName"] == "b1-r2-n3"
        again = {"spec": {"schedulingGates": [{"name": "x"}]}}
        with pytest.raises(ApiError):
            await w.cluster.patch(PODS, NS, pod["metadata"]["name"], again, PatchType.MERGE)


async def test_pods_of_a_deleted_node_are_lost_and_those_of_a_silent_one_hang() -> None:
    async with world() as w:
        await w.create(JOBS, job("a", parallelism=16, completions=16, cpu="90"))
        await w.until(lambda: w.running() == 16)
        await w.cluster.delete(NODES, "", "b1-r1-n1")
        await w.clock.advance(1)
        assert w.running() == 16
        await w.clock.advance(10)
        assert w.running() == 15
        w.cluster.set_ready("b1-r1-n2", False)
        await w.patch(JOBS, "a", SUSPEND)
        await w.clock.advance(120)
        assert [pod["spec"]["nodeName"] for pod in w.pods("Running")] == ["b1-r1-n2"]
        w.cluster.set_ready("b1-r1-n2", True)
        await w.until(lambda: not w.pods("Running"))


async def test_termination_takes_its_time_but_not_more_than_the_grace() -> None:
    async with world() as w:
        body = job("a", pod={"terminationGracePeriodSeconds": 20})
        body["metadata"]["annotations"][TERMINATION_TIME] = "90s"
        await w.create(JOBS, body)
        await w.until(lambda: w.running() == 1)
        await w.patch(JOBS, "a", SUSPEND)
        await w.clock.advance(19)
        assert w.running() == 1
        assert w.get(JOBS, "a")["status"]["terminating"] == 1
        await w.clock.advance(2)
        assert w.pods() == []


async def test_owner_references_are_followed() -> None:
    async with world() as w:
        owner = await w.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
        reference = owner_reference(owner)
        await w.create(CONFIG_MAPS, {"metadata": {"name": "child", "ownerReferences": [reference]}})
        held = {"name": "held", "ownerReferences": [reference], "finalizers": ["example.com/hold"]}
        await w.create(CONFIG_MAPS, {"metadata": held})
        await w.cluster.delete(CONFIG_MAPS, NS, "owner", propagation="Foreground")
        await w.clock.advance(1)
        assert w.find(CONFIG_MAPS, "child") is None
        assert w.get(CONFIG_MAPS, "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
        await w.patch(CONFIG_MAPS, "held", {"op": "remove", "path": "/metadata/finalizers/0"})
        await w.clock.advance(1)
        assert w.find(CONFIG_MAPS, "held") is None
        assert w.find(CONFIG_MAPS, "owner") is None
        # An owner that isn't there any more: collected soon after.
        await w.create(CONFIG_MAPS, {"metadata": {"name": "late", "ownerReferences": [reference]}})
        await w.clock.advance(1)
        assert w.find(CONFIG_MAPS, "late") is None


async def test_orphans_stay() -> None:
    async with world() as w:
        owner = await w.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
        await w.create(CONFIG_MAPS, {"metadata": {"name": "child", "ownerReferences": [owner_reference(owner)]}})
        await w.cluster.delete(CONFIG_MAPS, NS, "owner", propagation="Orphan")
        await w.clock.advance(1)
        assert w.find(CONFIG_MAPS, "owner") is None
        assert not w.get(CONFIG_MAPS, "child")["metadata"]["ownerReferences"]


async def test_a_deleted_namespace_goes_with_its_contents() -> None:
    async with world() as w:
        await w.create(JOBS, job("a"))
        await w.until(lambda: w.running() == 1)
        await w.cluster.delete(NAMESPACES, "", NS)
        await w.until(lambda: w.find(NAMESPACES, NS) is None)
        assert w.pods() == []


async def test_the_same_seed_gives_the_same_run() -> None:
    async def history(seed: int) -> list[tuple[int, str, str]]:
        seen: list[tuple[int, str, str]] = []
        async with world(seed, lag=0.5) as w:
            w.cluster.state.storage.listen(
                lambda c: seen.append(
                    (c.version, c.type.value, f"{c.new['metadata']['name']}/{c.new['metadata']['uid']}")
                )
            )
            await w.create(JOB_SETS, job_set("a", entry("x", replicas=2, seconds=5), entry("y", seconds=9)))
            await w.until(lambda: is_true(w.get(JOB_SETS, "a"), "Completed"))
        return seen

    assert await history(7) == await history(7)
    assert await history(7) != await history(8)
