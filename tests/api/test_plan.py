"""Plans of changes on the live state, applying only what was planned, differences and rollbacks."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.planning.effects import Effects
from api.planning.worker import Planner, work_out
from queue_manager.store.records import Change, ConfigObject, State
from queue_manager.store.store import Store
from tests.api.world import SMALL, commit, configure, document, job, queue, running, text
from tests.store.builders import NOW, lead

CONFIG = "/api/v1/config"
UNKNOWN_CLASS = {"state": State.HELD, "reason": "UnknownPriorityClass"}
EFFECTS = ("overQuota", "preemptible", "wouldStop", "wouldStart", "neverStart")
TOUCHED = ("wouldStop", "wouldStart", "neverStart")


def plan(client: TestClient, *documents: dict[str, Any], **query: Any) -> dict[str, Any]:
    answer = client.post(f"{CONFIG}/plan", content=text(*documents), params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def effects(planned: dict[str, Any]) -> dict[str, list[str]]:
    """The lists that are not empty."""
    return {name: planned[name] for name in EFFECTS if planned[name]}


class InProcess:
    """Works out plans here: to start a process takes longer than the plan."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def effects(
        self, before: Sequence[ConfigObject], after: Sequence[ConfigObject], revision: int, now: datetime
    ) -> Effects:
        return work_out(self._store, before, after, revision, now)

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def live(client: TestClient, store: Store) -> TestClient:
    """nlp (64 GPUs) runs `old` with 32 and `young` with 24, and `more` waits for 16; vision (32) runs nothing."""
    configure(store)
    commit(
        store,
        running(job("old", "nlp", 4, age=50, topology=None)),
        running(job("young", "nlp", 3, age=40, topology=None)),
        Change(row=job("more", "ranking", 2, age=20)),
    )
    client.app.state.context.planner = InProcess(store)  # type: ignore[attr-defined]
    return client


def test_less_quota_hurts_the_youngest_that_it_has_no_room_for(live: TestClient):
    planned = plan(live, queue("nlp", "research", 40))
    assert effects(planned) == {"overQuota": ["team-nlp/young"]}
    [change] = planned["changes"]
    assert (change["action"], change["kind"], change["name"]) == ("changed", "Queue", "nlp")
    assert {field["field"] for field in change["fields"]} == {
        f"spec.resourceGroups[0].flavors[h100].resources[{resource}].nominalQuota"
        for resource in ("cpu", "memory", "nvidia.com/gpu")
    }


def test_borrowed_quota_is_preemptible_where_its_owner_may_take_it_back(live: TestClient):
    owner = queue("vision", "research", 32, preemption={"reclaimWithinCohort": "Any"})
    planned = plan(live, queue("nlp", "research", 40), owner)
    assert effects(planned) == {"overQuota": ["team-nlp/young"], "preemptible": ["team-nlp/young"]}


def test_a_policy_alone_makes_what_it_reaches_preemptible(live: TestClient):
    planned = plan(live, queue("nlp", "research", 64, preemption={"withinClusterQueue": "LowerPriority"}))
    # The class `high` could be used by somebody.
    assert effects(planned) == {"preemptible": ["team-nlp/old", "team-nlp/young"]}


def test_a_queue_that_is_opened_starts_what_waits_in_it(live: TestClient):
    planned = plan(live, queue("ranking", "company", 32))
    assert effects(planned) == {"wouldStart": ["team-ranking/more"]}


def test_quota_that_can_never_hold_what_waits(live: TestClient, store: Store):
    commit(store, running(job("full", "ranking", 4, age=30, topology=None)))
    live.put(CONFIG, content=text(queue("ranking", "", 32)))
    planned = plan(live, queue("ranking", "", 8))
    assert effects(planned) == {"overQuota": ["team-ranking/full"], "neverStart": ["team-ranking/more"]}


def test_a_stop_that_drains_stops_what_runs(live: TestClient):
    assert effects(plan(live, queue("nlp", "research", 64, stopPolicy="HoldAndDrain"))) == {
        "wouldStop": ["team-nlp/old", "team-nlp/young"]
    }


HURT = ["team-nlp/old", "team-nlp/young"]


