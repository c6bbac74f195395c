"""Runs a scenario of native Kueue objects (design, section 7) on the engine: a small loader and driver for tests.

`python -m tests.engine.oracle DIR... > results.jsonl` writes what shared/oracle/compare.py reads.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from queue_manager.engine.configuration import (
    Cell,
    CellQuota,
    Cohort,
    Configuration,
    Flavor,
    FlavorFungibility,
    FlavorPreference,
    FlavorQuotas,
    Node,
    Policies,
    Preemption,
    PreemptionPolicy,
    Queue,
    QueueingStrategy,
    ResourceGroup,
    StopPolicy,
    Topology,
)
from queue_manager.engine.decision import Admission, DomainCount, Plan, PodSetAssignment
from queue_manager.engine.engine import Engine
from queue_manager.engine.quantities import parse
from queue_manager.engine.workload import (
    PodGroup,
    PodSet,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
    TopologyMode,
    TopologyRequest,
    Workload,
)

Object = dict[str, Any]
KUEUE = Policies(
    hold_freed_quota=False,
    stages=False,
    next_flavor_after_topology=False,
    implied_topology=False,
    resume_flavor_scan=True,
)
HOSTNAME = "kubernetes.io/hostname"
MOST_PASSES = 300


class Unsupported(Exception):
    """The scenario uses something that the engine's contracts cannot say yet."""


def micros(text: str | None) -> int:
    """RFC 3339 as microseconds."""
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1_000_000) if text else 0


def taints(found: Iterable[Object] | None) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t.get("value", ""), t["effect"]) for t in found or ())


def tolerations(found: Iterable[Object] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(t.get("key", ""), t.get("operator", "Equal"), t.get("value", ""), t.get("effect", ""))
        for t in found or ()
    )


def requirements(found: Iterable[Object] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in found or ())


def resource_groups(spec: Object) -> tuple[ResourceGroup, ...]:
    def quotas(flavor: Object) -> dict[str, CellQuota]:
        return {
            r["name"]: CellQuota(
                parse(r["name"], r.get("nominalQuota", "0")),
                parse(r["name"], r["borrowingLimit"]) if r.get("borrowingLimit") is not None else None,
                parse(r["name"], r["lendingLimit"]) if r.get("lendingLimit") is not None else None,
            )
            for r in flavor["resources"]
        }

    return tuple(
        ResourceGroup(tuple(g["coveredResources"]), tuple(FlavorQuotas(f["name"], quotas(f)) for f in g["flavors"]))
        for g in spec.get("resourceGroups") or ()
    )


def queue(o: Object) -> Queue:
    spec = o.get("spec") or {}
    fungibility, preemption = spec.get("flavorFungibility") or {}, spec.get("preemption") or {}
    borrow = preemption.get("borrowWithinCohort") or {}
    selector = spec.get("namespaceSelector")
    wanted: tuple[Requirement, ...] | None = None
    if selector is not None:
        labels = tuple(Requirement(k, "In", (v,)) for k, v in (selector.get("matchLabels") or {}).items())
        wanted = (*labels, *requirements(selector.get("matchExpressions")))
    return Queue(
        o["metadata"]["name"],
        spec.get("cohortName") or spec.get("cohort") or "",
        resource_groups(spec),
        QueueingStrategy(spec.get("queueingStrategy") or "BestEffortFIFO"),
        Preemption(
            PreemptionPolicy(preemption.get("withinClusterQueue") or "Never"),
            PreemptionPolicy(preemption.get("reclaimWithinCohort") or "Never"),
            PreemptionPolicy(borrow.get("policy") or "Never"),
            borrow.get("maxPriorityThreshold"),
        ),
        FlavorFungibility(fungibility.get("whenCanBorrow") or "MayStopSearch"),
        FlavorFungibility(fungibility.get("whenCanPreempt") or "TryNextFlavor"),
        FlavorPreference(fungibility.get("preference") or "BorrowingOverPreemption"),
        wanted,
        StopPolicy(spec.get("stopPolicy") or "None"),
    )


def pod_requests(spec: Object) -> dict[str, int]:
    total: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        for r, v in ((container.get("resources") or {}).get("requests") or {}).items():
            total[r] += parse(r, v)
    for container in spec.get("initContainers") or ():
        for r, v in ((container.get("resources") or {}).get("requests") or {}).items():
            if container.get("restartPolicy") == "Always":
                total[r] += parse(r, v)
            else:
                total[r] = max(total[r], parse(r, v))
    for r, v in (spec.get("overhead") or {}).items():
        total[r] += parse(r, v)
    return dict(total)


def topology_request(request: Object | None) -> TopologyRequest | None:
    if not request:
        return None
    if any(key.lower().startswith("podsetslice") for key in request):
        raise Unsupported("slices")
    if request.get("required"):
        return TopologyRequest(TopologyMode.REQUIRED, request["required"])
    if request.get("preferred"):
        return TopologyRequest(TopologyMode.PREFERRED, request["preferred"])
    if request.get("unconstrained"):
        return TopologyRequest(TopologyMode.UNCONSTRAINED)
    return None


