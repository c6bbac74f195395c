"""How often workloads of many pods are looked at."""

from __future__ import annotations

from queue_manager.cluster.simulated.clock import VirtualClock
from queue_manager.controller.crowds import LONGEST, Crowds

MINUTE = 60.0


async def test_a_large_workload_rests_after_a_look_and_no_event_is_lost() -> None:
    clock = VirtualClock()
    crowds = Crowds(clock, {"large": 512, "small": 2}.__getitem__)
    assert crowds.take({"large", "small"}) == {"large", "small"}
    await clock.advance(0.005)
    assert crowds.take({"large", "small"}) == {"small"}
    assert 0 < crowds.pause(MINUTE) <= LONGEST
    await clock.advance(crowds.pause(MINUTE))
    assert crowds.take(()) == {"large"}
    assert crowds.pause(MINUTE) == MINUTE


async def test_the_largest_workload_is_looked_at_more_than_twice_a_second() -> None:
    clock = VirtualClock()
    crowds = Crowds(clock, lambda uid: 100_000)
    crowds.take({"huge"})
    await clock.advance(LONGEST)
    assert crowds.take({"huge"}) == {"huge"}
