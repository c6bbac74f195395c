"""A company in a database: cohorts, teams, flavors, workloads in every state. For tests and for looking at the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from queue_manager.config.compiled import stored_objects
from queue_manager.config.export import export
from queue_manager.config.parse import parse_objects
from queue_manager.config.validate import validate
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest
from queue_manager.store.records import AdmissionRow, Change, LedgerEntry, LedgerState, State, WorkloadRow
from queue_manager.store.store import Store
from tests.store.builders import NOW, lead

GPU = "nvidia.com/gpu"
TIB = 2**40


def document(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """A configuration object."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "queue-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def group(flavors: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A resource group: flavor -> resource -> nominal quota."""
    resources = list(next(iter(flavors.values())))
    return {
        "coveredResources": resources,
        "flavors": [
            {"name": flavor, "resources": [{"name": r, "nominalQuota": q} for r, q in quotas.items()]}
            for flavor, quotas in flavors.items()
        ],
    }


def queue(name: str, cohort: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """A queue with quota of h100 nodes."""
    groups = [group({"h100": {"cpu": 16 * gpus, "memory": f"{gpus * 128}Gi", GPU: gpus}})]
    return document("Queue", name, {"cohort": cohort, "namespaceSelector": {}, "resourceGroups": groups, **spec})


SMALL = [
    document("Flavor", "h100", {}),
    document("Cohort", "company", {}),
    document("Cohort", "research", {"parent": "company"}),
    queue("nlp", "research", 64),
    queue("vision", "research", 32),
    queue("ranking", "company", 32, stopPolicy="Hold"),
    document("LocalQueue", "default", {"queue": "nlp"}, "team-nlp"),
    document("PriorityClass", "high", {"value": 100}),
]
"""company{research{nlp 64, vision 32}, ranking 32} GPUs."""


def text(*documents: dict[str, Any]) -> str:
    """Configuration objects as people write them."""
    return export(parse_objects(documents).objects)


def configure(store: Store, documents: Sequence[dict[str, Any]] = SMALL) -> None:
    """Stores a configuration that is valid."""
    result = parse_objects(documents)
    assert not result.errors
    assert not validate(result.objects)
    store.apply_configuration(stored_objects(result.objects), author="ada", reason="start", now=NOW, source="test")


def job(name: str, queue: str, pods: int, gpus: int = 8, *, age: int = 10, **values: Any) -> WorkloadRow:
    """A waiting TrainJob of `pods` pods; `age` in minutes."""
    pod_set = PodSet("node", pods, {GPU: gpus, "cpu": 16000 * gpus, "memory": 128 * 2**30 * gpus})
    row = WorkloadRow(
        uid=f"uid-{name}",
        kind="TrainJob",
        namespace=f"team-{queue}",
        name=name,
        created_at=NOW - timedelta(minutes=age),
        state=State.WAITING,
        local_queue="default",
        queue=queue,
        user="ada",
        pod_groups=(PodGroup("main", (pod_set,)),),
        topology=TopologyRequest(TopologyMode.REQUIRED, "rack") if pods > 2 else None,
    )
    return replace(row, **values)


def commit(store: Store, *changes: Change) -> None:
    """Commits as the leader."""
    assert not store.commit(lead(store), None, NOW, changes).lost


def running(row: WorkloadRow, state: State = State.RUNNING, flavor: str = "h100") -> Change:
    """The change that makes a waiting row an admitted one."""
    pod_set = row.pod_groups[0].pod_sets[0]
    charge = {Cell(flavor, resource): amount * pod_set.count for resource, amount in pod_set.requests.items()}
    domains = tuple(DomainCount(("block-1", f"rack-{n}"), pod_set.count // 2 or 1) for n in (1, 2))
    assignment = PodSetAssignment("node", pod_set.count, dict.fromkeys(pod_set.requests, flavor), domains=domains)
    admission = Admission(row.uid, row.queue, (assignment,), charge, 0)
    opened = AdmissionRow(attempt=1, admission=admission, admitted_at=row.created_at + timedelta(minutes=1))
    booked = LedgerState.DRAINING if state is State.DRAINING else LedgerState.RESERVED
    ledger = tuple(LedgerEntry(cell, amount, booked) for cell, amount in charge.items())
    after = State.WAITING if state is State.DRAINING else None
    return Change(row=replace(row, state=state, attempt=1, admission=opened, after_drain=after), ledger=ledger)


def waiting(
    row: WorkloadRow, message: str, *, missing: int = 8, holders: Sequence[str] = (), position: int = 1
) -> Change:
    """A waiting row with its explanation."""
    blocker = {
        "type": "Quota",
        "message": message,
        "node": row.queue,
        "flavor": "h100",
        "resource": GPU,
        "requested": missing + 4,
        "available": 4,
        "missing": missing,
        "holders": list(holders),
    }
    body = {
        "reason": "WaitingForQuota",
        "message": message,
        "position": position,
        "since": row.created_at.isoformat(),
        "asOf": NOW.isoformat(),
        "estimatedStart": None,
        "blockers": [blocker],
    }
    return Change(row=replace(row, reason="WaitingForQuota", message=message), explanation=body)


def small_company(store: Store) -> None:
    """`SMALL` with nlp over its quota by 16 GPUs, which vision lends, 8 of them draining; and two that wait."""
    configure(store)
    commit(
        store,
        running(job("big", "nlp", 9, age=50)),
        running(job("leaving", "nlp", 1, age=40), State.DRAINING),
        running(job("small", "vision", 1, age=30), State.STARTING),
        waiting(job("blocked", "nlp", 2, age=20), "12 GPUs short in nlp", holders=["team-nlp/big"], missing=12),
        waiting(job("later", "nlp", 1, age=10), "stands behind team-nlp/blocked", position=2),
        Change(row=job("held", "vision", 1, age=5, state=State.HELD, reason="SuspendedByUser")),
        Change(row=job("done", "vision", 1, age=90, state=State.FINISHED, finished_at=NOW - timedelta(minutes=60))),
    )


def large_company(store: Store, teams: int = 200, seed: int = 7) -> None:
    """As many teams as an admin of a large company has, with plausible load."""
    random = Random(seed)
    departments = ["research", "products", "platform", "science", "partners"]
    documents = [document("Flavor", name, {}) for name in ("a100", "h100")]
    documents.append(document("Cohort", "company", {}))
    documents += [document("Cohort", name, {"parent": "company"}) for name in departments]
    names = [
        f"{random.choice(['nlp', 'vision', 'speech', 'rank', 'agents', 'robots', 'bio', 'code'])}-{n:03}"
        for n in range(teams)
    ]
    for name in names:
        gpus = random.choice([8, 16, 32, 64, 128])
        h100 = {"cpu": 16 * gpus, "memory": f"{gpus * 128}Gi", GPU: gpus}
        a100 = {"cpu": 8 * gpus, "memory": f"{gpus * 64}Gi", GPU: gpus // 2}
        spec = {"cohort": random.choice(departments), "namespaceSelector": {}}
        documents.append(document("Queue", name, {**spec, "resourceGroups": [group({"h100": h100, "a100": a100})]}))
    configure(store, documents)
    changes = []
    for index in range(teams * 4):
        name = random.choice(names)
        row = job(
            f"{random.choice(['pretrain', 'finetune', 'eval', 'sweep', 'distill'])}-{index:04}",
            name,
            random.choice([1, 1, 2, 4, 8]),
        )
        row = replace(
            row, created_at=NOW - timedelta(minutes=random.randrange(1, 5000)), priority=random.choice([0, 0, 100])
        )
        kind = random.random()
        if kind < 0.62:
            changes.append(running(row, flavor=random.choice(["h100", "h100", "a100"])))
        elif kind < 0.66:
            changes.append(running(row, State.DRAINING))
        elif kind < 0.68:
            changes.append(running(row, State.STARTING))
        else:
            gpus = row.pod_groups[0].pod_sets[0].count * 8
            message = f"{gpus} GPUs of h100 are short in {name}: the cohort has 4 free, its largest user is bio-017"
            changes.append(
                waiting(row, message, missing=gpus, holders=["team-bio-017/pretrain-0123", "team-x/eval-0099"])
            )
    commit(store, *changes)
