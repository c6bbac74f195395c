"""Usage over time over REST: sums by group and bucket, quotas, and what is asked wrongly.

What is expected is summed here from the story itself, second by second where it matters, not from the ledger.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.engine.configuration import Cell
from queue_manager.engine.decision import Admission
from queue_manager.store.database import conninfo, make_engine
from queue_manager.store.embedded import EmbeddedPostgres
from queue_manager.store.records import AdmissionRow, Change, LedgerEntry, LedgerState, State, WorkloadRow
from queue_manager.store.store import Store
from tests.api.callers import bearer, server, token
from tests.api.world import GPU, SMALL, document, job, queue
from tests.store.builders import NOW, lead

URL = "/api/v1/usage"
DAY = 86_400
NOV = datetime(2026, 11, 1, tzinfo=UTC)


def at(day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0) -> datetime:
    """A time of November; days below 1 are those of October."""
    return NOV + timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micro)


class Story:
    """Workloads that are admitted, resized, moved and ended at given times, as the leader would commit it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.epoch = lead(store)

    def commit(self, when: datetime, row: WorkloadRow, gpus: int | None, state: LedgerState) -> WorkloadRow:
        entries = None if gpus is None else (LedgerEntry(Cell("h100", GPU), gpus, state),) if gpus else ()
        change = Change(row=row, ledger=entries, explanation={})
        assert not self.store.commit(self.epoch, None, when, [change]).lost
        return self.store.get_workloads([row.uid])[0]

    def admit(self, when: datetime, row: WorkloadRow, gpus: int) -> WorkloadRow:
        admission = Admission(row.uid, row.queue, (), {Cell("h100", GPU): gpus}, 0)
        opened = AdmissionRow(attempt=row.attempt + 1, admission=admission, admitted_at=when)
        admitted = replace(row, state=State.RUNNING, attempt=row.attempt + 1, admission=opened)
        return self.commit(when, admitted, gpus, LedgerState.RESERVED)

    def resize(self, when: datetime, row: WorkloadRow, gpus: int) -> WorkloadRow:
        return self.commit(when, row, gpus, LedgerState.RESERVED)

    def move(self, when: datetime, row: WorkloadRow, to: str, gpus: int) -> WorkloadRow:
        assert row.admission is not None
        moved = replace(row.admission, admission=replace(row.admission.admission, queue=to))
        return self.commit(when, replace(row, queue=to, admission=moved), gpus, LedgerState.RESERVED)

    def reclassify(self, when: datetime, row: WorkloadRow, name: str) -> WorkloadRow:
        return self.commit(when, replace(row, priority_class=name), None, LedgerState.RESERVED)

    def drain(self, when: datetime, row: WorkloadRow, gpus: int) -> WorkloadRow:
        return self.commit(
            when, replace(row, state=State.DRAINING, after_drain=State.WAITING), gpus, LedgerState.DRAINING
        )

    def end(self, when: datetime, row: WorkloadRow, state: State = State.FINISHED) -> WorkloadRow:
        ended = replace(row, state=state, admission=None, after_drain=None)
        return self.commit(when, ended, 0, LedgerState.RESERVED)


