"""What kinds share that are told by `spec.suspend` to run no pods."""

from __future__ import annotations

from queue_manager.cluster.port import Object
from queue_manager.kinds import patches
from queue_manager.kinds.fields import condition, suspended
from queue_manager.kinds.kind import Finished, Lookup, Outcome


class Suspending:
    """`success` is the condition that says that all went well; `Failed` says the contrary in all of them."""

    success = "Complete"

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
