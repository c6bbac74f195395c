"""Random but small worlds for the property tests, and what must hold in every state of an engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Cohort,
    Configuration,
    FairSharing,
    FairStrategy,
    Flavor,
    FlavorFungibility,
    FlavorPreference,
    FlavorQuotas,
    History,
    Node,
    Policies,
    Preemption,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    ResourceGroup,
    Topology,
)
from queue_manager.engine.decision import Plan
from queue_manager.engine.engine import Engine
from queue_manager.engine.records import Phase
from queue_manager.engine.tree import FUTURE, NOW
from queue_manager.engine.workload import (
    PodGroup,
    PodSet,
    TopologyMode,
    TopologyRequest,
    Workload,
)

EXAMPLES = int(os.environ.get("ENGINE_EXAMPLES", "25"))
COMMON = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
"""Of every property test."""
FLAVORS = ("spot", "fixed")
RESOURCES = ("cpu", "gpu")
RACK, HOST = "rack", "kubernetes.io/hostname"


@st.composite
def quotas(draw: st.DrawFn, flavors: tuple[str, ...], limits: bool) -> tuple[ResourceGroup, ...]:
    def quota() -> CellQuota:
        limit = st.none() | st.integers(0, 6) if limits else st.none()
        return CellQuota(draw(st.integers(0, 8)), draw(limit), draw(limit))

    return (ResourceGroup(RESOURCES, tuple(FlavorQuotas(f, {r: quota() for r in RESOURCES}) for f in flavors)),)


@st.composite
def preemption(draw: st.DrawFn) -> Preemption:
    within = [PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY]
    reclaim = [PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY]
    borrow = [PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY]
    return Preemption(
        draw(st.sampled_from(within)),
        draw(st.sampled_from(reclaim)),
        draw(st.sampled_from(borrow)),
        draw(st.none() | st.integers(0, 2)),
    )


fair_sharing = st.none() | st.sampled_from(
    [FairSharing(), *(FairSharing((strategy,)) for strategy in FairStrategy), FairSharing()]
)
weights = st.sampled_from([1000, 1000, 0, 500, 3000])


@st.composite
def configurations(draw: st.DrawFn, topology: bool | None = None, fair: bool | None = None) -> Configuration:
    with_nodes = draw(st.booleans()) if topology is None else topology
    shares = draw(fair_sharing) if fair is None else draw(fair_sharing.filter(bool)) if fair else None
    flavors = FLAVORS[: draw(st.integers(1, 2))]
    parents = {"root": "", "left": "root", "right": draw(st.sampled_from(["root", "left"]))}
    cohorts = {
        name: Cohort(name, parent, draw(quotas(flavors, bool(parent)) | st.just(())), draw(weights))
        for name, parent in parents.items()
    }
    queues = {}
    for name in ("qa", "qb", "qc")[: draw(st.integers(1, 3))]:
        cohort = draw(st.sampled_from(["", "root", "left", "right"]))
        queues[name] = Queue(
            name,
            cohort,
            draw(quotas(flavors, bool(cohort))),
            draw(st.sampled_from(list(QueueingStrategy))),
            draw(preemption()),
            draw(st.sampled_from(list(FlavorFungibility))),
            draw(st.sampled_from(list(FlavorFungibility))),
            draw(st.sampled_from(list(FlavorPreference))),
            weight_milli=draw(weights),
        )
    return Configuration(
        {"t": Topology("t", (RACK, HOST))},
        {f: Flavor(f, {"pool": f}, topology="t" if with_nodes and i == 0 else "") for i, f in enumerate(flavors)},
        cohorts,
        queues,
        Policies(),
        fair_sharing=shares,
        history=draw(st.none() | st.none() | st.just(History(2_000, {"gpu": 3000}, 500))),
    )


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    for i in range(draw(st.integers(1, 5))):
        labels = {"pool": FLAVORS[0], RACK: f"r{draw(st.integers(0, 1))}", HOST: f"n{i}"}
        amounts = {"cpu": draw(st.integers(0, 6)), "gpu": draw(st.integers(0, 4)), "pods": draw(st.integers(1, 5))}
        made.append(Node(f"n{i}", labels, amounts))
    return made


@st.composite
def workloads(draw: st.DrawFn, number: int) -> Workload:
    request = st.none() | st.builds(
        TopologyRequest, st.sampled_from([TopologyMode.REQUIRED, TopologyMode.PREFERRED]), st.sampled_from([RACK, HOST])
    )
    pod_sets = []
    for i in range(draw(st.integers(1, 2))):
        requests = {"cpu": draw(st.integers(0, 3)), "gpu": draw(st.integers(0, 2))}
        stage = draw(st.integers(0, 1))
        pod_sets.append(
            PodSet(
                f"p{i}", draw(st.integers(1, 3)), requests, (stage, draw(st.integers(stage, 1))), topology=draw(request)
            )
        )
    return Workload(
        f"w{number:02}",
        "ns",
        f"w{number:02}",
        draw(st.sampled_from(["qa", "qb", "qc"])),
        draw(st.integers(0, 5)),
        (PodGroup("g", tuple(pod_sets)),),
        draw(st.integers(0, 2)),
        topology=draw(st.none() | st.none() | request),
    )


@st.composite
def batches(draw: st.DrawFn, least: int = 1, most: int = 8) -> list[Workload]:
    return [draw(workloads(i)) for i in range(draw(st.integers(least, most)))]


def engine_of(configuration: Configuration, found: list[Node], batch: list[Workload]) -> Engine:
    engine = Engine()
    engine.configure(configuration)
    for node in found:
        engine.upsert_node(node)
    for workload in batch:
        engine.upsert_workload(workload)
    return engine


def over(engine: Engine, view: int = NOW) -> dict[tuple[str, Cell], int]:
    """By how much each node of the tree is over a limit."""
    found = {}
    tree = engine._state.tree
    for node in [*tree.queues.values(), *tree.cohorts.values()]:
        for cell, used in node.usage[view].items():
            excess = used - node.subtree.get(cell, 0)
            quota = node.quotas.get(cell)
            if node.parent is not None:
                excess -= 1 << 40 if quota is None or quota.borrowing_limit is None else quota.borrowing_limit
            if excess > 0:
                found[(node.path, cell)] = excess
    return found


def crowded(engine: Engine, view: int = NOW) -> dict[tuple[str, str], int]:
    """By how much each node of the cluster is overbooked."""
    fleet = engine._state.fleet
    found = {}
    for name, amounts in fleet.occupied[view].items():
        for resource, amount in amounts.items():
            node = fleet.nodes.get(name)
            free = 0 if node is None else node.allocatable.get(resource, 0) - node.foreign.get(resource, 0)
            if node is not None and amount > free:
                found[(name, resource)] = amount - free
    return found


def snapshot(engine: Engine) -> Any:
    """Everything that decides what an engine does next."""
    state = engine._state
    tree = {
        node.path + ("" if node.is_queue else "/"): [
            {c: v for c, v in amounts.items() if v} for amounts in (*node.usage[:2], node.subtree, node.local)
        ]
        for node in [*state.tree.queues.values(), *state.tree.cohorts.values()]
    }
    records = {
        uid: (
            r.phase,
            r.held,
            r.admission,
            r.evicted_by,
            list(r.standing),
            dict(r.planned),
            dict(r.bound),
            dict(r.leaving),
            r.hold,
            r.reported,
            r.counted,
            r.limit,
            r.outside,
            r.verdict,
            dict(r.resume),
            r.resume_of,
        )
        for uid, r in state.records.items()
    }
    queues = {
        name: (
            list(q.pending.in_order()),
            {g.shape: (list(g.members), g.parked, g.shelf and g.shelf.lack, g.told) for g in q.pending.groups.values()},
            q.blocked,
            q.front,
            q.sticky,
            q.departures,
            sorted(q.standing),
            sorted(q.outside),
            q.tally and (dict(q.tally.running), dict(q.tally.amounts)),
        )
        for name, q in state.queues.items()
    }
    marks = (
        sorted(r.path for r in state.dirty),
        sorted(state.fresh),
        sorted(state.live),
        sorted(state.to_stop),
        state.nodes_changed,
        sorted(state.backoff),
        state.rounds,
    )
    past = None if state.history is None else (state.history.at, state.history._averages, state.history._charged)
    holds = (past, sorted(state.holders), sorted(state.draining), state.turns.victims())
    fleet = state.fleet
    views = [fleet.alone._views.get(view, {}) for view in (NOW, FUTURE)]
    alone = [[dict(counts) for _, counts in sorted(view.items()) if counts] for view in views]
    nodes = ([dict(view) for view in fleet.occupied[:2]], alone)
    return tree, records, queues, marks, holds, dict(state.retries), nodes


def settle(engine: Engine, start: int = 1, most: int = 60, check: Callable[[Plan], None] | None = None) -> list[Plan]:
    """Plans until nothing changes; what is evicted ends at once."""
    plans = []
    for step in range(most):
        plan = engine.plan(start + step * 1000)
        plans.append(plan)
        if check is not None:
            check(plan)
        for eviction in plan.evictions:
            engine.release(eviction.uid)
        if not (plan.admissions or plan.resizes or plan.evictions):
            return plans
    raise AssertionError("does not come to rest")


def copy_of(engine: Engine) -> Engine:
    """A new engine told what the old one knows, as after a restart."""
    state = engine._state
    fresh = Engine()
    fresh.configure(state.configuration)
    for node in state.fleet.nodes.values():
        fresh.upsert_node(node)
    for record in state.records.values():
        if record.workload.resizes:
            continue  # follows from the workload that grows
        fresh.upsert_workload(record.workload)
        fresh.suspend_workload(record.uid, record.held)
        if record.admission is not None:
            fresh.restore_admission(
                record.admission, draining=record.phase is Phase.DRAINING, evicted_by=record.evicted_by
            )
        for name, bound in record.bound.items():
            fresh.bind(record.uid, name, bound, record.leaving.get(name, {}))
    if state.history is not None:
        fresh.restore_history(engine.history(), state.history.at)
    return fresh


def with_quota(configuration: Configuration, queue: str, scale: int) -> Configuration:
    """The configuration with the nominal quotas of one queue replaced."""
    old = configuration.queues[queue]
    groups = tuple(
        replace(
            g,
            flavors=tuple(
                replace(f, quotas={r: replace(q, nominal=scale) for r, q in f.quotas.items()}) for f in g.flavors
            ),
        )
        for g in old.resource_groups
    )
    return replace(configuration, queues={**configuration.queues, queue: replace(old, resource_groups=groups)})


__all__ = ["FUTURE", "NOW"]
