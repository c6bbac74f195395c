"""What is written on job objects for people to read, how often, and when nothing is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from queue_manager.cluster.port import JOBS, TRAIN_JOBS, Object, PatchType
from queue_manager.controller.messages import LASTING, LASTING_AT_A_TIME, SOON, that_it_runs
from queue_manager.kinds import patches
from queue_manager.store.records import State
from queue_manager.store.store import Store
from tests.controller.world import World, batch_job, train_job
from tests.store.builders import admitted, workload

STATE, MESSAGE = "queue-manager.io/state", "queue-manager.io/message"


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Our writes from now on, by the name of the object, or `event`."""
    found: Counter[str] = Counter()
    patch, create = world.cluster.patch, world.cluster.create

    async def patched(resource: Any, namespace: str, name: str, *rest: Any, **more: Any) -> Any:
        found[name] += resource in (JOBS, TRAIN_JOBS)
        return await patch(resource, namespace, name, *rest, **more)

    async def created(resource: Any, *rest: Any) -> Any:
        found["event"] += 1
        return await create(resource, *rest)

    monkeypatch.setattr(world.cluster, "patch", patched)
    monkeypatch.setattr(world.cluster, "create", created)
    return found


async def test_one_write_starts_a_job_and_says_so_and_none_follows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(store) as world:
        writes = counted(world, monkeypatch)
        await world.submit(batch_job("j", 2), JOBS)
        await world.submit(train_job("t", 2))
        await world.until_state("t", State.RUNNING)
        assert world.says("t") == ("running", "Admitted to queue team: node: 2 pods on gpus at n0, n1")
        await world.until_state("t", State.FINISHED)
        await world.until_state("j", State.FINISHED)
        await world.clock.advance(90)
        assert writes == {"j": 1, "t": 1}


async def test_a_reason_that_lasts_is_written_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=30), JOBS)
        await world.until_state("first", State.RUNNING)
        writes = counted(world, monkeypatch)
        await world.submit(batch_job("long", 4, seconds=3600), JOBS)
        await world.clock.advance(LASTING - 1)
        assert world.says("long", JOBS) == ("", "")
        await world.clock.advance(2)
        state, message = world.says("long", JOBS)
        assert state == "waiting"
        assert "16 nvidia.com/gpu short" in message
        await world.until_state("long", State.RUNNING, within=300)
        await world.clock.advance(90)
        assert writes["long"] == 2
        assert world.says("long", JOBS)[0] == "running"


async def test_a_reason_that_does_not_last_is_never_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=30), JOBS)
        await world.until_state("first", State.RUNNING)
        await world.clock.advance(28)
        writes = counted(world, monkeypatch)
        await world.submit(batch_job("brief", 4, seconds=60), JOBS)
        await world.until(lambda: world.state("brief") is State.WAITING, "it waits")
        await world.until_state("brief", State.RUNNING)
        await world.clock.advance(30)
        assert writes["brief"] == 1


async def test_what_somebody_has_to_do_something_about_is_written_at_once(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("huge", 5), JOBS)
        await world.until(lambda: world.says("huge", JOBS)[0] == "waiting", "its annotation", within=3 * SOON)
        assert "20" in world.says("huge", JOBS)[1]
        assert world.events("huge") == []


async def test_thousands_that_wait_are_told_in_their_turn(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=3600), JOBS)
        await world.until_state("first", State.RUNNING)
        for number in range(120):
            await world.submit(batch_job(f"w{number}", 4), JOBS)
            await world.clock.advance(SOON / 20)

        def told() -> int:
            return sum(world.says(f"w{number}", JOBS)[0] == "waiting" for number in range(120))

        await world.until(lambda: told() > 0, "the first")
        before = told()
        await world.clock.advance(5 * SOON)
        assert 0 < told() - before <= 6 * LASTING_AT_A_TIME
        await world.until(lambda: told() == 120, "all in the end", within=60)


