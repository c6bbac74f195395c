"""Nothing that a row can say is lost in the database: every field is tried with another value than its default."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import timedelta

import pytest

from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission, DomainCount, PodSetAssignment
from queue_manager.engine.workload import (
    Apart,
    Devices,
    DisruptionMode,
    GroupPolicy,
    PodGroup,
    PodRules,
    PodSet,
    Requirement,
    SelectorTerm,
    SharedClaim,
    SliceLayer,
    SpreadRule,
    Toleration,
    TopologyMode,
    TopologyRequest,
)
from queue_manager.store.records import AdmissionRow, Change, Check, CheckState, Relabel, State, WorkloadRow
from queue_manager.store.store import Store
from tests.store.builders import NOW, add, lead, reserved, workload

SECOND = timedelta(seconds=1)
TOPOLOGY = TopologyRequest(TopologyMode.REQUIRED, "rack", (SliceLayer("host", 2),), balanced=True)
POD_SET = PodSet(
    name="node",
    count=4,
    requests={"nvidia.com/gpu": 8},
    stages=(1, 2),
    reclaimed=1,
    min_count=2,
    node_selector={"zone": "a"},
    node_affinity=(SelectorTerm((Requirement("gpu", "In", ("h100",)),), (Requirement("name", "Exists"),)),),
    tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"),),
    topology=TOPOLOGY,
    podset_group="ring",
    group_topology=TOPOLOGY,
    host_ports=(29500,),
    devices=Devices({"gpu": 1}, (SharedClaim("all", {"gpu": 8}),), {"nvidia.com/gpu": "gpu"}),
    elastic=True,
    replica_size=2,
    distinct=Apart("rack", "trainers"),
    exclusive="block",
    pod_priority=7,
    rules=PodRules(spread=(SpreadRule("rack", 1, 2, True),), together=("block",), apart=("host",)),
)
ADMISSION = Admission(
    uid="uid-1",
    queue="research",
    pod_sets=(
        PodSetAssignment(
            name="node",
            count=3,
            flavors={"nvidia.com/gpu": "h100"},
            selector={"rack": "r1"},
            levels=("block", "rack"),
            domains=(DomainCount(("b1", "r1"), 3),),
            tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"),),
            reclaimed=1,
            pinned=True,
        ),
    ),
    charge={Cell("h100", "nvidia.com/gpu"): 8},
    admitted=1_764_000_000_000_000,
    resize_asked=1_764_000_000_000_001,
    checks=("budget",),
)
ADMISSION_ROW = AdmissionRow(
    attempt=3,
    admission=ADMISSION,
    admitted_at=NOW,
    checked_at=NOW + 1 * SECOND,
    started_at=NOW + 2 * SECOND,
    ready_at=NOW + 3 * SECOND,
    unready_at=NOW + 4 * SECOND,
    unplaced_at=NOW + 5 * SECOND,
    evicted_at=NOW + 5 * SECOND,
    cause="Preempted",
    underlying="InClusterQueue",
    cause_message="gives way",
    by="uid-2",
)
ROW = WorkloadRow(
    uid="uid-1",
    kind="Job",
    namespace="team",
    name="job",
    created_at=NOW,
    state=State.DRAINING,
    local_queue="default",
    queue="research",
    priority=-5,
    priority_class="low",
    may_preempt=False,
    preemptible=False,
    user="ada",
    groups=("nlp", "ünïcode"),
    after_drain=State.WAITING,
    reason="Preempted",
    message="gives way",
    attempt=3,
    not_before=NOW + 6 * SECOND,
    requeues=2,
    requeued_at=NOW + 5 * SECOND,
    max_run_time=7_000_000,
    past_run_time=3_000_000,
    checks=(
        Check(name="budget", state=CheckState.RETRY, message="later", at=NOW, who="eve", retries=2, requeue_after=60),
    ),
    relabels=(Relabel("queue-manager.io/queue-name", "research", "default"),),
    emptied_at=NOW + 7 * SECOND,
    finished_at=NOW + 8 * SECOND,
    pod_groups=(
        PodGroup("main", (POD_SET,), GroupPolicy.BASIC, minimum=2, topology=TOPOLOGY, disruption=DisruptionMode.ALL),
    ),
    topology=TOPOLOGY,
    inputs={"runtime": "uid:3"},
    admission=ADMISSION_ROW,
)
OPEN = {(AdmissionRow, "ended_at"), (WorkloadRow, "version")}
"""An admission that is read with its workload has not ended; the version counts its commits."""


def defaults_of(value: object) -> list[tuple[type, str]]:
    """The fields of a value, and of what is in it, that are at their defaults."""
    if isinstance(value, tuple):
        return [found for item in value for found in defaults_of(item)]
    if not is_dataclass(value) or isinstance(value, type):
        return []
    found = []
    for field in fields(value):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if getattr(value, field.name) == default:
            found.append((type(value), field.name))
        found += defaults_of(getattr(value, field.name))
    return found


@pytest.mark.parametrize("known", [True, False], ids=["of a known workload", "of a new one"])
def test_a_row_reads_back_with_every_field_as_it_was_written(store: Store, known: bool) -> None:
    untried = {f"{kind.__name__}.{name}" for kind, name in set(defaults_of(ROW)) - OPEN}
    assert not untried, "a new field: give it a value in ROW"
    epoch = lead(store)
    row = ROW
    if known:
        (stored,) = add(store, epoch, workload())
        row = replace(ROW, version=stored.version)
    store.commit(epoch, None, NOW, [Change(row=row, ledger=reserved(), request_changed=True)])
    assert store.load_workloads() == [replace(ROW, version=row.version + 1)]


FIRST = workload(namespace="lab", created_at=NOW - SECOND, local_queue="own", queue="vision", user="eve")
RUNS = AdmissionRow(attempt=3, admission=ADMISSION_ROW.admission, admitted_at=NOW)
ADMITTED = replace(FIRST, state=State.RUNNING, attempt=3, admission=RUNS)
ROW_FIELDS = {field.name for field in fields(WorkloadRow)} - {
    *("uid", "version", "state", "attempt", "admission", "pod_groups")
}
ADMISSION_FIELDS = {field.name for field in fields(AdmissionRow)} - {"attempt", "ended_at"}
OTHERS = {"admission": replace(RUNS.admission, queue="another", resize_asked=9), "admitted_at": NOW - 9 * SECOND}


def assert_written(store: Store, epoch: int, name: str, old: WorkloadRow, new: WorkloadRow) -> None:
    """`new` is stored once it is committed by somebody who knows `old`."""
    (known,) = add(store, epoch, replace(old, uid=name))
    changed = replace(new, uid=name, version=known.version)
    assert changed != known
    store.commit(epoch, None, NOW, [Change(row=changed)], {name: known})
    assert store.get_workloads([name]) == [replace(changed, version=known.version + 1)]


def test_each_field_of_a_known_row_is_written_when_it_changes(store: Store) -> None:
    epoch = lead(store)
    for name in sorted(ROW_FIELDS):
        assert_written(store, epoch, name, FIRST, replace(FIRST, **{name: getattr(ROW, name)}))


def test_each_field_of_a_known_admission_is_written_when_it_changes(store: Store) -> None:
    epoch = lead(store)
    for name in sorted(ADMISSION_FIELDS):
        value = OTHERS.get(name) or getattr(ADMISSION_ROW, name)
        # An admission names its workload, by which it is read back.
        old = replace(ADMITTED, admission=replace(RUNS, admission=replace(RUNS.admission, uid=name)))
        if name == "admission":
            value = replace(value, uid=name)
        assert old.admission is not None
        assert_written(store, epoch, name, old, replace(old, admission=replace(old.admission, **{name: value})))


def test_a_known_row_of_another_version_is_not_gone_by(store: Store) -> None:
    epoch = lead(store)
    (old,) = add(store, epoch, FIRST)
    (moved,) = add(store, epoch, replace(old, user="ada"))
    known = replace(moved, version=old.version, user="eve")
    store.commit(epoch, None, NOW, [Change(row=replace(known, version=moved.version))], {old.uid: known})
    assert [row.user for row in store.load_workloads()] == ["eve"]


def test_the_admission_before_ends_when_a_known_row_has_another_one(store: Store) -> None:
    epoch = lead(store)
    again = replace(ADMITTED, attempt=4, admission=replace(RUNS, attempt=4))
    (known,) = add(store, epoch, ADMITTED)
    store.commit(epoch, None, NOW, [Change(row=replace(again, version=known.version))], {known.uid: known})
    assert [admission.ended_at for admission in store.admissions(FIRST.uid)] == [NOW, None]
