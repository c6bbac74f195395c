"""An explanation is true: were nobody else waiting, a workload would start if all that it lists were granted, and not
if one thing of it were withheld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    Node,
    ResourceGroup,
    StopPolicy,
)
from queue_manager.engine.decision import Blocker, BlockerType
from queue_manager.engine.engine import Engine
from queue_manager.engine.records import Phase
from queue_manager.engine.workload import Workload
from tests.engine import scenario
from tests.engine.generate import COMMON, EXAMPLES, RACK, batches, configurations, copy_of, engine_of, nodes, settle

SOME = settings(COMMON, max_examples=max(1, EXAMPLES // 2))
"""Fewer than elsewhere: each example asks many engines."""
LATER = 1 << 50
"""A time at which every backoff has ended."""
SHORTAGES = (
    BlockerType.QUOTA,
    BlockerType.MAX_QUOTA,
    BlockerType.FLAVOR,
    BlockerType.TOPOLOGY,
    BlockerType.QUEUE_STOPPED,
    BlockerType.BACKOFF,
)


@dataclass
class World:
    """What an engine knows, to be changed as an explanation asks for it."""

    engine: Engine
    uid: str
    configuration: Configuration = field(init=False)
    nodes: dict[str, Node] = field(init=False)
    now: int = 1 << 40
    gone: tuple[str, ...] = ()
    """Workloads that have ended."""

    def __post_init__(self) -> None:
        self.configuration = self.engine._state.configuration
        self.nodes = dict(self.engine._state.fleet.nodes)

    def admitted(self) -> bool:
        """Whether the workload starts here, when nobody else waits."""
        fresh = copy_of(self.engine)
        for uid, record in list(fresh._state.records.items()):
            if record.phase is Phase.WAITING and uid != self.uid:
                fresh.remove_workload(uid)
        for uid in self.gone:
            fresh.remove_workload(uid)
        fresh.configure(self.configuration)
        for node in self.nodes.values():
            fresh.upsert_node(node)
        plans = settle(fresh, start=self.now)
        return any(admission.uid == self.uid for plan in plans for admission in plan.admissions)

    def grant(self, blocker: Blocker) -> None:
        match blocker.type:
            case BlockerType.QUOTA | BlockerType.MAX_QUOTA:
                cell = Cell(blocker.flavor, blocker.resource)
                self.configuration = raised(self.configuration, blocker.node, cell, blocker.missing)
            case BlockerType.QUEUE_STOPPED:
                self.lift_stop(blocker)
            case BlockerType.TOPOLOGY:
                self.add_room(blocker)
            case BlockerType.BACKOFF:
                self.now = LATER
            case _:
                raise AssertionError(f"nobody can grant {blocker}")

    def add_room(self, blocker: Blocker) -> None:
        """Makes the first node of the named domain larger by the pods that are missing there."""
        name = blocker.message.split("pod set ")[1].split()[0]
        workload = self.engine._state.records[self.uid].workload
        pod_set = next(p for p in workload.pod_sets if p.name == name)
        domain = tuple(blocker.node.split("/")) if blocker.node else ()
        for node in sorted(self.nodes.values(), key=lambda node: (node.labels[RACK], node.name)):
            if (node.labels[RACK], node.name)[: len(domain)] == domain:
                more = {**pod_set.requests, "pods": 1}
                grown = {r: a + more.get(r, 0) * blocker.missing for r, a in node.allocatable.items()}
                self.nodes[node.name] = replace(node, allocatable=grown)
                return

    def lift_stop(self, blocker: Blocker) -> None:
        c = self.configuration
        if blocker.message.startswith("local queue"):
            name = blocker.message.split()[2]
            local = replace(c.local_queues[name], stop_policy=StopPolicy.NONE)
            self.configuration = replace(c, local_queues={**c.local_queues, name: local})
        else:
            queue = replace(c.queues[blocker.node], stop_policy=StopPolicy.NONE)
            self.configuration = replace(c, queues={**c.queues, blocker.node: queue})


def raised(configuration: Configuration, node: str, cell: Cell, amount: int) -> Configuration:
    """The configuration with the nominal quota of one cell of a queue or cohort raised."""
    queue = configuration.queues.get(node)
    if queue is not None:
        groups = raised_in(queue.resource_groups, cell, amount)
        return replace(configuration, queues={**configuration.queues, node: replace(queue, resource_groups=groups)})
    cohort = configuration.cohorts[node]
    groups = raised_in(cohort.resource_groups, cell, amount)
    return replace(configuration, cohorts={**configuration.cohorts, node: replace(cohort, resource_groups=groups)})


def raised_in(groups: tuple[ResourceGroup, ...], cell: Cell, amount: int) -> tuple[ResourceGroup, ...]:
    for index, group in enumerate(groups):
        for place, flavor in enumerate(group.flavors):
            if flavor.flavor == cell.flavor and cell.resource in flavor.quotas:
                old = flavor.quotas[cell.resource]
                quotas = {**flavor.quotas, cell.resource: replace(old, nominal=old.nominal + amount)}
                flavors = (*group.flavors[:place], replace(flavor, quotas=quotas), *group.flavors[place + 1 :])
                return (*groups[:index], replace(group, flavors=flavors), *groups[index + 1 :])
    quota = FlavorQuotas(cell.flavor, {cell.resource: CellQuota(amount)})
    return (*groups, ResourceGroup((cell.resource,), (quota,)))


def check(engine: Engine, uid: str) -> None:
    """The explanation of one workload is complete and minimal."""
    waiting = engine.explain(uid, 1 << 40)
    assert waiting is not None
    assert waiting.blockers
    if any(blocker.type is BlockerType.QUEUE_INACTIVE for blocker in waiting.blockers):
        return  # its queue does not exist
    listed = [blocker for blocker in waiting.blockers if blocker.type in SHORTAGES]
    assert granted(engine, uid, listed), f"{uid} waits although all of this is granted: {listed}"
    for blocker in listed:
        others = [other for other in listed if other is not blocker]
        assert not granted(engine, uid, others), f"{uid} starts without {blocker} of {listed}"
        if blocker.enough:
            world = World(engine, uid, gone=blocker.enough)
            for other in others:
                world.grant(other)
            assert world.admitted(), f"{uid} waits although {blocker.enough} ended and {others} are granted"


def granted(engine: Engine, uid: str, blockers: Sequence[Blocker]) -> bool:
    world = World(engine, uid)
    for blocker in blockers:
        world.grant(blocker)
    return world.admitted()


def check_all(engine: Engine) -> None:
    for uid, record in engine._state.records.items():
        if record.phase is Phase.WAITING and not record.held:
            check(engine, uid)
        else:
            assert engine.explain(uid, 1 << 40) is None


@SOME
@given(configurations(topology=False), nodes(), batches(2, 8))
def test_what_is_listed_is_what_is_lacking(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    engine = engine_of(c, n, [anywhere(workload) for workload in b])
    settle(engine)
    check_all(engine)


@SOME
@given(configurations(topology=False), batches(2, 8), st.data())
def test_with_several_resource_groups_and_gangs_that_can_shrink(
    c: Configuration, b: list[Workload], data: st.DataObject
) -> None:
    batch = [shrinkable(anywhere(workload), data) for workload in b]
    engine = engine_of(split(c), [], batch)
    settle(engine)
    check_all(engine)


@SOME
@given(configurations(topology=False), batches(2, 8), st.data())
def test_what_is_stopped_or_backs_off_may_lack_more(c: Configuration, b: list[Workload], data: st.DataObject) -> None:
    stops = st.sampled_from([StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN])
    queues = {name: replace(queue, stop_policy=data.draw(stops)) for name, queue in c.queues.items()}
    local = {f"ns/{name}": LocalQueue("qa", data.draw(stops)) for name in ("one", "two")}
    batch = [
        replace(
            anywhere(workload),
            local_queue=data.draw(st.sampled_from(["", "ns/one", "ns/two"])),
            not_before=data.draw(st.sampled_from([0, 0, LATER - 1])),
        )
        for workload in b
    ]
    engine = engine_of(c, [], batch)
    settle(engine)
    engine.configure(replace(c, queues=queues, local_queues=local))
    settle(engine)
    check_all(engine)


@SOME
@given(configurations(topology=True), nodes(), batches(2, 8))
def test_room_on_nodes_that_is_listed_is_what_is_lacking(c: Configuration, n: list[Node], b: list[Workload]) -> None:
    engine = engine_of(c, n, b)
    settle(engine)
    for uid, record in engine._state.records.items():
        waiting = engine.explain(uid, 1 << 40) if record.phase is Phase.WAITING else None
        if waiting is not None and all(blocker.type is not BlockerType.FLAVOR for blocker in waiting.blockers):
            check(engine, uid)


def split(configuration: Configuration) -> Configuration:
    """The configuration with a resource group for each resource."""

    def groups(old: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
        return tuple(
            ResourceGroup(
                (resource,), tuple(FlavorQuotas(f.flavor, {resource: f.quotas[resource]}) for f in group.flavors)
            )
            for group in old
            for resource in group.resources
        )

    queues = {n: replace(q, resource_groups=groups(q.resource_groups)) for n, q in configuration.queues.items()}
    cohorts = {n: replace(q, resource_groups=groups(q.resource_groups)) for n, q in configuration.cohorts.items()}
    return replace(configuration, queues=queues, cohorts=cohorts)


def shrinkable(workload: Workload, data: st.DataObject) -> Workload:
    """The workload with some pod sets that can be smaller."""
    pod_sets = tuple(
        replace(p, min_count=data.draw(st.none() | st.integers(1, p.count))) for p in workload.pod_groups[0].pod_sets
    )
    return replace(workload, pod_groups=(replace(workload.pod_groups[0], pod_sets=pod_sets),))


def anywhere(workload: Workload) -> Workload:
    """The workload without its wishes for nodes."""
    groups = tuple(
        replace(group, topology=None, pod_sets=tuple(replace(p, topology=None) for p in group.pod_sets))
        for group in workload.pod_groups
    )
    return replace(workload, topology=None, pod_groups=groups)


LENDING = """
flavors: {f: {}}
cohorts: {all: {}}
queues:
  keeps: {cohort: all, quota: {f: {cpu: {nominal: 8, lend: 2}}}}
  lends: {cohort: all, quota: {f: {cpu: 8}}}
  asks: {cohort: all, quota: {f: {cpu: 0}}}
"""


def test_whose_end_would_do_leaves_out_those_that_use_what_their_queue_never_lends() -> None:
    c = scenario.configuration(yaml.safe_load(LENDING))
    jobs = {"large": ("keeps", 6), "one": ("lends", 4), "two": ("lends", 3), "waits": ("asks", 7)}
    batch = [
        scenario.workload(uid, {"queue": queue, "cpu": cpu}, created)
        for created, (uid, (queue, cpu)) in enumerate(jobs.items(), 1)
    ]
    engine = engine_of(c, [], batch)
    settle(engine)
    waiting = engine.explain("waits", 1 << 40)
    assert waiting is not None
    [blocker] = waiting.blockers
    assert (blocker.requested, blocker.available, blocker.missing) == (7000, 3000, 4000)
    assert blocker.holders == ("large", "one", "two")
    assert blocker.enough == ("one",)
    check_all(engine)
