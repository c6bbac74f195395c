"""The engine's face: live state in, plans out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queue_manager.engine.configuration import Cell, Configuration, Node
from queue_manager.engine.decision import Admission, Plan, Waiting
from queue_manager.engine.workload import Workload


class Engine:
    """Holds one state; every method is deterministic and leaves the state consistent.

    Lifecycle of a workload, as told by the caller: `upsert_workload` (waits) -> `plan` admits it, or `restore_admission`
    after a restart -> `evict` (draining: still charged, still on its nodes) -> `release` (nothing is charged; it waits again
    unless removed). `plan` itself marks what it evicts as draining and holds what they free for the preemptor.
    """

    def configure(self, configuration: Configuration) -> None:
        """Replaces the configuration; running workloads stay charged even where they are over quota now."""
        raise NotImplementedError

    def upsert_node(self, node: Node) -> None:
        """Adds a node or replaces what is known of it."""
        raise NotImplementedError

    def remove_node(self, name: str) -> None:
        """Forgets a node; unknown names are ignored."""
        raise NotImplementedError

    def upsert_workload(self, workload: Workload) -> None:
        """Adds a waiting workload or replaces its request. An admitted one keeps its admission and charge; changed
        `reclaimed` counts of its pod sets change the charge at once."""
        raise NotImplementedError

    def remove_workload(self, uid: str) -> None:
        """Forgets a workload and everything it holds; unknown uids are ignored."""
        raise NotImplementedError

    def suspend_workload(self, uid: str, held: bool) -> None:
        """A held workload is kept but never tried (user's hold, unresolvable pod sets)."""
        raise NotImplementedError

    def restore_admission(self, admission: Admission, *, draining: bool = False, evicted_by: str = "") -> None:
        """Charges an admission made earlier (restart, adoption), even over quota. With `draining` it is on its way out."""
        raise NotImplementedError

    def bind(self, uid: str, pod_set: str, nodes: Mapping[str, int]) -> None:
        """Says where the pods of an admitted pod set are bound: node -> count. They count there; the rest of the count
        stays on planned nodes."""
        raise NotImplementedError

    def evict(self, uid: str) -> None:
        """Marks an admitted workload as draining (evicted or finished, pods still there)."""
        raise NotImplementedError

    def release(self, uid: str) -> None:
        """Its pods are gone: its charge and its nodes are free."""
        raise NotImplementedError

    def plan(self, now: int) -> Plan:
        """Plays rounds until one changes nothing and applies the outcome to the state.

        `now` is in microseconds. The plan stays revocable until the next change of state: see `revoke`.
        """
        raise NotImplementedError

    def revoke(self, uids: Iterable[str] | None = None) -> None:
        """Takes the last plan back (all of it, or the decisions about `uids`): its commit was refused."""
        raise NotImplementedError

    def explain(self, uid: str, now: int) -> Waiting | None:
        """Why the workload waits, with every blocker; None when it does not wait."""
        raise NotImplementedError

    def usage(self) -> Mapping[str, Mapping[Cell, int]]:
        """Charged amounts, draining included, by name of queue or cohort (what the subtree has charged) and cell."""
        raise NotImplementedError
