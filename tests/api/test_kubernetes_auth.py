"""Kubernetes' tokens: the API server is asked whose they are, and its answer kept for a moment."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest

from api.auth import kubernetes
from api.auth.authentication import RefusedError, TooManyError, UnavailableError
from api.auth.kubernetes import KEPT, UNKNOWN_AT_ONCE, KubernetesVerifier
from api.shared import Shared
from queue_manager.cluster.clock import SystemClock
from queue_manager.cluster.credentials import Credentials
from queue_manager.cluster.port import ApiError, Resource
from queue_manager.cluster.simulated import SimulatedCluster
from queue_manager.cluster.transport import ApiServer
from queue_manager.store.store import Store
from tests.api.callers import bearer, document, server, settle
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]
ROBOT = "system:serviceaccount:team-bert:robot"


class Reviews:
    """An API server that answers TokenReviews."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}
        self.fails = False

    async def create(self, resource: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if self.fails:
            raise ApiError(503, "Unavailable", "away")
        good = body["spec"]["token"] == "good"
        user = {"username": ROBOT, "groups": ["system:serviceaccounts", "system:authenticated"]}
        return {"status": {"authenticated": good, **({"user": user} if good else {}), **self.status}}

    async def close(self) -> None:
        pass


def test_a_service_account_has_the_roles_of_bindings(store: Store):
    role = {"role": "operator", "subjects": [{"kind": "User", "name": ROBOT}], "node": "bert"}
    settle(store, document("RoleBinding", "robot", role))
    client = server(store, verifiers=[KubernetesVerifier(Reviews())])  # type: ignore[arg-type]
    path = "/api/v1/workloads/team-bert/blocked/hold"
    assert client.post(path, json={"reason": "x"}, headers=bearer("good")).status_code == 202
    assert (store.audit_entries(1)[0].who, store.audit_entries(1)[0].source) == (ROBOT, "kubernetes")
    assert client.get("/api/v1/tree", headers=bearer("bad")).status_code == 401


async def test_answers_are_kept_for_a_moment():
    reviews, now = Reviews(), [0.0]
    verifier = KubernetesVerifier(reviews, monotonic=lambda: now[0])  # type: ignore[arg-type]
    for _ in range(3):
        assert (await verifier.verify("good")).name == ROBOT
        with pytest.raises(RefusedError):
            await verifier.verify("bad")
    assert len(reviews.asked) == 2
    now[0] += KEPT
    await verifier.verify("good")
    assert len(reviews.asked) == 3


async def test_a_failure_says_nothing_about_a_token_and_is_not_kept():
    reviews = Reviews()
    reviews.fails = True
    verifier = KubernetesVerifier(reviews)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        await verifier.verify("good")
    reviews.fails = False
    assert (await verifier.verify("good")).name == ROBOT


async def test_an_audience_is_asked_for_and_looked_at():
    reviews = Reviews()
    verifier = KubernetesVerifier(reviews, "queue-manager")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="audience"):
        await verifier.verify("good")
    assert reviews.asked[0]["spec"]["audiences"] == ["queue-manager"]
    reviews.status = {"audiences": ["queue-manager"]}
    assert (await KubernetesVerifier(reviews, "queue-manager").verify("good")).name == ROBOT  # type: ignore[arg-type]


async def test_the_simulated_api_server_is_asked_like_a_real_one():
    simulated = SimulatedCluster(SystemClock(), Random(1))
    simulated.state.accounts["good"] = (ROBOT, ("system:serviceaccounts",))
    verifier = KubernetesVerifier(simulated, "queue-manager")
    identity = await verifier.verify("good")
    assert (identity.name, "system:serviceaccounts" in identity.groups) == (ROBOT, True)
    with pytest.raises(RefusedError, match="does not know it"):
        await verifier.verify("bad")


@pytest.mark.parametrize("name", ["local", "queue-manager", "token:admin"])
@pytest.mark.parametrize("place", ["username", "groups"])
async def test_who_is_named_like_one_of_ours_is_refused(name: str, place: str):
    """Or the audit log, and bindings, would take one for the other."""
    reviews = Reviews()
    reviews.status = {"user": {"username": "ada", "groups": [], place: name if place == "username" else [name]}}
    with pytest.raises(RefusedError, match="gives itself"):
        await KubernetesVerifier(reviews).verify("good")  # type: ignore[arg-type]


