"""A pass without evictions in vain: it is played in memory until nobody evicts for room that others get."""

from __future__ import annotations

from collections import Counter

from queue_manager.engine.decision import Plan
from queue_manager.engine.rounds import Pass
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE


def play_pass(state: State, now: int, most: int | None = None) -> Plan:
    """Plays a pass, and once more from the start where somebody evicted for nothing (policy `hold_freed_quota`). `most`
    as in `Engine.plan`.

    Whoever evicted and lost the room to somebody who came later in the pass may evict only when the others have come
    to rest, and not at all in this pass if it loses again. If higher ranks lose by that, for they were to profit from
    the eviction, it counts as made for whoever has the room in the end.
    """
    losses: Counter[str] = Counter()
    excused: set[str] = set()
    mark = state.log.mark()
    played = Pass(state, now, losses, most)
    played.run()
    while lost := set(played.in_vain()) - excused:
        before = _ranks(state)
        state.log.revert(mark)
        again = Pass(state, now, losses + Counter(lost), most)
        again.run()
        if _better(before, _ranks(state)):
            excused |= lost
            state.log.revert(mark)
            again = Pass(state, now, losses, most)
            again.run()
        else:
            losses.update(lost)
        played = again
    played.pass_on()
    return played.plan()


def _ranks(state: State) -> dict[str, int]:
    """Who has room in the end, with its priority."""
    return {uid: record.workload.priority for uid, record in state.records.items() if record.standing[FUTURE]}


def _better(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether the highest ranks that only one of two outcomes gives room are higher in the first."""
    mine = sorted((rank for uid, rank in one.items() if uid not in other), reverse=True)
    yours = sorted((rank for uid, rank in other.items() if uid not in one), reverse=True)
    return mine > yours
