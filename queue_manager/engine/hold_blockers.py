"""What people read about holds for the starving: whoever has one, and whoever waits behind one."""

from __future__ import annotations

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Blocker, BlockerType, Reason
from queue_manager.engine.guard import Guard
from queue_manager.engine.holds import StarvingHold
from queue_manager.engine.nomination import Nomination
from queue_manager.engine.quantities import show, show_time
from queue_manager.engine.records import Record
from queue_manager.engine.state import State

MOST_NODES = 5


def held_for(state: State, record: Record) -> tuple[int, str]:
    """When the hold of a workload should be complete (microseconds, 0 if nobody knows), and that in words; "" without
    a hold."""
    hold = state.starving.by_uid.get(record.uid)
    if hold is None:
        return 0, ""
    start = max(hold.target.expected, state.now) if hold.target.expected else 0
    when = f"should be complete at {show_time(start)}" if start else "when it is complete nobody knows"
    return start, f"it waited so long that what becomes free is kept for it, which {when}"


def hold_blockers(state: State, nomination: Nomination) -> list[Blocker]:
    """The holds that a workload has to heed, with what they leave of quota or which nodes they keep."""
    found: list[Blocker] = []
    if not state.starving:
        return found
    guard = Guard(state, nomination.record)
    for choice in nomination.assignment.choices:
        for cell, amount in choice.taken.amounts.items() if choice.taken.reason is Reason.BEHIND_HOLD else ():
            for hold in guard.holds:
                if guard.keeps(hold, cell, amount):
                    left = guard.available(hold, cell)
                    what = f"{show(cell.resource, left)} {cell.resource} (flavor {cell.flavor}) are left"
                    found.append(_blocker(state, nomination, hold, what, cell, amount, left))
    for hold in nomination.behind:
        nodes = sorted(hold.target.standing.places)
        listed = ", ".join(nodes[:MOST_NODES]) + (" ..." if len(nodes) > MOST_NODES else "")
        found.append(_blocker(state, nomination, hold, f"{len(nodes)} nodes ({listed})", Cell("", "nodes"), 1, 0))
    return list(dict.fromkeys(found))


def _blocker(
    state: State, nomination: Nomination, hold: StarvingHold, what: str, cell: Cell, wanted: int, left: int
) -> Blocker:
    name, expected = hold.record.workload.key, hold.target.expected
    if not expected:
        until = "until it starts; when that is nobody knows"
    else:
        until = f"until {show_time(max(expected, state.now))}"
        if not nomination.record.workload.max_run_time:
            until += "; with a max-run-time that ends before, it could start now"
    message = f"room is kept for {name}, which waited too long: {what} {until}"
    queue, uids = hold.target.standing.queue, (hold.record.uid,)
    return Blocker(BlockerType.HOLD, message, queue, *cell, wanted, left, wanted - left, uids)
