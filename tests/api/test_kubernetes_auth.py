"""Kubernetes' tokens: the API server is asked whose they are, and its answer kept for a moment."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from api.auth.authentication import RefusedError, UnavailableError
from api.auth.kubernetes import KEPT, KubernetesVerifier
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
