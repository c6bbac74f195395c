"""Callers with roles, for tests of who may do what: a company with two subtrees, and tokens for every role in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from api.auth.authentication import Authentication
from api.auth.token_verifier import TokenVerifier
from queue_manager.config.compiled import stored_objects
from queue_manager.config.parse import parse_objects
from queue_manager.config.validate import validate
from queue_manager.store.store import Store
from queue_manager.store.tokens import Maker, Scope, new_secret
from tests.api.world import commit, document, group, job, queue, running, waiting
from tests.store.builders import NOW

MAKER = Maker("test", "loopback")
ROLES = ("viewer", "operator", "queue-admin", "platform-admin")
TREE = [
    document("Flavor", "h100", {}),
    document("Flavor", "a100", {}),
    document("Cohort", "company", {}),
    document("Cohort", "research", {"parent": "company"}),
    document(
        "Cohort",
        "research/nlp",
        {"parent": "research", "resourceGroups": [group({"h100": {"cpu": 0, "memory": 0, "nvidia.com/gpu": 16}})]},
    ),
    queue("bert", "research/nlp", 64),
    queue("llama", "research/nlp", 32),
    document("Cohort", "vision", {"parent": "company"}),
    queue("resnet", "vision", 32),
    document("LocalQueue", "default", {"queue": "bert"}, "team-bert"),
    document("LocalQueue", "default", {"queue": "resnet"}, "team-resnet"),
    document("PriorityClass", "high", {"value": 100}),
]
"""company{research{research/nlp{bert 64, llama 32, own 16}}, vision{resnet 32}} GPUs."""


def settle(store: Store, *more: Mapping[str, Any], hidden: bool = False) -> None:
    """Stores the tree, with more objects, and a job of each team: bert's waits for what resnet's holds."""
    outside = "Hidden" if hidden else "ReadOnly"
    documents = [*TREE, document("Settings", "default", {"access": {"outside": outside}}), *more]
    result = parse_objects([dict(each) for each in documents])
    assert not result.errors
    assert not validate(result.objects)
    store.apply_configuration(stored_objects(result.objects), author="root", reason="start", now=NOW, source="test")
    commit(
        store,
        running(job("training", "resnet", 4)),
        running(job("other", "llama", 1)),
        waiting(
            job("blocked", "bert", 1),
            "waits for team-resnet/training and team-llama/other",
            holders=["team-resnet/training", "team-llama/other"],
        ),
    )


def token(store: Store, role: str, node: str = "", name: str = "") -> str:
    """A token that carries a role."""
    secret = new_secret()
    name = name or f"{role}-{node.replace('/', '.') or 'all'}"
    store.access.create_token(secret, name, (Scope(role, node),), None, MAKER, NOW)
    return secret


def server(store: Store, **options: Any) -> TestClient:
    """A server where a proof is needed."""
    verifiers = [TokenVerifier(store, lambda: NOW), *options.pop("verifiers", ())]
    authentication = Authentication(required=True, verifiers=verifiers, **options)
    app = create_app(store, now=lambda: NOW, registry=CollectorRegistry(), patience=0.01, authentication=authentication)
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False, follow_redirects=False)


def bearer(secret: str) -> dict[str, str]:
    """The header that proves who asks."""
    return {"Authorization": f"Bearer {secret}"}