@pytest.mark.parametrize(
    ("path", "policy", "hurt"),
    [
        ("queues/nlp", "Hold", {"neverStart": ["team-nlp/next"]}),
        ("queues/nlp", "HoldAndDrain", {"wouldStop": HURT, "neverStart": ["team-nlp/next"]}),
        ("queues/company/research/nlp", "HoldAndDrain", {"wouldStop": HURT, "neverStart": ["team-nlp/next"]}),
        ("cohorts/research", "HoldAndDrain", {"wouldStop": HURT, "neverStart": ["team-nlp/next"]}),
        ("flavors/h100", "HoldAndDrain", {"wouldStop": HURT, "neverStart": ["team-nlp/next"]}),
        ("local-queues/team-nlp/default", "HoldAndDrain", {"wouldStop": HURT, "neverStart": ["team-nlp/next"]}),
        ("queues/vision", "HoldAndDrain", {}),
        ("queues/nlp", "None", {}),
    ],
)
def test_a_stop_is_planned_before_it_is_set(
    live: TestClient, store: Store, path: str, policy: str, hurt: dict[str, list[str]]
):
    commit(store, Change(row=job("next", "nlp", 2, age=5, topology=None)))
    revision = store.current_revision()
    planned = live.post(f"/api/v1/{path}/stop/plan", json={"policy": policy})
    assert planned.status_code == 200, planned.text
    assert {name: planned.json()[name] for name in TOUCHED if planned.json()[name]} == hurt
    assert len(planned.json()["changes"]) == (policy != "None")
    assert live.post(f"/api/v1/{path}/stop/plan", json={"policy": policy}).json() == planned.json()
    assert store.current_revision() == revision
    assert live.get("/api/v1/stops").json()["items"] == []


def test_the_end_of_a_stop_is_planned_too(live: TestClient, store: Store):
    commit(store, Change(row=job("next", "vision", 2, age=5, topology=None)))
    assert live.post("/api/v1/queues/vision/stop", json={"policy": "Hold", "reason": "cables"}).status_code == 200
    planned = live.post("/api/v1/queues/vision/stop/plan", json={"policy": "None"}).json()
    assert effects(planned) == {"wouldStart": ["team-vision/next"]}
    [change] = planned["changes"]
    assert (change["action"], change["kind"], change["name"]) == ("deleted", "Stop", "Queue/vision")
    # By whom and why is told by the list of stops, to those who may see it.
    assert change["fields"] == []
    assert live.post("/api/v1/queues/nobody/stop/plan", json={"policy": "Hold"}).status_code == 404


def test_jobs_of_a_local_queue_that_points_elsewhere(live: TestClient, store: Store):
    commit(store, Change(row=job("lost", "nlp", 99, age=5, topology=None)))
    other = document("LocalQueue", "default", {"queue": "ranking"}, "team-nlp")
    assert plan(live, other)["neverStart"] == []  # too large for both
    waits = Change(row=job("small", "nlp", 1, age=4, topology=None, local_queue="default"))
    commit(store, waits)
    planned = plan(live, queue("ranking", "company", 32), other)
    assert planned["wouldStart"] == ["team-ranking/more"]


def test_a_class_of_ours_is_nothing_to_who_has_its_priority_from_kubernetes_class_of_that_name(
    live: TestClient, store: Store
):
    theirs = {"priority_class": "urgent", "inputs": {"PriorityClass/urgent": "uid-urgent/1"}}
    commit(store, Change(row=job("theirs", "ranking", 2, age=5, **theirs)))
    ours, opened = document("PriorityClass", "urgent", {"value": 100}), queue("ranking", "", 16)
    assert effects(plan(live, ours, opened)) == {"wouldStart": ["team-ranking/more"]}
    commit(store, Change(row=job("ours", "ranking", 2, age=4, priority_class="urgent", **UNKNOWN_CLASS)))
    assert effects(plan(live, ours, opened)) == {"wouldStart": ["team-ranking/ours"]}


def test_who_loses_its_priority_class_never_starts_unless_a_person_holds_it_anyway(live: TestClient, store: Store):
    held = {"state": State.HELD, "reason": "HeldByOperator"}
    commit(
        store,
        Change(row=job("named", "ranking", 1, age=5, priority_class="high", priority=100)),
        Change(row=job("held", "ranking", 1, age=4, priority_class="high", priority=100, **held)),
    )
    everything = [each for each in SMALL if each["metadata"]["name"] != "ranking"]
    opened = queue("ranking", "company", 32)
    live.put(CONFIG, content=text(*everything, opened), params={"owner": "team"})
    without = [each for each in everything if each["kind"] != "PriorityClass"]
    planned = plan(live, *without, opened, owner="team", prune=True)
    assert effects(planned) == {"neverStart": ["team-ranking/named"]}


