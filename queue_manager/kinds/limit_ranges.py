"""What the LimitRanges of a namespace add to pods, and which pods they refuse (LimitRanger's admission rules)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from queue_manager.cluster.port import LIMIT_RANGES
from queue_manager.engine import quantities
from queue_manager.kinds.fields import View, identity
from queue_manager.kinds.kind import Lookup, Unresolvable

Amounts = dict[str, int]
MISCONFIGURED = "Misconfigured"


@dataclass(slots=True)
class Bounds:
    """What all LimitRanges together allow one container, or one pod: the highest minimum, the lowest maximum and the
    lowest ratio of limit to request."""

    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    ratio: dict[str, Fraction] = field(default_factory=dict)

    def add(self, item: View) -> None:
        """One item of a LimitRange."""
        for name, amount in item["min"].amounts().items():
            self.minimum[name] = max(amount, self.minimum.get(name, amount))
        for name, amount in item["max"].amounts().items():
            self.maximum[name] = min(amount, self.maximum.get(name, amount))
        for name, value in item["maxLimitRequestRatio"].mapping().items():
            view = View(value, f"{item.path}.maxLimitRequestRatio.{name}")
            try:
                ratio = quantities.exact(str(value))
            except (ValueError, ArithmeticError) as error:
                raise view.malformed(f"a quantity ({error})") from error
            self.ratio[name] = min(ratio, self.ratio.get(name, ratio))

    def check(self, path: str, requests: Mapping[str, int], limits: Mapping[str, int]) -> None:
        """Raises Unresolvable where no pod can be made with these requests and limits."""
        for name in sorted(self.minimum.keys() | self.maximum.keys() | self.ratio.keys()):
            problem = self._problem(name, requests.get(name), limits.get(name))
            if problem:
                raise beyond(path, f"{path} {problem}")

    def _problem(self, name: str, request: int | None, limit: int | None) -> str:
        least, most, ratio = self.minimum.get(name), self.maximum.get(name), self.ratio.get(name)
        if least is not None and (request is None or min(request, request if limit is None else limit) < least):
            asked = "nothing" if request is None else quantities.show(name, request)
            return f"requests {asked} of {name}, a LimitRange wants {quantities.show(name, least)} at least"
        if most is not None and (limit is None or max(limit, request or 0) > most):
            has = "no limit" if limit is None else f"a limit of {quantities.show(name, limit)}"
            return f"has {has} of {name}, a LimitRange allows {quantities.show(name, most)} at most"
        if ratio is not None and (not request or not limit or Fraction(limit, request) > ratio):
            return f"has a limit of {name} more than {float(ratio):g} times its request, which a LimitRange refuses"
        return ""


@dataclass(slots=True)
class Defaults:
    """What a namespace adds to containers on admission, and its bounds. `inputs` collects the objects that were
    read."""

    lookup: Lookup
    namespace: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    container: Bounds = field(default_factory=Bounds)
    pod: Bounds = field(default_factory=Bounds)
    inputs: dict[str, str] = field(default_factory=dict)


def namespace_defaults(lookup: Lookup, namespace: str) -> Defaults:
    """Defaults and bounds of the namespace's LimitRanges. Raises Unresolvable on malformed ones.

    The first LimitRange that says something wins, as in the LimitRanger, whose order is not defined; ours is by name.
    """
    defaults = Defaults(lookup, namespace)
    for limit_range in sorted(lookup.list(LIMIT_RANGES, namespace), key=lambda item: str(item["metadata"].get("name"))):
        name = f"LimitRange/{limit_range['metadata'].get('name', '')}"
        for item in View(limit_range, f"{name}: ").at("spec", "limits").items():
            kind = item["type"].text()
            if kind in ("Container", "Pod"):
                defaults.inputs[name] = identity(limit_range)
            if kind == "Container":
                _add_missing(item, defaults)
                defaults.container.add(item)
            elif kind == "Pod":
                defaults.pod.add(item)
    return defaults


def _add_missing(item: View, defaults: Defaults) -> None:
    """Defaults of one LimitRange item, its own gaps filled as the API server fills them when it stores the object."""
    limits = item["max"].amounts() | item["default"].amounts()
    requests = item["min"].amounts() | limits | item["defaultRequest"].amounts()
    defaults.limits |= {name: amount for name, amount in limits.items() if name not in defaults.limits}
    defaults.requests |= {name: amount for name, amount in requests.items() if name not in defaults.requests}


def beyond(path: str, message: str) -> Unresolvable:
    """No pod can be made of what stands at `path`."""
    return Unresolvable(MISCONFIGURED, path, f"{message}: no pod can be made")
