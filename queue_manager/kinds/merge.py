"""Strategic merge as the Trainer controller uses it on a JobSet template (Kubernetes' patch rules for these types)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

MERGE_KEYS: Mapping[str, str] = {
    "replicatedJobs": "name",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
}
"""Lists that merge by a key; every other list is replaced whole (tolerations, node selector terms: kueue#15161)."""


def strategic_merge(base: Any, patch: Any) -> Any:
    """`base` with `patch` laid over it, as a new value. Element order of `base` stays, new elements follow."""
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.copy(base)
    for key, value in patch.items():
        if value is None:
            continue
        current = merged.get(key)
        if key in MERGE_KEYS and isinstance(current, list) and isinstance(value, list):
            merged[key] = _merge_list(current, value, MERGE_KEYS[key])
        else:
            merged[key] = strategic_merge(current, value)
    return merged


def _merge_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = list(base)
    positions = {element.get(key): index for index, element in enumerate(base) if isinstance(element, dict)}
    for element in patch:
        name = element.get(key) if isinstance(element, dict) else None
        if name in positions:
            merged[positions[name]] = strategic_merge(merged[positions[name]], element)
        else:
            positions[name] = len(merged)
            merged.append(copy.deepcopy(element))
    return merged
