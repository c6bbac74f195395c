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
        self._pod_priorities: Counter[int] = Counter()
        self._by_name: dict[tuple[str, str, str], str] = {}

    def named(self, kind: str, namespace: str, name: str) -> str:
        """The uid of the row of that name, "" without one; of several the one that came last."""
        return self._by_name.get((kind, namespace, name), "")

    def __setitem__(self, uid: str, row: WorkloadRow) -> None:
        self.forget(uid)
        super().__setitem__(uid, row)
        self.counts[(row.queue, row.state)] += 1
        self._pod_priorities.update(pod_priorities(row))
        self._by_name[(row.kind, row.namespace, row.name)] = uid
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
            self._pod_priorities.subtract(pod_priorities(row))
            name = (row.kind, row.namespace, row.name)
            if self._by_name.get(name) == uid:
                del self._by_name[name]
        return row

    def lowest_pod_priority(self, without: str) -> int | None:
        """The lowest priority of Kubernetes that pods of other workloads have; None when there are none."""
        row = self.get(without)
        own = pod_priorities(row) if row is not None else frozenset()
        return min((p for p, count in self._pod_priorities.items() if count > (p in own)), default=None)


def pod_priorities(row: WorkloadRow) -> frozenset[int]:
    """Priorities of Kubernetes of a workload's pods."""
    return frozenset(pod_set.pod_priority for group in row.pod_groups for pod_set in group.pod_sets)
