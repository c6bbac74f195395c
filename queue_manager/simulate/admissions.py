"""`status.admission` of a Workload as an admission of the engine: flavors, counts, charge and domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from queue_manager.engine.configuration import HOSTNAME, Cell, Configuration, Node
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.workload import PodSet, Workload
from queue_manager.kinds.fields import View
from queue_manager.simulate.checks import MAIN
from queue_manager.simulate.fields import condition, moment

Values = tuple[str, ...]


class AdmissionReader:
    """Reads the admissions of one scenario."""

    def __init__(self, configuration: Configuration, nodes: Iterable[Node]) -> None:
        self._configuration = configuration
        self._by_host = {node.labels[HOSTNAME]: node.labels for node in nodes if HOSTNAME in node.labels}

    def read(self, view: View, workload: Workload) -> Admission:
        """The admission that the object records. Raises Unresolvable."""
        recorded = view.at("status", "admission")
        specs = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        charge: Counter[Cell] = Counter()
        assignments = []
        for entry in recorded["podSetAssignments"].items():
            name = entry["name"].text(MAIN)
            spec = specs.get(name, PodSet(name, 1, {}))
            assignment = self._assignment(entry, name, spec)
            assignments.append(assignment)
            usage = entry["resourceUsage"].amounts() or {
                resource: amount * assignment.count for resource, amount in spec.requests.items()
            }
            for resource, flavor in assignment.flavors.items():
                amount = usage.get(resource, 0)
                if assignment.count > spec.count:  # it has fewer pods by now: charged for those, as in Kueue
                    amount = amount // assignment.count * spec.count
                charge[Cell(flavor, resource)] += amount
        reserved = condition(view, "QuotaReserved")
        return Admission(
            workload.uid,
            recorded["clusterQueue"].text(),
            tuple(assignments),
            charge,
            moment(reserved["lastTransitionTime"]) if reserved is not None else workload.created,
        )

    def _assignment(self, entry: View, name: str, spec: PodSet) -> PodSetAssignment:
        flavors = entry["flavors"].texts()
        count = entry["count"].count(spec.count - spec.reclaimed)
        placed = entry["topologyAssignment"]
        levels, domains = self._domains(placed, flavors) if placed.given else ((), None)
        # Pods that were given back before the admission were never part of its count.
        before = min(spec.reclaimed, max(0, spec.count - count))
        return PodSetAssignment(name, count, flavors, {}, levels, domains, reclaimed=before)

    def _domains(self, placed: View, flavors: Mapping[str, str]) -> tuple[Values, tuple[DomainCount, ...]]:
        """Levels and domains; the host name alone stands for a whole path where hosts are the lowest level."""
        rows = _listed(placed) if placed["domains"].given else _packed(placed)
        levels = self._levels(flavors) or tuple(level.text() for level in placed["levels"].items())
        if levels[-1:] == (HOSTNAME,) and len(levels) > 1:
            rows = [(self._path(values, levels), count) for values, count in rows]
        return levels, tuple(DomainCount(values, count) for values, count in rows)

    def _levels(self, flavors: Mapping[str, str]) -> Values:
        """The levels of the topology that one of the flavors has."""
        for name in flavors.values():
            flavor = self._configuration.flavors.get(name)
            topology = self._configuration.topologies.get(flavor.topology) if flavor is not None else None
            if topology is not None:
                return topology.levels
        return ()

    def _path(self, values: Values, levels: Values) -> Values:
        if len(values) != 1:
            return values
        labels = self._by_host.get(values[0], {HOSTNAME: values[0]})
        return tuple(labels.get(level, "") for level in levels)


def _listed(placed: View) -> list[tuple[Values, int]]:
    """`domains` of v1beta1."""
    return [
        (tuple(value.text() for value in domain["values"].items()), domain["count"].count(0))
        for domain in placed["domains"].items()
    ]


def _packed(placed: View) -> list[tuple[Values, int]]:
    """`slices` of v1beta2: columns of values, each one for all or one a domain with common beginning and end."""
    rows: list[tuple[Values, int]] = []
    for piece in placed["slices"].items():
        number = piece["domainCount"].count(0)
        columns = [_column(values, number) for values in piece["valuesPerLevel"].items()]
        counts = _counts(piece["podCounts"], number)
        if not columns:
            raise piece["valuesPerLevel"].malformed("a list of values for each level")
        rows += zip(zip(*columns, strict=True), counts, strict=True)
    return rows


def _column(values: View, number: int) -> Sequence[str]:
    if values["universal"].given:
        return [values["universal"].text()] * number
    individual = values["individual"]
    before, after = individual["prefix"].text(), individual["suffix"].text()
    found = [before + root.text() + after for root in individual["roots"].items()]
    if len(found) != number:
        raise individual["roots"].malformed(f"a list of {number} (domainCount), but has {len(found)}")
    return found


def _counts(counts: View, number: int) -> Sequence[int]:
    if counts["universal"].given:
        return [counts["universal"].count(0)] * number
    found = [count.count(0) for count in counts["individual"].items()]
    if len(found) != number:
        raise counts["individual"].malformed(f"a list of {number} (domainCount), but has {len(found)}")
    return found
