"""Rows of the store as the rest of the program sees them. Times are timezone-aware UTC, amounts integer base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission
from queue_manager.engine.workload import PodGroup, TopologyRequest


class State(StrEnum):
    """State of a workload (design, section 6). Charged are `reserved`, `starting`, `running` and `draining`."""

    WAITING = "waiting"
    RESERVED = "reserved"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"
    FAILED = "failed"
    DEACTIVATED = "deactivated"


ENDED = frozenset({State.FINISHED, State.FAILED})
CHARGED = frozenset({State.RESERVED, State.STARTING, State.RUNNING, State.DRAINING})


class LedgerState(StrEnum):
    """What an interval of the ledger says about an amount. `reclaimed-loan` is not charged: finished pods lent it."""

    RESERVED = "reserved"
    DRAINING = "draining"
    RECLAIMED_LOAN = "reclaimed-loan"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`amount` of `cell` in `state`, from the commit that brings it until the one that replaces it."""

    cell: Cell
    amount: int
    state: LedgerState


class CheckState(StrEnum):
    """What a check says of a workload; Pending is a check without an answer (names as in Kueue)."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The answer of one check. `retries` counts its Retry answers, `requeue_after` are the seconds that the last asked
    for (None: the backoff of the settings)."""

    name: str
    state: CheckState
    message: str = ""
    at: datetime
    who: str = ""
    retries: int = 0
    requeue_after: int | None = None


@dataclass(frozen=True, slots=True)
class Relabel:
    """A label that goes with what was decided of a row and has yet to be written on its object: `before` is what the
    object says ("" nothing), `after` what it is to say."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRow:
    """One admission of a workload, numbered by `attempt` from 1. `ended_at` is set when its pods were gone.

    `admitted_at` is when its quota was reserved, `checked_at` when all its checks were ready (None without checks).
    `ready_at` is when all pods were ready first, `unready_at` since when some are not again. `unplaced_at` is since
    when some of its pods have no node: theirs was lost, and there is no other one. `underlying` is the finer cause of
    an eviction, where there is one (WaitForStart, RequeuingLimitExceeded ...).
    """

    attempt: int
    admission: Admission
    admitted_at: datetime
    checked_at: datetime | None = None
    started_at: datetime | None = None
    ready_at: datetime | None = None
    unready_at: datetime | None = None
    unplaced_at: datetime | None = None
    evicted_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str = ""
    underlying: str = ""
    cause_message: str = ""
    by: str = ""

    @property
    def begun_at(self) -> datetime:
        """When it might start: time to get ready and run time count from here."""
        return self.checked_at or self.admitted_at


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """One job object, by uid. `version` is the row's version when read; 0 when the row is new.

    `local_queue` is what its label says, `queue` the queue that means ("" when there is none). `after_drain` is the
    state it takes when the last pod is gone. `inputs` are uids and generations of the objects its pod sets were read
    from. `admission` is the open admission, None while nothing is charged.

    `requeues` counts the evictions that made it back off; `requeued_at` is the eviction that counts for its place in
    the queue, None where its creation does. `max_run_time` and `past_run_time` (of admissions that are over) are in
    microseconds. `checks` are the answers of checks, by name. `relabels` are labels that its object has yet to get:
    until then the row counts as if they were written (docs/decisions/0009). `emptied_at` is since when a group of plain
    pods that was stopped has had no pod.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    created_at: datetime
    state: State
    local_queue: str = ""
    queue: str = ""
    priority: int = 0
    priority_class: str = ""
    may_preempt: bool = True
    preemptible: bool = True
    user: str = ""
    groups: tuple[str, ...] = ()
    after_drain: State | None = None
    reason: str = ""
    message: str = ""
    attempt: int = 0
    not_before: datetime | None = None
    requeues: int = 0
    requeued_at: datetime | None = None
    max_run_time: int | None = None
    past_run_time: int = 0
    checks: tuple[Check, ...] = ()
    relabels: tuple[Relabel, ...] = ()
    emptied_at: datetime | None = None
    finished_at: datetime | None = None
    pod_groups: tuple[PodGroup, ...] = ()
    topology: TopologyRequest | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    admission: AdmissionRow | None = None
    version: int = 0

    @property
    def explained(self) -> bool:
        """Whether an explanation is kept for it: it waits, or runs and waits for more pods."""
        return is_explained(self.state, self.reason)


