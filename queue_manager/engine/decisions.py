"""What a pass has decided so far: each decision is made on the state at once, noted for the plan, and taken back unseen
where a later one of the same pass needs that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from queue_manager.engine.configuration import checks_of
from queue_manager.engine.decision import (
    EVICTION_WORDS,
    Admission,
    Eviction,
    EvictionReason,
    Hold,
    Plan,
    Reason,
    Waiting,
)
from queue_manager.engine.explain import Explainer, kind_of
from queue_manager.engine.growing import grow, regrown
from queue_manager.engine.nominate import standing_of
from queue_manager.engine.nomination import Nomination, Victim
from queue_manager.engine.pending import Group, Parked
from queue_manager.engine.placing import pod_set_assignment
from queue_manager.engine.records import Phase, Planned, Record, Standing
from queue_manager.engine.scopes import Places
from queue_manager.engine.state import State
from queue_manager.engine.told import Told
from queue_manager.engine.tree import FUTURE, NOW, TreeNode

Before = tuple[Admission, Planned, Standing]
"""What a workload had before it grew in this pass."""


class Outcome(Enum):
    """What became of a head in a round: BLOCKED is a StrictFIFO head that was blocked before, too; RESUMES is one
    that goes on with its next flavor in the next round."""

    DECIDED = "decided"
    PARKED = "parked"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    RESUMES = "resumes"


class Decisions:
    """The decisions of one pass over a state.

    `changes` is how many there are, `admissions` those by uid. `trees` are where something was admitted or kept, until
    whoever reads it clears it. `round_number` is for the times of admission.
    """

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self._now = now
        self._holds = state.configuration.policies.hold_freed_quota
        self.round_number = 0
        self.changes = 0
        self.admissions: dict[str, Admission] = {}
        self.trees: set[TreeNode] = set()
        self._resizes: dict[str, Admission] = {}
        self._before: dict[str, Before] = {}
        self._evictions: list[Eviction] = []
        self._taken: dict[str, str] = {}
        self._to_tell: dict[str, Record] = {}

    def admit(self, nomination: Nomination, places: Places | None) -> None:
        """Admits a workload. The time of admission grows by a microsecond a round: who came later goes first."""
        record, assignment = nomination.record, nomination.assignment
        ask = assignment.prepared.ask
        queue = self._state.queue(record.workload.queue)
        pod_sets = tuple(
            pod_set_assignment(self._state, assignment, index, None if places is None else places.get(index))
            for index in range(len(ask.pod_sets))
        )
        flavors = frozenset(flavor for pod_set in pod_sets for flavor in pod_set.flavors.values())
        checks = checks_of(queue.queue, flavors)
        now = self._now + self.round_number
        admission = Admission(record.uid, queue.name, pod_sets, assignment.charge, now, checks=checks)
        planned = {ask.pod_sets[index].name: nodes for index, nodes in (places or {}).items()}
        if record.hold is not None and queue.strict:
            self._state.live.add(queue.name)  # those behind it waited for it
        if record.workload.resizes:
            self._grow(record, admission, standing_of(nomination, places), planned)
        else:
            self._state.admit(record, admission, standing_of(nomination, places), planned)
            self.admissions[record.uid] = admission
            if self._state.history is not None:
                self._state.history.start(queue.name, admission.charge)
        if queue.sticky == record.uid:
            self._state.log.assign(queue, "sticky", "")
        self._taken.pop(record.uid, None)
        self.changes += 1
        assert queue.node is not None
        self.trees.add(queue.node.root)

    def _grow(self, growth: Record, admission: Admission, standing: Standing, planned: Planned) -> None:
        """Gives a running workload what it lacked."""
        record = self._state.records[growth.workload.resizes]
        now = record.standing[NOW]
        assert record.admission is not None
        assert now is not None
        self._before.setdefault(record.uid, (record.admission, record.planned, now))
        grow(self._state, growth, admission, standing, planned)
        self._resizes[record.uid] = record.admission

    def _shrink_back(self, record: Record) -> None:
        """Takes back what a workload got in this very pass."""
        if self._resizes.pop(record.uid, None) is not None:
            admission, planned, standing = self._before.pop(record.uid)
            regrown(self._state, record, admission, planned)
            for view in (NOW, FUTURE):
                self._state.stand(record, view, standing)

    def keep_room(self, nomination: Nomination, places: Places | None) -> None:
        """Keeps quota and nodes for a workload that fits once others are gone."""
        record = nomination.record
        self._state.keep_room(record, nomination.assignment, standing_of(nomination, places))
        self._taken.pop(record.uid, None)
        self.changes += 1
        node = self._state.tree.queues[record.workload.queue]
        self.trees.add(node.root)

    def evict(self, victim: Victim, by: Record) -> Standing | None:
        """Evicts a victim. Room held for one is given up; an admission of this very pass is taken back unseen. Returns
        what a victim that runs has taken until now."""
        record = victim.record
        if record.uid not in self._state.records:
            return None  # what a workload lacked went with it
        self.changes += 1
        self._state.turns.note(record.uid, by.uid, victim.reason)
        self._taken[record.uid] = by.uid
        if record.hold is not None:
            self._state.drop_hold(record)
            return None
        if self._holds and (unseen := self.admissions.pop(record.uid, None)) is not None:
            if self._state.history is not None:
                self._state.history.start(unseen.queue, unseen.charge, -1)
            self._state.clear(record)
            self._state.enqueue(record)
            return None
        self._shrink_back(record)
        standing = record.standing[FUTURE]
        self._state.drain(record, by.uid)
        self._state.log.assign(record, "verdict", Reason.PENDING_EVALUATION)
        message = _message(victim, by)
        self._evictions.append(Eviction(record.uid, victim.reason, message, by.uid))
        return standing

    def stop(self, record: Record, reason: EvictionReason, message: str) -> None:
        """Evicts what runs in a queue that is stopped."""
        self._state.drain(record, "")
        self._evictions.append(Eviction(record.uid, reason, message))

    def park(self, nomination: Nomination, ahead: str = "") -> bool:
        """Does not try a head again until something changes; in a StrictFIFO queue it blocks the others. Says whether
        it did not block them before."""
        record, log = nomination.record, self._state.log
        queue = self._state.queue(record.workload.queue)
        parked = Parked(record.uid, record.workload.queued, nomination, ahead)
        if nomination.retry_at:
            log.put(self._state.retries, record.uid, nomination.retry_at)
        if queue.strict and not parked.limited:
            was_blocked = queue.blocked is not None and queue.blocked.uid == record.uid
            log.assign(queue, "blocked", parked)
            self._tell(queue.front)
            self._tell(record.uid)
            log.assign(queue, "front", record.uid)
            return not was_blocked
        if queue.sticky == record.uid:
            log.assign(queue, "sticky", "")
        group = record.group
        assert group is not None
        queue.pending.park(group, parked)
        self.tell_group(group, kind_of(parked))
        return True

    # ---- the pass as a whole

    def in_vain(self) -> list[str]:
        """Who evicted in this pass and got neither the room nor a promise of it. Order: uid."""
        records = (self._state.records.get(uid) for uid in sorted({eviction.by for eviction in self._evictions}))
        return [r.uid for r in records if r is not None and r.phase is Phase.WAITING and r.hold is None]

    def pass_on(self) -> None:
        """An eviction counts as made for whoever has taken the room from the one who evicted."""
        for index, eviction in enumerate(self._evictions):
            heirs = [eviction.by]
            while (heir := self._taken.get(heirs[-1])) is not None and heir not in heirs:
                heirs.append(heir)
            record, victim = self._state.records.get(heirs[-1]), self._state.records[eviction.uid]
            if len(heirs) > 1 and record is not None and record.standing[FUTURE] is not None:
                message = f"{eviction.message}; {record.workload.key} has taken the room over"
                self._evictions[index] = replace(eviction, by=record.uid, message=message)
                self._state.log.assign(victim, "evicted_by", record.uid)

    def plan(self, holds: tuple[Hold, ...], more: bool) -> Plan:
        """What was decided, with the holds for the starving; `more` as in `Plan`."""
        return Plan(
            self._now,
            self._state.configuration.revision,
            tuple(self.admissions.values()),
            tuple(self._evictions),
            self._report(),
            holds=holds,
            resizes=tuple(self._resizes.values()),
            more=more,
        )

    # ---- report

    def tell_group(self, group: Group, kind: tuple[object, ...]) -> None:
        """Tells all of a group why they wait if that is news."""
        if kind != group.told:
            self._state.log.assign(group, "told", kind)
            for _, uid in group.members:
                self._tell(uid)

    def _tell(self, uid: str) -> None:
        record = self._state.records.get(uid)
        if record is not None:
            self._to_tell[uid] = record

    def _report(self) -> Sequence[Waiting]:
        """Why workloads wait whose reason is another one than was last reported."""
        state = self._state
        if not (state.fresh or self._to_tell):
            return ()
        candidates = {**state.fresh, **self._to_tell}
        state.log.assign(state, "fresh", {})
        explainer = Explainer(state)
        news = []
        for record in candidates.values():
            if record.phase is not Phase.WAITING or record.held or record.uid not in state.records:
                continue
            kind = explainer.kind(record)
            if kind != record.reported:
                state.log.assign(record, "reported", kind)
                news.append(record)
        return Told(partial(_tell_all, explainer, news)) if news else ()


def _tell_all(explainer: Explainer, records: list[Record]) -> tuple[Waiting, ...]:
    records.sort(key=lambda r: (r.workload.queue, r.order))
    return tuple(explainer.tell(record) for record in records)


def _message(victim: Victim, by: Record) -> str:
    """What the user of a victim reads."""
    preemptor = by.workload
    of = f"{preemptor.key} of queue {preemptor.queue} (priority {preemptor.priority})"
    return f"preempted by {of}: {EVICTION_WORDS[victim.reason]}"
