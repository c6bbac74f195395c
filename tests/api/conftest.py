"""A client of the application over a fresh database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from api.app import create_app
from queue_manager.store.store import Store
from tests.store.builders import NOW


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    """Requests as from this machine; errors of the server become answers, not exceptions."""
    app = create_app(store, now=lambda: NOW, registry=CollectorRegistry(), patience=0.05)
    with TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False) as client:
        yield client
