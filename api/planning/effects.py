"""Who is hurt by another configuration, and whom it helps: the engine decides on a copy of the live state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from queue_manager.config.compiled import Compiled
from queue_manager.engine.configuration import Cell, Preemption, Queue
from queue_manager.engine.decision import Plan, Reason
from queue_manager.engine.engine import Engine
from queue_manager.engine.outlook import Outlook
from queue_manager.engine.resize import owner_uid
from queue_manager.store import codec
from queue_manager.store.records import State, WorkloadRow
from queue_manager.store.times import to_microseconds

from .live import Live, add_nodes, tell, under, waits
from .standing import over_quota, preemptible

PASSES = 20
"""How often what a pass frees is given to the next one; what is not settled then, is told as it stands."""
MOST_PAIRS = 100_000
"""Pairs of a waiting request and a running workload up to which preemptions are played: each is looked at a few
times, which with many of both takes minutes."""
NOT_PLAYED = (
    "with this many workloads preemptions are not played: who could be preempted is told by the policies alone, and who"
    " would start only by preempting others is not told"
)
MOST_ALONE = 2000
"""Of how many different requests at most it is tried whether they could start alone."""
NOT_SETTLED = "after {0} rounds of evictions and admissions the state still changed: what would happen next is not told"
NOT_TRIED = (
    "of {1} different requests that wait, {0} were tried alone: of workloads with one of the others it is not told"
    " whether they could ever start"
)
LABELS_UNKNOWN = (
    "the labels of namespaces are not known: the namespaceSelector that changes was tried on their names alone, for {0}"
)
MOST_NAMED = 10
"""How many queues a sentence names at most."""
UNDECIDED = frozenset(
    {Reason.TOPOLOGY_PLACEMENT_FAILED, Reason.LIMIT_REACHED, Reason.NOT_EVALUATED, Reason.BACKOFF, Reason.BEHIND_HOLD}
)
"""Reasons of which others may be the cause, or the request itself."""


@dataclass(frozen=True, slots=True)
class Effects:
    """`namespace/name` of workloads, sorted. `over_quota` and `preemptible` are running ones that were not before,
    `would_stop` those that would be evicted at once; `would_start` and `never_start` are waiting ones of which that
    could not be said before. `limits` are sentences on what was not looked at."""

    over_quota: tuple[str, ...] = ()
    preemptible: tuple[str, ...] = ()
    would_stop: tuple[str, ...] = ()
    would_start: tuple[str, ...] = ()
    never_start: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


@dataclass(slots=True)
class _Played:
    started: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    preempted: set[str] = field(default_factory=set)
    waiting: Mapping[str, Outlook] = field(default_factory=dict)
    settled: bool = False

    def note(self, plan: Plan) -> None:
        self.started.update(owner_uid(admission.uid) for admission in plan.admissions)
        self.stopped.update(eviction.uid for eviction in plan.evictions)
        self.preempted.update(eviction.uid for eviction in plan.evictions if eviction.by)


@dataclass(frozen=True, slots=True)
class Question:
    """What happens when `after` takes the place of `before`. `played_before` and `played_after` are what the engine is
    given of them: without preemption unless all of it is played (`full`)."""

    before: Compiled
    after: Compiled
    played_before: Compiled
    played_after: Compiled
    full: bool


def question_of(before: Compiled, after: Compiled, live: Live) -> Question:
    """The question as it is put to the engine on this state."""
    played_before, played_after = _open(before, after, live), _open(after, before, live)
    full = _few_pairs(live)
    if not full:
        played_before, played_after = _peaceful(played_before), _peaceful(played_after)
    return Question(before, after, played_before, played_after, full)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What happens without the change, and who stands where: the same from `at` (microseconds) until `until`, or until
    something changes if that is None. Each is a set of uids: `over` are beyond their quota, `loose` may be preempted,
    `preempting` have others evicted."""

    played: _Played
    preempting: frozenset[str]
    charges: Mapping[str, Mapping[Cell, int]]
    over: frozenset[str]
    loose: frozenset[str]
    at: int
    until: int | None

    def holds(self, now: int) -> bool:
        """Whether time alone has changed nothing."""
        return self.at <= now and (self.until is None or now < self.until)


def is_steady(compiled: Compiled) -> bool:
    """Whether time changes decisions at known moments only: no past usage that decays, no room kept for an expected
    start."""
    return compiled.configuration.history is None and compiled.configuration.starvation is None


def baseline_of(question: Question, live: Live, engine: Engine) -> Baseline:
    """What `question.before` does by itself. `engine` knows of everything under `question.played_before`, and is
    afterwards as it was."""
    before, now = question.before, to_microseconds(live.now)
    charges = {row.uid: engine.charge_of(row.uid) for row in live.rows if row.admission is not None}
    played = _Played()
    plan = engine.plan(now)
    played.note(plan)
    preempting = frozenset(owner_uid(eviction.by) for eviction in plan.evictions if eviction.by)
    until = engine.wake_at() if is_steady(question.played_before) else now
    del plan  # what nobody holds is not put into words
    engine.revoke()
    over = over_quota(live.rows, before, charges.__getitem__)
    loose = preemptible(live.rows, before, over) | played.preempted
    return Baseline(played, preempting, charges, frozenset(over), frozenset(loose), now, until)


