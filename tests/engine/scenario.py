"""Scenario files of the engine: situation, events over time, expected outcome after each (see tests/scenarios/engine).

    situation: what a bug report would say
    configuration:
      topologies: {t: [block, rack, kubernetes.io/hostname]}
      flavors: {h100: {labels: {gpu: h100}, taints: ["key=value:NoSchedule"], topology: t, stop: Hold}}
      cohorts: {research: {parent: ai, quota: {h100: {gpu: 4}}}}
      queues: {nlp: {cohort: research, strategy: StrictFIFO, quota: {h100: {gpu: {nominal: 4, borrow: 2, lend: 1}}},
                     withinQueue: LowerPriority, reclaim: Any, borrow: LowerPriority,
                     limits: {maxJobs: 9, perUser: {running: 1, waiting: 2, resources: {gpu: 4}}, perGroup: {...},
                              minRunTime: 10m, checkpointGrace: 5m}}}
      localQueues: {default/team: {queue: nlp, stop: Hold}}
      fairSharing: true, or [LessThanInitialShare]    (queues and cohorts may have a weight)
      history: {halfLife: 1h, weights: {memory: 0}, atOnce: 5m}
      policies: {hold_freed_quota: false}
      starvation: {after: 10m, perCohort: 1}
      resources: {excluded: [example.com/], ignoreUndeclared: true, deviceClasses: {h100.nvidia.com: gpus},
                  transformations: {mig-1g: {replace: true, times: slices, outputs: {gpu-memory: 5Gi}}}}
    nodes: {"n0 n1": {labels: {...}, free: {gpu: 8, cpu: 8, pods: 10}}}
    events:
      - submit: {a: {queue: nlp, priority: 5, pods: 4, gpu: 8, required: rack}, b: {sets: {init: {stages: [0, 0]}}},
                 c: {queue: nlp, devices: {h100.nvidia.com: 1}, claims: {nic: {roce: 1}}, backed: {gpu: h100}}}
      - submit: {c: {queue: nlp, pods: 4, gpu: 1, required: rack, slices: {host: 2}, ports: [8471]}}
      - submit: {d: {queue: nlp, pods: 8, replica: 2, exclusive: rack, podPriority: 5, spread: zone or {own: zone}}}
      - submit: {d: {groups: {g: {policy: basic, minimum: 2, required: block, sets: {
                        lead: {group: crew, groupRequired: rack, required: host}, work: {group: crew}}}}}}
      - submit: {e: {queue: nlp, pods: 4, skew: {zone: 1, rack: [2, 3]}, together: [block], apart: [host]}}
        (rules of the pod template: maxSkew, and minDomains)
      - submit: {f: {queue: nlp, affinity: {rack: [r0], cores: {Gt: ["8"], Lt: ["64"]}}}}    (one of the terms)
      - plan: {admitted: [a], resized: [e], evicted: {b: a}, waiting: {c: WaitingForQuota}, says: {c: "1 gpu short"}}
      - plan: {told: {c: WaitingForQuota}}    (whose reason is news to its owner; `waiting` is whoever is asked about)
      - release / evict / remove / finish / hold / unhold: [a]
      - shrink: {e: {main: 2}}    (an elastic workload has so many pods left)
      - asked: {e: 100}           (time at which an elastic workload asked for its size, in microseconds)
      - bind: {a: {main: {n0: 2}}}    configure: {...merged into configuration...}    nodes: {...}    restart:
      - ready: [a]    (from now on one starts at a time: when all that run are ready; these are)
      - lose: {a: n0 n1}    (nodes that a has lost: it gets other places there and then; pods bound on them still count)
      - stuck: {a: {lost: n0, says: "room for 1"}}    (there are no other places)
      - clock: 10m                     (since the start; what is submitted afterwards is created then)
      - fill: {nlp: 2 1@5}    (runs 2 cpu and, at priority 5, 1 cpu there: nlp1, nlp2)
      - anew: {...begins again, with this merged into the configuration...}
      - expect: {usage: {nlp: {gpu: 4}}, places: {a: {n0: 2}}, selector: {a: {rack: r0}}, waiting: ..., running: [a],
                 selector: {b: {main: {rack: r1}, side: {}}},    (for all pod sets alike, or for each)
                 ranks: {a: {main: [[n0, 2]]}}, pinned: {a: [main]}, occupied: {n0: 8}}

The key of a plan is its exact outcome: what is not listed must not happen. Creation time is the order of submission.
"""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any

