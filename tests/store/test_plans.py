"""With 100,000 workloads, every statement of the store finds its rows by an index.

`load_workloads` is not here: it reads so large a part that reading some tables whole can be right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from sqlalchemy import event

from queue_manager.store import pipeline
from queue_manager.store.configurations import Chosen
from queue_manager.store.database import conninfo, make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.listing import SORTS, make_cursor
from queue_manager.store.records import Action, Change, FailedTry, OutboxEntry, State, WorkloadFilter
from queue_manager.store.requests import RequestStore
from queue_manager.store.store import Store
from queue_manager.store.usage_over_time import Asked
from tests.store.builders import NOW, admitted, reserved, workload

LIVE, RECENT, ALL = 10_000, 40_000, 150_000

# The last LIVE workloads are live: half of them wait, half of them run. All others have finished: the last RECENT of
# them are among the live ones still, those before in the history of some fourteen months.
ROWS = f"""
    SET session_replication_role = replica;  -- no foreign keys, and the search indexes at the end: much faster
    DROP INDEX workloads_search_idx, workload_history_search_idx;
    SELECT history_keep('2025-10-01Z', '2027-01-01Z', '-infinity', '-infinity');
    CREATE TEMPORARY TABLE n AS SELECT i, 'uid-' || lpad(i::text, 6, '0') AS uid, i > {ALL - LIVE} AS live,
        i > {ALL - LIVE} AND i % 2 = 0 AS runs, i <= {ALL - LIVE - RECENT} AS past,
        timestamptz '2025-10-08Z' + i * interval '4 minutes' AS at FROM generate_series(1, {ALL}) i;
    INSERT INTO leases VALUES ('controller', 'one', 1, now() + interval '1 hour');
    INSERT INTO workload_history (uid, version, kind, namespace, name, created_at, state, queue, priority, "user",
        finished_at, row, pod_groups, pod_sets, admissions)
        SELECT uid, 1, CASE WHEN i % 1000 = 0 THEN 'JobSet' ELSE 'TrainJob' END, 'ns-' || i % 100, 'train-' || md5(uid),
        at, CASE WHEN i % 50 = 0 THEN 'failed' ELSE 'finished' END, 'queue-' || i % 200, i % 7, 'user-' || i % 100,
        at + interval '1 hour', '{{"may_preempt": true, "preemptible": true, "attempt": 1, "local_queue": "default"}}',
        jsonb_build_array(jsonb_build_object('workload_uid', uid, 'index', 0, 'name', 'main', 'policy', 'gang',
        'minimum', NULL, 'topology', NULL, 'disruption', 'single')), '[]', '[]' FROM n WHERE past;
    INSERT INTO workloads (uid, kind, namespace, name, created_at, state, local_queue, queue, priority, may_preempt,
        preemptible, "user", attempt, finished_at, requested, open_attempt)
        SELECT uid, CASE WHEN i % 1000 = 0 THEN 'JobSet' ELSE 'TrainJob' END, 'ns-' || i % 100, 'train-' || md5(uid),
        at, CASE WHEN runs THEN 'running' WHEN live THEN 'waiting' WHEN i % 50 = 0 THEN 'failed' ELSE 'finished' END,
        'default', 'queue-' || i % 200, i % 7, true, true, 'user-' || i % 100, 1, CASE WHEN NOT live THEN at END,
        '{{"gpu": 8}}', CASE WHEN runs THEN 1 END FROM n WHERE NOT past;
    INSERT INTO pod_groups (workload_uid, index, name, policy) SELECT uid, 0, 'main', 'gang' FROM n WHERE NOT past;
    INSERT INTO pod_sets (workload_uid, group_index, index, name, count, reclaimed, first_stage, last_stage, requests)
        SELECT uid, 0, 0, 'node', 1, 0, 0, 0, '{{"gpu": 8}}' FROM n WHERE NOT past;
    INSERT INTO admissions (workload_uid, attempt, queue, admission, admitted_at, ended_at)
        SELECT uid, 1, 'queue-' || i % 200, jsonb_build_object('queue', 'queue-' || i % 200, 'admitted', 1,
        'pod_sets', '[]'::jsonb, 'charge', '[["h100", "nvidia.com/gpu", 8]]'::jsonb), at, CASE WHEN NOT runs THEN at END
        FROM n WHERE (runs OR NOT live) AND NOT past;
    INSERT INTO ledger (workload_uid, namespace, queue, "user", flavor, resource, amount, state, since, until)
        SELECT uid, 'ns-' || i % 100, 'queue-' || i % 200, 'user-' || i % 100, 'h100', 'nvidia.com/gpu', 8, 'reserved',
        at, CASE WHEN NOT runs THEN at END FROM n WHERE runs OR NOT live;
    INSERT INTO explanations SELECT uid, '{{}}', at FROM n WHERE live AND NOT runs;
    INSERT INTO outbox (workload_uid, action, created_at) SELECT uid, 'sync', at FROM n WHERE i % 10 = 0;
    INSERT INTO revisions (number, author, at, touched) SELECT i, CASE WHEN i % 100 = 0 THEN 'ada' ELSE 'x' END, at,
        ARRAY['Queue', 'Queue/queue-' || i % 200] FROM n WHERE i <= 20000;
    INSERT INTO audit (at, who, object) SELECT at, 'ada', 'team/job-' || i FROM n;
    CREATE INDEX workloads_search_idx ON workloads USING gin ((namespace || '/' || name) gin_trgm_ops);
    CREATE INDEX workload_history_search_idx ON workload_history USING gin ((namespace || '/' || name) gin_trgm_ops);
