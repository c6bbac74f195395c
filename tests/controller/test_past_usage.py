"""Decayed usage outlives the controller: the ledger knows it."""

from __future__ import annotations

from datetime import timedelta

from queue_manager.cluster.port import Object
from queue_manager.engine.history import UNIT_BITS
from queue_manager.store.records import State
from queue_manager.store.store import Store
from queue_manager.store.times import to_microseconds
from tests.controller.world import CONFIGURATION, World, train_job

QUEUE = CONFIGURATION.split("---\n")[2]
POOL = QUEUE.replace("metadata: {name: team}", "metadata: {name: %s}").replace("nominalQuota: 16", "nominalQuota: 0")
SHARED = (
    CONFIGURATION.replace(
        QUEUE,
        "".join(
            POOL.replace("spec:\n", "spec:\n  cohortName: all\n") % name + "---\n"
            for name in ("team", "other", "third")
        ),
    )
    + """---
apiVersion: queue-manager.io/v1
kind: Cohort
metadata: {name: all}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: gpus, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
---
apiVersion: queue-manager.io/v1
kind: Settings
metadata: {name: default}
spec: {admissionFairSharing: {usageHalfLifeTime: 1h}}
"""
)


def of_queue(queue: str, job: Object) -> Object:
    job["metadata"]["labels"]["queue-manager.io/queue"] = queue
    return job


async def test_after_a_restart_who_used_less_is_first_as_before(store: Store) -> None:
    async with World(store) as world:
        world.configure(SHARED)
        await world.submit(of_queue("team", train_job("first", 4, seconds=600)))
        await world.until_state("first", State.FINISHED, within=2_000)
        await world.submit(of_queue("third", train_job("blocks", 4, seconds=600)))
        await world.until_state("blocks", State.RUNNING)
        await world.submit(of_queue("team", train_job("older", 4, seconds=600)))
        await world.until_state("older", State.WAITING)
        later = world.clock.now() + timedelta(seconds=5)
        await world.until(lambda: world.clock.now() >= later)
        await world.submit(of_queue("other", train_job("newer", 4, seconds=600)))
        await world.until_state("newer", State.WAITING)
        await world.restart()
        await world.until_state("newer", State.RUNNING, within=2_000)
        assert world.state("blocks") is State.FINISHED
        assert world.state("older") is State.WAITING


async def test_what_a_new_controller_reads_is_what_the_old_one_knew(store: Store) -> None:
    async with World(store) as world:
        world.configure(SHARED)
        await world.submit(of_queue("team", train_job("long", 2, seconds=3_000)))
        await world.until_state("long", State.RUNNING)
        await world.submit(of_queue("team", train_job("short", 1, seconds=900)))
        await world.until_state("short", State.FINISHED, within=2_000)
        assert world.controller is not None
        assert world.controller.term is not None
        engine = world.controller.term.picture.engine
        engine.plan(to_microseconds(world.clock.now()))
        known = engine.history()["team"]["nvidia.com/gpu"]
        await world.restart()
        await world.until_ready()
        read = world.controller.term.picture.engine.history()["team"]["nvidia.com/gpu"]
        assert known >> UNIT_BITS == 2
        assert abs(read - known) < 1 << (UNIT_BITS - 10)