import yaml

from queue_manager.config.durations import parse_duration
from queue_manager.engine.configuration import (
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
    Limits,
    LocalQueue,
    Node,
    PartyLimits,
    Policies,
    Preemption,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    ResourceGroup,
    Starvation,
    StopPolicy,
    Topology,
)
from queue_manager.engine.decision import Admission, Plan
from queue_manager.engine.engine import Engine
from queue_manager.engine.history import UNIT_BITS
from queue_manager.engine.quantities import exact, parse
from queue_manager.engine.records import Phase
from queue_manager.engine.resize import owner_uid
from queue_manager.engine.resources import ResourceRules, Transformation
from queue_manager.engine.tree import NOW
from queue_manager.engine.workload import (
    Apart,
    Devices,
    GroupPolicy,
    PodGroup,
    PodRules,
    PodSet,
    Requirement,
    SelectorTerm,
    SharedClaim,
    SliceLayer,
    SpreadRule,
    Taint,
    Toleration,
    TopologyMode,
    TopologyRequest,
    Workload,
)
from tests.engine.generate import copy_of, snapshot

Data = dict[str, Any]
START = 1_000_000
"""Microseconds at which every scenario begins."""
POD_SET_KEYS = (
    *("pods", "min", "stages", "reclaimed", "selector", "affinity", "tolerations", "group", "node", "elastic"),
    *("slices", "ports", "groupRequired", "replica", "exclusive", "spread", "podPriority", "balanced"),
    *("skew", "together", "apart"),
)
DEVICE_KEYS = ("devices", "claims", "backed")
TOPOLOGY = {mode.value: mode for mode in TopologyMode}


def quota_groups(quota: Data | list[Data]) -> tuple[ResourceGroup, ...]:
    def cell(resource: str, value: Any) -> CellQuota:
        if not isinstance(value, dict):
            value = {"nominal": value}
        amounts = {k: None if v is None else parse(resource, v) for k, v in value.items()}
        return CellQuota(amounts.get("nominal") or 0, amounts.get("borrow"), amounts.get("lend"))

    groups = quota if isinstance(quota, list) else [quota] if quota else []
    return tuple(
        ResourceGroup(
            tuple(next(iter(group.values()))),
            tuple(FlavorQuotas(f, {r: cell(r, v) for r, v in cells.items()}) for f, cells in group.items()),
        )
        for group in groups
    )


def taint(text: str) -> Taint:
    rest, effect = text.rsplit(":", 1)
    key, _, value = rest.partition("=")
    return Taint(key, value, effect)


def toleration(text: str) -> Toleration:
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    return Toleration(key, "Equal" if equals else "Exists", value, effect)


def queue(name: str, data: Data) -> Queue:
    return Queue(
        name,
        data.get("cohort", ""),
        quota_groups(data.get("quota", {})),
        QueueingStrategy(data.get("strategy", "BestEffortFIFO")),
        Preemption(
            PreemptionPolicy(data.get("withinQueue", "Never")),
            PreemptionPolicy(data.get("reclaim", "Never")),
            PreemptionPolicy(data.get("borrow", "Never")),
            data.get("threshold"),
        ),
        FlavorFungibility(data.get("whenCanBorrow", "MayStopSearch")),
        FlavorFungibility(data.get("whenCanPreempt", "TryNextFlavor")),
        FlavorPreference(data.get("prefer", "BorrowingOverPreemption")),
        namespace_selector=tuple(Requirement(k, "In", (v,)) for k, v in data.get("namespaces", {}).items()),
        stop_policy=StopPolicy(data.get("stop", "None")),
        weight_milli=parse("cpu", data.get("weight", 1)),
        inactive=data.get("inactive", ""),
        limits=limits(data.get("limits", {})),
    )