"""


@pytest.fixture(scope="module")
def big(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[Store]:
    """A store with many rows, shared by the tests of this module; they leave it as it is."""
    name = f"big_{os.getpid()}"
    administration = conninfo(postgres_server.url_of("postgres"))
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}")  # type: ignore[call-overload]
    engine = make_engine(postgres_server.url_of(name))
    with psycopg.connect(conninfo(postgres_server.url_of(name)), autocommit=True) as connection:
        connection.execute(ROWS)  # type: ignore[call-overload]
        connection.execute("VACUUM ANALYZE")
    yield Store(engine)
    engine.dispose()
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def plans(store: Store, call: Callable[[Store], object], how: str = "") -> list[tuple[str, str]]:
    """(statement, plan) of everything that a method sends."""
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        sent.append((statement, parameters))

    def note_sent(driver: psycopg.Connection[Any], statement: str, values: Any) -> psycopg.Cursor[Any]:
        sent.append((statement, values))
        return send(driver, statement, values)

    send = pipeline.send_to
    event.listen(store.engine, "before_cursor_execute", note)
    try:
        with mock.patch.object(pipeline, "send_to", note_sent):
            call(store)
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
    with store.engine.connect() as connection:
        return [
            (
                statement,
                "\n".join(
                    row[0] for row in connection.exec_driver_sql(f"EXPLAIN ({how} COSTS) {statement}", parameters)
                ),
            )
            for statement, parameters in sent
        ]


def scans(plan: str) -> set[str]:
    """Tables that are read whole, but for small ones."""
    small = {"leases", "config_objects", "facts", "instructions", "workload_history_rest"}
    return {table for table in re.findall(r"Seq Scan on (\w+)", plan) if table not in small and not _is_small(table)}


def _is_small(table: str) -> bool:
    """Whether it is a month that nothing ended in; how many of these there are depends on today's date."""
    name, month = re.fullmatch(r"(\w+?)(?:_(\d{4}_\d\d))?", table).groups("")  # type: ignore[union-attr]
    return month >= {"workload_history": "2026_08", "ledger": "2026_11"}.get(name, "never")


