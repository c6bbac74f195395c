"""Stages: pod sets whose intervals overlap may run at the same time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.kinds.kind import Unresolvable
from queue_manager.kinds.stages import Dependency, intervals


def spans(**graph: list[tuple[str, bool]]) -> dict[str, tuple[int, int]]:
    return intervals({name: [Dependency(*edge) for edge in edges] for name, edges in graph.items()}, "jobs")


def test_everything_at_once() -> None:
    assert spans(a=[], b=[]) == {"a": (0, 0), "b": (0, 0)}


def test_chain() -> None:
    assert spans(a=[], b=[("a", True)], c=[("b", True)]) == {"a": (0, 0), "b": (1, 1), "c": (2, 2)}


def test_two_initializers_at_once() -> None:
    assert spans(a=[], b=[], c=[("a", True), ("b", True)]) == {"a": (0, 0), "b": (0, 0), "c": (1, 1)}


def test_what_runs_beside_a_chain() -> None:
    assert spans(side=[], a=[], b=[("a", True)], c=[("b", True)])["side"] == (0, 2)


def test_short_and_long_way() -> None:
    found = spans(a=[], short=[("a", True)], b=[("a", True)], c=[("b", True)])
    assert found == {"a": (0, 0), "short": (1, 2), "b": (1, 1), "c": (2, 2)}


def test_ready_does_not_part() -> None:
    assert spans(node=[], launcher=[("node", False)]) == {"node": (0, 0), "launcher": (0, 0)}


def test_ready_after_complete() -> None:
    assert spans(init=[], node=[("init", True)], launcher=[("node", False)]) == {
        "init": (0, 0),
        "node": (1, 1),
        "launcher": (1, 1),
    }


def test_cycle_and_unknown_name() -> None:
    with pytest.raises(Unresolvable, match="wait for each other"):
        spans(a=[("b", True)], b=[("a", False)])
    with pytest.raises(Unresolvable, match="depends on x"):
        spans(a=[("x", True)])


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[Dependency]]:
    names = [f"j{index}" for index in range(draw(st.integers(1, 6)))]
    return {
        name: [Dependency(other, draw(st.booleans())) for other in names[:index] if draw(st.integers(0, 2)) == 0]
        for index, name in enumerate(names)
    }


@given(graphs())
def test_whatever_can_run_at_the_same_time_overlaps(graph: dict[str, list[Dependency]]) -> None:
    """Against all states that JobSet can reach: each job waiting, running or done."""
    found = intervals(graph, "jobs")
    names = list(graph)
    start = tuple("waiting" for _ in names)
    seen, queue = {start}, [start]
    while queue:
        state = dict(zip(names, queue.pop(), strict=True))
        running = [name for name in names if state[name] == "running"]
        for one, other in itertools.combinations(running, 2):
            assert max(found[one][0], found[other][0]) <= min(found[one][1], found[other][1]), (one, other, found)
        if running:
            assert max(found[name][0] for name in running) <= min(found[name][1] for name in running)
        for name in names:
            free = all(
                state[edge.on] == "done" or (state[edge.on] == "running" and not edge.complete) for edge in graph[name]
            )
            following = {"waiting": "running" if free else None, "running": "done", "done": None}[state[name]]
            if following:
                reached = tuple({**state, name: following}.values())
                if reached not in seen:
                    seen.add(reached)
                    queue.append(reached)