def duration(text: str | None) -> int:
    return parse_duration(text) if text else 0


def limits(data: Data) -> Limits:
    def share(found: Data) -> PartyLimits:
        amounts = {resource: parse(resource, amount) for resource, amount in found.get("resources", {}).items()}
        return PartyLimits(found.get("running"), found.get("waiting"), amounts)

    return Limits(
        data.get("maxJobs"),
        share(data.get("perUser", {})),
        share(data.get("perGroup", {})),
        duration(data.get("minRunTime")),
        duration(data.get("checkpointGrace")),
    )


def configuration(data: Data) -> Configuration:
    return Configuration(
        {name: Topology(name, tuple(levels)) for name, levels in data.get("topologies", {}).items()},
        {
            name: Flavor(
                name,
                (f or {}).get("labels", {}),
                tuple(taint(t) for t in (f or {}).get("taints", ())),
                tuple(toleration(t) for t in (f or {}).get("tolerations", ())),
                (f or {}).get("topology", ""),
                StopPolicy((f or {}).get("stop", "None")),
            )
            for name, f in data.get("flavors", {}).items()
        },
        {
            name: Cohort(
                name,
                (c or {}).get("parent", ""),
                quota_groups((c or {}).get("quota", {})),
                parse("cpu", (c or {}).get("weight", 1)),
            )
            for name, c in data.get("cohorts", {}).items()
        },
        {name: queue(name, q) for name, q in data.get("queues", {}).items()},
        Policies(**data.get("policies", {})),
        resource_rules(data.get("resources", {})),
        fair_sharing=fair_sharing(data.get("fairSharing")),
        history=history(data.get("history")),
        starvation=Starvation(duration(s["after"]), s.get("perCohort", 1)) if (s := data.get("starvation")) else None,
        local_queues={
            name: LocalQueue(local["queue"], StopPolicy(local.get("stop", "None")))
            for name, local in data.get("localQueues", {}).items()
        },
    )


def fair_sharing(data: Any) -> FairSharing | None:
    if not data:
        return None
    return FairSharing() if data is True else FairSharing(tuple(map(FairStrategy, data)))


def history(data: Data | None) -> History | None:
    if not data:
        return None
    weights = {resource: parse("cpu", weight) for resource, weight in data.get("weights", {}).items()}
    return History(duration(data["halfLife"]), weights, duration(data.get("atOnce", "5m")))


def resource_rules(data: Data) -> ResourceRules:
    def transformation(name: str, rule: Data) -> Transformation:
        outputs = tuple((resource, exact(factor)) for resource, factor in rule.get("outputs", {}).items())
        return Transformation(name, not rule.get("replace", False), rule.get("times", ""), outputs)

    return ResourceRules(
        tuple(data.get("excluded", ())),
        {name: transformation(name, rule) for name, rule in data.get("transformations", {}).items()},
        data.get("ignoreUndeclared", False),
        data.get("deviceClasses", {}),
    )


def topology_of(data: Data) -> TopologyRequest | None:
    layers = tuple(SliceLayer(level, size) for level, size in data.get("slices", {}).items())
    for key, mode in TOPOLOGY.items():
        if key in data:
            return TopologyRequest(mode, data[key] or "", layers, data.get("balanced", False))
    return TopologyRequest(TopologyMode.UNCONSTRAINED, "", layers) if layers else None