def is_explained(state: str, reason: str) -> bool:
    """Whether an explanation is kept for a row of this state and reason."""
    return state in (State.WAITING, State.HELD) or (state == State.RUNNING and bool(reason))


class Action(StrEnum):
    """What an outbox row asks of the executors. `sync` brings the job object in line with the row, `relabel` its
    labels; both are idempotent. `annotate` is of older versions."""

    SYNC = "sync"
    EVENT = "event"
    ANNOTATE = "annotate"
    RELABEL = "relabel"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """Something to do at the API server, written in the transaction that decided it. `id` is 0 before it is stored."""

    uid: str
    action: Action
    payload: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0
    tries: int = 0
    last_error: str = ""
    created_at: datetime | None = None
    not_before: datetime | None = None


class FailedTry(NamedTuple):
    """A try of the entry with this id that failed; the next one comes at `not_before`."""

    id: int
    error: str
    not_before: datetime


class Wish(StrEnum):
    """What a person asks of a workload."""

    HOLD = "hold"
    RELEASE = "release"
    CHECK = "check"
    MOVE = "move"
    REPRIORITISE = "reprioritise"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A wish that the leader has yet to carry out, with who asked for it, when and why."""

    id: int
    uid: str
    wish: Wish
    arguments: Mapping[str, Any] = field(default_factory=dict)
    who: str
    reason: str = ""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One workload's part of a commit.

    `row` is the row as it shall be; its `version` is the one that was read, and the change is lost when the stored
    version differs. `ledger` None leaves the ledger alone; otherwise open intervals that it lacks end now, new ones
    begin now and equal ones go on. `explanation` is JSON of the API's shape; None deletes it when `row` is neither
    waiting nor held, nor running with a reason (it waits for more pods). `request_changed` rewrites pod groups and pod
    sets. `reads` are (uid, version) of other rows it depends on: it is lost too when one of them moved, or its own
    change in the same commit is lost (an admission that needs a victim to go). `instructions` are ids of those it
    carries out: they are done with it. `refusals` are (id, why) of those among them that are not carried out.
    """

    row: WorkloadRow
    ledger: tuple[LedgerEntry, ...] | None = None
    outbox: tuple[OutboxEntry, ...] = ()
    explanation: Mapping[str, Any] | None = None
    request_changed: bool = False
    reads: tuple[tuple[str, int], ...] = ()
    instructions: tuple[int, ...] = ()
    refusals: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """`versions` of the rows that won, `lost` uids of those to be read and decided again, outbox rows with ids."""

    versions: Mapping[str, int]
    lost: frozenset[str]
    outbox: tuple[OutboxEntry, ...]


class StaleEpoch(Exception):
    """Another process leads: this one must stop deciding."""


class StaleConfiguration(Exception):
    """The configuration has a newer revision than the commit was decided by."""


@dataclass(frozen=True, slots=True)
class ConfigObject:
    """One configuration object as people wrote it. `namespace` is "" except for LocalQueue."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Revision:
    """A configuration change; `diff` lists {kind, namespace, name, before, after}."""

    number: int
    author: str
    at: datetime
    reason: str
    diff: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and what pods that we do not manage use on it (base units)."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    allocatable: Mapping[str, int]
    foreign: Mapping[str, int]
    ready: bool
    unschedulable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFilter:
    """What a list of workloads selects; empty fields select all. `queues` are queue names (a cohort is its queues)."""

    queues: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    user: str = ""
    kind: str = ""
    namespace: str = ""
    text: str = ""
