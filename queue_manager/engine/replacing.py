"""Other places for the pods of a running gang whose nodes were lost (issue 5, failures).

All other pods stay. What has to share a domain keeps the one it has: the required domain of the workload, of a pod
group or of pod sets that share one always, the domain of a replica or of a slice as long as it has room, else all of
its pods move to another one inside what lies around it. Where nothing holds pods together they go as near to their old
place as can be. Pods that are not pinned stay in the domain that their node selector names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from queue_manager.engine.alone import Alone
from queue_manager.engine.ask import ask_of, together
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.demand import demand_of
from queue_manager.engine.fleet import Forest
from queue_manager.engine.picking import pick
from queue_manager.engine.placing import flavors_of, forest_of_assigned
from queue_manager.engine.prepared import pod_filter, request_of, shared_request
from queue_manager.engine.ranks import DomainValues, joined
from queue_manager.engine.records import Phase, Record, occupy
from queue_manager.engine.replacing_room import Part, ReplacingRoom
from queue_manager.engine.replacing_rules import Beside
from queue_manager.engine.replicas import in_the_way, ranges_around, standing_ranges
from queue_manager.engine.resize import running_pods
from queue_manager.engine.slices import layers_of
from queue_manager.engine.slots import Slot, asked_pod_sets, places_of, slots_of, to_hosts
from queue_manager.engine.state import State
from queue_manager.engine.tree import EMPTY, FUTURE, NOW
from queue_manager.engine.workload import NO_RULES, TopologyMode, TopologyRequest


def replaced(state: State, uid: str, lost: frozenset[str]) -> Admission | str:
    """The admission with new places for what was on `lost` nodes, or why there is none. Leaves the state as it was."""
    record = state.records.get(uid)
    if record is None or record.admission is None:
        return "it is not admitted"
    if record.phase is not Phase.ADMITTED:
        return "it is on its way out"
    mark = state.log.mark()
    try:
        for view in (NOW, FUTURE):
            standing = record.standing[view]
            if standing is not None:
                occupy(state.fleet, standing, view, -1)
        return _Replacement(state, record, record.admission, lost).find()
    finally:
        state.log.revert(mark)


@dataclass(frozen=True, slots=True)
class _Bracket:
    """Pods that have to share a domain of level `depth`; while some of them stay there, all of them may move to another
    one if `moves`."""

    key: tuple[object, ...]
    depth: int
    moves: bool = False


@dataclass(slots=True)
class _Shortage:
    """The first thing that did not fit."""

    name: str
    wanted: int
    best: int
    values: DomainValues


class _Replacement:
    """One search. `_open` are the slots that need a place, `_new` those that have one: their nodes as members of the
    forest."""

    def __init__(self, state: State, record: Record, admission: Admission, lost: frozenset[str]) -> None:
        self._state = state
        self._record = record
        self._admission = admission
        self._lost = lost
        self._ask = ask_of(record.workload, state.configuration)
        self._room = ReplacingRoom(state.fleet, self._ask, lost)
        self._parts: dict[int, Part] = {}
        self._beside: dict[int, Beside] = {}
        self._slots: list[Slot] = []
        self._open: dict[Slot, None] = {}
        self._new: dict[Slot, int] = {}
        self._journal: list[tuple[Slot, bool]] = []
        self._short: _Shortage | None = None
        self._known: dict[Slot, Sequence[_Bracket]] = {}

    def find(self) -> Admission | str:
        refusal = self._prepare()
        if refusal:
            return refusal
        if not self._open:
            return self._admission
        for forward in (True, False):
            if self._solve(self._slots, 0, (), forward):
                return self._answer()
        assert self._short is not None
        short = self._short
        where = f"domain {'/'.join(short.values)} has" if short.values else "the nodes that it may use have"
        return f"{short.wanted} pods of {short.name} need other nodes, and {where} room for {short.best}"

    # ---- what there is

    def _prepare(self) -> str:
        """Finds the slots, and what the pods that stay take; says what makes a search impossible."""
        record, workload = self._record, self._record.workload
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        for index, assigned in asked_pod_sets(self._ask, self._admission.pod_sets):
            count = running_pods(pod_sets.get(assigned.name), assigned)
            forest = forest_of_assigned(self._state, assigned)
            slots = slots_of(self._state, record, index, assigned, count, forest, self._lost)
            self._slots += slots
            here = [slot for slot in slots if slot.lost]
            if not here:
                continue
            if forest is None:
                return f"the flavors of {assigned.name} have no topology {' / '.join(assigned.levels)} any more"
            self._parts[index] = self._part(index, assigned, forest)
            self._open.update(dict.fromkeys(here))
        for index, assigned in asked_pod_sets(self._ask, self._admission.pod_sets) if self._open else ():
            count = running_pods(pod_sets.get(assigned.name), assigned)
            for node, pods in places_of(record, assigned, count).items():
                if node not in self._lost:
                    self._room.put(index, node, pods)
        return ""

    def _part(self, index: int, assigned: PodSetAssignment, forest: Forest) -> Part:
        pod_set, fleet = self._ask.pod_sets[index], self._state.fleet
        pods = pod_filter(pod_set, flavors_of(self._state.configuration, assigned.flavors))
        pods = replace(pods, selector=tuple(sorted({**dict(pods.selector), **assigned.selector}.items())))
        most = int(fleet.counts(forest, pods, pod_set.node_requests, EMPTY).max(initial=0))
        part = Part(assigned, demand_of(pod_set, index, assigned.count, forest, pods, fleet.mask(pods)), most)
        self._room.add(part)
        if part.demand.rules != NO_RULES:
            self._beside[index] = Beside(part.demand, fleet)
            for slot in self._slots:
                if slot.index == index and not slot.lost and slot not in self._open:
                    self._beside[index].shift(slot.node, 1)
        return part

    # ---- brackets

    def _brackets(self, slot: Slot) -> Sequence[_Bracket]:
        """What holds a pod together with others, the widest first."""
        found = self._known.get(slot)
        if found is None:
            found = self._known[slot] = self._brackets_of(slot)
        return found

    def _brackets_of(self, slot: Slot) -> Sequence[_Bracket]:
        workload, pod_set = self._ask.workload, self._ask.pod_sets[slot.index]
        unit = next(unit for unit in self._ask.units if slot.index in unit)
        shared = shared_request(self._ask, unit)
        own = request_of(self._ask, unit if shared is None else (slot.index,))
        around: list[tuple[tuple[object, ...], TopologyRequest | None]] = [
            (("workload",), workload.topology),
            (("group", pod_set.group), workload.pod_groups[pod_set.group].topology),
            (("shared", *unit), shared),
            (("unit", *unit) if shared is None else ("pod set", slot.index), own),
        ]
        keys = self._levels(slot.index)
        required = [
            _Bracket(key, keys.index(request.level))
            for key, request in around
            if request is not None and request.mode is TopologyMode.REQUIRED and request.level in keys
        ]
        # Brackets around several pod sets nest as they are told; those around pods of this one by their levels.
        wide = [bracket for bracket in required if self._holds_others(bracket, slot.index)]
        found = [bracket for bracket in required if bracket not in wide]
        spec = pod_set.pod_set
        replica = slot.rank // spec.replica_size if spec.replica_size else 0
        if spec.distinct is not None and spec.distinct.level in keys:
            found.append(_Bracket(("distinct", slot.index, replica), keys.index(spec.distinct.level), moves=True))
        if spec.exclusive in keys:
            found.append(_Bracket(("exclusive", slot.index, replica), keys.index(spec.exclusive), moves=True))
        layers = layers_of(keys, own.slices) if own is not None else ()
        for layer in () if isinstance(layers, str) else layers:
            key = ("slice", slot.index, layer.depth, slot.rank // layer.size)
            found.append(_Bracket(key, layer.depth, moves=True))
        found.sort(key=lambda bracket: bracket.depth)
        if not to_hosts(self._assigned(slot.index)):
            found.append(_Bracket(("domain", slot.index, slot.values), len(keys) - 1))
        return [*wide, *found]

    def _holds_others(self, bracket: _Bracket, index: int) -> bool:
        """Whether a bracket is around another pod set, too."""
        match bracket.key:
            case ("workload",):
                return len(self._ask.pod_sets) > 1
            case ("group", group):
                return any(p.group == group for i, p in enumerate(self._ask.pod_sets) if i != index)
            case ("shared" | "unit", *unit):
                return len(unit) > 1
        return False

    def _assigned(self, index: int) -> PodSetAssignment:
        name = self._ask.pod_sets[index].name
        return next(assigned for assigned in self._admission.pod_sets if assigned.name == name)

    def _levels(self, index: int) -> tuple[str, ...]:
        return self._assigned(index).levels

    def _solve(self, slots: Sequence[Slot], depth: int, within: DomainValues, forward: bool) -> bool:
        """Places the open slots inside a domain, `depth` brackets having been seen to. Leaves nothing behind if it
        can't."""
        mark = len(self._journal)
        groups: dict[_Bracket | int, list[Slot]] = {}
        for slot in slots:
            brackets = self._brackets(slot)
            groups.setdefault(brackets[depth] if depth < len(brackets) else slot.index, []).append(slot)
        wanted = [(bracket, found) for bracket, found in groups.items() if any(slot in self._open for slot in found)]
        for bracket, found in sorted(wanted, key=lambda item: self._weight(item[1]), reverse=forward):
            if isinstance(bracket, int):
                done = self._scatter(found, within)
            else:
                done = self._together(bracket, found, depth, within, forward)
            if not done:
                self._undo(mark)
                return False
        return True

    def _weight(self, slots: Sequence[Slot]) -> tuple[int, int]:
        """Large pods first: those of which an empty node holds the fewest."""
        fewest = min(self._parts[index].most for index in {slot.index for slot in slots if slot in self._open})
        return (-fewest, -slots[0].rank)

    def _together(
        self, bracket: _Bracket, slots: Sequence[Slot], depth: int, within: DomainValues, forward: bool
    ) -> bool:
        """All open slots of a bracket in the domain of those that stay, else all its slots in another one."""
        stay = [slot for slot in slots if slot not in self._open]
        homes = sorted({slot.values[: bracket.depth + 1] for slot in stay or slots})
        if len(homes) > 1:  # labels have changed since: everybody keeps to his own
            parts = [[slot for slot in slots if self._home(slot, bracket, homes) == home] for home in homes]
        else:
            parts = [list(slots)]
        for home, part in zip(homes, parts, strict=True):
            if not self._keep(part, home, depth, within, forward) and not (
                len(homes) == 1
                and (bracket.moves or not stay)
                and self._move(bracket, slots, home, depth, within, forward)
            ):
                return False
        return True

    @staticmethod
    def _home(slot: Slot, bracket: _Bracket, homes: Sequence[DomainValues]) -> DomainValues:
        own = slot.values[: bracket.depth + 1]
        return own if own in homes else homes[0]

    def _keep(self, slots: Sequence[Slot], home: DomainValues, depth: int, within: DomainValues, forward: bool) -> bool:
        inner = home if len(home) > len(within) else within
        if inner[: len(home)] != home or inner[: len(within)] != within:
            return False
        return self._solve(slots, depth + 1, inner, forward)

    def _move(
        self,
        bracket: _Bracket,
        slots: Sequence[Slot],
        home: DomainValues,
        depth: int,
        within: DomainValues,
        forward: bool,
    ) -> bool:
        mark = len(self._journal)
        for slot in slots:
            if slot not in self._open:
                self._open[slot] = None
                self._journal.append((slot, True))
                self._shift(slot.index, slot.node, -1)
        if all(slot.index in self._parts or self._measured(slot.index) for slot in slots):
            for values in self._candidates(bracket, slots, within):
                if values != home and self._solve(slots, depth + 1, values, forward):
                    return True
        self._undo(mark)
        return False

    def _measured(self, index: int) -> bool:
        """Measures a pod set of which nothing was lost, but which moves with others."""
        forest = forest_of_assigned(self._state, self._assigned(index))
        if forest is not None:
            self._parts[index] = self._part(index, self._assigned(index), forest)
        return forest is not None

    def _candidates(self, bracket: _Bracket, slots: Sequence[Slot], within: DomainValues) -> Iterator[DomainValues]:
        """Domains that have room for each pod set of a bracket alone, the tightest first."""
        wanted: dict[int, int] = {}
        for slot in slots:
            wanted[slot.index] = wanted.get(slot.index, 0) + 1
        taken = self._taken(bracket, slots)
        found: list[tuple[int, DomainValues]] = []
        level = self._parts[slots[0].index].forest.levels[bracket.depth]
        for values in level.values:
            if values[: len(within)] == within and values not in taken:
                rooms = [self._room.inside(self._parts[index], values) for index in wanted]
                if all(room >= count for room, count in zip(rooms, wanted.values(), strict=True)):
                    found.append((rooms[0], values))
        return (values for _, values in sorted(found))

    def _taken(self, bracket: _Bracket, slots: Sequence[Slot]) -> set[DomainValues]:
        """Domains in which a replica may not be because of others."""
        if bracket.key[0] not in ("distinct", "exclusive"):
            return set()
        fleet, demand = self._state.fleet, self._parts[slots[0].index].demand
        level = demand.forest.levels[bracket.depth]
        key = demand.forest.level_keys[bracket.depth]
        ranges = standing_ranges(fleet, (NOW, FUTURE), demand) if demand.exclusive == key else []
        for own, other in self._in_the_way(slots):
            if own == key:
                ranges += ranges_around(fleet, demand.forest, key, (other,))
        starts = (low for first, last in ranges for low in range(*np.searchsorted(level.starts, (first, last))))
        return {level.values[i] for i in starts}

    def _in_the_way(self, slots: Sequence[Slot]) -> Iterator[tuple[str, Alone]]:
        """Of a replica the levels, and the domains in which other replicas of the workload are to be that may not lie
        in or around its domain of that level."""
        mine, one = set(slots), self._ask.pod_sets[slots[0].index]
        there: dict[int, set[DomainValues]] = {}
        for slot in self._slots:
            if slot not in mine:
                there.setdefault(slot.index, set()).add(self._where(slot))
        for index, places in there.items():
            other, keys = self._ask.pod_sets[index], self._levels(index)
            for own, theirs in in_the_way(one.pod_set, other.pod_set) if together(one.stages, other.stages) else ():
                depth = keys.index(theirs) + 1 if theirs in keys else 0
                for values in sorted({place[:depth] for place in places}) if depth else ():
                    yield own, Alone(one.pod_set.pod_priority, keys[:depth], values)

    def _where(self, slot: Slot) -> DomainValues:
        """The domain in which a pod is to be."""
        member = self._new.get(slot)
        forest = self._parts[slot.index].forest if member is not None else None
        return slot.values if forest is None or member is None else forest.path_of[forest.names[member]]

    # ---- nodes

    def _scatter(self, slots: Sequence[Slot], within: DomainValues) -> bool:
        """Nodes for open slots of one pod set inside a domain: those that were on one node on one again if one has
        room, as near to the old one as can be."""
        mark = len(self._journal)
        wanted = [slot for slot in slots if slot in self._open and slot not in self._new]
        part = self._parts[slots[0].index]
        for run in self._runs(part, wanted):
            found = self._near(part, len(run), run[0].values, within)
            if found is None:
                if self._short is None:
                    best = self._room.inside(part, within) + len(self._journal) - mark
                    self._short = _Shortage(part.assigned.name, len(wanted), best, within)
                self._undo(mark)
                return False
            members = [member for member, count in found for _ in range(count)]
            for slot, member in zip(run, members, strict=True):
                self._new[slot] = member
                self._journal.append((slot, False))
            for member, count in found:
                self._put(part, member, count)
        if part.demand.rules != NO_RULES:
            self._sort(part, wanted)
        return True

    def _sort(self, part: Part, slots: Sequence[Slot]) -> None:
        """Deals out the places of equal pods so that each is near its old one."""
        left = sorted(self._new[slot] for slot in slots)
        for slot in slots:
            paths = (part.forest.path_of[part.forest.names[member]] for member in left)
            shared = [_shared_levels(path, slot.values) for path in paths]
            self._new[slot] = left.pop(shared.index(max(shared)))

    @staticmethod
    def _runs(part: Part, wanted: Sequence[Slot]) -> list[list[Slot]]:
        """Slots that go to one node if they can: the neighbours on one old node; one by one where there are rules."""
        if part.demand.rules != NO_RULES:
            return [[slot] for slot in wanted]
        return [list(run) for _, run in groupby(wanted, key=lambda slot: slot.values)]

    def _near(self, part: Part, count: int, old: DomainValues, within: DomainValues) -> list[tuple[int, int]] | None:
        """Members with room for so many pods: in the narrowest domain around the old place that has it."""
        if part.demand.rules != NO_RULES:
            one = self._beside[part.index].member(self._room.counts[part.index], old, within)
            return None if one is None else [(one, 1)]
        counts = self._room.counts[part.index]
        for depth in range(len(part.forest.levels) - 1, len(within) - 2, -1):
            values = old[: depth + 1] if depth >= len(within) else within
            if values[: len(within)] != within:
                continue
            first, last = part.forest.run(values)
            inside = counts[first:last]
            if int(inside.sum()) < count:
                continue
            fitting = np.flatnonzero(inside >= count)
            if len(fitting):
                return [(first + int(fitting[np.argmin(inside[fitting])]), count)]
            return [(first + member, pods) for member, pods in pick(inside, count)]
        return None

    def _put(self, part: Part, member: int, pods: int) -> None:
        """Puts pods on a member; takes them away where `pods` is negative."""
        self._room.put(part.index, part.forest.names[member], pods)
        self._shift(part.index, part.forest.names[member], pods)

    def _shift(self, index: int, node: str, pods: int) -> None:
        if index in self._beside:
            self._beside[index].shift(node, pods)

    def _undo(self, mark: int) -> None:
        while len(self._journal) > mark:
            slot, opened = self._journal.pop()
            if opened:
                del self._open[slot]
                self._shift(slot.index, slot.node, 1)
            else:
                self._put(self._parts[slot.index], self._new.pop(slot), -1)

    # ---- the answer

    def _answer(self) -> Admission:
        """The admission with the places found."""
        by_index: dict[int, list[Slot]] = {}
        for slot in self._slots:
            by_index.setdefault(slot.index, []).append(slot)
        domains: dict[str, tuple[DomainCount, ...]] = {}
        for slots in by_index.values():
            assigned = self._assigned(slots[0].index)
            if any(slot in self._new for slot in slots) and to_hosts(assigned):
                places = [self._where(slot) for slot in slots]
                if not assigned.pinned:
                    places.sort()
                domains[assigned.name] = joined(DomainCount(values, 1) for values in places)
        pod_sets = tuple(
            replace(assigned, domains=domains.get(assigned.name, assigned.domains))
            for assigned in self._admission.pod_sets
        )
        return replace(self._admission, pod_sets=pod_sets)


def _shared_levels(one: DomainValues, other: DomainValues) -> int:
    return next((depth for depth, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
