"""Elastic Jobs on the simulated cluster: sizes change while they run, and no pod runs that is not admitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from queue_manager.cluster.pods import is_gated, is_gone
from queue_manager.cluster.port import PODS, Object, PatchType
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import CONFIGURATION, JOBS, World, batch_job, elastic_job, train_job


def elastic(name: str, parallelism: int, *, seconds: int = 3000, completions: int = 50) -> Object:
    return elastic_job(name, parallelism, completions=completions, seconds=seconds, gpus=2)


async def ask(world: World, name: str, parallelism: int) -> None:
    await world.user.patch(JOBS, "ns", name, {"spec": {"parallelism": parallelism}}, PatchType.MERGE)


async def mark(world: World, name: str, value: str | None) -> None:
    """Sets the annotation, or takes it away."""
    patch = {"metadata": {"annotations": {"queue-manager.io/elastic": value}}}
    await world.user.patch(JOBS, "ns", name, patch, PatchType.MERGE)


def through(world: World, name: str) -> list[Object]:
    """Pods that the scheduler may see."""
    return [pod for pod in world.pods(name) if not is_gated(pod)]


def watched(world: World, name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A check that also proves, each time it is made, that no more pods are let through than are charged."""

    def with_proof(check: Callable[[], Any]) -> Callable[[], Any]:
        def proved() -> Any:
            assert 2 * len(through(world, name)) <= world.charged()
            return check()

        return proved

    return with_proof


def states(store: Store, name: str) -> dict[str, int]:
    """GPUs in open intervals of the ledger, by state."""
    query = text(
        "SELECT l.state, sum(l.amount) FROM ledger l JOIN workloads w ON w.uid = l.workload_uid "
        "WHERE w.name = :name AND l.until IS NULL GROUP BY l.state"
    )
    with store.engine.connect() as connection:
        return {state: int(amount) for state, amount in connection.execute(query, {"name": name})}


async def test_it_grows_when_there_is_quota_and_shrinks_as_its_pods_go(store: Store) -> None:
    async with World(store) as world:
        proved = watched(world, "e")
        await world.submit(elastic("e", 2), JOBS)
        await world.until_state("e", State.RUNNING)
        await world.until(proved(lambda: len(through(world, "e")) == 2), "two pods")
        assert world.charged() == 4
        await world.submit(batch_job("other", 2, seconds=3000), JOBS)
        await world.until_state("other", State.RUNNING)
        await ask(world, "e", 6)

        def waits() -> bool:
            row = world.row("e")
            return row is not None and row.reason == "WaitingForQuota" and len(world.pods("e")) == 6

        await world.until(proved(waits), "four more are made, and wait")
        row = world.known_row("e")
        assert row.state is State.RUNNING
        assert "4 more pods wait: 4 nvidia.com/gpu short" in row.message
        assert (len(through(world, "e")), states(store, "e")) == (2, {"reserved": 4})
        body = store.explanation(row.uid)
        assert body is not None
        assert body["blockers"][0]["missing"] == 4

        await world.user.delete(JOBS, "ns", "other")
        await world.until(proved(lambda: len(through(world, "e")) == 6), "all six run")
        assert states(store, "e") == {"reserved": 12}
        assert store.explanation(row.uid) is None
        assert world.row("e").message == ""  # type: ignore[union-attr]
        await ask(world, "e", 1)
        await world.until(proved(lambda: states(store, "e") == {"reserved": 2, "draining": 10}), "ten drain")
        assert store.check(world.clock.now()) == []
        await world.until(proved(lambda: states(store, "e") == {"reserved": 2}), "only one is left")
        assert len(world.pods("e")) == 1
        assert store.check(world.clock.now()) == []
        await world.until(lambda: world.events("e").count("Resized") == 2, "both changes are told")


async def test_why_it_can_not_grow_is_kept_true_while_it_runs(store: Store) -> None:
    async with World(store) as world:
        await world.submit(elastic("e", 2), JOBS)
        await world.submit(batch_job("stays", 2, seconds=3000), JOBS)
        await world.submit(batch_job("goes", 1, seconds=3000), JOBS)
        await world.until_state("goes", State.RUNNING)
        await world.until(lambda: len(through(world, "e")) == 2, "two pods")
        await ask(world, "e", 6)
        before = "Runs on at its size, 4 more pods wait: 8 nvidia.com/gpu short"
        await world.until(lambda: world.known_row("e").message.startswith(before), "it waits")
        await world.user.delete(JOBS, "ns", "goes")
        after = "Runs on at its size, 4 more pods wait: 4 nvidia.com/gpu short"
        await world.until(lambda: world.known_row("e").message.startswith(after), "it is told")
        row = world.known_row("e")
        body = store.explanation(row.uid)
        assert body is not None
        assert (body["blockers"][0]["missing"], body["reason"]) == (4, row.reason)
        assert len(through(world, "e")) == 2


