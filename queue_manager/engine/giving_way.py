"""Room that is kept for a workload is not kept from whoever comes before it in its own queue.

Who gets the room of those that end is decided when it is promised, and may be decided anew until they are gone: a job
of a higher priority that comes meanwhile, or one that queues again with its old place in time, would else start after
those behind it, or be told of a limit that only their promise exhausts. After a restart, which forgets promises, it
would start first.
"""

from __future__ import annotations

from queue_manager.engine.records import Phase
from queue_manager.engine.state import State

Order = tuple[int, int, str]


def give_way(state: State) -> None:
    """Gives up what is kept for workloads behind one that came to wait in their queue since the last pass. Not what
    somebody has evicted others for: that is his. Order: as they queue."""
    if not state.holders:
        return
    first = _newcomers(state)
    preemptors = {victim.evicted_by for victim in state.draining.values()}
    for holder in sorted(state.holders.values(), key=lambda record: record.order):
        came = first.get(holder.workload.queue)
        if came is not None and came < holder.order and holder.uid not in preemptors:
            state.drop_hold(holder)


def _newcomers(state: State) -> dict[str, Order]:
    """By queue, the place of the first one that may start and was not told anything yet."""
    first: dict[str, Order] = {}
    for record in state.fresh.values():
        waits = record.phase is Phase.WAITING and record.hold is None
        if waits and (record.group is not None or record.limit is not None):
            queue = record.workload.queue
            first[queue] = min(first.get(queue, record.order), record.order)
    return first
