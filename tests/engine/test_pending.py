"""Who stands in front of a queue, whatever was added, taken out, parked or taken back in between."""

from __future__ import annotations

from typing import Any, cast

import pytest

from queue_manager.engine.pending import Group, Parked, Pending
from queue_manager.engine.undo import UndoLog


class Line:
    """A queue with one workload of each shape, named by it."""

    def __init__(self) -> None:
        self.log = UndoLog()
        self.pending = Pending(self.log)
        self.groups: dict[str, Group] = {}

    def add(self, uid: str, queued: int, shape: str = "") -> None:
        group = self.groups.get(shape or uid) or Group((shape or uid,), 0, cast(Any, None))
        self.groups[uid] = group
        self.pending.add(group, queued, uid)

    def park(self, uid: str) -> None:
        self.pending.park(self.groups[uid], Parked(uid, 0, cast(Any, None), "another"))

    @property
    def front(self) -> list[str]:
        return [order[2] for order, _ in self.pending.front(self.groups.__getitem__)]


@pytest.fixture
def line() -> Line:
    found = Line()
    for number, uid in enumerate("bcd"):
        found.add(uid, 10 + number)
    assert found.front == ["b", "c", "d"]
    return found


def test_one_of_each_shape_stands_there(line: Line) -> None:
    line.add("c2", 99, "c")
    assert line.front == ["b", "c", "d"]


def test_who_comes_before_them_stands_there(line: Line) -> None:
    line.add("a", 1)
    assert line.front == ["a", "b", "c", "d"]


def test_who_leaves_or_is_parked_does_not(line: Line) -> None:
    line.pending.discard(line.groups["b"], 10, "b")
    assert line.front == ["c", "d"]
    line.park("c")
    assert line.front == ["d"]
    line.pending.unpark(line.groups["c"])
    assert line.front == ["c", "d"]


def test_what_is_taken_back_stands_there_as_before(line: Line) -> None:
    mark = line.log.mark()
    line.park("b")
    line.add("a", 1)
    line.pending.discard(line.groups["d"], 12, "d")
    assert line.front == ["a", "c"]
    line.log.revert(mark)
    assert line.front == ["b", "c", "d"]


def test_behind_the_first_nobody_is_looked_at(line: Line) -> None:
    for number in range(20):
        line.add(f"e{number}", 20 + number)
    assert line.front == ["b", "c", "d", "e0", "e1", "e2", "e3", "e4"]
    line.park("b")
    assert line.front == ["c", "d", "e0", "e1", "e2", "e3", "e4"]
