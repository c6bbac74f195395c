"""A pass: rounds in memory, each with one head per queue as a cycle of Kueue has (kueue.md 2.4), until one changes
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from queue_manager.engine.configuration import PreemptionPolicy
from queue_manager.engine.decision import Plan
from queue_manager.engine.decisions import Decisions, Outcome
from queue_manager.engine.flavors import Mode
from queue_manager.engine.giving_way import give_way
from queue_manager.engine.guard import Guard
from queue_manager.engine.heads import Heads
from queue_manager.engine.keeper import Keeper
from queue_manager.engine.memory import next_flavors, remember_flavors, remember_reason
from queue_manager.engine.nominate import Nominator, standing_of
from queue_manager.engine.nomination import Nomination, Victim
from queue_manager.engine.order import ClassicalOrder, RoundOrder, TreeOrder
from queue_manager.engine.outside import drained_by
from queue_manager.engine.records import Phase, Record
from queue_manager.engine.reservations import Reservations
from queue_manager.engine.scopes import Misfit, Places
from queue_manager.engine.state import State
from queue_manager.engine.tree import FUTURE, NOW

MOST_RESUMED = 6
"""Rounds in a row in which heads only go on with their next flavor; two pod sets may take turns in that for ever."""
MOST_LOSSES = 2
"""How often a workload may have evicted in vain before it may not evict in a pass at all."""


class Look(NamedTuple):
    """How a nomination stands once its victims are gone: whether its quota is left and, if so, whether the nodes found
    for it are free."""

    quota: bool
    nodes: bool


class Pass:
    """One pass over a state. `losses`: how often a workload has evicted in vain when the pass was played before.
    `most`: after how many admissions there is no further round; None is no limit."""

    def __init__(self, state: State, now: int, losses: Mapping[str, int], most: int | None) -> None:
        self._state = state
        self._now = now
        self._keeper = Keeper(state)
        self._losses = losses
        self._most = most
        self._last = {uid for uid, times in losses.items() if times == 1}
        self._decisions = Decisions(state, now)
        self._heads = Heads(state, self._decisions)
        self._reservations = Reservations(state)
        self._resumed = 0
        self._holds = state.configuration.policies.hold_freed_quota
        self._order: RoundOrder = ClassicalOrder(())

    def run(self) -> None:
        """Plays rounds. Costs next to nothing when nothing was marked."""
        state = self._state
        if state.history is not None:
            state.history.advance(self._now)
        self._due()
        keeper = self._keeper
        if state.dirty or state.live or state.fresh or state.nodes_changed or state.to_stop or keeper.due():
            state.log.assign(state, "live", set(state.live))
            keeper.look()
            self._heads.wake()
            self._stop()
            give_way(state)
            if not state.not_ready:
                self._decide(keeper)
        if state.history is not None:
            state.history.observe()

    def in_vain(self) -> list[str]:
        """Who evicted in this pass and got neither the room nor a promise of it. Order: uid."""
        return self._decisions.in_vain() if self._holds else []

    def pass_on(self) -> None:
        """An eviction counts as made for whoever has taken the room from the one who evicted."""
        self._decisions.pass_on()

    def plan(self) -> Plan:
        """What was decided."""
        return self._decisions.plan(self._keeper.holds(), self._enough and bool(self._state.live))

    def _let_evict(self) -> bool:
        """Those who had evicted in vain may do so now that the others have come to rest; says if there are any."""
        again, self._last = self._last, set()
        for uid in sorted(again):
            self._heads.retry(uid)
        return bool(again)

    def _decide(self, keeper: Keeper) -> None:
        """All that may start or make room now: first those for whom room is kept, then in rounds."""
        if self._holds:
            self._claims()
        for nomination in keeper.before():
            if not self._full:
                self._decisions.admit(nomination, nomination.places)
        self._heads.wake()
        self._rounds()
        while keeper.after() or self._let_evict():
            self._heads.wake()
            self._rounds()
        self._heads.wake()

    # ---- before the rounds

    def _due(self) -> None:
        """Ends backoffs whose time has come."""
        due = [r for r in self._state.backoff.values() if r.workload.not_before <= self._now]
        retries = sorted(uid for uid, at in self._state.retries.items() if at <= self._now)
        if due or retries:
            self._state.log.assign(self._state, "live", set(self._state.live))
        for record in sorted(due, key=lambda r: r.order):
            self._state.log.drop(self._state.backoff, record.uid)
            self._state.log.put(self._state.fresh, record.uid, record)
            self._state.join(self._state.queue(record.workload.queue), record)
        for uid in retries:
            self._state.log.drop(self._state.retries, uid)
            self._heads.retry(uid)

    def _stop(self) -> None:
        """Evicts what runs in queues, local queues and on flavors that are stopped with HoldAndDrain."""
        state = self._state
        marked = sorted(state.to_stop)
        state.log.assign(state, "to_stop", set())
        for uid in marked:
            record = state.records.get(uid)
            standing = None if record is None else record.standing[FUTURE]
            if record is None or standing is None:
                continue
            why = drained_by(record.workload, standing.queue, standing.charge, state.configuration)
            if why is None:
                continue
            if record.hold is not None:
                state.drop_hold(record)
            else:
                self._decisions.stop(record, *why)

    def _claims(self) -> None:
        """First of all those for whom room is held, or who evicted something that still drains. Victims have a turn
        and no more: what one of them would take is for others whose turn comes before."""
        state = self._state
        for victim in sorted(state.holders.values(), key=lambda r: r.order):
            if victim.phase is Phase.DRAINING:
                state.stand_in_line(victim)
        claimants = dict(state.holders)
        for victim in state.draining.values():
            record = state.records.get(victim.evicted_by)
            if record is not None and record.group is not None:
                claimants[record.uid] = record
        for record in sorted(claimants.values(), key=lambda r: r.order):
            if not self._full:
                self._claim(record)

    def _claim(self, record: Record) -> None:
        """Starts a claimant if it fits now, else keeps room for it if waiting will do, else it is one of many again."""
        state = self._state
        queue = state.queue(record.workload.queue)
        held = record.hold
        if state.outside(record.workload) is not None:
            if held is not None:
                state.drop_hold(record)
            return
        mark = state.log.mark()
        if held is not None:
            state.stand(record, FUTURE, None)
        nominator = Nominator(state, record, state.prepare(record.workload, queue), preempt=False, heed=False)
        found = nominator.nominate()
        if held is not None and found.mode is not Mode.FIT:
            same = nominator.again(held)
            found = same if same is not None and same.mode is Mode.DEFERRED else found
        if found.mode is Mode.FIT and record.phase is Phase.WAITING:
            self._decisions.admit(found, found.places)
        elif found.mode in (Mode.FIT, Mode.DEFERRED):
            self._decisions.keep_room(found, found.places)
        elif held is not None:
            state.log.revert(mark)
            state.drop_hold(record)

    # ---- rounds

    @property
    def _full(self) -> bool:
        """Whether the gate is closed by an admission of this very pass."""
        return self._state.not_ready is not None and bool(self._decisions.admissions)

    @property
    def _enough(self) -> bool:
        """Whether this pass has admitted as many as it was asked for."""
        return self._most is not None and len(self._decisions.admissions) >= self._most

    def _rounds(self) -> None:
        while not (self._full or self._enough):
            self._decisions.round_number += 1
            before = self._decisions.changes
            progress = self._round()
            if self._full or self._enough:
                self._flush()
                return
            if not self._holds and self._decisions.changes != before:
                return
            self._heads.wake()
            if not progress and not self._flush():
                return

    def _round(self) -> bool:
        """One round; says whether anything was decided or parked."""
        policies = self._state.configuration.policies
        resumes = policies.resume_flavor_scan
        if resumes:
            self._state.log.assign(self._state, "rounds", self._state.rounds + 1)
        nominations = [self._nominate(record) for record in self._heads.of_round()]
        if not nominations:
            return False
        fair = self._state.configuration.fair_sharing is not None or self._state.history is not None
        self._order = TreeOrder(self._state, nominations) if fair else ClassicalOrder(nominations)
        before = self._decisions.changes
        skipped: list[Nomination] = []
        progress = False
        resumed = 0
        while not self._full and (nomination := self._order.next()) is not None:
            outcome = self._process(nomination, self._decisions.changes == before and not self._reservations)
            if outcome in (Outcome.SKIPPED, Outcome.RESUMES):
                skipped.append(nomination)
            progress = progress or outcome in (Outcome.DECIDED, Outcome.PARKED)
            if outcome is Outcome.DECIDED and self._holds:
                skipped += self._order.decided(self._lost)
            if outcome is Outcome.DECIDED and self._state.history is not None:
                self._follow(nomination)
            goes_on = outcome is Outcome.RESUMES or (outcome is Outcome.SKIPPED and next_flavors(nomination))
            if resumes and goes_on and self._resumed < MOST_RESUMED:
                resumed += 1
            if resumes:
                remember_flavors(self._state, nomination, outcome is Outcome.DECIDED)
            if not policies.present_reasons:
                remember_reason(self._state, nomination, outcome)
        self._resumed = self._resumed + 1 if resumed and not progress else 0
        passed_over = self._state.configuration.policies.pass_over and not (progress or resumed or self._full)
        for each in skipped if passed_over else ():
            self._decisions.park(each, self._reservations.last)
        self._reservations.end()
        return progress or resumed > 0 or (passed_over and bool(skipped))

    def _lost(self, nomination: Nomination) -> bool:
        """Whether others of this round took the quota that a nomination counts on."""
        tree = self._state.tree
        node = tree.queues[nomination.record.workload.queue]
        able = nomination.mode >= Mode.DEFERRED and not nomination.victims
        return able and not tree.fits(node, nomination.assignment.charge, FUTURE)

    def _follow(self, decided: Nomination) -> None:
        """With a history the next of the queue takes part at once: past usage tells queues apart only if a queue may
        have several turns before another one has its first."""
        queue = self._state.queue(decided.record.workload.queue)
        record = self._heads.of_queue(queue)
        if record is not None and queue.name in self._state.live:
            self._decisions.round_number += 1
            self._order.add(self._nominate(record))

    def _nominate(self, record: Record) -> Nomination:
        return self._nominator(record).nominate()

    def _flush(self) -> bool:
        """After the last round: who may reclaim is tried once more, since an admission may have made somebody a
        borrower."""
        roots, self._decisions.trees = self._decisions.trees, set()
        woken = False
        for root in roots:
            for queue in self._state.members.get(root, ()):
                assert queue.queue is not None
                if queue.queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
                    woken = self._heads.unpark(queue, topology_only=False) or woken
        return woken

    # ---- one head

    def _process(self, nomination: Nomination, untouched: bool) -> Outcome:
        """Decides about one head on the state that the heads before it left (kueue.md 2.4)."""
        if nomination.record.uid not in self._state.records or nomination.record.group is None:
            return Outcome.DECIDED  # the workload that wanted to grow was evicted; or one has its seat back from it
        look: Look | None = None
        if any(victim.record.standing[FUTURE] is None for victim in nomination.victims):
            again = self._nominator(nomination.record).again(nomination.assignment)
            if again is None or (again.mode < Mode.DEFERRED and not again.victims):
                return Outcome.SKIPPED
            nomination = again
        elif nomination.places and not untouched:
            look = self._look(nomination, untouched)
            if look.quota and not look.nodes:
                # Its nodes went to others of this round: it keeps its turn, with the same flavors.
                again = self._elsewhere(nomination)
                if again is None or any(victim.record.phase is Phase.DRAINING for victim in again.victims):
                    return Outcome.SKIPPED
                nomination, look = again, None
        if nomination.mode <= Mode.NO_CANDIDATES:
            if nomination.mode is Mode.NO_CANDIDATES:
                self._reservations.reserve(nomination)
            blocked = self._state.queue(nomination.record.workload.queue).blocked
            if self._state.configuration.policies.resume_flavor_scan and blocked is None and next_flavors(nomination):
                return Outcome.RESUMES
            return Outcome.PARKED if self._decisions.park(nomination) else Outcome.BLOCKED
        look = look or self._look(nomination, untouched)
        return Outcome.DECIDED if self._start(nomination, look) else Outcome.SKIPPED

    def _look(self, nomination: Nomination, untouched: bool) -> Look:
        """How a nomination stands now."""
        node = self._state.tree.queues[nomination.record.workload.queue]
        with self._without(nomination.victims):
            quota = self._state.tree.fits(node, nomination.assignment.charge, FUTURE)
            found = quota and nomination.places is not None
            return Look(quota, found and (untouched or self._still_placed(nomination)))

    @contextmanager
    def _without(self, victims: Sequence[Victim]) -> Iterator[None]:
        """The state as it is once victims are gone."""
        mark = self._state.log.mark()
        for victim in victims:
            self._state.stand(victim.record, FUTURE, None)
        try:
            yield
        finally:
            self._state.log.revert(mark)

    def _elsewhere(self, nomination: Nomination) -> Nomination | None:
        """A nomination with the same flavors on other nodes, as Kueue finds it: what is evicted in this round still
        stands."""
        state = self._state
        mark = state.log.mark()
        for record in sorted(state.draining.values(), key=lambda r: r.uid):
            state.stand(record, FUTURE, record.standing[NOW])
        again = self._nominator(nomination.record).again(nomination.assignment)
        state.log.revert(mark)
        return again

    def _still_placed(self, nomination: Nomination) -> bool:
        """Whether the nodes of a nomination are still free for it."""
        if nomination.places is None or nomination.scope is None:
            return nomination.places is None
        nominator, now = self._nominator(nomination.record), nomination.mode is Mode.FIT
        return nominator.still_placed(nomination.assignment, nomination.scope, nomination.places, now)

    def _nominator(self, record: Record) -> Nominator:
        assert record.group is not None
        evicts = record.uid not in self._last and self._losses.get(record.uid, 0) < MOST_LOSSES
        return Nominator(self._state, record, record.group.prepared, preempt=evicts)

    def _start(self, nomination: Nomination, look: Look) -> bool:
        """Starts a workload, or evicts for it and keeps the room; False if it does not fit any more."""
        state = self._state
        node = state.tree.queues[nomination.record.workload.queue]
        charge = nomination.assignment.charge
        if state.queue(node.name).limit_hit(nomination.record.workload, charge) is not None:
            return False
        if not look.quota:
            return False
        places: Places | Misfit | None = nomination.places
        with self._without(nomination.victims):
            if state.starving and not Guard(state, nomination.record).fits(charge):
                return False
            if not look.nodes:
                places = self._place(nomination, now=False)
        if isinstance(places, Misfit):
            return False
        for victim in nomination.victims:
            left = self._decisions.evict(victim, nomination.record)
            if left is not None and not self._holds:
                self._order.going(state.tree.queues[left.queue], left.charge)
        # Kueue starts what fitted at the start of its cycle and fits at the end, although victims are still there.
        at_once = nomination.mode is Mode.FIT and not self._holds
        gone = nomination.record.phase is Phase.WAITING
        if at_once or (gone and state.tree.fits(node, charge, NOW)):
            known = at_once or (look.nodes and nomination.mode is Mode.FIT)
            soon = places if known else self._place(nomination, now=True)
            if not isinstance(soon, Misfit):
                self._decisions.admit(nomination, soon)
                return True
        if self._holds:
            if gone and nomination.mode is Mode.FIT:
                return False  # what it fitted into went to others of this round; other flavors may be free now
            self._decisions.keep_room(nomination, places)
            return True
        return self._wait_for_victims(nomination, places)

    def _place(self, nomination: Nomination, now: bool) -> Places | Misfit | None:
        """Nodes for a nomination in the present state; None where nodes do not matter."""
        if nomination.scope is None:
            return None
        return self._nominator(nomination.record).placed(nomination.assignment, nomination.scope, now)

    def _wait_for_victims(self, nomination: Nomination, places: Places | None) -> bool:
        """Without holds, as in Kueue: the room is kept until the end of the round, then everybody may take it."""
        record = nomination.record
        standing = standing_of(nomination, places)
        self._reservations.keep(record.uid, standing)
        if nomination.victims:
            self._state.log.assign(self._state.queue(standing.queue), "sticky", record.uid)
        return bool(nomination.victims)
