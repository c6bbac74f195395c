"""Who is spared from preemption for a while, and whose eviction costs least work (issue 4, limits of our own).

Two protections, both counted from the admission: the minimum run time, of the queue or of the workload's priority
class, whichever is longer; and the queue's checkpoint grace, which ends early with the first checkpoint that this run
has written. Neither matters to a drained queue, a lost node or a maximum run time.
"""

from __future__ import annotations

from queue_manager.engine.configuration import Limits
from queue_manager.engine.records import Record
from queue_manager.engine.state import State


def spared_until(state: State, record: Record) -> int:
    """Until when a running workload is no candidate for preemption (microseconds); 0 when nothing protects it."""
    admitted = record.admitted
    queue = None if record.admission is None else state.configuration.queues.get(record.admission.queue)
    if not admitted:
        return 0
    limits = Limits() if queue is None else queue.limits
    workload = record.workload
    ends = admitted + max(limits.min_run_time, workload.min_run_time)
    if limits.checkpoint_grace and _saved(state, record) <= admitted:
        ends = max(ends, admitted + limits.checkpoint_grace)
    return ends if ends > admitted else 0


def saved_at(state: State, record: Record) -> int:
    """When the work of a running workload was last safe: its admission, or the last checkpoint since."""
    return max(record.admitted, _saved(state, record))


def _saved(state: State, record: Record) -> int:
    """Its last checkpoint; a time that lies ahead (clocks differ) is taken as now."""
    return min(record.workload.checkpointed_at, state.now)
