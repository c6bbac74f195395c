"""Configuration objects as the engine and the controller use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from queue_manager.config import models
from queue_manager.config.durations import parse_duration
from queue_manager.config.fields import amount, factor, weight_milli
from queue_manager.config.parse import ParseResult, parse_objects
from queue_manager.config.problem import Problem
from queue_manager.config.stops import KIND as STOP
from queue_manager.config.stops import Stop, Verdict, stopped_cohorts, stops_of, with_stops
from queue_manager.config.tree import Tree, build_tree
from queue_manager.engine import configuration as engine
from queue_manager.engine.resources import ResourceRules, Transformation
from queue_manager.engine.workload import Requirement, Taint, Toleration

MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE
Object = TypeVar("Object", bound=models.ConfigObject)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Rank of a workload. `min_run_time` is in microseconds."""

    name: str
    value: int
    may_preempt: bool = True
    preemptible: bool = True
    min_run_time: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the whole system; durations in microseconds. Defaults hold when there is no Settings object.

    `ready_timeout` 0 means that readiness is not watched; `backoff_limit` None means that it is tried for ever.
    `deactivate_without_nodes`: who gets no other nodes in time is given up, not queued again. `pod_priority` is Warn,
    Normalize or Ignore, `pod_priority_class` what pods are normalised to. `keep_` is how long the past is kept.
    """

    ready_timeout: int = 30 * MINUTE
    recovery_timeout: int = 30 * MINUTE
    requeue_by_eviction_time: bool = True
    block_admission: bool = False
    backoff_base: int = MINUTE
    backoff_max: int = 60 * MINUTE
    backoff_limit: int | None = None
    drain_timeout: int = 10 * MINUTE
    unhealthy_after: int = MINUTE
    wait_for_replacement: int = 5 * MINUTE
    deactivate_without_nodes: bool = False
    pod_priority: str = "Warn"
    pod_priority_class: str = ""
    adopt: bool = True
    kueue_labels: str = "auto"
    events: bool = True
    user_may_override: frozenset[str] = frozenset()
    trusted_submitters: frozenset[str] = frozenset()
    keep_workloads: int = 400 * DAY
    keep_usage: int = 1200 * DAY
    keep_events: int = DAY
    requests_per_second: int = 100
    request_burst: int = 200


@dataclass(frozen=True, slots=True)
class Compiled:
    """A configuration ready for use; without arguments an empty one. `tree` has the paths of all nodes;
    `stopped_cohorts` is what counts for those that are stopped by hand: the engine knows of their queues alone."""

    configuration: engine.Configuration = field(default_factory=engine.Configuration)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    settings: Settings = Settings()
    tree: Tree = field(default_factory=lambda: build_tree(()), compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    stopped_cohorts: Mapping[str, Verdict] = field(default_factory=dict)


class Stored(Protocol):
    """An object as the store keeps it."""

    @property
    def kind(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> Mapping[str, Any]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


def from_stored(objects: Iterable[Stored]) -> ParseResult:
    """Objects of the store as configuration objects; errors are those of objects that another version wrote. Stops are
    not objects of the configuration, and are left out."""
    return parse_objects(
        {
            "apiVersion": models.API_VERSION,
            "kind": item.kind,
            "metadata": {
                "name": item.name,
                **({"namespace": item.namespace} if item.namespace else {}),
                **({"labels": dict(item.labels)} if item.labels else {}),
            },
            "spec": dict(item.spec),
        }
        for item in objects
        if item.kind != STOP
    )


@dataclass(frozen=True, slots=True)
class _Record:
    kind: str
    name: str
    spec: Mapping[str, Any]
    namespace: str
    labels: Mapping[str, str]
    owner: str = ""
    revision: int = 0


def stored_objects(objects: Iterable[models.ConfigObject], owner: str = "") -> list[Any]:
    """Objects as the store takes them. Its own type is out of reach here (the store is a layer above)."""
    return [
        _Record(item.kind, item.name, item.spec_document(), item.metadata.namespace, dict(item.metadata.labels), owner)
        for item in objects
    ]


def compile_objects(objects: Iterable[Stored], revision: int = 0) -> Compiled:
    """`to_engine` of what the store holds. Objects that can't be read any more are left out and named in `problems`."""
    rows = list(objects)
    return compile_parsed(from_stored(rows), rows, revision)


def compile_parsed(result: ParseResult, rows: Iterable[Stored], revision: int) -> Compiled:
    """`compile_objects` where the rows are read already."""
    return replace(to_engine(result.objects, revision, stops_of(rows)), problems=result.errors)