@pytest.fixture(scope="module")
def database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[Story]:
    """The story in a database that the tests of this module share; they only read."""
    name = f"usage_{os.getpid()}"
    administration = conninfo(postgres_server.url_of("postgres"))
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}")  # type: ignore[call-overload]
    engine = make_engine(postgres_server.url_of(name))
    story = Story(Store(engine))
    tell(story)
    yield story
    engine.dispose()
    with psycopg.connect(administration, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def apply(
    store: Store, when: datetime, *documents: dict[str, Any], delete: Sequence[tuple[str, str, str]] = ()
) -> None:
    """Changes the configuration."""
    objects = stored_objects(parse_objects(documents).objects)
    store.apply_configuration(objects, delete=delete, author="ada", reason="", now=when, source="test")


def tell(story: Story) -> None:
    """November until NOW (the 29th at noon), beginning in October:

    - nlp, ada: `early` 8 GPUs from October 30th noon to November 2nd 06:00, then draining for half an hour
    - nlp, ada: `resized` 8 GPUs from the 3rd, 24 from the 4th 12:00, 4 from the 5th, ended on the 6th 00:00:00.5
    - vision, bob: `restarted` 16 GPUs on the 10th to 18:00, draining to 19:00, again from the 12th to the 13th
    - ranking, eve: `moved` 8 GPUs from the 14th, in nlp from the 15th, class high from that noon, ended on the 16th
    - vision, bob: `lasting` 32 GPUs from the 28th, not ended

    There is quota from October 20th on; nlp has 64, 128 from November 11th, 16 from the 21st; a queue `gone` 8 in
    November until the 26th.
    """
    apply(story.store, at(-11), *SMALL)
    apply(story.store, at(1), queue("gone", "research", 8))
    apply(story.store, at(11), queue("nlp", "research", 128))
    apply(story.store, at(21), queue("nlp", "research", 16))
    apply(story.store, at(26), delete=[("Queue", "", "gone")])
    early = story.admit(at(-1, 12), job("early", "nlp", 1, uid="u1"), 8)
    early = story.drain(at(2, 6), early, 8)
    story.end(at(2, 6, 30), early)
    resized = story.admit(at(3), job("resized", "nlp", 1, uid="u2"), 8)
    resized = story.resize(at(4, 12), resized, 24)
    resized = story.resize(at(5), resized, 4)
    story.end(at(6, 0, 0, 0, 500_000), resized)
    again = story.admit(at(10), job("restarted", "vision", 2, uid="u3", user="bob", kind="JobSet"), 16)
    again = story.drain(at(10, 18), again, 16)
    again = story.end(at(10, 19), again, State.WAITING)
    again = story.admit(at(12), again, 16)
    story.end(at(13), again)
    moved = story.admit(at(14), job("moved", "ranking", 1, uid="u4", user="eve"), 8)
    moved = story.move(at(15), moved, "nlp", 8)
    moved = story.reclassify(at(15, 12), moved, "high")
    story.end(at(16), moved)
    story.admit(at(28), job("lasting", "vision", 4, uid="u5", user="bob"), 32)
    return story


@pytest.fixture
def story(database: Story) -> Story:
    """For tests that only read."""
    return database


@pytest.fixture
def client(database: Story) -> Iterator[TestClient]:
    """A server over it."""
    app = create_app(database.store, now=lambda: NOW, registry=CollectorRegistry())
    with TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False) as client:
        yield client


EARLY_OCTOBER = 8 * (36 * 3600)
EARLY = 8 * (30 * 3600 + 1800)
RESIZED = 8 * 36 * 3600 + 24 * 12 * 3600 + 4 * DAY + 2  # 4 GPUs for half a second are two GPU-seconds
RESTARTED = 16 * (19 * 3600 + DAY)
MOVED = 8 * DAY
LASTING = 32 * (36 * 3600) + 32 * 123_456 // 1_000_000
NOVEMBER = {"from": "2026-11-01", "to": "2026-12-01", "resource": GPU}


def used(answer: Any, *names: str) -> dict[Any, int]:
    """What was used, by the values of some fields."""
    assert answer.status_code == 200, answer.text
    items = [item for item in answer.json()["items"] if item["usedSeconds"]]
    found = {tuple(item[name] for name in names): item["usedSeconds"] for item in items}
    assert len(found) == len(items)
    return {key[0] if len(names) == 1 else key: value for key, value in found.items()}


def test_the_month_by_queue(story: Story, client: TestClient):
    found = used(client.get(URL, params={**NOVEMBER, "by": "queue"}), "queue")
    assert found == {"nlp": EARLY + RESIZED + MOVED, "vision": RESTARTED + LASTING, "ranking": MOVED}


