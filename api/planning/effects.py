"""Who is hurt by another configuration, and whom it helps: the engine decides on a copy of the live state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from queue_manager.config.compiled import Compiled
from queue_manager.controller.plan_changes import HOPELESS
from queue_manager.controller.times import to_microseconds
from queue_manager.engine.decision import BlockerType, Plan, Reason, Waiting
from queue_manager.engine.engine import Engine
from queue_manager.engine.resize import owner_uid
from queue_manager.store import codec
from queue_manager.store.records import State, WorkloadRow

from .live import Live, add_nodes, engine_of, tell, under, waits
from .standing import over_quota, preemptible

PASSES = 20
"""How often what a pass frees is given to the next one; what is not settled then, is told as it stands."""
MOST_ALONE = 2000
"""Of how many different requests at most it is tried whether they could start alone."""
FOR_GOOD = frozenset(
    {
        *(BlockerType.MAX_QUOTA, BlockerType.FLAVOR, BlockerType.DEVICE_CLASS, BlockerType.NAMESPACE),
        *(BlockerType.QUEUE_STOPPED, BlockerType.QUEUE_INACTIVE),
    }
)
"""Blockers that no end of another workload takes away."""
UNDECIDED = frozenset(
    {Reason.TOPOLOGY_PLACEMENT_FAILED, Reason.LIMIT_REACHED, Reason.NOT_EVALUATED, Reason.BACKOFF, Reason.BEHIND_HOLD}
)
"""Reasons of which others may be the cause, or the request itself."""


@dataclass(frozen=True, slots=True)
class Effects:
    """`namespace/name` of workloads, sorted. `over_quota` and `preemptible` are running ones that were not before,
    `would_stop` those that would be evicted at once; `would_start` and `never_start` are waiting ones of which that
    could not be said before."""

    over_quota: tuple[str, ...] = ()
    preemptible: tuple[str, ...] = ()
    would_stop: tuple[str, ...] = ()
    would_start: tuple[str, ...] = ()
    never_start: tuple[str, ...] = ()


@dataclass(slots=True)
class _Played:
    started: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    preempted: set[str] = field(default_factory=set)
    waiting: dict[str, Waiting] = field(default_factory=dict)

    def note(self, plan: Plan) -> None:
        self.started.update(owner_uid(admission.uid) for admission in plan.admissions)
        self.stopped.update(eviction.uid for eviction in plan.evictions)
        self.preempted.update(eviction.uid for eviction in plan.evictions if eviction.by)
        self.waiting.update((waiting.uid, waiting) for waiting in plan.waiting)


def effects_of(before: Compiled, after: Compiled, live: Live) -> Effects:
    """What changes when `after` takes the place of `before`."""
    now = to_microseconds(live.now)
    engine = engine_of(live, before)
    charges = {row.uid: engine.charge_of(row.uid) for row in live.rows if row.admission is not None}
    baseline = _Played()
    plan = engine.plan(now)
    baseline.note(plan)
    was_preempting = {owner_uid(eviction.by) for eviction in plan.evictions if eviction.by}
    engine.revoke()
    rows = under(after, before, live)
    engine.configure(after.configuration)
    for old, new in zip(live.rows, rows, strict=True):
        if old is not new:
            engine.remove_workload(old.uid)
            tell(engine, new, live, after)
    played = _play(engine, now)
    over_before = over_quota(live.rows, before, charges.__getitem__)
    over_after = over_quota(rows, after, charges.__getitem__)
    loose_before = preemptible(live.rows, before, over_before) | baseline.preempted
    loose_after = preemptible(rows, after, over_after) | played.preempted
    never = _never(rows, played, after, live)
    already = _never([row for row in live.rows if row.uid in never], baseline, before, live)
    by_uid = {row.uid: row for row in live.rows}
    waiting = {row.uid for row in live.rows if row.state is State.WAITING}
    held = {row.uid for row in live.rows if row.state is State.HELD}

    def names(uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({f"{by_uid[uid].namespace}/{by_uid[uid].name}" for uid in uids}))

    return Effects(
        names(over_after - over_before),
        names(loose_after - loose_before),
        names(played.stopped - baseline.stopped),
        names((played.started & (waiting | held)) - baseline.started - was_preempting),
        names((never - already) & waiting),
    )


def _play(engine: Engine, now: int) -> _Played:
    """Passes until one decides nothing; what a pass evicts is gone before the next one and queues again."""
    played = _Played()
    for _ in range(PASSES):
        plan = engine.plan(now)
        played.note(plan)
        if not plan.evictions and not plan.admissions:
            break
        for eviction in plan.evictions:
            engine.release(eviction.uid)
    return played


def _never(rows: Collection[WorkloadRow], played: _Played, compiled: Compiled, live: Live) -> set[str]:
    """Who of those that wait could not start even with everything to itself."""
    never: set[str] = set()
    undecided: dict[str, list[WorkloadRow]] = {}
    for row in rows:
        if row.uid in played.started:
            continue
        if not waits(row):
            if row.admission is None and row.state in (State.WAITING, State.HELD):
                never.add(row.uid)
            continue
        waiting = played.waiting.get(row.uid)
        if waiting is None or waiting.reason in UNDECIDED:
            undecided.setdefault(_shape(row), []).append(row)
        elif waiting.reason in HOPELESS or any(blocker.type in FOR_GOOD for blocker in waiting.blockers):
            never.add(row.uid)
    if undecided:
        alone = _Alone(compiled, live)
        for equal in list(undecided.values())[:MOST_ALONE]:
            if not alone.starts(equal[0]):
                never.update(row.uid for row in equal)
    return never


def _shape(row: WorkloadRow) -> str:
    """What decides whether a workload could start alone."""
    key: Mapping[str, object] = {
        "queue": row.queue,
        "local": f"{row.namespace}/{row.local_queue}",
        "groups": row.pod_groups,
        "topology": row.topology,
    }
    return codec.encode(key)


class _Alone:
    """The same fleet and configuration with nobody on it."""

    def __init__(self, compiled: Compiled, live: Live) -> None:
        self._live = live
        self._compiled = compiled
        self._engine = Engine()
        self._engine.configure(compiled.configuration)
        add_nodes(self._engine, live.nodes, foreign=False)

    def starts(self, row: WorkloadRow) -> bool:
        """Whether it would be admitted."""
        tell(self._engine, row, self._live, self._compiled)
        plan = self._engine.plan(max(to_microseconds(self._live.now), _not_before(row)))
        started = bool(plan.admissions)
        if started:
            self._engine.evict(row.uid)
            self._engine.release(row.uid)
        self._engine.remove_workload(row.uid)
        return started


def _not_before(row: WorkloadRow) -> int:
    return to_microseconds(row.not_before) + 1 if row.not_before is not None else 0
