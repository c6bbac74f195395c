"""Instructions: noted with their audit line, carried out with the commit that does it, and not without it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from queue_manager.store import migrate
from queue_manager.store.database import make_engine
from queue_manager.store.records import (
    Action,
    Change,
    Check,
    CheckState,
    Instruction,
    OutboxEntry,
    Relabel,
    StaleEpoch,
    State,
    Wish,
)
from queue_manager.store.store import Store
from tests.store.builders import NOW, add, admit, admitted, lead, reserved, workload


def ask(store: Store, uid: str = "uid-1", wish: Wish = Wish.HOLD, **arguments: object) -> int | None:
    return store.instruct(uid, wish, arguments, who="eve", reason="because", source="test", now=NOW)


def test_an_instruction_is_noted_with_its_audit_line(store: Store) -> None:
    add(store, lead(store), workload())
    id_ = ask(store, wish=Wish.CHECK, check="dataset", state="Ready")
    assert id_ is not None
    assert store.pending_instructions() == [
        Instruction(
            id=id_,
            uid="uid-1",
            wish=Wish.CHECK,
            arguments={"check": "dataset", "state": "Ready"},
            who="eve",
            reason="because",
            at=NOW,
        )
    ]
    assert store.pending_instructions("uid-1") == store.pending_instructions()
    assert store.pending_instructions("other") == []
    [line] = store.audit_entries(object="workload/team/job-uid-1")
    assert (line.who, line.action, line.reason, line.source) == ("eve", "check", "because", "test")
    before = {"state": "waiting", "kind": "TrainJob", "uid": "uid-1", "queue": "research", "priorityClass": ""}
    assert line.before == before
    assert line.after == {"check": "dataset", "state": "Ready"}


def test_nothing_is_noted_of_a_workload_that_is_not_there(store: Store) -> None:
    assert ask(store, "nobody") is None
    assert store.audit_entries() == []


def test_a_commit_takes_away_what_it_carries_out_and_a_lost_one_does_not(store: Store) -> None:
    epoch = lead(store)
    [row] = add(store, epoch, workload())
    id_ = ask(store)
    assert id_ is not None
    held = Change(row=replace(row, state=State.HELD), instructions=(id_,))
    lost = replace(held, row=replace(held.row, version=99))
    assert store.commit(epoch, None, NOW, [lost]).lost == {"uid-1"}
    assert store.instruction_is_pending(id_)
    assert not store.commit(epoch, None, NOW, [held]).lost
    assert not store.instruction_is_pending(id_)
    assert store.get_workloads(["uid-1"])[0].state is State.HELD


def test_only_the_leader_drops_instructions(store: Store) -> None:
    epoch = lead(store)
    add(store, epoch, workload())
    id_ = ask(store)
    assert id_ is not None
    with pytest.raises(StaleEpoch):
        store.drop_instructions(epoch - 1, [id_])
    assert store.instruction_is_pending(id_)
    store.drop_instructions(epoch, [id_, 12345])
    assert store.pending_instructions() == []


def test_who_ended_stays_until_its_instructions_are_done(store: Store) -> None:
    epoch = lead(store)
    [row] = add(store, epoch, workload())
    store.commit(epoch, None, NOW, [Change(row=replace(row, state=State.FINISHED))])
    id_ = ask(store)
    assert store.move_to_history(NOW + timedelta(days=1), 10) == 0
    assert id_ is not None
    store.drop_instructions(epoch, [id_])
    assert store.move_to_history(NOW + timedelta(days=1), 10) == 1


def test_what_a_workload_lives_through_reads_back_equal(store: Store) -> None:
    epoch = lead(store)
    check = Check(
        name="dataset", state=CheckState.RETRY, message="later", at=NOW, who="eve", retries=3, requeue_after=60
    )
    row = workload(
        requeues=2, requeued_at=NOW, max_run_time=5_400_000_000, past_run_time=7, checks=(check,), not_before=NOW
    )
    [stored] = add(store, epoch, row)
    assert stored == replace(row, version=1)
    charged = admitted(stored, state=State.RUNNING)
    assert charged.admission is not None
    admission = replace(
        charged.admission,
        admission=replace(charged.admission.admission, checks=("dataset", "licence")),
        checked_at=NOW,
        ready_at=NOW + timedelta(seconds=1),
        unready_at=NOW + timedelta(seconds=2),
        cause="Deactivated",
        underlying="RequeuingLimitExceeded",
    )
    store.commit(epoch, None, NOW, [Change(row=replace(charged, admission=admission), ledger=reserved())])
    assert store.get_workloads(["uid-1"])[0].admission == admission
    assert store.history("uid-1").admissions == (admission,)


def test_the_lifecycle_columns_come_and_go_on_data(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    head = migrate.upgrade(engine)
    store = Store(engine)
    epoch = lead(store)
    [row] = add(store, epoch, workload(requeues=2, past_run_time=5))
    running = admit(store, epoch, row)
    ask(store)
    migrate.downgrade(engine, "0001")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT state, attempt FROM workloads")).all() == [("starting", 1)]
        assert connection.execute(text("SELECT attempt FROM admissions WHERE ended_at IS NULL")).all() == [(1,)]
    assert migrate.upgrade(engine) == head
    assert store.get_workloads(["uid-1"]) == [replace(running, requeues=0, past_run_time=0)]
    assert store.pending_instructions() == []
    assert store.check(NOW) == []
    engine.dispose()


def test_what_actions_need_comes_and_goes_on_data(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    head = migrate.upgrade(engine)
    store = Store(engine)
    epoch = lead(store)
    relabels = (Relabel("queue-manager.io/queue", "", "other"),)
    [row] = add(store, epoch, workload(relabels=relabels))
    assert store.get_workloads(["uid-1"])[0].relabels == relabels
    for wish in (Wish.HOLD, Wish.MOVE, Wish.REPRIORITISE, Wish.EVICT):
        ask(store, wish=wish)
    outbox = tuple(OutboxEntry(uid="uid-1", action=action) for action in (Action.RELABEL, Action.SYNC))
    store.commit(epoch, None, NOW, [Change(row=row, outbox=outbox)])
    migrate.downgrade(engine, "0006")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT wish FROM instructions")).scalars().all() == ["hold"]
        assert connection.execute(text("SELECT action FROM outbox")).scalars().all() == ["sync"]
    assert migrate.upgrade(engine) == head
    assert store.get_workloads(["uid-1"])[0].relabels == ()
    assert store.check(NOW) == []
    engine.dispose()


def test_a_refusal_is_noted_with_the_commit_that_is_done_with_it(store: Store) -> None:
    epoch = lead(store)
    [row] = add(store, epoch, workload())
    first, second = ask(store, wish=Wish.MOVE, queue="a"), ask(store, wish=Wish.MOVE, queue="b")
    assert first is not None
    assert second is not None
    refused = Change(row=row, instructions=(first,), refusals=((first, "queue a is full"),))
    lost = replace(refused, row=replace(row, version=99))
    assert store.commit(epoch, None, NOW, [lost]).lost == {"uid-1"}
    assert store.refusal_of("workload/team/job-uid-1", first) == ""
    store.commit(epoch, None, NOW, [refused])
    assert store.refusal_of("workload/team/job-uid-1", first) == "queue a is full"
    assert store.refusal_of("workload/team/job-uid-1", second) == ""
    assert [each.id for each in store.pending_instructions()] == [second]
