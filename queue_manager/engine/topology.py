"""Where the pods of a workload go: domains of a topology and, inside them, real nodes (kueue.md 2.11).

Topology requests nest: that of the workload lies around those of its pod groups, these around those of pod sets. A
`Scope` is one such bracket. Inside one bracket domains are chosen by best fit (the tightest that holds all), pods that
no bracket holds together go where least is free. Nodes are always checked one by one: a
pod needs one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from queue_manager.engine.ask import starts_of
from queue_manager.engine.demand import Demand
from queue_manager.engine.exact import Exact
from queue_manager.engine.fleet import Fleet, Forest, Ints
from queue_manager.engine.picking import Descent, pick_first, pick_in, pick_ones, shortened
from queue_manager.engine.pod_rules import Ruled, contradiction, says
from queue_manager.engine.replacing_rules import Beside
from queue_manager.engine.replicas import layers_for
from queue_manager.engine.room import Gauge, Room
from queue_manager.engine.scopes import Domain, Misfit, Places, Scope, no_level, run_of
from queue_manager.engine.slices import whole
from queue_manager.engine.workload import TopologyMode, TopologyRequest


class Placement:
    """One search over what is free in all of some views. Pod sets that never run at the same time may use the same
    room. Nodes `without` are left alone."""

    def __init__(
        self, fleet: Fleet, views: Sequence[int], demands: Sequence[Demand], without: frozenset[str] = frozenset()
    ) -> None:
        self._room = Room(fleet, views, starts_of(demand.stages for demand in demands), without)
        self._exact = Exact(self._room)

    def place(self, scope: Scope) -> Places | Misfit:
        """Places everything in a scope, or says what does not fit."""
        wanted = scope.wanted()
        misfit = None if wanted is None else self._scope(wanted, None)
        if misfit is not None:
            return misfit
        places: Places = {demand.index: {} for demand in scope.demands()}
        for placed in self._room.placed:
            nodes = places[placed.demand.index]
            for member, count in zip(placed.members.tolist(), placed.counts.tolist(), strict=True):
                name = placed.demand.forest.names[member]
                nodes[name] = nodes.get(name, 0) + count
        return places

    def holds(self, scope: Scope, places: Places) -> bool:
        """Whether there is room for pods where they were placed. Leaves the search as it was."""
        mark = len(self._room.placed)
        try:
            wanted = scope.wanted()
            for demand in wanted.demands() if wanted is not None else ():
                found = [(demand.forest.member_of.get(n, -1), c) for n, c in places[demand.index].items()]
                counts = self._room.free(demand)
                if any(member < 0 or counts[member] < count for member, count in found):
                    return False
                self._room.take(demand, found)
            return True
        finally:
            self._room.give_back(mark)

    # ---- scopes

    def _scope(self, scope: Scope, within: Domain | None) -> Misfit | None:
        request = scope.request
        if len(scope.parts) == 1 and isinstance(scope.parts[0], Demand):
            return self._leaf(scope.parts[0], within, request)
        if request is None or request.mode is TopologyMode.UNCONSTRAINED:
            return self._parts(scope, within)
        demands = scope.demands()
        keys = demands[0].forest.level_keys
        if any(demand.forest.level_keys != keys for demand in demands):
            return Misfit(demands[0], request.level, (), 0, demands[0].count, "its pod sets use different topologies")
        if request.level not in keys:
            return no_level(demands[0], request.level)
        return self._bracket(scope, demands, within, request)

    def _bracket(
        self, scope: Scope, demands: list[Demand], within: Domain | None, request: TopologyRequest
    ) -> Misfit | None:
        """Several demands in one domain: the tightest domain in which all of them really fit."""
        keys = demands[0].forest.level_keys
        level = keys.index(request.level)
        top = len(within.values) if within is not None else 0
        if level < top:
            return self._parts(scope, within)
        for demand in demands if request.mode is TopologyMode.REQUIRED else ():
            conflict = contradiction(demand.rules, demand.count, keys, level)
            if conflict:
                return Misfit(demand, request.level, (), 0, demand.count, conflict)
        levels = range(level, top - 1, -1) if request.mode is TopologyMode.PREFERRED else (level,)
        worst: Misfit | None = None
        for depth in levels:
            candidates, misfit = self._candidates(demands, depth, within)
            worst = worst or misfit
            for values in candidates:
                misfit = self._parts(scope, Domain(keys, values))
                if misfit is None:
                    return None
                worst = worst or misfit
        if request.mode is TopologyMode.PREFERRED:
            return self._parts(scope, within)
        return worst

    def _candidates(
        self, demands: list[Demand], depth: int, within: Domain | None
    ) -> tuple[list[tuple[str, ...]], Misfit | None]:
        """Domains of a level that hold each demand alone, tightest first (for the demand with most pods)."""
        ranked = sorted(demands, key=lambda demand: (-demand.count, demand.index))
        rooms: list[dict[tuple[str, ...], int]] = []
        misfit: Misfit | None = None
        for demand in ranked:
            layers = layers_for(demand, (), 0, depth, depth + 1)
            gauge = Gauge.of(demand, self._room.counts(demand), () if isinstance(layers, str) else layers)
            sums, start = gauge.sums(depth, run_of(demand.forest, within))
            values = demand.forest.levels[depth].values
            room = {values[start + i]: int(total) for i, total in enumerate(sums.tolist())}
            if not any(total >= demand.count for total in room.values()) and misfit is None:
                misfit = _best_of(demand, depth, sums, start)
            rooms.append(room)
        fitting = [
            values
            for values in rooms[0]
            if all(room.get(values, 0) >= demand.count for room, demand in zip(rooms, ranked, strict=True))
        ]
        fitting.sort(key=lambda values: (*(room[values] for room in rooms), values))
        if not fitting and misfit is None:
            misfit = Misfit(
                ranked[0], ranked[0].forest.level_keys[depth], (), 0, ranked[0].count, "its pod sets fit apart only"
            )
        return fitting, misfit

    def _parts(self, scope: Scope, within: Domain | None) -> Misfit | None:
        """Places the parts one after another; if that fails, in other orders, at last in every way if they are few.
        Leaves nothing behind on failure."""
        misfit: Misfit | None = None
        mark = len(self._room.placed)
        by_size = sorted(scope.parts, key=_size)
        for order in dict.fromkeys((scope.parts, tuple(by_size), tuple(reversed(by_size)))):
            failed = self._in_order(scope, order, within)
            if failed is None:
                return None
            misfit = misfit or failed
            self._room.give_back(mark)
        if misfit is not None:
            misfit = self._leader_anywhere(scope, by_size, within, misfit)
        if misfit is not None and len(scope.demands()) > 1 and self._exact.place(scope, within):
            return None
        return misfit

    def _in_order(self, scope: Scope, order: Sequence[Scope | Demand], within: Domain | None) -> Misfit | None:
        for part in order:
            failed = self._leaf(part, within, scope.request) if isinstance(part, Demand) else self._scope(part, within)
            if failed is not None:
                return failed
        return None

    def _leader_anywhere(
        self, scope: Scope, by_size: list[Scope | Demand], within: Domain | None, misfit: Misfit
    ) -> Misfit | None:
        """A leader (one pod) of a pod set group on any node of the domain, where it costs the workers least first."""
        leader, *others = by_size
        if len(others) != 1 or not isinstance(leader, Demand) or leader.count != 1:
            return misfit
        workers = others[0]
        if not isinstance(workers, Demand) or workers.forest is not leader.forest:
            return misfit
        first, last = run_of(leader.forest, within)
        before, mark = self._room.counts(workers), len(self._room.placed)
        costs: list[tuple[int, int]] = []
        for member in np.flatnonzero(self._room.counts(leader)[first:last]).tolist():
            self._room.take(leader, [(first + member, 1)])
            after = self._room.counts(workers)
            costs.append((int(before[first + member] - after[first + member]), first + member))
            self._room.give_back(mark)
        for _, member in sorted(costs):
            self._room.take(leader, [(member, 1)])
            if self._leaf(workers, within, scope.request) is None:
                return None
            self._room.give_back(mark)
        return misfit

    # ---- one demand

    def _leaf(self, demand: Demand, within: Domain | None, request: TopologyRequest | None) -> Misfit | None:
        """Places one demand inside `within` (anywhere if None); a bracket's own request was met by `within` already."""
        forest = demand.forest
        top = len(within.values) if within is not None else 0
        depth = _inner_depth(forest, within, request)
        if depth == NO_SUCH_LEVEL:
            assert request is not None
            return no_level(demand, request.level)
        required = request is not None and request.mode is TopologyMode.REQUIRED and depth is not None
        one_domain = depth if required and depth is not None else top - 1
        slices = request.slices if request is not None else ()
        layers = layers_for(demand, slices, depth or 0, one_domain, top)
        if isinstance(layers, str):
            return Misfit(demand, request.level if request is not None else "", (), 0, demand.count, layers)
        run = run_of(forest, within)
        conflict = contradiction(
            demand.rules, demand.count, forest.level_keys, -1 if one_domain is None else one_domain
        )
        if not conflict and layers and (demand.rules.spread or demand.rules.together):
            conflict = (
                f"{says(demand.rules)}: that can't be planned beside slices or replicas with domains of their own"
            )
        if conflict:
            return Misfit(demand, request.level if request is not None else "", (), 0, demand.count, conflict)
        if demand.beside:
            return self._grown(demand, within)
        ruled = self._room.ruled(demand)
        if ruled is not None:
            return self._ruled(demand, ruled, run, depth, within, required)
        if depth is not None and layers:
            depth = min(depth, layers[0].depth)
        gauge = Gauge.of(demand, self._room.counts(demand), layers)
        if depth is not None and request is not None:
            return self._together(demand, gauge, run, depth, within, request)
        total, need = gauge.total(run), whole(demand.count, layers)
        if total < need:
            return Misfit(demand, "", within.values if within else (), min(total, demand.count), demand.count)
        if within is not None:
            self._descend(demand, gauge, [run], top - 1)
        else:
            self._scatter(demand, gauge)
        return None

    def _together(
        self,
        demand: Demand,
        gauge: Gauge,
        run: tuple[int, int],
        depth: int,
        within: Domain | None,
        request: TopologyRequest,
    ) -> Misfit | None:
        """One domain of level `depth`; for a preferred level a wider one, at last several of the widest."""
        forest, need = demand.forest, whole(demand.count, gauge.layers)
        floor = len(within.values) if within is not None else 0
        misfit: Misfit | None = None
        for level in range(depth, floor - 1, -1):
            sums, start = gauge.sums(level, run)
            fitting = np.flatnonzero(sums >= need)
            if len(fitting):
                chosen = start + int(fitting[np.argmin(sums[fitting])])
                bounds = forest.levels[level]
                self._descend(demand, gauge, [(int(bounds.starts[chosen]), int(bounds.ends[chosen]))], level)
                return None
            misfit = misfit or _best_of(demand, level, sums, start)
            if request.mode is TopologyMode.REQUIRED:
                return misfit
        total = gauge.total(run)
        if total < need:
            return Misfit(demand, "", within.values if within else (), min(total, demand.count), demand.count)
        self._descend(demand, gauge, [run], floor - 1)
        return None

    def _ruled(
        self,
        demand: Demand,
        ruled: Ruled,
        run: tuple[int, int],
        depth: int | None,
        within: Domain | None,
        required: bool,
    ) -> Misfit | None:
        """Like `_together`, where the rules of the pod template have a say."""
        forest, need = demand.forest, demand.count
        floor = len(within.values) if within is not None else 0
        misfit: Misfit | None = None
        for level in range(depth, floor - 1, -1) if depth is not None else ():
            sums, start = Gauge.of(demand, ruled.counts, ()).sums(level, run)
            bounds = forest.levels[level]
            for index in np.argsort(sums, kind="stable").tolist():
                here = (int(bounds.starts[start + index]), int(bounds.ends[start + index]))
                found = ruled.find(here, need) if sums[index] >= need else None
                if found is not None:
                    self._room.take(demand, found)
                    return None
            if misfit is None:
                misfit = _best_of(demand, level, sums, start)
                if misfit.values:
                    misfit = replace(
                        misfit, best=ruled.best(run_of(forest, Domain(forest.level_keys, misfit.values)), need)
                    )
            if required:
                return misfit
        found = ruled.find(run, need)
        if found is None:
            return Misfit(demand, "", within.values if within else (), ruled.best(run, need), need)
        self._room.take(demand, found)
        return None

    def _grown(self, demand: Demand, within: Domain | None) -> Misfit | None:
        """One pod after another beside those that run, as kube-scheduler would bind them by the rules of the pod
        template."""
        beside, counts, names = Beside(demand, self._room.fleet), self._room.free(demand).copy(), demand.forest.names
        for node, pods in demand.beside:
            beside.shift(node, pods)
        values, found = within.values if within is not None else (), dict[int, int]()
        for number in range(demand.count):
            member = beside.member(counts, (), values)
            if member is None:
                return Misfit(demand, "", values, number, demand.count)
            counts[member] -= 1
            beside.shift(names[member], 1)
            found[member] = found.get(member, 0) + 1
        self._room.take(demand, sorted(found.items()))
        return None

    def _descend(self, demand: Demand, gauge: Gauge, runs: list[tuple[int, int]], depth: int) -> None:
        """Takes members in chosen runs, in as few domains of each level as can be."""
        need = whole(demand.count, gauge.layers)
        even = demand.forest.level_of(demand.balanced)
        found = Descent.of(gauge.forest, gauge.counts, gauge.layers, -1 if even is None else even).members(
            runs, depth, need
        )
        self._room.take(demand, shortened(found, need - demand.count))

    def _scatter(self, demand: Demand, gauge: Gauge) -> None:
        """Unconstrained: the smallest node that holds all, else the smallest ones first; of equal ones those in small
        gaps of the wider levels. Slices take the domains of their level the smallest gap first."""
        forest, layers = gauge.forest, gauge.layers
        if not layers:
            order = self._by_gap(gauge, len(forest.levels) - 1, gauge.counts)
            self._room.take(demand, pick_first(order, gauge.counts, demand.count))
            return
        outer, need = layers[0], whole(demand.count, layers)
        level = forest.levels[outer.depth]
        room, _ = gauge.sums(outer.depth, (0, len(forest.names)))
        size = np.add.reduceat(gauge.counts, level.starts) if outer.single else room
        pick_some = pick_ones if outer.single else pick_in
        units = pick_some(self._by_gap(gauge, outer.depth - 1, size), room // outer.size, need // outer.size)
        descent = Descent.of(forest, gauge.counts, layers)
        found: list[tuple[int, int]] = []
        for index, slices in units:
            run = (int(level.starts[index]), int(level.ends[index]))
            found += descent.members([run], outer.depth, slices * outer.size, 1)
        self._room.take(demand, shortened(found, need - demand.count))

    @staticmethod
    def _by_gap(gauge: Gauge, depth: int, room: Ints) -> Ints:
        """Places in the order of their own room, then that of the domains of level `depth` around them and wider."""
        forest = gauge.forest
        starts = np.arange(len(forest.names))
        if gauge.layers:
            starts = forest.levels[gauge.layers[0].depth].starts
        keys: list[Ints] = [np.arange(len(room))]
        for level in forest.levels[: depth + 1]:
            sums = np.add.reduceat(gauge.counts, level.starts) if len(level.starts) else level.starts
            keys.append(sums[np.searchsorted(level.starts, starts, side="right") - 1])
        order: Ints = np.lexsort((*keys, room))
        return order


NO_SUCH_LEVEL = -2


def _size(part: Scope | Demand) -> tuple[int, int]:
    demands = [part] if isinstance(part, Demand) else part.demands()
    return sum(demand.count for demand in demands), demands[0].index if demands else 0


def _inner_depth(forest: Forest, within: Domain | None, request: TopologyRequest | None) -> int | None:
    """Level of a demand's own request if it is narrower than the domain chosen around it; NO_SUCH_LEVEL
    if the topology lacks it."""
    if request is None or request.mode is TopologyMode.UNCONSTRAINED:
        return None
    depth = forest.level_of(request.level)
    if depth is None:
        return NO_SUCH_LEVEL
    return None if within is not None and depth < len(within.values) else depth


def _best_of(demand: Demand, depth: int, sums: Ints, start: int) -> Misfit:
    level = demand.forest.levels[depth]
    key = demand.forest.level_keys[depth]
    if not len(sums):
        return Misfit(demand, key, (), 0, demand.count)
    best = int(np.argmax(sums))
    return Misfit(demand, key, level.values[start + best], int(sums[best]), demand.count)