async def test_who_waits_behind_pods_that_are_asked_for_is_told_whose_they_are(store: Store) -> None:
    strict = CONFIGURATION.replace("  namespaceSelector", "  queueingStrategy: StrictFIFO\n  namespaceSelector")
    async with World(store) as world:
        world.configure(strict)
        await world.submit(elastic("e", 2), JOBS)
        await world.submit(batch_job("stays", 2, seconds=3000), JOBS)
        await world.until_state("stays", State.RUNNING)
        await ask(world, "e", 8)
        await world.until(lambda: world.known_row("e").reason == "WaitingForQuota", "it waits")
        await world.clock.advance(2)
        await world.submit(batch_job("behind", 1, seconds=3000), JOBS)
        await world.until(lambda: (row := world.row("behind")) is not None and row.reason == "NotEvaluated", "behind")
        row = world.known_row("behind")
        body = store.explanation(row.uid)
        assert body is not None
        assert [blocker["holders"] for blocker in body["blockers"] if blocker["type"] == "AheadInQueue"] == [["ns/e"]]


async def test_a_restart_in_between_loses_nothing_and_lets_nobody_through(store: Store) -> None:
    async with World(store) as world:
        proved = watched(world, "e")
        await world.submit(elastic("e", 3), JOBS)
        await world.submit(elastic("other", 5), JOBS)
        await world.until_state("other", State.RUNNING)
        await world.until(lambda: len(through(world, "e")) == 3, "three pods")
        await ask(world, "e", 5)
        await world.until(lambda: len(world.pods("e")) == 5, "two more are made")
        await world.restart()
        await world.until(lambda: world.known_row("e").reason == "WaitingForQuota", "it waits")
        assert len(through(world, "e")) == 3
        await ask(world, "other", 2)
        await world.until(lambda: len(through(world, "e")) >= 4, "let through one by one")
        await world.restart()
        await world.until(proved(lambda: len(through(world, "e")) == 5), "the rest too")
        assert store.check(world.clock.now()) == []


async def test_it_is_evicted_whole_and_comes_back_at_the_size_it_asks_for(store: Store) -> None:
    async with World(store) as world:
        await world.submit(elastic("e", 2), JOBS)
        await world.until(lambda: len(through(world, "e")) == 2, "two pods")
        await ask(world, "e", 9)
        await world.until(lambda: world.known_row("e").reason == "ExceedsMaxQuota", "too many")
        await ask(world, "e", 4)
        await world.until(lambda: len(through(world, "e")) == 4, "four pods")
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("high", State.RUNNING)
        assert world.pods("e") == []
        gates = world.cluster.state.storage.get(JOBS, "ns", "e")["spec"]["template"]["spec"].get("schedulingGates")
        assert gates is None
        await world.until_state("e", State.RUNNING)
        await world.until(lambda: len(through(world, "e")) == 4, "four pods again")
        assert states(store, "e") == {"reserved": 8}


async def test_pods_that_end_make_room_for_the_next_ones(store: Store) -> None:
    async with World(store) as world:
        proved = watched(world, "e")
        await world.submit(elastic("e", 2, seconds=10, completions=6), JOBS)
        await world.until(proved(lambda: world.state("e") is State.FINISHED), "it ends", within=600)
        assert world.charged() == 0
        assert all(is_gone(pod) for pod in world.cluster.state.storage.all(PODS))


async def test_a_job_that_is_not_elastic_has_no_gate_and_keeps_its_charge(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("j", 2, completions=9, seconds=3000), JOBS)
        await world.until(lambda: len(through(world, "j")) == 2, "two pods")
        await ask(world, "j", 3)
        await world.until(lambda: len(through(world, "j")) == 3, "a third")
        assert world.charged() == 8


async def test_without_its_annotation_it_stays_as_it_is_and_its_pods_are_still_replaced(store: Store) -> None:
    async with World(store) as world:
        proved = watched(world, "e")
        await world.submit(elastic("e", 2), JOBS)
        await world.until(lambda: len(through(world, "e")) == 2, "two pods")
        await ask(world, "e", 9)
        await world.until(lambda: world.known_row("e").reason == "ExceedsMaxQuota", "too many")
        await mark(world, "e", None)
        await world.until(lambda: world.known_row("e").reason == "", "asks for no more")
        gone = through(world, "e")[0]["metadata"]
        await world.user.delete(PODS, "ns", gone["name"])

        def replaced() -> bool:
            uids = {pod["metadata"]["uid"] for pod in through(world, "e")}
            return len(uids) == 2 and gone["uid"] not in uids

        await world.until(proved(replaced), "another pod is let through")
        assert states(store, "e") == {"reserved": 4}
        await ask(world, "e", 3)
        await mark(world, "e", "true")
        await world.until(proved(lambda: len(through(world, "e")) == 3), "elastic again")
