"""The worlds of the figures about scale are what they are said to be."""

from __future__ import annotations

from benchmarks.decisions import _Side
from benchmarks.growth import GROWN, Size, _World
from benchmarks.start_world import Crowd, configuration
from queue_manager.config.parse import parse_objects
from queue_manager.config.validate import validate
from queue_manager.store.records import State
from queue_manager.store.store import Store


def test_each_event_of_a_growing_world_is_measured_with_its_pass() -> None:
    world = _World(Size(waiting=30, queues=20, nodes=40))
    samples = world.measure(2)
    assert {name: len(each) for name, each in samples.items()} == dict.fromkeys(samples, 2)
    assert len(samples) == 4
    assert len(world.running) == 20


def test_worlds_grow_tenfold() -> None:
    grown = [grow(Size(1, 20, 2)) for grow in GROWN.values()]
    assert grown[-1] == Size(10, 200, 20)
    assert Size(10, 20, 2) in grown


def test_as_many_are_admitted_and_confirmed_as_end(store: Store) -> None:
    side = _Side(store, places=60)
    side.fill(200)
    running = len(side.running)
    side.turn(5)
    assert len(side.running) == running
    counts = store.queue_counts().values()
    assert sum(each.get(State.RUNNING, 0) for each in counts) == running
    assert store.pending_outbox() == []


def test_the_configuration_of_a_crowd_is_one_that_apply_takes() -> None:
    result = parse_objects(configuration(Crowd(1, 2, 2, queues=2, running=2, waiting=2), 1))
    assert result.errors == ()
    assert validate(result.objects) == []
