"""Taints and tolerations, label requirements, node selectors and required node affinity, as Kubernetes defines them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queue_manager.engine.workload import Requirement, SelectorTerm, Taint, Toleration

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
NODE_NAME_FIELD = "metadata.name"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint. An empty key with Exists covers all keys, an empty effect all
    effects."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], *tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps pods with these tolerations away; PreferNoSchedule keeps nobody away."""
    known = [toleration for group in tolerations for toleration in group]
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(tolerates(toleration, taint) for toleration in known):
            return taint
    return None


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _compares(actual: str, operator: str, wanted: str) -> bool:
    left, right = _integer(actual), _integer(wanted)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet one requirement. An unknown operator meets nothing."""
    actual = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return actual is not None and actual in requirement.values
        case "NotIn":
            return actual is None or actual not in requirement.values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt":
            return (
                actual is not None
                and len(requirement.values) == 1
                and _compares(actual, requirement.operator, requirement.values[0])
            )
    return False


def meets_all(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether the labels meet every requirement."""
    return all(meets(requirement, labels) for requirement in requirements)


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a plain node selector matches the labels."""
    return all(labels.get(key) == value for key, value in selector.items())


def affine(terms: tuple[SelectorTerm, ...], labels: Mapping[str, str], node: str) -> bool:
    """Whether required node affinity lets pods onto a node: one term must match. No terms match every node.

    A term without any requirement matches nothing, as in Kubernetes.
    """
    if not terms:
        return True
    fields = {NODE_NAME_FIELD: node}
    return any(
        (term.labels or term.fields) and meets_all(term.labels, labels) and meets_all(term.fields, fields)
        for term in terms
    )


def wants(
    selector: Iterable[tuple[str, str]], terms: tuple[SelectorTerm, ...], labels: Mapping[str, str], node: str
) -> bool:
    """Whether both the node selector and required node affinity let pods onto a node."""
    return selects(dict(selector), labels) and affine(terms, labels, node)


def flavor_matches(flavor: Mapping[str, str], selector: Mapping[str, str], terms: tuple[SelectorTerm, ...]) -> bool:
    """Whether pods with this selector and affinity may use a flavor with these labels (kueue.md 2.5a).

    Only the keys that the flavor defines count: other keys are for the nodes to meet. A term of which nothing is left
    matches everything.
    """
    if any(key in flavor and flavor[key] != value for key, value in selector.items()):
        return False
    if not terms:
        return True
    for term in terms:
        if meets_all((requirement for requirement in term.labels if requirement.key in flavor), flavor):
            return True
    return False