def pod_set(o: Object, reclaimed: int) -> PodSet:
    spec = (o.get("template") or {}).get("spec") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = tuple(
        SelectorTerm(requirements(t.get("matchExpressions")), requirements(t.get("matchFields")))
        for t in required.get("nodeSelectorTerms") or ()
    )
    request = o.get("topologyRequest") or {}
    return PodSet(
        o.get("name", "main"),
        o.get("count", 1),
        pod_requests(spec),
        (0, 0),
        reclaimed,
        o.get("minCount"),
        spec.get("nodeSelector") or {},
        terms,
        tolerations(spec.get("tolerations")),
        topology_request(request),
        request.get("podSetGroupName") or "",
    )


def key_of(o: Object) -> str:
    return f"{o['metadata'].get('namespace', 'default')}/{o['metadata']['name']}"


def workload(o: Object, queues: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]) -> Workload:
    meta, spec = o["metadata"], o["spec"]
    namespace = meta.get("namespace", "default")
    reclaimed = {r["name"]: r["count"] for r in (o.get("status") or {}).get("reclaimablePods") or ()}
    pod_sets = tuple(pod_set(p, reclaimed.get(p.get("name", "main"), 0)) for p in spec.get("podSets") or ())
    return Workload(
        meta.get("uid") or key_of(o),
        namespace,
        meta["name"],
        queues.get(f"{namespace}/{spec.get('queueName')}", ""),
        micros(meta.get("creationTimestamp")),
        (PodGroup("all", pod_sets),),
        spec.get("priority") or 0,
        namespace_labels=namespaces.get(namespace, {}),
    )


def admission(o: Object, w: Workload, configuration: Configuration, nodes: list[Node]) -> Admission:
    status = o["status"]
    charge: Counter[Cell] = Counter()
    assignments = []
    reserved = next((c for c in status.get("conditions") or () if c["type"] == "QuotaReserved"), {})
    for p in status["admission"].get("podSetAssignments") or ():
        name = p.get("name", "main")
        for r, v in (p.get("resourceUsage") or {}).items():
            charge[Cell((p.get("flavors") or {}).get(r, ""), r)] += parse(r, v)
        placed = p.get("topologyAssignment")
        domains: tuple[DomainCount, ...] | None = None
        levels: tuple[str, ...] = ()
        if placed:
            domains, levels = _domains(placed, p.get("flavors") or {}, configuration, nodes)
        spec = next(x for x in w.pod_sets if x.name == name)
        assignments.append(
            PodSetAssignment(
                name, p.get("count", spec.count), p.get("flavors") or {}, {}, levels, domains, reclaimed=spec.reclaimed
            )
        )
    return Admission(
        w.uid,
        status["admission"]["clusterQueue"],
        tuple(assignments),
        charge,
        micros(reserved.get("lastTransitionTime")),
    )


def _domains(
    placed: Object, flavors: Mapping[str, str], c: Configuration, nodes: list[Node]
) -> tuple[tuple[DomainCount, ...], tuple[str, ...]]:
    """Domains of an admission; Kueue writes the host name alone where that is the lowest level."""
    levels = next(c.topologies[c.flavors[f].topology].levels for f in flavors.values() if c.flavors[f].topology)
    if "domains" in placed:
        rows = [(tuple(d["values"]), d["count"]) for d in placed["domains"]]
    else:
        rows = []
        for piece in placed["slices"]:
            n = piece["domainCount"]
            columns = []
            for values in piece["valuesPerLevel"]:
                if values.get("universal") is not None:
                    columns.append([values["universal"]] * n)
                else:
                    individual = values["individual"]
                    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
                    columns.append([prefix + root + suffix for root in individual["roots"]])
            counts = piece["podCounts"]
            each = [counts["universal"]] * n if counts.get("universal") is not None else counts["individual"]
            rows += [(tuple(column[i] for column in columns), each[i]) for i in range(n)]
    if levels[-1] == HOSTNAME and len(levels) > 1:
        path = {
            n.labels[HOSTNAME]: tuple(n.labels.get(key, "") for key in levels) for n in nodes if HOSTNAME in n.labels
        }
        rows = [(path[values[-1]], count) for values, count in rows]
    return tuple(DomainCount(values, count) for values, count in rows), levels


def node(o: Object, foreign: Mapping[str, int]) -> Node:
    spec, status = o.get("spec") or {}, o.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return Node(
        o["metadata"]["name"],
        o["metadata"].get("labels") or {},
        {r: parse(r, v) for r, v in (status.get("allocatable") or {}).items()},
        taints(spec.get("taints")),
        conditions.get("Ready") == "True",
        bool(spec.get("unschedulable")),
        foreign,
    )


