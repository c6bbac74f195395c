"""What kinds share that are told by `spec.suspend` to run no pods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from queue_manager.cluster.pods import is_gone
from queue_manager.cluster.port import Object, Query, Resource
from queue_manager.engine.decision import PodSetAssignment
from queue_manager.engine.workload import PodSet
from queue_manager.kinds import patches
from queue_manager.kinds.fields import condition, suspended
from queue_manager.kinds.kind import NOTHING, Additions, Finished, Lookup, Outcome, PodPlacement


class Suspending(ABC):
    """`success` is the condition that says that all went well; `Failed` says the contrary in all of them."""

    resource: Resource
    success = "Complete"

    @abstractmethod
    def pod_selector(self, obj: Object) -> Mapping[str, str]:
        """Labels that select its pods in its namespace."""

    def pods_query(self, obj: Object) -> Query:
        """As in `Kind.pods_query`, by label."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(self.pod_selector(obj).items()))
        return Query(namespace=obj["metadata"].get("namespace", ""), label_selector=selector)

    def occupies(self, obj: Object, pod: Object) -> bool:
        """Every pod of it that has not ended."""
        return not is_gone(pod)

    def passage(self, pod: Object, placement: PodPlacement, admission: str) -> Additions:
        """Nothing: it is in the pod template."""
        return NOTHING

    def most_running(self, pod_set: PodSet, assigned: PodSetAssignment, pods: Sequence[Object]) -> int | None:
        """Its controller sees to it."""
        return None

    def keeps_slot(self, pod: Object, uid: str, attempt: int) -> bool:
        """Never: its controller replaces pods as it likes."""
        return False

    def noted_on(self, obj: Object) -> Sequence[tuple[Resource, Object]]:
        """The job itself."""
        return [(self.resource, obj)]

    def is_suspended(self, obj: Object) -> bool:
        """`spec.suspend`."""
        return suspended(obj)

    @patches.guarded
    def suspend_on_create(self, obj: Object, lookup: Lookup) -> list[Object]:
        """As in `Kind.suspend_on_create`."""
        if not isinstance(obj.get("spec"), dict) or self.is_suspended(obj):
            return []
        return [patches.put(True, "spec", "suspend")]

    def finished(self, obj: Object) -> Finished | None:
        """The condition of success or failure is True. A Job's SuccessCriteriaMet and FailureTarget come earlier, with
        pods still there."""
        for kind, outcome in ((self.success, Outcome.SUCCEEDED), ("Failed", Outcome.FAILED)):
            found = condition(obj, kind)
            if found is not None:
                return Finished(outcome, str(found.get("message") or found.get("reason") or ""))
        return None
