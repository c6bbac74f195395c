"""Instructions that the leader has read and not carried out yet, by workload, in the order asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from queue_manager.store.records import Instruction


class Instructions:
    """`useless` are ids of those that can't be carried out any more; whoever leads takes them out of the store."""

    def __init__(self) -> None:
        self._of: dict[str, list[Instruction]] = {}
        self.useless: list[int] = []

    def read(self, pending: Iterable[Instruction], known: Collection[str]) -> set[str]:
        """Replaces what is known by what the store has; answers the workloads to look at. Those of unknown workloads
        are useless: all that can be instructed are known."""
        self._of.clear()
        self.useless.clear()
        for instruction in pending:
            if instruction.uid in known:
                self._of.setdefault(instruction.uid, []).append(instruction)
            else:
                self.useless.append(instruction.id)
        return set(self._of)

    def first(self, uid: str) -> Instruction | None:
        """What to do next for a workload."""
        return next(iter(self._of.get(uid, ())), None)

    def drop(self, instruction: Instruction) -> None:
        """It makes no sense any more."""
        self.useless.append(instruction.id)
        self.done(instruction.uid, (instruction.id,))

    def done(self, uid: str, ids: Collection[int]) -> bool:
        """Forgets what was carried out; says whether more is to be done for the workload."""
        left = [instruction for instruction in self._of.pop(uid, ()) if instruction.id not in ids]
        if left:
            self._of[uid] = left
        return bool(left)

    def forget(self, uid: str) -> None:
        """The workload is over."""
        self.useless.extend(instruction.id for instruction in self._of.pop(uid, ()))