def test_what_began_before_the_span_and_ended_after_it_counts_for_what_lies_inside(story: Story, client: TestClient):
    october = client.get(URL, params={"from": "2026-10", "to": "2026-11", "by": "user", "resource": GPU})
    assert used(october, "user") == {"ada": EARLY_OCTOBER}
    inside = client.get(URL, params={"from": "2026-10-31", "to": "2026-11-01T12:00:00Z", "resource": GPU})
    assert used(inside, "resource") == {GPU: 8 * 36 * 3600}
    second = client.get(URL, params={"from": "2026-11-28T12:00:00Z", "to": "2026-11-28T12:00:01Z", "by": "queue"})
    assert used(second, "queue") == {"vision": 32}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("user", {"ada": EARLY + RESIZED, "bob": RESTARTED + LASTING, "eve": 2 * MOVED}),
        ("namespace", {"team-nlp": EARLY + RESIZED, "team-vision": RESTARTED + LASTING, "team-ranking": 2 * MOVED}),
        ("cohort", {"research": EARLY + RESIZED + MOVED + RESTARTED + LASTING, "company": MOVED}),
        ("kind", {"TrainJob": EARLY + RESIZED + 2 * MOVED + LASTING, "JobSet": RESTARTED}),
        ("priorityClass", {"": EARLY + RESIZED + RESTARTED + LASTING + MOVED + MOVED // 2, "high": MOVED // 2}),
        ("flavor", {"h100": EARLY + RESIZED + RESTARTED + LASTING + 2 * MOVED}),
        ("resource", {GPU: EARLY + RESIZED + RESTARTED + LASTING + 2 * MOVED}),
    ],
)
def test_by_each_group(story: Story, client: TestClient, by: str, expected: Mapping[str, int]):
    assert used(client.get(URL, params={**NOVEMBER, "by": by}), by) == expected


def test_by_two_groups_repeated_or_in_one(story: Story, client: TestClient):
    expected = {("nlp", "ada"): EARLY + RESIZED, ("nlp", "eve"): MOVED, ("ranking", "eve"): MOVED}
    expected[("vision", "bob")] = RESTARTED + LASTING
    assert used(client.get(URL, params={**NOVEMBER, "by": ["user", "queue"]}), "queue", "user") == expected
    assert used(client.get(URL, params={**NOVEMBER, "by": "user, queue"}), "queue", "user") == expected


def test_by_cohorts_of_a_level_with_all_that_is_below(story: Story, client: TestClient):
    whole = EARLY + RESIZED + RESTARTED + LASTING + 2 * MOVED
    assert used(client.get(URL, params={**NOVEMBER, "by": "cohort", "level": 1}), "cohort") == {"company": whole}
    second = used(client.get(URL, params={**NOVEMBER, "by": "cohort", "level": 2}), "cohort")
    assert second == {"research": whole - MOVED, "company": MOVED}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"queue": "company/research/nlp"}, EARLY + RESIZED + MOVED),
        ({"cohort": "research"}, EARLY + RESIZED + MOVED + RESTARTED + LASTING),
        ({"cohort": "research", "user": "eve"}, MOVED),
        ({"user": "bob"}, RESTARTED + LASTING),
        ({"namespace": "team-ranking"}, 2 * MOVED),
        ({"kind": "JobSet"}, RESTARTED),
        ({"priorityClass": "high"}, MOVED // 2),
        ({"flavor": "a100"}, 0),
    ],
)
def test_filters(story: Story, client: TestClient, filter: Mapping[str, str], expected: int):
    assert used(client.get(URL, params={**NOVEMBER, **filter}), "resource").get(GPU, 0) == expected


