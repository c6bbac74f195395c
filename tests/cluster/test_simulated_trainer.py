"""The simulated Trainer and what hangs below it: what `reference/workloads.md` and `control-plane.md` say happens."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    ApiError,
    PatchType,
)
from queue_manager.cluster.simulated.fleet import BLOCK_LABEL, RACK_LABEL
from queue_manager.cluster.simulated.objects import is_true
from tests.cluster.world import MANAGER, RESUME, SUSPEND, World, placement, rack, start, suspended, world

RACK = "block-1-rack-2"


def shape(w: World, name: str) -> list[tuple[str, int, int]]:
    jobs = w.get(JOB_SETS, name)["spec"]["replicatedJobs"]
    return [(j["name"], j["replicas"], j["template"]["spec"]["parallelism"]) for j in jobs]


async def test_children_exist_suspended_before_the_start() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a"))
        await w.until(lambda: w.find(JOBS, "a-node-0"))
        assert w.get(JOB_SETS, "a")["spec"]["suspend"] is True
        assert w.get(JOBS, "a-node-0")["spec"]["suspend"] is True
        assert is_true(w.get(TRAIN_JOBS, "a"), "Suspended")
        snapshot = w.get(CONFIG_MAPS, "a-runtime-snapshot")
        assert snapshot["metadata"]["ownerReferences"][0]["uid"] == w.get(TRAIN_JOBS, "a")["metadata"]["uid"]
        assert w.pods() == []


async def test_one_write_places_and_starts_and_the_job_runs_to_its_end() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", nodes=3, seconds=30))
        await w.until(lambda: w.find(JOBS, "a-node-0"))
        await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector=rack(RACK))))
        await w.until(lambda: w.running() == 3)
        racks = {w.get(NODES, pod["spec"]["nodeName"])["metadata"]["labels"][RACK_LABEL] for pod in w.pods()}
        assert racks == {RACK}
        await w.clock.advance(0)
        assert w.get(TRAIN_JOBS, "a")["status"]["jobsStatus"] == [
            {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        ]
        assert not is_true(w.get(TRAIN_JOBS, "a"), "Suspended")
        assert all(pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == "a" for pod in w.pods())
        await w.until(lambda: is_true(w.get(TRAIN_JOBS, "a"), "Complete"))
        assert {pod["status"]["phase"] for pod in w.pods()} == {"Succeeded"}


async def test_resources_per_node_reach_the_pods() -> None:
    async with world() as w:
        job = suspended("a", nodes=1)
        job["spec"]["suspend"] = False
        await w.create(TRAIN_JOBS, job)
        await w.until(lambda: w.running() == 1)
        (pod,) = w.pods()
        assert pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "8"


async def test_stop_drains_and_a_second_start_moves_the_job() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector=rack(RACK))))
        await w.until(lambda: w.running() == 2)
        await w.clock.advance(0)
        clear = {"op": "remove", "path": "/spec/runtimePatches/0/trainingRuntimeSpec"}
        with pytest.raises(ApiError) as active:
            await w.patch(TRAIN_JOBS, "a", SUSPEND, clear)
        assert active.value.refused
        assert "still active" in active.value.message
        await w.patch(TRAIN_JOBS, "a", SUSPEND)
        await w.clock.advance(0)
        # Suspended at once, while the pods are still there: that is not "drained".
        assert is_true(w.get(TRAIN_JOBS, "a"), "Suspended")
        assert w.get(TRAIN_JOBS, "a")["status"]["jobsStatus"][0]["active"] == 0
        assert len(w.pods()) == 2
        assert w.get(JOBS, "a-node-0")["status"]["terminating"] == 2
        await w.until(lambda: not w.pods())
        await w.patch(TRAIN_JOBS, "a", clear)
        await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector=rack("block-2-rack-1"))))
        await w.until(lambda: w.running() == 2)
        assert {pod["spec"]["nodeSelector"][RACK_LABEL] for pod in w.pods()} == {"block-2-rack-1"}


async def test_directives_are_merged_into_children_and_never_removed() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        gate = [{"name": "example.com/gate"}]
        where = placement(nodeSelector=rack(RACK), schedulingGates=gate)
        await w.patch(TRAIN_JOBS, "a", *start(where))
        await w.until(lambda: len(w.pods()) == 2)
        await w.clock.advance(5)
        assert not any(pod["spec"].get("nodeName") for pod in w.pods())
        await w.patch(TRAIN_JOBS, "a", SUSPEND)
        await w.until(lambda: not w.pods())
        await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector={BLOCK_LABEL: "block-2"})))
        await w.until(lambda: len(w.pods()) == 2)
        template = w.get(JOBS, "a-node-0")["spec"]["template"]["spec"]
        assert template["nodeSelector"] == {RACK_LABEL: RACK, BLOCK_LABEL: "block-2"}
        assert template["schedulingGates"] == gate
        wish = w.get(JOB_SETS, "a")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert wish["nodeSelector"] == {BLOCK_LABEL: "block-2"}
        await w.clock.advance(5)
        assert w.running() == 0


async def test_children_are_fresh_after_the_jobset_was_deleted() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector=rack(RACK))))
        await w.until(lambda: w.running() == 2)
        await w.patch(TRAIN_JOBS, "a", SUSPEND)
        await w.until(lambda: not w.pods())
        where = placement(nodeSelector={BLOCK_LABEL: "block-2"})
        await w.patch(
            TRAIN_JOBS, "a", {"op": "replace", "path": "/spec/runtimePatches/0/trainingRuntimeSpec", "value": where}
        )
        old = w.get(JOB_SETS, "a")["metadata"]["uid"]
        await w.cluster.delete(JOB_SETS, "team", "a", uid=old, propagation="Foreground")
        await w.until(lambda: (w.find(JOB_SETS, "a") or {"metadata": {"uid": old}})["metadata"]["uid"] != old)
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.until(lambda: w.running() == 2)
        assert w.pods()[0]["spec"]["nodeSelector"] == {BLOCK_LABEL: "block-2"}


async def test_affinity_after_creation_is_refused_for_ever() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a"))
        await w.until(lambda: w.find(JOB_SETS, "a"))
        await w.patch(TRAIN_JOBS, "a", *start(placement(affinity={"nodeAffinity": {}, "podAffinity": {"x": 1}})))
        await w.clock.advance(20)
        assert w.get(TRAIN_JOBS, "a")["spec"]["suspend"] is False
        assert w.get(JOB_SETS, "a")["spec"]["suspend"] is True
        events = [e["reason"] for e in w.cluster.state.storage.all(EVENTS)]
        assert "TrainJobResourcesCreationFailed" in events
        assert w.pods() == []


async def test_another_managers_entry_survives_and_order_does_not_matter() -> None:
    async with world() as w:
        job = suspended("a")
        other = {"manager": "example.com/other", "trainingRuntimeSpec": placement(nodeSelector={"zone": "z"})}
        job["spec"]["runtimePatches"] = [other, {"manager": MANAGER}]
        await w.create(TRAIN_JOBS, job)
        before = w.get(TRAIN_JOBS, "a")["spec"]["runtimePatches"][0]
        await w.clock.advance(7)
        wrong = start(placement(nodeSelector=rack(RACK)), index=0)
        with pytest.raises(ApiError) as moved:
            await w.patch(TRAIN_JOBS, "a", *wrong)
        assert moved.value.conflict
        after = await w.patch(TRAIN_JOBS, "a", *start(placement(nodeSelector=rack(RACK)), index=1))
        assert after["spec"]["runtimePatches"][0] == before
        assert after["spec"]["runtimePatches"][1]["time"] > before["time"]
        await w.until(lambda: len(w.pods()) == 2)
        assert w.pods()[0]["spec"]["nodeSelector"] == {"zone": "z", **rack(RACK)}


async def test_server_side_apply_of_our_entry_alone() -> None:
    async with world() as w:
        job = suspended("a")
        job["spec"]["runtimePatches"] = [{"manager": "example.com/other"}, {"manager": MANAGER}]
        await w.create(TRAIN_JOBS, job)
        ours = {"manager": MANAGER, "trainingRuntimeSpec": placement(nodeSelector=rack(RACK))}
        body = {"spec": {"suspend": False, "runtimePatches": [ours]}}
        with pytest.raises(ApiError) as conflict:  # the creator owns `suspend`
            await w.cluster.patch(TRAIN_JOBS, "team", "a", body, PatchType.APPLY)
        assert conflict.value.status == 409
        assert ".spec.suspend" in conflict.value.message
        after = await w.cluster.patch(TRAIN_JOBS, "team", "a", body, PatchType.APPLY, force=True)
        assert [entry["manager"] for entry in after["spec"]["runtimePatches"]] == ["example.com/other", MANAGER]
        assert after["spec"]["suspend"] is False


async def test_unknown_fields_are_dropped_without_a_word() -> None:
    async with world() as w:
        job = suspended("a")
        job["spec"]["podSpecOverrides"] = [{"targetJobs": [{"name": "node"}]}]
        made = await w.create(TRAIN_JOBS, job)
        assert "podSpecOverrides" not in made["spec"]


async def test_strategic_merge_is_no_thing_for_custom_resources() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a"))
        with pytest.raises(ApiError) as refused:
            await w.cluster.patch(TRAIN_JOBS, "team", "a", {"spec": {"suspend": False}}, PatchType.STRATEGIC)
        assert refused.value.status == 415


async def test_initialisers_run_one_after_another_then_the_nodes() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", nodes=2, seconds=20, runtime="torchtune"))
        await w.until(lambda: w.find(JOB_SETS, "a"))
        assert shape(w, "a") == [("dataset-initializer", 1, 1), ("model-initializer", 1, 1), ("node", 1, 2)]
        await w.patch(TRAIN_JOBS, "a", RESUME)
        seen = []
        for _ in range(3):
            await w.until(w.running)
            names = {p["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] for p in w.pods("Running")}
            seen.append(names)
            await w.until(lambda: not w.running())
        assert seen == [{"dataset-initializer"}, {"model-initializer"}, {"node"}]
        assert is_true(w.get(TRAIN_JOBS, "a"), "Complete")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(4, [("launcher", 1, 1), ("node", 1, 3)]), (1, [("launcher", 1, 1), ("node", 1, 1)])],
)
async def test_mpi_launcher_is_a_node_and_its_end_ends_the_job(nodes: int, expected: list[object]) -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", nodes=nodes, seconds=20, runtime="deepspeed-distributed"))
        await w.until(lambda: w.find(JOB_SETS, "a"))
        assert shape(w, "a") == expected
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.until(lambda: w.running() == max(nodes, 2))
        assert all(p["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8" for p in w.pods())
        await w.until(lambda: is_true(w.get(TRAIN_JOBS, "a"), "Complete"))
        await w.until(lambda: not w.running())


async def test_a_runtime_that_is_gone_blocks_every_update_but_not_the_snapshot() -> None:
    async with world() as w:
        with pytest.raises(ApiError) as unknown:
            await w.create(TRAIN_JOBS, suspended("x", runtime="nothing"))
        assert unknown.value.refused
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.until(lambda: w.running() == 2)
        await w.cluster.delete(CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed")
        with pytest.raises(ApiError) as refused:
            await w.patch(TRAIN_JOBS, "a", SUSPEND)
        assert refused.value.refused
        # Suspending the JobSet is no way out: Trainer resumes it, from the snapshot.
        await w.patch(JOB_SETS, "a", SUSPEND)
        await w.clock.advance(10)
        assert w.get(JOB_SETS, "a")["spec"]["suspend"] is False
        assert w.running() == 2


async def test_an_edit_of_the_runtime_changes_only_new_jobs() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("old"))
        await w.until(lambda: w.find(JOB_SETS, "old"))
        image = {
            "op": "replace",
            "path": "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image",
        }
        await w.cluster.patch(
            CLUSTER_TRAINING_RUNTIMES, "", "torch-distributed", [{**image, "value": "example.com/new"}], PatchType.JSON
        )
        await w.create(TRAIN_JOBS, suspended("new"))
        await w.patch(TRAIN_JOBS, "old", RESUME)
        await w.patch(TRAIN_JOBS, "new", RESUME)
        await w.until(lambda: w.running() == 4)
        images = {
            p["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]: p["spec"]["containers"][0]["image"]
            for p in w.pods()
        }
        assert images == {"old": "example.com/torch", "new": "example.com/new"}


async def test_deleting_a_running_job_takes_everything_with_it() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.until(lambda: w.running() == 2)
        await w.cluster.delete(TRAIN_JOBS, "team", "a")
        assert w.find(TRAIN_JOBS, "a") is None
        await w.clock.advance(0)
        assert len(w.pods("Running")) == 2
        await w.until(lambda: not w.pods())
        assert w.find(JOB_SETS, "a") is None
        assert w.find(JOBS, "a-node-0") is None
        assert w.find(CONFIG_MAPS, "a-runtime-snapshot") is None


async def test_deadline_counts_from_the_resume() -> None:
    async with world() as w:
        job = suspended("a", seconds=600)
        job["spec"]["activeDeadlineSeconds"] = 60
        await w.create(TRAIN_JOBS, job)
        await w.clock.advance(300)
        assert not is_true(w.get(TRAIN_JOBS, "a"), "Failed")
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.clock.advance(50)
        assert w.running() == 2
        await w.clock.advance(15)
        conditions = {c["type"]: c["reason"] for c in w.get(TRAIN_JOBS, "a")["status"]["conditions"]}
        assert conditions["Failed"] == "DeadlineExceeded"
        assert w.find(JOB_SETS, "a") is None
        await w.until(lambda: not w.pods())


async def test_a_held_pod_keeps_terminating() -> None:
    async with world() as w:
        await w.create(TRAIN_JOBS, suspended("a", seconds=600))
        await w.patch(TRAIN_JOBS, "a", RESUME)
        await w.until(lambda: w.running() == 2)
        name = w.pods()[0]["metadata"]["name"]
        hold = {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/hold"}
        await w.patch(PODS, name, hold)
        await w.patch(TRAIN_JOBS, "a", SUSPEND)
        await w.clock.advance(120)
        assert [pod["metadata"]["name"] for pod in w.pods()] == [name]
        assert w.pods()[0]["metadata"]["deletionTimestamp"]
        await w.patch(PODS, name, {"op": "remove", "path": "/metadata/finalizers"})
        assert w.pods() == []
