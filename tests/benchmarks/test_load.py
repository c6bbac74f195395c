"""The load tests: what is played, and how its figures are worked out."""

from __future__ import annotations

import pytest

from benchmarks.load.analysis import figures
from benchmarks.load.loads import LOADS, Class, Load, Shape, configuration, nodes
from benchmarks.load.record import JobRecord, Play, Running
from queue_manager.config.parse import parse_objects
from queue_manager.config.validate import validate

TWO = Load("two", 1, 2, (Class("half", (Shape(2, 1, 20_000, {}),), 50, 1000, 100),))
"""One cohort of 40 CPUs; a Job takes half of it."""


@pytest.mark.parametrize(
    ("name", "jobs", "work"), [("baseline", 15_000, 66), ("tas", 15_000, 66), ("large-scale", 50_000, 4)]
)
def test_the_loads_are_as_large_as_those_of_kueue(name: str, jobs: int, work: int) -> None:
    assert (LOADS[name].jobs, round(LOADS[name].work_seconds)) == (jobs, work)


def test_a_gang_of_each_class_has_the_same_cpus_with_and_without_topology() -> None:
    for plain, gangs in zip(LOADS["baseline"].classes, LOADS["tas"].classes, strict=True):
        assert {shape.total for shape in gangs.shapes} == {plain.shapes[0].total}
        assert (gangs.count, gangs.priority, gangs.runs) == (plain.count, plain.priority, plain.runs)
    assert len(list(nodes(LOADS["tas"]))) == 640


def record(sent: float, seen: float, finished: float, *runs: tuple[float, float], queue: int = 0) -> JobRecord:
    return JobRecord("half", queue, 20_000, sent, seen, finished, [Running(*run) for run in runs])


def test_quota_that_lies_idle_while_others_wait_is_counted() -> None:
    play = Play(
        "two",
        [
            record(0, 0.1, 4, (0, 4)),
            record(0, 0.1, 10, (0, 10)),
            # Waits from 1 on; half of the quota lies free from 4 to 6.
            record(1, 1.1, 10, (6, 10), queue=1),
        ],
    )
    found = figures(TWO, play)
    assert found.wall == 10
    assert found.used == pytest.approx((4 + 10 + 4) / 20)
    # It has waited for more than a second from 2 to 6: all of the quota is used for two of the four seconds.
    assert found.used_in_need == pytest.approx((2 * 2 + 2 * 1) / (2 * 4))
    assert sorted(found.idle_to_start) == [0, 0, 2]
    assert found.to_admission == {"half": pytest.approx(5 / 3)}
    assert found.stops == 0


def test_a_job_that_comes_to_free_quota_waits_from_its_being_known() -> None:
    play = Play("two", [record(0, 0, 1, (0, 1)), record(2, 2.25, 4, (3, 4))])
    assert sorted(figures(TWO, play).idle_to_start) == [0, 0.75]


def test_a_stop_gives_the_quota_back_and_is_counted() -> None:
    play = Play("two", [record(0, 0, 9, (0, 2), (5, 9)), record(0, 0, 9, (0, 9)), record(1, 1, 5, (2.5, 5))])
    found = figures(TWO, play)
    assert found.stops == 1
    assert max(found.idle_to_start) == 0.5
    assert found.used == pytest.approx((2 + 4 + 9 + 2.5) / 18)


@pytest.mark.parametrize("name", list(LOADS))
def test_the_configuration_of_each_load_is_one_that_apply_takes(name: str) -> None:
    result = parse_objects(configuration(LOADS[name].scaled(10)))
    assert result.errors == ()
    assert validate(result.objects) == []