@pytest.mark.parametrize("step", ["1h", "1d", "7d", "month", "5h"])
def test_buckets_make_up_the_whole_whatever_the_step(story: Story, client: TestClient, step: str):
    query = {"from": "2026-10-29T07:30:00Z", "to": "now", "by": ["queue", "user"], "step": step, "resource": GPU}
    items = client.get(URL, params=query).json()["items"]
    for item in items:
        assert item["usedSeconds"] <= 10**9
    sums: dict[tuple[str, str], int] = {}
    for item in items:
        key = (item["queue"], item["user"])
        sums[key] = sums.get(key, 0) + item["usedSeconds"]
    whole = used(client.get(URL, params={**query, "step": ""}), "queue", "user")
    # Buckets are rounded down each: nothing here ends within a second but two workloads.
    assert all(0 <= whole[key] - sums[key] <= 2 for key in whole)
    assert whole.keys() == sums.keys()


def test_days_are_those_of_utc_and_a_bucket_is_shorter_at_the_ends(story: Story, client: TestClient):
    query = {"from": "2026-11-01T18:00:00Z", "to": "2026-11-05", "step": "1d", "resource": GPU}
    items = client.get(URL, params=query).json()["items"]
    used_of = {(item["start"], item["end"]): (item["usedSeconds"], item["average"]) for item in items}
    assert used_of == {
        ("2026-11-01T18:00:00Z", "2026-11-02T00:00:00Z"): (8 * 6 * 3600, 8.0),
        ("2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"): (8 * 6 * 3600 + 8 * 1800, 2.167),
        ("2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"): (8 * DAY, 8.0),
        ("2026-11-04T00:00:00Z", "2026-11-05T00:00:00Z"): (16 * DAY, 16.0),
    }


def test_weeks_begin_on_monday(story: Story, client: TestClient):
    found = client.get(URL, params={**NOVEMBER, "step": "7d"}).json()
    starts = [item["start"][:10] for item in found["items"]]
    assert starts == ["2026-11-01", "2026-11-02", "2026-11-09", "2026-11-16", "2026-11-23"]
    assert found["to"] == NOW.isoformat().replace("+00:00", "Z")


def test_the_end_is_now_at_the_latest_and_averages_are_of_what_has_passed(story: Story, client: TestClient):
    [item] = client.get(URL, params={"from": "2026-11-29", "to": "2027-01-01", "by": "user", "resource": GPU}).json()[
        "items"
    ]
    assert (item["user"], item["average"]) == ("bob", 32.0)
    assert item["usedSeconds"] == 32 * 43_200 + 3  # until 0.123456 s after noon
    assert used(client.get(URL, params={"by": "user"}), "user") == {
        "bob": 32 * DAY
    }  # the last day where nothing is said


def nominal(answer: Any, name: str) -> dict[str, int]:
    """Nominal quota by the value of a field."""
    return {item[name]: item["nominalSeconds"] for item in answer.json()["items"]}


UNTIL_NOW = 8 * DAY + DAY // 2
"""Seconds from the 21st to NOW, but for 0.123456 of them."""


