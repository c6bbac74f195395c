"""When a child of a workload that is stopped makes no more pods."""

from __future__ import annotations

import pytest

from queue_manager.cluster.port import Object
from queue_manager.controller.drain import is_settled


def job(*, suspend: bool, generation: int, **status: object) -> Object:
    """A Job as the API server has it."""
    return {
        "kind": "Job",
        "metadata": {"name": "j", "generation": generation},
        "spec": {"suspend": suspend},
        "status": status,
    }


def conditions(name: str) -> list[Object]:
    return [{"type": name, "status": "True"}]


@pytest.mark.parametrize(
    ("obj", "settled"),
    [
        pytest.param(job(suspend=True, generation=1), True, id="made suspended, its controller has said nothing"),
        pytest.param(job(suspend=False, generation=1, active=1), False, id="made running"),
        pytest.param(job(suspend=True, generation=3), False, id="started and suspended again: its controller may lag"),
        pytest.param(job(suspend=True, generation=3, active=1, conditions=conditions("Suspended")), False, id="ending"),
        pytest.param(job(suspend=True, generation=3, conditions=conditions("Suspended")), True, id="suspended"),
        pytest.param(job(suspend=False, generation=2, conditions=conditions("Complete")), True, id="ended"),
    ],
)
def test_a_child_is_settled(obj: Object, settled: bool) -> None:
    assert is_settled(obj) is settled
