"""Several controllers, one leader: by the database lease, and beside it by a Kubernetes Lease."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from queue_manager.cluster.port import LEASES, NAMESPACES, Object, Resource
from queue_manager.cluster.simulated import SimulatedCluster, VirtualClock
from queue_manager.cluster.simulated.faults import Fault, Planned, PlannedFaults
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


async def test_a_kubernetes_lease_that_another_took_is_not_given_up_for_it() -> None:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    cluster.state.create(NAMESPACES, "", {"metadata": {"name": "qm"}}, manager="kubectl")
    one, two = (KubernetesLease(cluster, "qm", "controller", holder, clock, timedelta(seconds=10)) for holder in "12")
    assert await one.acquire()
    await clock.advance(11)
    assert await two.acquire()
    await one.give_up()
    assert (await cluster.get(LEASES, "qm", "controller"))["spec"]["holderIdentity"] == "2"
    assert not await one.acquire()


async def test_a_write_to_the_lease_by_somebody_else_costs_no_leadership() -> None:
    clock = VirtualClock()
    faults = PlannedFaults([Planned(Fault.CONFLICT, "patch", LEASES.plural)])
    cluster = SimulatedCluster(clock, faults=faults)
    cluster.state.create(NAMESPACES, "", {"metadata": {"name": "qm"}}, manager="kubectl")
    lease = KubernetesLease(cluster, "qm", "controller", "1", clock, timedelta(seconds=10))
    assert await lease.acquire()
    assert await lease.acquire()
    assert faults.plan == []


class Hung:
    """The API server takes requests for Leases and never answers them."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        if self.hangs and resource == LEASES:
            await asyncio.get_running_loop().create_future()
        return await self._cluster.get(resource, namespace, name)


@pytest.mark.parametrize("trouble", ["hangs", "errors"])
async def test_an_api_server_without_answers_does_not_end_a_term(store: Store, trouble: str) -> None:
    faults = PlannedFaults()
    async with World(store, faults=faults) as world:
        await world.kill()
        cluster = Hung(world.cluster)
        controller = Controller(
            store,
            cluster,
            holder="one",
            clock=world.clock,
            random=Random(5),
            in_thread=inline,
            lease_namespace="ns",
            hints=silence,
            timed=no_timed_work,
            virtual=True,
        )
        task = asyncio.create_task(controller.run())
        await world.clock.run_until(lambda: controller.term is not None and controller.term.ready, within=30)
        term = controller.term
        cluster.hangs = trouble == "hangs"
        if trouble == "errors":
            faults.plan += [Planned(Fault.ERROR_BEFORE, "get", LEASES.plural)] * 8
        await world.clock.advance(60)
        assert controller.term is term
        assert controller._lease.valid
        task.cancel()
        with suppress(asyncio.CancelledError):
            cluster.hangs = False
            await task
        await world.start()


async def test_a_term_that_fails_before_it_is_ready_is_begun_again_with_growing_pauses(store: Store) -> None:
    async with World(store) as world:
        await world.kill()
        loads: list[float] = []
        load = store.load_workloads

        def failing(ended: bool = False) -> list[WorkloadRow]:
            loads.append(world.clock.monotonic())
            if len(loads) < 12:
                raise OperationalError("SELECT", {}, Exception("no memory"))
            return load(ended)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "load_workloads", failing)
            await world.start()
            await world.until(lambda: len(loads) == 12, within=600)
        assert loads[-1] - loads[0] > 60