def test_the_quota_is_what_it_was_then(client: TestClient):
    found = nominal(client.get(URL, params={**NOVEMBER, "by": "queue"}), "queue")
    assert found == {
        "nlp": 64 * 10 * DAY + 128 * 10 * DAY + 16 * UNTIL_NOW + 1,
        "vision": 32 * (28 * DAY + DAY // 2) + 3,
        "ranking": 32 * (28 * DAY + DAY // 2) + 3,
        "gone": 8 * 25 * DAY,
    }
    by_month = client.get(URL, params={**NOVEMBER, "from": "2026-10", "queue": "nlp", "step": "month"})
    months = nominal(by_month, "start")
    assert months == {"2026-10-01T00:00:00Z": 64 * 12 * DAY, "2026-11-01T00:00:00Z": found["nlp"]}


def test_the_quota_of_cohorts_is_that_of_what_hangs_on_them_now(client: TestClient):
    queues = nominal(client.get(URL, params={**NOVEMBER, "by": "queue"}), "queue")
    cohorts = nominal(client.get(URL, params={**NOVEMBER, "by": "cohort"}), "cohort")
    # Rounded down once each, of 16 + 32 times 0.123456 s together.
    assert cohorts == {
        "research": queues["nlp"] + queues["vision"] + 1,
        "company": queues["ranking"],
        "": queues["gone"],
    }
    assert nominal(client.get(URL, params={**NOVEMBER, "cohort": "research"}), "resource")[GPU] == cohorts["research"]


def test_groups_without_a_quota_have_none(story: Story, client: TestClient):
    items = client.get(URL, params={**NOVEMBER, "by": "user"}).json()["items"]
    assert {item["nominalSeconds"] for item in items} == {None}


def test_fields_and_sort(story: Story, client: TestClient):
    query = {**NOVEMBER, "by": "user", "sort": "-used", "fields": "user,usedSeconds"}
    answer = client.get(URL, params=query).json()
    assert answer["items"] == [
        {"user": "bob", "usedSeconds": RESTARTED + LASTING},
        {"user": "ada", "usedSeconds": EARLY + RESIZED},
        {"user": "eve", "usedSeconds": 2 * MOVED},
    ]
    assert (answer["by"], answer["from"]) == (["user", "resource"], "2026-11-01T00:00:00Z")
    assert datetime.fromisoformat(answer["keptSince"]).day == 1


@pytest.mark.parametrize("sort", ["start", "-start", "used", "-used"])
def test_pages_make_up_the_whole_in_every_order(story: Story, client: TestClient, sort: str):
    query = {**NOVEMBER, "by": "user,flavor", "step": "1d", "sort": sort}
    whole = client.get(URL, params=query).json()
    assert (whole["next"], len(whole["items"]) > 10) == (None, True)
    for limit in (3, 7):
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = client.get(URL, params={**query, "limit": limit, "cursor": cursor}).json()
            assert len(page["items"]) == limit or page["next"] is None
            found, cursor = [*found, *page["items"]], page["next"]
        assert found == whole["items"]


def test_later_pages_are_of_the_span_of_the_first(story: Story, client: TestClient):
    query = {"by": "user,flavor", "step": "1d", "from": "25d", "limit": 2}
    first = client.get(URL, params=query).json()
    later = client.get(URL, params={**query, "from": "1d", "cursor": first["next"]}).json()
    assert (later["from"], later["to"]) == (first["from"], first["to"])
    assert later["items"][0] not in first["items"]


@pytest.mark.parametrize("cursor", ["a", "%", "WyJhIl0", "W10", "bnVsbA", "_w"])
def test_a_cursor_that_is_none_of_usage_is_refused(client: TestClient, cursor: str):
    assert client.get(URL, params={"cursor": cursor}).status_code == 400


def test_a_cursor_is_of_one_order_and_nothing_made_up(story: Story, client: TestClient):
    query = {**NOVEMBER, "by": "user", "step": "7d", "limit": "1"}
    cursor = client.get(URL, params=query).json()["next"]
    assert client.get(URL, params={**query, "cursor": cursor, "sort": "-used"}).status_code == 400
    fine = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    assert client.get(URL, params={**query, "cursor": made(fine)}).status_code == 200
    for place, bad in (
        (1, "2026-11-01T00:00:00"),
        (1, "0001-01-01T00:00:00+14:00"),
        (2, fine[1]),
        (3, "1e9"),
        (4, "x"),
        (5, "ada"),
        (0, "end"),
    ):
        cursor = made([*fine[:place], bad, *fine[place + 1 :]])
        assert client.get(URL, params={**query, "cursor": cursor}).status_code == 400, bad


def made(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ({"from": "soon"}, "query.from", "write it like 2026-11-01T08:00:00Z, 2026-11-01, 2026-11, 7d (ago)"),
        ({"from": "2026-13-01"}, "query.from", "is no time"),
        ({"from": "2026-11-01T00:00:00"}, "query.from", "has no time zone; write it like 2026-11-01T00:00:00Z"),
        ({"from": "0001-01-01T00:00:00+14:00"}, "query.from", "too long ago"),
        ({"to": "tomorrow"}, "query.to", "is no time"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "query.from", "must be before `to`"),
        ({"from": "2026-11-02", "to": "2026-11-02"}, "query.from", "must be before `to`"),
        ({"from": "2026-11-30"}, "query.from", "is in the future"),
        ({"step": "daily"}, "query.step", "write it like 1h, 1d, 7d or month"),
        ({"step": "0s"}, "query.step", "at least one"),
        ({"step": "1500ms"}, "query.step", "whole seconds"),
        ({"step": "1s"}, "query.step", "make it at least 2m"),
        ({"from": "2020-01-01", "step": "1h"}, "query.step", "make it at least 3d"),
        ({"by": "usr"}, "query.by", "did you mean 'user'"),
        ({"level": "2"}, "query.level", "by=cohort"),
    ],
)
def test_what_is_asked_wrongly(client: TestClient, query: Mapping[str, str], field: str, message: str):
    answer = client.get(URL, params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert message in error["message"]


def test_more_than_an_answer_holds_is_refused_with_what_would_help(
    story: Story, client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("api.usage.over_time.MAX_ITEMS", 50)
    answer = client.get(URL, params={**NOVEMBER, "by": "user", "step": "1d"})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == "query.by"
    assert "more than 50 items, of 3 groups in 29 buckets" in error["message"]
    assert client.get(URL, params={**NOVEMBER, "by": "user", "step": "7d"}).status_code == 200


def test_a_sum_that_takes_too_long_is_given_up(story: Story, client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("queue_manager.store.usage_over_time.PATIENCE", timedelta(milliseconds=1))
    monkeypatch.setattr("queue_manager.store.usage_over_time.query", slow_query)
    answer = client.get(URL, params=NOVEMBER)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "query.from"


def test_of_too_many_at_once_the_rest_is_asked_to_come_again(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    room = threading.BoundedSemaphore(1)
    monkeypatch.setattr("api.usage.over_time._ROOM", room)
    with room:
        answer = client.get(URL, params=NOVEMBER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert client.get(URL, params=NOVEMBER).status_code == 200


def slow_query(asked: Any) -> Any:
    return text("SELECT pg_sleep(5), CAST(:first AS timestamptz), CAST(:last AS timestamptz), :most, :resource")


@pytest.mark.parametrize("missing", [{"queue": "none"}, {"cohort": "none"}])
def test_a_queue_that_is_not_there_has_no_usage_and_a_cohort_is_not_found(
    story: Story, client: TestClient, missing: Mapping[str, str]
):
    answer = client.get(URL, params={**NOVEMBER, **missing})
    assert answer.status_code == (404 if "cohort" in missing else 200)
    assert answer.status_code == 404 or answer.json()["items"] == []


def test_who_is_bound_to_a_subtree_sees_its_usage_alone_where_the_rest_is_hidden(store: Store):
    tell(Story(store))
    client = server(store)
    secret = bearer(token(store, "viewer", "vision"))
    assert len(used(client.get(URL, params={**NOVEMBER, "by": "queue"}, headers=secret), "queue")) == 3
    apply(store, NOW, document("Settings", "default", {"access": {"outside": "Hidden"}}))
    answer = client.get(URL, params={**NOVEMBER, "by": ["queue", "cohort", "user"]}, headers=secret)
    assert used(answer, "queue", "cohort", "user") == {("vision", "", "bob"): RESTARTED + LASTING}
    whole = client.get(URL, params=NOVEMBER, headers=secret).json()["items"]
    assert [item["usedSeconds"] for item in whole] == [RESTARTED + LASTING]
    assert client.get(URL, params={**NOVEMBER, "queue": "nlp"}, headers=secret).json()["items"] == []
    assert client.get(URL, params={**NOVEMBER, "cohort": "research"}, headers=secret).status_code == 404
    quotas = client.get(URL, params={**NOVEMBER, "by": "queue"}, headers=secret).json()["items"]
    assert {item["queue"] for item in quotas} == {"vision"}