LAST = f"uid-{ALL:06}"
PLACES = {
    "created": [NOW - timedelta(days=100), "uid-050000"],
    "finished": [NOW - timedelta(days=100), "uid-050000"],
    "priority": [3, NOW - timedelta(days=100), "uid-050000"],
    "name": ["ns-5", "train-7", "uid-050000"],
}
FILTERS = (
    WorkloadFilter(),
    WorkloadFilter(queues=("queue-7",)),
    WorkloadFilter(queues=("queue-7", "queue-8", "queue-9")),
    WorkloadFilter(queues=tuple(f"none-{number}" for number in range(300))),
    WorkloadFilter(states=(State.WAITING,)),
    WorkloadFilter(states=(State.WAITING, State.RUNNING)),
    WorkloadFilter(states=(State.FINISHED,)),
    WorkloadFilter(states=(State.FAILED,)),
    WorkloadFilter(states=(State.FINISHED, State.FAILED)),
    WorkloadFilter(states=(State.HELD,)),
    WorkloadFilter(user="user-3"),
    WorkloadFilter(namespace="ns-3"),
    WorkloadFilter(kind="JobSet"),
    WorkloadFilter(kind="none"),
    WorkloadFilter(text="abc4"),
    WorkloadFilter(queues=("queue-7",), states=(State.WAITING,), user="user-7", text="a"),
)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get_workloads([LAST, "uid-000017"]),
        lambda store: store.get_workloads([f"uid-{i:06}" for i in range(100, ALL, 1000)]),
        lambda store: store.find_workloads("ns-1", "train-x"),
        lambda store: store.explanation(LAST),
        lambda store: store.history(LAST),
        lambda store: store.history("uid-000017"),
        lambda store: store.waiting_requests(),
        lambda store: store.queue_counts(),
        lambda store: store.move_to_history(NOW - timedelta(days=3000), 100),
        lambda store: store.outbox_age(NOW),
        lambda store: store.outbox_done(1, [-1, -2], NOW),
        lambda store: store.outbox_failed(1, [FailedTry(-1, "", NOW)], NOW),
        lambda store: store.revisions(),
        lambda store: store.revisions(before=500),
        lambda store: store.audit_entries(),
        lambda store: store.audit_entries(before=500, object="team/job-7"),
    ],
)
def test_reads_go_by_an_index(big: Store, call: Callable[[Store], object]) -> None:
    for statement, plan in plans(big, call):
        assert scans(plan) == set(), f"{statement}\n{plan}"


HOURS = [datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(25)]
REVISIONS = (
    Chosen(),
    Chosen(author="ada"),
    Chosen(author="nobody"),
    Chosen(since=HOURS[0], until=HOURS[-1]),
    Chosen(until=HOURS[0]),
    Chosen(touched=("Queue/queue-7",)),
    Chosen("ada", HOURS[0], HOURS[-1], ("Queue", "Queue/none")),
)


@pytest.mark.parametrize("chosen", REVISIONS)
@pytest.mark.parametrize("before", [None, 500])
def test_revisions_go_by_an_index(big: Store, chosen: Chosen, before: int | None) -> None:
    for statement, plan in plans(big, lambda store: store.revisions(100, before, chosen)):
        assert scans(plan) == set(), f"{statement}\n{plan}"


def test_changes_of_quotas_go_by_an_index(big: Store) -> None:
    ((statement, plan),) = plans(big, lambda store: RequestStore(store.engine).quota_changes(HOURS[0], 20_000, 10))
    assert scans(plan) == set(), f"{statement}\n{plan}"


def test_usage_of_a_day_reads_no_month_whole_and_none_that_ended_before(big: Store) -> None:
    asked = Asked(HOURS, ("queue", "resource"), {"user": "user-3"})
    _, (statement, plan) = plans(big, lambda store: RequestStore(store.engine).usage_steps(asked, 10_000))
    assert scans(plan) == set(), f"{statement}\n{plan}"
    read = set(re.findall(r"on (ledger_\w+?) ", plan))
    assert {"ledger_2026_03", "ledger_open"} <= read
    assert not read & {"ledger_2025_12", "ledger_2026_01", "ledger_2026_02"}


def test_usage_reads_open_intervals_alone(big: Store) -> None:
    (_, plan), *_ = plans(big, lambda store: store.usage())
    assert set(re.findall(r"Scan (?:using \w+ )?on (\w+)", plan)) == {"ledger_open"}, plan


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("wanted", FILTERS)
def test_every_list_goes_by_an_index(big: Store, wanted: WorkloadFilter, sort: str) -> None:
    for place in (None, make_cursor(sort, PLACES[sort.removeprefix("-")])):
        for statement, plan in plans(big, lambda store, place=place: store.list_workloads(wanted, place, 100, sort)):
            assert scans(plan) == set(), f"{statement}\n{plan}"


