"""A pass: rounds in memory, each with one head per queue as a cycle of Kueue has (kueue.md 2.4), until one changes
nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from queue_manager.engine.configuration import PreemptionPolicy, checks_of
from queue_manager.engine.decision import Admission, Eviction, EvictionReason, Plan, Reason, Waiting
from queue_manager.engine.explain import Explainer, kind_of
from queue_manager.engine.flavors import Mode
from queue_manager.engine.fleet import Occupancy
from queue_manager.engine.holds import Guard
from queue_manager.engine.keeper import Keeper
from queue_manager.engine.nominate import Nomination, Nominator
from queue_manager.engine.order import ClassicalOrder, RoundOrder, TreeOrder
from queue_manager.engine.outside import drained_by
from queue_manager.engine.pending import Group, Parked
from queue_manager.engine.placing import build_scope, occupancy_of, pod_set_assignment
from queue_manager.engine.preemption import Victim
from queue_manager.engine.reasons import kueue_reason_of
from queue_manager.engine.shelves import Chances
from queue_manager.engine.state import Phase, Planned, QueueState, Record, Standing, State
from queue_manager.engine.told import Told
from queue_manager.engine.topology import Misfit, Places, Scope
from queue_manager.engine.tree import FUTURE, NOW, Charge, TreeNode

MOST_RESUMED = 6
"""Rounds in a row in which heads only go on with their next flavor; two pod sets may take turns in that for ever."""
MOST_LOSSES = 2
"""How often a workload may have evicted in vain before it may not evict in a pass at all."""


class Outcome(Enum):
    """What became of a head in a round: BLOCKED is a StrictFIFO head that was blocked before, too; RESUMES is one
    that goes on with its next flavor in the next round."""

    DECIDED = "decided"
    PARKED = "parked"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    RESUMES = "resumes"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room kept until the end of a round for a head that cannot start."""

    node: TreeNode
    charge: Charge
    places: Occupancy
    uid: str


Before = tuple[Admission, Planned, Standing]
"""What a workload had before it grew in this pass."""