def to_engine(objects: Sequence[models.ConfigObject], revision: int = 0, stops: Sequence[Stop] = ()) -> Compiled:
    """Translates objects that are parsed; they need not be valid together. `stops` is what people have stopped.

    Like Kueue, a queue that refers to something unknown is kept and marked inactive with the reason, so that a damaged
    configuration stops that queue alone.
    """
    by_kind: dict[str, dict[str, models.ConfigObject]] = {kind: {} for kind in models.KINDS}
    for item in objects:
        by_kind[item.kind][f"{item.metadata.namespace}/{item.name}" if item.namespaced else item.name] = item
    tree = build_tree(objects)
    spec = _settings_spec(by_kind["Settings"].values())
    topologies = {item.name: _topology(item) for item in _of(models.Topology, by_kind)}
    flavors = {item.name: _flavor(item) for item in _of(models.Flavor, by_kind)}
    cohorts = {item.name: _cohort(item) for item in _of(models.Cohort, by_kind)}
    cohorts |= {node.name: engine.Cohort(node.name) for node in tree.cohorts.values() if node.implicit}
    queues = {item.name: _queue(item, flavors, topologies, tree) for item in _of(models.Queue, by_kind)}
    configuration = engine.Configuration(
        topologies,
        flavors,
        dict(sorted(cohorts.items())),
        queues,
        resources=_resources(spec.resources),
        fair_sharing=_fair_sharing(spec),
        history=_history(spec),
        revision=revision,
        starvation=_starvation(spec.starvation),
        local_queues={
            f"{item.metadata.namespace}/{item.name}": engine.LocalQueue(
                item.spec.queue, engine.StopPolicy(item.spec.stop_policy)
            )
            for item in _of(models.LocalQueue, by_kind)
        },
    )
    return Compiled(
        with_stops(configuration, stops),
        {c.name: c for c in map(_priority_class, _of(models.PriorityClass, by_kind))},
        _settings(spec),
        tree,
        stopped_cohorts=stopped_cohorts(configuration, stops),
    )


def _of(kind: type[Object], by_kind: Mapping[str, Mapping[str, models.ConfigObject]]) -> list[Object]:
    return [item for _, item in sorted(by_kind[kind.__name__].items()) if isinstance(item, kind)]


def _topology(item: models.Topology) -> engine.Topology:
    return engine.Topology(item.name, tuple(level.node_label for level in item.spec.levels))


def _flavor(item: models.Flavor) -> engine.Flavor:
    spec = item.spec
    return engine.Flavor(
        item.name,
        dict(sorted(spec.node_labels.items())),
        tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.node_taints),
        tuple(Toleration(each.key, each.operator, each.value, each.effect) for each in spec.tolerations),
        spec.topology_name,
    )


def _cohort(item: models.Cohort) -> engine.Cohort:
    spec = item.spec
    return engine.Cohort(
        item.name, spec.parent, _resource_groups(spec.resource_groups), weight_milli(spec.fair_sharing.weight)
    )


def _queue(
    item: models.Queue, flavors: Mapping[str, engine.Flavor], topologies: Mapping[str, engine.Topology], tree: Tree
) -> engine.Queue:
    spec = item.spec
    preemption = spec.preemption
    borrow = preemption.borrow_within_cohort
    groups = _resource_groups(spec.resource_groups)
    return engine.Queue(
        item.name,
        spec.cohort,
        groups,
        engine.QueueingStrategy(spec.queueing_strategy),
        engine.Preemption(
            engine.PreemptionPolicy(preemption.within_cluster_queue),
            engine.PreemptionPolicy(preemption.reclaim_within_cohort),
            engine.PreemptionPolicy(borrow.policy),
            borrow.max_priority_threshold,
        ),
        engine.FlavorFungibility(spec.flavor_fungibility.when_can_borrow),
        engine.FlavorFungibility(spec.flavor_fungibility.when_can_preempt),
        engine.FlavorPreference(spec.flavor_fungibility.preference),
        _selector(spec.namespace_selector),
        engine.StopPolicy(spec.stop_policy),
        weight_milli(spec.fair_sharing.weight),
        _why_inactive(groups, flavors, topologies) or _cycle_above(spec.cohort, tree),
        _limits(spec.limits),
        tuple(engine.AdmissionCheck(check.name, tuple(check.on_flavors)) for check in spec.admission_checks),
    )


def _limits(limits: models.Limits) -> engine.Limits:
    return engine.Limits(
        limits.max_jobs,
        _party_limits(limits.per_user),
        _party_limits(limits.per_group),
        parse_duration(limits.min_run_time) if limits.min_run_time else 0,
        parse_duration(limits.checkpoint_grace) if limits.checkpoint_grace else 0,
    )


def _party_limits(share: models.Share | None) -> engine.PartyLimits:
    if share is None:
        return engine.PartyLimits()
    amounts = {resource: amount(resource, text) for resource, text in sorted(share.resources.items())}
    return engine.PartyLimits(share.running, share.waiting, amounts)


def _starvation(starvation: models.Starvation) -> engine.Starvation | None:
    if starvation.after is None or starvation.per_cohort == 0:
        return None
    return engine.Starvation(parse_duration(starvation.after), starvation.per_cohort)


def _resource_groups(groups: Sequence[models.ResourceGroup]) -> tuple[engine.ResourceGroup, ...]:
    return tuple(
        engine.ResourceGroup(
            tuple(group.covered_resources),
            tuple(
                engine.FlavorQuotas(flavor.name, {quota.name: _quota(quota) for quota in flavor.resources})
                for flavor in group.flavors
            ),
        )
        for group in groups
    )