ORDERED = (
    *((sort, WorkloadFilter()) for sort in SORTS),
    ("-created", WorkloadFilter(states=(State.FINISHED,))),
    ("created", WorkloadFilter(queues=("queue-7",))),
    ("-created", WorkloadFilter(queues=("queue-7", "queue-8", "queue-9"))),
    ("-created", WorkloadFilter(namespace="ns-3")),
    ("-created", WorkloadFilter(user="user-3")),
    ("-created", WorkloadFilter(kind="JobSet")),
)


@pytest.mark.parametrize(("sort", "wanted"), ORDERED)
def test_a_page_reads_no_more_rows_than_it_may_show(big: Store, sort: str, wanted: WorkloadFilter) -> None:
    """What is sorted is at most a page of each queue; nothing is read that an index does not give in order."""
    ((_, plan), *_) = plans(big, lambda store: store.list_workloads(wanted, None, 100, sort), "ANALYZE, TIMING OFF,")
    read = max(int(rows) for rows in re.findall(r"Scan .*actual rows=(\d+)", plan))
    assert read <= 101, plan


ONE_STATE = (
    WorkloadFilter(namespace="ns-0"),  # all of it failed
    WorkloadFilter(namespace="ns-3"),  # nothing of it did
    WorkloadFilter(queues=("queue-50",)),
    WorkloadFilter(user="user-50"),
)


@pytest.mark.parametrize("wanted", ONE_STATE)
def test_a_page_of_one_state_looks_at_no_rows_of_others(big: Store, wanted: WorkloadFilter) -> None:
    failed = replace(wanted, states=(State.FAILED,))
    page = lambda store: store.page_of_workloads(failed, "-created", None, 100)  # noqa: E731
    ((_, plan),) = plans(big, page, "ANALYZE, TIMING OFF,")
    _, _, ended = plan.partition("workload_history_2025_11_")
    assert "state = 'failed'" in ended
    assert "BitmapAnd" not in ended, plan
    assert "Rows Removed" not in ended, plan


def test_json_is_made_of_the_rows_of_a_page_alone(big: Store) -> None:
    newest = lambda store: store.page_of_workloads(WorkloadFilter(), "-created", None, 100)  # noqa: E731
    ((_, plan),) = plans(big, newest, "VERBOSE,")
    last_step, before = plan.split("Limit", 1)
    as_text = re.compile(r'(row|pod_groups|pod_sets)"?\)::text')
    assert len(as_text.findall(last_step)) == 3, plan
    assert not as_text.search(before), plan


def test_a_commit_goes_by_an_index(big: Store) -> None:
    rows = big.get_workloads([f"uid-{i:06}" for i in range(ALL - 199, ALL)])
    waiting = [row for row in rows if row.state is State.WAITING]
    running = [row for row in rows if row.state is State.RUNNING]
    sync = OutboxEntry(uid="uid-000001", action=Action.SYNC)
    changes = [
        *(Change(row=admitted(row), ledger=reserved(), outbox=(sync,), request_changed=True) for row in waiting),
        *(Change(row=row, ledger=reserved(9)) for row in running),
        Change(row=workload("uid-new"), explanation={}, reads=((LAST, 1),)),
    ]

    def commit_and_forget(store: Store) -> None:
        class Undo(Exception):
            pass

        def undo(connection: Any) -> None:
            raise Undo

        event.listen(store.engine, "commit", undo)
        try:
            with pytest.raises(Undo):
                store.commit(1, None, NOW, changes)
        finally:
            event.remove(store.engine, "commit", undo)

    seen = plans(big, commit_and_forget)
    assert len(seen) >= 12
    for statement, plan in seen:
        assert scans(plan) == set(), f"{statement}\n{plan}"
    assert big.get_workloads([waiting[0].uid]) == [replace(waiting[0])]