def test_a_selector_of_namespaces_is_no_obstacle_where_their_labels_are_not_known(live: TestClient):
    selector = {"matchLabels": {"team": "ranking"}}
    live.put(CONFIG, content=text(queue("ranking", "company", 32, stopPolicy="Hold", namespaceSelector=selector)))
    local = document("LocalQueue", "default", {"queue": "ranking"}, "team-ranking")
    planned = plan(live, queue("ranking", "company", 32, namespaceSelector=selector), local)
    assert effects(planned) == {"wouldStart": ["team-ranking/more"]}


def test_with_too_many_workloads_preemptions_are_not_played_and_that_is_said(
    live: TestClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("api.planning.effects.MOST_PAIRS", 1)
    planned = plan(live, queue("ranking", "company", 32))
    assert effects(planned) == {"wouldStart": ["team-ranking/more"]}
    assert ["preemptions are not played" in sentence for sentence in planned["limits"]] == [True]


def test_rounds_that_end_before_the_state_settles_are_told(live: TestClient, monkeypatch: pytest.MonkeyPatch):
    opened = queue("ranking", "company", 32)
    assert plan(live, opened)["limits"] == []
    monkeypatch.setattr("api.planning.effects.PASSES", 1)
    [sentence] = plan(live, opened)["limits"]
    assert sentence.startswith("after 1 rounds")


def test_requests_that_are_not_tried_alone_are_told(live: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch):
    commit(store, Change(row=job("larger", "ranking", 3, age=10, topology=None)))
    commit(store, running(job("full", "ranking", 4, age=30, topology=None)))
    live.put(CONFIG, content=text(queue("ranking", "", 32)))
    little = queue("ranking", "", 8)
    planned = plan(live, little)
    assert (planned["neverStart"], planned["limits"]) == (["team-ranking/larger", "team-ranking/more"], [])
    monkeypatch.setattr("api.planning.effects.MOST_ALONE", 1)
    [sentence] = plan(live, little)["limits"]
    assert sentence.startswith("of 2 different requests that wait, 1 were tried alone")


def test_a_new_selector_whose_labels_are_not_known_is_told(live: TestClient):
    selector = {"namespaceSelector": {"matchLabels": {"team": "nlp"}}}
    twelve = [queue(f"new-{number:02}", "company", 8, **selector) for number in range(12)]
    [sentence] = plan(live, queue("ranking", "company", 32, **selector), *twelve)["limits"]
    assert "namespaceSelector" in sentence
    assert sentence.endswith("queue new-08, queue new-09 and 3 more")
    assert plan(live, queue("other", "company", 8))["limits"] == []


def test_a_new_selector_is_tried_on_the_labels_that_the_leader_saw(live: TestClient, store: Store):
    store.save_namespaces(lead(store), {"team-ranking": {"team": "ranking"}, "team-nlp": {}}, NOW)
    commit(store, Change(row=job("other", "ranking", 1, age=5, namespace="team-nlp", local_queue="ranking")))
    selector = {"namespaceSelector": {"matchLabels": {"team": "ranking"}}}
    local = document("LocalQueue", "default", {"queue": "ranking"}, "team-ranking")
    planned = plan(live, queue("ranking", "company", 32, **selector), local)
    assert (effects(planned), planned["limits"]) == ({"wouldStart": ["team-ranking/more"]}, [])
    selector = {"namespaceSelector": {"matchLabels": {"team": "vision"}}}
    assert effects(plan(live, queue("ranking", "company", 32, **selector), local)) == {}


def test_nothing_changes_nothing(live: TestClient):
    planned = plan(live, *SMALL)
    assert planned["changes"] == []
    assert effects(planned) == {}


def test_a_plan_changes_nothing(live: TestClient, store: Store):
    plan(live, queue("nlp", "research", 40))
    assert store.load_configuration()[0] == 1
    assert [revision.number for revision in store.revisions()] == [1]


def test_a_plan_of_nonsense_tells_every_error(live: TestClient):
    bad = text(queue("nlp", "research", 40)).replace("cohort:", "cohrt:") + "---\nkind: Quue\n"
    answer = live.post(f"{CONFIG}/plan", content=bad, params={"file": "f.yaml"})
    assert answer.status_code == 422
    assert [error["file"] for error in answer.json()["errors"]] == ["f.yaml", "f.yaml"]


def test_what_was_planned_is_applied(live: TestClient):
    body = text(queue("nlp", "research", 40))
    planned = plan(live, queue("nlp", "research", 40))
    answer = live.put(CONFIG, content=body, params={"ifPlan": planned["hash"], "reason": "planned"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["revision"] == 2
    assert live.get("/api/v1/revisions/2").json()["reason"] == "planned"


def test_what_the_plan_does_not_say_any_more_is_not_applied(live: TestClient, store: Store):
    body = text(queue("nlp", "research", 40))
    planned = plan(live, queue("nlp", "research", 40))
    commit(store, running(job("another", "nlp", 2, age=3, topology=None)))
    answer = live.put(CONFIG, content=body, params={"ifPlan": planned["hash"]})
    assert answer.status_code == 412, answer.text
    assert store.load_configuration()[0] == 1


def test_what_does_not_touch_the_plan_does_not_refuse_it(live: TestClient, store: Store):
    body = text(queue("nlp", "research", 40))
    planned = plan(live, queue("nlp", "research", 40))
    commit(store, running(job("elsewhere", "vision", 1, age=3, topology=None)))
    configure(store, [document("PriorityClass", "low", {"value": -5})])
    assert live.put(CONFIG, content=body, params={"ifPlan": planned["hash"]}).status_code == 200


def test_somebody_elses_change_of_the_same_object_refuses_the_plan(live: TestClient, store: Store):
    planned = plan(live, queue("nlp", "research", 40))
    live.put(CONFIG, content=text(queue("nlp", "research", 48)))
    body = text(queue("nlp", "research", 40))
    assert live.put(CONFIG, content=body, params={"ifPlan": planned["hash"]}).status_code == 412


def test_a_difference_tells_owners_deletions_and_new_objects(live: TestClient):
    live.put(CONFIG, content=text(document("Flavor", "a100", {})), params={"owner": "team"})
    answer = live.post(
        f"{CONFIG}/diff", content=text(document("Cohort", "new", {})), params={"owner": "team", "prune": True}
    )
    found = [(change["action"], change["kind"], change["name"]) for change in answer.json()["changes"]]
    assert found == [("created", "Cohort", "new"), ("deleted", "Flavor", "a100")]
    assert answer.json()["changes"][0]["fields"] == [{"field": "owner", "before": None, "after": "team"}]


def test_a_rollback_is_planned_and_is_a_revision(live: TestClient, store: Store):
    live.put(CONFIG, content=text(queue("nlp", "research", 40), document("Cohort", "new", {})))
    planned = live.post("/api/v1/revisions/1/plan").json()
    assert [(change["action"], change["name"]) for change in planned["changes"]] == [
        ("deleted", "new"),
        ("changed", "nlp"),
    ]
    assert live.post("/api/v1/revisions/1/diff").json()["changes"] == planned["changes"]
    answer = live.post("/api/v1/revisions/1/rollback", params={"ifPlan": planned["hash"]})
    assert (answer.status_code, answer.json()["revision"]) == (200, 3)
    assert store.revisions()[0].reason == "rollback to revision 1"
    before = {(row.kind, row.namespace, row.name): row.spec for row in store.configuration_at(1)}
    assert {(row.kind, row.namespace, row.name): row.spec for row in store.load_configuration()[1]} == before
    assert live.post("/api/v1/revisions/1/rollback").json() == {"revision": 3, "changes": [], "warnings": []}


def test_a_rollback_to_nothing_that_was(live: TestClient):
    for action in ("plan", "diff", "rollback"):
        answer = live.post(f"/api/v1/revisions/7/{action}")
        assert answer.status_code == 404
        assert answer.json()["detail"] == "there is no revision '7'"


def test_objects_of_kueue_are_planned_as_they_are(live: TestClient):
    body = json.dumps(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "nlp"},
            "spec": {"cohortName": "research", "namespaceSelector": {}, "stopPolicy": "Hold"},
        }
    )
    planned = live.post(f"{CONFIG}/plan", content=body).json()
    assert planned["overQuota"] == ["team-nlp/old", "team-nlp/young"]


def test_plans_are_worked_out_in_a_process_of_their_own(client: TestClient, store: Store):
    configure(store)
    commit(store, running(job("old", "nlp", 4, age=50, topology=None)))
    planner: Planner = client.app.state.context.planner  # type: ignore[attr-defined]
    try:
        assert effects(plan(client, queue("nlp", "research", 8))) == {"overQuota": ["team-nlp/old"]}
        [process] = planner.processes()
        assert process != os.getpid()
        os.kill(process, signal.SIGKILL)
        assert effects(plan(client, queue("nlp", "research", 8))) == {"overQuota": ["team-nlp/old"]}
        assert planner.processes() != [process]
    finally:
        planner.close()


def test_too_many_plans_at_once_are_told_to_come_again(live: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("api.planning.worker.AT_ONCE", 0)
    live.app.state.context.planner = Planner(live.app.state.context.store.engine)  # type: ignore[attr-defined]
    answer = live.post(f"{CONFIG}/plan", content=text(queue("nlp", "research", 8)))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
