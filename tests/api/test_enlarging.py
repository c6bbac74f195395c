"""No admin of a subtree makes it larger: not alone, not with helpers of their own, not by odd ways of asking."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.auth.allowances import Cells, cells_of, excess
from queue_manager.store.store import Store
from queue_manager.store.tokens import Scope, new_secret
from tests.api.callers import MAKER, bearer, document, server, settle, token
from tests.api.world import GPU, group, queue
from tests.store.builders import NOW

OWN = "research/nlp"
ADMINS = ("queue-admin", "platform-admin")
Headers = Mapping[str, str]


class Team:
    """A server where admins of subtrees ask for more."""

    def __init__(self, store: Store) -> None:
        settle(store)
        self.store = store
        self.client: TestClient = server(store)
        self.platform = bearer(token(store, "platform-admin"))

    def admin(self, role: str, *nodes: str) -> Headers:
        """Somebody with a role at nodes."""
        secret, name = new_secret(), f"{role}-{len(self.store.access.list_tokens(500, None, True))}"
        scopes = tuple(Scope(role, name) for name in nodes)
        self.store.access.create_token(secret, name, scopes, None, MAKER, NOW)
        return bearer(secret)

    def apply(self, who: Headers, *documents: Mapping[str, Any]) -> int:
        text = "\n---\n".join(json.dumps(each) for each in documents)
        return int(self.client.put("/api/v1/config", content=text, headers=who).status_code)

    def has(self, node: str = OWN) -> Cells:
        """What the subtree has now."""
        compiled = self.client.app.state.context.configuration().compiled  # type: ignore[attr-defined]
        found = compiled.tree.find("Cohort", node) or compiled.tree.find("Queue", node)
        return cells_of(compiled, found)

    def gpus(self, node: str = OWN) -> int:
        return sum(has.guaranteed for cell, has in self.has(node).items() if cell.resource == GPU)


@pytest.fixture
def team(store: Store) -> Team:
    return Team(store)


def cohort(name: str, parent: str, gpus: int | None = None, **spec: Any) -> dict[str, Any]:
    groups = [group({"h100": {"cpu": 0, "memory": 0, GPU: gpus}})] if gpus is not None else []
    return document("Cohort", name, {"parent": parent, **({"resourceGroups": groups} if groups else {}), **spec})


def with_borrowing(item: dict[str, Any], limit: int) -> dict[str, Any]:
    for quota in item["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        quota["borrowingLimit"] = limit
    return item


TOP: list[dict[str, Any]] = [
    cohort(OWN, "research", 17),
    with_borrowing(cohort(OWN, "research", 16), 8),
    cohort(OWN, "research", 16, fairSharing={"weight": 9}),
    cohort(OWN, "vision", 16),
    cohort(OWN, "", 16),
    cohort(OWN, "company", 16),
    cohort("research", "vision"),
    cohort("research", "company", 8),
]


@pytest.mark.parametrize("role", ADMINS)
def test_the_node_of_a_role_stays_what_it_is_by_apply_put_and_patch(team: Team, role: str):
    """Whoever is admin of a subtree, by whichever role, has its node from above."""
    who, before = team.admin(role, OWN), team.has("company")
    headers = {**who, "If-Match": "*"}
    for wanted in TOP:
        path, patch = f"/api/v1/cohorts/{wanted['metadata']['name']}", {"spec": wanted["spec"]}
        assert team.apply(who, wanted) == 403
        assert team.client.put(path, json=wanted, headers=headers).status_code == 403
        assert team.client.patch(path, json=patch, headers=headers).status_code == 403
    assert team.has("company") == before


@pytest.mark.parametrize("role", ADMINS)
def test_the_queue_of_a_role_stays_what_it_is(team: Team, role: str):
    who = team.admin(role, "bert")
    for wanted in (
        queue("bert", OWN, 65),
        queue("bert", "vision", 64),
        queue("bert", OWN, 64, fairSharing={"weight": 2}),
        with_borrowing(queue("bert", OWN, 64), 1),
        queue("bert", OWN, 64, preemption={"reclaimWithinCohort": "Any"}),
    ):
        assert team.apply(who, wanted) == 403
    delete = team.client.delete("/api/v1/queues/bert", headers={**who, "If-Match": "*"})
    assert delete.status_code in (403, 422)
    assert team.apply(who, queue("bert", OWN, 64, namespaceSelector={"matchLabels": {"team": "bert"}})) == 200


@pytest.mark.parametrize("role", ADMINS)
def test_what_a_helper_gives_back_is_not_given_twice(team: Team, role: str):
    """A queue admin gives a token for one queue to themselves: what it lowers there, they share out; then it is raised
    again, to what that queue was given."""
    lead, helper = team.admin(role, OWN), team.admin("queue-admin", "bert")
    assert team.apply(helper, queue("bert", OWN, 0)) == 200
    assert team.apply(lead, queue("llama", OWN, 96)) == 200
    assert team.apply(helper, queue("bert", OWN, 64)) == 403
    assert team.gpus() == 112
    assert team.apply(lead, queue("llama", OWN, 32)) == 200
    assert team.apply(helper, queue("bert", OWN, 64)) == 200
    assert team.gpus() == 112


def test_two_subtrees_of_one_cohort_are_not_lent_to_each_other(team: Team):
    """Who is admin of both takes nothing from one for the other: each has what it was given."""
    both = team.admin("queue-admin", OWN, "vision")
    assert team.apply(both, queue("resnet", "vision", 0)) == 200
    assert team.apply(both, queue("bert", OWN, 96)) == 403
    assert team.apply(both, queue("resnet", OWN, 0)) == 200
    assert team.apply(both, queue("resnet", OWN, 32)) == 403
    assert team.apply(both, queue("resnet", "vision", 32)) == 200


def test_what_was_lowered_within_can_be_raised_again_by_those_who_had_it(team: Team):
    """Whoever changes something first: what the nodes above have is noted before."""
    helper, lead = team.admin("queue-admin", "bert"), team.admin("queue-admin", OWN)
    assert team.apply(helper, queue("bert", OWN, 8)) == 200
    assert team.apply(lead, queue("bert", OWN, 64)) == 200
    assert team.gpus() == 112


def test_a_subtree_that_a_platform_admin_makes_larger_is_larger(team: Team):
    lead = team.admin("queue-admin", OWN)
    assert team.apply(lead, queue("bert", OWN, 32)) == 200
    assert team.apply(team.platform, cohort(OWN, "vision", 24)) == 200
    assert team.apply(lead, queue("bert", OWN, 64)) == 200
    assert team.apply(lead, queue("bert", OWN, 65)) == 403
    assert team.gpus() == 120


def test_who_is_queue_admin_of_the_whole_tree_has_nobody_above(team: Team):
    everything = team.admin("queue-admin", "")
    assert team.apply(team.admin("queue-admin", OWN), queue("bert", OWN, 32)) == 200
    assert team.apply(everything, queue("resnet", "vision", 48)) == 200
    assert team.apply(everything, document("Flavor", "h100", {"nodeLabels": {"a": "b"}})) == 403


@pytest.mark.parametrize("seed", range(2))
def test_no_sequence_of_changes_by_those_within_enlarges_a_subtree(team: Team, seed: int):
    random = Random(seed)
    within = [
        team.admin(random.choice(ADMINS), OWN),
        team.admin("queue-admin", "bert"),
        team.admin("queue-admin", "llama"),
    ]
    given, vision = team.has(), team.has("vision")
    done = 0
    for _ in range(40):
        who, changes = random.choice(within), [any_change(random) for _ in range(random.choice([1, 1, 2]))]
        names = {(each["kind"], each["metadata"]["name"]): each for each in changes}
        if random.random() < 0.1:
            number = random.randrange(1, team.store.current_revision() + 1)
            answer = team.client.post(f"/api/v1/revisions/{number}/rollback", headers=who)
            done += answer.status_code == 200
        elif random.random() < 0.1:
            name = random.choice(["bert", "llama", "t5", "gpt"])
            answer = team.client.delete(f"/api/v1/queues/{name}", headers={**who, "If-Match": "*"})
            done += answer.status_code == 204
        else:
            done += team.apply(who, *names.values()) == 200
        assert excess(given, team.has()) == []
        assert team.has("vision") == vision
    assert done > 5


def any_change(random: Random) -> dict[str, Any]:
    parents = [OWN, OWN, OWN, "small", "tiny", "research", "vision"]
    gpus = random.choice([0, 0, 8, 16, 32, 64, 96])
    if random.random() < 0.3:
        name = random.choice([OWN, "small", "tiny"])
        return cohort(name, "research" if name == OWN else random.choice(parents), random.choice([None, 0, 8, 16]))
    item = queue(random.choice(["bert", "llama", "t5", "gpt"]), random.choice(parents), gpus)
    return with_borrowing(item, random.choice([0, 8])) if random.random() < 0.2 else item