def pod_set(name: str, data: Data) -> PodSet:
    plain = {k: v for k, v in data.items() if k not in (*POD_SET_KEYS, *DEVICE_KEYS) and k not in TOPOLOGY}
    terms = [
        SelectorTerm(
            tuple(Requirement(k, op, tuple(values)) for op, values in (v if isinstance(v, dict) else {"In": v}).items())
        )
        for k, v in data.get("affinity", {}).items()
    ]
    if "node" in data:
        terms = [SelectorTerm((), (Requirement("metadata.name", "In", (data["node"],)),))]
    return PodSet(
        name,
        data.get("pods", 1),
        {resource: parse(resource, amount) for resource, amount in plain.items()},
        tuple(data.get("stages", (0, 0))),
        data.get("reclaimed", 0),
        data.get("min"),
        data.get("selector", {}),
        tuple(terms),
        tuple(toleration(t) for t in data.get("tolerations", ())),
        topology_of(data),
        data.get("group", ""),
        tuple(data.get("ports", ())),
        devices=Devices(
            data.get("devices", {}),
            tuple(SharedClaim(name, devices) for name, devices in data.get("claims", {}).items()),
            data.get("backed", {}),
        ),
        elastic=data.get("elastic", False),
        replica_size=data.get("replica", 0),
        distinct=apart(name, data["spread"]) if "spread" in data else None,
        exclusive=data.get("exclusive", ""),
        pod_priority=data.get("podPriority", 0),
        group_topology=topology_of({"required": data["groupRequired"]}) if "groupRequired" in data else None,
        rules=PodRules(
            tuple(SpreadRule(key, *(n if isinstance(n, list) else [n])) for key, n in data.get("skew", {}).items()),
            tuple(data.get("together", ())),
            tuple(data.get("apart", ())),
        ),
    )


def apart(name: str, data: str | Data) -> Apart:
    """A level for the replicas of all pod sets that say so, or {own: level} for those of this one."""
    return Apart(data) if isinstance(data, str) else Apart(data["own"], name)


def pod_group(name: str, data: Data) -> PodGroup:
    pod_sets = tuple(pod_set(n, s) for n, s in data["sets"].items())
    policy = GroupPolicy(data.get("policy", "gang"))
    return PodGroup(name, pod_sets, policy, data.get("minimum"), topology_of(data))


def workload(uid: str, data: Data, created: int) -> Workload:
    data = dict(data)
    times = {key: duration(data.pop(key, None)) for key in ("maxRunTime", "minRunTime", "checkpointed")}
    whose = data.pop("user", ""), tuple(data.pop("groups", ())) if isinstance(data.get("groups"), list) else ()
    keys = ("queue", "priority", "created", "preempts", "labels", "after", "requeued", "local")
    own = {key: data.pop(key) for key in keys if key in data}
    around = data.pop("around", {})
    groups = data.pop("groups", None)
    if groups is None:
        groups = {"main": {"sets": data.pop("sets", None) or {"main": data}}}
    pod_groups = tuple(pod_group(name, group) for name, group in groups.items())
    return Workload(
        uid,
        "default",
        uid,
        own.get("queue", ""),
        own.get("created", created),
        pod_groups,
        own.get("priority", 0),
        may_preempt=own.get("preempts", True),
        topology=topology_of(around),
        not_before=own.get("after", 0),
        namespace_labels=own.get("labels", {}),
        user=whose[0],
        groups=whose[1],
        max_run_time=times["maxRunTime"],
        min_run_time=times["minRunTime"],
        checkpointed_at=START + times["checkpointed"] if times["checkpointed"] else 0,
        requeued=own.get("requeued", 0),
        local_queue=own.get("local", ""),
    )


def merged(old: Data, new: Data) -> Data:
    result = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict) and key != "quota"
        result[key] = merged(result[key], value) if both else value
    return result


