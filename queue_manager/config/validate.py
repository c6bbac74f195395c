"""What no object can tell alone: references, the tree, quota groups, limits that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from queue_manager.config.fields import amount, weight_milli
from queue_manager.config.models import (
    Cohort,
    ConfigObject,
    Flavor,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    PodPriority,
    Queue,
    ResourceGroup,
    ResourceQuota,
    Resources,
    RoleBinding,
    Settings,
    Topology,
)
from queue_manager.config.names import check_name
from queue_manager.config.parse import path_text
from queue_manager.config.problem import Problem, nearest, nearest_or_list
from queue_manager.config.source import line_of
from queue_manager.config.tree import MAX_LEVELS, Tree, build_tree
from queue_manager.engine.configuration import HOSTNAME
from queue_manager.engine.quantities import show

Key = tuple[str, str, str]
Path = tuple[str | int, ...]
Finding = tuple[Path, str, str]
"""Field path, message, hint."""


class _Context:
    """Names that may be referred to. What is `broken` elsewhere is not reported again as unknown, what is `removed`
    by the same change is said to be still in use."""

    def __init__(self, objects: Sequence[ConfigObject], broken: Collection[Key], removed: Collection[Key]) -> None:
        self._removed = {(kind, name) for kind, _namespace, name in removed}
        self.names: dict[str, set[str]] = {}
        for kind, _namespace, name in [*(item.key for item in objects), *broken]:
            self.names.setdefault(kind, set()).add(name)
        self.tree: Tree = build_tree(objects)

    def unknown(self, path: Path, kind: str, name: str) -> Iterator[Finding]:
        """A finding when there is no such object."""
        known = self.names.get(kind, set())
        if name in known:
            return
        if (kind, name) in self._removed:
            yield path, f"{kind.lower()} {name!r} is still used here", "take it out here first, or keep it"
        else:
            yield path, f"unknown {kind.lower()} {name!r}", nearest_or_list(name, known, kind.lower())


def validate(
    objects: Sequence[ConfigObject], broken: Collection[Key] = frozenset(), removed: Collection[Key] = frozenset()
) -> list[Problem]:
    """All problems of the whole configuration, in the order of its objects. `removed` are keys of what a change takes
    away."""
    context = _Context(objects, broken, removed)
    problems = []
    for item in objects:
        check = _CHECKS.get(item.kind)
        for path, message, hint in check(item, context) if check else ():
            problems.append(problem_of(item, path, message, hint))
    problems.extend(_tree_problems(objects, context.tree))
    return problems


def unknown_parents(
    changed: Sequence[ConfigObject],
    objects: Sequence[ConfigObject],
    removed: Collection[Key],
    broken: Collection[Key],
    before: Tree,
) -> list[Problem]:
    """Cohorts that the changed objects name, and that neither are there, nor are among the `broken`, nor were named
    before; and cohorts that are removed although others name them. Kueue's objects may name a cohort that nobody
    declares: it is an empty one."""
    tree = build_tree(objects)
    known = {node.name for node in tree.cohorts.values() if not node.implicit} | set(before.cohorts)
    known |= {name for kind, _namespace, name in broken if kind == "Cohort"}
    known |= {parent for item in changed if item.source.foreign and (parent := _parent_of(item)[1])}
    gone = {name for kind, _namespace, name in removed if kind == "Cohort"}
    found = []
    for item in changed:
        field, parent = _parent_of(item)
        if parent and parent not in known and not check_name(parent, path=True):
            hint = nearest(parent, known) or "make a Cohort of this name, it may be empty"
            found.append(problem_of(item, ("spec", field), f"unknown cohort {parent!r}", hint))
    for item in objects:
        field, parent = _parent_of(item)
        if parent in gone:
            message = f"cohort {parent!r} is still used here"
            found.append(problem_of(item, ("spec", field), message, "take it out here first, or keep it"))
    return found


def _parent_of(item: ConfigObject) -> tuple[str, str]:
    """Field and name of the cohort above."""
    if isinstance(item, Queue):
        return "cohort", item.spec.cohort
    return "parent", item.spec.parent if isinstance(item, Cohort) else ""


def problem_of(item: ConfigObject, path: Path, message: str, hint: str = "") -> Problem:
    """A problem at a field of an object that was read well."""
    source = item.source
    kind, namespace, name = item.key
    return Problem(
        message,
        hint,
        file=source.file,
        line=line_of(source.content, path),
        kind=kind,
        name=f"{namespace}/{name}" if namespace else name,
        field=path_text(path),
    )


def _topology(item: Topology, context: _Context) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, level in enumerate(item.spec.levels):
        path = ("spec", "levels", index, "nodeLabel")
        if level.node_label in seen:
            yield path, f"level {level.node_label!r} is given twice", "levels go from the widest to the narrowest"
        seen[level.node_label] = index
    if HOSTNAME in seen and seen[HOSTNAME] != len(item.spec.levels) - 1:
        yield ("spec", "levels", seen[HOSTNAME], "nodeLabel"), f"{HOSTNAME} is the narrowest level", "put it last"


def _flavor(item: Flavor, context: _Context) -> Iterator[Finding]:
    topology = item.spec.topology_name
    if topology:
        yield from context.unknown(("spec", "topologyName"), "Topology", topology)
    for index, toleration in enumerate(item.spec.tolerations):
        path = ("spec", "tolerations", index)
        if toleration.operator == "Exists" and toleration.value:
            yield (*path, "value"), "operator Exists takes no value", "remove it, or use operator Equal"
        if toleration.operator == "Equal" and not toleration.key:
            yield (
                (*path, "key"),
                "is missing",
                "without a key only operator Exists is allowed (it tolerates everything)",
            )


def _cohort(item: Cohort, context: _Context) -> Iterator[Finding]:
    yield from _cohort_name("parent", item.spec.parent)
    yield from _groups(item.spec.resource_groups, bool(item.spec.parent), "parent", context)
    yield from _weight(item.spec.fair_sharing.weight)


def _queue(item: Queue, context: _Context) -> Iterator[Finding]:
    spec = item.spec
    yield from _cohort_name("cohort", spec.cohort)
    yield from _groups(spec.resource_groups, bool(spec.cohort), "cohort", context)
    yield from _weight(spec.fair_sharing.weight)
    if spec.namespace_selector is not None:
        yield from _selector(spec.namespace_selector)
    yield from _checks(item)
    borrow = spec.preemption.borrow_within_cohort
    if borrow.policy != "Never" and spec.preemption.reclaim_within_cohort == "Never":
        path = ("spec", "preemption", "borrowWithinCohort", "policy")
        yield (
            path,
            "has no effect while reclaimWithinCohort is Never",
            "set reclaimWithinCohort to LowerPriority or Any",
        )
    if borrow.max_priority_threshold is not None and borrow.policy == "Never":
        path = ("spec", "preemption", "borrowWithinCohort", "maxPriorityThreshold")
        yield path, "has no effect while the policy is Never", "set policy to LowerPriority"


def _checks(item: Queue) -> Iterator[Finding]:
    flavors = {flavor.name for group in item.spec.resource_groups for flavor in group.flavors}
    seen: set[str] = set()
    for index, check in enumerate(item.spec.admission_checks):
        path: Path = ("spec", "admissionChecks", index)
        if problem := check_name(check.name):
            yield (*path, "name"), problem, ""
        if check.name in seen:
            yield (*path, "name"), f"check {check.name!r} is listed twice", "name all its flavors in one entry"
        seen.add(check.name)
        for place, flavor in enumerate(check.on_flavors):
            if flavor not in flavors:
                message = f"the queue has no flavor {flavor!r}"
                yield (*path, "onFlavors", place), message, nearest_or_list(flavor, flavors, "flavor")


def _cohort_name(field: str, name: str) -> Iterator[Finding]:
    # A cohort without an object is made by its name here, so the name must be one.
    if name and (problem := check_name(name, path=True)):
        yield ("spec", field), problem, ""


def _weight(text: str) -> Iterator[Finding]:
    if 0 < weight_milli(text) > 10**9:
        yield ("spec", "fairSharing", "weight"), f"{text} is too large", "at most 1000000"


def _selector(selector: LabelSelector) -> Iterator[Finding]:
    for index, expression in enumerate(selector.match_expressions):
        path = ("spec", "namespaceSelector", "matchExpressions", index, "values")
        if expression.operator in ("In", "NotIn") and not expression.values:
            yield path, f"operator {expression.operator} needs values", ""
        if expression.operator in ("Exists", "DoesNotExist") and expression.values:
            yield path, f"operator {expression.operator} takes no values", "remove them"


def _groups(groups: Sequence[ResourceGroup], has_parent: bool, parent: str, context: _Context) -> Iterator[Finding]:
    resources: dict[str, int] = {}
    flavors: dict[str, int] = {}
    for index, group in enumerate(groups):
        path = ("spec", "resourceGroups", index)
        for place, resource in enumerate(group.covered_resources):
            if resource in resources:
                where = "twice" if resources[resource] == index else f"in group {resources[resource]} already"
                message = f"resource {resource!r} is covered {where}"
                yield (*path, "coveredResources", place), message, "a resource belongs to one group"
            resources.setdefault(resource, index)
        for place, flavor in enumerate(group.flavors):
            spot = (*path, "flavors", place)
            yield from context.unknown((*spot, "name"), "Flavor", flavor.name)
            if flavor.name in flavors:
                yield (*spot, "name"), f"flavor {flavor.name!r} is listed twice", "a flavor belongs to one group"
            flavors[flavor.name] = index
            yield from _covered(spot, flavor, group.covered_resources)
            for number, quota in enumerate(flavor.resources):
                yield from _limits((*spot, "resources", number), quota, has_parent, parent)


def _covered(path: Path, flavor: FlavorQuotas, covered: Sequence[str]) -> Iterator[Finding]:
    listed = [quota.name for quota in flavor.resources]
    for number, name in enumerate(listed):
        if name not in covered:
            message = f"resource {name!r} is not in coveredResources"
            hint = nearest(name, set(covered) - set(listed)) or "add it there, or remove it here"
            yield (*path, "resources", number, "name"), message, hint
        if name in listed[:number]:
            yield (*path, "resources", number, "name"), f"resource {name!r} is listed twice", "remove one"
    missing = [name for name in covered if name not in listed]
    if missing:
        names = ", ".join(missing)
        hint = "every flavor of a group lists exactly its coveredResources; write nominalQuota: 0 for none"
        yield (*path, "resources"), f"flavor {flavor.name!r} has no quota for {names}", hint


def _limits(path: Path, quota: ResourceQuota, has_parent: bool, parent: str) -> Iterator[Finding]:
    limits = (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit))
    for name, limit in limits:
        if limit is not None and not has_parent:
            yield (*path, name), f"has no meaning without a {parent}", f"set spec.{parent}, or remove it"
    lending = quota.lending_limit
    if lending is not None and amount(quota.name, lending) > amount(quota.name, quota.nominal_quota):
        message = f"{lending} is more than the nominalQuota {quota.nominal_quota}"
        yield (*path, "lendingLimit"), message, "a queue can lend no more than it owns"


def _local_queue(item: LocalQueue, context: _Context) -> Iterator[Finding]:
    yield from context.unknown(("spec", "queue"), "Queue", item.spec.queue)


def _role_binding(item: RoleBinding, context: _Context) -> Iterator[Finding]:
    node = item.spec.node
    if not node or context.tree.find("Cohort", node) or context.tree.find("Queue", node):
        return
    known = context.names.get("Cohort", set()) | context.names.get("Queue", set())
    if node not in known:
        known |= {each.path for each in context.tree.nodes()}
        yield ("spec", "node"), f"unknown queue or cohort {node!r}", nearest_or_list(node, known, "queue or cohort")


def _settings(item: Settings, context: _Context) -> Iterator[Finding]:
    strategies = item.spec.fair_sharing.preemption_strategies if item.spec.fair_sharing else []
    final, initial = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
    if item.spec.fair_sharing and strategies not in ([final], [initial], [final, initial]):
        path = ("spec", "fairSharing", "preemptionStrategies")
        yield path, f"{strategies} is not a valid choice", f"[{final}], [{initial}] or both in this order"
    requeuing = item.spec.wait_for_pods_ready.requeuing_strategy
    base, most = requeuing.backoff_base_seconds, requeuing.backoff_max_seconds
    if base > most:
        spot: Path = ("spec", "waitForPodsReady", "requeuingStrategy", "backoffBaseSeconds")
        yield spot, f"{base} is more than backoffMaxSeconds, {most}", "lower it, or raise backoffMaxSeconds"
    yield from _pod_priority(item.spec.pod_priority)
    yield from _resources(item.spec.resources)


def _pod_priority(asked: PodPriority) -> Iterator[Finding]:
    path: Path = ("spec", "podPriority", "className")
    normalizes = asked.policy == "Normalize"
    if normalizes and not asked.class_name:
        yield path, "is missing: policy Normalize gives pods this class", "name a PriorityClass of Kubernetes"
    elif not normalizes and asked.class_name:
        yield path, f"has no effect with policy {asked.policy}", "remove it, or set policy: Normalize"


def _resources(resources: Resources) -> Iterator[Finding]:
    path: Path = ("spec", "resources")
    if resources.quota_check_strategy == "IgnoreUndeclared" and resources.exclude_resource_prefixes:
        hint = "leave one of them out: what no queue declares is ignored anyway"
        yield (*path, "excludeResourcePrefixes"), "can't stand beside quotaCheckStrategy IgnoreUndeclared", hint
    for index, prefix in enumerate(resources.exclude_resource_prefixes):
        if not prefix.strip():
            hint = "every resource begins with it, so nothing would be counted; remove it"
            yield (*path, "excludeResourcePrefixes", index), "must not be empty", hint
    inputs: set[str] = set()
    for index, item in enumerate(resources.transformations):
        if item.input in inputs:
            message = f"resource {item.input!r} is transformed already"
            yield (*path, "transformations", index, "input"), message, "put all its outputs into one transformation"
        inputs.add(item.input)
        if item.multiply_by == item.input:
            message = f"multiplies {item.input!r} by itself"
            yield (*path, "transformations", index, "multiplyBy"), message, "name another resource, or remove it"
    counted: dict[str, str] = {}
    names: set[str] = set()
    for index, mapping in enumerate(resources.device_class_mappings):
        if mapping.name in names:
            message = f"resource {mapping.name!r} has a mapping already"
            hint = "put all its device classes into one mapping"
            yield (*path, "deviceClassMappings", index, "name"), message, hint
        names.add(mapping.name)
        for place, name in enumerate(mapping.device_class_names):
            if name in counted:
                message = f"device class {name!r} is counted as {counted[name]} already"
                spot = (*path, "deviceClassMappings", index, "deviceClassNames", place)
                yield spot, message, "a device class is counted as one resource"
            counted.setdefault(name, mapping.name)


def _tree_problems(objects: Sequence[ConfigObject], tree: Tree) -> Iterator[Problem]:
    by_key = {item.key: item for item in objects}
    for cycle in tree.cycles:
        item = by_key["Cohort", "", cycle[0]]
        message = "cohorts form a cycle: " + " -> ".join([*cycle, cycle[0]])
        yield problem_of(item, ("spec", "parent"), message, "a cohort can't be its own ancestor; remove one parent")
    for cohort in tree.cohorts.values():
        if cohort.level == MAX_LEVELS + 1:  # the first too deep of its chain
            message = f"cohort {cohort.name!r} is at level {cohort.level} of the tree, at most {MAX_LEVELS} are allowed"
            item = by_key["Cohort", "", cohort.name]
            yield problem_of(item, ("spec", "parent"), message, "give it a parent nearer to the root")
    owners: dict[str, str] = {}
    for node in sorted(tree.nodes(), key=lambda node: (node.path, node.implicit, node.kind, node.name)):
        this = f"{node.kind} {node.name}"
        first = owners.setdefault(node.path, this)
        found = by_key.get((node.kind, "", node.name))
        if first is not this and found:
            message = f"has the path {node.path!r}, which {first} has too"
            yield problem_of(found, ("metadata", "name"), message, "rename one of them")


_CHECKS: dict[str, Callable[..., Iterable[Finding]]] = {
    "Topology": _topology,
    "Flavor": _flavor,
    "Cohort": _cohort,
    "Queue": _queue,
    "LocalQueue": _local_queue,
    "RoleBinding": _role_binding,
    "Settings": _settings,
}


def advise(objects: Sequence[ConfigObject]) -> list[Problem]:
    """What is allowed and yet probably not meant, or accepted and without effect in this version."""
    warnings = []
    tree = build_tree(objects)
    named = [node.name for node in tree.cohorts.values() if not node.implicit]
    for item in objects:
        parent = item.spec.cohort if isinstance(item, Queue) else item.spec.parent if isinstance(item, Cohort) else ""
        if parent and tree.cohorts[parent].implicit:
            hint = nearest(parent, named)
            if hint:
                field = ("spec", "cohort" if isinstance(item, Queue) else "parent")
                warnings.append(problem_of(item, field, f"cohort {parent!r} has no object: taken as empty", hint))
        if isinstance(item, Queue) and item.spec.namespace_selector is None:
            message = "no namespace may use this queue"
            warnings.append(problem_of(item, ("spec", "namespaceSelector"), message, "write {} for every namespace"))
        warnings.extend(_without_effect(item))
    warnings.extend(_taken_for_limits(objects, tree))
    return warnings


def _taken_for_limits(objects: Sequence[ConfigObject], tree: Tree) -> Iterator[Problem]:
    """Quotas of cohorts below what is guaranteed to those under them. Elsewhere a parent's quota bounds its children,
    and this would be an error; here it is a pool beside theirs (kueue.md 1.3), so that it may be meant."""
    below: dict[str, dict[tuple[str, str], int]] = {}
    for item in objects:
        node = tree.cohorts.get(_parent_of(item)[1])
        while node is not None and node.level:  # a cycle is an error already
            sums = below.setdefault(node.name, {})
            for _, cell, nominal in _nominal(item):
                sums[cell] = sums.get(cell, 0) + nominal
            node = tree.cohorts.get(node.parent)
    for item in objects:
        if not isinstance(item, Cohort) or item.source.foreign:
            continue
        for path, cell, nominal in _nominal(item):
            total = below.get(item.name, {}).get(cell, 0)
            if 0 < nominal < total:
                own, sum_ = show(cell[1], nominal), show(cell[1], total)
                message = f"{own} is less than the {sum_} guaranteed below, and comes on top of them: it limits nobody"
                yield problem_of(item, path, message, "leave it out, unless these are resources of their own")


def _nominal(item: ConfigObject) -> Iterator[tuple[Path, tuple[str, str], int]]:
    """Nominal quotas: field, (flavor, resource), base units."""
    for index, group in enumerate(item.spec.resource_groups if isinstance(item, Queue | Cohort) else ()):
        for place, flavor in enumerate(group.flavors):
            for number, quota in enumerate(flavor.resources):
                path: Path = ("spec", "resourceGroups", index, "flavors", place, "resources", number, "nominalQuota")
                yield path, (flavor.name, quota.name), amount(quota.name, quota.nominal_quota)


def _without_effect(item: ConfigObject) -> Iterator[Problem]:
    # Fields of the contract whose part of the engine is not there yet: saying so beats silence.
    spec = item.spec
    unused: list[Path] = []
    if isinstance(item, Settings):
        unused += [("spec", "userMayOverride")] if spec.user_may_override else []
    for path in unused:
        yield problem_of(item, path, "is kept, but has no effect in this version")