class Pass:
    """One pass over a state. `losses`: how often a workload has evicted in vain when the pass was played before."""

    def __init__(self, state: State, now: int, losses: Mapping[str, int]) -> None:
        self._state = state
        self._now = now
        self._keeper = Keeper(state)
        self._losses = losses
        self._last = {uid for uid, times in losses.items() if times == 1}
        self._round_number = 0
        self._admissions: dict[str, Admission] = {}
        self._resizes: dict[str, Admission] = {}
        self._before: dict[str, Before] = {}
        self._evictions: list[Eviction] = []
        self._taken: dict[str, str] = {}
        self._reservations: list[Reservation] = []
        self._unflushed: set[TreeNode] = set()
        self._to_tell: dict[str, Record] = {}
        self._changes = 0
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
            self._wake()
            self._stop()
            if not state.not_ready:
                self._decide(keeper)
        if state.history is not None:
            state.history.observe()

    def _let_evict(self) -> bool:
        """Those who had evicted in vain may do so now that the others have come to rest; says if there are any."""
        again, self._last = self._last, set()
        for uid in sorted(again):
            self._retry(uid)
        return bool(again)

    def in_vain(self) -> list[str]:
        """Who evicted in this pass and got neither the room nor a promise of it. Order: uid."""
        if not self._holds:
            return []
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

    def plan(self) -> Plan:
        """What was decided."""
        return Plan(
            self._now,
            self._state.configuration.revision,
            tuple(self._admissions.values()),
            tuple(self._evictions),
            self._report(),
            holds=self._keeper.holds(),
            resizes=tuple(self._resizes.values()),
        )

    def _decide(self, keeper: Keeper) -> None:
        """All that may start or make room now: first those for whom room is kept, then in rounds."""
        if self._holds:
            self._claims()
        for nomination in keeper.before():
            if not self._full:
                self._admit(nomination, nomination.places)
        self._wake()
        self._rounds()
        while keeper.after() or self._let_evict():
            self._wake()
            self._rounds()
        self._wake()

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
            self._retry(uid)

    def _retry(self, uid: str) -> None:
        """Tries a workload again whose possible victims are no longer protected."""
        record = self._state.records.get(uid)
        if record is None or record.group is None:
            return
        queue = self._state.queue(record.workload.queue)
        if queue.blocked is not None and queue.blocked.uid == uid:
            self._state.log.assign(queue, "blocked", None)
        queue.pending.unpark(record.group)
        self._state.live.add(queue.name)

    def _wake(self) -> None:
        """Makes everything live that waits for what was marked as changed."""
        state = self._state
        for root in state.dirty:
            for queue in state.members.get(root, ()):
                self._unpark(queue, topology_only=False)
        if state.nodes_changed:
            for queue in state.queues.values():
                self._unpark(queue, topology_only=True)
        state.log.assign(state, "dirty", set())
        state.log.assign(state, "nodes_changed", False)

    def _unpark(self, queue: QueueState, topology_only: bool) -> bool:
        """Tries the parked of a queue again, `topology_only` those that nodes stood in the way of; says if any."""
        blocked = queue.blocked
        if blocked is not None and (blocked.topology or not topology_only):
            self._state.log.assign(queue, "blocked", None)
        woken = blocked is not None and queue.blocked is None
        for group in list(queue.pending.parked.values()):
            if group.parked is not None and (group.parked.topology or not topology_only):
                if self._hopeless(queue, group.parked):
                    continue
                queue.pending.unpark(group)
                woken = True
        if woken or queue.pending.shelves:
            self._state.live.add(queue.name)
        return woken

    def _hopeless(self, queue: QueueState, parked: Parked) -> bool:
        """Whether something that a group needs still fits in no flavor, so that trying it again is no use.

        Only for queues that never preempt: others need the search to know. Not for Kueue's semantics, where every
        parked workload is tried again and stands in others' way while it is.
        """
        if parked.limited:
            return self._over_limit(queue, parked.nomination)
        if not self._holds or parked.ahead or queue.may_preempt or queue.node is None:
            return False
        prepared = parked.nomination.assignment.prepared
        return prepared.unusable or Chances(queue.node).lack_of(prepared) is not None

    @staticmethod
    def _over_limit(queue: QueueState, nomination: Nomination) -> bool:
        """Whether starting it would exceed a limit of its queue apart from quota."""
        if queue.tally is None:
            return False
        return queue.tally.hit(queue.limits, nomination.record.workload, nomination.assignment.charge) is not None

    def _stop(self) -> None:
        """Evicts what runs in queues and local queues that are stopped with HoldAndDrain."""
        state = self._state
        marked = sorted(state.to_stop)
        state.log.assign(state, "to_stop", set())
        for uid in marked:
            record = state.records.get(uid)
            standing = None if record is None else record.standing[FUTURE]
            if record is None or standing is None:
                continue
            why = drained_by(record.workload, standing.queue, state.configuration)
            if why is None:
                continue
            if record.hold is not None:
                state.drop_hold(record)
            else:
                state.drain(record, "")
                self._evictions.append(Eviction(record.uid, *why))

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
            self._admit(found, found.places)
        elif found.mode in (Mode.FIT, Mode.DEFERRED):
            self._keep_room(found, found.places)
        elif held is not None:
            state.log.revert(mark)
            state.drop_hold(record)

    # ---- rounds

    @property
    def _full(self) -> bool:
        """Whether the gate is closed by an admission of this very pass."""
        return self._state.not_ready is not None and bool(self._admissions)

    def _rounds(self) -> None:
        while not self._full:
            self._round_number += 1
            before = self._changes
            progress = self._round()
            if self._full:
                self._flush()
                return
            if not self._holds and self._changes != before:
                return
            self._wake()
            if not progress and not self._flush():
                return

    def _round(self) -> bool:
        """One round; says whether anything was decided or parked."""
        policies = self._state.configuration.policies
        resumes = policies.resume_flavor_scan
        if resumes:
            self._state.log.assign(self._state, "rounds", self._state.rounds + 1)
        nominations = self._nominations()
        if not nominations:
            return False
        fair = self._state.configuration.fair_sharing is not None or self._state.history is not None
        self._order = TreeOrder(self._state, nominations) if fair else ClassicalOrder(nominations)
        self._reservations = []
        before = self._changes
        skipped: list[Nomination] = []
        progress = False
        resumed = 0
        while not self._full and (nomination := self._order.next()) is not None:
            outcome = self._process(nomination, self._changes == before and not self._reservations)
            if outcome in (Outcome.SKIPPED, Outcome.RESUMES):
                skipped.append(nomination)
            progress = progress or outcome in (Outcome.DECIDED, Outcome.PARKED)
            if outcome is Outcome.DECIDED and self._holds:
                skipped += self._order.decided(self._lost)
            if outcome is Outcome.DECIDED and self._state.history is not None:
                self._follow(nomination)
            goes_on = outcome is Outcome.RESUMES or (outcome is Outcome.SKIPPED and _next_flavors(nomination))
            if resumes and goes_on and self._resumed < MOST_RESUMED:
                resumed += 1
            if resumes:
                self._remember_flavors(nomination, outcome)
            if not policies.present_reasons:
                self._remember_reason(nomination, outcome)
        self._resumed = self._resumed + 1 if resumed and not progress else 0
        passed_over = self._state.configuration.policies.pass_over and not (progress or resumed or self._full)
        for each in skipped if passed_over else ():
            self._park(each, self._reservations[-1].uid if self._reservations else "")
        self._end_reservations()
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
        record = self._head(queue)
        if record is not None and queue.name in self._state.live:
            self._round_number += 1
            self._order.add(self._nominate(record))

    def _nominations(self) -> list[Nomination]:
        """Heads of live queues, with the blocked heads of StrictFIFO queues in the same trees."""
        state = self._state
        heads: list[Record] = []
        roots: dict[str, TreeNode] = {}
        for name in sorted(state.live):
            queue = state.queue(name)
            record = self._head(queue)
            if record is None or queue.node is None:
                state.live.discard(name)
                continue
            heads.append(record)
            roots[queue.node.root.path] = queue.node.root
        if heads and not self._holds:  # in Kueue a StrictFIFO head is tried in every cycle, whatever its tree is
            roots = {queue.node.root.path: queue.node.root for queue in state.queues.values() if queue.node is not None}
        for _, root in sorted(roots.items()):
            for queue in state.members[root]:
                if queue.blocked is not None and queue.name not in state.live:
                    first = queue.pending.first()
                    if first == queue.blocked.uid:
                        heads.append(state.records[first])
        return [self._nominate(record) for record in heads]

    def _nominate(self, record: Record) -> Nomination:
        return self._nominator(record).nominate()

    def _head(self, queue: QueueState) -> Record | None:
        """Who is tried next in a queue; None if nobody is."""
        records = self._state.records
        if not queue.strict:
            sticky = records.get(queue.sticky)
            if sticky is not None and sticky.group is not None and sticky.group.parked is None:
                return sticky
            group = self._promising(queue) if self._shelves(queue) else queue.pending.head()
            return None if group is None else records[group.first]
        first = queue.pending.first()
        if not first:
            return None
        record = records[first]
        holders = self._state.holders_of(queue)
        if holders and holders[0].order < record.order:
            return None
        return None if queue.blocked is not None and queue.blocked.uid == record.uid else record

    def _shelves(self, queue: QueueState) -> bool:
        """Whether groups without a chance are passed over at once. Not for Kueue's semantics, where each has its turn
        and stands in others' way meanwhile, and not where limits apart from quota come first."""
        return self._holds and queue.tally is None and not queue.strict

    def _promising(self, queue: QueueState) -> Group | None:
        """Who is tried next; those before without a chance go to a shelf."""
        node = queue.node
        assert node is not None
        opened, chances = queue.pending.opened(node), Chances(node)
        while (group := queue.pending.best(opened)) is not None:
            evicts = queue.may_preempt and self._state.records[group.first].workload.may_preempt
            if evicts:
                lack = None
            elif (known := group.before) is not None and not known.is_open(node):
                lack = known.lack
            else:
                lack = chances.lack_of(group.prepared)
            if lack is None:
                queue.pending.unshelve(group)
                return group
            queue.pending.shelve(group, lack, node)
            assert group.shelf is not None
            self._tell_group(group, group.shelf.kind)
        return None

    def _tell_group(self, group: Group, kind: tuple[object, ...]) -> None:
        """Tells all of a group why they wait if that is news."""
        if kind != group.told:
            self._state.log.assign(group, "told", kind)
            for _, uid in group.members:
                self._tell(uid)

    def _flush(self) -> bool:
        """After the last round: who may reclaim is tried once more, since an admission may have made somebody a
        borrower."""
        roots, self._unflushed = self._unflushed, set()
        woken = False
        for root in roots:
            for queue in self._state.members.get(root, ()):
                assert queue.queue is not None
                if queue.queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
                    woken = self._unpark(queue, topology_only=False) or woken
        return woken

    # ---- one head

    def _process(self, nomination: Nomination, untouched: bool) -> Outcome:
        """Decides about one head on the state that the heads before it left (kueue.md 2.4)."""
        if nomination.record.uid not in self._state.records:
            return Outcome.DECIDED  # the workload that wanted to grow was evicted
        overlap = any(victim.record.standing[FUTURE] is None for victim in nomination.victims)
        if overlap:
            again = self._nominator(nomination.record).again(nomination.assignment)
            if again is None or (again.mode < Mode.DEFERRED and not again.victims):
                return Outcome.SKIPPED
            nomination = again
        elif self._displaced(nomination, untouched):
            again = self._elsewhere(nomination)
            if again is None or any(victim.record.phase is Phase.DRAINING for victim in again.victims):
                return Outcome.SKIPPED
            nomination = again
        if nomination.mode <= Mode.NO_CANDIDATES:
            if nomination.mode is Mode.NO_CANDIDATES:
                self._reserve(nomination)
            blocked = self._state.queue(nomination.record.workload.queue).blocked
            if self._state.configuration.policies.resume_flavor_scan and blocked is None and _next_flavors(nomination):
                return Outcome.RESUMES
            return self._park(nomination)
        return Outcome.DECIDED if self._start(nomination, untouched) else Outcome.SKIPPED

    def _displaced(self, nomination: Nomination, untouched: bool) -> bool:
        """Whether quota is left for a nomination, but its nodes went to others of this round.

        The search is then made anew with the same flavors, so that nobody behind it comes first.
        """
        if untouched or not nomination.places:
            return False
        state = self._state
        mark = state.log.mark()
        for victim in nomination.victims:
            state.stand(victim.record, FUTURE, None)
        node = state.tree.queues[nomination.record.workload.queue]
        quota = state.tree.fits(node, nomination.assignment.charge, FUTURE)
        moved = quota and not self._still_placed(nomination)
        state.log.revert(mark)
        return moved

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
        scope = build_scope(self._state, nomination.assignment)
        if nomination.places is None or not isinstance(scope, Scope):
            return nomination.places is None
        nominator = self._nominator(nomination.record)
        return nominator.still_placed(nomination.assignment, scope, nomination.places, now=nomination.mode is Mode.FIT)

    def _remember_flavors(self, nomination: Nomination, outcome: Outcome) -> None:
        """Where to go on next time; from the first flavor after evictions, or when all were tried."""
        decided = outcome is Outcome.DECIDED or nomination.mode is Mode.DEFERRED
        record, state = nomination.record, self._state
        state.log.assign(record, "resume", {} if decided else _next_flavors(nomination))
        departures = state.queue(record.workload.queue).departures
        state.log.assign(record, "resume_of", (state.rounds, departures))

    def _remember_reason(self, nomination: Nomination, outcome: Outcome) -> None:
        """Keeps the reason found for a head, and for those of its shape that have none (kueue.md 2.3, equal hash)."""
        record, log = nomination.record, self._state.log
        if nomination.mode is Mode.DEFERRED or (nomination.victims and outcome is Outcome.DECIDED):
            reason = Reason.WAITING_FOR_PREEMPTED_WORKLOADS
        else:
            reason = Reason.WAITING_FOR_QUOTA if outcome is Outcome.SKIPPED else kueue_reason_of(nomination)
        log.assign(record, "verdict", reason)
        if outcome is Outcome.PARKED and record.group is not None and record.group.parked is not None:
            for _, uid in record.group.members:
                other = self._state.records[uid]
                if other.verdict is None:
                    log.assign(other, "verdict", reason)

    def _nominator(self, record: Record) -> Nominator:
        assert record.group is not None
        evicts = record.uid not in self._last and self._losses.get(record.uid, 0) < MOST_LOSSES
        return Nominator(self._state, record, record.group.prepared, preempt=evicts)

    def _start(self, nomination: Nomination, untouched: bool) -> bool:
        """Starts a workload, or evicts for it and keeps the room; False if it does not fit any more."""
        state = self._state
        node = state.tree.queues[nomination.record.workload.queue]
        charge = nomination.assignment.charge
        if self._over_limit(state.queue(node.name), nomination):
            return False
        mark = state.log.mark()
        for victim in nomination.victims:
            state.stand(victim.record, FUTURE, None)
        fits = state.tree.fits(node, charge, FUTURE)
        fits = fits and (not state.starving or Guard(state, nomination.record).fits(charge))
        places = nomination.places
        same = fits and places is not None and (untouched or self._still_placed(nomination))
        if fits and not same:
            later = self._place(nomination, now=False)
            fits = not isinstance(later, Misfit)
            places = None if isinstance(later, Misfit) else later
        state.log.revert(mark)
        if not fits:
            return False
        for victim in nomination.victims:
            self._evict(victim, nomination.record)
        # Kueue starts what fitted at the start of its cycle and fits at the end, although victims are still there.
        at_once = nomination.mode is Mode.FIT and not self._holds
        gone = nomination.record.phase is Phase.WAITING
        if at_once or (gone and state.tree.fits(node, charge, NOW)):
            known = at_once or (same and nomination.mode is Mode.FIT)
            soon = places if known else self._place(nomination, now=True)
            if not isinstance(soon, Misfit):
                self._admit(nomination, soon)
                return True
        if self._holds:
            self._keep_room(nomination, places)
            return True
        return self._wait_for_victims(nomination, places)

    def _place(self, nomination: Nomination, now: bool) -> Places | Misfit | None:
        """Nodes for a nomination in the present state; None where nodes do not matter."""
        scope = build_scope(self._state, nomination.assignment)
        if scope is None or isinstance(scope, Misfit):
            return scope
        return self._nominator(nomination.record).placed(nomination.assignment, scope, now)

    def _wait_for_victims(self, nomination: Nomination, places: Places | None) -> bool:
        """Without holds, as in Kueue: the room is kept until the end of the round, then everybody may take it."""
        record = nomination.record
        standing = self._standing(nomination, places)
        node = self._state.tree.queues[standing.queue]
        self._keep_for_round(Reservation(node, standing.charge, standing.places, record.uid))
        if nomination.victims:
            self._state.log.assign(self._state.queue(standing.queue), "sticky", record.uid)
        return bool(nomination.victims)

    def _reserve(self, nomination: Nomination) -> None:
        """Keeps what a blocked head waits for from the heads after it, unless it can reclaim it anyway (kueue.md
        2.4, 5)."""
        queue = self._state.queue(nomination.record.workload.queue)
        assert queue.queue is not None
        assert queue.node is not None
        if queue.queue.preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        charge = {}
        for cell, amount in nomination.assignment.charge.items():
            quota = queue.node.quotas.get(cell)
            left = queue.node.nominal(cell) - queue.node.usage[FUTURE].get(cell, 0)
            if nomination.level > 0:
                limit = None if quota is None else quota.borrowing_limit
                charge[cell] = amount if limit is None else max(0, min(amount, left + limit))
            else:
                charge[cell] = max(0, min(amount, left))
        places = occupancy_of(nomination.assignment.prepared.ask, nomination.reserve or {})
        self._keep_for_round(Reservation(queue.node, charge, places, nomination.record.uid))

    def _keep_for_round(self, reservation: Reservation) -> None:
        self._state.tree.add(reservation.node, reservation.charge, FUTURE)
        self._state.fleet.occupy(reservation.places, FUTURE)
        self._reservations.append(reservation)

    def _end_reservations(self) -> None:
        for reservation in self._reservations:
            self._state.tree.remove(reservation.node, reservation.charge, FUTURE)
            self._state.fleet.vacate(reservation.places, FUTURE)
        self._reservations = []

    # ---- decisions

    def _standing(self, nomination: Nomination, places: Places | None) -> Standing:
        assignment = nomination.assignment
        occupancy = occupancy_of(assignment.prepared.ask, places) if places else {}
        return Standing(nomination.record.workload.queue, assignment.charge, occupancy)

    def _admit(self, nomination: Nomination, places: Places | None) -> None:
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
        now = self._now + self._round_number
        admission = Admission(record.uid, queue.name, pod_sets, assignment.charge, now, checks=checks)
        planned = {ask.pod_sets[index].name: nodes for index, nodes in (places or {}).items()}
        if record.hold is not None and queue.strict:
            self._state.live.add(queue.name)  # those behind it waited for it
        if record.workload.resizes:
            self._grow(record, admission, self._standing(nomination, places), planned)
        else:
            self._state.admit(record, admission, self._standing(nomination, places), planned)
            self._admissions[record.uid] = admission
            if self._state.history is not None:
                self._state.history.start(queue.name, admission.charge)
        if queue.sticky == record.uid:
            self._state.log.assign(queue, "sticky", "")
        self._taken.pop(record.uid, None)
        self._changes += 1
        assert queue.node is not None
        self._unflushed.add(queue.node.root)

    def _grow(self, growth: Record, admission: Admission, standing: Standing, planned: Planned) -> None:
        """Gives a running workload what it lacked."""
        record = self._state.records[growth.workload.resizes]
        now = record.standing[NOW]
        assert record.admission is not None
        assert now is not None
        self._before.setdefault(record.uid, (record.admission, record.planned, now))
        self._state.grow(growth, admission, standing, planned)
        self._resizes[record.uid] = record.admission

    def _shrink_back(self, record: Record) -> None:
        """Takes back what a workload got in this very pass."""
        if self._resizes.pop(record.uid, None) is not None:
            admission, planned, standing = self._before.pop(record.uid)
            self._state.regrown(record, admission, planned)
            for view in (NOW, FUTURE):
                self._state.stand(record, view, standing)

    def _keep_room(self, nomination: Nomination, places: Places | None) -> None:
        record = nomination.record
        self._state.keep_room(record, nomination.assignment, self._standing(nomination, places))
        self._taken.pop(record.uid, None)
        self._changes += 1
        node = self._state.tree.queues[record.workload.queue]
        self._unflushed.add(node.root)

    def _evict(self, victim: Victim, by: Record) -> None:
        """Evicts a victim. Room held for one is given up; an admission of this very pass is taken back unseen."""
        record = victim.record
        if record.uid not in self._state.records:
            return  # what a workload lacked went with it
        self._changes += 1
        self._state.turns.note(record.uid, by.uid, victim.reason)
        self._taken[record.uid] = by.uid
        if record.hold is not None:
            self._state.drop_hold(record)
        elif self._holds and (unseen := self._admissions.pop(record.uid, None)) is not None:
            if self._state.history is not None:
                self._state.history.start(unseen.queue, unseen.charge, -1)
            self._state.clear(record)
            self._state.enqueue(record)
        else:
            self._shrink_back(record)
            standing = record.standing[FUTURE]
            if not self._holds and standing is not None:
                self._order.going(self._state.tree.queues[standing.queue], standing.charge)
            self._state.drain(record, by.uid)
            self._state.log.assign(record, "verdict", Reason.PENDING_EVALUATION)
            message = _message(victim, by)
            self._evictions.append(Eviction(record.uid, victim.reason, message, by.uid))

    def _park(self, nomination: Nomination, ahead: str = "") -> Outcome:
        """Does not try a head again until something changes; in a StrictFIFO queue it blocks the others."""
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
            return Outcome.BLOCKED if was_blocked else Outcome.PARKED
        if queue.sticky == record.uid:
            log.assign(queue, "sticky", "")
        group = record.group
        assert group is not None
        queue.pending.park(group, parked)
        self._tell_group(group, kind_of(parked))
        return Outcome.PARKED

    # ---- report

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


def _next_flavors(nomination: Nomination) -> dict[int, int]:
    """The flavor after the last one tried, by index of need, where the search stopped early; not of pod sets from the
    first one on that no flavor can take."""
    failed = nomination.assignment.failed_unit
    return {
        i: choice.tried + 1
        for i, choice in enumerate(nomination.assignment.choices)
        if choice.untried and (failed is None or choice.need.unit < failed)
    }


def _message(victim: Victim, by: Record) -> str:
    """What the user of a victim reads."""
    what = {
        EvictionReason.IN_CLUSTER_QUEUE: f"which goes first in queue {by.workload.queue}",
        EvictionReason.IN_COHORT_RECLAMATION: f"queue {by.workload.queue} takes back quota that was borrowed",
        EvictionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: f"queue {by.workload.queue} needs it for a higher priority",
        EvictionReason.IN_COHORT_FAIR_SHARING: f"queue {by.workload.queue} is further below its fair share",
    }[victim.reason]
    return f"preempted by {by.workload.key} (priority {by.workload.priority}): {what}"