def effects_of(question: Question, live: Live, engine: Engine, baseline: Baseline) -> Effects:
    """The answer. `engine` knows of everything under `question.played_before`; it is used up."""
    before, after = question.before, question.after
    played_before, played_after, full = question.played_before, question.played_after, question.full
    rows = under(played_after, played_before, live)
    engine.configure(played_after.configuration)
    for old, new in zip(live.rows, rows, strict=True):
        if old is not new:
            engine.remove_workload(old.uid)
            tell(engine, new, live, played_after)
    played = _play(engine, to_microseconds(live.now))
    over = over_quota(rows, after, baseline.charges.__getitem__)
    loose = preemptible(rows, after, over) | played.preempted
    never, tried_after = _never(rows, played, played_after, live)
    suspects = [row for row in live.rows if row.uid in never]
    already, tried_before = _never(suspects, baseline.played, played_before, live)
    limits = [] if full else [NOT_PLAYED]
    limits += [] if played.settled else [NOT_SETTLED.format(PASSES)]
    limits += _not_tried(max(tried_before, tried_after))
    limits += _guessed(before, after, live)
    by_uid = {row.uid: row for row in live.rows}
    waiting = {row.uid for row in live.rows if row.state is State.WAITING}
    held = {row.uid for row in live.rows if row.state is State.HELD}

    def names(uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({f"{by_uid[uid].namespace}/{by_uid[uid].name}" for uid in uids}))

    return Effects(
        names(over - baseline.over),
        names(loose - baseline.loose),
        names(played.stopped - baseline.played.stopped),
        names((played.started & (waiting | held)) - baseline.played.started - baseline.preempting),
        names((never - already) & waiting),
        tuple(limits),
    )


def _not_tried(requests: int) -> list[str]:
    return [NOT_TRIED.format(MOST_ALONE, requests)] if requests > MOST_ALONE else []


def _guessed(before: Compiled, after: Compiled, live: Live) -> list[str]:
    """Queues whose selector of namespaces changes where the labels of these are not known."""
    if live.namespaces is not None:
        return []
    queues, others = after.configuration.queues, before.configuration.queues
    names = [name for name in sorted(queues) if _selects_otherwise(queues[name], others.get(name))]
    if not names:
        return []
    named = ", ".join(f"queue {name}" for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [LABELS_UNKNOWN.format(named + more)]


def _selects_otherwise(queue: Queue, other: Queue | None) -> bool:
    """Whether it asks for labels, and did not before. No selector and an empty one need none."""
    return bool(queue.namespace_selector) and (other is None or other.namespace_selector != queue.namespace_selector)


def _few_pairs(live: Live) -> bool:
    """Whether there are at most MOST_PAIRS of a request that waits and a workload that runs."""
    running = sum(row.admission is not None for row in live.rows)
    asked: set[str] = set()
    for row in live.rows:
        if waits(row):
            asked.add(_shape(row))
            if len(asked) * running > MOST_PAIRS:
                return False
    return True


def _open(compiled: Compiled, other: Compiled, live: Live) -> Compiled:
    """Where the labels of namespaces are not known: a selector that stays as it is lets pass who waits behind it, in
    both configurations alike."""
    if live.namespaces is not None:
        return compiled
    others = other.configuration.queues
    queues = {
        name: replace(queue, namespace_selector=())
        if queue.namespace_selector and name in others and others[name].namespace_selector == queue.namespace_selector
        else queue
        for name, queue in compiled.configuration.queues.items()
    }
    return replace(compiled, configuration=replace(compiled.configuration, queues=queues))


def _peaceful(compiled: Compiled) -> Compiled:
    """The same configuration in which nobody preempts."""
    configuration = compiled.configuration
    queues = {name: replace(queue, preemption=Preemption()) for name, queue in configuration.queues.items()}
    return replace(compiled, configuration=replace(configuration, queues=queues))


def _play(engine: Engine, now: int) -> _Played:
    """Passes until one decides nothing; what a pass evicts is gone before the next one and queues again."""
    played = _Played()
    for _ in range(PASSES):
        plan = engine.plan(now)
        played.note(plan)
        if not plan.evictions and not plan.admissions:
            played.settled = True
            break
        gone = [eviction.uid for eviction in plan.evictions]
        del plan  # what nobody holds is not put into words
        for uid in gone:
            engine.release(uid)
    played.waiting = engine.outlook()
    return played


def _never(rows: Collection[WorkloadRow], played: _Played, compiled: Compiled, live: Live) -> tuple[set[str], int]:
    """Who of those that wait could not start even with everything to itself; and how many different requests there were
    to try, of which only the first MOST_ALONE are tried."""
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
        elif waiting.for_good:
            never.add(row.uid)
    if undecided:
        alone = _Alone(compiled, live)
        for equal in list(undecided.values())[:MOST_ALONE]:
            if not alone.starts(equal[0]):
                never.update(row.uid for row in equal)
    return never, len(undecided)


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