def _quota(quota: models.ResourceQuota) -> engine.CellQuota:
    def limit(text: str | None) -> int | None:
        return None if text is None else amount(quota.name, text)

    nominal = amount(quota.name, quota.nominal_quota)
    return engine.CellQuota(nominal, limit(quota.borrowing_limit), limit(quota.lending_limit))


def _selector(selector: models.LabelSelector | None) -> tuple[Requirement, ...] | None:
    if selector is None:
        return None
    labels = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    expressions = [Requirement(each.key, each.operator, tuple(each.values)) for each in selector.match_expressions]
    return (*labels, *expressions)


def _why_inactive(
    groups: Iterable[engine.ResourceGroup],
    flavors: Mapping[str, engine.Flavor],
    topologies: Mapping[str, engine.Topology],
) -> str:
    for name in (quotas.flavor for group in groups for quotas in group.flavors):
        flavor = flavors.get(name)
        if flavor is None:
            return f"flavor {name} does not exist"
        if flavor.topology and flavor.topology not in topologies:
            return f"topology {flavor.topology} of flavor {name} does not exist"
    return ""


def _cycle_above(cohort: str, tree: Tree) -> str:
    in_cycle = {name: cycle for cycle in tree.cycles for name in cycle}
    seen: set[str] = set()
    while cohort and cohort not in seen:
        if cohort in in_cycle:
            return "its cohorts form a cycle: " + " -> ".join([*in_cycle[cohort], in_cycle[cohort][0]])
        seen.add(cohort)
        cohort = tree.cohorts[cohort].parent if cohort in tree.cohorts else ""
    return ""


def _priority_class(item: models.PriorityClass) -> PriorityClass:
    spec = item.spec
    minimum = parse_duration(spec.min_run_time) if spec.min_run_time else 0
    return PriorityClass(item.name, spec.value, spec.may_preempt, spec.preemptible, minimum)


def _resources(spec: models.Resources) -> ResourceRules:
    return ResourceRules(
        tuple(sorted(spec.exclude_resource_prefixes)),
        {item.input: _transformation(item) for item in spec.transformations},
        spec.quota_check_strategy == "IgnoreUndeclared",
        {name: item.name for item in spec.device_class_mappings for name in item.device_class_names},
    )


def _transformation(item: models.Transformation) -> Transformation:
    outputs = tuple((resource, factor(text)) for resource, text in sorted(item.outputs.items()))
    return Transformation(item.input, item.strategy == "Retain", item.multiply_by or "", outputs)


def _settings_spec(items: Iterable[models.ConfigObject]) -> models.SettingsSpec:
    return next((item.spec for item in items if isinstance(item, models.Settings)), models.SettingsSpec())


def _fair_sharing(spec: models.SettingsSpec) -> engine.FairSharing | None:
    fair = spec.fair_sharing
    if fair is None or not fair.enable:
        return None
    return engine.FairSharing(tuple(map(engine.FairStrategy, fair.preemption_strategies)))


def _history(spec: models.SettingsSpec) -> engine.History | None:
    asked = spec.admission_fair_sharing
    half_life = parse_duration(asked.usage_half_life_time) if asked and asked.usage_half_life_time else 0
    if asked is None or not half_life:
        return None
    weights = {resource: weight_milli(weight) for resource, weight in sorted(asked.resource_weights.items())}
    return engine.History(half_life, weights, parse_duration(asked.usage_sampling_interval))


def _settings(spec: models.SettingsSpec) -> Settings:
    ready, requeuing = spec.wait_for_pods_ready, spec.wait_for_pods_ready.requeuing_strategy
    timeout = parse_duration(ready.timeout) if ready.enable else 0
    recovery = parse_duration(ready.recovery_timeout) if ready.enable and ready.recovery_timeout else timeout
    return Settings(
        ready_timeout=timeout,
        recovery_timeout=recovery,
        block_admission=ready.enable and ready.block_admission,
        requeue_by_eviction_time=requeuing.timestamp == "Eviction",
        backoff_base=requeuing.backoff_base_seconds * 1_000_000,
        backoff_max=requeuing.backoff_max_seconds * 1_000_000,
        backoff_limit=requeuing.backoff_limit_count,
        drain_timeout=parse_duration(spec.drain_timeout),
        unhealthy_after=parse_duration(spec.node_failure.unhealthy_after),
        wait_for_replacement=parse_duration(spec.node_failure.wait_for_replacement),
        deactivate_without_nodes=spec.node_failure.then == "Deactivate",
        pod_priority=spec.pod_priority.policy,
        pod_priority_class=spec.pod_priority.class_name,
        adopt=spec.adoption == "Adopt",
        kueue_labels=spec.kueue_labels,
        events=spec.events == "on",
        user_may_override=frozenset(spec.user_may_override),
        trusted_submitters=frozenset(spec.trusted_submitters),
        keep_workloads=parse_duration(spec.retention.workloads),
        keep_usage=parse_duration(spec.retention.usage),
        keep_events=parse_duration(spec.retention.events),
        requests_per_second=spec.rate_limit.requests_per_second,
        request_burst=spec.rate_limit.burst,
    )
