"""A namespace is one team's: no admin of a subtree leads the jobs of another into a queue of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from queue_manager.store.records import Change, State
from queue_manager.store.store import Store
from tests.api.callers import bearer, document, server, settle, token
from tests.api.world import commit, job

OWN = "research/nlp"


class Admins:
    """The admin of research/nlp, the one of vision, and who is above both."""

    def __init__(self, store: Store, namespaces: str = "Unclaimed") -> None:
        settle(store)
        self.client = server(store)
        self.nlp = bearer(token(store, "queue-admin", OWN))
        self.vision = bearer(token(store, "platform-admin", "vision"))
        self.above = bearer(token(store, "queue-admin", "company"))
        self.platform = bearer(token(store, "platform-admin"))
        settings = document("Settings", "default", {"access": {"namespaces": namespaces}})
        assert self.apply(self.platform, settings) == 200

    def bind(self, who: Mapping[str, str], namespace: str, queue: str, name: str = "x") -> int:
        return self.apply(who, document("LocalQueue", name, {"queue": queue}, namespace))

    def apply(self, who: Mapping[str, str], item: dict[str, Any]) -> int:
        return int(self.client.put("/api/v1/config", json=item, headers=who).status_code)


def test_the_namespace_of_another_team_is_not_bound(store: Store):
    admins = Admins(store)
    assert admins.bind(admins.nlp, "team-resnet", "bert") == 403
    path = "/api/v1/local-queues/team-resnet/resnet"
    body = document("LocalQueue", "resnet", {"queue": "bert"}, "team-resnet")
    answer = admins.client.put(path, json=body, headers={**admins.nlp, "If-None-Match": "*"})
    assert answer.status_code == 403
    assert "has local queues or jobs of queues outside" in answer.json()["errors"][0]["message"]
    plan = admins.client.post("/api/v1/config/plan", json=body, headers=admins.nlp)
    assert plan.status_code == 403
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    kueue |= {"metadata": {"name": "x", "namespace": "team-resnet"}, "spec": {"clusterQueue": "bert"}}  # type: ignore[dict-item]
    assert admins.apply(admins.nlp, kueue) == 403
    assert admins.bind(admins.nlp, "team-bert", "llama") == 200
    assert admins.bind(admins.above, "team-resnet", "bert") == 200
    assert admins.bind(admins.platform, "team-resnet", "llama", "y") == 200


def test_a_namespace_without_local_queues_is_whose_jobs_are_in_it(store: Store):
    """Jobs may name a queue itself: a local queue of its name would turn them."""
    admins = Admins(store)
    commit(store, Change(row=job("direct", "resnet", 1, namespace="free", local_queue="resnet")))
    commit(store, Change(row=job("stray", "", 1, namespace="unknown", local_queue="nothing")))
    ended = job("over", "resnet", 1, namespace="quiet", state=State.FINISHED)
    commit(store, Change(row=ended))
    assert admins.bind(admins.nlp, "free", "bert", "resnet") == 403
    assert admins.bind(admins.vision, "free", "resnet", "resnet") == 200
    assert admins.bind(admins.nlp, "unknown", "bert") == 200
    assert admins.bind(admins.nlp, "quiet", "bert") == 200


def test_who_claims_a_namespace_first_has_it(store: Store):
    admins = Admins(store)
    assert admins.bind(admins.nlp, "new", "bert") == 200
    assert admins.bind(admins.vision, "new", "resnet") == 403
    assert admins.bind(admins.vision, "new", "resnet", "y") == 403
    gone = admins.client.delete("/api/v1/local-queues/new/x", headers={**admins.nlp, "If-Match": "*"})
    assert gone.status_code == 204
    assert admins.bind(admins.vision, "new", "resnet", "y") == 200
    # Nor is it had back by a rollback.
    assert admins.client.post("/api/v1/revisions/3/rollback", headers=admins.nlp).status_code == 403


def test_a_platform_admin_may_keep_namespaces_for_themselves(store: Store):
    admins = Admins(store, "Platform")
    assert admins.bind(admins.nlp, "new", "bert") == 403
    assert admins.bind(admins.above, "new", "bert") == 403
    assert admins.bind(admins.nlp, "team-bert", "llama") == 200
    assert admins.bind(admins.platform, "new", "bert") == 200
    assert admins.bind(admins.nlp, "new", "llama", "y") == 200


@pytest.mark.parametrize("who", ["nlp", "vision"])
def test_a_namespace_that_is_shared_is_kept_by_each_as_it_is(store: Store, who: str):
    admins = Admins(store)
    assert admins.bind(admins.platform, "team-bert", "resnet", "lent") == 200
    caller, own, name, other = {
        "nlp": (admins.nlp, "bert", "default", "llama"),
        "vision": (admins.vision, "resnet", "lent", "bert"),
    }[who]
    assert admins.bind(caller, "team-bert", own, "more") == 403
    assert admins.bind(caller, "team-bert", other, name) == (200 if who == "nlp" else 403)
