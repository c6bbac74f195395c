"""What one workload could get right now: flavors, nodes and, if need be, victims."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.engine.clearing import cheapest
from queue_manager.engine.configuration import Cell, FlavorFungibility
from queue_manager.engine.fair_preemption import FairPreemptionSearch
from queue_manager.engine.flavors import Assignment, Banned, FlavorAssigner, Mode
from queue_manager.engine.guard import Guard
from queue_manager.engine.holds import StarvingHold
from queue_manager.engine.limits import LimitHit
from queue_manager.engine.nomination import Nomination, Victim, usable
from queue_manager.engine.placing import alone_of, build_scope, find_places, occupancy_of, still_holds
from queue_manager.engine.preemption import PreemptionSearch
from queue_manager.engine.prepared import Prepared
from queue_manager.engine.records import Phase, Record, Standing
from queue_manager.engine.scopes import Misfit, Places, Scope
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE, NOW, Charge


class Nominator:
    """Nominates one workload in its queue. Leaves the state as it was."""

    def __init__(
        self,
        state: State,
        record: Record,
        prepared: Prepared,
        *,
        preempt: bool = True,
        placing: bool = True,
        limits: bool = True,
        heed: bool = True,
    ) -> None:
        """Without `placing` nodes do not matter, without `limits` quota alone does, without `heed` holds for others who
        waited too long are ignored."""
        queue = state.queues[record.workload.queue]
        assert queue.queue is not None
        assert queue.node is not None
        self._state = state
        self._record = record
        self._prepared = prepared
        self._queue = queue.queue
        self._node = queue.node
        self._limited = queue if limits else None
        self._placing = placing
        self._different = bool(state.draining or state.holders)
        self._guard = Guard(state, record) if heed and state.starving else None
        fair, own = state.configuration.fair_sharing is not None, state.own_charge(record)
        policies = state.configuration.policies
        waits = record.phase is Phase.WAITING  # a victim evicts nobody before it is gone itself
        self._preempts = preempt and record.workload.may_preempt and queue.may_preempt and waits
        self._assigner = FlavorAssigner(
            queue.node,
            queue.queue,
            self._oracle,
            draining=self._different,
            fair=fair,
            own=own,
            fit_by_rank=policies.fit_by_rank,
            first_fit=policies.hold_freed_quota and not self._preempts,
            guard=self._guard,
            known=record.group.known if record.group is not None and record.group.prepared is prepared else None,
        )
        self._retry_at = 0
        self._asked: tuple[Cell, int, list[Victim]] | None = None

    def nominate(self) -> Nomination:
        """At full size, or as large as it can be where pod sets may shrink."""
        found = self._any_size()
        found.retry_at = 0 if usable(found) else self._retry_at
        return found

    def _any_size(self) -> Nomination:
        full = self._sized(self._prepared.ask.counts)
        total = self._prepared.ask.shrinkable
        if total == 0 or usable(full):
            return full
        # As many tries as Kueue's search makes, in its places: more pods need not fit where fewer do not.
        low, high, best = 0, total + 1, None
        while low < high:
            middle = (low + high) // 2
            smaller = self._sized(self._prepared.ask.shrunk(middle))
            if usable(smaller):
                best, high = smaller, middle
            else:
                low = middle + 1
        return best or full

    def again(self, before: Assignment) -> Nomination | None:
        """The same flavors and counts in the present state; None if the queue does not offer them like that any
        more."""
        needs = [(need.unit, need.resources) for need in self._prepared.needs]
        if needs != [(choice.need.unit, choice.need.resources) for choice in before.choices]:
            return None
        pinned = {i: choice.taken.flavor for i, choice in enumerate(before.choices)}
        return self._complete(self._assigner.assign(self._prepared, before.counts, pinned=pinned))

    def _oracle(self, cell: Cell, amount: int) -> tuple[Mode, int]:
        if not self._preempts:
            return Mode.NO_CANDIDATES, self._node.borrow_height(cell, amount, FUTURE)[0]
        search = self._search({cell: amount}, frozenset([cell]), None)
        victims = search.find()
        self._note(search)
        self._asked = cell, amount, victims
        return search.meaning(victims, cell, amount)

    def _asked_before(self, assignment: Assignment) -> list[Victim] | None:
        """The victims for all of an assignment, where the last flavor asked for was just that."""
        if self._asked is None:
            return None
        cell, amount, victims = self._asked
        return victims if assignment.charge == {cell: amount} and assignment.contested == {cell} else None

    def _search(
        self, charge: Charge, contested: frozenset[Cell], placeable: Callable[[], bool] | None
    ) -> PreemptionSearch:
        """The search for victims that the configuration asks for."""
        fair = self._state.configuration.fair_sharing
        if fair is None:
            search = PreemptionSearch(self._state, self._record, charge, contested, placeable)
        else:
            search = FairPreemptionSearch(self._state, self._record, charge, contested, placeable, fair)
        search.guard = self._guard
        return search

    def _note(self, search: PreemptionSearch) -> None:
        if search.retry_at:
            self._retry_at = min(self._retry_at or search.retry_at, search.retry_at)

    # ---- one size

    def _sized(self, counts: tuple[int, ...]) -> Nomination:
        """The best over flavors: what fits now, then what fits after draining, then what fits after preemption."""
        banned: Banned = frozenset()
        later: list[Nomination] = []
        first: Nomination | None = None
        while True:
            start = self._state.resume(self._record)
            found = self._complete(self._assigner.assign(self._prepared, counts, banned, start=start))
            first = first or found
            if found.mode is Mode.FIT:
                return found
            if usable(found):
                later.append(found)
                if found.misfit is None or self._queue.when_can_preempt is FlavorFungibility.MAY_STOP_SEARCH:
                    break
            more = self._ban(found, banned)
            if more is None:
                break
            banned = more
        later.sort(key=lambda nomination: nomination.mode is not Mode.DEFERRED)
        return later[0] if later else first

    def _ban(self, found: Nomination, banned: Banned) -> Banned | None:
        """What to leave out next: the flavors of the pod set that found no nodes, or those where nobody could be
        evicted."""
        if found.assignment.mode is Mode.NO_FIT or found.limit is not None:
            return None
        needs: list[tuple[int, str]] = []
        if found.misfit is not None:
            if not self._state.configuration.policies.next_flavor_after_topology:
                return None
            culprit = found.misfit.demand.index
            needs = [
                (i, choice.taken.flavor)
                for i, choice in enumerate(found.assignment.choices)
                if culprit in choice.need.pod_sets
            ]
        elif found.mode is Mode.NO_CANDIDATES and not self._state.configuration.policies.resume_flavor_scan:
            needs = [
                (i, choice.taken.flavor)
                for i, choice in enumerate(found.assignment.choices)
                if choice.untried and choice.taken.mode < Mode.FIT
            ]
        return banned | frozenset(needs) if needs else None

    def _complete(self, assignment: Assignment) -> Nomination:
        """Adds nodes and victims to an assignment of flavors."""
        if self._limited is not None:
            limit = self._limited.limit_hit(self._record.workload, assignment.charge)
            if limit is not None:
                return self._over_limit(assignment, limit)
        if assignment.mode is Mode.NO_FIT:
            return Nomination(self._record, assignment, Mode.NO_FIT)
        scope = build_scope(self._state, assignment) if self._placing else None
        if isinstance(scope, Misfit):  # two topologies for one pod set, or none where one is required
            return Nomination(self._record, assignment, Mode.NO_FIT, misfit=scope)
        found = self._in_scope(assignment, scope)
        found.scope = scope
        return found

    def _in_scope(self, assignment: Assignment, scope: Scope | None) -> Nomination:
        """Nodes and victims for what has to be placed on nodes, if anything has."""
        if assignment.mode >= Mode.DEFERRED:
            found = self._in_free_room(assignment, scope)
            if found.mode < Mode.DEFERRED and scope is not None:
                found.behind = self._behind(assignment, scope)
            if found.mode >= Mode.DEFERRED or found.behind:
                return found
            return self._making_room(assignment, scope, found.misfit)
        return self._making_room(assignment, scope, None)

    def _over_limit(self, assignment: Assignment, limit: LimitHit) -> Nomination:
        """A limit evicts nobody: it waits, whatever else stands in its way."""
        misfit: Misfit | None = None
        if assignment.mode >= Mode.DEFERRED:
            scope = build_scope(self._state, assignment)
            misfit = scope if isinstance(scope, Misfit) else self._in_free_room(assignment, scope).misfit
        return Nomination(self._record, assignment, Mode.NO_FIT, misfit=misfit, limit=limit)

    def _in_free_room(self, assignment: Assignment, scope: Scope | None) -> Nomination:
        """With nodes that are free now, or else once what drains is gone."""
        if scope is None:
            return Nomination(self._record, assignment, assignment.mode)
        misfit: Misfit | None = None
        if assignment.mode is Mode.FIT:
            places = self.placed(assignment, scope, now=True)
            if not isinstance(places, Misfit):
                return Nomination(self._record, assignment, Mode.FIT, places=places)
            misfit = places
            if not self._different:
                return Nomination(self._record, assignment, Mode.NO_FIT, misfit=misfit)
        places = self.placed(assignment, scope, now=False)
        if isinstance(places, Misfit):
            return Nomination(self._record, assignment, Mode.NO_FIT, misfit=places)
        return Nomination(self._record, assignment, Mode.DEFERRED, places=places, misfit=misfit)

    def _making_room(self, assignment: Assignment, scope: Scope | None, misfit: Misfit | None) -> Nomination:
        """With victims. If even empty nodes would not do, there is no point in evicting anybody."""
        contested = assignment.contested
        reserve: Places | None = None
        if scope is not None:
            empty = find_places(self._state, scope, EMPTY)
            if isinstance(empty, Misfit):
                return Nomination(self._record, assignment, Mode.NO_FIT, misfit=misfit or empty)
            reserve = empty
            contested = frozenset(self._topology_cells(assignment, scope))
        victims: list[Victim] = []
        if self._preempts:
            nodes_asked = False

            def placeable() -> bool:
                nonlocal nodes_asked
                nodes_asked = True
                return self._placeable(assignment, scope) if scope is not None else True

            known = self._asked_before(assignment) if scope is None else None
            search = self._search(assignment.charge, contested, None if scope is None else placeable)
            victims = search.find() if known is None else known
            self._note(search)
            # Nodes are asked about once quota would do: where it never did, nobody's going makes a difference.
            if scope is not None and nodes_asked and self._state.configuration.policies.location_aware_victims:
                victims = self._elsewhere(search, scope, victims)
        mode = min(Mode.RECLAIM, max(Mode.PREEMPT, assignment.mode)) if victims else Mode.NO_CANDIDATES
        places = None if scope is None or not victims else self._without(assignment, victims, scope)
        return Nomination(self._record, assignment, mode, victims, places, misfit, reserve)

    def _elsewhere(self, search: PreemptionSearch, scope: Scope, victims: list[Victim]) -> list[Victim]:
        """The victims found, or cheaper ones in one domain. There may be some where none were found: those that come
        first by rank and age may use up what a queue has borrowed, and stand elsewhere."""

        def find(nodes: frozenset[str]) -> list[Victim]:
            search.only = nodes
            return search.find()

        return cheapest(self._state.fleet, scope, search.may_go(), victims, find)

    def _without(self, assignment: Assignment, victims: list[Victim], scope: Scope) -> Places | None:
        """Nodes once the victims are gone."""
        mark = self._state.log.mark()
        for victim in victims:
            self._state.stand(victim.record, FUTURE, None)
        places = self.placed(assignment, scope, now=False)
        self._state.log.revert(mark)
        return None if isinstance(places, Misfit) else places

    def _topology_cells(self, assignment: Assignment, scope: Scope) -> set[Cell]:
        """The cells of pod sets that need nodes."""
        return {
            Cell(flavor, resource)
            for demand in scope.demands()
            for resource, flavor in assignment.flavors[demand.index].items()
        } | set(assignment.contested)

    # ---- nodes

    def placed(self, assignment: Assignment, scope: Scope, now: bool) -> Places | Misfit:
        """Nodes in the FUTURE view, or in what is free both there and NOW; less what holds keep."""
        views, aside = self._views(assignment, now)
        if aside:
            places = find_places(self._state, scope, *views, *aside)
            if not isinstance(places, Misfit):
                return places
        return find_places(self._state, scope, *views)

    def still_placed(self, assignment: Assignment, scope: Scope, places: Places, now: bool) -> bool:
        """Whether places found earlier are free in such a view."""
        return still_holds(self._state, scope, places, *self._views(assignment, now)[0])

    def _views(self, assignment: Assignment, now: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The views in which there has to be room, and those of holds whose nodes are used only when no others will
        do."""
        views = (FUTURE, NOW) if now and self._different else (FUTURE,)
        if self._guard is None:
            return views, ()
        must, should = self._guard.on_nodes(assignment.charge)
        return (*views, *(hold.view for hold in must)), tuple(hold.view for hold in should)

    def _placeable(self, assignment: Assignment, scope: Scope) -> bool:
        return not isinstance(self.placed(assignment, scope, now=False), Misfit)

    def _behind(self, assignment: Assignment, scope: Scope) -> tuple[StarvingHold, ...]:
        """The holds without which the nodes would be there."""
        must = [] if self._guard is None else self._guard.on_nodes(assignment.charge)[0]
        if not must:
            return ()
        places = find_places(self._state, scope, FUTURE)
        return () if isinstance(places, Misfit) else tuple(must)


def standing_of(nomination: Nomination, places: Places | None) -> Standing:
    """What the workload takes once it has what was found for it, on these nodes."""
    assignment = nomination.assignment
    occupancy = occupancy_of(assignment.prepared.ask, places) if places else {}
    alone = alone_of(nomination.scope, places or {})
    return Standing(nomination.record.workload.queue, assignment.charge, occupancy, alone)
