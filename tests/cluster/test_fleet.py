"""The demo fleet and its jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import islice
from random import Random

from queue_manager.cluster.port import EVENTS, PODS, TRAIN_JOBS
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.cluster.simulated.fleet import (
    BLOCK_LABEL,
    GPU,
    RACK_LABEL,
    TEAMS,
    demo_jobs,
    demo_nodes,
    install,
    train_job,
)
from queue_manager.cluster.simulated.objects import is_true


def test_the_fleet_has_two_blocks_of_four_racks_of_eight_nodes() -> None:
    nodes = demo_nodes()
    assert len(nodes) == 64
    racks = Counter(node["metadata"]["labels"][RACK_LABEL] for node in nodes)
    assert len(racks) == 8
    assert set(racks.values()) == {8}
    assert len({node["metadata"]["labels"][BLOCK_LABEL] for node in nodes}) == 2
    assert {node["status"]["allocatable"][GPU] for node in nodes} == {"8"}


def test_the_jobs_are_the_same_for_the_same_seed_and_come_in_order() -> None:
    arrivals = list(islice(demo_jobs(Random(5)), 100))
    assert arrivals == list(islice(demo_jobs(Random(5)), 100))
    times = [arrival.after for arrival in arrivals]
    assert times == sorted(times)
    assert len({(arrival.namespace, arrival.job["metadata"]["name"]) for arrival in arrivals}) == 100
    assert {arrival.namespace for arrival in arrivals} == set(TEAMS)
    sizes = {arrival.job["spec"]["trainer"]["numNodes"] for arrival in arrivals}
    assert sizes == {1, 2, 4, 8}
    first_minute = [arrival for arrival in arrivals if arrival.after < 60]
    wanted = sum(arrival.job["spec"]["trainer"]["numNodes"] for arrival in first_minute)
    assert wanted > 64 * 1.3, "nobody would have to wait"


async def test_the_fleet_runs_the_jobs_without_a_queue_manager() -> None:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, Random(1))
    install(cluster)
    running = asyncio.create_task(cluster.run())
    try:
        for arrival in islice(demo_jobs(Random(1)), 40):
            await clock.advance(max(0.0, arrival.after - clock.monotonic()))
            await cluster.as_user(arrival.user).create(TRAIN_JOBS, arrival.namespace, arrival.job)
        await clock.advance(60)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    jobs = cluster.state.storage.all(TRAIN_JOBS)
    assert sum(1 for job in jobs if is_true(job, "Complete")) >= 15
    assert not cluster.machinery.errors


async def test_what_is_done_goes_after_a_while() -> None:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, Random(1))
    install(cluster, keep_finished=300)
    running = asyncio.create_task(cluster.run())
    try:
        body = train_job("a", queue="vision", nodes=2, seconds=20)
        await cluster.as_user("ada").create(TRAIN_JOBS, "vision", body)
        await cluster.create(EVENTS, "vision", {"metadata": {"name": "e"}})
        await clock.advance(200)
        assert is_true(cluster.state.get(TRAIN_JOBS, "vision", "a"), "Complete")
        await clock.advance(200)
        assert cluster.state.storage.all(TRAIN_JOBS) == []
        assert cluster.state.storage.all(PODS) == []
        assert len(cluster.state.storage.all(EVENTS)) == 1
        await clock.advance(3600)
        assert cluster.state.storage.all(EVENTS) == []
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
