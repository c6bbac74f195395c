"""Where a workload stands when a scenario begins: what its status, its annotations and its owners say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from queue_manager.cluster.port import Object
from queue_manager.engine.decision import Reason
from queue_manager.kinds.fields import View
from queue_manager.simulate.fields import condition
from queue_manager.simulate.objects import label, namespace_of

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"

Why = tuple[str, str]
"""Reason and message of a workload that is never tried."""


class Stage(Enum):
    """GOING is evicted, with pods that may still be there."""

    WAITING = "waiting"
    RUNNING = "running"
    GOING = "going"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Standing:
    """`ends` is the reason for which a running workload has to end that nobody evicted yet; `why` is set where it is
    never tried (again)."""

    stage: Stage
    ends: str = ""
    why: Why | None = None


def standing_of(view: View, problem: str, variants: Variants) -> Standing:
    """Reads the state of a Workload. `problem` says why it can't be tried at all, or ""."""
    if condition(view, "Finished") is not None:
        return Standing(Stage.FINISHED, why=("Finished", "has finished"))
    why = _why_never(view, problem, variants)
    if not view.at("status", "admission").given:
        return Standing(Stage.WAITING, why=why)
    ends = _must_end(view)
    going = ends or condition(view, "Evicted") is not None
    ends = "" if condition(view, "Evicted") is not None else ends
    return Standing(Stage.GOING if going else Stage.RUNNING, ends, why)


def _must_end(view: View) -> str:
    """Why a running workload has to end: the reason of its eviction, or ""."""
    if not view.at("spec", "active").boolean(True) or _check(view, "Rejected"):
        return "Deactivated"
    return "AdmissionCheck" if _check(view, "Retry") else ""


def _why_never(view: View, problem: str, variants: Variants) -> Why | None:
    if not view.at("spec", "active").boolean(True):
        return (Reason.INACTIVE.value, "is deactivated (spec.active is false)")
    rejected = _check(view, "Rejected")
    if rejected:
        return (Reason.INACTIVE.value, f"is deactivated: admission check {rejected} rejected it")
    gates = view.at("metadata", "annotations")[GATED_BY].text()
    if gates:
        return ("AdmissionGated", f"is gated by {gates} (annotation {GATED_BY})")
    reserved = condition(view, "QuotaReserved", "False")
    if reserved is not None and reserved["reason"].text() == "OnHold":
        return ("OnHold", reserved["message"].text() or "is on hold")
    if condition(view, "WaitingForReplacementPods") is not None:
        return ("WaitingForReplacementPods", "waits until its failed pods are replaced")
    variant = variants.why_not_tried(view.value)
    if variant:
        return ("Variant", variant)
    return (Reason.MISCONFIGURED.value, problem) if problem else None


def _check(view: View, state: str) -> str:
    """The first admission check in that state, by name, or ""."""
    found = [
        check["name"].text() for check in view.at("status", "admissionChecks").items() if check["state"].text() == state
    ]
    return min(found, default="")


class Variants:
    """Workloads that stand for another one with one flavor each (Kueue's concurrent admission, off by default there).

    Here the workload itself chooses among all flavors, so its variants are not tried; one that runs already stands for
    it.
    """

    def __init__(self, workloads: Iterable[Object]) -> None:
        found = list(workloads)
        known = {label(o) for o in found}
        self._parents = {label(o): parent for o in found if (parent := _parent(o)) in known}
        self._running = {
            self._parents[label(o)]: label(o)
            for o in sorted(found, key=label, reverse=True)
            if label(o) in self._parents and (o.get("status") or {}).get("admission")
        }

    def why_not_tried(self, workload: Object) -> str:
        """Why a variant, or a workload with variants, is not tried; "" where it is."""
        key = label(workload)
        if key in self._parents:
            return f"is a variant of {self._parents[key]}, which chooses among all flavors itself"
        return f"runs as its variant {self._running[key]}" if key in self._running else ""


def _parent(obj: Object) -> str:
    """The workload that owns a workload, "" without one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Workload" and str(owner.get("apiVersion", "")).startswith("kueue.x-k8s.io/"):
            return f"{namespace_of(obj)}/{owner.get('name', '')}"
    return ""


def priority_boost(view: View) -> int:
    """What an annotation adds to the priority. Raises Unresolvable."""
    field = view.at("metadata", "annotations")[PRIORITY_BOOST]
    try:
        return int(field.text() or "0")
    except ValueError:
        raise field.malformed("a whole number in quotes") from None


def may_preempt(view: View) -> bool:
    """Whether every gate of `spec.preemptionGates` is open; one that nobody opened is closed."""
    positions: Mapping[str, str] = {
        gate["name"].text(): gate["position"].text() for gate in view.at("status", "preemptionGates").items()
    }
    return all(positions.get(gate["name"].text()) == "Open" for gate in view.at("spec", "preemptionGates").items())
