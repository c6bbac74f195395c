"""Several controllers, one leader: by the database lease, and beside it by a Kubernetes Lease."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from queue_manager.cluster.port import LEASES, NAMESPACES
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.controller.controller import Controller
from queue_manager.controller.leader import LEASE, TTL, DatabaseLease, KubernetesLease
from queue_manager.store.records import Change, StaleEpoch, State, WorkloadRow
from queue_manager.store.store import Store
from tests.controller.world import World, inline, no_timed_work, silence, train_job


async def test_a_standby_takes_over_when_the_leader_falls_silent(store: Store) -> None:
    async with World(store) as world:
        await world.submit(train_job("a", 2, seconds=600))
        await world.until_state("a", State.RUNNING)
        standby = Controller(
            store,
            world.cluster,
            holder="standby",
            clock=world.clock,
            random=Random(5),
            in_thread=inline,
            hints=silence,
            timed=no_timed_work,
            virtual=True,
        )
        task = asyncio.create_task(standby.run())
        await world.clock.advance(30)
        assert standby.term is None
        assert standby.ready, "a follower is ready: there is nothing it has to catch up with"

        leader = world.controller
        assert leader is not None
        leader._lease.give_up = silent_end  # type: ignore[method-assign]  # as if the machine had lost its power
        await world.kill()
        await world.clock.advance(TTL.total_seconds() * 0.5)
        assert standby.term is None, "the lease of the dead leader still holds"
        await world.clock.run_until(lambda: standby.term is not None and standby.term.ready, within=20)
        await world.submit(train_job("b", 2))
        await world.clock.run_until(lambda: world.state("b") is State.RUNNING, within=60)
        assert world.charged() == 16
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await world.start()


async def silent_end() -> None:
    """Gives nothing back."""


async def test_commits_of_a_leader_that_was_replaced_are_refused(store: Store) -> None:
    clock = VirtualClock()
    old, new = (DatabaseLease(store, holder, clock, inline, virtual=True) for holder in ("old", "new"))
    assert await old.acquire()
    assert not await new.acquire()
    await clock.advance(TTL.total_seconds() + 1)
    assert not old.valid
    assert await new.acquire()
    assert new.epoch == old.epoch + 1
    row = WorkloadRow(uid="u", kind="Job", namespace="ns", name="j", created_at=clock.now(), state=State.WAITING)
    with pytest.raises(StaleEpoch):
        store.commit(old.epoch, None, clock.now(), [Change(row=row, request_changed=True)])
    store.commit(new.epoch, None, clock.now(), [Change(row=row, request_changed=True)])
    assert not await old.renew()
    assert store.current_lease(LEASE) is not None


async def test_the_kubernetes_lease_has_one_holder_and_expires() -> None:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    cluster.state.create(NAMESPACES, "", {"metadata": {"name": "qm"}}, manager="kubectl")
    one, two = (KubernetesLease(cluster, "qm", "controller", holder, clock, timedelta(seconds=10)) for holder in "12")
    assert await one.acquire()
    assert not await two.acquire()
    await clock.advance(8)
    assert await one.acquire(), "renewed"
    await clock.advance(8)
    assert not await two.acquire()
    await clock.advance(4)
    assert await two.acquire(), "expired"
    spec = (await cluster.get(LEASES, "qm", "controller"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("2", 1)
    await two.give_up()
    assert await one.acquire(), "given up"
