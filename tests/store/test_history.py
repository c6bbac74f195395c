"""The past in partitions: what is moved there reads, lists and comes back to life as before; months are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from queue_manager.engine.workload import PodGroup, PodSet, TopologyMode, TopologyRequest
from queue_manager.store import listing, migrate
from queue_manager.store.database import make_engine
from queue_manager.store.listing import SORTS, BadCursor
from queue_manager.store.records import Change, Check, CheckState, State, WorkloadFilter, WorkloadRow
from queue_manager.store.store import Store
from tests.store.builders import NOW, add, admit, lead, workload

HOUR = timedelta(hours=1)
LATER = NOW + timedelta(days=1)
GROUPS = (
    PodGroup("init", (PodSet("a", 1, {"cpu": 1}), PodSet("b", 2, {"cpu": 2}, reclaimed=1))),
    PodGroup("main", (PodSet("c", 3, {"cpu": 3}, node_selector={"zone": "x"}),), minimum=2),
)


def end(store: Store, row: WorkloadRow, *, at: datetime = NOW, state: State = State.FINISHED) -> WorkloadRow:
    """Lets a workload end."""
    epoch = lead(store)
    if row.version == 0:
        (row,) = add(store, epoch, row)
    row = admit(store, epoch, row)
    done = replace(row, state=state, admission=None, finished_at=at, message="done")
    committed = store.commit(epoch, None, at, [Change(row=done, ledger=())])
    return replace(done, version=committed.versions[row.uid])


def everything(store: Store, wanted: WorkloadFilter, sort: str = "-created", limit: int = 3) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        rows, cursor = store.list_workloads(wanted, cursor, limit, sort)
        seen += [row.uid for row in rows]
        if cursor is None:
            return seen


def test_what_moved_reads_as_before(store: Store) -> None:
    row = workload(
        pod_groups=GROUPS,
        topology=TopologyRequest(TopologyMode.REQUIRED, "rack"),
        groups=("a", "b"),
        inputs={"job": "3"},
        max_run_time=5,
        requeued_at=NOW,
        checks=(Check(name="data", state=CheckState.READY, at=NOW, who="ada"),),
    )
    row = end(store, row)
    before = (
        store.get_workloads(["uid-1"]),
        store.find_workloads(row.namespace, row.name),
        store.admissions("uid-1"),
        store.history("uid-1"),
    )
    assert store.move_to_history(LATER, 10) == 1
    assert store.load_workloads(ended=True) == []
    assert store.check(LATER) == []
    assert before[0] == [row]
    assert before[2] != ()
    assert before == (
        store.get_workloads(["uid-1"]),
        store.find_workloads(row.namespace, row.name),
        store.admissions("uid-1"),
        store.history("uid-1"),
    )


def test_only_what_ended_before_moves_oldest_first(store: Store) -> None:
    epoch = lead(store)
    add(store, epoch, workload("waiting"))
    for number in range(4):
        end(store, workload(f"u{number}", name=f"j{number}"), at=NOW + number * HOUR)
    assert store.move_to_history(NOW + 3 * HOUR, 2) == 2
    assert [row.uid for row in store.load_workloads(ended=True)] == ["u2", "u3", "waiting"]
    assert store.move_to_history(NOW + 3 * HOUR, 2) == 1
    assert store.move_to_history(NOW + 3 * HOUR, 2) == 0
    assert [row.uid for row in store.load_workloads(ended=True)] == ["u3", "waiting"]


def test_a_row_that_somebody_works_on_is_left_for_the_next_time(store: Store) -> None:
    end(store, workload())
    with store.engine.begin() as connection:
        connection.execute(text("SELECT uid FROM workloads FOR UPDATE"))
        assert store.move_to_history(LATER, 10) == 0
    assert store.move_to_history(LATER, 10) == 1


def test_a_job_that_comes_back_to_life_is_brought_back_whole(store: Store) -> None:
    row = end(store, workload(pod_groups=GROUPS))
    store.move_to_history(LATER, 10)
    epoch = lead(store)
    # Who does not know it yet loses, as with a row that is alive.
    assert store.commit(epoch, None, LATER, [Change(row=workload())]).lost == {"uid-1"}
    assert store.commit(epoch, None, LATER, [Change(row=replace(row, version=row.version - 1))]).lost == {"uid-1"}
    again = replace(row, state=State.WAITING, finished_at=None, message="")
    committed = store.commit(epoch, None, LATER, [Change(row=again, ledger=(), explanation={})])
    again = replace(again, version=row.version + 1)
    assert committed.versions == {"uid-1": again.version}
    assert store.load_workloads() == [again]
    assert len(store.admissions("uid-1")) == 1
    assert everything(store, WorkloadFilter()) == ["uid-1"]
    assert store.check(LATER) == []


def test_a_change_that_reads_what_has_moved_is_judged_by_its_version(store: Store) -> None:
    row = end(store, workload())
    store.move_to_history(LATER, 10)
    epoch = lead(store)
    first, second = workload("b"), workload("c")
    reads = ((row.uid, row.version),)
    assert not store.commit(epoch, None, LATER, [Change(row=first, reads=reads)]).lost
    assert store.commit(epoch, None, LATER, [Change(row=second, reads=((row.uid, 1),))]).lost == {"c"}


@pytest.fixture
def mixed(store: Store) -> Store:
    """Twenty workloads: live, ended, and moved, with equal times and priorities among them, in several months."""
    epoch = lead(store)
    for number in range(20):
        row = workload(
            f"u{number:02}",
            name=f"job-{number * 7 % 20:02}",
            namespace="nlp" if number % 3 else "vision",
            queue=f"queue-{number % 4}",
            user="ada" if number % 2 else "grace",
            kind="Job" if number % 5 else "JobSet",
            priority=number % 3,
            created_at=NOW + HOUR * (number // 3),
        )
        if number % 4 == 3:
            add(store, epoch, row)
        else:
            ended = State.FAILED if number % 5 == 1 else State.FINISHED
            end(store, row, at=NOW + timedelta(days=20 * (number % 5)), state=ended)
    assert store.move_to_history(NOW + timedelta(days=50), 100) == 9
    return store


FILTERS = (
    WorkloadFilter(),
    WorkloadFilter(states=(State.WAITING,)),
    WorkloadFilter(states=(State.FINISHED,)),
    WorkloadFilter(states=(State.FINISHED, State.FAILED)),
    WorkloadFilter(states=(State.WAITING, State.FAILED)),
    WorkloadFilter(queues=("queue-1",)),
    WorkloadFilter(queues=("queue-0", "queue-3")),
    WorkloadFilter(user="ada", namespace="nlp"),
    WorkloadFilter(kind="JobSet"),
    WorkloadFilter(text="job-1"),
)


def key(row: WorkloadRow, sort: str) -> Sequence[object]:
    created = (row.created_at, row.uid)
    return {
        "created": created,
        "finished": (row.finished_at, row.uid),
        "priority": (row.priority, *created),
        "name": (row.namespace, row.name, row.uid),
    }[sort.removeprefix("-")]


def chosen(row: WorkloadRow, wanted: WorkloadFilter, sort: str) -> bool:
    return (
        (not wanted.states or row.state in wanted.states)
        and (not wanted.queues or row.queue in wanted.queues)
        and wanted.user in ("", row.user)
        and wanted.kind in ("", row.kind)
        and wanted.namespace in ("", row.namespace)
        and wanted.text in f"{row.namespace}/{row.name}"
        and ("finished" not in sort or row.finished_at is not None)
    )


@pytest.mark.parametrize("sort", SORTS)
def test_one_cursor_goes_through_live_and_ended_ones_in_order(mixed: Store, sort: str) -> None:
    rows = mixed.get_workloads(f"u{number:02}" for number in range(20))
    assert len(rows) == 20
    for wanted in FILTERS:
        expected = sorted((row for row in rows if chosen(row, wanted, sort)), key=lambda row: key(row, sort))  # type: ignore[arg-type, return-value]
        if sort.startswith("-"):
            expected.reverse()
        assert everything(mixed, wanted, sort) == [row.uid for row in expected], wanted


def test_pages_are_stable_while_workloads_come_end_and_move(mixed: Store) -> None:
    epoch = lead(mixed)
    before = everything(mixed, WorkloadFilter())
    seen: list[str] = []
    cursor = None
    while True:
        rows, cursor = mixed.list_workloads(WorkloadFilter(), cursor, 4)
        seen += [row.uid for row in rows]
        add(mixed, epoch, workload(f"new{len(seen)}", created_at=NOW + timedelta(days=9)))
        live = [row for row in mixed.load_workloads() if row.uid.startswith("u")]
        if live:
            end(mixed, live[0], at=NOW)
        mixed.move_to_history(NOW + timedelta(days=90), 2)
        if cursor is None:
            break
    assert seen == before


def test_a_cursor_of_another_order_is_refused(mixed: Store) -> None:
    _, cursor = mixed.list_workloads(WorkloadFilter(), None, 2, "name")
    for sort in ("-name", "created", "priority"):
        with pytest.raises(BadCursor):
            mixed.list_workloads(WorkloadFilter(), cursor, 2, sort)


def test_months_are_made_ahead_and_dropped_when_all_in_them_is_too_old(mixed: Store) -> None:
    def months(parent: str) -> list[str]:
        query = f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{parent}'::regclass ORDER BY 1"
        with mixed.engine.connect() as connection:
            return [name.removeprefix(f"{parent}_") for name in connection.execute(text(query)).scalars()]

    def count(table: str) -> int:
        with mixed.engine.connect() as connection:
            return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())

    now, never = NOW + timedelta(days=500), datetime(1, 1, 2, tzinfo=UTC)
    assert mixed.keep_history(NOW, never, never).dropped == ()
    assert count("workload_history_rest") == 0
    assert mixed.move_to_history(now, 100) == 6
    rows = mixed.get_workloads(f"u{number:02}" for number in range(20))
    kept = mixed.keep_history(now, never, never)
    assert kept.dropped == ()
    made = {f"{at:%Y_%m}" for at in (now, now + timedelta(days=31), now + timedelta(days=62))}
    assert made <= set(months("workload_history"))
    assert made <= set(months("ledger"))
    ends = {f"{row.finished_at:%Y_%m}" for row in rows if row.finished_at is not None}
    assert ends <= set(months("workload_history"))
    # What no month was made for yet is where it belongs now; nothing is lost, and what closes the ledger goes on.
    assert count("workload_history_rest") == 0
    assert mixed.get_workloads(f"u{number:02}" for number in range(20)) == rows
    assert count("ledger") == count("ledger_open") + sum(count(f"ledger_{m}") for m in months("ledger") if m != "open")
    assert mixed.check(now) == []
    intervals = count("ledger")
    limit = NOW + timedelta(days=45)
    assert mixed.keep_history(now, limit, never).dropped
    left = mixed.get_workloads(f"u{number:02}" for number in range(20))
    month = datetime(limit.year, limit.month, 1, tzinfo=UTC)
    assert left == [row for row in rows if row.finished_at is None or row.finished_at >= month]
    assert left != rows
    assert count("ledger") == intervals
    mixed.keep_history(now, limit, now)
    assert count("ledger") == count("ledger_open") == 0  # all that ended, ended before this month
    assert mixed.keep_history(now, limit, now).dropped == ()
    assert mixed.check(now) == []


def test_closed_intervals_can_not_be_deleted_from_a_month_either(store: Store) -> None:
    store.keep_history(NOW, NOW, NOW)  # the month of NOW, whichever today's is
    end(store, workload())
    with store.engine.begin() as connection:
        month = connection.execute(text("SELECT tableoid::regclass::text FROM ledger")).scalar_one()
    assert month.startswith("ledger_2")
    for statement in (f"DELETE FROM {month}", f"TRUNCATE {month}", "DELETE FROM ledger_open", "TRUNCATE ledger_open"):
        with store.engine.begin() as connection, pytest.raises(DBAPIError, match="is append-only"):
            connection.execute(text(statement))


def test_functions_that_drop_history_are_not_for_everybody(store: Store) -> None:
    with store.engine.connect() as connection:
        found = connection.execute(
            text("SELECT proname, proacl::text FROM pg_proc WHERE proname IN ('history_keep', 'history_month')")
        ).all()
    assert len(found) == 2
    for name, rights in found:
        assert "{=" not in rights, name
        assert ",=" not in rights, name


def test_the_migration_keeps_all_data_forward_and_back(mixed: Store, database_url: str) -> None:
    everyone = [f"u{number:02}" for number in range(20)]
    before = [(row, mixed.history(row.uid)) for row in mixed.get_workloads(everyone)]
    usage = mixed.usage()
    migrate.downgrade(mixed.engine, "0008")
    with mixed.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM workloads")).scalar() == 20
        assert connection.execute(text("SELECT count(*) FROM admissions")).scalar() == 15
    migrate.upgrade(mixed.engine)
    engine = make_engine(database_url)
    again = Store(engine)
    assert [(row, again.history(row.uid)) for row in again.get_workloads(everyone)] == before
    assert again.usage() == usage
    assert again.check(NOW + timedelta(days=200)) == []
    row = admit(again, lead(again), add(again, lead(again), workload("after"))[0])
    assert len(again.history(row.uid).intervals) == 1
    engine.dispose()


@pytest.mark.parametrize("window", [1, 6, 2000])
def test_a_text_is_found_whether_many_names_have_it_or_few(
    mixed: Store, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(listing, "WINDOW", window)
    rows = mixed.get_workloads(f"u{number:02}" for number in range(20))
    for wanted in (
        WorkloadFilter(text="job-"),
        WorkloadFilter(text="b-07"),
        WorkloadFilter(text="VISION/"),
        WorkloadFilter(text="job-1", queues=("queue-0", "queue-1", "queue-3")),
        WorkloadFilter(text="nothing"),
        WorkloadFilter(text="j_b"),
    ):
        lower = replace(wanted, text=wanted.text.lower())
        expected = sorted((row for row in rows if chosen(row, lower, "-created")), key=lambda r: (r.created_at, r.uid))
        assert everything(mixed, wanted) == [row.uid for row in reversed(expected)], wanted


def test_of_one_name_those_alive_come_alone_and_ended_ones_where_there_are_no_others(store: Store) -> None:
    end(store, workload("old", name="job"))
    store.move_to_history(LATER, 10)
    end(store, workload("recent", name="job"))
    find = lambda **how: [row.uid for row in store.find_workloads("team", "job", **how)]  # noqa: E731
    assert sorted(find(alive=True)) == ["old", "recent"]
    add(store, lead(store), workload("new", name="job"), workload("other", name="job", kind="JobSet"))
    assert sorted(find(alive=True)) == ["new", "other"]
    assert find(alive=True, kind="JobSet") == ["other"]
    assert sorted(find()) == ["new", "old", "other", "recent"]
    assert (store.waiting_in("research"), store.waiting_in("elsewhere")) == (2, 0)
