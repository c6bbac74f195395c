"""The workloads' rows as committed, counted as they come and go."""

from __future__ import annotations

from collections import Counter

from queue_manager.store.records import State, WorkloadRow


class Rows(dict[str, WorkloadRow]):
    """By uid. To be changed by item assignment and `forget` alone, which keep the counts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, State]] = Counter()
        self.reserved: set[str] = set()

    def __setitem__(self, uid: str, row: WorkloadRow) -> None:
        self.forget(uid)
        super().__setitem__(uid, row)
        self.counts[(row.queue, row.state)] += 1
        if row.state is State.RESERVED:
            self.reserved.add(uid)

    def forget(self, uid: str) -> WorkloadRow | None:
        """Takes a row out; None if there is none."""
        row = self.pop(uid, None)
        if row is not None:
            key = (row.queue, row.state)
            self.counts[key] -= 1
            if not self.counts[key]:
                del self.counts[key]
            self.reserved.discard(uid)
        return row
