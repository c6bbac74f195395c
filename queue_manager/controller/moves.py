"""Carrying out what changes a row and the labels of its job together: moving to another queue, another priority class.

A workload that runs is charged to its new queue from the commit on, with the flavors and places that it has: nothing is
stopped. One that waits queues there, with its old place in time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from queue_manager.cluster.port import Object
from queue_manager.controller.labels import relabelled
from queue_manager.controller.obey import by, refused
from queue_manager.controller.picture import Picture
from queue_manager.controller.resizing import Resizing
from queue_manager.controller.transitions import Facts, event, relabel
from queue_manager.engine.decision import Admission
from queue_manager.engine.moving import Obstacle
from queue_manager.kinds.kind import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from queue_manager.store.deadlines import open_checks
from queue_manager.store.readings import KUBERNETES_CLASS, own_class, with_priority_class
from queue_manager.store.records import Change, Instruction, State, Wish, WorkloadRow
from queue_manager.store.targets import NoTargetError, Target, target_of
from queue_manager.store.times import to_microseconds
from queue_manager.store.wishes import PENDING_EVALUATION

MOVED = "Moved"
REPRIORITISED = "Reprioritised"
FORCE = "force (--force) moves it nonetheless"


@dataclass(frozen=True, slots=True)
class Later:
    """It can't be carried out at this moment: something has to be committed first."""


class Moves:
    """Asked in rounds that end with a commit: one running workload moves at most, so that two can't take the same
    room."""

    def __init__(self, picture: Picture, resizing: Resizing) -> None:
        self._picture = picture
        self._resizing = resizing
        self._moves = False
        self._postponed: set[str] = set()

    def begin(self) -> set[str]:
        """A new round of looks, after a commit; answers who was put off in the last one."""
        postponed, self._postponed, self._moves = self._postponed, set(), False
        return postponed

    def change_of(self, row: WorkloadRow, obj: Object, instruction: Instruction, facts: Facts) -> Change | Later:
        """What the instruction makes of the row, or the refusal with the reason."""
        if instruction.wish is Wish.MOVE:
            return self._move(row, obj, instruction, facts)
        return self._reprioritise(row, obj, instruction)

    def _move(self, row: WorkloadRow, obj: Object, instruction: Instruction, facts: Facts) -> Change | Later:
        try:
            target = target_of(self._picture.compiled, row.namespace, instruction.arguments["queue"])
        except NoTargetError as problem:
            return refused(row, instruction, str(problem))
        if target == Target(row.local_queue, row.queue):
            return refused(row, instruction, f"it is in queue {row.queue} already")
        fresh = replace(
            row,
            queue=target.queue,
            local_queue=target.label,
            relabels=relabelled(row, obj, self._picture.view, {QUEUE_LABEL: target.label}),
        )
        force = bool(instruction.arguments.get("force"))
        if row.admission is not None and row.state is not State.DRAINING:
            return self._move_running(row, fresh, instruction, facts, force=force)
        obstacle = self._picture.engine.may_wait(self._picture.workload(fresh))
        if obstacle is not None and not (force and obstacle.may_insist):
            return refused(row, instruction, _words(obstacle))
        message = f"Moved from queue {row.queue or row.local_queue} to queue {fresh.queue} by {by(instruction)}"
        if row.state is State.WAITING:
            fresh = replace(fresh, reason=PENDING_EVALUATION, message=message)
        outbox = (*relabel(fresh), event(fresh, MOVED, message))
        return Change(row=fresh, outbox=outbox)

    def _move_running(
        self, row: WorkloadRow, fresh: WorkloadRow, instruction: Instruction, facts: Facts, *, force: bool
    ) -> Change | Later:
        assert fresh.admission is not None
        if self._moves:
            self._postponed.add(row.uid)
            return Later()
        workload = self._picture.workload(fresh)
        admission, obstacle = self._picture.engine.move(row.uid, workload, to_microseconds(facts.now))
        if obstacle is not None and not (force and obstacle.may_insist):
            return refused(row, instruction, _words(obstacle))
        self._moves = True
        over = f", although {obstacle.message}" if obstacle is not None else ""
        message = f"Moved from queue {row.queue} to queue {fresh.queue} by {by(instruction)}{over}"
        fresh = _checked(replace(fresh, admission=replace(fresh.admission, admission=admission)), admission)
        outbox = (*relabel(fresh), event(fresh, MOVED, message, warning=bool(over)))
        return Change(row=fresh, ledger=self._resizing.ledger_of(fresh), outbox=outbox)

    def _reprioritise(self, row: WorkloadRow, obj: Object, instruction: Instruction) -> Change:
        name = instruction.arguments["priorityClass"]
        if name not in self._picture.compiled.priority_classes:
            return refused(row, instruction, f"there is no priority class {name}")
        if name == own_class(row):
            return refused(row, instruction, f"its priority class is {name} already")
        fresh = replace(
            with_priority_class(row, self._picture.compiled, name, PRIORITY_CLASS_LABEL),
            inputs={key: said for key, said in row.inputs.items() if not key.startswith(KUBERNETES_CLASS)},
            relabels=relabelled(row, obj, self._picture.view, {PRIORITY_CLASS_LABEL: name}),
        )
        was = f"{row.priority_class or 'none'} ({row.priority})"
        message = f"Priority class {name} ({fresh.priority}) in place of {was} by {by(instruction)}"
        return Change(row=fresh, outbox=(*relabel(fresh), event(fresh, REPRIORITISED, message)))


def _checked(row: WorkloadRow, admission: Admission) -> WorkloadRow:
    """A reserved workload says which checks of its new queue it waits for."""
    if row.state is not State.RESERVED:
        return row
    waits_for = open_checks(row.checks, admission.checks)
    message = f"Its quota is reserved; it starts once these checks are ready: {', '.join(waits_for)}"
    return replace(row, message=message) if waits_for else row


def _words(obstacle: Obstacle) -> str:
    return f"{obstacle.message}; {FORCE}" if obstacle.may_insist else obstacle.message
