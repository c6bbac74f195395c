"""Rows for the tests of the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.store.leases import CONTROLLER
from queue_manager.store.records import AdmissionRow, Change, LedgerEntry, LedgerState, State, WorkloadRow
from queue_manager.store.store import Store

NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC)
GPU = Cell("h100", "nvidia.com/gpu")


def lead(store: Store, holder: str = "one") -> int:
    """The epoch of a lease that was taken for an hour."""
    epoch = store.acquire_lease(CONTROLLER, holder, timedelta(hours=1))
    assert epoch is not None
    return epoch


def workload(uid: str = "uid-1", *, gpus: int = 8, **values: Any) -> WorkloadRow:
    """A new waiting TrainJob of one pod set of 8-GPU pods."""
    pod_set = PodSet("node", gpus // 8, {"nvidia.com/gpu": 8, "cpu": 4000})
    defaults: dict[str, Any] = {
        "kind": "TrainJob",
        "namespace": "team",
        "name": f"job-{uid}",
        "created_at": NOW,
        "state": State.WAITING,
        "local_queue": "default",
        "queue": "research",
        "user": "ada",
        "pod_groups": (PodGroup("main", (pod_set,)),),
    }
    return WorkloadRow(uid=uid, **{**defaults, **values})


def admitted(row: WorkloadRow, *, gpus: int = 8, at: datetime = NOW, state: State = State.STARTING) -> WorkloadRow:
    """The row with its next admission, of `gpus` GPUs."""
    assignment = PodSetAssignment(
        "node",
        gpus // 8,
        {"nvidia.com/gpu": "h100"},
        {"rack": "r1"},
        ("block", "rack"),
        (DomainCount(("b1", "r1"), gpus // 8),),
        pinned=True,
    )
    admission = Admission(row.uid, row.queue, (assignment,), {GPU: gpus}, 1_764_000_000_000_000)
    opened = AdmissionRow(attempt=row.attempt + 1, admission=admission, admitted_at=at)
    return replace(row, state=state, attempt=row.attempt + 1, admission=opened)


def reserved(gpus: int = 8, state: LedgerState = LedgerState.RESERVED) -> tuple[LedgerEntry, ...]:
    """The ledger of a workload that is charged `gpus` GPUs."""
    return (LedgerEntry(GPU, gpus, state),)


def add(store: Store, epoch: int, *rows: WorkloadRow) -> list[WorkloadRow]:
    """Commits new rows and reads them back."""
    store.commit(epoch, None, NOW, [Change(row=row) for row in rows])
    return store.get_workloads([row.uid for row in rows])


def admit(store: Store, epoch: int, row: WorkloadRow, gpus: int = 8) -> WorkloadRow:
    """Admits a stored row and reads it back."""
    committed = store.commit(epoch, None, NOW, [Change(row=admitted(row, gpus=gpus), ledger=reserved(gpus))])
    assert not committed.lost
    return store.get_workloads([row.uid])[0]
