"""What a running elastic workload lacks waits as a record of its own, and becomes one with it when it is admitted."""

from __future__ import annotations

from queue_manager.engine.decision import Admission
from queue_manager.engine.quantities import added
from queue_manager.engine.records import Phase, Planned, Record, Standing
from queue_manager.engine.resize import grown, growth_of, growth_uid
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, NOW


def regrow(state: State, record: Record) -> None:
    """What a running elastic workload lacks waits, and nothing else for it does."""
    wanted = None
    if record.admission is not None and record.phase is Phase.ADMITTED:
        wanted = growth_of(record.workload, record.admission)
    growth = state.records.get(growth_uid(record.uid))
    if growth is not None and growth.workload == wanted:
        return
    state.drop_growth(record)
    if wanted is not None:
        made = Record(wanted)
        state.log.put(state.records, made.uid, made)
        state.enqueue(made)


def grow(state: State, growth: Record, admission: Admission, more: Standing, planned: Planned) -> Record:
    """What a running workload lacked is admitted: it becomes one with the workload, which is returned."""
    state.take_out(growth)
    record = state.records[growth.workload.resizes]
    now = record.standing[NOW]
    assert record.admission is not None
    assert now is not None
    charge, places = added(now.charge, more.charge), dict(now.places)
    for node, amounts in more.places.items():
        places[node] = added(places.get(node, {}), amounts)
    nodes = {name: added(record.planned.get(name, {}), found) for name, found in planned.items()}
    regrown(state, record, grown(record.admission, admission), {**record.planned, **nodes})
    for view in (NOW, FUTURE):
        state.stand(record, view, Standing(now.queue, charge, places, now.alone | more.alone))
    return record


def regrown(state: State, record: Record, admission: Admission, planned: Planned) -> None:
    """Replaces the admission of a running workload."""
    state.log.assign(record, "admission", admission)
    state.log.assign(record, "planned", planned)
    state.log.call(state.reordered, record)
    state.reordered(record)
