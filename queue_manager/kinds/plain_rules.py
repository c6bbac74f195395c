"""What plain pods demand of each other's places: rules that count pods by labels, which each pod has of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queue_manager.cluster.port import Object
from queue_manager.kinds.fields import View
from queue_manager.kinds.plain_shapes import POD_GROUP_LABEL, SHAPE, age
from queue_manager.kinds.pod_rules import PodLabels, RulesFound, asked_labels, pod_rules

_OF_GROUP = frozenset((POD_GROUP_LABEL,))


def plain_rules(metadata: Object, templates: Mapping[str, View], pods: Iterable[Object]) -> Mapping[str, RulesFound]:
    """The rules of the pod sets of a group by name, where `pods` are those that have not ended. Raises Unresolvable
    where one is about pods of another pod set: pods that are alike in all else may differ in labels that it selects."""
    asked = frozenset(key for template in templates.values() for key in asked_labels(template["spec"]))
    others = _labelled(pods, asked) if asked else {}
    grouped = POD_GROUP_LABEL in (metadata.get("labels") or {})
    found = {}
    for name, template in templates.items():
        labels = PodLabels(
            template["metadata"]["labels"].texts(),
            of_one=_OF_GROUP if grouped else frozenset(),
            advice=f"add matchLabelKeys with {POD_GROUP_LABEL}" if grouped else "",
        )
        besides = {told: other for told, (pod_set, other) in others.items() if pod_set != name}
        found[name] = pod_rules(template["spec"], metadata.get("namespace", ""), name, labels, besides)
    return found


def _labelled(pods: Iterable[Object], asked: frozenset[str]) -> Mapping[str, tuple[str, PodLabels]]:
    """Pod set and those of its labels that are asked for, once for all pods that have the same, by how to tell of
    them."""
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for pod in sorted(pods, key=age):
        labels = pod["metadata"].get("labels") or {}
        own = tuple((key, labels[key]) for key in sorted(asked & labels.keys()))
        alike.setdefault((pod.get(SHAPE, ""), own), pod["metadata"]["name"])
    return {f"{name} (such as {pod})": (name, PodLabels(dict(own))) for (name, own), pod in alike.items()}