class Run:
    """One scenario being played."""

    def __init__(self, path: pathlib.Path) -> None:
        self.data: Data = yaml.safe_load(path.read_text())
        self.begin()

    def begin(self) -> None:
        self.configuration: Data = self.data["configuration"]
        self.engine = Engine()
        self.engine.configure(configuration(self.configuration))
        self.now = START
        self.are_ready: set[str] | None = None
        self.created = 0
        self.offset = START if "starvation" in self.configuration else 0
        self.plan_made = Plan(self.now, 0)
        self.requests: dict[str, Data] = {}
        self.times: dict[str, int] = {}
        self.nodes(self.data.get("nodes", {}))

    def play(self) -> None:
        for number, event in enumerate(self.data["events"]):
            for kind, what in event.items():
                try:
                    getattr(self, kind)(what)
                except AssertionError as error:
                    raise AssertionError(f"event {number} ({kind}): {error}") from error

    # ---- events

    def nodes(self, what: Data) -> None:
        for names, data in what.items():
            for name in names.split():
                if data is None:
                    self.engine.remove_node(name)
                    continue
                labels = {"kubernetes.io/hostname": name, **data.get("labels", {})}
                free = {"pods": 100, **data["free"]}
                self.engine.upsert_node(
                    Node(
                        name,
                        labels,
                        {r: parse(r, v) for r, v in free.items()},
                        tuple(taint(t) for t in data.get("taints", ())),
                        data.get("ready", True),
                        data.get("unschedulable", False),
                        {r: parse(r, v) for r, v in data.get("foreign", {}).items()},
                    )
                )

    def submit(self, what: Data) -> None:
        for uid, data in what.items():
            self.created += 1
            self.times.setdefault(uid, self.created + self.offset)
            self.requests[uid] = merged(self.requests.get(uid, {}), data)
            self.engine.upsert_workload(workload(uid, self.requests[uid], self.times[uid]))

    def anew(self, what: Data | None) -> None:
        """Nothing has happened yet; `what` differs from the configuration at the start."""
        self.begin()
        if what:
            self.configure(what)

    def fill(self, what: Data) -> None:
        """Runs in each queue `amount@priority ...` of the resource cpu: workloads a1, a2, ... of queue a."""
        asked = {
            f"{queue}{number}": {"queue": queue, "cpu": amount, "priority": int(priority or 0)}
            for queue, row in what.items()
            for number, (amount, _, priority) in enumerate((each.partition("@") for each in str(row).split()), 1)
        }
        self.submit(asked)
        self.plan({"admitted": list(asked)})

    def configure(self, what: Data) -> None:
        self.configuration = merged(self.configuration, what)
        self.engine.configure(configuration(self.configuration))

    def evict(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.evict(uid)

    def release(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.release(uid)

    def remove(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.remove_workload(uid)

    def finish(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.evict(uid)
            self.engine.remove_workload(uid)

    def hold(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.suspend_workload(uid, True)

    def unhold(self, uids: list[str]) -> None:
        for uid in uids:
            self.engine.suspend_workload(uid, False)

    def bind(self, what: Data) -> None:
        for uid, sets in what.items():
            for name, found in sets.items():
                self.engine.bind(uid, name, found)

    def lose(self, what: Data) -> None:
        for uid, names in what.items():
            lost = set(names.split())
            before = snapshot(self.engine)
            admission = self.engine.replace(uid, lost, self.now)
            assert isinstance(admission, Admission), admission
            assert snapshot(self.engine) == before, "the question changes something"
            bound = self.engine._state.records[uid].bound
            self.engine.restore_admission(admission)
            for name, found in bound.items():
                stay = {node: count for node, count in found.items() if node not in lost}
                self.engine.bind(uid, name, stay, {node: count for node, count in found.items() if node in lost})

    def stuck(self, what: Data) -> None:
        for uid, found in what.items():
            why = self.engine.replace(uid, found["lost"].split(), self.now)
            assert isinstance(why, str), f"{uid} gets {why}"
            assert found["says"] in why, why

    def shrink(self, what: Data) -> None:
        for uid, counts in what.items():
            bound = self.engine._state.records[uid].bound
            self.engine.restore_admission(self.engine.shrunk(uid, counts))
            for name, found in bound.items():
                self.engine.bind(uid, name, found)

    def asked(self, what: Data) -> None:
        for uid, micros in what.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None
            self.engine.restore_admission(replace(admission, resize_asked=micros))

    def restart(self, _: Any) -> None:
        self.engine = copy_of(self.engine)

    def revoke(self, _: Any) -> None:
        self.engine.revoke()

    def clock(self, text: str) -> None:
        self.offset = self.now = START + parse_duration(text)

    def at(self, micros: int) -> None:
        self.now = micros

    def ready(self, uids: list[str]) -> None:
        self.are_ready = {*(self.are_ready or ()), *uids}

    def _gate(self) -> None:
        if self.are_ready is not None:
            running = {uid for uid, r in self.engine._state.records.items() if r.phase is Phase.ADMITTED}
            self.engine.gate(frozenset(running - self.are_ready))

    def plan(self, what: Data | None) -> None:
        what = what or {}
        self.now += 1000
        self._gate()
        plan = self.plan_made = self.engine.plan(self.now)
        self._gate()
        admitted = [a.uid for a in plan.admissions]
        assert sorted(admitted) == sorted(what.get("admitted", [])), f"admitted {admitted}"
        resized = sorted(a.uid for a in plan.resizes)
        assert resized == sorted(what.get("resized", [])), f"resized {resized}"
        evicted = {e.uid: owner_uid(e.by) for e in plan.evictions}
        assert evicted == {k: v or "" for k, v in what.get("evicted", {}).items()}, f"evicted {evicted}"
        reasons = {e.uid: e.reason.value for e in plan.evictions}
        for uid, reason in what.get("because", {}).items():
            assert reasons[uid] == reason
        rest = {k: v for k, v in what.items() if k not in ("admitted", "resized", "evicted", "because", "revocable")}
        self.expect(rest)
        if (plan.admissions or plan.resizes or plan.evictions) and not what.get("revocable"):
            again = self.engine.plan(self.now)
            assert again == Plan(self.now, again.revision, holds=plan.holds), "a second pass changes something"

    # ---- expectations

    def _holds(self, wanted: Data) -> None:
        """Uid -> when it should be complete ("" if nobody knows), or a list of that and of the nodes kept."""
        found: Data = {}
        for hold in self.plan_made.holds:
            at = f"{round((hold.expected - START) / 60_000_000)}m" if hold.expected else ""
            found[hold.uid] = [at, *hold.nodes] if isinstance(wanted.get(hold.uid), list) else at
        assert found == wanted, f"holds {found}"

    def _starts(self, wanted: Data) -> None:
        for uid, text in wanted.items():
            waiting = self.engine.explain(uid, self.now)
            assert waiting is not None
            found = round((waiting.estimated_start - START) / 60_000_000) if waiting.estimated_start else None
            assert found == (parse_duration(text) // 60_000_000 if text else None), f"{uid} starts at {found} m"

    def _wakes(self, text: str | None) -> None:
        at = self.engine.wake_at()
        assert at is not None, "time changes nothing"
        assert round((at - START) / 1_000_000) * 1_000_000 == parse_duration(text or "0s"), f"wakes at {at - START}"

    def expect(self, what: Data) -> None:
        for kind, wanted in what.items():
            getattr(self, "_" + kind)(wanted)

    def _running(self, wanted: list[str]) -> None:
        found = sorted(uid for uid, r in self.engine._state.records.items() if r.phase is Phase.ADMITTED)
        assert found == sorted(wanted), f"running {found}"

    def _waiting(self, wanted: Data) -> None:
        found = {}
        for uid in self.engine._state.records:
            waiting = self.engine.explain(uid, self.now)
            if waiting is not None:
                found[waiting.uid] = waiting.reason.value
        assert found == wanted, f"waiting {found}"

    def _told(self, wanted: Data) -> None:
        found = {waiting.uid: waiting.reason.value for waiting in self.plan_made.waiting}
        assert found == wanted, f"told {found}"

    def _says(self, wanted: Data) -> None:
        for uid, text in wanted.items():
            waiting = self.engine.explain(uid, self.now)
            assert waiting is not None
            assert text in waiting.message, waiting.message

    def _positions(self, wanted: Data) -> None:
        found = {uid: w.position for uid in wanted if (w := self.engine.explain(uid, self.now)) is not None}
        assert found == wanted, f"positions {found}"

    def _averages(self, wanted: Data) -> None:
        for name, amounts in wanted.items():
            found = {r: average >> UNIT_BITS for r, average in self.engine.history().get(name, {}).items()}
            exact = {r: parse(r, v) for r, v in amounts.items()}
            assert {r: found.get(r, 0) for r in exact} == exact, f"averages of {name} {found}"

    def _usage(self, wanted: Data) -> None:
        for name, amounts in wanted.items():
            found: Data = {}
            for cell, amount in self.engine.usage().get(name, {}).items():
                found[cell.resource] = found.get(cell.resource, 0) + amount
            exact = {r: parse(r, v) for r, v in amounts.items()}
            assert {r: found.get(r, 0) for r in exact} == exact, f"usage of {name} {found}"

    def _flavors(self, wanted: Data) -> None:
        for uid, flavors in wanted.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None, f"{uid} is not admitted"
            found = sorted({f for p in admission.pod_sets for f in p.flavors.values()})
            assert found == ([flavors] if isinstance(flavors, str) else sorted(flavors)), f"flavors of {uid} {found}"

    def _counts(self, wanted: Data) -> None:
        for uid, counts in wanted.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None, f"{uid} is not admitted"
            found = {p.name: p.count for p in admission.pod_sets}
            assert found == counts, f"counts of {uid} {found}"

    def _places(self, wanted: Data) -> None:
        for uid, places in wanted.items():
            found: Data = {}
            for nodes in self.engine._state.records[uid].planned.values():
                for node, count in nodes.items():
                    found[node] = found.get(node, 0) + count
            assert found == places, f"places of {uid} {found}"

    def _selector(self, wanted: Data) -> None:
        for uid, selector in wanted.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None, f"{uid} is not admitted"
            found = {p.name: dict(p.selector) for p in admission.pod_sets}
            each = selector if all(isinstance(one, dict) for one in selector.values()) else None
            assert found == (each or dict.fromkeys(found, selector)), f"selectors of {uid} {found}"

    def _occupied(self, wanted: Data) -> None:
        """Node -> GPUs that pods of ours take there."""
        occupied = self.engine._state.fleet.occupied[NOW]
        found = {name: occupied.get(name, {}).get("gpu", 0) for name in wanted}
        assert found == wanted, f"occupied {found}"

    def _ranks(self, wanted: Data) -> None:
        """Uid -> pod set -> [[domain, pods], ...] in the order of ranks, the domain by its narrowest value."""
        for uid, runs in wanted.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None, f"{uid} is not admitted"
            found = {p.name: [[d.values[-1], d.count] for d in p.domains or ()] for p in admission.pod_sets}
            assert {name: found[name] for name in runs} == runs, f"ranks of {uid} {found}"

    def _pinned(self, wanted: Data) -> None:
        """Uid -> the pod sets whose pods must go to the places of their ranks."""
        for uid, names in wanted.items():
            admission = self.engine._state.records[uid].admission
            assert admission is not None, f"{uid} is not admitted"
            found = [p.name for p in admission.pod_sets if p.pinned]
            assert found == names, f"pinned of {uid} {found}"
