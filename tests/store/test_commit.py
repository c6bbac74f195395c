"""The commit of decisions: what it writes, whom it refuses, who loses."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from queue_manager.engine.configuration import Cell
from queue_manager.engine.workload import (
    Apart,
    DisruptionMode,
    GroupPolicy,
    PodGroup,
    PodRules,
    PodSet,
    Requirement,
    SelectorTerm,
    SpreadRule,
    Toleration,
    TopologyMode,
    TopologyRequest,
)
from queue_manager.store.commit import commit
from queue_manager.store.leases import CONTROLLER
from queue_manager.store.records import (
    Action,
    Change,
    ConfigObject,
    LedgerEntry,
    LedgerState,
    OutboxEntry,
    StaleConfiguration,
    StaleEpoch,
    State,
)
from queue_manager.store.store import Store
from tests.store.builders import GPU, NOW, add, admit, admitted, lead, reserved, workload

LATER = NOW + timedelta(minutes=5)

RICH_GROUPS = (
    PodGroup(
        "initialisers",
        (PodSet("dataset", 1, {"cpu": 2000}, stages=(0, 0)), PodSet("model", 1, {"cpu": 1000}, stages=(0, 0))),
        policy=GroupPolicy.BASIC,
    ),
    PodGroup(
        "trainer",
        (
            PodSet(
                "node",
                64,
                {"nvidia.com/gpu": 8, "memory": 2**40},
                stages=(1, 2),
                reclaimed=3,
                min_count=32,
                node_selector={"zone": "a"},
                node_affinity=(SelectorTerm((Requirement("gpu", "In", ("h100", "h200")),), ()), SelectorTerm()),
                tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"), Toleration()),
                topology=TopologyRequest(TopologyMode.REQUIRED, "rack"),
                podset_group="ring",
                host_ports=(29500, 29501),
                replica_size=2,
                distinct=Apart("rack", "node"),
                exclusive="pool",
                pod_priority=-7,
                rules=PodRules((SpreadRule("zone", 1, 2),), ("block",), ("host",)),
            ),
        ),
        minimum=60,
        topology=TopologyRequest(TopologyMode.PREFERRED, "block", balanced=True),
        disruption=DisruptionMode.ALL,
    ),
)


def test_a_workload_reads_back_as_it_was_written(store: Store) -> None:
    row = workload(
        groups=("nlp", "ünïcode"),
        priority=-5,
        priority_class="high",
        may_preempt=False,
        preemptible=False,
        reason="WaitingForQuota",
        message="1 GPU short",
        not_before=LATER,
        pod_groups=RICH_GROUPS,
        topology=TopologyRequest(TopologyMode.UNCONSTRAINED),
        inputs={"runtime": "uid:3"},
    )
    epoch = lead(store)
    committed = store.commit(epoch, None, NOW, [Change(row=row)])
    assert (committed.versions, committed.lost) == ({"uid-1": 1}, frozenset())
    (read,) = store.load_workloads()
    assert read == replace(row, version=1)
    node = read.pod_groups[1].pod_sets[0]
    assert type(read.state) is State
    assert type(node.node_affinity[0].labels[0]) is Requirement
    assert type(node.tolerations[0]) is Toleration
    assert node.topology is not None
    assert type(node.topology.mode) is TopologyMode
    assert type(node.stages) is tuple


def test_an_admission_reads_back_as_it_was_written(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    wish = admitted(row)
    store.commit(epoch, None, NOW, [Change(row=wish, ledger=reserved())])
    (read,) = store.load_workloads()
    assert read == replace(wish, version=2)
    assert read.admission is not None
    assert read.admission.admission.charge == {GPU: 8}
    assert isinstance(next(iter(read.admission.admission.charge)), Cell)


def test_the_request_is_rewritten_only_when_it_changed(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    other = replace(row, pod_groups=RICH_GROUPS)
    store.commit(epoch, None, NOW, [Change(row=other)])
    assert store.load_workloads()[0].pod_groups == row.pod_groups
    store.commit(epoch, None, NOW, [Change(row=replace(other, version=2), request_changed=True)])
    assert store.load_workloads()[0].pod_groups == RICH_GROUPS


def test_a_stale_epoch_writes_nothing(store: Store) -> None:
    epoch = lead(store)
    store.release_lease(CONTROLLER, "one", epoch)
    with pytest.raises(StaleEpoch, match=f"epoch {epoch}"):
        store.commit(epoch, None, NOW, [Change(row=workload())])
    assert lead(store, "two") == epoch + 1
    with pytest.raises(StaleEpoch):
        store.commit(epoch, None, NOW, [Change(row=workload())])
    assert store.load_workloads() == []


def test_a_takeover_waits_for_a_commit_and_renewing_does_not(store: Store) -> None:
    epoch = lead(store)
    store.acquire_lease(CONTROLLER, "one", timedelta(seconds=-1))  # has run out
    with store.engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM leases WHERE epoch = :epoch FOR KEY SHARE"), {"epoch": epoch})
        assert store.renew_lease(CONTROLLER, "one", epoch, timedelta(seconds=-1))
        with ThreadPoolExecutor(1) as pool:
            takeover = pool.submit(store.acquire_lease, CONTROLLER, "two", timedelta(hours=1))
            with pytest.raises(TimeoutError):
                takeover.result(0.2)
            connection.rollback()
            assert takeover.result(10) == epoch + 1


def test_a_moved_row_loses_its_whole_part(store: Store) -> None:
    epoch = lead(store)
    first, second = add(store, epoch, workload("a"), workload("b"))
    add(store, epoch, workload("c"))
    store.commit(epoch, None, NOW, [Change(row=replace(first, priority=1))])
    sync = OutboxEntry(uid="a", action=Action.SYNC)
    stale = Change(row=admitted(first), ledger=reserved(), outbox=(sync,), explanation={"blockers": []})
    good = Change(row=admitted(second), ledger=reserved(), outbox=(replace(sync, uid="b"),))
    new = Change(row=workload("c"))  # exists already
    committed = store.commit(epoch, None, NOW, [stale, good, new])
    assert committed.lost == {"a", "c"}
    assert committed.versions == {"b": 2}
    assert [entry.uid for entry in committed.outbox] == ["b"]
    assert store.pending_outbox() == list(committed.outbox)
    assert [row.state for row in store.load_workloads()] == [State.WAITING, State.STARTING, State.WAITING]
    assert store.history("a").admissions == ()
    assert store.history("a").intervals == ()
    assert store.explanation("a") is None
    assert store.check(NOW) == []


def test_a_change_loses_when_what_it_read_moved(store: Store) -> None:
    epoch = lead(store)
    first, second, third = add(store, epoch, workload("a"), workload("b"), workload("c"))
    store.commit(epoch, None, NOW, [Change(row=replace(second, priority=1))])
    committed = store.commit(
        epoch,
        None,
        NOW,
        [
            Change(row=replace(first, priority=9), reads=(("b", 1),)),
            Change(row=replace(third, priority=9), reads=(("c", 1), ("b", 2))),
        ],
    )
    assert committed.lost == {"a"}
    assert committed.versions == {"c": 2}
    committed = store.commit(epoch, None, NOW, [Change(row=replace(first, priority=9), reads=(("gone", 3),))])
    assert committed.lost == {"a"}


def test_a_loss_goes_on_to_those_that_read_the_loser(store: Store) -> None:
    epoch = lead(store)
    first, second, third = add(store, epoch, workload("a"), workload("b"), workload("c"))
    committed = store.commit(
        epoch,
        None,
        NOW,
        [
            Change(row=replace(first, priority=1), reads=(("b", 1),)),
            Change(row=replace(second, priority=1), reads=(("c", 1),)),
            Change(row=replace(third, priority=1), reads=(("gone", 1),)),
        ],
    )
    assert committed.lost == {"a", "b", "c"}


def test_the_ledger_keeps_equal_intervals_and_replaces_others(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    cpu = LedgerEntry(Cell("h100", "cpu"), 4000, LedgerState.RESERVED)
    zero = LedgerEntry(Cell("h100", "memory"), 0, LedgerState.RESERVED)
    wish = admitted(row)
    store.commit(epoch, None, NOW, [Change(row=wish, ledger=(*reserved(), cpu, zero))])
    running = replace(wish, state=State.RUNNING, version=2)
    store.commit(epoch, None, LATER, [Change(row=running, ledger=(*reserved(16), cpu))])
    found = store.history("uid-1").intervals
    assert sorted((i.cell.resource, i.amount, i.since, i.until or "open") for i in found) == [
        ("cpu", 4000, NOW, "open"),
        ("nvidia.com/gpu", 8, NOW, LATER),
        ("nvidia.com/gpu", 16, LATER, "open"),
    ]
    store.commit(epoch, None, LATER, [Change(row=replace(running, version=3))])
    assert store.history("uid-1").intervals == found  # ledger None leaves it alone
    store.commit(epoch, None, LATER, [Change(row=replace(running, version=4), ledger=())])
    assert all(i.until for i in store.history("uid-1").intervals)


def test_a_clock_that_went_back_ends_intervals_where_they_began(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    row = admit(store, epoch, row)
    freed = replace(row, state=State.WAITING, admission=None)
    store.commit(epoch, None, NOW - timedelta(hours=1), [Change(row=freed, ledger=())])
    (interval,) = store.history("uid-1").intervals
    assert interval.since == interval.until == NOW


def test_one_life_of_a_workload_leaves_its_admissions_and_charges(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    row = admit(store, epoch, row)
    assert row.admission is not None
    evicted = replace(row.admission, evicted_at=LATER, cause="InClusterQueue", by="uid-2")
    row = replace(row, state=State.DRAINING, after_drain=State.WAITING, admission=evicted)
    store.commit(epoch, None, LATER, [Change(row=row, ledger=reserved(state=LedgerState.DRAINING))])
    assert store.check(LATER) == []
    row = replace(store.load_workloads()[0], state=State.WAITING, after_drain=None, admission=None)
    store.commit(epoch, None, LATER, [Change(row=row, ledger=())])
    row = admit(store, epoch, store.load_workloads()[0])
    assert row.attempt == 2
    done = replace(row, state=State.FINISHED, admission=None)
    store.commit(epoch, None, LATER, [Change(row=done, ledger=())])
    first, second = store.history("uid-1").admissions
    assert (first.attempt, first.cause, first.by, first.evicted_at, first.ended_at) == (
        1,
        "InClusterQueue",
        "uid-2",
        LATER,
        LATER,
    )
    assert (second.attempt, second.ended_at) == (2, LATER)
    assert store.load_workloads() == []
    assert store.load_workloads(ended=True)[0].finished_at == LATER
    assert store.check(LATER) == []


def test_an_admission_may_be_ended_with_its_cause_in_the_same_commit(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    row = admit(store, epoch, row)
    assert row.admission is not None
    ended = replace(row.admission, ended_at=LATER, cause="NodeLost")
    store.commit(epoch, None, LATER, [Change(row=replace(row, state=State.HELD, admission=ended), ledger=())])
    (read,) = store.load_workloads()
    assert read.admission is None
    assert store.history("uid-1").admissions[0].cause == "NodeLost"


def test_explanations_come_stay_and_go(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    body = {"position": 3, "blockers": [{"type": "Quota", "missing": 1, "message": "nul \0 here"}]}
    store.commit(epoch, None, NOW, [Change(row=row, explanation=body)])
    assert store.explanation("uid-1") == {
        "position": 3,
        "blockers": [{"type": "Quota", "missing": 1, "message": "nul � here"}],
    }
    store.commit(epoch, None, NOW, [Change(row=replace(row, version=2))])
    assert store.explanation("uid-1") is not None  # still waits
    admit(store, epoch, replace(row, version=3))
    assert store.explanation("uid-1") is None


def test_outbox_ids_follow_the_order_of_the_changes(store: Store) -> None:
    epoch = lead(store)
    entries = [OutboxEntry(uid=f"u{i:03}", action=Action.EVENT, payload={"n": i}, not_before=LATER) for i in range(200)]
    changes = [Change(row=workload(entry.uid), outbox=(entry, replace(entry, action=Action.SYNC))) for entry in entries]
    committed = store.commit(epoch, None, NOW, changes)
    assert [entry.uid for entry in committed.outbox] == [f"u{i // 2:03}" for i in range(400)]
    assert [entry.id for entry in committed.outbox] == sorted(entry.id for entry in committed.outbox)
    assert store.pending_outbox() == list(committed.outbox)


CONTRADICTIONS = (
    (Change(row=workload(state=State.RUNNING)), "running without an admission"),
    (Change(row=replace(admitted(workload()), state=State.WAITING)), "waiting with an admission"),
    (Change(row=admitted(workload()), ledger=reserved() * 2), "two ledger entries"),
)


def test_changes_that_contradict_themselves_are_refused(store: Store) -> None:
    epoch = lead(store)
    for change, message in CONTRADICTIONS:
        with pytest.raises(ValueError, match=message):
            store.commit(epoch, None, NOW, [change])


def test_a_workload_changes_once_in_a_commit(store: Store) -> None:
    with pytest.raises(ValueError, match="twice"):
        store.commit(lead(store), None, NOW, [Change(row=workload()), Change(row=workload())])


def test_negative_amounts_roll_everything_back(store: Store) -> None:
    epoch = lead(store)
    (row,) = add(store, epoch, workload())
    with pytest.raises(IntegrityError, match="ledger_amount_check"):
        store.commit(epoch, None, NOW, [Change(row=admitted(row), ledger=reserved(-1)), Change(row=workload("b"))])
    assert store.load_workloads() == [row]


def test_two_inserters_of_one_workload_make_one_row(store: Store) -> None:
    epoch = lead(store)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: store.commit(epoch, None, NOW, [Change(row=workload())]), range(8)))
    assert sum(len(answer.versions) for answer in answers) == 1
    assert sum(len(answer.lost) for answer in answers) == 7


def test_commits_in_any_order_of_rows_do_not_deadlock(store: Store) -> None:
    epoch = lead(store)
    rows = add(store, epoch, *(workload(f"u{i}") for i in range(20)))

    def touch(backwards: bool) -> int:
        won = 0
        for _ in range(10):
            current = {row.uid: row for row in store.get_workloads(row.uid for row in rows)}
            ordered = sorted(current.values(), key=lambda row: row.uid, reverse=backwards)
            answer = store.commit(
                epoch, None, NOW, [Change(row=replace(row, priority=row.priority + 1)) for row in ordered]
            )
            won += len(answer.versions)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(touch, [True, False, True, False]))
    assert sum(row.priority for row in store.load_workloads()) == won > 0


def test_a_newer_configuration_refuses_the_commit(store: Store) -> None:
    epoch = lead(store)
    first = _apply(store, "a")
    store.commit(epoch, first, NOW, [Change(row=workload())])
    second = _apply(store, "b")
    with pytest.raises(StaleConfiguration, match=f"revision {first}.*newest is {second}"):
        store.commit(epoch, first, NOW, [Change(row=workload("b"))])
    store.commit(epoch, None, NOW, [Change(row=workload("c"))])  # facts of the cluster depend on no configuration


def test_no_configuration_slips_in_while_a_commit_is_under_way(store: Store) -> None:
    """Many commits against many applies: a commit by revision N never lands after revision N + 1."""
    epoch = lead(store)
    _apply(store, "start")
    stop = threading.Event()
    landed: list[int] = []

    def decide() -> None:
        number = 0
        while not stop.is_set():
            revision, _ = store.load_configuration()
            row = workload(f"{threading.get_ident()}-{number}", inputs={"revision": str(revision)})
            number += 1
            try:
                store.commit(epoch, revision, NOW, [Change(row=row)])
                landed.append(revision)
            except StaleConfiguration:
                pass

    def configure() -> None:
        for number in range(20):
            _apply(store, f"flavor-{number}")
            decided, deadline = len(landed), time.monotonic() + 10
            while len(landed) == decided and time.monotonic() < deadline:
                time.sleep(0.001)
            # What this apply could see of decisions was made by older revisions, and no more of those may come.
            with store.engine.begin() as connection:
                connection.execute(
                    text(
                        "INSERT INTO facts (name, value, at) SELECT 'seen-' || max(r.number), "
                        "(SELECT to_jsonb(count(*)) FROM workloads "
                        "WHERE (inputs ->> 'revision')::int < max(r.number)), now() FROM revisions r"
                    )
                )

    with ThreadPoolExecutor(3) as pool:
        deciders = [pool.submit(decide) for _ in range(2)]
        pool.submit(configure).result(60)
        stop.set()
        for decider in deciders:
            decider.result(10)
    with store.engine.connect() as connection:
        wrong = connection.execute(
            text(
                "SELECT f.name FROM facts f WHERE f.name LIKE 'seen-%' AND (f.value)::text::int <> (SELECT count(*) "
                "FROM workloads w WHERE (w.inputs ->> 'revision')::int < substr(f.name, 6)::int)"
            )
        ).all()
    assert landed
    assert wrong == []


def _apply(store: Store, name: str) -> int:
    flavor = ConfigObject("Flavor", name, {"nodeLabels": {}})
    return store.apply_configuration([flavor], author="ada", reason="", now=NOW, source="test").number


def test_a_start_is_noted_beside_its_admission_and_in_no_index(store: Store) -> None:
    epoch = lead(store)
    rows = [admitted(row) for row in add(store, epoch, *(workload(f"uid-{number:03}") for number in range(100)))]
    versions = store.commit(epoch, None, NOW, [Change(row=row, ledger=reserved()) for row in rows]).versions
    known = {row.uid: replace(row, version=versions[row.uid]) for row in rows}
    starts = [
        Change(row=replace(row, state=State.RUNNING, admission=replace(row.admission, started_at=NOW)))
        for row in known.values()
        if row.admission is not None
    ]
    with store.engine.begin() as connection:
        commit(connection, epoch, None, NOW, starts, known)
        beside = connection.execute(text("SELECT pg_stat_get_xact_tuples_hot_updated('admissions'::regclass)"))
        assert beside.scalar() == len(starts) == 100
