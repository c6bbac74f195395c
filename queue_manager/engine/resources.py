"""What quota counts of what pods ask for (kueue.md 1.7 and 2.2): exclusions, transformations, device classes.

Nodes are always checked with what the pods ask for; only quota is counted by these rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from queue_manager.engine.quantities import CPU
from queue_manager.engine.workload import Requests


@dataclass(frozen=True, slots=True)
class Transformation:
    """What quota counts for one unit of the resource `input`: `outputs` (resource -> units, may be negative), and the
    input itself if `retain`.

    With `multiply_by` each unit counts as often as the pod asks for units of that resource; a pod that asks for none
    is counted as without it. Units are whole ones (one CPU, one byte), not base units.
    """

    input: str
    retain: bool = True
    multiply_by: str = ""
    outputs: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """`excluded_prefixes` are resource name prefixes that quota ignores; `transformations` are keyed by input.

    With `ignore_undeclared` a resource for which a queue has no quota is not counted there, else it keeps the workload
    waiting. `device_classes` maps a DeviceClass to the resource that its devices are counted as.
    """

    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict)
    ignore_undeclared: bool = False
    device_classes: Mapping[str, str] = field(default_factory=dict)

    def counted(self, requests: Requests) -> dict[str, int]:
        """What quota counts for one pod that asks for `requests`; both in base units. What is finer than a base unit
        is rounded up."""
        kept = {r: amount for r, amount in requests.items() if not r.startswith(self.excluded_prefixes or ("\0",))}
        if not any(resource in self.transformations for resource in kept):
            return kept
        retained: dict[str, int] = {}
        made: dict[str, Fraction] = {}
        for resource, amount in kept.items():
            rule = self.transformations.get(resource)
            if rule is None or rule.retain:
                retained[resource] = amount
            if rule is not None:
                units = _units(resource, amount)
                if rule.multiply_by in kept:
                    units *= _units(rule.multiply_by, kept[rule.multiply_by])
                for output, each in rule.outputs:
                    made[output] = made.get(output, Fraction(0)) + units * each
        for output, total in made.items():
            # Outputs may cancel each other, but never eat into what was asked for by name.
            retained[output] = retained.get(output, 0) + max(0, _base(output, total))
        return retained

    def counted_devices(self, devices: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
        """Resources that devices (class -> number) are counted as, and the classes that no rule maps, by name."""
        counted: dict[str, int] = {}
        for name in sorted(devices):
            resource = self.device_classes.get(name)
            if resource is not None:
                counted[resource] = counted.get(resource, 0) + devices[name] * (1000 if resource == CPU else 1)
        return counted, tuple(sorted(name for name in devices if name not in self.device_classes))


def _units(resource: str, amount: int) -> Fraction:
    return Fraction(amount, 1000) if resource == CPU else Fraction(amount)


def _base(resource: str, units: Fraction) -> int:
    return math.ceil(units * 1000 if resource == CPU else units)
