"""The engine's face: live state in, plans out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar
from weakref import ref

from queue_manager.engine.adopt import adopt
from queue_manager.engine.configuration import Cell, Configuration, Node
from queue_manager.engine.configure import configure
from queue_manager.engine.decision import Admission, Plan, Waiting
from queue_manager.engine.explain import Explainer
from queue_manager.engine.growing import regrow
from queue_manager.engine.moving import Obstacle, moved, obstacle_of_waiting
from queue_manager.engine.outlook import Outlook, outlook
from queue_manager.engine.records import Phase, Record
from queue_manager.engine.replacing import replaced
from queue_manager.engine.replay import play_pass
from queue_manager.engine.resize import growth_uid
from queue_manager.engine.restore import (
    charge_with,
    count_again,
    count_domains_again,
    settle_places,
    shrunk_admission,
    stub,
)
from queue_manager.engine.state import State
from queue_manager.engine.told import Told
from queue_manager.engine.tree import NOW
from queue_manager.engine.workload import PodGroup, Workload

NO_PODS: Mapping[str, int] = {}
P = ParamSpec("P")
R = TypeVar("R")


def _changes(method: Callable[Concatenate[Engine, P], R], /) -> Callable[Concatenate[Engine, P], R]:
    """For methods that change the state."""

    @wraps(method)
    def settled(self: Engine, /, *arguments: P.args, **named: P.kwargs) -> R:
        self._settle()
        return method(self, *arguments, **named)

    return settled


class Engine:
    """Holds one state; every method is deterministic and leaves the state consistent.

    Lifecycle of a workload, as told by the caller: `upsert_workload` (waits) -> `plan` admits it, or
    `restore_admission` after a restart -> `evict` (draining: still charged, still on its nodes) -> `release`
    (nothing is charged; it waits again unless removed). `plan` itself marks what it evicts as draining and holds
    what they free for the preemptor.
    """

    def __init__(self) -> None:
        self._state = State()
        self._told: ref[Told] | None = None

    @_changes
    def configure(self, configuration: Configuration) -> None:
        """Replaces the configuration; running workloads stay charged even where they are over quota now."""
        configure(self._state, configuration)
        self._state.settle_turns()
        self._final()

    @_changes
    def upsert_node(self, node: Node) -> None:
        """Adds a node or replaces what is known of it."""
        before = self._state.fleet.nodes.get(node.name)
        if self._state.fleet.upsert(node):
            self._state.nodes_changed = True
            if before is not None and before.labels != node.labels:
                count_domains_again(self._state, node.name)
            self._state.settle_turns()
            self._final()

    @_changes
    def remove_node(self, name: str) -> None:
        """Forgets a node; unknown names are ignored. Pods that are placed there still count if it comes back."""
        if self._state.fleet.remove(name):
            self._state.nodes_changed = True
            self._state.settle_turns()
            self._final()

    @_changes
    def upsert_workload(self, workload: Workload) -> None:
        """Adds a waiting workload or replaces its request. An admitted one keeps its admission and charge; changed
        `reclaimed` counts of its pod sets change the charge at once, larger counts of elastic ones are asked of its
        queue: `Plan.resizes`. Smaller ones change nothing until `restore_admission` says that pods are gone."""
        state = self._state
        record = state.records.get(workload.uid)
        if record is not None and record.workload == workload:
            return
        if record is None:
            record = state.records[workload.uid] = Record(workload)
            state.enqueue(record)
        elif record.phase is Phase.WAITING:
            self._leave(record)
            record.workload = workload
            state.reordered(record)
            state.enqueue(record)
            state.turns.forget([record.uid])
        else:
            before = record.standing[NOW]
            saved = workload.checkpointed_at != record.workload.checkpointed_at
            self._leave(record)
            record.workload = workload
            state.reordered(record)
            state.enqueue(record)
            state.count(record)
            state.starving.follow(record)
            count_again(state, record)
            if saved and state.queue(workload.queue).limits.checkpoint_grace:
                state.touch(record)  # it may be spared no longer
            state.watch_stop(record)
            regrow(state, record)
            if record.standing[NOW] != before:
                self._ended(record)
        self._final()

    @_changes
    def remove_workload(self, uid: str) -> None:
        """Forgets a workload and everything it holds; unknown uids are ignored."""
        record = self._state.records.get(uid)
        if record is not None:
            self._leave(record)
            self._ended(record)
            self._state.clear(record)
            self._state.turns.forget([uid])
            del self._state.records[uid]
            self._final()

    @_changes
    def suspend_workload(self, uid: str, held: bool) -> None:
        """A held workload is kept but never tried (user's hold, unresolvable pod sets)."""
        record = self._state.records.get(uid)
        if record is not None and record.held != held:
            if held:
                self._leave(record)
            record.held = held
            record.reported = None
            self._state.enqueue(record)
            self._final()

    @_changes
    def restore_admission(self, admission: Admission, *, draining: bool = False, evicted_by: str = "") -> None:
        """Charges an admission made earlier (restart, adoption), even over quota. With `draining` it is on its way out;
        `evicted_by` is the uid for which its room is kept."""
        state = self._state
        record = state.records.get(admission.uid)
        if record is None:
            record = state.records[admission.uid] = Record(stub(admission))
        self._leave(record)
        state.clear(record)
        record.admission = admission
        record.phase = Phase.ADMITTED
        count_again(state, record)
        if draining:
            state.drain(record, evicted_by)
        state.watch_stop(record)
        regrow(state, record)
        self._final()

    @_changes
    def bind(self, uid: str, pod_set: str, nodes: Mapping[str, int], leaving: Mapping[str, int] = NO_PODS) -> None:
        """Says where the pods of an admitted pod set are bound: node -> count. They count there; the rest of the count
        stays on planned nodes. `leaving` are further ones that still count where they are and are being replaced
        (terminating, or on a node that was lost): their places are open to others of the pod set."""
        record = self._state.records.get(uid)
        if record is None or record.admission is None:
            return
        if (record.bound.get(pod_set, {}), record.leaving.get(pod_set, {})) != (nodes, leaving):
            record.bound = {**record.bound, pod_set: dict(nodes)}
            record.leaving = {**record.leaving, pod_set: dict(leaving)}
            count_again(self._state, record)
            self._final()

    def replace(self, uid: str, lost: Collection[str], now: int) -> Admission | str:
        """New places for the pods of an admitted workload that were on `lost` nodes (names; there, not usable or gone
        already), or why there are none. See `replacing.py`. Changes nothing: `restore_admission` puts it into force."""
        self._find_places()
        self._state.now = now
        return replaced(self._state, uid, frozenset(lost))

    def is_overbooked(self, name: str) -> bool:
        """Whether more is used or planned on a node than it offers; False for one that is not known."""
        self._find_places()
        return self._state.fleet.overbooked(name, NOW)

    def _find_places(self) -> None:
        """Finds the nodes of admissions that were told of since the last plan."""
        if self._state.unplaced:
            self._settle()
            settle_places(self._state)
            self._final()

    @_changes
    def evict(self, uid: str) -> None:
        """Marks an admitted workload as draining (evicted or finished, pods still there)."""
        record = self._state.records.get(uid)
        if record is not None and record.phase is Phase.ADMITTED:
            self._ended(record)
            self._state.drain(record, "")
            self._final()

    @_changes
    def release(self, uid: str) -> None:
        """Its pods are gone: its charge and its nodes are free."""
        record = self._state.records.get(uid)
        if record is not None and record.phase is not Phase.WAITING:
            self._ended(record)
            self._state.clear(record)
            self._state.enqueue(record)
            self._final()

    @_changes
    def plan(self, now: int, most: int | None = None) -> Plan:
        """Plays rounds until one changes nothing, or there are `most` admissions, and applies the outcome to the state.

        `now` is in microseconds. The plan stays revocable until the next change of state: see `revoke`. Without the
        policy `hold_freed_quota` a plan ends with the first round that decides something, as a cycle of Kueue does.

        `most` is for callers who can't start more at present: a round that is begun is played to its end, and the next
        plan goes on from there (`Plan.more`), with whoever has come meanwhile.
        """
        settle_places(self._state)
        self._final()
        self._state.now = now
        plan = play_pass(self._state, now, most)
        if isinstance(plan.waiting, Told):
            self._told = ref(plan.waiting)
        return plan

    @_changes
    def retry(self) -> None:
        """Tries everything that waits again, whatever has changed."""
        self._state.dirty.update(self._state.members)
        self._state.nodes_changed = True
        self._final()

    @_changes
    def gate(self, not_ready: frozenset[str] | None) -> None:
        """Admissions one at a time: none while any of these admitted workloads is not ready, else one a plan
        (`blockAdmission`, kueue.md 1.7). None: no gate. Holds until it is set anew."""
        self._state.not_ready = not_ready

    def wake_at(self) -> int | None:
        """When time alone changes something next (microseconds): a backoff or a protection from preemption ends, a
        workload has waited so long that room is kept for it. The caller should plan then. None if nothing does."""
        state = self._state
        times = [record.workload.not_before for record in state.backoff.values()]
        return min([*times, *state.retries.values(), *(at for at, _ in state.starving.due[:1])], default=None)

    @_changes
    def revoke(self, uids: Iterable[str] | None = None) -> None:
        """Takes the last plan back: its commit was refused. Decisions of a plan build on each other, so all of it
        goes, also when only some `uids` were refused; the next `plan` decides anew. Does nothing if the state has
        changed since."""
        if uids is None or any(True for _ in uids):
            self._state.log.revert(0)

    def explain(self, uid: str, now: int) -> Waiting | None:
        """Why the workload waits, or why it can't grow, with every blocker; None when it waits for nothing."""
        record = self._state.records.get(growth_uid(uid)) or self._state.records.get(uid)
        if record is None:
            return None
        mark = self._state.log.mark()
        self._state.log.assign(self._state, "now", now)
        try:
            return Explainer(self._state).explain(record)
        finally:
            self._state.log.revert(mark)

    def outlook(self) -> Mapping[str, Outlook]:
        """Why each workload waits as the last plan found it, by kind alone: much cheaper than the words of all."""
        return outlook(self._state)

    def first_waiting(self, count: int) -> list[str]:
        """Uids of those for whom room is kept, and of the first `count` of each queue's order."""
        found = list(self._state.holders)
        for queue in self._state.queues.values():
            found += islice(queue.pending.in_order(), count)
        return found

    def restore_history(self, averages: Mapping[str, Mapping[str, int]], now: int) -> None:
        """Sets the decayed usage by queue and resource as of `now` (after a restart), as `history` gives it. Does
        nothing without a history in the configuration."""
        if self._state.history is not None:
            self._state.history.restore(averages, now)
            self._final()

    def history(self) -> Mapping[str, Mapping[str, int]]:
        """The decayed usage by queue and resource as of the last plan, in 2**-20 of base units; {} without a
        history."""
        return {} if self._state.history is None else self._state.history.averages()

    def usage(self) -> Mapping[str, Mapping[Cell, int]]:
        """Charged amounts, draining included, by name of queue or cohort (what the subtree has charged) and cell."""
        return self._state.tree.totals(NOW)

    def charge_of(self, uid: str) -> Mapping[Cell, int]:
        """What the workload is charged now, draining included; {} when it waits or is not known."""
        record = self._state.records.get(uid)
        standing = record.standing[NOW] if record is not None else None
        return dict(standing.charge) if standing is not None else {}

    def charge_with(
        self, uid: str, pod_groups: tuple[PodGroup, ...], admission: Admission | None = None
    ) -> Mapping[Cell, int]:
        """What an admitted workload would be charged with these pod groups (other counts), and with this admission if
        one is given."""
        record = self._state.records[uid]
        given = admission or record.admission
        if given is None:
            return {}
        return charge_with(self._state, given, replace(record.workload, pod_groups=pod_groups))

    def shrunk(self, uid: str, counts: Mapping[str, int]) -> Admission:
        """What the admission of an elastic workload is with fewer pods (pod set -> pods, those on loan included)."""
        return shrunk_admission(self._state, self._state.records[uid], counts)

    def adopt(self, workload: Workload, now: int) -> Admission | None:
        """An admission for a job that runs already, whatever the quota; None when no flavor fits. See `adopt.py`."""
        return adopt(self._state, workload, now)

    def may_wait(self, workload: Workload) -> Obstacle | None:
        """What keeps a workload from ever starting in the queue that it names. See `moving.py`."""
        return obstacle_of_waiting(workload, self._state.configuration, self._state.tree)

    def move(self, uid: str, workload: Workload, now: int) -> tuple[Admission, Obstacle | None]:
        """The admission of a running workload once it is charged to the queue that `workload` names, and what speaks
        against that. Changes nothing: `restore_admission` puts it into force."""
        self._state.now = now
        return moved(self._state, uid, workload)

    def _leave(self, record: Record) -> None:
        """Takes a waiting workload out of wherever it waits, with what is held for it."""
        if record.hold is not None:
            self._state.drop_hold(record)
        if record.phase is Phase.WAITING or record.group is not None:
            queue = self._state.queue(record.workload.queue)
            if queue.strict and queue.node is not None and record.group is not None:
                self._state.dirty.add(queue.node.root)  # others may have had to stand back for it
            self._state.dequeue(record)

    def _ended(self, record: Record) -> None:
        """Something that a workload has comes free, and not because it had to make room for another one."""
        standing = record.standing[NOW]
        node = None if standing is None else self._state.tree.queues.get(standing.queue)
        if node is not None and not record.evicted_by:
            self._state.settle_turns(node.root)

    def _settle(self) -> None:
        """Works out what the last plan tells before the state that it tells of changes."""
        told = None if self._told is None else self._told()
        self._told = None
        if told is not None:
            told.settle()

    def _final(self) -> None:
        self._state.log.forget()
