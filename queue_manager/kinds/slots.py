"""Which slot a pod of a pinned pod set gets: the place of its rank (issue 5, "Injection").

A **slot** is the place of one pod in an admission; they are numbered in the order of ranks. Decided anew each time from
the admission and the pods, by what the pods themselves show, so that any process comes to the same answer at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from queue_manager.cluster.pods import is_gone, is_leaving
from queue_manager.cluster.port import Object
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.decision import DomainCount
from queue_manager.kinds.gates import INDEX_LABEL, JOB_INDEX_LABEL, SLOT, is_held_back

Place = tuple[str, ...]
"""Values of the labels that a pod's node must have: those of `place_levels`."""
PlaceOf = Callable[[Object], Place | None]
"""Where a pod is bound, or has to go by the affinity that it was given; None where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The places of a pinned pod set, one a pod, as values of `levels`. `replica_size` pods are one replica, 0: all of
    them are."""

    levels: tuple[str, ...]
    places: tuple[Place, ...]
    replica_size: int = 0

    @property
    def size(self) -> int:
        """Slots of a replica."""
        return self.replica_size or max(1, len(self.places))

    @property
    def blocks(self) -> int:
        """Replicas that have slots."""
        return -(-len(self.places) // self.size)


@dataclass(frozen=True, slots=True)
class Rank:
    """Which of the pods of its pod set a pod is: the number of its child Job, and its index there, None where the Job
    gives none."""

    replica: int
    index: int | None


@dataclass(frozen=True, slots=True)
class Seating:
    """`given` are slots of pods to be let through, by uid, in the order in which they are to be. The slot of a pod that
    `waits` is taken by one that has not ended. `surplus` are those for which there is no slot at all."""

    given: Mapping[str, int]
    waits: tuple[Object, ...] = ()
    surplus: tuple[Object, ...] = ()


@dataclass
class _Table:
    """Slots and who has them. `block_of` tells which slots replicas have that do not have those of their number."""

    slots: Slots
    block_of: Mapping[int, int]
    spent: Collection[int] = frozenset()
    taken: dict[int, Object] = field(default_factory=dict)
    _left: dict[int, Iterator[int]] = field(default_factory=dict)
    _ends: dict[int, bool] = field(default_factory=dict)

    def block(self, replica: int) -> range:
        """The slots of one replica."""
        first = self.block_of.get(replica, replica) * self.slots.size
        return range(first, min(first + self.slots.size, len(self.slots.places)))

    def nominal(self, rank: Rank) -> int | None:
        """The slot of a rank, None where it has none of its own."""
        block = self.block(rank.replica)
        return block[rank.index] if rank.index is not None and rank.index < len(block) else None

    def first_free(self, replica: int) -> int | None:
        """The first slot of a replica that nobody has. Slots are only ever taken, so each search goes on where the last
        one ended."""
        left = self._left.setdefault(replica, iter(self.block(replica)))
        return next((slot for slot in left if slot not in self.taken and slot not in self.spent), None)

    def one_ends(self, replica: int) -> bool:
        """Whether one of those that have a slot of a replica is being deleted. Whom slots are given to later are not,
        so that the first answer holds."""
        if replica not in self._ends:
            holders = (self.taken.get(slot) for slot in self.block(replica))
            self._ends[replica] = any(holder and is_leaving(holder) for holder in holders)
        return self._ends[replica]

    def free(self, among: Iterable[int]) -> list[int]:
        """Those of the slots that nobody has."""
        return [slot for slot in among if slot not in self.taken and slot not in self.spent]

    def free_at(self, place: Place | None) -> list[int]:
        """The slots of a place that nobody has."""
        return self.free(slot for slot, where in enumerate(self.slots.places) if where == place)


def place_levels(levels: Sequence[str]) -> tuple[str, ...]:
    """The levels that say where a pod has to go: a host is enough, else all of them."""
    return tuple(levels[-1:] if tuple(levels[-1:]) == (HOSTNAME,) else levels)


def slots_of(levels: Sequence[str], domains: Sequence[DomainCount], replica_size: int) -> Slots:
    """The slots of an assignment's domains, which are in the order of ranks."""
    kept = place_levels(levels)
    places = tuple(domain.values[-len(kept) :] for domain in domains for _ in range(domain.count))
    return Slots(kept, places, replica_size)


def rank_of(pod: Object) -> Rank:
    """Told by the labels that JobSet and the Job controller give."""
    labels = pod["metadata"].get("labels") or {}
    index = labels.get(INDEX_LABEL, "")
    replica = labels.get(JOB_INDEX_LABEL, "")
    return Rank(int(replica) if replica.isdecimal() else 0, int(index) if index.isdecimal() else None)


def slot_of(pod: Object) -> int | None:
    """The slot that a pod was let through for, None without one."""
    text = (pod["metadata"].get("annotations") or {}).get(SLOT, "")
    return int(text) if text.isdecimal() else None


def seating(
    slots: Slots,
    pods: Iterable[Object],
    known: Mapping[str, int],
    place_of: PlaceOf,
    spent: Collection[int] = frozenset(),
) -> Seating:
    """Slots for the pods that wait for one. `known` are those that were given by this process (uid -> slot), whatever
    the caches show of it yet. `spent` are slots that nobody gets again."""
    there = [pod for pod in pods if not is_gone(pod)]
    through = [pod for pod in there if pod["metadata"]["uid"] in known or not is_held_back(pod)]
    table = _Table(slots, _blocks(slots, there, known), spent)
    _seat_those_let_through(table, through, known, place_of)
    given: dict[str, int] = {}
    waits: list[Object] = []
    surplus: list[Object] = []
    passed = {pod["metadata"]["uid"] for pod in through}
    waiting = [p for p in there if p["metadata"]["uid"] not in passed and not is_leaving(p)]
    for pod in sorted(waiting, key=_turn):
        slot = _slot_for(table, pod)
        if slot is not None:
            table.taken[slot] = pod
            given[pod["metadata"]["uid"]] = slot
        elif _may_have_one_later(table, pod):
            waits.append(pod)
        else:
            surplus.append(pod)
    return Seating(given, tuple(waits), tuple(surplus))


def _blocks(slots: Slots, pods: Iterable[Object], known: Mapping[str, int]) -> Mapping[int, int]:
    """Replica -> its block of slots, where some replicas had finished before the admission and have none: then those
    with the highest numbers have the blocks that the others leave. Pods of one replica stay together."""
    replicas = {rank_of(pod).replica for pod in pods}
    if not slots.replica_size or max(replicas, default=0) < slots.blocks:
        return dict.fromkeys(replicas, 0) if not slots.replica_size else {}
    found: dict[int, int] = {}
    for pod in sorted(pods, key=_turn):
        slot = known.get(pod["metadata"]["uid"], slot_of(pod))
        if slot is not None and slot < len(slots.places) and slot // slots.size not in found.values():
            found.setdefault(rank_of(pod).replica, slot // slots.size)
    for replica in sorted(replicas - found.keys()):
        if replica < slots.blocks and replica not in found.values():
            found[replica] = replica
    for replica in sorted(replicas - found.keys()):
        left = next((block for block in range(slots.blocks) if block not in found.values()), None)
        if left is not None:
            found[replica] = left
    return found


def _seat_those_let_through(table: _Table, pods: Sequence[Object], known: Mapping[str, int], place_of: PlaceOf) -> None:
    """First who is where its slot lies, then who sits elsewhere: places may have changed since (a node was lost, an
    elastic job has shrunk)."""
    places = table.slots.places
    others: list[tuple[Object, Place | None, int | None]] = []
    for pod in sorted(pods, key=_turn):
        slot, place = known.get(pod["metadata"]["uid"], slot_of(pod)), place_of(pod)
        fits = slot is not None and slot < len(places) and place in (None, places[slot])
        if slot is not None and fits and slot not in table.taken:
            table.taken[slot] = pod
        else:
            others.append((pod, place, slot))
    for pod, place, slot in others:
        own = [s for s in (slot, table.nominal(rank_of(pod))) if s is not None and s < len(places)]
        here = table.free_at(place)
        candidates = [s for s in own if s in here] + here
        if not candidates and not is_leaving(pod):
            # It runs where none of the slots is, or where all are taken: one of them is not for anybody else.
            candidates = [*table.free(own), *table.free(range(len(places)))]
        if candidates:
            table.taken[candidates[0]] = pod


def _slot_for(table: _Table, pod: Object) -> int | None:
    """The free slot of a pod: that of its rank. Where ranks are more than slots (completions that follow each other,
    pods that had finished before the admission) or there are none, the first of its replica that nobody has."""
    rank = rank_of(pod)
    nominal = table.nominal(rank)
    if nominal is not None:
        holder = table.taken.get(nominal)
        if holder is None and nominal not in table.spent:
            return nominal
        if holder is not None and rank_of(holder) == rank:
            return None
    return table.first_free(rank.replica)


def _may_have_one_later(table: _Table, pod: Object) -> bool:
    """Whether a pod of the same rank still has its slot, or one that ends has a slot that it could have."""
    rank = rank_of(pod)
    nominal = table.nominal(rank)
    if nominal is not None and nominal in table.taken and rank_of(table.taken[nominal]) == rank:
        return True
    return table.one_ends(rank.replica)


def _turn(pod: Object) -> tuple[int, int, str, str]:
    metadata, rank = pod["metadata"], rank_of(pod)
    return (rank.replica, rank.index or 0, str(metadata.get("creationTimestamp", "")), str(metadata.get("name", "")))
