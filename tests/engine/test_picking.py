"""Choosing among domains: equal parts against brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.engine.picking import pick_even, pick_ones


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.data())
def test_equal_parts_are_found_iff_there_are_any_in_as_few_domains_as_can_be(
    rooms: list[int], data: st.DataObject
) -> None:
    if not sum(rooms):
        return
    need = data.draw(st.integers(1, sum(rooms)))
    found = pick_even(np.array(rooms), need)
    possible = [
        number
        for number in range(1, min(len(rooms), need) + 1)
        if any(_takes_parts([rooms[i] for i in some], need) for some in combinations(range(len(rooms)), number))
    ]
    assert (found is None) == (not possible)
    if found is not None:
        assert len(found) == possible[0]
        assert sum(n for _, n in found) == need
        assert max(n for _, n in found) - min(n for _, n in found) <= 1
        assert all(n <= rooms[i] for i, n in found)


def _takes_parts(rooms: list[int], need: int) -> bool:
    """Whether parts that differ by one at most fit, the larger ones in the larger rooms."""
    part, larger = divmod(need, len(rooms))
    ordered = sorted(rooms, reverse=True)
    return all(room >= part + (i < larger) for i, room in enumerate(ordered))


def test_domains_of_equal_room_that_hold_equal_parts_are_taken_in_order() -> None:
    assert pick_even(np.array([5, 9, 5, 5]), 10) == [(0, 5), (2, 5)]
    assert pick_even(np.array([8, 3]), 10) is None


def test_one_each_goes_to_the_first_that_have_room() -> None:
    assert pick_ones(np.array([2, 0, 1]), np.array([1, 0, 1]), 2) == [(0, 1), (2, 1)]
    assert pick_ones(np.array([2, 1, 0]), np.array([1, 0, 1]), 1) == [(2, 1)]