async def test_made_up_tokens_of_an_address_are_asked_about_so_often_and_good_ones_always():
    reviews, now = Reviews(), [0.0]
    verifier = KubernetesVerifier(reviews, monotonic=lambda: now[0])  # type: ignore[arg-type]
    await verifier.verify("good", "10.0.0.1")
    for number in range(UNKNOWN_AT_ONCE):
        with pytest.raises(RefusedError):
            await verifier.verify(f"made-up-{number}", "10.0.0.1")
    asked = len(reviews.asked)
    for number in range(100):
        with pytest.raises(TooManyError):
            await verifier.verify(f"another-{number}", "10.0.0.1")
    assert len(reviews.asked) == asked
    with pytest.raises(RefusedError):
        await verifier.verify("of another address", "10.0.0.2")
    now[0] += KEPT / 2 + KEPT
    for number in range(100):
        with contextlib.suppress(RefusedError, TooManyError):
            await verifier.verify(f"third-{number}", "10.0.0.1")
    assert (await verifier.verify("good", "10.0.0.1")).name == ROBOT


async def test_processes_ask_about_made_up_tokens_of_an_address_as_one():
    shared, reviews = Shared(), Reviews()
    one, other = (KubernetesVerifier(reviews, monotonic=lambda: 5.0, buckets=shared) for _ in range(2))  # type: ignore[arg-type]
    for number in range(UNKNOWN_AT_ONCE):
        with pytest.raises(RefusedError):
            await (one, other)[number % 2].verify(f"made-up-{number}", "10.0.0.1")
    for verifier in (one, other):
        with pytest.raises(TooManyError):
            await verifier.verify("another", "10.0.0.1")
        assert (await verifier.verify("good", "10.0.0.2")).name == ROBOT


async def test_bad_tokens_do_not_drive_out_good_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kubernetes, "MOST", 3)
    reviews = Reviews()
    verifier = KubernetesVerifier(reviews, monotonic=lambda: 0.0)  # type: ignore[arg-type]
    await verifier.verify("good")
    for number in range(10):
        with pytest.raises(RefusedError):
            await verifier.verify(f"made-up-{number}")
    asked = len(reviews.asked)
    await verifier.verify("good")
    assert len(reviews.asked) == asked
    assert len(verifier._refused) == 3


async def test_requests_with_one_token_at_once_are_one_question():
    reviews = Reviews()
    verifier = KubernetesVerifier(reviews, monotonic=lambda: 0.0)  # type: ignore[arg-type]
    found = await asyncio.gather(*(verifier.verify("good", "10.0.0.1") for _ in range(50)))
    assert ({each.name for each in found}, len(reviews.asked)) == ({ROBOT}, 1)


def test_too_many_made_up_tokens_are_told_to_wait(store: Store):
    client = server(store, verifiers=[KubernetesVerifier(Reviews(), monotonic=lambda: 0.0)])  # type: ignore[arg-type]
    answers = [client.get("/api/v1/tree", headers=bearer(f"made-up-{n}")) for n in range(UNKNOWN_AT_ONCE + 1)]
    assert [each.status_code for each in answers] == [401] * UNKNOWN_AT_ONCE + [429]
    assert answers[-1].headers["retry-after"] == "5"


@pytest.mark.cluster
async def test_a_real_api_server_knows_its_service_accounts(cluster: ControlPlane):
    access = ApiServer(Credentials.kubeconfig(str(cluster.kubeconfig)))
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    await access.create(accounts, "default", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "r"}})
    requests = Resource("", "v1", "serviceaccounts/r/token", "TokenRequest")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}}
    made = [
        (await access.create(requests, "default", {**body, "spec": {"audiences": audiences}}))["status"]["token"]
        for audiences in (["queue-manager"], ["other"])
    ]
    verifier = KubernetesVerifier(access, "queue-manager")
    identity = await verifier.verify(made[0])
    assert identity.name == "system:serviceaccount:default:r"
    assert "system:serviceaccounts:default" in identity.groups
    for token in (made[1], "nonsense", made[0] + "x"):
        with pytest.raises(RefusedError):
            await verifier.verify(token)
    await verifier.close()