def configuration(objects: list[Object], policies: Policies) -> Configuration:
    def of(kind: str) -> list[Object]:
        return [o for o in objects if o["kind"] == kind]

    topologies = [
        Topology(o["metadata"]["name"], tuple(v["nodeLabel"] for v in o["spec"]["levels"])) for o in of("Topology")
    ]
    flavors = [
        Flavor(
            o["metadata"]["name"],
            (o.get("spec") or {}).get("nodeLabels") or {},
            taints((o.get("spec") or {}).get("nodeTaints")),
            tolerations((o.get("spec") or {}).get("tolerations")),
            (o.get("spec") or {}).get("topologyName") or "",
        )
        for o in of("ResourceFlavor")
    ]
    cohorts = [
        Cohort(
            o["metadata"]["name"],
            (o.get("spec") or {}).get("parentName") or (o.get("spec") or {}).get("parent") or "",
            resource_groups(o.get("spec") or {}),
        )
        for o in of("Cohort")
    ]
    return Configuration(
        {t.name: t for t in topologies},
        {f.name: f for f in flavors},
        {c.name: c for c in cohorts},
        {o["metadata"]["name"]: queue(o) for o in of("ClusterQueue")},
        policies,
    )


class Scenario:
    """One scenario on one engine."""

    def __init__(self, scenario: Object, policies: Policies) -> None:
        if scenario.get("fairSharing"):
            raise Unsupported("fair sharing")
        objects: list[Object] = scenario["objects"]
        self.engine = Engine()
        self.configuration = configuration(objects, policies)
        self.engine.configure(self.configuration)
        foreign: dict[str, Counter[str]] = {}
        for pod in (o for o in objects if o["kind"] == "Pod"):
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") and pod["spec"].get("nodeName"):
                use = foreign.setdefault(pod["spec"]["nodeName"], Counter())
                use.update({**pod_requests(pod["spec"]), "pods": 1})
        nodes = [node(o, dict(foreign.get(o["metadata"]["name"], {}))) for o in objects if o["kind"] == "Node"]
        for each in nodes:
            self.engine.upsert_node(each)
        queues = {
            key_of(o): (o.get("spec") or {}).get("clusterQueue", "") for o in objects if o["kind"] == "LocalQueue"
        }
        namespaces = {
            o["metadata"]["name"]: o["metadata"].get("labels") or {} for o in objects if o["kind"] == "Namespace"
        }
        self.names: dict[str, str] = {}
        self.admitted: dict[str, Admission] = {}
        latest = 0
        for o in (o for o in objects if o["kind"] == "Workload"):
            w = workload(o, queues, namespaces)
            self.names[w.uid] = w.key
            if any(
                c["type"] == "Finished" and c["status"] == "True"
                for c in (o.get("status") or {}).get("conditions") or ()
            ):
                continue
            self.engine.upsert_workload(w)
            latest = max(latest, w.created)
            if (o.get("status") or {}).get("admission"):
                found = admission(o, w, self.configuration, nodes)
                self.engine.restore_admission(found)
                self.admitted[w.uid] = found
                latest = max(latest, found.admitted)
        self.now = latest + 61_000_000
        self.evictions: list[tuple[str, str, str]] = []

    def step(self) -> Plan:
        """One pass; what it evicts ends at once and queues again."""
        plan = self.engine.plan(self.now)
        self.now += 1_000_000
        for found in plan.admissions:
            self.admitted[found.uid] = found
        for eviction in plan.evictions:
            del self.admitted[eviction.uid]
            self.engine.release(eviction.uid)
            self.evictions.append((eviction.uid, eviction.reason.value, eviction.by))
        return plan

    def run(self) -> Object:
        """Passes until nothing changes; the outcome in the shape of design section 7."""
        for _ in range(MOST_PASSES):
            plan = self.step()
            if not (plan.admissions or plan.evictions):
                break
        pending = {}
        for uid, name in self.names.items():
            if uid not in self.admitted:
                waiting = self.engine.explain(uid, self.now)
                pending[name] = {
                    "reason": waiting.reason.value if waiting else "",
                    "message": waiting.message if waiting else "finished",
                }
        return {
            "admitted": {self.names[uid]: self._view(found) for uid, found in sorted(self.admitted.items())},
            "pending": pending,
            "evictions": [[self.names[u], reason, self.names.get(by)] for u, reason, by in self.evictions],
        }

    @staticmethod
    def _view(found: Admission) -> Object:
        def topology(p: PodSetAssignment) -> list[Any] | None:
            if p.domains is None:
                return None
            host = bool(p.levels) and p.levels[-1] == HOSTNAME
            return [[[d.values[-1]] if host else list(d.values), d.count] for d in p.domains]

        sets = {p.name: {"count": p.count, "flavors": dict(p.flavors), "topology": topology(p)} for p in found.pod_sets}
        return {"clusterQueue": found.queue, "podSets": sets}


def main(arguments: list[str]) -> None:
    policies = Policies() if "--ours" in arguments else KUEUE
    for folder in (a for a in arguments if not a.startswith("--")):
        for path in sorted(pathlib.Path(folder).rglob("*.json")):
            scenario = json.loads(path.read_text())
            try:
                line = Scenario(scenario, policies).run()
            except Unsupported as error:
                line = {"error": str(error)}
            print(json.dumps({"file": str(path), **line}))


if __name__ == "__main__":
    main(sys.argv[1:])