async def test_a_job_that_has_ended_is_not_written_on_although_its_row_says_otherwise_yet(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(store)

    async def slowly(function: Any, *arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if function == store.commit:
            await world.clock.sleep(2.5)
        return result

    monkeypatch.setattr("tests.controller.world.inline", slowly)
    async with world:
        writes = counted(world, monkeypatch)
        await world.submit(batch_job("j", 2, seconds=1), JOBS)
        await world.until_state("j", State.FINISHED)
        await world.clock.advance(90)
        assert writes == {"j": 1}


async def test_a_new_leader_writes_nothing_again_for_other_numbers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=36000), JOBS)
        await world.until_state("first", State.RUNNING)
        await world.submit(batch_job("w", 3), JOBS)
        await world.until(lambda: world.says("w", JOBS)[0] == "waiting", "told")
        [obj] = [one for one in world.cluster.state.storage.all(JOBS) if one["metadata"]["name"] == "w"]
        other = {"metadata": {"annotations": {MESSAGE: world.says("w", JOBS)[1].replace("4", "2")}}}
        await world.user.patch(JOBS, "ns", obj["metadata"]["name"], other, PatchType.MERGE)
        writes = counted(world, monkeypatch)
        await world.restart(after=60)
        await world.clock.advance(120)
        assert writes["w"] == 0


async def test_a_new_leader_tells_what_the_one_before_it_had_no_time_to(store: Store) -> None:
    async with World(store) as world:
        await world.submit(batch_job("first", 4, seconds=36000), JOBS)
        await world.until_state("first", State.RUNNING)
        await world.submit(batch_job("w", 3), JOBS)
        await world.until(lambda: world.state("w") is State.WAITING, "known")
        await world.kill()
        assert world.says("w", JOBS) == ("", "")
        await world.clock.advance(60)
        await world.start()
        await world.until(lambda: world.says("w", JOBS)[0] == "waiting", "told", within=60)


@pytest.mark.parametrize("by_settings", [True, False])
async def test_events_are_turned_off_and_annotations_stay(store: Store, by_settings: bool) -> None:
    async with World(store, events=None if by_settings else False) as world:
        if by_settings:
            head = "apiVersion: queue-manager.io/v1\nkind: Settings\nmetadata: {name: default}\n"
            world.configure(f"{head}spec: {{events: 'off'}}\n")
        await world.submit(train_job("low", 4, seconds=60))
        await world.until_state("low", State.RUNNING)
        await world.submit(train_job("high", 4, high=True))
        await world.until_state("high", State.RUNNING)
        await world.until(lambda: world.says("low")[0] == "waiting", "its annotation")
        await world.clock.advance(60)
        assert world.events("low") == []
        assert store.pending_outbox() == []


# --- the write that starts --------------------------------------------------------------------------------------


def start_of(annotations: dict[str, str] | None, *more: Object, version: str = "7") -> list[Object]:
    """What the patch that starts a Job with these annotations becomes."""
    metadata: Object = {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": version}
    obj: Object = {"metadata": metadata if annotations is None else {**metadata, "annotations": annotations}}
    operations = [*patches.unchanged(obj), *more, patches.put(False, "spec", "suspend")]
    row = replace(admitted(workload("u")), state=State.STARTING, message="for you")
    body = that_it_runs(row, obj, patches.write(obj, JOBS, operations, "starts it")).body
    assert body[: len(operations)] == operations
    return list(body[len(operations) :])


def test_the_start_adds_to_the_annotations_that_are_there() -> None:
    assert start_of({"a": "b", STATE: "waiting"}) == [
        patches.put("running", "metadata", "annotations", STATE),
        patches.put("for you", "metadata", "annotations", MESSAGE),
    ]


def test_the_start_makes_annotations_where_there_are_none() -> None:
    assert start_of(None) == [patches.put({STATE: "running", MESSAGE: "for you"}, "metadata", "annotations")]


def test_the_start_keeps_what_it_has_made_itself_of_the_annotations() -> None:
    made = patches.put({"queue-manager.io/original": "{}"}, "metadata", "annotations")
    assert start_of(None, made) == [
        patches.put("running", "metadata", "annotations", STATE),
        patches.put("for you", "metadata", "annotations", MESSAGE),
    ]


def test_the_start_leaves_annotations_alone_that_somebody_may_have_made_since() -> None:
    assert start_of(None, version="") == []


def test_a_stop_says_nothing() -> None:
    obj: Object = {"metadata": {"name": "j", "namespace": "ns", "uid": "u", "annotations": {"a": "b"}}}
    stop = patches.write(obj, JOBS, [patches.put(True, "spec", "suspend")], "suspends it")
    assert that_it_runs(replace(admitted(workload("u")), state=State.STARTING), obj, stop) is stop
