"""What the API, the metrics and the executors read."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from queue_manager.engine.configuration import Cell
from queue_manager.engine.workload import PodGroup, PodSet
from queue_manager.store.invariants import check
from queue_manager.store.listing import BadCursor
from queue_manager.store.records import (
    Action,
    Change,
    FailedTry,
    LedgerEntry,
    LedgerState,
    NodeRow,
    OutboxEntry,
    StaleEpoch,
    State,
    WorkloadFilter,
)
from queue_manager.store.store import Store
from queue_manager.store.sums import UsageRow
from tests.store.builders import GPU, NOW, add, admit, admitted, lead, reserved, workload

SECOND = timedelta(seconds=1)


def uids(store: Store, **wanted: Any) -> list[str]:
    rows, after = store.list_workloads(WorkloadFilter(**wanted))
    assert after is None
    return [row.uid for row in rows]


def test_filters_select_and_combine(store: Store) -> None:
    epoch = lead(store)
    rows = add(
        store,
        epoch,
        workload("a", queue="research", user="ada", namespace="nlp", name="bert-100%"),
        workload("b", queue="vision", user="ada", kind="JobSet", name="bert_large"),
        workload("c", queue="vision", user="grace", namespace="nlp", name="resnet"),
    )
    admit(store, epoch, rows[2])
    assert uids(store) == ["c", "b", "a"]
    assert uids(store, queues=("vision",)) == ["c", "b"]
    assert uids(store, queues=("vision", "research")) == ["c", "b", "a"]
    assert uids(store, states=(State.WAITING,)) == ["b", "a"]
    assert uids(store, states=(State.WAITING, State.STARTING), user="ada", namespace="nlp") == ["a"]
    assert uids(store, kind="JobSet") == ["b"]
    assert uids(store, text="ert") == ["b", "a"]
    assert uids(store, text="NLP/b") == ["a"]
    assert uids(store, text="0%") == ["a"]
    assert uids(store, text="t_l") == ["b"]
    assert uids(store, queues=("none",)) == []


def test_pages_are_stable_under_inserts(store: Store) -> None:
    epoch = lead(store)
    rows = [workload(f"u{i:02}", created_at=NOW + SECOND * (i // 3)) for i in range(20)]  # equal times among them
    add(store, epoch, *rows)
    seen: list[str] = []
    cursor = None
    while True:
        page, cursor = store.list_workloads(WorkloadFilter(), cursor, 6)
        seen += [row.uid for row in page]
        add(store, epoch, workload(f"new{len(seen)}", created_at=NOW + timedelta(hours=1)))
        if cursor is None:
            break
    assert seen == sorted((row.uid for row in rows), reverse=True)


def test_a_page_that_is_just_full_is_the_last(store: Store) -> None:
    add(store, lead(store), workload("a"), workload("b"))
    page, after = store.list_workloads(WorkloadFilter(), None, 2)
    assert (len(page), after) == (2, None)
    _, after = store.list_workloads(WorkloadFilter(), None, 1)
    assert store.list_workloads(WorkloadFilter(), after, 1) == ([page[1]], None)


def test_cursors_that_are_none_of_ours(store: Store) -> None:
    naive = base64.urlsafe_b64encode(b'["2026-11-29T12:00:00", "u"]').decode()
    for cursor in ("", "!", "AAAA", naive, "ÿ", "W10"):
        with pytest.raises(BadCursor, match="not a cursor"):
            store.list_workloads(WorkloadFilter(), cursor)


def test_workloads_of_a_name(store: Store) -> None:
    epoch = lead(store)
    old, other, new = add(
        store,
        epoch,
        workload("1", name="x"),
        workload("2", name="x", kind="JobSet"),
        workload("3", name="x", created_at=NOW + SECOND),
    )
    add(store, epoch, workload("4", name="y"), workload("5", name="x", namespace="elsewhere"))
    assert store.find_workloads("team", "x") == [new, other, old]
    assert store.find_workloads("team", "x", "JobSet") == [other]
    assert store.find_workloads("team", "nothing") == []


def test_usage_is_the_sum_of_open_intervals(store: Store) -> None:
    epoch = lead(store)
    huge = 2**62
    for number, queue in enumerate(("research", "research", "vision")):
        (row,) = add(store, epoch, workload(f"u{number}", queue=queue))
        entry = LedgerEntry(Cell("h100", "memory"), huge, LedgerState.RESERVED)
        store.commit(epoch, None, NOW, [Change(row=admitted(row), ledger=(*reserved(), entry))])
    row = store.get_workloads(["u2"])[0]
    loan = LedgerEntry(GPU, 3, LedgerState.RECLAIMED_LOAN)
    store.commit(epoch, None, NOW, [Change(row=row, ledger=(*reserved(5), loan))])
    assert store.usage() == [
        UsageRow("research", Cell("h100", "memory"), LedgerState.RESERVED, 2 * huge),  # beyond 64 bits
        UsageRow("research", GPU, LedgerState.RESERVED, 16),
        UsageRow("vision", GPU, LedgerState.RECLAIMED_LOAN, 3),
        UsageRow("vision", GPU, LedgerState.RESERVED, 5),
    ]


def test_waiting_requests_are_peaks_over_stages(store: Store) -> None:
    epoch = lead(store)
    staged = (
        PodGroup("init", (PodSet("a", 2, {"cpu": 500, "gpu": 1}, stages=(0, 0)),)),
        PodGroup(
            "main",
            (
                PodSet("b", 4, {"gpu": 8}, stages=(1, 2), reclaimed=1),
                PodSet("c", 1, {"gpu": 1, "cpu": 700}, stages=(2, 3)),
            ),
        ),
    )
    add(store, epoch, workload("1", pod_groups=staged), workload("2", pod_groups=staged), workload("3", queue="vision"))
    admit(store, epoch, store.get_workloads(["3"])[0])
    assert store.waiting_requests() == {"research": {"gpu": 2 * (3 * 8 + 1), "cpu": 2 * 1000}}
    assert store.queue_counts() == {"research": {State.WAITING: 2}, "vision": {State.STARTING: 1}}


def test_nodes_are_replaced_and_removed(store: Store) -> None:
    epoch = lead(store)
    node = NodeRow("n1", {"rack": "r1"}, (("gpu", "", "NoSchedule"),), {"gpu": 8}, {"gpu": 1, "pods": 3}, True, False)
    assert store.nodes_saved_at() is None
    store.save_nodes(epoch, [replace(node, name="n2"), node], [], NOW)
    assert store.load_nodes() == [node, replace(node, name="n2")]
    store.save_nodes(epoch, [replace(node, ready=False)], ["n2", "unknown"], NOW + SECOND)
    assert store.load_nodes() == [replace(node, ready=False)]
    store.save_nodes(epoch, [], [], NOW + 2 * SECOND)
    assert store.nodes_saved_at() == NOW + 2 * SECOND
    with pytest.raises(StaleEpoch):
        store.save_nodes(epoch + 1, [], ["n1"], NOW)


def test_facts(store: Store) -> None:
    assert store.fact("adopted") is None
    store.put_fact("adopted", {"at": "now"})
    store.put_fact("adopted", {"at": "later"}, NOW)
    assert store.fact("adopted") == {"at": "later"}


def test_the_outbox_keeps_what_failed_and_forgets_what_is_done(store: Store) -> None:
    epoch = lead(store)
    assert store.outbox_age(NOW) == timedelta()
    entries = (OutboxEntry(uid="uid-1", action=Action.SYNC), OutboxEntry(uid="uid-1", action=Action.EVENT))
    sync, event = store.commit(epoch, None, NOW, [Change(row=workload(), outbox=entries)]).outbox
    tries = [
        FailedTry(sync.id, "429", NOW),
        FailedTry(event.id, "500", NOW + 2 * SECOND),
        FailedTry(sync.id, "503 \0", NOW + SECOND),
        FailedTry(12345, "404", NOW),
    ]
    store.outbox_failed(epoch, tries, NOW)
    sync = replace(sync, tries=2, last_error="503 �", not_before=NOW + SECOND)
    event = replace(event, tries=1, last_error="500", not_before=NOW + 2 * SECOND)
    assert store.pending_outbox() == [sync, event]
    assert store.outbox_age(NOW + 5 * SECOND) == 5 * SECOND
    store.outbox_done(epoch, [sync.id, 12345], NOW)
    assert store.pending_outbox() == [event]
    with pytest.raises(StaleEpoch):
        store.outbox_done(epoch + 1, [event.id], NOW)
    with pytest.raises(StaleEpoch):
        store.outbox_failed(epoch + 1, tries, NOW)


DAMAGES = (
    (
        "UPDATE admissions SET admission = jsonb_set(admission, '{charge,0,2}', '9')",
        "workload uid-1: ledger and admission differ: queue research, h100/nvidia.com/gpu: charged 9, in the ledger 8",
    ),
    ("UPDATE ledger SET until = since", "charged 8, in the ledger 0"),
    (
        'INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since) '
        "VALUES ('ghost', 'n', 'q', 'u', 'f', 'r', 1, 'reserved', '2026-11-29 12:00Z')",
        "workload ghost: is not known but has an open ledger interval of queue q",
    ),
    (
        "ALTER TABLE workloads DROP CONSTRAINT workloads_open_admission_fkey;"
        "UPDATE admissions SET ended_at = admitted_at",
        "workload uid-1: is starting without an open admission",
    ),
    (
        "UPDATE workloads SET state = 'held', open_attempt = NULL WHERE uid = 'uid-1'",
        "workload uid-1: is held but its admission 1 is open",
    ),
    (
        "UPDATE workloads SET state = 'draining' WHERE uid = 'uid-1'",
        "workload uid-1: is draining but has 1 open ledger intervals as reserved",
    ),
    ("DELETE FROM pod_sets", "workload uid-1: has no pod set"),
    (
        "UPDATE workloads SET state = 'failed', finished_at = now() WHERE uid = 'b'",
        "workload b: has ended and is still explained",
    ),
)


def test_the_check_finds_what_is_wrong(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    admit(store, epoch, row)
    store.commit(epoch, None, NOW, [Change(row=workload("b"), explanation={"blockers": []})])
    assert store.check(NOW) == []
    for damage, finding in DAMAGES:
        with store.engine.connect() as connection:
            for statement in damage.split(";"):
                connection.exec_driver_sql(statement)
            found = check(connection, NOW)
            connection.rollback()
        assert any(finding in sentence for sentence in found), (damage, found)


def test_the_check_knows_loans(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    row = admit(store, epoch, row)
    loan = LedgerEntry(GPU, 3, LedgerState.RECLAIMED_LOAN)
    store.commit(epoch, None, NOW, [Change(row=row, ledger=(*reserved(5), loan))])
    assert store.check(NOW) == []
    (finding,) = store.check(NOW - SECOND)[:1]
    assert "begins in the future" in finding


def test_many_findings_are_counted(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(
            text(
                'INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since) '
                "SELECT 'g' || n, 'n', 'q', 'u', 'f', 'r', 1, 'reserved', now() FROM generate_series(1, 250) n"
            )
        )
    findings = store.check(NOW.replace(year=2100))
    assert "and 150 more of this kind" in findings
    assert len(findings) == 202
