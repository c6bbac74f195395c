"""What the admin of a subtree may change: below its node, no more than it has, and nothing of anybody else's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.testclient import TestClient

from queue_manager.store.store import Store
from tests.api.callers import TREE, bearer, server, settle, token
from tests.api.world import GPU, document, group, queue

OWN = "research/nlp"
BORROWING = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}


class Team:
    """The queue admin of research/nlp and a platform admin, at one server."""

    def __init__(self, store: Store) -> None:
        self.client: TestClient = server(store)
        self.admin = bearer(token(store, "queue-admin", OWN))
        self.platform = bearer(token(store, "platform-admin"))

    def apply(self, *documents: Mapping[str, Any], platform: bool = False, prune: str = "") -> Any:
        text = "\n---\n".join(json.dumps(each) for each in documents)
        query = {"owner": prune, "prune": "true"} if prune else {}
        headers = self.platform if platform else self.admin
        return self.client.put("/api/v1/config", content=text, headers=headers, params=query)

    def refusals(self, *documents: Mapping[str, Any]) -> list[str]:
        """What is refused, the same by apply, plan and diff."""
        answer = self.apply(*documents)
        assert answer.status_code == 403, answer.text
        errors = answer.json()["errors"]
        text = "\n---\n".join(json.dumps(each) for each in documents)
        for path in ("diff", "plan"):
            other = self.client.post(f"/api/v1/config/{path}", content=text, headers=self.admin)
            assert (other.status_code, other.json()["errors"]) == (403, errors)
        return [f"{each['kind']} {each['name']}: {each['message']}" for each in errors]


@pytest.fixture
def team(store: Store) -> Team:
    settle(store)
    return Team(store)


def limited(item: dict[str, Any], borrowing: int) -> dict[str, Any]:
    """The queue with a borrowing limit on its GPUs."""
    for quota in item["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        quota["borrowingLimit"] = borrowing if quota["name"] == GPU else 0
    return item


def pool(gpus: int) -> dict[str, Any]:
    groups = [group({"h100": {"cpu": 0, "memory": 0, GPU: gpus}})]
    return document("Cohort", OWN, {"parent": "research", "resourceGroups": groups})


def test_below_the_node_queues_come_go_and_change(team: Team):
    assert team.apply(queue("bert", OWN, 48), queue("roberta", OWN, 16, stopPolicy="Hold")).status_code == 200
    assert team.apply(document("LocalQueue", "default", {"queue": "roberta"}, "team-roberta")).status_code == 200
    assert team.apply(document("Cohort", "research/nlp/small", {"parent": OWN})).status_code == 200
    assert team.apply(queue("roberta", "research/nlp/small", 16)).status_code == 200
    for path in ("local-queues/team-roberta/default", "queues/roberta"):
        answer = team.client.delete(f"/api/v1/{path}", headers={**team.admin, "If-Match": "*"})
        assert answer.status_code == 204


def test_quotas_are_shared_out_again_and_again_within_what_the_subtree_has(team: Team):
    assert team.apply(queue("bert", OWN, 32)).status_code == 200
    # What was taken from one may be given to another later.
    assert team.apply(queue("llama", OWN, 64)).status_code == 200
    assert team.refusals(queue("llama", OWN, 65)) == [
        f"Cohort {OWN}: nominal quotas of cpu of flavor h100 would sum to 1552 with its own, the subtree has 1536",
        "Cohort research/nlp: nominal quotas of memory of flavor h100 would sum to 12.1Ti with its own, "
        "the subtree has 12Ti",
        "Cohort research/nlp: nominal quotas of nvidia.com/gpu of flavor h100 would sum to 113 with its own, "
        "the subtree has 112",
    ]
    # The node's own pool may go to its children, and back.
    assert team.apply(pool(0), queue("bert", OWN, 32), queue("llama", OWN, 64)).status_code == 200
    assert team.apply(pool(16)).status_code == 200
    assert any("would sum to 113" in each for each in team.refusals(pool(17)))


def test_the_platform_admin_of_a_subtree_does_not_hang_it_below_somebody_elses_cohort(team: Team):
    team.admin = bearer(token(team.client.app.state.context.store, "platform-admin", OWN))
    moved = document("Cohort", OWN, {**pool(16)["spec"], "parent": "vision"})
    assert team.refusals(moved) == [
        f"Cohort {OWN}: parent: only somebody above this node may change what it draws from its surroundings"
    ]
    assert team.apply(moved, platform=True).status_code == 200


def test_what_a_platform_admin_gives_or_takes_changes_what_the_subtree_has(team: Team):
    assert team.apply(queue("bert", OWN, 32)).status_code == 200  # 32 of its 112 are free now
    assert team.apply(queue("llama", OWN, 40), platform=True).status_code == 200  # 8 more: 120
    assert team.apply(queue("bert", OWN, 64)).status_code == 200
    assert team.refusals(queue("bert", OWN, 65))
    assert team.apply(pool(6), platform=True).status_code == 200  # 10 less: 110
    assert team.apply(queue("bert", OWN, 65)).status_code == 403
    assert team.apply(queue("bert", OWN, 63)).status_code == 200
    assert team.apply(queue("bert", OWN, 64)).status_code == 200


def test_a_flavor_that_the_subtree_has_not_is_not_given(team: Team):
    wanted = queue("bert", OWN, 64)
    wanted["spec"]["resourceGroups"] = [group({"a100": {"cpu": 0, "memory": 0, GPU: 0}})]
    assert f"Cohort {OWN}: the subtree has no {GPU} of flavor a100; only a platform admin can give it some" in (
        team.refusals(wanted)
    )


def test_borrowing_is_bounded_by_what_the_subtree_may_use(team: Team):
    # Without limits of its own the subtree may use what its children may: 64 + 8 and 32 + 0.
    limits = [limited(queue("bert", OWN, 64), 8), limited(queue("llama", OWN, 32), 0)]
    assert team.apply(*limits, pool(0), platform=True).status_code == 200
    assert any("without limit by borrowing" in each for each in team.refusals(queue("bert", OWN, 64)))
    assert any("up to 105 by borrowing" in each for each in team.refusals(limited(queue("llama", OWN, 32), 1)))
    shifted = [limited(queue("bert", OWN, 64), 6), limited(queue("llama", OWN, 32), 2)]
    assert team.apply(*shifted).status_code == 200


def test_a_borrowing_limit_of_the_node_holds_for_all_below(team: Team):
    own = pool(16)
    for quota in own["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        quota["borrowingLimit"] = 8
    assert team.apply(own, platform=True).status_code == 200
    assert team.apply(limited(queue("bert", OWN, 64), 100)).status_code == 200  # the engine holds it to the node's
    own["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2]["borrowingLimit"] = 9
    assert any("borrowingLimit: only somebody above" in each for each in team.refusals(own))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (queue("resnet", "vision", 31), "outside of where you have the role queue-admin"),
        (queue("resnet", OWN, 32), "outside of where you have the role queue-admin"),
        (queue("bert", "vision", 64), "outside of where you have the role queue-admin"),
        (queue("new", "vision", 1), "outside of where you have the role queue-admin"),
        (document("Cohort", "nowhere", {}), "outside of where you have the role queue-admin"),
        (document("Cohort", OWN, {"parent": "company"}), "only somebody above this node"),
        (document("Cohort", OWN, {**TREE[4]["spec"], "fairSharing": {"weight": 9}}), "only somebody above this"),
        (document("Cohort", "research", {"parent": "company", "fairSharing": {"weight": 3}}), "outside of where"),
        (document("Flavor", "h100", {"nodeLabels": {"a": "b"}}), "belongs to the whole tree"),
        (document("Settings", "default", {"drainTimeout": "1m"}), "belongs to the whole tree"),
        (document("PriorityClass", "high", {"value": 1}), "belongs to the whole tree"),
        (
            document("LocalQueue", "default", {"queue": "bert"}, "team-resnet"),
            "needs the role queue-admin at the queue",
        ),
        (document("LocalQueue", "x", {"queue": "resnet"}, "team-bert"), "needs the role queue-admin at the queue"),
        (
            queue("bert", OWN, 64, preemption=BORROWING),
            "no queue of the subtree may preempt while it borrows",
        ),
    ],
)
def test_what_is_not_theirs_is_refused(team: Team, change: dict[str, Any], why: str):
    assert why in " ".join(team.refusals(change))


def binding(role: str, node: str) -> dict[str, Any]:
    subjects = [{"kind": "User", "name": "eve"}]
    return document("RoleBinding", "more", {"role": role, "subjects": subjects, "node": node})


@pytest.mark.parametrize(
    ("role", "node", "status"),
    [
        ("viewer", OWN, 200),
        ("queue-admin", "bert", 200),
        ("platform-admin", OWN, 403),
        ("viewer", "vision", 403),
        ("viewer", "", 403),
    ],
)
def test_roles_up_to_ones_own_are_given_below(team: Team, role: str, node: str, status: int):
    assert team.apply(binding(role, node)).status_code == status


def test_all_refusals_are_told_at_once_and_nothing_is_done(team: Team):
    before = team.client.get("/api/v1/config", headers=team.admin).text
    found = team.refusals(
        queue("bert", OWN, 1), queue("resnet", "vision", 1), document("Flavor", "h100", {"nodeLabels": {"a": "b"}})
    )
    assert [each.partition(":")[0] for each in found] == ["Flavor h100", "Queue resnet"]
    assert team.client.get("/api/v1/config", headers=team.admin).text == before


def test_a_cohort_that_others_name_can_t_be_made_ones_own(store: Store):
    settle(store, queue("orphan", "ghost", 8))
    team = Team(store)
    assert "outside of where you have the role" in " ".join(team.refusals(document("Cohort", "ghost", {"parent": OWN})))


def test_no_node_leaves_the_subtree_by_the_cohort_above_it(store: Store):
    settle(store, document("Cohort", "small", {"parent": OWN}), queue("tiny", "small", 0))
    team = Team(store)
    answer = team.client.delete("/api/v1/cohorts/small", headers={**team.admin, "If-Match": "*"})
    assert answer.status_code == 422  # it is in use
    moved = {**team.admin, "If-Match": "*"}
    body = document("Cohort", "small", {"parent": "vision"})
    answer = team.client.put("/api/v1/cohorts/small", json=body, headers=moved)
    assert answer.status_code == 403
    assert "would come into your subtree, or leave it" in [
        each["message"] for each in answer.json()["errors"] if each["name"] == "tiny"
    ]


def test_a_binding_can_t_be_turned_to_another_node_by_a_name(store: Store):
    named = document(
        "RoleBinding", "vision", {"role": "viewer", "subjects": [{"kind": "User", "name": "x"}], "node": "resnet"}
    )
    settle(store, named)
    team = Team(store)
    assert "would be another node" in " ".join(team.refusals(document("Cohort", "resnet", {"parent": OWN})))


def test_rollback_is_theirs_where_it_stays_in_the_subtree(team: Team):
    assert team.apply(queue("bert", OWN, 32)).status_code == 200
    assert team.client.post("/api/v1/revisions/1/rollback", headers=team.admin).status_code == 200
    assert team.apply(queue("resnet", "vision", 31), platform=True).status_code == 200
    for path in ("diff", "plan", "rollback"):
        answer = team.client.post(f"/api/v1/revisions/1/{path}", headers=team.admin)
        assert answer.status_code == 403
    assert team.client.post("/api/v1/revisions/1/rollback", headers=team.platform).status_code == 200


def test_a_binding_gives_roles_to_tokens_by_name(store: Store):
    ops = {"role": "operator", "subjects": [{"kind": "Token", "name": "bot"}], "node": "vision"}
    settle(store, document("RoleBinding", "bots", ops))
    client = server(store)
    bot = bearer(token(store, "viewer", OWN, name="bot"))
    hold = {"json": {"reason": "because"}, "headers": bot}
    assert client.post("/api/v1/workloads/team-resnet/training/hold", **hold).status_code == 202
    assert client.post("/api/v1/workloads/team-bert/blocked/hold", **hold).status_code == 403
    other = bearer(token(store, "viewer", OWN, name="other"))
    assert client.post("/api/v1/workloads/team-resnet/training/hold", **{**hold, "headers": other}).status_code == 403


def test_hidden_queues_and_their_workloads_are_named_nowhere(store: Store):
    settle(store, document("LocalQueue", "x", {"queue": "resnet"}, "secret-namespace"), hidden=True)
    client = server(store)
    headers = bearer(token(store, "queue-admin", OWN))
    paths = [
        "/api/v1/tree",
        "/api/v1/workloads",
        "/api/v1/workloads/team-bert/blocked",
        "/api/v1/workloads/team-bert/blocked/explanation",
        "/api/v1/workloads/team-bert/blocked/history",
        "/api/v1/config",
        "/api/v1/queues",
        "/api/v1/cohorts",
        "/api/v1/local-queues",
        "/api/v1/role-bindings",
        "/api/v1/revisions",
        "/api/v1/revisions/1",
        "/",
        "/fragments/overview",
        "/workloads/team-bert/blocked",
    ]
    for path in paths:
        answer = client.get(path, headers=headers)
        assert answer.status_code == 200
        for hidden in ("resnet", "vision", "training", "secret-namespace"):
            assert not re.search(rf"\b{hidden}\b", answer.text), path
    explanation = client.get(paths[3], headers=headers).json()
    assert explanation["blockers"][0]["holders"] == ["team-llama/other"]
    assert "team-llama/other" in explanation["message"]
    assert client.get("/api/v1/workloads?queue=resnet", headers=headers).json()["items"] == []
    assert client.get("/api/v1/workloads?cohort=vision", headers=headers).status_code == 404
    plan = client.post("/api/v1/config/plan", content=json.dumps(queue("bert", OWN, 1)), headers=headers)
    assert "team-resnet" not in plan.text


def test_read_only_shows_everything(store: Store):
    settle(store)
    client = server(store)
    headers = bearer(token(store, "viewer", OWN))
    holders = client.get("/api/v1/workloads/team-bert/blocked/explanation", headers=headers).json()["blockers"][0]
    assert holders["holders"] == ["team-resnet/training", "team-llama/other"]
    assert "resnet" in client.get("/api/v1/tree", headers=headers).text


def test_a_job_is_moved_by_who_has_a_role_at_both_queues(store: Store):
    both = {"role": "operator", "subjects": [{"kind": "Token", "name": "both"}], "node": "vision"}
    settle(store, document("RoleBinding", "both", both))
    client = server(store)

    def move(headers: Mapping[str, str], queue: str, **more: Any) -> int:
        body = {"reason": "because", "queue": queue, **more}
        path = "/api/v1/workloads/team-bert/blocked/move"
        return client.post(path, json=body, headers=headers).status_code

    one = bearer(token(store, "operator", OWN))
    assert move(one, "resnet") == 403
    assert move(one, "llama", force=True) == 403
    assert move(bearer(token(store, "operator", OWN, name="both")), "resnet") == 202
    assert move(one, "llama") == 202
